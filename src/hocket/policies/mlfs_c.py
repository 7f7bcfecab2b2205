"""Load control around any policy, as MLFS has it: trainings end once they have, or cannot have, what users want."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from collections.abc import Set as AbstractSet
from typing import Annotated, Any

from msgspec import Meta
from msgspec.structs import replace

from hocket.model.criterion import Goal, Seen, judge
from hocket.model.job import Stop
from hocket.model.partition import Partition
from hocket.model.plan import Plan, Verdict
from hocket.model.snapshot import Snapshot
from hocket.model.view import JobView
from hocket.policies.kit.load_watch import LoadWatch, lacks, tasks_in, watching
from hocket.policies.registry import LayerParams, policy

_LEVELS = list(Stop)  # from what ends least to what ends most


class LoadControl(LayerParams, frozen=True):
    """Its knobs, and those of what it is put around."""

    inner: Annotated[str, Meta(description="the policy that it is put around")] = "mlf_h"
    confidence: Annotated[float, Meta(gt=0, lt=1, description="how sure it must be before it ends a job")] = 0.95
    leaps: Annotated[
        float, Meta(ge=0, description="how readily a metric is taken to leap unforeseen; 0 where none does")
    ] = 0.2
    gain: Annotated[
        float, Meta(ge=0, description="what is worth going on for beyond the goal, as a share of the range seen so far")
    ] = 0.05
    overload: Annotated[
        float, Meta(gt=0, description="h_s: mean load of the nodes above which they are overloaded, queue or not")
    ] = 0.9


@policy(
    "mlfs_c",
    params=LoadControl,
    paper="MLFS's MLF-C, CoNEXT'20, after Domhan et al., IJCAI'15",
    reads_usage=False,
    reads=(),
)
def decide(snapshot: Snapshot, inner: Callable[[Snapshot], Plan], params: LoadControl) -> Plan:
    """Puts load control around another policy: trainings end when they have, or cannot have, what their users want.

    A job ends only for what its user allowed (`stop`), or allowed for times of overload (`may_lower`): because its goal
    is reached and no more is required; because it is reached and hardly anything is left to gain; because it is out of
    reach. Overloaded is a cluster in which a job or task waits, or whose nodes are loaded above a threshold.
    """
    mine, theirs = _memos(snapshot.memo)
    plan = inner(replace(snapshot, memo=theirs))
    with watching(snapshot) as watch:
        return _controlled(snapshot, plan, mine, watch, params)


def _controlled(snapshot: Snapshot, plan: Plan, mine: dict[str, Any], watch: LoadWatch, params: LoadControl) -> Plan:
    """The plan of the inner policy, and the ends of jobs that have, or cannot have, what their users want."""
    changed = {t.job for p in plan.put for t in p.tenants} | _dropped(snapshot, plan)
    are_changed = any(snapshot.jobs[j].job.may_stop for j in changed)
    may_lower = bool(watch.lowerable)
    room = [snapshot.capacity.gpus, snapshot.placed.count, snapshot.capacity.up.bit_count()]
    is_loaded = (
        mine["loaded"] if room == mine["room"] else may_lower and watch.mean_load(snapshot.capacity) > params.overload
    )
    is_overloaded = may_lower and (is_loaded or somebody_waits(snapshot, plan, watch.lacking))
    fresh = _in_line(snapshot, watch.reported_since(mine["at_s"]))
    if is_overloaded and not mine["overloaded"]:  # More may end the others now than when they reported.
        fresh += _in_line(snapshot, watch.reported.keys() - {view.job.id for view in fresh})
    ends: dict[str, str] = {}
    reasons = dict(plan.reasons)
    looked_s = snapshot.now_s
    for view in fresh:
        if view.job.id in plan.ends or (found := verdict(view, snapshot.now_s, is_overloaded, params)) is None:
            continue
        if view.job.id in changed:
            looked_s = 0.0  # A job that the plan moves can be ended once that is done: look at all of them again.
        else:
            ends[view.job.id], reasons[view.job.id] = found
    mine = {"at_s": looked_s, "overloaded": is_overloaded and looked_s > 0}
    # A plan may swap jobs on as many GPUs that take more or less of all else: then the load is another.
    mine |= {"loaded": is_loaded, "room": room if may_lower and not changed else []}
    # What the plan changes counts as load in the next cycle.
    again_s = snapshot.now_s if are_changed or (may_lower and changed) else plan.wake.at_s
    watches = bool(watch.reported) or are_changed
    wake = replace(plan.wake, arrival=True, epoch=True, at_s=again_s) if watches else plan.wake
    memo = {"inner": plan.memo, "load_control": mine}
    return replace(plan, ends=plan.ends | ends, reasons=reasons, wake=wake, memo=memo)


def _memos(memo: Any) -> tuple[dict[str, Any], Any]:
    """What it noted when it last looked, at which jobs and how loaded the nodes were; and the inner policy's memo."""
    if isinstance(memo, dict) and "load_control" in memo:
        return memo["load_control"], memo["inner"]
    return {"at_s": 0.0, "overloaded": False, "loaded": False, "room": []}, memo


