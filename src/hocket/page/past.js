// The cluster as it was after any cycle of the journal: a slider over time, GPUs, queue, and what the decision changed.

import { ApiError, get } from "./api.js";
import { fill, h, palette, setText, sized } from "./dom.js";
import { LIVE, clock, count, duration, hueOf, number } from "./text.js";
import { isRecorded } from "./recording.js";
import { drawAxis } from "./time_axis.js";
import { VirtualList } from "./virtual_list.js";

const BUCKETS = 300; // bars over all of the time that is kept
const STEPS = 10_000; // of the slider
const QUEUE = 50; // jobs that are shown of it
const CHANGES = 100; // of a decision, that are shown
const HEIGHT = 74; // of the drawing above the slider

/** A cycle's place on the slider, and back: its time within the time that is kept. */
export const placeOf = (at_s, [from_s, until_s]) => Math.round((STEPS * (at_s - from_s)) / Math.max(until_s - from_s, 1e-9));
export const timeAt = (place, [from_s, until_s]) => from_s + (place / STEPS) * (until_s - from_s);

/** From when to when there are cycles, by the buckets of equal length that count them. */
export function rangeOf(buckets, last_s) {
  if (!buckets.length) return [last_s - 1, last_s];
  const from_s = buckets[0].from_s;
  const width_s = buckets.length > 1 ? buckets[1].from_s - from_s : 1;
  return [from_s, Math.max(from_s + width_s * buckets.length, from_s + 1e-3)];
}

/** Node → for each of its GPUs, the jobs that held it. */
export function holders(jobs) {
  const found = new Map();
  for (const job of jobs) {
    for (const gpu of job.gpus) {
      const split = gpu.lastIndexOf(":");
      const [node, index] = [gpu.slice(0, split), Number(gpu.slice(split + 1))];
      if (!found.has(node)) found.set(node, new Map());
      const of = found.get(node);
      if (!of.has(index)) of.set(index, []);
      of.get(index).push(job.id);
    }
  }
  return found;
}

export class Past {
  constructor(store, cycle) {
    this.store = store;
    this.title = "Back in time";
    this.buckets = [];
    this.range = [0, 1];
    this.shown = null; // the answer that is shown
    this._wanted = null; // the call that comes next
    this._isClosed = this._isFetching = false;
    this.canvas = h("canvas", { class: "density", "aria-hidden": "true", onclick: (event) => this._onClick(event) });
    this.slider = h("input", {
      type: "range", class: "time-slider", min: "0", max: String(STEPS), step: "1", "aria-label": "Time", disabled: true, // until its range is known
      oninput: () => this._go({ time: timeAt(Number(this.slider.value), this.range) }),
    });
    const step = (label, title, target) => h("button", { type: "button", title, "aria-label": title, onclick: () => this._goTo(target()) }, label);
    this.buttons = {
      first: step("«", "First cycle", () => this.shown.first),
      previous: step("◀ decision", "Previous decision (←)", () => this.shown.previous_decision),
      back: step("−1", "Cycle before (Shift ←)", () => this.shown.cycle - 1),
      ahead: step("+1", "Cycle after (Shift →)", () => this.shown.cycle + 1),
      next: step("decision ▶", "Next decision (→)", () => this.shown.next_decision),
      last: step("»", "Newest cycle", () => this.shown.last),
    };
    this.buttons.back.hidden = this.buttons.ahead.hidden = isRecorded; // It has the decisions only.
    this.when = h("strong", {});
    this.what = h("span", { class: "muted small" });
    this.trouble = h("p", { class: "trouble", role: "alert", hidden: true });
    this.counts = h("p", { class: "counts" });
    this.decision = h("div", { class: "decision" });
    this.events = h("ul", { class: "events" });
    this.queue = h("ol", { class: "queue" });
    this.queueMore = h("p", { class: "muted small" });
    this.nodes = new VirtualList({
      rowHeight: 34, make: () => makeNode(), update: (element, item) => showNode(element, item),
      properties: { role: "list", class: "virtual nodes", tabindex: "0", "aria-label": "GPUs by node" },
    });
    this.element = h(
      "div",
      { class: "past" },
      h("div", { class: "title" }, h("h1", {}, "Back in time"), h("div", { class: "moment", role: "status" }, this.when, this.what), h("div", { class: "buttons" }, Object.values(this.buttons))),
      h("section", { class: "card", "aria-label": "Slider over time" }, this.canvas, this.slider, this.trouble),
      this.counts,
      h(
        "div",
        { class: "columns" },
        h("section", { class: "card" }, h("header", {}, h("h2", {}, "What this cycle changed")), this.decision, this.events),
        h("section", { class: "card" }, h("header", {}, h("h2", {}, "Queue, in the order of the policy")), this.queue, this.queueMore),
      ),
      h("section", { class: "card held" }, h("header", {}, h("h2", {}, "GPUs then")), this.nodes.element),
    );
    this._resized = new ResizeObserver(() => this._draw());
    this._resized.observe(this.slider);
    this._onKeyDown = (event) => this._onKey(event);
    window.addEventListener("keydown", this._onKeyDown);
    for (const button of Object.values(this.buttons)) button.disabled = true;
    this._go(cycle === null ? {} : { cycle });
    this._load();
  }

