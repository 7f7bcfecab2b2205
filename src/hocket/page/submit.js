// A form for a new job: made from the fields that the controller knows, checked while one types, and shown as a command and as a file.

import { get, post } from "./api.js";
import { fill, h, notice, setText } from "./dom.js";
import { count } from "./text.js";

const PAUSE_MS = 250; // after the last key, before it is checked
const LISTS = ["names", "kinds", "env", "traits"]; // one a line
const LONG = ["words", "sql", ...LISTS];
const DATE = /^\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d)?$/;

// What was typed stays when the view is left and entered again; secrets do not.
const draft = new Map();

/** A date without an offset is meant here, and the controller may be in another zone. */
export function withOffset(text, offset_min = -new Date(text.replace(" ", "T")).getTimezoneOffset()) {
  if (!DATE.test(text)) return text;
  const pad = (number) => String(Math.floor(number)).padStart(2, "0");
  const size = Math.abs(offset_min);
  return `${text.replace(" ", "T")}${offset_min < 0 ? "-" : "+"}${pad(size / 60)}:${pad(size % 60)}`;
}

/** What a field's text says; undefined if it says nothing. */
export function valueOf(reads, text) {
  if (reads === "flag") return text === true ? true : undefined;
  if (!text.trim()) return undefined;
  if (LISTS.includes(reads)) return text.split("\n").map((line) => line.trim()).filter(Boolean);
  return reads === "moment" ? withOffset(text.trim()) : text.trim();
}

const labelOf = (name) => name.replaceAll("_", " ").replace(/^./, (first) => first.toUpperCase()).replace(/\b(gpu|cpu)/gi, (word) => word.toUpperCase()).replace("Cwd", "Folder").replace("Env", "Environment");

export class Submit {
  constructor(store) {
    this.store = store;
    this.title = "Submit a job";
    this.controls = new Map(); // name → what it is typed in
    this.status = h("p", { class: "lead", role: "status" }, "…");
    this.warnings = h("ul", { class: "notes" });
    this.texts = [["As a command", "command_line"], ["As a file, for hocket submit job.toml", "toml"]].map(([label, name]) => this._textCard(label, name));
    this.fields = h("div", { class: "form-fields" });
    this.button = h("button", { type: "submit", class: "primary" }, "Submit");
    this.form = h(
      "form",
      {
        class: "submit-form", "aria-label": "A new job", novalidate: true, autocomplete: "off",
        oninput: (event) => this._typed(event.target.name), onchange: () => this._later(0),
        onsubmit: (event) => (event.preventDefault(), this._submit()),
        onkeydown: (event) => (event.ctrlKey || event.metaKey) && event.key === "Enter" && this._submit(),
      },
      this.fields,
      h("div", { class: "buttons" }, this.button, h("button", { type: "button", class: "quiet", onclick: () => this._clear() }, "Clear")),
    );
    this.element = h(
      "div",
      { class: "submit" },
      h("nav", { class: "crumbs", "aria-label": "Where this is" }, h("a", { href: "#/jobs" }, "Jobs"), h("span", { "aria-hidden": "true" }, "›")),
      h("div", { class: "title" }, h("h1", {}, "Submit a job")),
      h("div", { class: "columns wide-first" }, this.form,
        h("aside", { class: "card same", "aria-label": "The job as it would be" }, this.status, this.warnings, this.texts.map(({ card }) => card))),
    );
    this._load();
  }

  close() {
    this.isClosed = true;
    clearTimeout(this._timer);
  }

  update() {
    const { token } = this.store;
    if (token === null || this._role === token.role) return;
    this._role = token.role;
    if (token.role === "read") {
      this.button.disabled = true;
      setText(this.status, "Your token may look and not submit.");
    } else if (this.controls.size) this._later(0);
    if (token.role === "user") this.controls.get("owner")?.closest(".field")?.setAttribute("hidden", ""); // It is theirs in any case.
  }

