// The log of a job, live: the end of it first, earlier parts when asked for, with search and colours.

import { logPart } from "./api.js";
import { applyStyle, isPlain, overwritten, parsed } from "./ansi.js";
import { fill, h, setText } from "./dom.js";
import { number } from "./text.js";
import { VirtualList } from "./virtual_list.js";

const PART = 256 << 10;
const EVERY_MS = 1000;
const MOST_LINES = 50_000;
const LONGEST = 2000; // characters of a line that are shown at once
const LONGEST_REST = 4 << 20; // characters of a line without an end
const ROW = 18;

export class Log {
  constructor(id) {
    this.id = id;
    this.attempt = 0; // the last one
    this.lines = []; // {text, style before it}
    this.found = []; // indices of lines with what is searched
    this.at = -1;
    this.follows = true;
    this.list = new VirtualList({
      rowHeight: ROW,
      make: () => h("div", { class: "line" }),
      update: (element, line, index) => this._show(element, line, index),
      properties: { class: "virtual log-lines", tabindex: "0", role: "log", "aria-label": "Log", "aria-live": "off" },
    });
    this.list.element.addEventListener("scroll", () => this._setFollows(this.list.isAtEnd()), { passive: true });
    this.search = h("input", { type: "search", placeholder: "Search the log", "aria-label": "Search the log", autocomplete: "off", spellcheck: "false", oninput: () => this._search(), onkeydown: (event) => {
      if (event.key === "Enter") this._go(event.shiftKey ? -1 : 1);
    } });
    this.hits = h("span", { class: "muted small", role: "status" });
    this.attempts = h("select", { "aria-label": "Attempt", onchange: () => this.choose(Number(this.attempts.value)) });
    this.follow = h("button", { type: "button", class: "quiet", onclick: () => (this._setFollows(true), this.list.toEnd()) }, "Follow");
    this.earlier = h("button", { type: "button", class: "quiet", hidden: true, onclick: () => this._loadEarlier() }, "Load earlier lines");
    this.note = h("p", { class: "muted empty" }, "Nothing was printed yet.");
    this.element = h(
      "section",
      { class: "card log", "aria-labelledby": "log-title" },
      h("header", {}, h("h2", { id: "log-title" }, "Log"), h("div", { class: "controls" }, this.attempts, this.search,
        h("button", { type: "button", class: "icon", "aria-label": "Previous match", onclick: () => this._go(-1) }, "↑"),
        h("button", { type: "button", class: "icon", "aria-label": "Next match", onclick: () => this._go(1) }, "↓"),
        this.hits, this.earlier, this.follow)),
      this.note,
      this.list.element,
    );
    this._setFollows(true);
    this._draw();
  }

  /** From now on it is read. */
  start() {
    this._restart();
    this._timer = setInterval(() => document.hidden || this._load(), EVERY_MS);
  }

  refuse() {
    setText(this.note, "The log is shown to the job's owner and to admins.");
  }

  close() {
    clearInterval(this._timer);
    this.list.close();
    this.isClosed = true;
  }

  /** Which attempts there are. */
  setAttempts(numbers) {
    if (String(numbers) === this._attempts) return;
    const isLast = this.attempt === 0;
    this._attempts = String(numbers);
    fill(this.attempts, h("option", { value: "0" }, "last attempt"), [...numbers].reverse().map((n) => h("option", { value: String(n) }, `attempt ${n}`)));
    this.attempts.hidden = numbers.length < 2;
    this.attempts.value = isLast ? "0" : String(this.attempt);
  }

  choose(attempt) {
    this.attempt = attempt;
    this._restart();
  }

  _restart() {
    this.lines = [];
    this._decoder = new TextDecoder();
    this._rest = "";
    this._style = undefined;
    this._next = null; // where to go on
    this._first = null; // where what we have begins
    this._of = 0; // the attempt that it is of
    this._generation = (this._generation ?? 0) + 1;
    this._draw();
    this._load();
  }

  async _load() {
    if (this._isLoading || this.isClosed) return;
    this._isLoading = true;
    const generation = this._generation;
    try {
      const isFirst = this._next === null;
      const part = await logPart(this.id, isFirst ? -PART : this._next, PART, this.attempt);
      if (generation !== this._generation || this.isClosed) return;
      if (!isFirst && part.attempt !== 0 && part.attempt !== this._of && this._of !== 0) { // Another attempt has begun.
        this._isLoading = false;
        this._restart();
        return;
      }
      if (part.attempt !== 0) this._of = part.attempt;
      const begins = part.next - part.bytes.length;
      const skipped = isFirst && begins > 0 ? beforeWholeLine(part.bytes) : 0;
      if (isFirst && part.bytes.length) this._first = begins + skipped;
      if (part.bytes.length || part.next) this._next = part.next;
      this._add(this._decoder.decode(part.bytes.subarray(skipped), { stream: true }));
    } catch {
      // The controller is away, or the agent that has the log: it is asked for again.
    } finally {
      this._isLoading = false;
    }
  }