  close() {
    this._isClosed = true;
    this._resized.disconnect();
    this.nodes.close();
    window.removeEventListener("keydown", this._onKeyDown);
  }

  /** What happens now changes only how far the slider goes. */
  update() {
    const decisions = this.store.status?.decisions ?? 0;
    if (decisions !== this._decisions) this._load();
    this._decisions = decisions;
    this._draw();
  }

  async _load() {
    if (this._isLoading || this._isClosed) return;
    this._isLoading = true;
    try {
      const { buckets } = await get(`v1/cycles?buckets=${BUCKETS}`);
      this.buckets = buckets;
      this.slider.disabled = false;
      this._place();
    } catch (error) {
      if (!this._isClosed && this.shown === null) this._showError(error);
    } finally {
      setTimeout(() => (this._isLoading = false), 2000);
    }
  }

  _goTo(cycle) {
    if (cycle !== null && cycle !== undefined) this._go({ cycle });
  }

  /** One call at a time: while the slider moves, only its newest place is asked for. */
  async _go(wanted) {
    this._wanted = wanted;
    if (this._isFetching) return;
    this._isFetching = true;
    while (this._wanted !== null && !this._isClosed) {
      const { cycle, time } = this._wanted;
      this._wanted = null;
      const path = cycle !== undefined ? `v1/at/${cycle}` : time !== undefined ? `v1/at?time=${time}` : "v1/at";
      try {
        const found = await get(path);
        if (this._isClosed) break;
        this._show(found);
      } catch (error) {
        if (!this._isClosed) this._showError(error);
        if (!(error instanceof ApiError)) await new Promise((resolve) => setTimeout(resolve, 500));
      }
    }
    this._isFetching = false;
  }

  _showError(error) {
    this.trouble.hidden = false;
    setText(this.trouble, error.message);
  }

  _show(found) {
    this.shown = found;
    this.trouble.hidden = true;
    history.replaceState(null, "", `#/past/${found.cycle}`); // The moment can be sent to others as a link.
    setText(this.when, clock(found.at_s));
    setText(this.what, `cycle ${number(found.cycle)} of ${number(found.last)} · policy ${found.policy}`);
    const { first, previous, back, ahead, next, last } = this.buttons;
    first.disabled = back.disabled = found.cycle <= found.first;
    last.disabled = ahead.disabled = found.cycle >= found.last;
    previous.disabled = found.previous_decision === null;
    next.disabled = found.next_decision === null;
    const live = LIVE.filter((state) => found.counts[state]).map((state) => `${number(found.counts[state])} ${state}`);
    const over = Object.entries(found.counts).filter(([state, many]) => many && !LIVE.includes(state));
    const ended = over.map(([state, many]) => `${number(many)} ${state}`);
    setText(this.counts, `Jobs: ${live.join(", ") || "none live"}${ended.length ? ` · ended: ${ended.join(", ")}` : ""}`);
    this._showDecision(found);
    this._showQueue(found);
    const by = holders(found.jobs);
    this.nodes.set(found.nodes.map((node) => ({ node, held: by.get(node.id) ?? new Map() })));
    this.nodes.element.style.height = `${Math.min(found.nodes.length * 34 + 2, 560)}px`;
    this._place();
  }

  _showDecision({ decision, events, more_events }) {
    const changed = Object.entries(decision?.changes ?? {});
    const refused = decision?.refused ?? [];
    fill(
      this.decision,
      decision === null ? h("p", { class: "muted" }, "The policy made no decision in this cycle.") : null,
      decision !== null && !changed.length && !refused.length ? h("p", { class: "muted" }, "The policy decided, and changed nothing.") : null,
      refused.length ? h("p", { class: "trouble" }, "The plan was refused: ", refused.join("; ")) : null,
      h("ul", { class: "changes" }, changed.slice(0, CHANGES).map(([job, change]) => h(
        "li", {}, link(job), " ", change, h("span", { class: "reason small" }, decision.reasons[job] ?? ""),
      ))),
      changed.length > CHANGES ? h("p", { class: "muted small" }, `and ${number(changed.length - CHANGES)} more`) : null,
    );
    fill(this.events, events.map(({ kind, subject }) => h("li", {}, h("strong", {}, words(kind)), " ", subject)),
      more_events ? h("li", { class: "muted" }, `and ${number(more_events)} more`) : null);
  }