def verdict(view: JobView, now_s: float, is_overloaded: bool, params: LoadControl) -> tuple[Verdict, str] | None:
    """Whether and why a job ends now, as far as its user allows that; None if it goes on."""
    job, goal = view.job, view.job.goal
    level = allowed(view, is_overloaded)
    if goal is None or level is Stop.FIXED:
        return None
    seen = [Seen(o.epoch, o.metrics[goal.metric], o.step) for o in view.observations if goal.metric in o.metrics]
    is_reached = judge(goal, seen, view.epoch, now_s - view.submitted_s, view.step) == "attained"
    why = " in times of overload" if level is not job.stop else ""
    if is_reached and level is Stop.REQUIRED:
        return (
            Verdict.ATTAINED,
            f"stopped{why}: {goal.metric} is {seen[-1].value:g}, and no more than {goal} is required",
        )
    beliefs, last = view.beliefs, job.last_epoch
    if beliefs.reach is None or last is None:
        return None
    if is_reached:
        value, more = _worth(view, goal, params.gain)
        sure = 1.0 - beliefs.reach.at(value).mean
        words = f"{goal.metric} gains less than {more:.3g} more by epoch {last}"
        return (
            (Verdict.EARLY_STOPPED, f"stopped{why}: {sure:.0%} sure that {words}") if sure > params.confidence else None
        )
    sure = 1.0 - with_leaps(beliefs.reach.at(goal.target).mean, view.epoch, last, params.leaps)
    side = "below" if goal.relation == ">=" else "above"
    if sure > params.confidence:
        return Verdict.HOPELESS, f"stopped{why}: {sure:.0%} sure that epoch {last} stays {side} {goal.target:g}"
    return None


def allowed(view: JobView, is_overloaded: bool) -> Stop:
    """What the job's user lets end it, as things are."""
    job = view.job
    return max(job.stop, job.may_lower, key=_LEVELS.index) if is_overloaded else job.stop


def _worth(view: JobView, goal: Goal, gain: float) -> tuple[float, float]:
    """The value that would be worth going on for, and how much more that is than the best so far."""
    quality = view.beliefs.quality
    values = [p.mean for p in quality.points if p.seen and p.x <= view.epoch] if quality is not None else []
    low, high = min(values, default=goal.target), max(values, default=goal.target)
    more = gain * (high - low)
    return (high + more if goal.relation == ">=" else low - more), more


def with_leaps(chance: float, epoch: int, last: int, leaps: float) -> float:
    """A probability of reaching a goal by the last epoch, if the metric may leap there unforeseen.

    A step of the learning rate does that, or a model that improves all at once. When, and how far, is unknown: of the
    curves at one epoch, (epoch / last) ** leaps are taken to have no leap to come, and any goal to be in its range.
    """
    nothing_leaps: float = (epoch / last) ** leaps
    return 1.0 - (1.0 - chance) * nothing_leaps


def _in_line(snapshot: Snapshot, jobs: Iterable[str]) -> list[JobView]:
    """These jobs, in the inner policy's order."""
    known = snapshot.jobs.data()
    return sorted((known[job_id] for job_id in jobs), key=lambda view: (view.rank, view.number))


def somebody_waits(snapshot: Snapshot, plan: Plan, lacking: AbstractSet[str]) -> bool:
    """Does a job, or a task of one, wait once the plan holds? Those that only a quota keeps waiting do not count.

    `lacking` are the placed jobs of which a task waits before the plan.
    """
    jobs, present = snapshot.jobs.data(), snapshot.partitions.data()
    touched = {*plan.drop, *(p.id for p in plan.put)}
    put_for: dict[str, list[Partition]] = {}  # job → partitions that the plan puts it into
    for partition in plan.put:
        for job_id in {tenant.job for tenant in partition.tenants}:
            put_for.setdefault(job_id, []).append(partition)
    for entry in snapshot.waiting:
        view = jobs[entry[-1]]
        if view.verdict or entry[-1] in plan.ends or not lacks(view, tasks_in(entry[-1], put_for.get(entry[-1], ()))):
            continue
        if not snapshot.short_of_quota(view):
            return True
    involved = {t.job for p in touched if p in present for t in present[p].tenants} | put_for.keys()
    for job_id in involved - plan.ends.keys():
        view = jobs[job_id]
        kept = [present[p] for p in view.partitions if p not in touched]
        if view.partitions and lacks(view, tasks_in(job_id, (*kept, *put_for.get(job_id, ())))):
            return True
    return not lacking <= involved | plan.ends.keys()


def _dropped(snapshot: Snapshot, plan: Plan) -> set[str]:
    return {t.job for p in plan.drop for t in snapshot.partitions[p].tenants}
