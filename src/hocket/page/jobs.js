// All jobs: filter and sort while typing, and pause, resume or stop many at once.

import { possibleRequests, sendJobRequest } from "./actions.js";
import { fill, h, setText } from "./dom.js";
import { LIVE, clock, count, duration, isOver, kindOf, markOf, metricsOf, number } from "./text.js";
import { VirtualList } from "./virtual_list.js";

const ORDER = new Map(LIVE.map((state, place) => [state, place]));
const place = (row) => ORDER.get(row.state) ?? LIVE.length;
const COLUMNS = [
  { name: "name", label: "Job", key: (row) => row.id.toLowerCase() },
  { name: "state", label: "State", key: null }, // what matters most first
  { name: "owner", label: "Owner", key: (row) => row.owner.toLowerCase() },
  { name: "gpus", label: "GPUs", key: (row) => row.gpus.length || row.size },
  { name: "progress", label: "Progress", key: (row) => row.epoch || row.step },
  { name: "waited", label: "Waited", key: (row) => row.waited_s },
  { name: "ran", label: "Ran", key: (row) => row.ran_s },
  { name: "submitted", label: "Submitted", key: (row) => row.submitted_s },
  { name: "reason", label: "Why", key: (row) => row.reason },
];
const STATES = [
  ["all", "All", () => true],
  ["live", "Live", (row) => !isOver(row)],
  ["running", "Running", (row) => ["running", "starting", "ending", "pausing"].includes(row.state)],
  ["waiting", "Waiting", (row) => ["waiting", "paused"].includes(row.state)],
  ["held", "Held", (row) => row.state === "held"],
  ["failed", "Failed", (row) => row.state === "failed"],
  ["over", "Ended", isOver],
];

// Stays as it is when the view is left and entered again.
const view = { query: "", state: "all", sort: "state", isDescending: false };

/** Words that all must occur; owner:, state: and node: look in one place. */
export function matcher(query) {
  const tests = query.toLowerCase().split(/\s+/).filter(Boolean).map((word) => {
    const [, where, what] = /^(owner|state|node|name):(.*)$/.exec(word) ?? [];
    if (where === "owner") return (row) => row.owner.toLowerCase() === what || (what.endsWith("*") && row.owner.toLowerCase().startsWith(what.slice(0, -1)));
    if (where === "state") return (row) => row.state.startsWith(what);
    if (where === "name") return (row) => row.id.toLowerCase().includes(what);
    if (where === "node") return (row) => row.gpus.some((gpu) => gpu.toLowerCase().startsWith(`${what}:`));
    return (row) => textOf(row).includes(word);
  });
  return (row) => tests.every((test) => test(row));
}

const texts = new WeakMap(); // of rows, which are replaced as a whole

function textOf(row) {
  let text = texts.get(row);
  if (text === undefined) {
    text = `${row.id}\n${row.owner}\n${row.state}\n${row.reason}`.toLowerCase();
    texts.set(row, text);
  }
  return text;
}

export function sorted(rows, name, isDescending) {
  const sign = isDescending ? -1 : 1;
  const { key } = COLUMNS.find((column) => column.name === name);
  if (key === null) {
    // By state, then within each: the jobs of a state come in order of submission already, which is sorted in one pass.
    const byPlace = [];
    for (const row of rows) (byPlace[place(row)] ??= []).push(row);
    const when = (row) => (isOver(row) ? -(row.ended_s ?? 0) : row.submitted_s);
    for (const group of byPlace) group?.sort((a, b) => sign * (when(a) - when(b)));
    return (isDescending ? byPlace.reverse() : byPlace).flat();
  }
  const keyed = rows.map((row) => [key(row), row]);
  keyed.sort(([a], [b]) => sign * (a < b ? -1 : a > b ? 1 : 0));
  return keyed.map(([, row]) => row);
}