  _showQueue({ queue, jobs, more_queued = 0 }) {
    const rows = new Map(jobs.map((row) => [row.id, row]));
    fill(this.queue, queue.slice(0, QUEUE).map((id) => h(
      "li",
      {},
      link(id),
      h("span", { class: "muted small right" }, duration(rows.get(id)?.waited_s ?? null)),
      h("span", { class: "reason small" }, rows.get(id)?.reason ?? ""),
    )));
    const more = Math.max(0, queue.length - QUEUE) + more_queued;
    setText(this.queueMore, queue.length === 0 ? "No job waited." : more > 0 ? `and ${count(more, "more job")}` : "");
  }

  _place() {
    if (this.shown === null) return;
    this.range = rangeOf(this.buckets, this.shown.at_s);
    if (document.activeElement !== this.slider || this._wanted === null) {
      this.slider.value = String(placeOf(this.shown.at_s, this.range));
    }
    this.slider.setAttribute("aria-valuetext", `${clock(this.shown.at_s)}, cycle ${this.shown.cycle}`);
    this._draw();
  }

  _draw() {
    const width = this.canvas.parentElement?.clientWidth ? this.slider.clientWidth : 0;
    if (width < 50 || !this.buckets.length) return;
    const context = sized(this.canvas, width, HEIGHT);
    const colour = palette();
    const [from_s, until_s] = this.range;
    drawAxis(context, colour, { from_s, until_s, left: 0, width, top: 0, height: HEIGHT });
    const most = this.buckets.reduce((sum, bucket) => Math.max(sum, bucket.cycles), 1);
    const room = HEIGHT - 20;
    const high = (many) => (many ? Math.max(2, room * Math.sqrt(many / most)) : 0); // Few must be seen beside many.
    const wide = width / this.buckets.length;
    this.buckets.forEach((bucket, n) => {
      context.fillStyle = colour("lane");
      context.fillRect(n * wide, HEIGHT - high(bucket.cycles), Math.max(1, wide - 0.5), high(bucket.cycles));
      context.fillStyle = colour("accent");
      context.fillRect(n * wide, HEIGHT - high(bucket.decisions), Math.max(1, wide - 0.5), high(bucket.decisions));
    });
    if (this.shown === null) return;
    const x = ((this.shown.at_s - from_s) / (until_s - from_s)) * width;
    context.fillStyle = colour("goal");
    context.fillRect(Math.min(Math.max(x - 1, 0), width - 2), 16, 2, HEIGHT - 16);
  }

  _onClick(event) {
    const box = this.canvas.getBoundingClientRect();
    this._go({ time: timeAt((STEPS * (event.clientX - box.left)) / box.width, this.range) });
  }

  _onKey(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || this.shown === null) return;
    if (event.target.closest("input, select, textarea, dialog, .virtual")) return;
    const { previous, next, back, ahead } = this.buttons;
    const target = { ArrowLeft: event.shiftKey ? back : previous, ArrowRight: event.shiftKey ? ahead : next }[event.key];
    if (target === undefined) return;
    target.click();
    event.preventDefault();
  }
}

const link = (job) => h("a", { href: `#/jobs/${encodeURIComponent(job)}` }, job);

/** The name of an event as words: JobSubmitted → job submitted. */
export const words = (kind) => kind.replace(/(?<=[a-z])(?=[A-Z])/g, " ").toLowerCase();

function makeNode() {
  const name = h("span", { class: "node-name" });
  const cells = h("span", { class: "cells" });
  const row = h("div", { class: "node-row", role: "listitem" }, name, cells);
  row.parts = { name, cells };
  return row;
}

function showNode(element, { node, held }) {
  const { name, cells } = element.parts;
  setText(name, node.up ? node.id : `${node.id} (away)`);
  name.classList.toggle("away", !node.up);
  fill(cells, node.gpus.map((_gpu, index) => {
    const jobs = held.get(index) ?? [];
    const text = jobs.length ? jobs.join(" + ") : "free";
    const cell = h("span", { class: `gpu ${jobs.length ? "held" : ""}`, title: `GPU ${index}: ${text}` }, jobs.length ? text : "–");
    if (jobs.length) cell.style.background = `var(--hue-${hueOf(jobs[0])})`;
    return cell;
  }));
}
