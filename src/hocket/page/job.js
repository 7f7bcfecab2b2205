// One job: where it stands and why, its course over time, and its log.

import { possibleRequests, sendJobRequest } from "./actions.js";
import { AnswerView } from "./answer.js";
import { get, ofJob } from "./api.js";
import { Chart, goalOf } from "./chart.js";
import { fill, h, setText } from "./dom.js";
import { Log } from "./log.js";
import { isRecorded } from "./recording.js";
import { clock, count, duration, isOver, kindOf, markOf, number } from "./text.js";

const EVERY_MS = 1000; // at most so often is it asked for again while it changes
const REST_MS = 5000; // and so often while it does not
const REQUEST_LABELS = { pause: "Pause", resume: "Resume", stop: "Stop" };
const MOST_POINTS = 2000;
// As agents report it: name, label, unit, factor; over time if it is no sum of all of it.
const USE = [["gpu", "GPU in use", "%", 100], ["gpu_mem_mib", "GPU memory", "MiB", 1], ["cores", "CPU in use", "cores", 1], ["mem_mib", "Memory in use", "MiB", 1], ["cpu_s", "CPU time", "s", 1]];

export class JobView {
  constructor(store, id) {
    this.store = store;
    this.id = id;
    this.title = id;
    this.points = new Map(); // time → report: some of all, the last ones, and those that came since the page is open
    this.metric = "";
    this.pill = h("span", { class: "pill large" });
    this.buttons = h("div", { class: "buttons" });
    this.lead = h("p", { class: "lead" });
    this.notes = h("ul", { class: "notes" });
    this.chart = new Chart();
    this.metrics = h("select", { "aria-label": "Metric", onchange: () => ((this.metric = this.metrics.value), this._drawChart()) });
    this.story = h("ol", { class: "story", tabindex: "0", "aria-label": "Story" });
    this.facts = h("dl", { class: "facts" });
    this.command = h("pre", { class: "command", hidden: true });
    this.answer = new AnswerView();
    this.log = new Log(id);
    this.log.element.hidden = isRecorded;
    this.element = h(
      "div",
      { class: "job" },
      h("nav", { class: "crumbs", "aria-label": "Where this is" }, h("a", { href: "#/jobs" }, "Jobs"), h("span", { "aria-hidden": "true" }, "›")),
      h("div", { class: "title" }, h("h1", {}, id), this.pill, this.buttons),
      h("section", { class: "card why", "aria-label": "Why it stands where it stands" }, this.lead, this.notes),
      h(
        "div",
        { class: "columns wide-first" },
        h("section", { class: "card" }, h("header", {}, h("h2", {}, "Course"), h("div", { class: "controls" }, this.metrics)), this.chart.element),
        h("section", { class: "card" }, h("header", {}, h("h2", {}, "Facts")), this.facts, this.command),
      ),
      this.answer.element,
      h("section", { class: "card" }, h("header", {}, h("h2", {}, "Story"), h("span", { class: "muted small" }, "newest first")), this.story),
      this.log.element,
    );
    this._onJob = ({ detail }) => detail.id === this.id && this._soon();
    store.addEventListener("job", this._onJob);
    this._timer = setInterval(() => document.hidden || (this._row && isOver(this._row)) || this.load(), REST_MS);
    this._tick = setInterval(() => document.hidden || this._drawChart(), 1000);
  }

  close() {
    this.isClosed = true;
    this.store.removeEventListener("job", this._onJob);
    clearInterval(this._timer);
    clearInterval(this._tick);
    clearTimeout(this._later);
    this.chart.close();
    this.log.close();
  }

  update() {
    const row = this.store.jobs.get(this.id);
    if (row) this._showRow(row);
    if (this.store.isConnected && !this._wasConnected) this.load(); // What it knows now may be news.
    this._wasConnected = this.store.isConnected;
  }

  _soon() {
    if (this._later) return;
    this._later = setTimeout(() => ((this._later = null), this.load()), EVERY_MS);
  }

