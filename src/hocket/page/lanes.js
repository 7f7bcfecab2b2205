// Devices as lanes over time: which job held which GPU from when to when. One canvas, drawn for what is in sight.

import { h, palette, sized } from "./dom.js";
import { drawAxis } from "./time_axis.js";
import { clock, duration, hueOf, plain } from "./text.js";

const AXIS = 20;
const UTILISATION = 44;
const TOP = AXIS + UTILISATION + 8;
const GAP = 5; // between nodes
const LANE = 20;
const LARGEST_LANE = 30;
const SMALLEST_LANE = 0.5;
const IN_SIGHT = 64; // nodes that are all in sight, however small the screen is
const AHEAD = 0.15; // of the time that is shown may be to come
const NAME = 11; // pixels that a name needs
const LEAST_NODE = 5;

/** Which pixels belong to which node and GPU. */
function layOut(nodes, lane) {
  const least = lane < LANE && nodes.length <= IN_SIGHT ? LEAST_NODE : NAME;
  let y = 0;
  const rows = nodes.map((node) => {
    const gpus = Math.max(node.gpus.length, 1);
    const height = Math.max(gpus * lane, least);
    const row = { node, y, height, lane: height / gpus };
    y += height + (lane < 8 ? 1 : GAP);
    return row;
  });
  return { rows, height: y };
}

export class Lanes {
  constructor(store, onOpen) {
    this.store = store;
    this.window_s = 900;
    this.end_s = null; // null: now
    this.by = "job"; // what colours mean: job or owner
    this.density = "auto";
    this._onOpen = onOpen;
    this._chosen = null; // the span that the keyboard points to
    this.canvas = h("canvas", { class: "lanes-canvas", role: "img", "aria-label": "GPUs over time" });
    this.tip = h("div", { class: "tip", role: "status", hidden: true });
    this.spacer = h("div", { class: "lanes-spacer" }, this.canvas);
    this.scroll = h("div", { class: "lanes", tabindex: "0", role: "group", "aria-label": "Lanes; left and right move in time, up and down choose a job, Enter opens it" }, this.spacer);
    this.element = h("div", { class: "lanes-frame" }, this.scroll, this.tip);
    this.scroll.addEventListener("scroll", () => this._seen && this._paint(), { passive: true });
    this.scroll.addEventListener("keydown", (event) => this._onKey(event));
    this.canvas.addEventListener("pointermove", (event) => this._onMove(event));
    this.canvas.addEventListener("pointerleave", () => (this.tip.hidden = true));
    this.scroll.addEventListener("blur", () => this._choose(null));
    this.canvas.addEventListener("pointerdown", (event) => this._onDown(event));
    this._resized = new ResizeObserver(() => this.draw());
    this._resized.observe(this.element);
  }

  close() {
    this._resized.disconnect();
  }

  /** From when to when is shown. */
  range() {
    const until_s = this.end_s ?? this.store.now_s() + (this.store.ahead?.length ? this.window_s * AHEAD : 0);
    return [until_s - this.window_s, until_s];
  }

  show(window_s) {
    this.window_s = window_s;
    this.store.loadSpans(this.range()[0]);
    this.draw();
  }

  /** Moves the window; at the present, it follows it again. */
  move(by_s) {
    const now_s = this.store.now_s();
    const end_s = (this.end_s ?? now_s) + by_s;
    this.end_s = end_s >= now_s ? null : end_s;
    this.store.loadSpans(this.range()[0]);
    this.draw();
    this.onMove?.();
  }

  draw() {
    if (this.scroll.clientWidth < 2) return;
    const nodes = this.store.nodes;
    const most = Math.max(1, ...nodes.map((node) => node.gpus.length));
    const room = parseFloat(getComputedStyle(this.scroll).maxHeight) - TOP;
    const lanes = nodes.reduce((sum, node) => sum + Math.max(node.gpus.length, 1), 0);
    const even = (room - GAP * nodes.length) / Math.max(lanes, 1);
    const detail = layOut(nodes, Math.min(Math.max(even, LANE), LARGEST_LANE));
    const isFit = this.density === "fit" || (this.density === "auto" && detail.height > room);
    const fitting = Math.min(LANE, Math.max(SMALLEST_LANE, (room / Math.max(nodes.length, 1) - 1) / most));
    const layout = isFit ? layOut(nodes, fitting) : detail;
    this._layout = layout;
    this.spacer.style.height = `${layout.height + TOP}px`; // The frame is as high as this, up to its limit.
    const inner = this.scroll.clientWidth;
    const left = inner < 600 ? 72 : 130;
    const [from_s, until_s] = this.range();
    this._frame = { from_s, until_s, left, width: inner - left - 8, top: 0, height: this.scroll.clientHeight, inner };
    this._collectSpans(from_s, until_s);
    this._paint();
  }

