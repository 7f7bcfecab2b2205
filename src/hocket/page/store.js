// What the page knows of the cluster: loaded once, then kept up to date by the controller's events.

import { get, listen } from "./api.js";
import { isRecorded } from "./recording.js";
import { isOver } from "./text.js";

const RETRY_MS = [300, 1000, 2000, 5000];
const LOOK_MS = 3000; // between looks at the numbers that events do not tell
const LEISURE = 50; // looks take at most one part in so many of the controller's time
const RAREST_MS = 60_000;
const NODES_MS = 10_000; // between looks at the nodes
const SILENCE_MS = 40_000; // after which a connection counts as broken: a sign of life comes every 15 s
const EVERY_MS = 200; // between two drawings of what changes
const ENDED = isRecorded ? 1_000_000 : 2000; // jobs that are over, at first
const SPARE = 5000; // that may end before the oldest are forgotten
export const LONGEST_S = 86_400; // that lanes show at most

/** A time in which a job held GPUs. */
const spanKey = (job, attempt) => `${attempt} ${job}`;

export class Store extends EventTarget {
  constructor() {
    super();
    this.jobs = new Map(); // id → row, in the order of submission
    this.spans = new Map(); // attempt and job → {job, owner, attempt, gpus, from_s, until_s, how, starts}
    this.nodes = [];
    this.ahead = []; // {job, owner, gpus, is_next, until_s}: what is known of the time to come
    this.owners = [];
    this.status = null;
    this.token = null;
    this.isConnected = false;
    this.hasLoaded = false;
    this.loadedSince_s = Infinity; // the spans are known from then on
    this.endedLimit = ENDED;
    this.isEnded = false;
    this.clockAhead_s = 0; // of the controller's clock
    this._tries = 0;
  }

  now_s() {
    return isRecorded && this.status ? this.status.now_s : Date.now() / 1000 + this.clockAhead_s;
  }

  start() {
    this._connect();
    if (isRecorded) return;
    this._timer = setInterval(() => this._refresh(), LOOK_MS);
    document.addEventListener("visibilitychange", (this._onVisible = () => document.hidden || this._refresh()));
  }

  stop() {
    this.isEnded = true;
    clearInterval(this._timer);
    clearTimeout(this._retry);
    document.removeEventListener("visibilitychange", this._onVisible);
    this._abort?.abort();
  }

  /** May this user change a job? The controller checks it again. */
  mayChange(row) {
    return this.token !== null && (this.token.role === "admin" || (this.token.role === "user" && this.token.owner === row.owner));
  }

  /** Has all views updated, soon and not too often. */
  changed() {
    if (this._isDue) return;
    this._isDue = true;
    const wait_ms = Math.max(0, (this._notified_ms ?? 0) + EVERY_MS - performance.now());
    setTimeout(() => requestAnimationFrame(() => {
      this._isDue = false;
      this._notified_ms = performance.now();
      this.dispatchEvent(new Event("change"));
    }), wait_ms);
  }

  async _connect() {
    this._abort = new AbortController();
    let early = []; // events that come before all jobs are loaded
    const take = (kind, data) => {
      this._heard_ms = performance.now();
      if (kind === "missed") this._load().catch(() => this._abort.abort());
      else if (kind === "job") early === null ? this._setRow(data) : early.push(data);
    };
    const open = async () => {
      await this._load();
      for (const row of early) this._setRow(row);
      early = null;
      this._tries = 0;
      this.isConnected = this.hasLoaded = true;
      this.changed();
      this._loadEnded();
    };
    try {
      await listen(() => open().catch(() => this._abort.abort()), take, this._abort.signal);
    } catch (error) {
      if (error.status === 401 || error.status === 403) return;
    }
    if (this.isEnded) return;
    this.isConnected = false;
    this.changed();
    this._retry = setTimeout(() => this._connect(), RETRY_MS[Math.min(this._tries++, RETRY_MS.length - 1)]);
  }

  /** All that is live, in place of what was known: whatever was missed meanwhile is not missed then. */
  async _load() {
    this._heard_ms = performance.now();
    const since_s = Number.isFinite(this.loadedSince_s) ? this.loadedSince_s : this.now_s() - 3600;
    const [token, status, nodes, owners, live, held] = await Promise.all([
      get("v1/token"), get("v1/status"), get("v1/nodes"), get("v1/owners"), get("v1/jobs"),
      get(`v1/gpus?since_s=${since_s}`),
    ]);
    this.token = token;
    this._setStatus(status);
    this.nodes = nodes.nodes;
    this.owners = owners.owners;
    const over = [...this.jobs.values()].filter(isOver);
    this.jobs = new Map([...over, ...live.jobs].map((row) => [row.id, row]));
    this._setSpans(held);
    for (const row of live.jobs) this._updateSpan(row);
  }

