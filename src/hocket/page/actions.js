// Pausing, resuming and stopping jobs, one or many, with undo where that is possible.

import { ofJob, post } from "./api.js";
import { confirmed, notice } from "./dom.js";
import { count } from "./text.js";

const DONE = { pause: "Paused", resume: "Resumed", stop: "Stopped" };
const UNDO = { pause: "resume", resume: "pause" };
const PATTERN = /[*?[]/; // In a list of names, these would mean other jobs too.

/** Pauses, resumes or stops jobs, and shows what came of it. */
export async function sendJobRequest(request, ids, { mayUndo = true } = {}) {
  if (!ids.length) return;
  const which = ids.length === 1 ? `job ${ids[0]}` : count(ids.length, "job");
  if (request === "stop" && !(await confirmed(`Stop ${which} for good? What was not saved is lost.`, "Stop"))) return;
  try {
    const refused = await refusals(request, ids);
    const done = ids.filter((id) => !(id in refused));
    for (const why of Object.values(refused).slice(0, 3)) notice(why, { kind: "warning" });
    if (!done.length) return;
    const text = `${DONE[request]} ${done.length === 1 ? done[0] : count(done.length, "job")}`;
    const undo = mayUndo && UNDO[request] ? { label: "Undo", run: () => sendJobRequest(UNDO[request], done, { mayUndo: false }) } : null;
    notice(text, { action: undo });
  } catch (error) {
    notice(`${error.message}`, { kind: "error", stays_ms: 15_000 });
  }
}

/** Sends a request for jobs; those that it was refused for, with the reason. */
async function refusals(request, ids) {
  const refused = {};
  const names = ids.filter((id) => !PATTERN.test(id));
  if (names.length > 1) {
    const { jobs } = await post("v1/job-requests", { request, jobs: names });
    for (const job of jobs) if (job.refused) refused[job.id] = job.refused;
  }
  for (const id of names.length > 1 ? ids.filter((each) => PATTERN.test(each)) : ids) {
    await post(ofJob(id, `/${request}`)).catch((error) => {
      if (error.status !== 409) throw error;
      refused[id] = error.message;
    });
  }
  return refused;
}

/** The requests that a job's state allows. */
export function possibleRequests(row) {
  const byState = { running: ["pause", "stop"], starting: ["pause", "stop"], waiting: ["pause", "stop"], paused: ["pause", "stop"], pausing: ["resume", "stop"], held: ["resume", "stop"] };
  return byState[row.state] ?? [];
}
