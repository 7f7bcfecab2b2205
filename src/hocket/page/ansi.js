// Lines of a log as a terminal would show them: colours and weights as classes, controls made visible.

import { plain } from "./text.js";

const SEQUENCE = /\x1b(?:\[([0-9;:]*)([@-~])|\][^\x07\x1b]*(?:\x07|\x1b\\)|[()][0-9A-B]|[=>NOMDEc78])/g;
const STEPS = [0, 95, 135, 175, 215, 255];

const PLAIN = Object.freeze({ fg: null, bg: null, bold: false, dim: false, italic: false, underline: false, inverse: false });

/** One of 256 colours: the first sixteen by number, others as rgb. */
function indexed(code) {
  if (!(code >= 0 && code <= 255)) return null;
  if (code < 16) return code;
  if (code >= 232) return `rgb(${Array(3).fill(8 + 10 * (code - 232)).join(" ")})`;
  const cube = code - 16;
  return `rgb(${STEPS[Math.floor(cube / 36)]} ${STEPS[Math.floor(cube / 6) % 6]} ${STEPS[cube % 6]})`;
}

function channel(value) {
  return Math.min(255, Math.max(0, Number(value) || 0));
}

/** The style after a sequence of numbers (SGR). */
function restyled(style, parameters) {
  const next = { ...style };
  const codes = parameters === "" ? [0] : parameters.split(/[;:]/).map(Number);
  for (let n = 0; n < codes.length; n++) {
    const code = codes[n];
    if (code === 0) Object.assign(next, PLAIN);
    else if (code === 1) next.bold = true;
    else if (code === 2) next.dim = true;
    else if (code === 3) next.italic = true;
    else if (code === 4) next.underline = true;
    else if (code === 7) next.inverse = true;
    else if (code === 22) next.bold = next.dim = false;
    else if (code === 23) next.italic = false;
    else if (code === 24) next.underline = false;
    else if (code === 27) next.inverse = false;
    else if (code >= 30 && code <= 37) next.fg = code - 30;
    else if (code >= 90 && code <= 97) next.fg = code - 82;
    else if (code === 39) next.fg = null;
    else if (code >= 40 && code <= 47) next.bg = code - 40;
    else if (code >= 100 && code <= 107) next.bg = code - 92;
    else if (code === 49) next.bg = null;
    else if (code === 38 || code === 48) {
      const where = code === 38 ? "fg" : "bg";
      if (codes[n + 1] === 5) {
        next[where] = indexed(codes[n + 2]);
        n += 2;
      } else if (codes[n + 1] === 2) {
        next[where] = `rgb(${channel(codes[n + 2])} ${channel(codes[n + 3])} ${channel(codes[n + 4])})`;
        n += 4;
      }
    }
  }
  return next;
}

/** What remains of a line after its carriage returns: what was written last. */
export function overwritten(line) {
  const parts = line.split("\r").filter((part) => part !== "");
  return parts.length ? parts[parts.length - 1] : "";
}

/** A line as [text, style] parts, and the style that the next line begins with. */
export function parsed(line, style = PLAIN) {
  const parts = [];
  let from = 0;
  const add = (text) => {
    if (text) parts.push([plain(text.replaceAll("\t", "    ")), style]);
  };
  SEQUENCE.lastIndex = 0;
  for (const found of line.matchAll(SEQUENCE)) {
    add(line.slice(from, found.index));
    from = found.index + found[0].length;
    if (found[2] === "m") style = restyled(style, found[1]);
  }
  add(line.slice(from));
  return { parts, style };
}

/** Is it as text without any colour is? */
export const isPlain = (style) => Object.keys(PLAIN).every((name) => style[name] === PLAIN[name]);

/** Shows a style on an element. */
export function applyStyle(element, style) {
  const [fg, bg] = style.inverse ? [style.bg ?? "back", style.fg ?? "front"] : [style.fg, style.bg];
  const names = ["bold", "dim", "italic", "underline"].filter((name) => style[name]).map((name) => `ansi-${name}`);
  if (fg !== null && typeof fg !== "string") names.push(`ansi-fg-${fg}`);
  else if (fg === "back") names.push("ansi-fg-back");
  else if (fg !== null) element.style.color = fg;
  if (bg !== null && typeof bg !== "string") names.push(`ansi-bg-${bg}`);
  else if (bg === "front") names.push("ansi-bg-front");
  else if (bg !== null) element.style.backgroundColor = bg;
  element.className = names.join(" ");
}