export class Jobs {
  constructor(store, parameters) {
    this.store = store;
    this.title = "Jobs";
    if (parameters.get("state")) [view.state, view.query] = [parameters.get("state"), ""];
    if (parameters.get("owner")) [view.state, view.query] = ["live", `owner:${parameters.get("owner").toLowerCase()}`];
    this.selected = new Set();
    this.cursor = -1;
    this.search = h("input", {
      type: "search", class: "search", placeholder: "Filter: words, owner:ana, state:running, node:gpu-1", "aria-label": "Filter jobs",
      autocomplete: "off", spellcheck: "false", oninput: () => ((view.query = this.search.value), (this.cursor = -1), this.update()),
    });
    this.search.value = view.query;
    this.chips = STATES.map(([name, label]) => {
      const many = h("span", { class: "many" });
      const chip = h("button", { type: "button", class: "chip", onclick: () => ((view.state = name), this.update()) }, label, " ", many);
      return { name, chip, many };
    });
    this.bulk = h("div", { class: "bulk", role: "region", "aria-label": "Selected jobs", hidden: true });
    this.submit = h("a", { class: "button primary", href: "#/submit", hidden: true }, "Submit a job");
    this.summary = h("p", { class: "muted small summary", role: "status" });
    this.more = h("button", { type: "button", class: "quiet", onclick: () => store.loadMoreEnded() }, "Load older jobs");
    this.all = h("input", { type: "checkbox", "aria-label": "Select all jobs that are listed", onchange: () => this._selectAll() });
    this.heads = COLUMNS.map((column) => {
      const button = h("button", { type: "button", onclick: () => this._sortBy(column.name) }, column.label);
      return h("div", { role: "columnheader", class: `cell ${column.name}` }, button);
    });
    this.head = h("div", { class: "row head", role: "row" }, h("div", { role: "columnheader", class: "cell pick" }, this.all), this.heads);
    this.list = new VirtualList({
      rowHeight: () => (window.innerWidth < 720 ? 64 : 36),
      make: () => this._makeRow(),
      update: (element, row, index) => this._updateRow(element, row, index),
      properties: { role: "rowgroup", tabindex: "0", "aria-label": "Jobs; arrow keys move, x selects, Enter opens" },
    });
    this.list.element.addEventListener("keydown", (event) => this._onKey(event));
    this.table = h("div", { class: "card table", role: "table", "aria-label": "Jobs" }, h("div", { role: "rowgroup" }, this.head), this.list.element);
    this.empty = h("p", { class: "muted empty", hidden: true });
    this.element = h(
      "div",
      { class: "jobs" },
      h("div", { class: "toolbar" }, h("h1", {}, "Jobs"), this.search, h("div", { class: "chips", role: "group", "aria-label": "States" }, this.chips.map(({ chip }) => chip)), this.submit),
      this.bulk,
      this.table,
      this.empty,
      h("div", { class: "footer" }, this.summary, this.more),
    );
  }

  close() {
    this.list.close();
  }

  focusSearch() {
    this.search.focus();
    this.search.select();
  }

  update() {
    const matches = matcher(view.query);
    const byState = new Map(); // the jobs that match
    for (const row of this.store.jobs.values()) {
      if (!matches(row)) continue;
      const inState = byState.get(row.state);
      if (inState) inState.push(row);
      else byState.set(row.state, [row]);
    }
    for (const { name, chip, many } of this.chips) {
      const [, , test] = STATES.find(([each]) => each === name);
      setText(many, number([...byState].reduce((sum, [state, jobs]) => sum + (test({ state }) ? jobs.length : 0), 0)));
      chip.setAttribute("aria-pressed", String(view.state === name));
    }
    const [, , inState] = STATES.find(([name]) => name === view.state) ?? STATES[0];
    this.rows = sorted([...byState].flatMap(([state, jobs]) => (inState({ state }) ? jobs : [])), view.sort, view.isDescending);
    this.heads.forEach((head, n) => {
      const isSorted = COLUMNS[n].name === view.sort;
      head.setAttribute("aria-sort", isSorted ? (view.isDescending ? "descending" : "ascending") : "none");
    });
    for (const id of this.selected) if (!this.store.jobs.has(id)) this.selected.delete(id);
    this.submit.hidden = !["admin", "user"].includes(this.store.token?.role);
    this.table.setAttribute("aria-rowcount", String(this.rows.length + 1));
    this.list.set(this.rows);
    setText(this.summary, `${number(this.rows.length)} of ${count(this.store.jobs.size, "job")}`);
    this.more.hidden = this.store.hasAllEnded !== false;
    this.empty.hidden = this.rows.length > 0;
    this._showEmpty(this.store.jobs.size);
    this._updateBulk();
  }

  _showEmpty(many) {
    if (this.rows.length) return;
    if (many) setText(this.empty, "No job matches the filter.");
    else fill(this.empty, "There are no jobs yet. Submit one: ", h("code", {}, "hocket submit -- python train.py"));
  }

  _sortBy(name) {
    if (view.sort === name) view.isDescending = !view.isDescending;
    else [view.sort, view.isDescending] = [name, ["gpus", "progress", "waited", "ran", "submitted"].includes(name)];
    this.update();
  }

  _makeRow() {
    const cells = Object.fromEntries(COLUMNS.map(({ name }) => [name, h("div", { role: "cell", class: `cell ${name}` })]));
    const link = h("a", {});
    const mark = h("span", { class: "mark", "aria-hidden": "true" });
    const state = h("span", {});
    cells.name.append(link);
    cells.state.append(h("span", { class: "pill" }, mark, state));
    const box = h("input", { type: "checkbox" });
    const row = h("div", { class: "row", role: "row" }, h("div", { role: "cell", class: "cell pick" }, box), Object.values(cells));
    row.parts = { cells, link, mark, state, box, pill: cells.state.firstChild };
    box.addEventListener("click", (event) => {
      this._select(row.shows, box.checked, event.shiftKey);
    });
    return row;
  }