  /** What is to be drawn of this time, of all GPUs: to scroll needs nothing of it anew. */
  _collectSpans(from_s, until_s) {
    const now_s = this.store.now_s();
    this._seen = { now_s, byGpu: new Map(), held: heldOverTime(this.store.spans.values(), from_s, until_s, now_s) };
    for (const span of this.store.spans.values()) {
      if ((span.until_s ?? now_s) < from_s || span.from_s > until_s) continue;
      for (const gpu of span.gpus) {
        const there = this._seen.byGpu.get(gpu);
        if (there === undefined) this._seen.byGpu.set(gpu, [span]);
        else there.push(span);
      }
    }
  }

  _paint() {
    const { _frame: frame, _layout: layout } = this;
    const { inner } = frame;
    const context = sized(this.canvas, inner, frame.height);
    const colour = palette();
    drawAxis(context, colour, frame);
    const offset = TOP - this.scroll.scrollTop;
    context.save();
    context.beginPath();
    context.rect(0, TOP, inner, frame.height - TOP);
    context.clip();
    this._drawNodes(context, colour, layout, offset, inner);
    this._drawSpans(context, colour, layout, offset);
    context.restore();
    this._drawUtilisation(context, colour);
    if (this.end_s === null) {
      const now = Math.round(this._x(this._seen.now_s)) + 0.5;
      context.strokeStyle = colour("accent");
      context.beginPath();
      context.moveTo(now, AXIS);
      context.lineTo(now, Math.min(frame.height, offset + layout.height));
      context.stroke();
    }
  }

  _x(at_s) {
    const { from_s, until_s, left, width } = this._frame;
    return left + (Math.min(Math.max((at_s - from_s) / (until_s - from_s), 0), 1)) * width;
  }

  _inSight(row, offset) {
    const y = row.y + offset;
    return y + row.height > TOP && y < this._frame.height;
  }

  _drawNodes(context, colour, layout, offset, inner) {
    const { left, width } = this._frame;
    const small = layout.rows.length > 0 && layout.rows[0].height < 16;
    context.font = small ? "10px system-ui, sans-serif" : "600 12px system-ui, sans-serif";
    context.textAlign = "left";
    context.textBaseline = "middle";
    let named = -Infinity; // where the last name stands
    for (const row of layout.rows) {
      if (!this._inSight(row, offset)) continue;
      const { node } = row;
      const y = row.y + offset;
      context.fillStyle = node.up ? colour("lane") : colour("lane-away");
      if (row.lane < 6) context.fillRect(left, y, width, row.height);
      else for (let n = 0; n < Math.max(node.gpus.length, 1); n++) context.fillRect(left, y + n * row.lane, width, row.lane - 2);
      if (y - named < NAME - 1) continue; // Of lower nodes, every second or third has its name; a tip has all.
      named = y;
      context.fillStyle = node.up ? colour("text") : colour("failed");
      const note = !node.up ? "away" : node.drained ? "drained" : node.reservations.some((r) => r.holds) ? "reserved" : "";
      const name = shortened(context, plain(node.id), left - 10);
      const isTall = row.height > 30;
      context.fillText(name, 2, Math.max(y + (isTall ? row.lane : row.height) / 2, TOP + 6));
      if (note && (isTall || !node.up)) {
        context.fillStyle = node.up ? colour("muted") : colour("failed");
        context.fillText(note, isTall ? 2 : Math.min(2 + context.measureText(name).width + 6, left - 34), y + (isTall ? row.lane * 1.5 : row.height / 2));
      }
      if (row.lane >= 12 && node.gpus.length > 1) {
        context.save();
        context.font = "10px system-ui, sans-serif";
        context.fillStyle = colour("muted");
        context.textAlign = "right";
        for (let n = 0; n < node.gpus.length; n++) context.fillText(String(node.gpus[n].index), left - 5, y + (n + 0.5) * row.lane);
        context.restore();
      }
      if (!node.gpus.length && inner > 300) {
        context.fillStyle = colour("muted");
        context.fillText("no GPUs", left + 8, y + row.height / 2);
      }
    }
  }

