// Elements from values. Text is only ever set as text, so that nothing a user wrote becomes markup.

import { plain } from "./text.js";

/** An element with properties and children; strings among the children become text. */
export function h(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "class") element.className = value;
    else if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name in element && typeof value !== "string") element[name] = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...nodes(children));
  return element;
}

function nodes(children) {
  return children
    .flat(Infinity)
    .filter((child) => child !== null && child !== undefined && child !== false)
    .map((child) => (child instanceof Node ? child : document.createTextNode(plain(String(child)))));
}

/** A table that scrolls sideways, also by keys, where it is too wide. */
export function wideTable(label, heads, rows) {
  return h("div", { class: "scrolls", tabindex: "0", role: "group", "aria-label": label },
    h("table", {}, h("thead", {}, h("tr", {}, heads.map((head) => h("th", { scope: "col" }, head)))), h("tbody", {}, rows)));
}

/** Replaces what an element holds. */
export function fill(element, ...children) {
  element.replaceChildren(...nodes(children));
}

/** Sets the text of an element, if it is another one: an unchanged text costs no layout. */
export function setText(element, text) {
  const shown = plain(String(text));
  if (element.textContent !== shown) element.textContent = shown;
}

/** The size of a canvas in the pixels of the screen; returns its context, scaled so that one unit is a CSS pixel. */
export function sized(canvas, width, height) {
  const ratio = window.devicePixelRatio || 1;
  const [wide, high] = [Math.max(1, Math.round(width * ratio)), Math.max(1, Math.round(height * ratio))];
  if (canvas.width !== wide) canvas.width = wide;
  if (canvas.height !== high) canvas.height = high;
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  return context;
}

/** Colours of the style sheet by name, for canvases. */
export function palette() {
  const [style, known] = [getComputedStyle(document.documentElement), new Map()];
  return (name) => {
    if (!known.has(name)) known.set(name, style.getPropertyValue(`--${name}`).trim());
    return known.get(name);
  };
}

/** A short message that goes away by itself, with a button if something can be done about it. */
export function notice(text, { kind = "info", action = null, stays_ms = 7000 } = {}) {
  const box = h("div", { class: `notice ${kind}` }, h("span", {}, text));
  const close = () => box.remove();
  if (action !== null) {
    box.append(h("button", { class: "link", type: "button", onclick: () => (close(), action.run()) }, action.label));
  }
  box.append(h("button", { class: "icon", type: "button", "aria-label": "Dismiss", onclick: close }, "×"));
  document.getElementById("notices").append(box);
  setTimeout(close, stays_ms);
}

/** Asks before something that cannot be undone. */
export function confirmed(question, yes) {
  return new Promise((resolve) => {
    const dialog = h(
      "dialog",
      { class: "ask", "aria-label": question, onclose: () => (dialog.remove(), resolve(dialog.returnValue === "yes")) },
      h("p", {}, question),
      h(
        "div",
        { class: "buttons" },
        h("button", { type: "button", onclick: () => dialog.close("no") }, "Cancel"),
        h("button", { type: "button", class: "danger", onclick: () => dialog.close("yes") }, yes),
      ),
    );
    document.body.append(dialog);
    dialog.showModal();
  });
}
