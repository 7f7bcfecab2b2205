// Studies of `hocket tune`: all of them, and one with its trials as lines, curves and a table.

import { call, get } from "./api.js";
import { confirmed, fill, h, notice, setText, wideTable } from "./dom.js";
import { ParallelCoordinates, StudyCurves, axisOf } from "./study_charts.js";
import { clock, count, duration, isOver, number } from "./text.js";

const EVERY_MS = 3000; // between looks, while a study runs
const SILENT_S = 120; // after which its tuner seems to be gone: it tells something every 30 s
const ROWS = 30; // trials in the table, at first
const KINDS = { running: "running", paused: "held", done: "well", failed: "failed" };
const MARKS = { running: "▶", paused: "❚❚", done: "✓", failed: "✕" };

const pathOf = (id) => `v1/studies/${encodeURIComponent(id)}`;
const pill = (state, size = "") => h("span", { class: `pill ${size} ${KINDS[state] ?? "over"}` }, h("span", { class: "mark", "aria-hidden": "true" }, MARKS[state] ?? "■"), state);
const trialText = ({ number: n, config }) => `trial ${n}: ${Object.entries(config).map(([name, value]) => `${name} ${valueText(value)}`).join(", ")}`;
const valueText = (value) => (typeof value === "number" ? number(value) : String(value));

/** The best value of a trial, and all that is known of it: by units, with what its job reported last. */
export function courseOf(trial, goal, row, metric, unit) {
  const points = [...trial.results];
  const [, many = "1", kind = ""] = /^(\d+)?\s*(\w*)/.exec(unit) ?? [];
  const done = row ? (kind.startsWith("step") ? row.step : row.epoch) / Number(many) : 0;
  const last = points.length ? points[points.length - 1][0] : 0;
  if (row && !isOver(row) && done > last && Number.isFinite(row.metrics[metric])) points.push([done, row.metrics[metric]]);
  const values = trial.results.map(([, value]) => value);
  return { trial, points, value: values.length ? values.reduce((a, b) => (goal === "max" ? Math.max(a, b) : Math.min(a, b))) : undefined };
}

/** The best first; those without a value last, as they were drawn. */
export function ranked(courses, goal) {
  const sign = goal === "max" ? -1 : 1;
  return courses.sort((a, b) => (a.value === undefined) - (b.value === undefined) || sign * ((a.value ?? 0) - (b.value ?? 0)) || a.trial.number - b.trial.number);
}

class ReloadedView {
  constructor(store) {
    this.store = store;
    this._timer = setInterval(() => document.hidden || !store.isConnected || this.isAtRest || this.load(), EVERY_MS);
  }

  close() {
    this.isClosed = true;
    clearInterval(this._timer);
  }

  update() {
    if (this.store.isConnected && !this._wasConnected) this.load();
    this._wasConnected = this.store.isConnected;
  }

  async load() {
    if (this._isLoading) return;
    this._isLoading = true;
    try {
      const found = await get(this.path);
      if (!this.isClosed) this.show(found);
    } catch (error) {
      if (!this.isClosed && error.status) this.fail(error);
    } finally {
      this._isLoading = false;
    }
  }
}

export class Studies extends ReloadedView {
  constructor(store) {
    super(store);
    this.title = "Studies";
    this.path = "v1/studies";
    this.list = h("div", {});
    this.element = h("div", { class: "studies" }, h("div", { class: "title" }, h("h1", {}, "Studies")), this.list);
  }

  fail(error) {
    fill(this.list, h("p", { class: "trouble", role: "alert" }, error.message));
  }

  show({ studies }) {
    const key = JSON.stringify(studies);
    if (key === this._key) return;
    this._key = key;
    if (!studies.length) {
      fill(this.list, h("p", { class: "muted empty" }, "There are no studies yet. Begin one: ", h("code", {}, "hocket tune --space rate=loguniform:1e-4,0.1 -- python train.py --rate {rate}")));
      return;
    }
    fill(this.list, h("div", { class: "card" }, wideTable("Studies", ["Study", "State", "Owner", "Best", "Trials", "Done", "Last report"], studies.map((study) => h("tr", {},
      h("th", { scope: "row" }, h("a", { href: `#/studies/${encodeURIComponent(study.id)}` }, study.id)),
      h("td", {}, pill(study.state)), h("td", {}, study.owner || "–"),
      h("td", {}, study.best === null ? "–" : `${study.metric} ${number(study.best)}`),
      h("td", {}, `${number(study.trials)}${study.failed ? `, ${number(study.failed)} failed` : ""}`),
      h("td", {}, study.total ? `${Math.floor((100 * study.done) / study.total)} %` : "–"), h("td", {}, clock(study.told_s)))))));
  }
}

