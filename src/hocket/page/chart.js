// A job over time: the curve of a metric with its goal, and the attempts to run it with their sizes, on one axis.

import { h, palette, sized } from "./dom.js";
import { drawAxis } from "./time_axis.js";
import { clock, duration, kindOf, number, plain } from "./text.js";

const AXIS = 20;
const STRIP = 26; // of attempts
const RIGHT = 12;
const BAND = 1.96; // standard deviations around a prediction

/** The goal in a criterion such as `acc >= 95% within 1h`; null if it has none. */
export function goalOf(until) {
  const found = /^(.+?) (>=|<=) (-?[0-9.]+(?:e[+-]?[0-9]+)?)(%?)(?= within |$)/i.exec(until ?? "");
  if (found === null) return null;
  return { metric: found[1], relation: found[2], value: Number(found[3]) / (found[4] ? 100 : 1), said: `${found[2]} ${found[3]}${found[4]}` };
}

export class Chart {
  constructor() {
    this.points = []; // {at_s, value, epoch, step}
    this.predicted = []; // {at_s, value, sd}: how it is believed to go on
    this.goal = null;
    this.attempts = [];
    this.range = [0, 1];
    this.metric = "";
    this.canvas = h("canvas", { role: "img", "aria-label": "The job over time" });
    this.tip = h("div", { class: "tip", hidden: true });
    this.element = h("div", { class: "chart" }, this.canvas, this.tip);
    this.canvas.addEventListener("pointermove", (event) => this._onMove(event));
    this.canvas.addEventListener("pointerleave", () => ((this.tip.hidden = true), (this._hover = null), this.draw()));
    this._resized = new ResizeObserver(() => this.draw());
    this._resized.observe(this.element);
  }

  close() {
    this._resized.disconnect();
  }

  draw() {
    this.element.classList.toggle("bare", this.points.length === 0);
    const width = this.element.clientWidth;
    const height = this.element.clientHeight;
    if (width < 50) return;
    const context = sized(this.canvas, width, height);
    const colour = palette();
    const left = width < 500 ? 48 : 62;
    const [from_s, until_s] = this.range;
    const frame = { from_s, until_s, left, width: width - left - RIGHT, top: 0, height: height - STRIP - 6 };
    this._frame = frame;
    drawAxis(context, colour, frame);
    const plot = { top: AXIS + 6, bottom: height - STRIP - 12 };
    if (this.points.length) this._drawCurve(context, colour, plot);
    else {
      context.fillStyle = colour("muted");
      context.font = "13px system-ui, sans-serif";
      context.textAlign = "center";
      context.fillText("The job has reported no metric.", left + frame.width / 2, (plot.top + plot.bottom) / 2);
    }
    this._drawAttempts(context, colour, height - STRIP);
  }

  _x(at_s) {
    const { from_s, until_s, left, width } = this._frame;
    return left + Math.min(Math.max((at_s - from_s) / Math.max(until_s - from_s, 1e-9), 0), 1) * width;
  }

  _drawCurve(context, colour, { top, bottom }) {
    const { left, width } = this._frame;
    const values = this.points.map((point) => point.value);
    if (this.goal) values.push(this.goal.value);
    for (const { value, sd } of this.predicted) values.push(value - BAND * sd, value + BAND * sd);
    let [least, most] = [values.reduce((a, b) => Math.min(a, b)), values.reduce((a, b) => Math.max(a, b))];
    const margin = (most - least) * 0.08 || Math.abs(most) * 0.1 || 1;
    [least, most] = [least - margin, most + margin];
    const y = (value) => bottom - ((value - least) / (most - least)) * (bottom - top);
    context.font = "11px system-ui, sans-serif";
    context.textBaseline = "middle";
    context.textAlign = "right";
    for (const value of niceSteps(least, most, Math.max(2, Math.floor((bottom - top) / 40)))) {
      context.strokeStyle = colour("grid");
      context.beginPath();
      context.moveTo(left, Math.round(y(value)) + 0.5);
      context.lineTo(left + width, Math.round(y(value)) + 0.5);
      context.stroke();
      context.fillStyle = colour("muted");
      context.fillText(number(value), left - 6, y(value));
    }
    if (this.goal) {
      const at = Math.round(y(this.goal.value)) + 0.5;
      context.strokeStyle = colour("goal");
      context.setLineDash([6, 4]);
      context.beginPath();
      context.moveTo(left, at);
      context.lineTo(left + width, at);
      context.stroke();
      context.setLineDash([]);
      context.fillStyle = colour("goal");
      context.textAlign = "left";
      context.fillText(plain(`goal ${this.goal.said}`), left + 6, at + (at - top < 16 ? 9 : -9));
    }
    this._drawPredicted(context, colour, y);
    context.strokeStyle = colour("accent");
    context.lineWidth = 2;
    context.lineJoin = "round";
    context.beginPath();
    let last = null;
    for (const point of this.points) {
      const [px, py] = [this._x(point.at_s), y(point.value)];
      const isApart = last !== null && this._isBetweenAttempts(last, point.at_s); // It did not train meanwhile.
      if (last === null || isApart) context.moveTo(px, py);
      else context.lineTo(px, py);
      last = point.at_s;
    }
    context.stroke();
    context.lineWidth = 1;
    context.fillStyle = colour("accent");
    const shown = this.points.length <= 80 ? this.points : this.points.slice(-1);
    for (const point of shown) {
      context.beginPath();
      context.arc(this._x(point.at_s), y(point.value), 2.5, 0, 7);
      context.fill();
    }
    if (this._hover) {
      context.strokeStyle = colour("muted");
      const px = Math.round(this._x(this._hover.at_s)) + 0.5;
      context.beginPath();
      context.moveTo(px, top);
      context.lineTo(px, bottom);
      context.stroke();
      context.beginPath();
      context.arc(px, y(this._hover.value), 4.5, 0, 7);
      context.fill();
    }
  }

