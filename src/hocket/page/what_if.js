// What another policy would have done with the recorded past: both schedules beneath each other, and how they differ.

import { call, get, post } from "./api.js";
import { fill, h, notice, setText, wideTable } from "./dom.js";
import { Lanes } from "./lanes.js";
import { duration, number } from "./text.js";

const EVERY_MS = 700; // between looks at how far it is
const SPANS = [["1", "the past day"], ["7", "the past week"], ["30", "the past 30 days"], ["", "all that is kept"]];
const COLUMNS = [
  ["Mean completion", "jct_mean_s", duration, -1], ["p99", "jct_p99_s", duration, -1], ["Mean wait", "wait_mean_s", duration, -1],
  ["GPUs held", "utilisation", percent, 1], ["Pauses", "preemptions", number, -1], ["Deadlines met", "deadlines_met", percent, 1],
  ["Goals met", "accuracies_met", percent, 1], ["Finished", "finished", number, 1],
];

function percent(share) {
  return share === null || share === undefined ? "–" : `${(100 * share).toFixed(1)} %`;
}

/** By how much a value is more or less than another: +12 %, and whether that is good. */
export function difference(value, than, sign) {
  if (!Number.isFinite(value) || !Number.isFinite(than) || !than) return ["", ""];
  const share = value / than - 1;
  if (Math.abs(share) < 0.0005) return ["", ""];
  return [`${share > 0 ? "+" : "−"}${(100 * Math.abs(share)).toFixed(1)} %`, share * sign > 0 ? "better" : "worse"];
}

// What was chosen stays when the view is left and entered again.
const chosen = { policy: "", days: "1", params: {} };

export class WhatIf {
  constructor(store) {
    this.store = store;
    this.title = "What if";
    this.lanes = [];
    this.policy = h("select", { id: "what-if-policy", onchange: () => ((chosen.policy = this.policy.value), (chosen.params = {}), this._showParameters()) });
    this.days = h("select", { id: "what-if-days", onchange: () => (chosen.days = this.days.value) }, SPANS.map(([value, label]) => h("option", { value }, label)));
    this.days.value = chosen.days;
    this.summary = h("p", { class: "muted small" });
    this.parameters = h("div", { class: "field-grid" });
    this.button = h("button", { type: "submit", class: "primary" }, "Run");
    this.cancel = h("button", { type: "button", hidden: true, onclick: () => this._cancel() }, "Cancel");
    this.status = h("p", { role: "status" });
    this.bar = h("progress", { max: "1", value: 0, hidden: true, "aria-label": "How far it is" });
    this.result = h("div", { class: "what-if-result" });
    this.element = h(
      "div",
      { class: "what-if" },
      h("div", { class: "title" }, h("h1", {}, "What if")),
      h("p", { class: "muted" }, "Runs the jobs of the past again, in a simulation, under another policy. Live jobs do not notice."),
      h("form", { class: "card", "aria-label": "What to run", onsubmit: (event) => (event.preventDefault(), this._run()) },
        h("div", { class: "controls" }, h("label", { for: "what-if-policy" }, "Policy"), this.policy, h("label", { for: "what-if-days" }, "over"), this.days, this.button, this.cancel),
        this.summary,
        h("details", {}, h("summary", {}, "Parameters"), this.parameters),
        this.status, this.bar),
      this.result,
    );
    this._load();
  }

  close() {
    this.isClosed = true;
    clearTimeout(this._timer);
    for (const lanes of this.lanes) lanes.close();
  }

  update() {
    this.button.disabled = this.store.token?.role === "read" || this._isRunning === true;
    for (const lanes of this.lanes) lanes.draw();
  }

  async _load() {
    try {
      const { policies } = await get("v1/policies");
      if (this.isClosed) return;
      this.known = new Map(policies.map((policy) => [policy.name, policy]));
      fill(this.policy, policies.map(({ name }) => h("option", { value: name }, name)));
      if (!this.known.has(chosen.policy)) chosen.policy = this.known.has("fair") ? "fair" : policies[0].name;
      this.policy.value = chosen.policy;
      this._showParameters();
    } catch (error) {
      setText(this.status, error.message);
      return;
    }
    this._poll();
  }

  _showParameters() {
    const policy = this.known.get(chosen.policy);
    setText(this.summary, `${policy.summary}${policy.paper ? ` (${policy.paper})` : ""}`);
    fill(this.parameters, policy.parameters.length === 0 ? h("p", { class: "muted" }, "It has none.") : policy.parameters.map(({ name, type, default: usual, description }) => {
      const id = `parameter-${name}`;
      const input = h("input", { type: "text", id, placeholder: usual, spellcheck: "false", "aria-describedby": `${id}-help`, oninput: () => {
        if (input.value.trim()) chosen.params[name] = input.value.trim();
        else delete chosen.params[name];
      } });
      input.value = chosen.params[name] ?? "";
      return h("div", { class: "field" }, h("label", { for: id }, name), input, h("p", { class: "muted small", id: `${id}-help` }, `${description} (${type})`));
    }));
  }

  async _run() {
    if (this.button.disabled) return;
    try {
      await post("v1/whatif", { policy: chosen.policy, params: readParameters(chosen.params), days: chosen.days ? Number(chosen.days) : null });
      fill(this.result);
      this._poll();
    } catch (error) {
      setText(this.status, error.message);
    }
  }