  _drawSpans(context, colour, layout, offset) {
    const lanes = new Map(); // node:index → [y, height]
    for (const row of layout.rows) {
      if (!this._inSight(row, offset)) continue;
      row.node.gpus.forEach((gpu, n) => lanes.set(`${row.node.id}:${gpu.index}`, [row.y + offset + n * row.lane, row.lane]));
    }
    const { now_s, byGpu } = this._seen;
    this._boxes = [];
    const pixel_s = this.window_s / Math.max(this._frame.width, 1);
    context.textAlign = "left";
    context.textBaseline = "middle";
    context.font = "11px system-ui, sans-serif";
    for (const [gpu, [top, lane]] of lanes) {
      const held = byGpu.get(gpu) ?? [];
      const shared = placesOf(held, now_s, 2 * pixel_s);
      for (const span of held) {
        const [place, places] = shared.get(span) ?? [0, 1];
        const height = lane / places;
        const gap = height >= 6 ? 2 : height >= 2.5 ? 0.5 : 0;
        const end_s = span.until_s ?? now_s;
        const hue = hueOf(this.by === "owner" ? span.owner : span.job);
        this._drawSpan(context, colour, span, hue, this._x(span.from_s), top + place * height, this._x(end_s), height - gap, end_s);
      }
    }
    if (this.end_s === null) this._drawAhead(context, colour, lanes, now_s, this._frame.until_s);
  }

  /** What is to come: how long a job is believed to hold its GPUs, in outline, and which GPUs are planned for which job next. */
  _drawAhead(context, colour, lanes, now_s, until_s) {
    for (const ahead of this.store.ahead ?? []) {
      const span = { ...ahead, ahead, attempt: 0, from_s: now_s, until_s: ahead.until_s, how: "" };
      const [x, end] = [this._x(now_s), this._x(Math.min(ahead.until_s ?? Infinity, until_s))];
      for (const gpu of end - x > 2 ? ahead.gpus : []) {
        const lane = lanes.get(gpu);
        if (lane === undefined) continue;
        const [y, height] = [lane[0], lane[1] - (lane[1] >= 6 ? 2 : 0)];
        this._boxes.push([x, y, end - x, height, span, until_s]);
        context.fillStyle = context.strokeStyle = colour(`hue-${hueOf(this.by === "owner" ? ahead.owner : ahead.job)}`);
        context.globalAlpha = 0.25;
        context.fillRect(x, ahead.is_next ? y + height / 2 : y, end - x, ahead.is_next ? height / 2 : height);
        context.globalAlpha = 1;
        if (height >= 6) context.strokeRect(x + 0.5, y + 0.5, end - x - 1, height - 1);
        context.fillStyle = colour("text");
        if (ahead.is_next && height >= 12) context.fillText(shortened(context, plain(`next: ${ahead.job}`), end - x - 8), x + 4, y + height / 2 + 0.5);
      }
    }
  }

  _drawSpan(context, colour, span, hue, x, y, end, height, end_s) {
    const width = Math.max(end - x, 1);
    this._boxes.push([x, y, width, height, span, end_s]);
    context.globalAlpha = span.starts ? 0.45 : 1;
    context.fillStyle = colour(`hue-${hue}`);
    if (height >= 8 && width > 4) {
      context.beginPath();
      context.roundRect(x, y, width, height, 3);
      context.fill();
    } else context.fillRect(x, y, width, height);
    context.globalAlpha = 1;
    if (span.how.startsWith("failed") || span.how.startsWith("lost")) {
      context.fillStyle = colour("failed");
      context.fillRect(end - Math.min(3, width), y, Math.min(3, width), height);
    } else if (span.how === "paused" && width > 10 && height >= 4) {
      context.fillStyle = colour("on-hue");
      for (const from of [7, 4]) context.fillRect(end - from, y + height * 0.2, 1.5, height * 0.6);
    }
    if (span === this._chosen) {
      context.strokeStyle = colour("text");
      context.lineWidth = 2;
      context.strokeRect(x + 1, y + 1, width - 2, Math.max(height - 2, 1));
      context.lineWidth = 1;
    }
    if (height >= 12 && width > 34) {
      context.fillStyle = colour("on-hue");
      context.fillText(shortened(context, plain(span.job), width - (span.how === "paused" ? 18 : 10)), x + 5, y + height / 2 + 0.5);
    }
  }

