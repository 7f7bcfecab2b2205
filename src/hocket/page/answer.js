// The answer of a query: each estimate with the interval around it, which shrinks as more of the data is read.

import { fill, h, setText } from "./dom.js";
import { duration, number } from "./text.js";

const ROWS = 200; // of an answer, that are shown

/** How good an answer is, in a sentence; as `hocket answer` says it. */
export function summaryOf({ exact, fraction, elapsed_s, accuracy, accuracy_rule, confidence }) {
  if (exact) return `Exact, after ${duration(elapsed_s)}.`;
  const read = `From ${(100 * fraction).toFixed(1)} % of the data, after ${duration(elapsed_s)}`;
  if (accuracy === null || accuracy === undefined) return `${read}.`;
  const share = `${(100 * Math.max(accuracy, 0)).toFixed(2)} %`;
  if (accuracy_rule === "envelope") return `${read}: acc = ${share} by the envelope of the last answers, which promises nothing.`;
  return `${read}: acc ≥ ${share} in all columns and rows, ${Math.round(100 * confidence)} % confident.`;
}

export class AnswerView {
  constructor() {
    this.status = h("p", { role: "status" }, "There is no answer yet.");
    this.meter = h("progress", { max: "1", value: 0, "aria-label": "Part of the data that was read" });
    this.table = h("div", { class: "scrolls", tabindex: "0", role: "group", "aria-label": "Answer" });
    this.more = h("p", { class: "muted small" });
    this.element = h("section", { class: "card answer", hidden: true, "aria-labelledby": "answer-title" }, h("header", {}, h("h2", { id: "answer-title" }, "Answer"), this.meter), this.status, this.table, this.more);
    this._widest = new Map(); // column and row → [low, high], the widest interval that was seen
  }

  show(answer) {
    const key = JSON.stringify([answer.batches, answer.exact, answer.rows.length]);
    if (key === this._key) return;
    this._key = key;
    setText(this.status, summaryOf(answer));
    this.meter.value = answer.exact ? 1 : answer.fraction;
    const isBounded = answer.columns.map((_name, n) => answer.half_widths.some((widths) => Number.isFinite(widths[n])) || this._wasBounded?.[n] === true);
    this._wasBounded = isBounded;
    this._rememberWidest(answer, isBounded);
    const ranges = answer.columns.map((_name, n) => this._rangeOf(n));
    fill(this.table, h("table", {},
      h("thead", {}, h("tr", {}, answer.columns.map((name) => h("th", { scope: "col" }, name)))),
      h("tbody", {}, answer.rows.slice(0, ROWS).map((row, at) => h("tr", {}, row.map((value, n) => {
        if (!isBounded[n]) return n === 0 ? h("th", { scope: "row" }, textOf(value)) : h("td", {}, textOf(value));
        const half = answer.half_widths[at]?.[n];
        return h("td", { class: "estimate" }, textOf(value), half ? h("span", { class: "muted" }, ` ± ${number(half)}`) : null, bar(value, half ?? 0, this._widest.get(keyOf(row, n, isBounded)), ranges[n]));
      }))))));
    const rest = answer.rows.length - ROWS;
    setText(this.more, rest > 0 ? `and ${number(rest)} more rows` : answer.exact ? "" : "Bars: the interval now, and behind it the widest that was seen.");
  }

  /** Remembers the widest interval of each cell. */
  _rememberWidest({ rows, half_widths }, isBounded) {
    rows.slice(0, ROWS).forEach((row, at) => row.forEach((value, n) => {
      if (!isBounded[n] || !Number.isFinite(value)) return;
      const half = half_widths[at]?.[n] ?? 0;
      const key = keyOf(row, n, isBounded);
      const [low, high] = this._widest.get(key) ?? [value, value];
      if (value + half - (value - half) >= high - low) this._widest.set(key, [value - half, value + half]);
    }));
  }

  _rangeOf(column) {
    let [low, high] = [Infinity, -Infinity];
    for (const [key, [from, to]] of this._widest) {
      if (!key.startsWith(`${column} `)) continue;
      [low, high] = [Math.min(low, from), Math.max(high, to)];
    }
    return [low, high > low ? high : low + 1];
  }
}

/** A cell by its column and by the group that its row is of. */
const keyOf = (row, column, isBounded) => `${column} ${JSON.stringify(row.filter((_value, n) => !isBounded[n]))}`;

const textOf = (value) => (typeof value === "number" ? number(value) : value === null ? "–" : String(value));

function bar(value, half, widest, [low, high]) {
  if (!Number.isFinite(value) || widest === undefined) return null;
  const place = (x) => Math.min(100, Math.max(0, (100 * (x - low)) / (high - low)));
  const span = (from, to) => {
    const part = h("i", {});
    part.style.left = `${place(from)}%`;
    part.style.width = `${Math.max(place(to) - place(from), 0.5)}%`;
    return part;
  };
  return h("span", { class: "interval", "aria-hidden": "true" }, span(...widest), span(value - half, value + half), span(value, value));
}