  async _cancel() {
    await call("DELETE", "v1/whatif").catch((error) => notice(error.message, { kind: "warning" }));
    this._poll();
  }

  async _poll() {
    clearTimeout(this._timer);
    let run = null;
    try {
      run = await get("v1/whatif");
    } catch (error) {
      setText(this.status, error.message);
    }
    if (this.isClosed) return;
    const isRunning = run?.state === "running";
    const { token } = this.store;
    this._isRunning = isRunning && run.by === token?.name; // The run of another token does not keep this one from its own.
    this.cancel.hidden = !isRunning || !(this._isRunning || token?.role === "admin");
    this.bar.hidden = !isRunning;
    this.update();
    if (run === null || run.state === "none") return;
    const which = `${run.policy} over ${run.days ? `${number(run.days)} d` : "all that is kept"}${run.by === token?.name ? "" : `, by ${run.by}`}`;
    if (isRunning) {
      this.bar.value = run.of ? (run.done + 0.5) / run.of : 0.05;
      setText(this.status, `${which}: ${run.what || "starts"}…`);
      this._timer = setTimeout(() => this._poll(), EVERY_MS);
    } else if (run.state === "done") {
      setText(this.status, `${which}: done.`);
      this._show(run.result);
    } else setText(this.status, `${which}: ${run.state}${run.error ? `: ${run.error}` : ""}.`);
  }

  _show(result) {
    for (const lanes of this.lanes) lanes.close();
    const { rows: [recorded, , changed], band, in_both } = result;
    const isSame = in_both.jobs === recorded.finished && in_both.jobs === changed.finished; // Else other jobs are in the numbers.
    const differs = (name, sign) => {
      if (name === "jct_mean_s") return difference(in_both.whatif_s, in_both.recorded_s, sign);
      return isSame ? difference(changed[name], recorded[name], sign) : ["", ""];
    };
    this.lanes = result.schedules.map(({ held }) => this._lanesOf(result, held));
    const sentence = band.share === null ? "No job ended in both runs, so that they cannot be compared."
      : `How far to trust it: run again, the recorded policy differs by ${percent(band.share)} from what was recorded in mean completion time; 95 % of the jobs differ by at most ${percent(band.jobs_p95_share ?? 0)} of their own.`;
    fill(
      this.result,
      h("section", { class: "card", "aria-labelledby": "what-if-table" },
        h("header", {}, h("h2", { id: "what-if-table" }, "In numbers")),
        wideTable("Table", ["Run", ...COLUMNS.map(([label]) => label)], [
          result.rows.map((row) => h("tr", {}, h("th", { scope: "row" }, row.label), COLUMNS.map(([, name, words]) => h("td", {}, words(row[name]))))),
          h("tr", {}, h("th", { scope: "row" }, "Difference to the record"), COLUMNS.map(([, name, , sign]) => {
            const [text, kind] = differs(name, sign);
            return h("td", { class: kind }, text, kind ? h("span", { class: "unseen" }, ` (${kind})`) : null);
          }))]),
        h("p", { class: "band" }, sentence),
        isSame ? null : h("p", { class: "muted small" }, `The difference is over the ${number(in_both.jobs)} jobs that ended in both; the other numbers are of different jobs.`),
        h("ul", { class: "notes" }, result.notes.map((note) => h("li", {}, note)))),
      result.schedules.map(({ label }, n) => h("section", { class: "card devices", "aria-label": label }, h("header", {}, h("h2", {}, label)), this.lanes[n].element)),
      h("section", { class: "card" }, h("header", {}, h("h2", {}, "Jobs that differ most")),
        wideTable("Jobs that differ most", ["Job", "Owner", "Recorded", "What if", "Difference"], result.jobs.map(({ id, owner, recorded_s, whatif_s }) => {
          const [text, kind] = difference(whatif_s, recorded_s, -1);
          return h("tr", {}, h("th", { scope: "row" }, h("a", { href: `#/jobs/${encodeURIComponent(id)}` }, id)), h("td", {}, owner || "–"), h("td", {}, duration(recorded_s)), h("td", {}, duration(whatif_s)),
            h("td", { class: kind }, text, kind ? h("span", { class: "unseen" }, ` (${kind})`) : null));
        }))),
    );
    for (const lanes of this.lanes) lanes.draw();
  }

  /** Lanes over the time of both schedules. */
  _lanesOf({ nodes, range_s: [from_s, until_s] }, held) {
    const end_s = until_s;
    const past = { nodes, spans: new Map(held.map((span, n) => [n, span])), now_s: () => end_s, loadSpans: () => undefined };
    const lanes = new Lanes(past, (job) => (location.hash = `#/jobs/${encodeURIComponent(job)}`));
    lanes.window_s = Math.max(1, until_s - from_s);
    return lanes;
  }
}

/** Parameters as they were typed: numbers and lists as JSON, all else as texts. */
export function readParameters(typed) {
  return Object.fromEntries(Object.entries(typed).map(([name, text]) => {
    try {
      return [name, JSON.parse(text)];
    } catch {
      return [name, text];
    }
  }));
}