  async _loadEnded() {
    const { jobs } = await get(`v1/jobs?all=true&limit=${this.endedLimit}`).catch(() => ({ jobs: [] }));
    const known = this.jobs;
    const rows = [...jobs.map((row) => known.get(row.id) ?? row)];
    const listed = new Set(rows.map((row) => row.id));
    this.hasAllEnded = jobs.length < this.endedLimit;
    this.jobs = new Map(
      [...rows, ...[...known.values()].filter((row) => !listed.has(row.id))]
        .sort((a, b) => a.submitted_s - b.submitted_s)
        .map((row) => [row.id, row]),
    );
    this.changed();
  }

  loadMoreEnded() {
    this.endedLimit = Math.min(this.endedLimit * 5, 100_000);
    return this._loadEnded();
  }

  /** Has the spans from an earlier time on. */
  async loadSpans(since_s) {
    if (since_s >= this.loadedSince_s) return;
    this.loadedSince_s = since_s;
    const held = await get(`v1/gpus?since_s=${since_s}`).catch(() => null);
    if (held === null) return;
    this._setSpans(held);
    for (const row of this.jobs.values()) if (!isOver(row)) this._updateSpan(row);
    this.changed();
  }

  _setSpans({ since_s, held }) {
    this.loadedSince_s = since_s;
    this.spans = new Map(held.map((span) => [spanKey(span.job, span.attempt), span]));
    this._open = new Map(held.filter((span) => span.until_s === null).map((span) => [span.job, span]));
  }

  _setStatus(status) {
    this.status = status;
    this.clockAhead_s = status.now_s - Date.now() / 1000;
  }

  _setRow(row) {
    this.jobs.set(row.id, row);
    this._updateSpan(row);
    this.dispatchEvent(new CustomEvent("job", { detail: row }));
    this.changed();
  }

  /** Begins and ends the span of a job by what its row says. */
  _updateSpan(row) {
    const open = this._open.get(row.id);
    const holds = row.gpus.length > 0;
    const starts = row.state === "starting";
    const attempt = starts ? row.attempts + 1 : row.attempts;
    const isSame = open && open.attempt === attempt && String(open.gpus) === String(row.gpus);
    if (isSame && holds) {
      open.starts = starts;
      return;
    }
    if (open) {
      open.until_s = this.now_s();
      open.how = holds ? "left for other resources" : row.reason?.startsWith("paused") ? "paused" : row.state;
      this._open.delete(row.id);
    }
    if (holds) {
      const span = {
        job: row.id, owner: row.owner, attempt, size: row.size, gpus: row.gpus, from_s: this.now_s(), until_s: null, how: "", starts,
      };
      this.spans.set(spanKey(row.id, attempt), span);
      this._open.set(row.id, span);
    }
  }

  /** A page that is open for weeks must not grow with all jobs that ended meanwhile. */
  _forget() {
    const over = [...this.jobs.values()].filter(isOver);
    const most = this.endedLimit + SPARE;
    for (const row of over.slice(0, Math.max(0, over.length - most))) this.jobs.delete(row.id);
    if (this.spans.size <= most) return;
    const oldest_s = this.now_s() - LONGEST_S;
    for (const [key, span] of this.spans) if (span.until_s !== null && span.until_s < oldest_s) this.spans.delete(key);
  }

  async _refresh() {
    if (document.hidden || !this.isConnected) return;
    if (performance.now() - this._heard_ms > SILENCE_MS) {
      this._abort.abort();
      return;
    }
    const now_ms = performance.now();
    if (now_ms < (this._notBefore_ms ?? 0)) return;
    try {
      const withNodes = now_ms - (this._nodes_ms ?? 0) > NODES_MS;
      const [status, owners, { ahead }, nodes] = await Promise.all([
        get("v1/status"), get("v1/owners"), get("v1/ahead"), withNodes ? get("v1/nodes") : null,
      ]);
      const took_ms = performance.now() - now_ms;
      this._notBefore_ms = performance.now() + Math.min(took_ms * LEISURE, RAREST_MS);
      this._setStatus(status);
      this.owners = owners.owners;
      this.ahead = ahead;
      if (nodes !== null) [this.nodes, this._nodes_ms] = [nodes.nodes, now_ms];
      this._forget();
      this.changed();
    } catch (error) {
      if (!error.status) this._abort.abort(); // Nothing was answered: what the stream says may be old, too. It connects again.
    }
  }
}
