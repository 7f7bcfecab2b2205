// Values in words: times, durations, numbers, and text that users wrote.

// Characters that change how others are shown: controls, and those that turn the direction of writing.
const UNSEEN = /[\u0000-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]/g;

/** A text with all its characters visible: none can hide, move or reverse others. */
export function plain(text) {
  return text.replace(UNSEEN, (character) => {
    const code = character.charCodeAt(0);
    if (character === "\n" || character === "\t") return " ";
    if (code < 0x20) return String.fromCharCode(0x2400 + code);
    return `‹U+${code.toString(16).toUpperCase().padStart(4, "0")}›`;
  });
}

/** A duration in at most two units: 3 h 12 min. */
export function duration(seconds) {
  if (seconds === null || seconds === undefined || !Number.isFinite(seconds)) return "–";
  if (seconds < 9.95) return `${Math.max(0, seconds).toFixed(1)} s`;
  const s = Math.round(seconds);
  if (s < 60) return `${s} s`;
  const units = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];
  const first = units.findIndex(([, length]) => s >= length);
  const [unit, length] = units[first];
  const [next, part] = units[first + 1];
  const whole = Math.floor(s / length);
  const rest = Math.floor((s - whole * length) / part);
  return rest > 0 && whole < 100 ? `${whole} ${unit} ${rest} ${next}` : `${whole} ${unit}`;
}

let isFromZero = false;

/** From now on, times are those of a simulation, which begins at 0. */
export function countFromZero() {
  isFromZero = true;
}

/** Minutes by which local time is behind; a simulation has no zone. */
export const zone_min = (at_s) => (isFromZero ? 0 : new Date(at_s * 1000).getTimezoneOffset());

/** A day: 11-17, or day 3 of a simulation. */
export const day = (at_s) => (isFromZero ? `day ${Math.floor(at_s / 86400) + 1}` : clock(at_s).slice(5, 10));

/** A time of today as 14:03:05, of another day with its date. */
export function clock(at_s, with_seconds = true) {
  if (at_s === null || at_s === undefined) return "–";
  const at = new Date(at_s * 1000);
  if (isFromZero) return `${at_s >= 86400 ? `${day(at_s)}, ` : ""}${at.toISOString().slice(11, with_seconds ? 19 : 16)}`;
  const time = at.toTimeString().slice(0, with_seconds ? 8 : 5);
  if (at.toDateString() === new Date().toDateString()) return time;
  const pad = (number) => String(number).padStart(2, "0");
  return `${at.getFullYear()}-${pad(at.getMonth() + 1)}-${pad(at.getDate())} ${time}`;
}

/** A number with as many digits as it needs. */
export function number(value) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  if (Number.isInteger(value) && Math.abs(value) < 1e15) return value.toLocaleString("en");
  const size = Math.abs(value);
  if (size >= 1e6 || size < 1e-3) return value.toExponential(2);
  return String(Number(value.toPrecision(4)));
}

export const count = (many, one, several = `${one}s`) => `${number(many)} ${many === 1 ? one : several}`;

/** The latest values that a job reported, the first few. */
export function metricsOf(row, most = 2) {
  const values = Object.entries(row.metrics).slice(0, most).map(([name, value]) => `${name} ${number(value)}`);
  if (row.epoch) values.unshift(`epoch ${number(row.epoch)}`);
  else if (row.step) values.unshift(`step ${number(row.step)}`);
  return values.join(" · ");
}

export const LIVE = ["running", "ending", "pausing", "starting", "paused", "held", "waiting"];
const KINDS = {
  running: "running", starting: "starting", ending: "starting", pausing: "held", paused: "held", held: "held",
  waiting: "waiting", finished: "well", attained: "well", failed: "failed", missed: "failed",
};
const MARKS = { running: "▶", starting: "◔", held: "❚❚", waiting: "○", well: "✓", failed: "✕", over: "■" };

const ALIVE = new Set(LIVE);

export const isOver = (row) => !ALIVE.has(row.state);
/** What kind of state it is: the class that colours it. */
export const kindOf = (state) => KINDS[state] ?? "over";
/** A mark for it, so that no state is shown by colour alone. */
export const markOf = (state) => MARKS[kindOf(state)];

const HUES = 10;

/** One of so many colours for a name; always the same one. */
export function hueOf(name) {
  let sum = 2166136261;
  for (let i = 0; i < name.length; i++) sum = Math.imul(sum ^ name.charCodeAt(i), 16777619);
  return (sum >>> 4) % HUES;
}