export class StudyView extends ReloadedView {
  constructor(store, id) {
    super(store);
    this.title = id;
    this.id = id;
    this.path = pathOf(id);
    this.most = ROWS;
    this.pill = h("span", {});
    this.lead = h("p", { class: "lead", role: "status" });
    this.facts = h("p", { class: "muted small" });
    this.forget = h("button", { type: "button", class: "danger", hidden: true, onclick: () => this._forget() }, "Forget");
    const point = (trial) => this._point(trial);
    const open = (trial) => trial?.job && (location.hash = `#/jobs/${encodeURIComponent(trial.job)}`);
    this.lines = new ParallelCoordinates("Configurations", point, open);
    this.curves = new StudyCurves("The metric as trials were trained", point, open);
    this.pointed = h("p", { class: "muted small pointed" });
    this.importance = h("section", { class: "card", "aria-labelledby": "importance-title", hidden: true });
    this.curveTitle = h("h2", {}, "Curves");
    this.trials = h("div", {});
    this.more = h("button", { type: "button", class: "quiet", hidden: true, onclick: () => ((this.most = Infinity), this._draw()) });
    this.element = h("div", { class: "study" },
      h("nav", { class: "crumbs", "aria-label": "Where this is" }, h("a", { href: "#/studies" }, "Studies"), h("span", { "aria-hidden": "true" }, "›")),
      h("div", { class: "title" }, h("h1", {}, id), this.pill, h("div", { class: "buttons" }, this.forget)),
      h("section", { class: "card why", "aria-label": "What was found" }, this.lead, this.facts),
      h("section", { class: "card" }, h("header", {}, h("h2", {}, "Configurations"), h("span", { class: "muted small" }, "a line for each trial; the stronger, the better")), this.lines.element, this.pointed),
      h("div", { class: "columns" }, h("section", { class: "card" }, h("header", {}, this.curveTitle), this.curves.element), this.importance),
      h("section", { class: "card" }, h("header", {}, h("h2", {}, "Trials"), h("span", { class: "muted small" }, "the best first")), this.trials, this.more));
  }

  close() {
    super.close();
    this.lines.close();
    this.curves.close();
  }

  fail(error) {
    this.isAtRest = error.status === 404;
    setText(this.lead, error.message);
  }

  show(study) {
    this.study = study;
    this.isAtRest = ["done", "failed"].includes(study.state) && !study.summary.trials.some(({ job }) => this.store.jobs.has(job) && !isOver(this.store.jobs.get(job)));
    this._draw();
  }

  update() {
    super.update();
    if (this.study) this._draw();
  }

  _draw() {
    const { summary, told_s } = this.study;
    const { trials, metric, goal, unit, space } = summary;
    const courses = ranked(trials.map((trial) => courseOf(trial, goal, this.store.jobs.get(trial.job), metric, unit)), goal);
    const key = JSON.stringify([told_s, this.most, this.store.token?.role, courses.map(({ points, trial }) => [points, this.store.jobs.get(trial.job)?.state])]);
    this._showState();
    if (key === this._key) {
      this.lines.draw();
      this.curves.draw();
      return;
    }
    this._key = key;
    const best = courses[0]?.value === undefined ? null : courses[0];
    setText(this.lead, best === null ? "No trial has a result yet." : `Best: ${metric} ${number(best.value)}, ${trialText(best.trial)}`);
    this.forget.hidden = !this.store.mayChange(this.study);
    const names = [...new Set([...space.map(({ name }) => name), ...trials.flatMap(({ config }) => Object.keys(config))])];
    const found = courses.filter(({ value }) => value !== undefined);
    const kinds = new Map(space.map((axis) => [axis.name, axis]));
    const axes = names.map((name) => ({ ...axisOf(kinds.get(name) ?? { name }, found.map(({ trial }) => trial.config[name])), of: ({ trial }) => trial.config[name] }));
    this.lines.set(found, found.length ? [...axes, { ...axisOf({ name: metric }, found.map(({ value }) => value)), of: ({ value }) => value }] : []);
    this.lines.canvas.setAttribute("aria-label", `${count(found.length, "trial")} by ${names.join(", ")} and ${metric}; the table below has the same`);
    this.curves.rungs = [...new Set(trials.flatMap(({ results }) => results.map(([units]) => units)))].sort((a, b) => a - b);
    this.curves.set(courses.filter(({ points }) => points.length));
    this.curves.canvas.setAttribute("aria-label", `${metric} of ${count(found.length, "trial")} by units of ${unit}`);
    setText(this.curveTitle, `${metric} by units of ${unit}`);
    this._showImportance(summary.importance);
    this._showTrials(courses, names, metric);
  }

