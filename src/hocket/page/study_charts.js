// Drawings of a study: each trial a line through its hyperparameters, and its metric as it was trained.

import { h, palette, sized } from "./dom.js";
import { niceSteps } from "./chart.js";
import { number, plain } from "./text.js";

const NEAR = 14; // pixels from a line at which it is meant
const LABEL = 16; // characters of a value on an axis

/** Values on a line from 0 to 1: numbers by size, or by their logarithm; anything else by name. */
export function axisOf({ name, kind }, values) {
  const known = values.filter((value) => value !== undefined);
  if (kind === "choice" || known.some((value) => typeof value !== "number")) {
    const isNumber = known.every((value) => typeof value === "number");
    const kinds = [...new Set(known)].sort((a, b) => (isNumber ? a - b : String(a) < String(b) ? -1 : 1));
    const place = (value) => (kinds.length > 1 ? kinds.indexOf(value) / (kinds.length - 1) : 0.5);
    const step = Math.ceil(kinds.length / 12);
    return { name, place, ticks: kinds.filter((_, n) => n % step === 0).map((value) => [place(value), typeof value === "number" ? number(value) : String(value)]) };
  }
  const scale = kind === "loguniform" ? Math.log : (value) => value;
  const [low, high] = known.length ? [known.reduce((a, b) => Math.min(a, b)), known.reduce((a, b) => Math.max(a, b))] : [0, 1];
  const place = (value) => (high > low ? (scale(value) - scale(low)) / (scale(high) - scale(low)) : 0.5);
  const middle = kind === "loguniform" ? Math.sqrt(low * high) : (low + high) / 2;
  return { name, place, ticks: (high > low ? [low, middle, high] : [low]).map((value) => [place(value), number(value)]) };
}

class Drawing {
  /** `onPoint` is called with the trial that the pointer is at, or null; `onOpen` with one that is clicked. */
  constructor(label, onPoint, onOpen) {
    this.lines = []; // {trial, rank from 0 (the best) to 1, points: [[x, y], …] once drawn}
    this.canvas = h("canvas", { role: "img", "aria-label": label });
    this.element = h("div", { class: "study-chart" }, this.canvas);
    this.canvas.addEventListener("pointermove", (event) => onPoint(this._at(event), event));
    this.canvas.addEventListener("pointerleave", () => onPoint(null));
    this.canvas.addEventListener("click", (event) => onOpen(this._at(event)));
    this._resized = new ResizeObserver(() => this.draw());
    this._resized.observe(this.element);
  }

  close() {
    this._resized.disconnect();
  }

  draw() {
    const [width, height] = [this.element.clientWidth, this.element.clientHeight];
    if (width < 60) return;
    const context = sized(this.canvas, width, height);
    context.font = "11px system-ui, sans-serif";
    context.textBaseline = "middle";
    this._draw(context, palette(), width, height);
  }

  /** The better, the stronger; the one that is pointed at, or else the best, stands out. */
  _drawLines(context, colour, dots) {
    const chosen = this.lines.find(({ trial }) => trial.number === this.pointed) ?? this.lines[0];
    context.lineJoin = "round";
    for (const line of [...this.lines].reverse().concat(chosen ?? [])) {
      const isChosen = line === chosen;
      const strength = (1 - line.rank) ** 3;
      context.globalAlpha = isChosen ? 1 : 0.12 + 0.6 * strength;
      context.strokeStyle = context.fillStyle = colour(isChosen ? "goal" : "accent");
      context.lineWidth = isChosen ? 2.5 : 0.8 + strength;
      context.beginPath();
      for (const [n, [x, y]] of line.points.entries()) n ? context.lineTo(x, y) : context.moveTo(x, y);
      context.stroke();
      if (!dots) continue;
      for (const [x, y] of line.points) {
        context.beginPath();
        context.arc(x, y, isChosen ? 3.5 : 2, 0, 7);
        context.fill();
      }
    }
    context.globalAlpha = context.lineWidth = 1;
  }

  _at(event) {
    const box = this.canvas.getBoundingClientRect();
    const [x, y] = [event.clientX - box.left, event.clientY - box.top];
    let [best, least] = [null, NEAR];
    for (const { trial, points } of this.lines) {
      points.forEach(([px, py], n) => {
        const [qx, qy] = points[n + 1] ?? [px, py];
        const along = Math.min(Math.max(((x - px) * (qx - px) + (y - py) * (qy - py)) / ((qx - px) ** 2 + (qy - py) ** 2 || 1), 0), 1);
        const away = Math.hypot(x - px - along * (qx - px), y - py - along * (qy - py));
        if (away < least) [best, least] = [trial, away];
      });
    }
    return best;
  }
}

