// The cluster at a glance: numbers, lanes over time, the queue, and what owners have of it.

import { fill, h, setText } from "./dom.js";
import { Lanes } from "./lanes.js";
import { isRecorded } from "./recording.js";
import { count, duration, hueOf, kindOf, markOf, number } from "./text.js";

const WINDOWS = [["5 min", 300], ["15 min", 900], ["1 h", 3600], ["6 h", 21600], ["24 h", 86400]];
const QUEUE = 8; // jobs that are shown of it

export class Overview {
  constructor(store) {
    this.store = store;
    this.title = "Overview";
    this.tiles = Object.fromEntries(["gpus", "running", "waiting", "held", "nodes"].map((name) => [name, tile(name)]));
    this.lanes = new Lanes(store, (job) => (location.hash = `#/jobs/${encodeURIComponent(job)}`));
    this.queue = h("ol", { class: "queue" });
    this.queueMore = h("p", { class: "muted small" });
    this.owners = h("div", { class: "owners" });
    this.live = h("button", { type: "button", class: "quiet", onclick: () => this.lanes.move(Infinity) }, "Live");
    this.lanes.onMove = () => this._showLive();
    this.element = h(
      "div",
      { class: "overview" },
      h("h1", { class: "unseen" }, "Overview"),
      h("section", { class: "tiles", "aria-label": "In numbers" }, Object.values(this.tiles).map((each) => each.element)),
      h(
        "section",
        { class: "card devices", "aria-labelledby": "devices-title" },
        h(
          "header",
          {},
          h("h2", { id: "devices-title" }, "Devices over time"),
          h("div", { class: "controls" }, this._windows(), this._colours(), this._density(), this.live),
        ),
        this.lanes.element,
      ),
      h(
        "div",
        { class: "columns" },
        h("section", { class: "card" }, h("header", {}, h("h2", {}, "Queue"), h("a", { href: "#/jobs?state=waiting" }, "All that wait")), this.queue, this.queueMore),
        h("section", { class: "card" }, h("header", {}, h("h2", {}, "Owners"), h("span", { class: "muted small" }, "bar: GPUs held · line: fair share by weight")), this.owners),
      ),
    );
    this._timer = setInterval(() => document.hidden || this.lanes.draw(), 1000);
    this._showLive();
  }

  close() {
    clearInterval(this._timer);
    this.lanes.close();
  }

  _windows() {
    const buttons = (isRecorded ? [...WINDOWS, ["7 d", 604800], ["all", 0]] : WINDOWS).map(([label, window_s]) =>
      h("button", { type: "button", "aria-pressed": String(window_s === this.lanes.window_s), onclick: (event) => {
        for (const button of buttons) button.setAttribute("aria-pressed", String(button === event.currentTarget));
        this.lanes.show(window_s || this._known_s());
      } }, label));
    this.windows = buttons;
    return h("div", { class: "choices", role: "group", "aria-label": "Time window" }, buttons);
  }

  /** How long ago the first job began that is known. */
  _known_s() {
    const now_s = this.store.now_s();
    return Math.max(1, now_s - [...this.store.spans.values()].reduce((first, span) => Math.min(first, span.from_s), now_s));
  }

  /** At first, the shortest window that shows all that is known. */
  _chooseWindow() {
    this._hasWindow = true;
    const found = WINDOWS.findIndex(([, window_s]) => window_s >= this._known_s());
    this.windows[isRecorded ? this.windows.length - 1 : found < 0 || found > 2 ? 2 : found].click();
  }

  _colours() {
    return choice("Colour", [["by job", "job"], ["by owner", "owner"]], (value) => {
      this.lanes.by = value;
      this.lanes.draw();
    });
  }

  _density() {
    return choice("Lanes", [["auto", "auto"], ["all in sight", "fit"], ["with names", "detail"]], (value) => {
      this.lanes.density = value;
      this.lanes.draw();
    });
  }

  _showLive() {
    const isLive = this.lanes.end_s === null;
    this.live.disabled = isLive;
    setText(this.live, isRecorded ? "To the end" : isLive ? "● Live" : "Back to now");
  }