  async load() {
    const { token } = this.store;
    if (token === null) return; // The store is about to tell who is signed in.
    const known = this.store.jobs.get(this.id);
    const isOthers = token.role === "user" && known !== undefined && known.owner !== token.owner;
    const asked = isOthers ? Promise.reject(new Error("it is of another owner")) : get(ofJob(this.id));
    const [job, why] = await Promise.allSettled([asked, get(ofJob(this.id, "/why"))]);
    if (this.isClosed) return;
    if (why.status === "rejected") {
      if (why.reason.status === 404) this._showMissing(why.reason.message);
      return;
    }
    this._why = why.value;
    if (job.status === "fulfilled") this._job = job.value;
    const row = job.status === "fulfilled" ? job.value : this.store.jobs.get(this.id);
    if (row) this._showRow(row);
    if (row) this._startLog(row);
    if (row) this._loadAnswer(row);
    this._showWhy();
    if (this._job) this._showJob();
    else this._drawChart();
  }

  /** A query has an answer after its first batch, which is a step. */
  async _loadAnswer(row) {
    if (row.kind !== "query" || isRecorded || !this.store.mayChange(row)) return;
    this.answer.element.hidden = false;
    if (row.step === 0) return;
    const found = await get(ofJob(this.id, "/answer")).catch(() => null); // The agent that has it may be away.
    if (found !== null && !this.isClosed) this.answer.show(found);
  }

  _startLog(row) {
    if (this._hasLog) return;
    this._hasLog = true;
    if (this.store.mayChange(row)) this.log.start();
    else this.log.refuse();
  }

  _showMissing(message) {
    setText(this.lead, message);
  }

  _showRow(row) {
    this._row = row;
    this.pill.className = `pill large ${kindOf(row.state)}`;
    fill(this.pill, h("span", { class: "mark", "aria-hidden": "true" }, markOf(row.state)), row.kept ? `${row.state}, ${row.kept}` : row.state);
    const requests = this.store.mayChange(row) ? possibleRequests(row) : [];
    if (String(requests) !== this._requests) {
      this._requests = String(requests);
      fill(this.buttons, requests.map((request) => h("button", { type: "button", class: request === "stop" ? "danger" : "", onclick: () => sendJobRequest(request, [this.id]) }, REQUEST_LABELS[request])));
    }
    this._showFacts();
  }

  _showWhy() {
    const { now, waits_for, expected_s, past } = this._why;
    setText(this.lead, now || "–");
    const notes = [];
    if (waits_for && !(now ?? "").includes(waits_for)) notes.push(h("li", {}, `Waits for ${waits_for}`));
    if (expected_s !== null && expected_s !== undefined) notes.push(h("li", {}, `That may be in about ${duration(expected_s)}`));
    for (const warning of this._job?.warnings ?? []) notes.push(h("li", { class: "warning" }, warning));
    if (this._job?.protected) notes.push(h("li", {}, `Not preempted: ${this._job.protected}`));
    fill(this.notes, notes);
    const lines = [...past].reverse();
    fill(this.story, lines.map((line, n) => h(
      "li",
      { class: storyKind(line.what) },
      h("time", { datetime: isRecorded ? undefined : new Date(line.at_s * 1000).toISOString() }, clock(line.at_s)),
      h("div", {}, h("strong", {}, line.what), line.reason ? h("span", {}, line.reason) : null,
        lines[n + 1] && line.at_s - lines[n + 1].at_s >= 1 ? h("span", { class: "muted small" }, `after ${duration(line.at_s - lines[n + 1].at_s)}`) : null),
    )));
    if (!lines.length) fill(this.story, h("li", { class: "muted" }, "What happened to this job is shown to its owner."));
  }

  _showJob() {
    for (const seen of [...this._job.curve, ...this._job.observations]) this.points.set(seen.at_s, seen);
    if (this.points.size > MOST_POINTS) this.points = new Map([...this.points].filter((_, n) => n % 2 === 0));
    this.log.setAttempts(this._job.attempt_list.map((attempt) => attempt.number));
    const metrics = [...new Set([...this.points.values()].flatMap((seen) => Object.keys(seen.metrics)))];
    const uses = USE.filter(([name]) => name !== "cpu_s" && this._job.use_over_time.some((seen) => name in seen));
    const names = [...metrics, ...uses.map(([name]) => `use ${name}`)];
    if (String(names) !== this._names) {
      this._names = String(names);
      const group = (label, options) => options.length ? h("optgroup", { label }, options.map(([value, text]) => h("option", { value }, text))) : null;
      fill(this.metrics, group("Metrics", metrics.map((name) => [name, name])), group("Use", uses.map(([name, label, unit]) => [`use ${name}`, `${label} (${unit})`])));
      this.metrics.hidden = names.length === 0;
      if (!names.includes(this.metric)) this.metric = names.find((name) => name === goalOf(this._job.until)?.metric) ?? names[0] ?? "";
      this.metrics.value = this.metric;
    }
    const { command } = this._job.job ?? {};
    this.command.hidden = !command?.length;
    if (command?.length) setText(this.command, `$ ${command.map(quoted).join(" ")}`);
    this._showFacts();
    this._drawChart();
  }