export class ParallelCoordinates extends Drawing {
  /** Trials in order, the best first, with their best values; axes of the space, and of the metric. */
  set(trials, axes) {
    this.axes = axes;
    this.lines = trials.map(({ trial, value }, n) => ({ trial, value, rank: trials.length > 1 ? n / (trials.length - 1) : 0, points: [] }));
    this.draw();
  }

  _draw(context, colour, width, height) {
    if (!this.axes?.length) return;
    const [left, right, top, bottom] = [24, width < 500 ? 44 : 70, 26, height - 12];
    const x = (n) => left + (this.axes.length > 1 ? (n / (this.axes.length - 1)) * (width - left - right) : 0);
    const y = (place) => bottom - place * (bottom - top);
    for (const line of this.lines) {
      line.points = this.axes.flatMap(({ place, of }, n) => {
        const value = of(line);
        return value === undefined ? [] : [[x(n), y(place(value))]]; // Not all trials have all hyperparameters.
      });
    }
    this._drawLines(context, colour, false);
    this.axes.forEach(({ name, ticks }, n) => {
      context.strokeStyle = colour("muted");
      context.beginPath();
      context.moveTo(Math.round(x(n)) + 0.5, top);
      context.lineTo(Math.round(x(n)) + 0.5, bottom);
      context.stroke();
      context.fillStyle = colour("text");
      context.textAlign = n ? (n === this.axes.length - 1 ? "right" : "center") : "left";
      context.fillText(cut(name, Math.max(8, width / this.axes.length / 7)), n ? (n === this.axes.length - 1 ? width - 4 : x(n)) : 4, 10);
      context.textAlign = "left";
      for (const [place, label] of ticks) {
        const text = cut(label, LABEL);
        context.fillStyle = colour("bg-card");
        context.globalAlpha = 0.8; // so that it can be read above the lines
        context.fillRect(x(n) + 3, y(place) - 7, context.measureText(text).width + 4, 14);
        context.globalAlpha = 1;
        context.fillStyle = colour("text");
        context.fillText(text, x(n) + 5, y(place));
      }
    });
  }
}

export class StudyCurves extends Drawing {
  /** Trials in order, the best first, each with [units, value] as far as they are known. */
  set(trials) {
    this.lines = trials.map(({ trial, points }, n) => ({ trial, known: points, rank: trials.length > 1 ? n / (trials.length - 1) : 0, points: [] }));
    this.draw();
  }

  _draw(context, colour, width, height) {
    const all = this.lines.flatMap(({ known }) => known);
    if (!all.length) return;
    const [left, right, top, bottom] = [54, 14, 10, height - 24];
    const span = (n) => [all.reduce((least, point) => Math.min(least, point[n]), Infinity), all.reduce((most, point) => Math.max(most, point[n]), -Infinity)];
    const [[first, last], [least, most]] = [span(0), span(1)];
    const margin = (most - least) * 0.06 || Math.abs(most) * 0.1 || 1;
    const isLog = first > 0 && last / first > 4; // Rungs are multiples of each other.
    const scale = isLog ? Math.log : (value) => value;
    const x = (units) => left + (last > first ? (scale(units) - scale(first)) / (scale(last) - scale(first)) : 0.5) * (width - left - right);
    const y = (value) => bottom - ((value - least + margin) / (most - least + 2 * margin)) * (bottom - top);
    context.textAlign = "right";
    for (const value of niceSteps(least - margin, most + margin, 5)) {
      context.strokeStyle = colour("grid");
      context.beginPath();
      context.moveTo(left, Math.round(y(value)) + 0.5);
      context.lineTo(width - right, Math.round(y(value)) + 0.5);
      context.stroke();
      context.fillStyle = colour("muted");
      context.fillText(number(value), left - 6, y(value));
    }
    context.textAlign = "center";
    let free = -Infinity; // where the next label may begin
    for (const units of this.rungs ?? []) {
      const [label, at] = [number(units), x(units)];
      const half = context.measureText(label).width / 2;
      if (units < first || units > last || at - half < free) continue;
      context.fillText(label, Math.min(at, width - half), height - 10);
      free = at + half + 8;
    }
    for (const line of this.lines) line.points = line.known.map(([units, value]) => [x(units), y(value)]);
    this._drawLines(context, colour, true);
  }
}

function cut(text, most) {
  const shown = plain(String(text));
  return shown.length > most ? `${shown.slice(0, most - 1)}…` : shown;
}
