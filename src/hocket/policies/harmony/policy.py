"""Harmony (ICDCS'21, section IV): jobs whose COMP and COMM phases complement each other share groups of machines.

Profile first (IV-B1): a new job runs in a group until the times of its COMP and COMM are known. A profiled job joins
the group whose utilisation it raises most, or waits (IV-B4, case 1). When a job leaves a group, a similar job or a
bundle of jobs replaces it, or else Algorithm 1 groups it and as few other groups as possible anew (IV-B4, case 2).

Algorithm 1 with our improvements is in `schedule.py`, as printed in `algorithm_1.py`, exhaustively in `oracle.py`. What
a decision knows and writes down is in `decision.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, Literal

from msgspec import Meta

from hocket.model.job import Kind
from hocket.model.phases import Profile
from hocket.model.plan import Plan
from hocket.model.snapshot import Snapshot
from hocket.model.view import JobView
from hocket.policies.harmony import regroup
from hocket.policies.harmony.algorithm_1 import as_printed
from hocket.policies.harmony.decision import CONTINUES, Decision
from hocket.policies.harmony.groups import JobGroup, is_outdated
from hocket.policies.harmony.oracle import MOST_JOBS, MOST_MACHINES, exhaustive
from hocket.policies.harmony.schedule import Grouping, schedule
from hocket.policies.harmony.search_kernel import ResourceWeights
from hocket.policies.registry import Params, policy

_NO_GAIN = 1e-6  # of a machine
_COMPARED = 512  # waiting jobs that are compared with a job that left
_TRIES = 4  # groups that a job may try to join, the best first
_LARGE_GAIN = 2.0  # times the present value: such a regrouping may exceed the migration budget


class Harmony(Params, frozen=True):
    variant: Annotated[
        Literal["best", "paper", "oracle"],
        Meta(
            description="how groups are found: our search, Algorithm 1 as printed, or exhaustively where that is small"
        ),
    ] = "best"
    cpu_weight: Annotated[
        float, Meta(ge=0, le=1, description="what CPU counts in utilisation; network has the rest")
    ] = 0.6
    objective: Annotated[
        Literal["work", "use"],
        Meta(description="what a grouping is worth: the work it gets done, or utilisation as in equation 4"),
    ] = "work"
    fewer: Annotated[float, Meta(ge=0, lt=1, description="share of that worth given up for fewer jobs at once")] = 0.05
    similar: Annotated[float, Meta(ge=0, description="by how much a substitute may differ from the job that left")] = (
        0.05
    )
    join_gain: Annotated[
        float, Meta(ge=0, description="share of a group's machines that a job must be worth to join it")
    ] = 0.005
    regroup_gain: Annotated[float, Meta(ge=0, description="share by which a regrouping must win")] = 0.05
    horizon_s: Annotated[
        float, Meta(gt=0, description="time in which a regrouping must gain more than its migrations may cost")
    ] = 7200.0
    migrating: Annotated[
        float, Meta(ge=0, le=1, description="share of machine time that migrations of regroupings may take")
    ] = 0.015
    patience_s: Annotated[
        float, Meta(gt=0, description="a job that has waited this long gets the next place, and is not paused again")
    ] = 86_400.0
    reloading: Annotated[
        bool, Meta(description="whether jobs spill data; if not, a group has the machines that its jobs need alone")
    ] = True
    profile_iterations: Annotated[int, Meta(ge=1, description="iterations seen before a profile is believed")] = 3
    profile_machines: Annotated[int, Meta(ge=1, description="machines of a group that is opened to profile")] = 16
    profile_at_once: Annotated[int, Meta(ge=1, description="new jobs that one group profiles at a time")] = 4
    looked_at: Annotated[int, Meta(ge=1, description="waiting jobs that a regrouping considers")] = 64
    widest: Annotated[int, Meta(ge=1, description="groups up to which a regrouping may involve all of them")] = 32

    @property
    def knows_own_part(self) -> bool:
        """Does COMM depend on the number of machines? Not in equation 4, nor in anything that the paper prints."""
        return self.variant != "paper" and self.objective == "work"

    @property
    def weights(self) -> ResourceWeights:
        """As the kernel takes them."""
        return ResourceWeights(self.cpu_weight, 1 - self.cpu_weight)


def rank(view: JobView, _now_s: float, params: Harmony) -> tuple[int]:
    """Parameter-server jobs that are not settled in a group, or by a profile that was too high, then those that are
    settled or were declined; then all others."""
    if view.job.kind is not Kind.PARAMETER_SERVER:
        return (2,)
    if view.memo is None:
        return (0,)
    is_settled_wrongly = view.memo and params.variant != "paper" and is_outdated(view, params.knows_own_part)
    return (0,) if is_settled_wrongly else (1,)


def compile_search() -> None:
    """The search for groups, which takes a quarter of a minute and more if this machine has not compiled it yet."""
    schedule([Profile(40.0, 2.0), Profile(8.0, 10.0)], 4)


@policy(
    "harmony",
    params=Harmony,
    order=rank,
    paper="Harmony, ICDCS'21",
    reads_usage=False,
    reads=(),
    compiles=compile_search,
)
def decide(snapshot: Snapshot, params: Harmony) -> Plan:
    """Parameter-server jobs share groups of whole machines, their COMP and COMM phases taking turns.

    New jobs are profiled in a group. Then each goes where it raises utilisation most. When a job ends, another like it
    takes its place, or groups are formed anew, as few as it takes. Other jobs run alone on what is free.
    """
    decision = Decision(snapshot, params)
    _start_other_jobs(decision)
    _review_outdated(decision)
    _place_profiled_jobs(decision)
    _repair_groups(decision)
    _profile_new_jobs(decision)
    return decision.plan()


def _start_other_jobs(decision: Decision) -> None:
    """Jobs that cannot share a group run alone, first come, first served, on what is free."""
    draft = decision.draft
    for view in draft.candidates(draft.free_gpus) if decision.others else ():
        if not decision.is_groupable(view) and not draft.start(view, "starts alone: it cannot share a group"):
            draft.pass_over(view)


# -- case 0: a profile was too high --------------------------------------------------------------------------------


def _review_outdated(decision: Decision) -> None:
    """Groups with a job that needs less than was believed when it was placed: there may be room for one that waits."""
    outdated = {v.partitions[0] for v in decision.outdated}
    groups = [g for g in decision.groups.values() if g.id in outdated and not g.is_changed]  # Those are repaired.
    for group in groups:
        decision.form(group.id, decision.nodes(group.id), decision.tenants(group.id), CONTINUES)
    for view in decision.profiled_and_waiting() if groups else ():
        present = [decision.groups[g.id] for g in groups if g.id in decision.groups]
        _join_where_it_helps(decision, view, present, decision.params.regroup_gain)


# -- case 1: a job has been profiled ------------------------------------------------------------------------------


def _place_profiled_jobs(decision: Decision) -> None:
    """A profiled job joins a group, unless others wait already: then the running groups need no more jobs."""
    profiled = [v for v in decision.profiling if decision.profile(v) is not None]
    if not decision.has_settled_groups:
        if (profiled or decision.profiled_and_waiting()) and not decision.is_profiling():
            _group_all(decision)
        return
    if not decision.knows_all_groups:
        return  # No job is told that no group needs it before all groups have been asked.
    before = len(decision.declined)
    for view in profiled:
        if not decision.declined or not decision.groups[view.partitions[0]].settled_jobs:
            _join(decision, view)
        else:
            decision.decline(view, "waits: other profiled jobs wait for a group already")
    for view in [v for v in decision.new if decision.profile(v) is not None]:
        if decision.declined:
            decision.decline(view, "waits: the running groups need no more jobs")
        else:
            _join(decision, view)
    if decision.params.variant != "paper" and len(decision.declined) > before and decision.half_idle:
        _regroup(decision, [])  # The rule above assumes that the processors are busy.


def _join(decision: Decision, view: JobView) -> None:
    """Add the job to the group whose utilisation it raises most; it waits if it raises none."""
    if not _join_where_it_helps(decision, view, decision.groups.values(), decision.params.join_gain):
        decision.decline(view, "waits: it would raise the utilisation of no group")


def _join_where_it_helps(decision: Decision, view: JobView, groups: Iterable[JobGroup], least_gain: float) -> bool:
    """Add the job to that of these groups in which it gets most more done; False if in none it is such a share more."""
    profile, weights = decision.profile(view), decision.terms.weights
    assert profile is not None
    gains = [
        (g.with_job(profile).value(weights) - g.value(weights) - decision.move_costs(view, g), -g.number, g)
        for g in groups
        if g.machines >= view.job.sizes[0]
    ]
    gains.sort(key=lambda x: x[:2], reverse=True)
    for gain, _number, group in gains[:_TRIES]:
        if gain <= _NO_GAIN:
            break
        if group.settled_jobs and gain < least_gain * group.machines:
            continue  # It would slow the others down for next to nothing.
        if decision.add_to(group, [view], f"joins {group.id}"):
            return True
    return False


# -- case 2: a job has left its group -----------------------------------------------------------------------------


def _repair_groups(decision: Decision) -> None:
    """Groups that lost a job get a similar one, or are regrouped; free machines are given to groups."""
    for group in [g for g in decision.groups.values() if g.is_changed]:
        if group.id not in decision.groups:
            continue  # An earlier repair has changed it.
        comp, comm = decision.load_that_left(group)
        if comp + comm > _NO_GAIN and not (_add_overdue(decision, group) or _substitute(decision, group, comp, comm)):
            _regroup(decision, [group])
        if group.id in decision.groups and decision.groups[group.id].is_changed:
            decision.form(group.id, decision.nodes(group.id), decision.tenants(group.id), CONTINUES)
    ready = decision.profiled_and_waiting() and not decision.is_profiling()
    if (decision.has_settled_groups or ready) and decision.draft.free_machines():
        _regroup(decision, [])


def _add_overdue(decision: Decision, group: JobGroup) -> bool:
    """A job that has waited longer than `patience_s` takes the place, whatever that does to the group."""
    overdue = [v for v in decision.declined if decision.is_overdue(v) and v.job.sizes[0] <= group.machines]
    reason = f"joins {group.id}, as it has waited long"
    return any(decision.add_to(group, [view], reason) for view in overdue[:_TRIES])


def _substitute(decision: Decision, group: JobGroup, comp: float, comm: float) -> bool:
    """Fill the place of the job that left with a similar one, or with a bundle of jobs that is similar together."""
    waiting = [v for v in decision.profiled_and_waiting()[:_COMPARED] if v.job.sizes[0] <= group.machines]
    (waiting, profiles), weights = decision.with_profiles(waiting), decision.terms.weights
    chosen = regroup.substitutes(comp, comm, group.machines, profiles, decision.params.similar, weights.own_part)
    like = "like" if len(chosen) == 1 else "together like"
    reason = f"joins {group.id}, {like} the job that left it"
    return bool(chosen) and decision.add_to(group, [waiting[i] for i in chosen], reason)


def _regroup(decision: Decision, start: list[JobGroup]) -> None:
    """Algorithm 1 over these groups and ever more others, those with the fewest jobs first.

    A wider regrouping must win over a narrower one, and any over the present groups, by `regroup_gain`; it must pay for
    its migrations within `horizon_s`.
    """
    params, weights = decision.params, decision.terms.weights
    free = decision.draft.free_machines()
    started = {g.id for g in start}
    others = [g for g in decision.groups.values() if g.id not in started and g.settled_jobs]
    others.sort(key=lambda g: (g.jobs, g.number))
    many = len(decision.groups) > params.widest
    best: tuple[list[JobGroup], list[JobView], Grouping] | None = None
    best_value = best_moves_s = 0.0

    def jobs_within(width: int) -> int:
        return sum(g.jobs for g in (*start, *others[:width]))

    for width in regroup.widths(len(others), jobs_within, params.widest if many else 10**9):
        groups = [*start, *others[:width]]
        waiting = decision.profiled_and_waiting()[: params.looked_at // 4 if many else params.looked_at]
        jobs, profiles = decision.with_profiles([*decision.running_in(groups), *waiting])
        machines = sum(g.machines for g in groups) + len(free)
        if not jobs or not machines:
            continue
        narrower = best[0] if best is not None else []
        before = sum((g.value(weights) for g in groups if g not in narrower), best_value)
        wanted = (1 + params.regroup_gain) * before
        found = _algorithm_1(decision, jobs, profiles, machines, wanted / machines)
        value = found.use * machines
        tenants = {g.id: decision.tenants(g.id) for g in groups}
        new = [[jobs[i] for i in group] for group in found.groups]
        moves_s = regroup.migration_s(tenants, {g.id: g.machines for g in groups}, new, found.machines)
        is_affordable = moves_s <= decision.budget_s or value >= _LARGE_GAIN * before
        pays = is_affordable and moves_s <= (value - before) * params.horizon_s
        if pays and value > 0 and value >= wanted and not decision.would_pause_overdue(tenants, new):
            best, best_value, best_moves_s = (groups, jobs, found), value, moves_s
    if best is not None:
        decision.budget_s -= best_moves_s
        decision.apply(*best, free)


def _group_all(decision: Decision) -> None:
    """The first grouping: Algorithm 1 over all profiled jobs and all machines, whatever it gains."""
    groups, free = list(decision.groups.values()), decision.draft.free_machines()
    jobs, profiles = decision.with_profiles([*decision.running_in(groups), *decision.profiled_and_waiting()])
    machines = sum(g.machines for g in groups) + len(free)
    if jobs and machines:
        found = _algorithm_1(decision, jobs, profiles, machines)
        if found.groups:
            decision.apply(groups, jobs, found, free)


def _algorithm_1(
    decision: Decision, jobs: Sequence[JobView], profiles: Sequence[Profile], machines: int, wanted: float = 0.0
) -> Grouping:
    """Running jobs by submission, then waiting ones, are the list that Algorithm 1 takes a prefix of."""
    variant, terms, least = decision.params.variant, decision.terms, [v.job.sizes[0] for v in jobs]
    if variant == "paper":
        return as_printed(profiles, machines, terms, least)
    if variant == "oracle" and len(profiles) <= MOST_JOBS and machines <= MOST_MACHINES:
        return exhaustive(profiles, machines, terms, least)
    return schedule(profiles, machines, terms, least, wanted)


# -- new jobs -----------------------------------------------------------------------------------------------------


def _profile_new_jobs(decision: Decision) -> None:
    """New jobs are profiled: in groups of their own where machines are free, else in a running group."""
    params = decision.params
    new = [v for v in decision.new if decision.profile(v) is None and not decision.is_placed(v)]
    free = decision.draft.free_machines() if new else []
    while free and new:
        wanted = max(min(len(free), params.profile_machines), new[0].job.sizes[0])
        nodes, rest = free[:wanted], free[wanted:]
        if len(rest) < wanted:
            nodes, rest = free, []
        reason = "starts: to be profiled in a new group"
        placed = decision.form(decision.draft.new_id(), nodes, new[: params.profile_at_once], reason)
        if not placed:
            break
        new = [v for v in new if v not in placed]
        free = rest
    if new and (decision.has_settled_groups or not decision.is_profiling()):
        for view in new:
            _profile_in_a_group(decision, view)


def _profile_in_a_group(decision: Decision, view: JobView) -> None:
    """Profile the job in a group that is profiling already, else in the one with the fewest machines."""
    new = {pid: decision.unprofiled_in(pid) for pid in decision.groups}
    profiling = [g for g in decision.groups.values() if new[g.id] and g.settled_jobs]
    groups = [g for g in profiling or decision.groups.values() if new[g.id] < decision.params.profile_at_once]
    groups.sort(key=lambda g: (g.machines, g.number))
    for group in groups[:_TRIES]:
        nodes, tenants = decision.nodes(group.id), decision.tenants(group.id)
        if view in decision.form(group.id, nodes, [*tenants, view], f"joins {group.id}: to be profiled there"):
            return
        decision.form(group.id, nodes, tenants, CONTINUES)