  _updateRow(element, row, index) {
    const { cells, link, mark, state, box, pill } = element.parts;
    element.shows = index;
    element.setAttribute("aria-rowindex", String(index + 2));
    element.classList.toggle("cursor", index === this.cursor);
    element.classList.toggle("selected", this.selected.has(row.id));
    box.checked = this.selected.has(row.id);
    if (element.of === row) return;
    element.of = row;
    box.disabled = !this.store.mayChange(row) || isOver(row);
    box.setAttribute("aria-label", `Select job ${row.id}`);
    setText(link, row.id);
    link.setAttribute("href", `#/jobs/${encodeURIComponent(row.id)}`);
    link.title = link.textContent;
    pill.className = `pill ${kindOf(row.state)}`;
    setText(mark, markOf(row.state));
    setText(state, row.state);
    setText(cells.owner, row.owner || "–");
    setText(cells.gpus, row.gpus.length || (row.size ? `(${row.size})` : "–"));
    setText(cells.progress, metricsOf(row) || "–");
    setText(cells.waited, duration(row.waited_s));
    setText(cells.ran, row.ran_s ? duration(row.ran_s) : "–");
    setText(cells.submitted, clock(row.submitted_s, false));
    setText(cells.reason, row.kept ? `${row.kept}; ${row.reason}` : row.reason);
    cells.reason.title = cells.reason.textContent;
  }

  _select(index, isSelected, isRange) {
    const from = isRange && this.cursor >= 0 ? Math.min(this.cursor, index) : index;
    const to = isRange && this.cursor >= 0 ? Math.max(this.cursor, index) : index;
    for (const row of this.rows.slice(from, to + 1)) {
      if (isOver(row) || !this.store.mayChange(row)) continue;
      if (isSelected) this.selected.add(row.id);
      else this.selected.delete(row.id);
    }
    this.cursor = index;
    this.list.draw();
    this._updateBulk();
  }

  _selectAll() {
    const may = this.rows.filter((row) => !isOver(row) && this.store.mayChange(row));
    if (this.all.checked) for (const row of may) this.selected.add(row.id);
    else this.selected.clear();
    this.list.draw();
    this._updateBulk();
  }

  _updateBulk() {
    const rows = [...this.selected].map((id) => this.store.jobs.get(id)).filter((row) => row !== undefined && !isOver(row));
    const may = (row) => !isOver(row) && this.store.mayChange(row);
    const areAll = rows.length > 0 && rows.length >= this.rows.filter(may).length;
    this.all.disabled = !this.rows.some(may);
    this.all.checked = areAll;
    this.all.indeterminate = rows.length > 0 && !areAll;
    const key = rows.map((row) => `${row.state} ${row.id}`).join("\n");
    if (key === this._bulkKey) return; // A button that is replaced while it is pressed would not be clicked.
    this._bulkKey = key;
    this.bulk.hidden = rows.length === 0;
    const button = (request, label) => {
      const ids = rows.filter((row) => possibleRequests(row).includes(request)).map((row) => row.id);
      return h("button", { type: "button", class: request === "stop" ? "danger" : "", disabled: ids.length === 0, onclick: () => sendJobRequest(request, ids) }, `${label} ${ids.length || ""}`);
    };
    fill(
      this.bulk,
      h("strong", {}, `${count(rows.length, "job")} selected`),
      button("pause", "Pause"), button("resume", "Resume"), button("stop", "Stop"),
      h("button", { type: "button", class: "quiet", onclick: () => (this.selected.clear(), this.list.draw(), this._updateBulk()) }, "Clear"),
    );
  }

  _onKey(event) {
    const { key } = event;
    const page = Math.max(1, Math.floor(this.list.element.clientHeight / this.list.rowHeight) - 1);
    const steps = { ArrowDown: 1, j: 1, ArrowUp: -1, k: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity };
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (key in steps && this.rows.length) {
      this.cursor = Math.min(Math.max(this.cursor + steps[key], 0), this.rows.length - 1);
      this.list.reveal(this.cursor);
    } else if ((key === "x" || key === " ") && this.cursor >= 0 && event.target === this.list.element) {
      this._select(this.cursor, !this.selected.has(this.rows[this.cursor].id), false);
    } else if (key === "Enter" && this.cursor >= 0 && event.target === this.list.element) {
      location.hash = `#/jobs/${encodeURIComponent(this.rows[this.cursor].id)}`;
    } else return;
    event.preventDefault();
  }
}