  /** How many GPUs were held, over the same time. */
  _drawUtilisation(context, colour) {
    const { left, width, until_s } = this._frame;
    const capacity = this.store.nodes.reduce((sum, node) => sum + (node.up ? node.gpus.length : 0), 0);
    const [top, bottom] = [AXIS + 2, AXIS + UTILISATION];
    const { steps, most } = this._seen.held;
    const full = Math.max(capacity, most, 1);
    const y = (held) => bottom - ((bottom - top) * held) / full;
    context.fillStyle = colour("bg-card");
    context.fillRect(0, AXIS - 2, left - 2, UTILISATION + 6);
    context.beginPath();
    context.moveTo(left, bottom);
    let [held, before] = [0, -1];
    for (const [at_s, next] of steps) {
      const x = this._x(at_s);
      if (x - before >= 0.5) context.lineTo((before = x), y(held)); // Within a pixel, upright lines are enough.
      context.lineTo(x, y(next));
      held = next;
    }
    const last = this._x(Math.min(until_s, this._seen.now_s));
    context.lineTo(last, y(held));
    context.lineTo(last, bottom);
    context.closePath();
    context.fillStyle = colour("accent-soft");
    context.fill();
    context.strokeStyle = colour("accent");
    context.stroke();
    context.strokeStyle = colour("grid");
    context.beginPath();
    context.moveTo(left, Math.round(y(capacity)) + 0.5);
    context.lineTo(left + width, Math.round(y(capacity)) + 0.5);
    context.stroke();
    context.fillStyle = colour("muted");
    context.textAlign = "left";
    context.font = "11px system-ui, sans-serif";
    context.fillText("GPUs held", 2, (top + bottom) / 2);
    context.textAlign = "right";
    if (left > 100) {
      context.fillText(String(capacity), left - 5, y(capacity) + 5);
      context.fillText("0", left - 5, bottom - 4);
    }
  }

  _at(event) {
    const box = this.canvas.getBoundingClientRect();
    const [x, y] = [event.clientX - box.left, event.clientY - box.top];
    if (y < TOP) return null;
    return this._boxes?.findLast(([left, top, width, height]) => x >= left - 1 && x <= left + width + 1 && y >= top && y <= top + height) ?? null;
  }

  _onMove(event) {
    if (this._drag) {
      const seconds = ((this._drag.x - event.clientX) / this._frame.width) * this.window_s;
      if (Math.abs(this._drag.x - event.clientX) > 3) this._drag.moved = true;
      if (this._drag.moved) {
        this.end_s = this._drag.end_s;
        this.move(seconds);
      }
      return;
    }
    const found = this._at(event);
    this.canvas.style.cursor = found ? "pointer" : "grab";
    this.tip.hidden = found === null;
    if (found === null) return;
    this._fillTip(found[4], found[5]);
    this._placeTip(event.clientX, event.clientY);
  }

  _fillTip(span, end_s) {
    if (span.ahead) {
      const { job, owner, is_next, until_s } = span.ahead;
      this.tip.replaceChildren(h("strong", {}, job), h("div", {}, owner), is_next ? h("div", {}, "has these GPUs next, by the plan") : "", until_s === null ? "" : h("div", {}, `believed to end at ${clock(until_s)}, in ${duration(until_s - this.store.now_s())}`));
      return;
    }
    const state = span.until_s === null ? (span.starts ? "starts" : "runs") : span.how || "ended";
    this.tip.replaceChildren(
      h("strong", {}, span.job),
      h("div", {}, `${span.owner} · ${span.gpus.length} GPU${span.gpus.length === 1 ? "" : "s"} · attempt ${span.attempt}`),
      h("div", {}, span.gpus.slice(0, 8).join(", "), span.gpus.length > 8 ? ", …" : ""),
      h("div", {}, `${clock(span.from_s)} – ${span.until_s === null ? "now" : clock(span.until_s)} (${duration(end_s - span.from_s)})`),
      h("div", {}, state),
    );
  }

  _placeTip(clientX, clientY) {
    const frame = this.element.getBoundingClientRect();
    const [x, y] = [clientX - frame.left, clientY - frame.top];
    this.tip.style.left = `${Math.max(4, Math.min(x + 14, frame.width - this.tip.offsetWidth - 6))}px`;
    this.tip.style.top = `${y + 18 + this.tip.offsetHeight > frame.height ? Math.max(4, y - this.tip.offsetHeight - 10) : y + 18}px`;
  }