  async _load() {
    try {
      this.known = (await get("v1/job-fields")).fields;
    } catch (error) {
      setText(this.status, error.message);
      return;
    }
    if (this.isClosed) return;
    const first = this.known.filter((field) => field.common).sort((a, b) => (b.name === "command") - (a.name === "command"));
    const panels = [...new Set(this.known.map((field) => field.panel))];
    fill(
      this.fields,
      h("section", { class: "card field-grid" }, first.map((field) => this._field(field))),
      panels.map((panel) => this._panel(panel, this.known.filter((field) => field.panel === panel && !field.common))),
      h("datalist", { id: "known-owners" }, this.store.owners.map(({ id }) => h("option", { value: id }))),
      h("datalist", { id: "known-jobs" }, [...this.store.jobs.keys()].slice(-200).map((id) => h("option", { value: id }))),
    );
    this._role = null;
    this.update();
    this.controls.get("command").focus();
  }

  _panel(panel, fields) {
    const isOpen = fields.some((field) => draft.get(field.name));
    return h("details", { class: "card", open: isOpen }, h("summary", {}, h("h2", {}, panel)), h("div", { class: "field-grid" }, fields.map((field) => this._field(field))));
  }

  _field(field) {
    const { name, reads, metavar } = field;
    const id = `field-${name}`;
    const about = { id, name, "aria-describedby": `${id}-help ${id}-problem`, spellcheck: "false", autocapitalize: "off" };
    let control;
    if (reads === "flag") control = h("input", { ...about, type: "checkbox", checked: draft.get(name) === true });
    else if (reads === "choice") control = h("select", about, h("option", { value: "" }, field.default || "–"), field.choices.map((choice) => h("option", { value: choice }, choice)));
    else if (reads === "secrets") return this._secrets(field, id);
    else if (LONG.includes(reads)) control = h("textarea", { ...about, rows: name === "command" ? "3" : "2", placeholder: name === "command" ? "python train.py" : metavar });
    else control = h("input", { ...about, type: "text", placeholder: metavar, list: { owners: "known-owners", jobs: "known-jobs" }[field.completes] });
    if (reads !== "flag") control.value = draft.get(name) ?? "";
    this.controls.set(name, control);
    return this._labelled(field, id, control);
  }