  /** More text at the end. */
  _add(text) {
    if (!text) {
      this._draw();
      return;
    }
    if (this._rest !== "") this.lines.pop();
    const found = (this._rest + text).split("\n");
    this._rest = found[found.length - 1];
    if (this._rest === "") found.pop();
    if (this._rest.length > LONGEST_REST) this._rest = ""; // What comes next is shown as a line of its own.
    this._push(this.lines, found);
    if (this.lines.length > MOST_LINES) {
      this.lines.splice(0, this.lines.length - MOST_LINES);
      this._first = null;
    }
    this._search(false);
    this._draw();
  }

  _push(lines, texts) {
    let style = lines.length ? lines[lines.length - 1].after : this._style;
    for (const text of texts) {
      const raw = overwritten(text);
      const line = { raw, before: style, after: style };
      if (raw.includes("\x1b")) line.after = parsed(raw, style).style;
      style = line.after;
      lines.push(line);
    }
  }

  async _loadEarlier() {
    const end = this._first;
    if (!end) return;
    const from = Math.max(0, end - PART);
    const { bytes } = await logPart(this.id, from, end - from, this._of);
    if (this._first !== end) return;
    const skipped = from > 0 ? beforeWholeLine(bytes) : 0;
    const texts = new TextDecoder().decode(bytes.subarray(skipped)).split("\n");
    if (texts[texts.length - 1] === "") texts.pop();
    const earlier = [];
    this._push(earlier, texts);
    this.lines = [...earlier, ...this.lines];
    this._first = from + skipped;
    const { element } = this.list;
    const top = element.scrollTop;
    this._search(false);
    this._draw();
    element.scrollTop = top + earlier.length * ROW;
  }

  _setFollows(follows) {
    this.follows = follows;
    this.follow.disabled = follows;
    setText(this.follow, follows ? "● Following" : "Follow");
  }

  _draw() {
    this.note.hidden = this.lines.length > 0;
    this.list.element.hidden = this.lines.length === 0;
    this.earlier.hidden = !this._first;
    const { follows } = this;
    this.list.element.style.height = `${this.lines.length * ROW + ROW}px`; // up to its limit
    this.list.set(this.lines);
    if (follows && this.lines.length) this.list.toEnd();
  }

  _show(element, line, index) {
    const query = this._query ?? "";
    element.classList.toggle("current", this.found[this.at] === index);
    if (element.of === line && element.for === query) return;
    [element.of, element.for] = [line, query];
    const raw = line.raw.length > LONGEST ? line.raw.slice(0, LONGEST) : line.raw;
    const { parts } = parsed(raw, line.before);
    const spans = marked(parts, query);
    if (raw !== line.raw) spans.push(h("em", { class: "muted" }, ` … ${number(line.raw.length - LONGEST)} more characters`));
    element.replaceChildren(...spans);
  }

  _search(isNew = true) {
    this._query = this.search.value.toLowerCase();
    this.found = [];
    if (this._query) {
      this.lines.forEach((line, index) => {
        if (searched(line).includes(this._query)) this.found.push(index);
      });
    }
    if (isNew) {
      this.at = this.found.length ? this.found.length - 1 : -1;
      if (this.at >= 0) this._go(0);
    }
    this._showHits();
    this.list.draw();
  }

  _go(by) {
    if (!this.found.length) return;
    this.at = (this.at + by + this.found.length) % this.found.length;
    this._setFollows(false);
    this.list.reveal(this.found[this.at]);
    this._showHits();
  }

  _showHits() {
    setText(this.hits, this._query ? (this.found.length ? `${this.at + 1} of ${number(this.found.length)} lines` : "not found") : "");
  }
}

/** Where the first line begins that is whole; 0 where a line is longer than all of this, which is shown in parts then. */
function beforeWholeLine(bytes) {
  const end = bytes.indexOf(10) + 1;
  return end < bytes.length ? end : 0;
}

/** What is seen of a line, in lower case; worked out when it is first searched. */
function searched(line) {
  line.text ??= parsed(line.raw, line.before).parts.map(([text]) => text).join("").toLowerCase();
  return line.text;
}

/** The parts of a line in their styles, with what is searched marked, also where its style changes in between. */
function marked(parts, query) {
  const text = parts.map(([part]) => part).join("").toLowerCase();
  const isMarked = new Uint8Array(query ? text.length : 0);
  if (query) for (let at = text.indexOf(query); at >= 0; at = text.indexOf(query, at + query.length)) isMarked.fill(1, at, at + query.length);
  const found = [];
  let offset = 0;
  for (const [part, style] of parts) {
    let from = 0;
    for (let n = 1; n <= part.length; n++) {
      if (n < part.length && isMarked[offset + n] === isMarked[offset + from]) continue;
      found.push(styledSpan(part.slice(from, n), style, isMarked[offset + from] === 1));
      from = n;
    }
    offset += part.length;
  }
  return found;
}

function styledSpan(text, style, isMarked) {
  if (!isMarked && isPlain(style)) return document.createTextNode(text);
  const element = document.createElement(isMarked ? "mark" : "span");
  if (!isMarked) applyStyle(element, style);
  element.textContent = text;
  return element;
}