  /** How it is believed to go on, with a band in which 95 % of the values are. */
  _drawPredicted(context, colour, y) {
    if (!this.predicted.length) return;
    const last = this.points[this.points.length - 1];
    const course = [{ ...last, sd: 0 }, ...this.predicted.filter(({ at_s }) => at_s > last.at_s)];
    const line = (sign) => course.map(({ at_s, value, sd }) => [this._x(at_s), y(value + sign * BAND * sd)]);
    context.fillStyle = colour("accent-soft");
    context.beginPath();
    for (const [px, py] of [...line(1), ...line(-1).reverse()]) context.lineTo(px, py);
    context.fill();
    context.strokeStyle = colour("accent");
    context.setLineDash([3, 4]);
    context.beginPath();
    for (const [px, py] of line(0)) context.lineTo(px, py);
    context.stroke();
    context.setLineDash([]);
  }

  _isBetweenAttempts(from_s, until_s) {
    return this.attempts.some((attempt) => attempt.started_s !== null && attempt.started_s > from_s && attempt.started_s <= until_s);
  }

  _drawAttempts(context, colour, top) {
    const { left, width } = this._frame;
    context.fillStyle = colour("lane");
    context.fillRect(left, top, width, STRIP - 4);
    context.textBaseline = "middle";
    context.font = "11px system-ui, sans-serif";
    context.fillStyle = colour("muted");
    context.textAlign = "right";
    context.fillText(width < 400 ? "runs" : "attempts", left - 6, top + STRIP / 2 - 2);
    for (const attempt of this.attempts) {
      if (attempt.started_s === null) continue;
      const x = this._x(attempt.started_s);
      const end = this._x(attempt.ended_s ?? this.now_s ?? this.range[1]);
      const kind = attempt.ended_s === null ? "running" : /^(failed|lost)/.test(attempt.how) ? "failed" : kindOf(attempt.how) === "over" ? "held" : kindOf(attempt.how);
      context.fillStyle = colour(`${kind}-fill`);
      context.beginPath();
      context.roundRect(x, top, Math.max(end - x, 2), STRIP - 4, 3);
      context.fill();
      context.fillStyle = colour("on-fill");
      context.textAlign = "left";
      const label = `${attempt.number}: ×${attempt.size}`;
      if (end - x > context.measureText(label).width + 8) context.fillText(label, x + 4, top + STRIP / 2 - 2);
    }
  }

  _onMove(event) {
    const box = this.canvas.getBoundingClientRect();
    const [x, y] = [event.clientX - box.left, event.clientY - box.top];
    const { from_s, until_s, left, width } = this._frame;
    const at_s = from_s + ((x - left) / width) * (until_s - from_s);
    let lines = [];
    this._hover = null;
    if (y > box.height - STRIP) {
      const attempt = this.attempts.find((each) => each.started_s !== null && each.started_s <= at_s && (each.ended_s ?? Infinity) >= at_s);
      if (attempt) lines = [`attempt ${attempt.number}, size ${attempt.size}`, (attempt.gpus?.length ? attempt.gpus : attempt.nodes).join(", "), `${clock(attempt.started_s)} – ${attempt.ended_s === null ? "now" : clock(attempt.ended_s)} (${duration((attempt.ended_s ?? until_s) - attempt.started_s)})`, attempt.how];
    } else if (this.points.length) {
      this._hover = this.points.reduce((best, point) => (Math.abs(point.at_s - at_s) < Math.abs(best.at_s - at_s) ? point : best));
      lines = [`${this.metric} ${number(this._hover.value)}`, this._hover.epoch ? `epoch ${number(this._hover.epoch)}` : this._hover.step ? `step ${number(this._hover.step)}` : "", clock(this._hover.at_s)];
    }
    this.draw();
    this.tip.hidden = lines.length === 0;
    this.tip.replaceChildren(...lines.filter(Boolean).map((line, n) => h(n ? "div" : "strong", {}, line)));
    this.tip.style.left = `${Math.max(4, Math.min(x + 14, box.width - this.tip.offsetWidth - 6))}px`;
    this.tip.style.top = `${Math.max(2, Math.min(y + 14, box.height - this.tip.offsetHeight - 4))}px`;
  }
}

/** Round numbers between two others. */
export function niceSteps(least, most, many) {
  const rough = (most - least) / many;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((each) => each >= rough);
  const found = [];
  for (let n = Math.ceil(least / step); n * step <= most && found.length < 20; n++) found.push(Number((n * step).toPrecision(12)));
  return found;
}
