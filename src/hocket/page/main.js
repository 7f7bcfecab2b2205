// The page: signs in, shows one view at a time by what stands behind the # of the address, and keeps it up to date.

import { hasSession, signIn, signOut } from "./api.js";
import { fill, h, notice, setText } from "./dom.js";
import { JobView } from "./job.js";
import { Jobs } from "./jobs.js";
import { Overview } from "./overview.js";
import { Past } from "./past.js";
import { isRecorded, loadRecording } from "./recording.js";
import { SignIn } from "./sign_in.js";
import { Studies, StudyView } from "./studies.js";
import { Store } from "./store.js";
import { Submit } from "./submit.js";
import { countFromZero, number, plain } from "./text.js";
import { WhatIf } from "./what_if.js";

const app = document.getElementById("app");
const THEMES = ["auto", "light", "dark"];
const KEYS = [
  ["g o", "Overview"], ["g j", "Jobs"], ["g p", "Back in time"], ["g w", "What if"], ["g s", "Studies"], ["/", "Filter jobs"], ["j k ↑ ↓", "Move in a list"], ["x", "Select a job"], ["n", "Submit a job"],
  ["Enter", "Open a job"], ["← →", "Move in time: on the lanes, and from decision to decision in the past"], ["t", "Light or dark"], ["?", "This list"],
];

let store = null;
let recording = null; // the run that is in the page itself; null: there is a controller
let view = null;
let frame = null;
let before = ""; // the key that was pressed before

function frameOf() {
  const links = { overview: h("a", { href: "#/" }, "Overview"), jobs: h("a", { href: "#/jobs" }, "Jobs"), past: h("a", { href: "#/past" }, "Past"), whatif: isRecorded ? null : h("a", { href: "#/whatif" }, "What if"), studies: isRecorded ? null : h("a", { href: "#/studies" }, "Studies") };
  const policy = h("span", { class: "muted small policy" });
  const caller = h("span", { class: "muted small caller" });
  const connection = h("span", { class: "connection", role: "status" });
  const trouble = h("div", { class: "banner", role: "alert", hidden: true });
  const main = h("main", { id: "main", tabindex: "-1" });
  const element = h(
    "div",
    { class: "frame" },
    h(
      "header",
      { class: "top" },
      h("a", { class: "brand", href: "#/" }, h("img", { src: "page/icon.svg", alt: "", width: "24", height: "24" }), "Hocket"),
      h("nav", { "aria-label": "Views" }, Object.values(links)),
      h("span", { class: "space" }),
      policy, connection, caller,
      h("button", { type: "button", class: "icon", "aria-label": "Light or dark", title: "Light or dark (t)", onclick: nextTheme }, "◐"),
      h("button", { type: "button", class: "icon for-keys", "aria-label": "Keys", title: "Keys (?)", onclick: showKeys }, "?"),
      isRecorded ? null : h("button", { type: "button", class: "quiet", onclick: () => signOut().catch((error) => notice(error.message, { kind: "error" })) }, "Sign out"),
    ),
    trouble,
    main,
  );
  return { element, main, links, policy, caller, connection, trouble };
}

function route() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const [first, ...rest] = path.split("/");
  if (first === "jobs" && rest.length) return ["jobs", () => new JobView(store, decoded(rest.join("/")))];
  if (first === "jobs") return ["jobs", () => new Jobs(store, new URLSearchParams(query))];
  if (first === "studies" && !isRecorded) return ["studies", () => (rest.length ? new StudyView(store, decoded(rest.join("/"))) : new Studies(store))];
  if (first === "whatif" && !isRecorded) return ["whatif", () => new WhatIf(store)];
  if (first === "submit" && !isRecorded) return ["jobs", () => new Submit(store)];
  if (first === "past") return ["past", () => new Past(store, /^[0-9]+$/.test(rest[0] ?? "") ? Number(rest[0]) : null)];
  return ["overview", () => new Overview(store)];
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