  _labelled(field, id, control) {
    const help = `${field.help.replaceAll("`", "")}${LISTS.includes(field.reads) ? " One a line." : ""}`;
    return h("div", { class: `field ${field.reads}` },
      h("label", { for: id }, labelOf(field.name)),
      control,
      h("p", { class: "muted small", id: `${id}-help` }, help, field.default && field.default !== "required" ? ` Default: ${field.default.replaceAll("`", "")}.` : ""),
      h("p", { class: "problem small", id: `${id}-problem` }));
  }

  /** Names and values; the values are never shown. */
  _secrets(field, id) {
    const rows = h("div", { class: "secret-rows", role: "group", "aria-label": "Secrets" });
    const add = () => {
      const n = rows.children.length;
      const on = { oninput: () => [...rows.children].every((row) => row.firstChild.value) && add() };
      rows.append(h("div", { class: "secret-row" },
        h("input", { ...on, type: "text", id: n ? undefined : id, name: "secret", placeholder: "NAME", "aria-label": `Name of secret ${n + 1}`, spellcheck: "false", "aria-describedby": `${id}-problem` }),
        h("input", { type: "password", name: "secret", autocomplete: "new-password", "aria-label": `Value of secret ${n + 1}` })));
    };
    add();
    this.secrets = rows;
    return this._labelled(field, id, rows);
  }

  _textCard(label, name) {
    const text = h("pre", { class: "command", tabindex: "0", role: "group", "aria-label": label });
    const copy = h("button", { type: "button", class: "quiet", "aria-label": `Copy: ${label}`, hidden: !navigator.clipboard, onclick: async () => {
      await navigator.clipboard.writeText(this.checked?.[name] ?? "");
      notice("Copied", { stays_ms: 1500 });
    } }, "Copy");
    return { name, text, card: h("div", {}, h("header", { class: "text-head" }, h("h2", {}, label), copy), text) };
  }

  /** What was given, by the names that commands and files use too. */
  givenOptions() {
    const given = {};
    for (const { name, reads } of this.known) {
      const control = this.controls.get(name);
      if (!control || control.closest("[hidden]")) continue;
      const value = valueOf(reads, reads === "flag" ? control.checked : control.value);
      if (value !== undefined) given[name] = value;
    }
    const secrets = [...this.secrets.children].map((row) => [row.firstChild.value.trim(), row.lastChild.value]).filter(([name]) => name);
    if (secrets.length) given.secret = Object.fromEntries(secrets);
    return given;
  }

  _typed(name) {
    const control = this.controls.get(name);
    if (control) draft.set(name, control.type === "checkbox" ? control.checked : control.value);
    this._later(PAUSE_MS);
  }

  _later(wait_ms) {
    clearTimeout(this._timer);
    this._timer = setTimeout(() => this._check(), wait_ms);
  }

  async _check() {
    if (this._isChecking) {
      this._isDue = true;
      return;
    }
    if (this._role === "read") return;
    this._isChecking = true;
    try {
      const { jobs: [found] } = await post("v1/jobs?check=true", { options: [this.givenOptions()] });
      if (!this.isClosed && !this._isDue) this._show(found);
    } catch (error) {
      setText(this.status, error.message);
    } finally {
      this._isChecking = false;
      if (this._isDue) {
        this._isDue = false;
        this._later(0);
      }
    }
  }

  _show(found, isAsked = false) {
    this.checked = found;
    let hidden = 0;
    for (const name of [...this.controls.keys(), "secret"]) {
      // That a field is empty is no error before anything was typed into it.
      const problem = name === "command" && !draft.get(name) && !isAsked ? "" : found.problems[name] ?? "";
      setText(document.getElementById(`field-${name}-problem`), problem);
      const control = this.controls.get(name) ?? document.getElementById("field-secret");
      if (problem) control.setAttribute("aria-invalid", "true");
      else control.removeAttribute("aria-invalid");
      if (problem && control.closest("details:not([open])")) hidden += 1;
    }
    const wrong = Object.keys(found.problems).map(labelOf);
    const isEmpty = !draft.get("command") && wrong.length === 1 && found.problems.command !== undefined;
    if (!found.refused) setText(this.status, `Ready. It would be called ${found.id}.`);
    else if (isEmpty && !isAsked) setText(this.status, "Say what to run.");
    else if (wrong.length) setText(this.status, `Not yet: look at ${wrong.join(", ")}${hidden ? ", further down" : ""}.`);
    else setText(this.status, `Not yet: ${found.refused}`);
    fill(this.warnings, found.warnings.map((warning) => h("li", { class: "warning" }, warning)));
    for (const { name, text } of this.texts) fill(text, found[name].replace(/\n$/, "").split("\n").map((line) => h("div", {}, line)));
  }

  async _submit() {
    if (this._isSending || this.button.disabled || !this.known) return;
    this._isSending = this.button.disabled = true;
    try {
      const given = this.givenOptions();
      const { jobs: [found] } = await post("v1/jobs?check=true", { options: [given] });
      this._show(found, true);
      if (found.refused) {
        this._reveal();
        return;
      }
      const answer = await post("v1/jobs", { options: [given] });
      const refused = answer.jobs.filter((job) => job.refused);
      for (const { refused: why } of refused.slice(0, 3)) notice(why, { kind: "warning", stays_ms: 15_000 });
      const ids = answer.jobs.filter((job) => !job.refused).map((job) => job.id);
      if (!ids.length) return;
      draft.clear();
      notice(`Submitted ${ids.length === 1 ? ids[0] : count(ids.length, "job")}`);
      location.hash = ids.length === 1 ? `#/jobs/${encodeURIComponent(ids[0])}` : "#/jobs";
    } catch (error) {
      notice(error.message, { kind: "error", stays_ms: 15_000 });
    } finally {
      this._isSending = this.button.disabled = false;
    }
  }

  /** Goes to the first field that is wrong. */
  _reveal() {
    const field = this.form.querySelector("[aria-invalid]");
    if (!field) return;
    field.closest("details")?.setAttribute("open", "");
    field.focus();
  }

  _clear() {
    draft.clear();
    for (const control of this.controls.values()) control.type === "checkbox" ? (control.checked = false) : (control.value = "");
    for (const input of this.secrets?.querySelectorAll("input") ?? []) input.value = "";
    this.controls.get("command")?.focus();
    this._later(0);
  }
}
