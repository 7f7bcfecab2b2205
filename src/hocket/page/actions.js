// Pausing, resuming and stopping jobs, one or many, with undo where that is possible.

import { ofJob, post } from "./api.js";
import { confirmed, notice } from "./dom.js";
import { count } from "./text.js";

const DONE = { pause: "Paused", resume: "Resumed", stop: "Stopped" };
const UNDO = { pause: "resume", resume: "pause" };
const PATTERN = /[*?[]/; // In a list of names, these would mean other jobs too.

/** Asks something of jobs; says what came of it. */
export async function ask(wish, ids, { mayUndo = true } = {}) {
  if (!ids.length) return;
  const which = ids.length === 1 ? `job ${ids[0]}` : count(ids.length, "job");
  if (wish === "stop" && !(await confirmed(`Stop ${which} for good? What was not saved is lost.`, "Stop"))) return;
  try {
    const refused = await asked(wish, ids);
    const done = ids.filter((id) => !(id in refused));
    for (const why of Object.values(refused).slice(0, 3)) notice(why, { kind: "warning" });
    if (!done.length) return;
    const text = `${DONE[wish]} ${done.length === 1 ? done[0] : count(done.length, "job")}`;
    const undo = mayUndo && UNDO[wish] ? { label: "Undo", run: () => ask(UNDO[wish], done, { mayUndo: false }) } : null;
    notice(text, { action: undo });
  } catch (error) {
    notice(`${error.message}`, { kind: "error", stays_ms: 15_000 });
  }
}

/** Job → why it cannot have it. */
async function asked(wish, ids) {
  const refused = {};
  const names = ids.filter((id) => !PATTERN.test(id));
  if (names.length > 1) {
    const { jobs } = await post("v1/wishes", { wish, jobs: names });
    for (const job of jobs) if (job.refused) refused[job.id] = job.refused;
  }
  for (const id of names.length > 1 ? ids.filter((each) => PATTERN.test(each)) : ids) {
    await post(ofJob(id, `/${wish}`)).catch((error) => {
      if (error.status !== 409) throw error;
      refused[id] = error.message;
    });
  }
  return refused;
}

/** What may be asked of a job as it stands. */
export function possible(row) {
  const wishes = { running: ["pause", "stop"], starting: ["pause", "stop"], waiting: ["pause", "stop"], paused: ["pause", "stop"], pausing: ["resume", "stop"], held: ["resume", "stop"] };
  return wishes[row.state] ?? [];
}
