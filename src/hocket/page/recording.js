// A run that is in the page itself, instead of a controller: the same answers, made from its data (service/recorded_run.py).

import { LIVE } from "./text.js";

const KEYFRAME = 256; // decisions after which a whole state is kept

const element = document.getElementById("recording");
let run = null;

export const isRecorded = element !== null;

/** Unpacks the data; before that, nothing is answered. */
export async function loadRecording() {
  const bytes = Uint8Array.from(atob(element.textContent), (character) => character.charCodeAt(0));
  element.remove();
  const unpacked = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  run = new RecordedRun(JSON.parse(await new Response(unpacked).text()));
  return run;
}

export const recordedAnswer = (path) => run.answer(path);

export class RecordedRun {
  constructor(data) {
    this.data = data;
    this.isSimulated = data.is_simulated;
    this.title = data.title;
    this._jobs = new Map(data.jobs.map((job) => [job.id, job]));
    this._rows = data.jobs.map(({ job, why, curve, observations, attempt_list, warnings, use, use_over_time, ...row }) => row);
    this._frames = []; // state of every so many decisions
    this._at = -1; // the decision that the state is of
  }

  /** What a controller would answer to a call; undefined where it would say that there is no such thing. */
  answer(path) {
    const [route, query = ""] = path.split("?");
    const parameters = new URLSearchParams(query);
    const [, first, ...rest] = route.split("/");
    if (first === "token") return { name: "recording", role: "read", owner: "", node: "", created_s: 0, expires_s: null };
    if (first === "status") return this.data.status;
    if (first === "nodes") return { nodes: this.data.nodes };
    if (first === "owners") return { owners: this.data.owners };
    if (first === "ahead") return { ahead: [] };
    if (first === "gpus") return this._held();
    if (first === "cycles") return { buckets: this.data.past.buckets };
    if (first === "at") return this._past(rest[0] === undefined ? null : Number(rest[0]), parameters.get("time"));
    if (first !== "jobs") return undefined;
    if (!rest.length) return { jobs: this._listed(parameters) };
    const job = this._jobs.get(decodeURIComponent(rest[0]));
    return job === undefined || rest.length === 1 ? job : { id: job.id, ...job.why };
  }

  _listed(parameters) {
    if (parameters.get("all") !== "true") return this._rows.filter((row) => LIVE.includes(row.state));
    return this._rows.slice(-Number(parameters.get("limit") ?? Infinity));
  }

  _held() {
    const held = this.data.jobs.flatMap((job) => job.attempt_list
      .filter((attempt) => attempt.started_s !== null && attempt.gpus.length)
      .map(({ number, size, gpus, started_s, ended_s, how }) => ({ job: job.id, owner: job.owner, attempt: number, size, gpus, from_s: started_s, until_s: ended_s, how })));
    return { now_s: this.data.status.now_s, since_s: -Infinity, held };
  }

  /** The last decision by a number of cycle, or a time; the last of all without both. */
  _past(cycle, time) {
    const { steps } = this.data.past;
    if (!steps.length) return undefined;
    const [name, value] = cycle !== null ? ["n", cycle] : time !== null ? ["at_s", Number(time)] : ["n", Infinity];
    let [least, most] = [0, steps.length - 1];
    while (least < most) {
      const middle = Math.ceil((least + most) / 2);
      if (steps[middle][name] <= value) least = middle;
      else most = middle - 1;
    }
    return this._answerAfter(least);
  }

  _answerAfter(place) {
    const { past, jobs } = this.data;
    const { steps, texts } = past;
    const step = steps[place];
    const state = this._stateAt(place);
    const words = (pairs) => Object.fromEntries(pairs.map(([job, text]) => [texts[job], texts[text]]));
    const counts = { ...state.over };
    const rows = [];
    for (const [job, [now, reason, gpus = []]] of state.live) {
      counts[texts[now]] = (counts[texts[now]] ?? 0) + 1;
      rows.push({ id: jobs[job].id, state: texts[now], reason: texts[reason] || texts[step.why], gpus: gpus.map((gpu) => texts[gpu]), waited_s: waited(jobs[job], step.at_s) });
    }
    return {
      cycle: step.n, at_s: step.at_s, first: steps[0].n, last: steps[steps.length - 1].n,
      previous_decision: steps[place - 1]?.n ?? null, next_decision: steps[place + 1]?.n ?? null,
      policy: texts[step.policy ?? past.policy], params: {}, counts, jobs: rows,
      queue: step.queue.map((job) => jobs[job].id), more_queued: step.more,
      nodes: state.nodes.map(([id, up, gpus]) => ({ id, up, gpus: Array.from({ length: gpus }, (_, index) => ({ index })) })),
      events: step.events.map(([kind, subject]) => ({ kind: texts[kind], subject: texts[subject] })), more_events: step.more_events ?? 0,
      decision: { changes: words(step.changes), reasons: words(step.reasons), refused: step.refused ?? [] },
    };
  }

  /** Live jobs, those that are over by verdict, and nodes: from the last whole state before, and what changed since. */
  _stateAt(place) {
    if (this._at < 0 || place < this._at || place - this._at > KEYFRAME) {
      const frame = Math.min(Math.floor(place / KEYFRAME), this._frames.length - 1);
      const from = this._frames[frame] ?? { live: new Map(), over: {}, nodes: [] };
      this._state = { live: new Map(from.live), over: { ...from.over }, nodes: from.nodes };
      this._at = frame < 0 ? -1 : frame * KEYFRAME;
    }
    const { steps, texts } = this.data.past;
    while (this._at < place) {
      const step = steps[++this._at];
      for (const [job, state, ...more] of step.rows) {
        if (more.length) this._state.live.set(job, [state, ...more]);
        else {
          this._state.live.delete(job);
          this._state.over[texts[state]] = (this._state.over[texts[state]] ?? 0) + 1;
        }
      }
      if (step.nodes) this._state.nodes = step.nodes;
      if (this._at % KEYFRAME === 0 && this._at / KEYFRAME === this._frames.length) {
        this._frames.push({ live: new Map(this._state.live), over: { ...this._state.over }, nodes: this._state.nodes });
      }
    }
    return this._state;
  }
}

/** Seconds since its submission in which a job did not run. */
function waited({ submitted_s, attempt_list }, at_s) {
  const ran_s = attempt_list.reduce((sum, { started_s, ended_s }) => (started_s === null || started_s >= at_s ? sum : sum + Math.min(ended_s ?? at_s, at_s) - started_s), 0);
  return Math.max(0, at_s - submitted_s - ran_s);
}