  update() {
    const { store, tiles } = this;
    const rows = [...store.jobs.values()];
    const of = (...states) => rows.filter((row) => states.includes(row.state)).length;
    const total = store.nodes.reduce((sum, node) => sum + (node.up ? node.gpus.length : 0), 0);
    const held = new Set(rows.flatMap((row) => row.gpus)).size;
    tiles.gpus.set(`${number(held)} of ${number(total)}`, total ? `${Math.round((100 * held) / total)} % of the GPUs are held` : "no GPUs", total ? held / total : 0);
    tiles.running.set(number(of("running", "starting", "ending", "pausing")), "run, start or leave");
    tiles.waiting.set(number(of("waiting", "paused")), longest(rows));
    tiles.held.set(number(of("held")), "held by users or for other jobs");
    const away = store.nodes.filter((node) => !node.up).length;
    tiles.nodes.set(number(store.nodes.length - away), away ? `${count(away, "node is", "nodes are")} away` : "all are up");
    this._updateQueue(rows.filter((row) => row.state === "waiting" || row.state === "paused"));
    this._updateOwners(total, rows);
    if (!this._hasWindow) this._chooseWindow();
    this.lanes.canvas.setAttribute("aria-label", `GPUs over time: ${held} of ${total} are held now`);
    this.lanes.draw();
  }

  _updateQueue(waiting) {
    fill(this.queue, waiting.slice(0, QUEUE).map((row) => h(
      "li",
      {},
      h("a", { href: `#/jobs/${encodeURIComponent(row.id)}` }, row.id),
      h("span", { class: "muted small right" }, duration(row.waited_s)),
      h("span", { class: "reason small" }, row.reason),
    )));
    const more = waiting.length - QUEUE;
    setText(this.queueMore, waiting.length === 0 ? "No job waits." : more > 0 ? `and ${number(more)} more` : "");
  }

  _updateOwners(total, rows) {
    const gpus = new Map();
    for (const row of rows) if (row.gpus.length) gpus.set(row.owner, (gpus.get(row.owner) ?? 0) + row.gpus.length);
    const active = this.store.owners.filter((owner) => gpus.has(owner.id) || owner.waiting || owner.uses.jobs);
    const weights = active.reduce((sum, owner) => sum + owner.weight, 0);
    const shown = [...active].sort((a, b) => (gpus.get(b.id) ?? 0) - (gpus.get(a.id) ?? 0)).slice(0, 30);
    if (!shown.length) {
      fill(this.owners, h("p", { class: "muted small" }, "No owner has a live job."));
      return;
    }
    fill(this.owners, shown.map((owner) => {
      const held = gpus.get(owner.id) ?? 0;
      const fair = weights ? owner.weight / weights : 0;
      const bar = h("div", { class: "bar", role: "img", "aria-label": `${held} of ${total} GPUs, a fair share is ${(fair * total).toFixed(1)}` }, h("i", {}), h("b", {}));
      bar.firstChild.style.background = `var(--hue-${hueOf(owner.id)})`;
      bar.firstChild.style.width = `${total ? (100 * held) / total : 0}%`;
      bar.lastChild.style.left = `${100 * fair}%`;
      const limit = owner.max_gpus ? ` of at most ${owner.max_gpus}` : "";
      return h(
        "div",
        { class: "share" },
        h("a", { href: `#/jobs?owner=${encodeURIComponent(owner.id)}` }, owner.id || "–"),
        bar,
        h("span", { class: "muted small" }, `${count(held, "GPU")}${limit}${owner.waiting ? ` · ${number(owner.waiting)} wait` : ""}`),
      );
    }));
  }
}

function tile(name) {
  const labels = { gpus: "GPUs", running: "Running", waiting: "Waiting", held: "Held", nodes: "Nodes up" };
  const kinds = { running: "running", waiting: "waiting", held: "held" };
  const value = h("strong", {}, "–");
  const note = h("span", { class: "muted small" });
  const meter = name === "gpus" ? h("div", { class: "meter", "aria-hidden": "true" }, h("i", {})) : null;
  const mark = kinds[name] ? h("span", { class: `mark ${kindOf(kinds[name])}`, "aria-hidden": "true" }, markOf(kinds[name])) : null;
  return {
    element: h("div", { class: "card tile" }, h("span", { class: "label" }, mark, labels[name]), value, meter, note),
    set(text, more, part = 0) {
      setText(value, text);
      setText(note, more);
      if (meter !== null) meter.firstChild.style.width = `${100 * part}%`;
    },
  };
}

function choice(label, options, onChoice) {
  return h("label", { class: "choice" }, h("span", {}, label), h(
    "select",
    { "aria-label": label, onchange: (event) => onChoice(event.target.value) },
    options.map(([text, value]) => h("option", { value }, text)),
  ));
}

function longest(rows) {
  const waited = rows.filter((row) => row.state === "waiting").map((row) => row.waited_s);
  return waited.length ? `the longest for ${duration(waited.reduce((a, b) => Math.max(a, b)))}` : "no job waits";
}