function show() {
  if (store === null) return;
  view?.close();
  const [name, make] = route();
  view = make();
  for (const [each, link] of Object.entries(frame.links)) {
    if (link === null) continue;
    if (each === name) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  fill(frame.main, view.element);
  window.scrollTo(0, 0);
  update();
}

function update() {
  if (store === null) return;
  document.title = plain(`${view.title} · Hocket`);
  setText(frame.connection, store.isConnected ? "" : store.hasLoaded ? "Reconnecting…" : "Connecting…");
  frame.connection.classList.toggle("away", !store.isConnected && store.hasLoaded);
  if (store.status) setText(frame.policy, `${store.status.policy} · ${number(store.status.decisions)} decisions`);
  if (recording) setText(frame.caller, `a recording of ${recording.title}`);
  else if (store.token) setText(frame.caller, store.token.owner ? `${store.token.owner} (${store.token.role})` : store.token.role);
  frame.trouble.hidden = !store.status?.trouble;
  setText(frame.trouble, store.status?.trouble ?? "");
  if (store.hasLoaded) view.update();
}

function begin() {
  store?.stop();
  store = new Store();
  store.addEventListener("change", update);
  frame = frameOf();
  fill(app, frame.element);
  store.start();
  show();
}

function askToSignIn(message = "") {
  store?.stop();
  view?.close();
  store = null;
  view = new SignIn(begin, message);
  document.title = "Sign in · Hocket";
  fill(app, view.element);
}

function nextTheme() {
  const chosen = THEMES[(THEMES.indexOf(localStorage.getItem("hocket-theme") ?? "auto") + 1) % THEMES.length];
  if (chosen === "auto") localStorage.removeItem("hocket-theme");
  else localStorage.setItem("hocket-theme", chosen);
  window.dispatchEvent(new Event("theme-chosen"));
  notice(`Colours: ${chosen === "auto" ? "as the system" : chosen}`, { stays_ms: 1500 });
}

function showKeys() {
  const dialog = h(
    "dialog",
    { class: "keys", "aria-label": "Keys", onclose: () => dialog.remove() },
    h("h2", {}, "Keys"),
    h("dl", {}, KEYS.map(([keys, what]) => [h("dt", {}, keys.split(" ").map((key) => h("kbd", {}, key))), h("dd", {}, what)])),
    h("div", { class: "buttons" }, h("button", { type: "button", onclick: () => dialog.close() }, "Close")),
  );
  document.body.append(dialog);
  dialog.showModal();
}

function onKey(event) {
  if (store === null || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.closest("input, select, textarea, dialog")) return;
  const pair = `${before} ${event.key}`;
  before = event.key;
  if (pair === "g o") location.hash = "#/";
  else if (pair === "g j") location.hash = "#/jobs";
  else if (pair === "g p") location.hash = "#/past";
  else if (pair === "g w" && !isRecorded) location.hash = "#/whatif";
  else if (pair === "g s" && !isRecorded) location.hash = "#/studies";
  else if (event.key === "n" && !isRecorded) {
    location.hash = "#/submit";
    event.preventDefault(); // else it is typed into the form
  } else if (event.key === "/") {
    if (!(view instanceof Jobs)) {
      location.hash = "#/jobs";
      window.addEventListener("hashchange", () => view.focusSearch?.(), { once: true });
    } else view.focusSearch();
    event.preventDefault();
  } else if (event.key === "t") nextTheme();
  else if (event.key === "?") showKeys();
}

async function start() {
  if (isRecorded) {
    recording = await loadRecording();
    if (recording.isSimulated) countFromZero();
  }
  const link = /^#link=(.+)$/.exec(location.hash)?.[1];
  if (link !== undefined) {
    history.replaceState(null, "", location.pathname); // It can be used once, and is not to stand in the address.
    try {
      await signIn({ link });
    } catch (error) {
      if (!hasSession()) {
        askToSignIn(error.message);
        return;
      }
      notice(error.message, { kind: "warning" });
    }
  }
  if (hasSession()) begin();
  else askToSignIn();
}

window.addEventListener("hashchange", () => {
  if (location.hash.startsWith("#link=")) start();
  else show();
});
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault(); // What stands behind the # is the view.
  document.getElementById("main")?.focus();
});
window.addEventListener("signed-out", () => store !== null && askToSignIn("You are signed out."));
window.addEventListener("keydown", onKey);
window.addEventListener("theme", update); // Canvases are drawn anew.
start();