  _showState() {
    const { state, told_s, summary } = this.study;
    const silent_s = this.store.now_s() - told_s;
    fill(this.pill, pill(state, "large"));
    const gone = state === "running" && silent_s > SILENT_S ? `Its tuner has not reported for ${duration(silent_s)}: the same command goes on with it. ` : "";
    setText(this.facts, `${gone}${summary.search}; ${number(Math.floor(summary.done))} of ${count(summary.total, "unit")} of ${summary.unit}, ${count(summary.trials.length + summary.more_trials, "trial")}${summary.more_trials ? `, of which ${number(summary.more_trials)} are not shown` : ""}, ${duration(summary.seconds)}.`);
  }

  _showImportance(importance) {
    this.importance.hidden = importance === null;
    if (importance === null) return;
    fill(this.importance, h("header", {}, h("h2", { id: "importance-title" }, "What matters"), h("span", { class: "muted small" }, `by Optuna (PED-ANOVA), over ${count(importance.trials, "trial")} after ${count(importance.units, "unit")}`)),
      h("dl", { class: "importance" }, Object.entries(importance.shares).map(([name, share]) => {
        const bar = h("i", {});
        bar.style.width = `${100 * share}%`;
        return [h("dt", {}, name), h("dd", {}, h("span", { class: "meter", "aria-hidden": "true" }, bar), `${(100 * share).toFixed(0)} %`)];
      })));
  }

  _showTrials(courses, names, metric) {
    const hasJobs = courses.some(({ trial }) => trial.job); // else its trials are models in the tuner's process
    const focused = this.trials.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
    fill(this.trials, wideTable("Trials", ["Trial", metric, "Units", ...names, ...(hasJobs ? ["Job"] : []), "State"], courses.slice(0, this.most).map(({ trial, value }) => {
      const row = this.store.jobs.get(trial.job);
      const point = { onpointerenter: () => this._point(trial), onpointerleave: () => this._point(null), onfocusin: () => this._point((this._focused = trial)), onfocusout: () => this._point((this._focused = null)) };
      return h("tr", point, h("th", { scope: "row" }, trial.number), h("td", {}, value === undefined ? "–" : number(value)), h("td", {}, `${number(trial.results.length ? trial.results[trial.results.length - 1][0] : 0)} of ${number(trial.asked)}`),
        names.map((name) => h("td", {}, name in trial.config ? valueText(trial.config[name]) : "–")),
        hasJobs ? h("td", {}, trial.job ? h("a", { href: `#/jobs/${encodeURIComponent(trial.job)}` }, trial.job) : "–") : [], h("td", {}, trial.failed ? h("span", { class: "trouble" }, `failed: ${trial.failed}`) : row?.state ?? "–"));
    })));
    if (focused !== null) [...this.trials.querySelectorAll("a")].find((link) => link.getAttribute("href") === focused)?.focus(); // It is another element now.
    this.more.hidden = courses.length <= this.most;
    setText(this.more, `Show all ${number(courses.length)}`);
  }

  _point(pointed) {
    const trial = pointed ?? this._focused ?? null;
    this.lines.pointed = this.curves.pointed = trial?.number;
    setText(this.pointed, trial ? trialText(trial) : "");
    this.lines.draw();
    this.curves.draw();
  }

  async _forget() {
    if (!(await confirmed(`Forget study ${this.id}? Its jobs and its folder stay.`, "Forget"))) return;
    try {
      await call("DELETE", this.path);
      location.hash = "#/studies";
    } catch (error) {
      notice(error.message, { kind: "error" });
    }
  }
}