  _onDown(event) {
    if (event.button !== 0) return;
    this._drag = { x: event.clientX, end_s: this.end_s, moved: false };
    this.canvas.setPointerCapture(event.pointerId);
    const up = () => {
      const { moved } = this._drag;
      this._drag = null;
      const found = moved ? null : this._at(event);
      if (found) this._onOpen(found[4].job);
    };
    this.canvas.addEventListener("pointerup", up, { once: true });
    this.canvas.addEventListener("pointercancel", () => (this._drag = null), { once: true });
  }

  _onKey(event) {
    if (event.key === "ArrowLeft") this.move(-this.window_s / 5);
    else if (event.key === "ArrowRight") this.move(this.window_s / 5);
    else if (event.key === "End") this.move(Infinity);
    else if (event.key === "ArrowDown") this._chooseNext(1);
    else if (event.key === "ArrowUp") this._chooseNext(-1);
    else if (event.key === "Escape") this._choose(null);
    else if (event.key === "Enter" && this._chosen) this._onOpen(this._chosen.job);
    else return;
    event.preventDefault();
  }

  /** The next or the previous span in sight, from the top down and then by time. */
  _chooseNext(by) {
    const spans = new Map(); // span → where it begins
    for (const [x, y, , , span] of this._boxes ?? []) if (!span.ahead && !spans.has(span)) spans.set(span, [y, x]);
    const order = [...spans].sort(([, a], [, b]) => a[0] - b[0] || a[1] - b[1]).map(([span]) => span);
    if (!order.length) return;
    const at = order.indexOf(this._chosen);
    this._choose(order[at < 0 ? (by > 0 ? 0 : order.length - 1) : (at + by + order.length) % order.length]);
  }

  _choose(span) {
    if (span === this._chosen) return;
    this._chosen = span;
    this.draw();
    const box = span && this._boxes.find((each) => each[4] === span);
    this.tip.hidden = !box;
    if (!box) return;
    const canvas = this.canvas.getBoundingClientRect();
    this._fillTip(span, box[5]);
    this._placeTip(canvas.left + box[0] + Math.min(box[2], 40), canvas.top + box[1] + box[3]);
  }
}

/** Span → [place, places]: jobs that held a GPU at the same time, for longer than `least_s`, divide its lane. */
export function placesOf(held, now_s, least_s) {
  if (held.length < 2) return new Map();
  let [free_s, end_s] = [[], -Infinity]; // when each place of those that overlap is free, and when all are
  const placed = [...held].sort((a, b) => a.from_s - b.from_s).map((span) => {
    if (span.from_s >= end_s - least_s) free_s = [];
    let place = free_s.findIndex((at_s) => at_s - least_s <= span.from_s);
    if (place < 0) place = free_s.length;
    free_s[place] = span.until_s ?? Math.max(now_s, span.from_s);
    end_s = Math.max(...free_s);
    return [span, place, free_s];
  });
  return new Map(placed.filter(([, , places]) => places.length > 1).map(([span, place, places]) => [span, [place, places.length]]));
}

/** How many GPUs were held when: [time, from then on], and the most at any time. */
export function heldOverTime(spans, from_s, until_s, now_s) {
  const changes = [];
  let held = 0;
  for (const span of spans) {
    const end_s = span.until_s ?? now_s + 1;
    if (end_s <= from_s || span.from_s >= until_s) continue;
    if (span.from_s <= from_s) held += span.gpus.length;
    else changes.push([span.from_s, span.gpus.length]);
    if (end_s < until_s && span.until_s !== null) changes.push([end_s, -span.gpus.length]);
  }
  changes.sort((a, b) => a[0] - b[0] || a[1] - b[1]);
  const steps = [[from_s, held]];
  let most = held;
  for (const [at_s, by] of changes) {
    held += by;
    most = Math.max(most, held);
    if (steps[steps.length - 1][0] === at_s) steps[steps.length - 1][1] = held;
    else steps.push([at_s, held]);
  }
  return { steps, most };
}

function shortened(context, text, width) {
  if (context.measureText(text).width <= width) return text;
  let [least, most] = [0, text.length];
  while (least < most) {
    const middle = Math.ceil((least + most) / 2);
    if (context.measureText(`${text.slice(0, middle)}…`).width <= width) least = middle;
    else most = middle - 1;
  }
  return least > 0 ? `${text.slice(0, least)}…` : "";
}