  _showFacts() {
    const row = this._row;
    const job = this._job;
    const facts = [
      ["Owner", row.owner || "–"],
      ["GPUs", row.gpus.length ? row.gpus.join(", ") : "none"],
      ["Until", row.until || "it ends by itself"],
      ["Progress", [row.epoch ? `epoch ${number(row.epoch)}` : "", row.step ? `step ${number(row.step)}` : "", ...Object.entries(row.metrics).map(([name, value]) => `${name} ${number(value)}`)].filter(Boolean).join(" · ") || "–"],
      ["Submitted", clock(row.submitted_s)],
      ["Started", clock(row.started_s)],
      row.ended_s !== null ? ["Ended", clock(row.ended_s)] : null,
      ["Waited", duration(row.waited_s)],
      ["Ran", `${duration(row.ran_s)} in ${count(row.attempts, "attempt")}`],
      ["State saved", row.saved_s === null ? "never seen" : clock(row.saved_s)],
      row.lost_s ? ["Work lost", duration(row.lost_s)] : null,
      job?.job?.sizes ? ["Sizes", job.job.sizes.join(", ")] : null,
      ...useOf(job?.use ?? {}),
    ].filter(Boolean);
    const key = JSON.stringify(facts);
    if (key === this._facts) return;
    this._facts = key;
    fill(this.facts, facts.map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]));
  }

  _drawChart() {
    const row = this._row;
    if (!row) return;
    const { chart } = this;
    const end_s = row.ended_s ?? this.store.now_s();
    chart.range = [row.submitted_s, Math.max(end_s, row.submitted_s + 1)];
    chart.now_s = end_s;
    const goal = goalOf(row.until);
    chart.goal = goal !== null && goal.metric === this.metric ? goal : null;
    chart.attempts = this._job?.attempt_list ?? [];
    const [use, label, unit, factor] = USE.find(([name]) => this.metric === `use ${name}`) ?? [];
    chart.metric = use ? `${label} (${unit})` : this.metric;
    const seen = use
      ? (this._job?.use_over_time ?? []).map((each) => ({ at_s: each.at_s, value: factor * each[use] }))
      : [...this.points.values()].map(({ at_s, epoch, step, metrics }) => ({ at_s, value: metrics[this.metric], epoch, step }));
    chart.points = seen.filter(({ value }) => Number.isFinite(value)).sort((a, b) => a.at_s - b.at_s);
    const last = chart.points[chart.points.length - 1];
    const foreseen = last && chart.goal && !isOver(row) ? this._job?.predicted ?? [] : [];
    const most_s = end_s + Math.max(end_s - row.submitted_s, 60); // Else what was is squeezed by what may be.
    chart.predicted = foreseen.filter(({ at_s }) => at_s <= most_s);
    if (chart.predicted.length) chart.range[1] = Math.max(chart.range[1], chart.predicted[chart.predicted.length - 1].at_s);
    const end = chart.predicted[chart.predicted.length - 1];
    const expected = end ? `, believed to be ${number(end.value)} ± ${number(1.96 * end.sd)} at ${clock(end.at_s)}` : "";
    chart.canvas.setAttribute("aria-label", last ? `${chart.metric} over time, at last ${number(last.value)}${chart.goal ? `, goal ${chart.goal.said}` : ""}${expected}` : "Attempts over time");
    chart.draw();
  }
}

function storyKind(what) {
  if (/^(failed|lost|warning|missed)/.test(what)) return "bad";
  if (/^(started|resized|moved|given)/.test(what)) return "good";
  if (/^(finished|attained)/.test(what)) return "well";
  return "";
}

/** What a job was last measured to use. */
export function useOf(use) {
  return USE.filter(([name]) => Number.isFinite(use[name])).map(([name, label, unit, factor]) => [label, `${number(factor * use[name])} ${unit}`]);
}

function quoted(word) {
  return /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`;
}
