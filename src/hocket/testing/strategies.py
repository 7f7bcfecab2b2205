"""Hypothesis strategies: nodes, jobs, owners, workloads, and states reached through the real cycle.

Here `cluster` is the nodes that jobs may run on, `bound` a policy with its parameters set, and `most` the largest
number that is drawn: of nodes, jobs or steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from random import Random
from typing import Any

from hypothesis import strategies as st
from msgspec import Struct
from msgspec.structs import replace

from hocket.control.admission import refusal
from hocket.control.check import violations
from hocket.model import criterion
from hocket.model.capacity import Capacity
from hocket.model.curve import NO_BELIEFS, Beliefs, Estimate
from hocket.model.event import (
    JobAsked,
    JobEnded,
    JobFailed,
    JobRequest,
    JobSaved,
    JobSubmitted,
    NodeDrained,
    NodeJoined,
    NodeLost,
    NodeReserved,
    NodeUndrained,
    NodeUnreserved,
    OwnerSet,
    ProgressReported,
)
from hocket.model.job import Job, Owner, Preempt
from hocket.model.partition import EPOCH, NOW, STEP, Boundary, Partition, Sharing, Tenant
from hocket.model.plan import Plan
from hocket.model.reservation import NodeReservation
from hocket.model.resources import Demand, Node
from hocket.model.snapshot import Snapshot
from hocket.model.versioned import versioned
from hocket.model.view import Costs, JobState
from hocket.policies.kit.draft import Draft
from hocket.policies.registry import BoundPolicy
from hocket.testing.harness import Harness
from hocket.workloads.truth import Fault, Submission, Truth, Workload

OWNERS = ("ana", "bo", "cy")
KINDS = ("v100", "p100")
_SHARED = "shared "  # how the names of partitions that several may share begin
_BOUNDARIES = (NOW, NOW, STEP, EPOCH, Boundary("after", seconds=30.0), Boundary("after", batches=50))
_seconds = st.one_of(
    st.sampled_from([0.0, 1.0, 10.0, 100.0, 3600.0]), st.floats(0.1, 20_000).map(lambda x: round(x, 2))
)
_run_times = st.one_of(st.none(), _seconds)
_sizes = st.one_of(
    st.sampled_from([(1,), (1,), (2,), (4,), (8,), (1, 2, 4), (2, 4), (1, 2, 3, 4, 5, 6)]),
    st.sets(st.integers(1, 8), min_size=1, max_size=4).map(lambda s: tuple(sorted(s))),
)
_deadlines = st.one_of(st.none(), st.floats(1, 10_000).map(lambda x: round(x, 1)))
_happenings = st.sampled_from(
    ["submit"] * 6 + ["answer"] * 5 + ["answer all"] * 3 + ["end"] * 3 + ["pass"] * 2
    + ["fail", "lose", "join", "owner", "report", "ask", "save", "drain", "undrain"]
    + ["reserve"] * 2 + ["unreserve"]
)  # fmt: skip


@lru_cache(maxsize=None, typed=True)
def _one_of(*values: Any) -> st.SearchStrategy[Any]:
    """One of these `values`. Strategies are kept: to make one takes longer than to draw from it."""
    return st.sampled_from(values)


# When a test fails, Hypothesis prints what was drawn: of these, one line and no more.
class DrawnNodes(list[Node]):
    """A drawn cluster."""

    def __repr__(self) -> str:
        return ", ".join(f"{node.id}: {node.gpus} GPUs {node.gpu_kind}".strip() for node in self)


class DrawnWorkload(Workload, frozen=True):
    """A drawn workload."""

    def __repr__(self) -> str:
        return f"{len(self.submissions)} jobs, {len(self.owners)} owners, {len(self.faults)} faults"


class DrawnSnapshots(list[Snapshot]):
    """Drawn snapshots of one history."""

    def __repr__(self) -> str:
        return f"{len(self)} snapshots of {len(self[-1].jobs)} jobs on {len(self[-1].nodes)} nodes"


@st.composite
def nodes(draw: st.DrawFn, most: int = 4) -> list[Node]:
    """A small cluster of up to `most` nodes: alike or mixed, with or without cores, memory and network."""
    count = draw(st.integers(1, most))
    rich = draw(st.booleans())
    alike = draw(st.booleans())
    gpus = draw(st.integers(1, 8))
    found = DrawnNodes()
    for i in range(count):
        if not alike:
            gpus = draw(st.integers(0 if rich else 1, 8))
        kind = draw(_one_of(*KINDS)) if rich else ""
        found.append(
            Node(f"n{i}", gpus, kind, 16_000.0 if kind == "v100" else 8_000.0, 16.0, 64_000.0, 1_000.0)
            if rich
            else Node(f"n{i}", gpus)
        )
    return found


@st.composite
def jobs(draw: st.DrawFn, name: str, cluster: Sequence[Node]) -> Job:
    """A job called `name` that the `cluster` admits: rigid or elastic, plain or with several resources and limits."""
    plain = draw(st.integers(0, 3)) > 0
    rich = any(n.cores for n in cluster)
    demand = Demand(1)
    if rich and not plain:
        demand = Demand(
            draw(_one_of(0, 1, 1, 2)),
            draw(_one_of(0.1, 1.0, 4.0)),
            draw(_one_of(0.0, 1000.0, 16_000.0)),
            draw(_one_of(0.0, 100.0)),
        )
    sizes = draw(_sizes)
    found = Job(
        name,
        draw(_one_of(*OWNERS)),
        demand=demand,
        sizes=sizes,
        max_nodes=0 if plain else draw(_one_of(0, 0, 1, 2)),
        gpu_kinds=() if plain or not rich else draw(_one_of((), ("v100",), ("p100", "v100"))),
        gpu_mem_mib=0.0 if plain or not rich else draw(_one_of(0.0, 12_000.0)),
        weight=draw(_one_of(1.0, 1.0, 0.5, 3.0)),
        priority=draw(st.integers(-1, 2)),
        deadline_s=draw(_deadlines),
        warm=draw(st.booleans()),
        preempt=draw(_one_of(Preempt.ALWAYS, Preempt.ALWAYS, Preempt.SAVED, Preempt.NEVER)),
        min_run_s=draw(_one_of(0.0, 0.0, 30.0, 1000.0)),
        protect_s=draw(_one_of(0.0, 0.0, 500.0)),
    )
    if refusal(versioned(), found, Capacity.of(cluster)):
        return Job(name, found.owner, sizes=(1,), demand=Demand(1) if any(n.gpus for n in cluster) else Demand(0, 1.0))
    return found


@st.composite
def owners(draw: st.DrawFn, roomy: bool = False) -> Owner:
    """An owner with a weight and, perhaps, quotas; those of a `roomy` one have room for each of its jobs alone."""
    return Owner(
        draw(_one_of(*OWNERS)),
        draw(_one_of(1.0, 2.0, 0.25)),
        max_gpus=draw(_one_of(0, 16) if roomy else _one_of(0, 1, 3, 6)),
        max_cores=draw(_one_of(0.0, 32.0) if roomy else _one_of(0.0, 2.0, 8.0)),
        max_mem_mib=draw(_one_of(0.0, 128_000.0) if roomy else _one_of(0.0, 17_000.0)),
        max_jobs=draw(_one_of(0, 0, 1, 2)),
    )


costs = st.one_of(
    st.just(Costs()),
    st.builds(
        Costs,
        st.sampled_from([0.0, 20.0]),
        st.sampled_from([0.0, 5.0]),
        st.sampled_from([0.0, 3.0]),
        st.sampled_from([0.0, 2.0]),
    ),
)


@st.composite
def workloads(draw: st.DrawFn, cluster: Sequence[Node], most: int = 12, *, faults: bool = True) -> Workload:
    """A workload of up to `most` jobs that can end: quotas have room for each job alone, and lost nodes come back.

    With `faults`, a node may be lost for a while.
    """
    submissions = []
    at_s = 0.0
    for i in range(draw(st.integers(1, most))):
        at_s += draw(_one_of(0.0, 0.0, 7.0, 100.0, 1000.0))
        job = draw(jobs(f"j{i}", cluster))
        crash_s = draw(_one_of((), (), (), (5.0,), (3.0, 50.0)))
        epochs = draw(_one_of(0, 0, 3))
        if epochs and draw(st.booleans()):
            text = draw(_one_of("for 300s", "loss <= 0.1 within 900s", "loss <= 0.1 within 2 epochs"))
            job = replace(job, criterion=criterion.parse(text))
        truth = Truth(
            draw(_seconds),
            draw(_one_of(*job.sizes)),
            spread=draw(_one_of(1.0, 1.0, 0.8)),
            epochs=epochs,
            metric="loss" if epochs else "",
            costs=draw(costs),
            crashes_s=crash_s,
        )
        submissions.append(Submission(at_s, job, truth))
    owned = {o.id: o for o in draw(st.lists(owners(roomy=True), max_size=2))}
    lost: list[Fault] = []
    if faults and draw(st.booleans()):
        node, from_s = draw(_one_of(*(n.id for n in cluster))), draw(_one_of(5.0, 150.0))
        lost.append(Fault(from_s, node, from_s + draw(_one_of(1.0, 500.0))))
    return DrawnWorkload("drawn", tuple(submissions), owners=tuple(owned.values()), faults=tuple(lost))


class Step(Struct, frozen=True):
    """One step of a history: something happens after a while."""

    what: str  # "submit", "answer", "end", "fail", "lose" and so on, as in `histories`
    which: int = 0  # picks among the jobs, nodes or actions that it can happen to
    wait_s: float = 0.0  # seconds since the step before
    value: Any = None  # "submit": job, beliefs, costs; "owner": the owner; "ask": the request; "reserve": what is made


@st.composite
def restrained(draw: st.DrawFn, job: Job, submitted: int) -> Job:
    """The `job` with jobs that it follows and limits on crashes and run time; `submitted` were there before it."""
    others = st.lists(st.integers(0, submitted), max_size=2)
    return replace(
        job,
        after=tuple(f"j{n}" for n in draw(others) if n < submitted),
        after_any=tuple(f"j{n}" for n in draw(others) if n < submitted),
        retries=draw(_one_of(None, 0, 1)),
        backoff_s=draw(_one_of(0.0, 30.0)),
        limit_s=draw(_one_of(None, 40.0, 1000.0)),
    )


@st.composite
def reservations(draw: st.DrawFn, name: str, cluster: Sequence[Node]) -> NodeReservation:
    """A reservation called `name` of a node of the `cluster`; its times count from when it is made."""
    from_s = draw(_one_of(0.0, 0.0, 0.0, 60.0))
    return NodeReservation(
        name,
        draw(_one_of(*(n.id for n in cluster))),
        draw(_one_of(("ana",), ("bo",), ("ana", "cy"), ("zoe",))),
        from_s,
        draw(_one_of(None, None, from_s + 800.0)),
    )


@st.composite
def histories(draw: st.DrawFn, cluster: Sequence[Node], most: int = 25) -> list[Step]:
    """Up to `most` things that might happen to a cluster, in any order, with changes answered late or never."""
    steps = []
    for i in range(draw(st.integers(1, most))):
        what = draw(_happenings)
        value: Any = None
        if what == "submit":
            job = draw(jobs(f"j{i}", cluster))
            if draw(st.integers(0, 4)) == 0:
                job = draw(restrained(job, i))
            run_s = draw(_run_times)
            beliefs = NO_BELIEFS if run_s is None else Beliefs(Estimate(run_s), draw(_one_of(*job.sizes)))
            value = (job, beliefs, draw(costs))
        elif what == "owner":
            value = draw(owners())
        elif what == "reserve":
            value = draw(reservations(f"r{i}", cluster))
        elif what == "ask":
            value = draw(_one_of(*JobRequest))
        wait_s = draw(_one_of(0.0, 0.0, 1.0, 50.0, 700.0, 4000.0))
        steps.append(Step(what, draw(st.integers(0, 7)), wait_s, value))
    return steps


def play(harness: Harness, steps: Sequence[Step], cluster: Sequence[Node]) -> Harness:
    """Tell the `harness` these `steps`, and in between the moments that the policy asked for; returns the harness."""
    for step in steps:
        until_s = harness.now_s + step.wait_s
        while (at_s := harness.controller.next_timer_s()) is not None and at_s < until_s:
            harness.tell(at_s=at_s)
        harness.now_s = until_s
        _happen(harness, step, cluster)
    return harness


def _happen(harness: Harness, step: Step, cluster: Sequence[Node]) -> None:
    at_s, snapshot = harness.now_s, harness.snapshot
    running = [v.job.id for v in snapshot.jobs.values() if v.state is JobState.RUNNING and v.size]
    match step.what:
        case "submit":
            job, beliefs, costs = step.value
            harness.tell(JobSubmitted(at_s, job, beliefs, costs))
        case "answer all" if harness.pending:
            harness.answer()
        case "answer" if harness.pending:
            harness.answer(harness.pending[step.which % len(harness.pending)])
        case "end" if running:
            harness.tell(JobEnded(at_s, running[step.which % len(running)]))
        case "fail" if running:
            harness.tell(JobFailed(at_s, running[step.which % len(running)], "it broke", step.which == 7))
        case "report" if running:
            harness.tell(ProgressReported(at_s, running[step.which % len(running)], step.which, {"acc": 0.5}))
        case "save" if running:
            harness.tell(JobSaved(at_s, running[step.which % len(running)]))
        case "lose":
            harness.tell(NodeLost(at_s, cluster[step.which % len(cluster)].id))
        case "join":
            harness.tell(NodeJoined(at_s, cluster[step.which % len(cluster)]))
        case "drain":
            harness.tell(NodeDrained(at_s, cluster[step.which % len(cluster)].id, step.which % 2 == 1))
        case "undrain":
            harness.tell(NodeUndrained(at_s, cluster[step.which % len(cluster)].id))
        case "reserve":
            later = replace(
                step.value,
                from_s=at_s + step.value.from_s,
                until_s=None if step.value.until_s is None else at_s + step.value.until_s,
            )
            if not any(later.overlaps(r) for r in snapshot.reservations):
                harness.tell(NodeReserved(at_s, later))
        case "unreserve" if snapshot.reservations:
            harness.tell(NodeUnreserved(at_s, snapshot.reservations[step.which % len(snapshot.reservations)].name))
        case "ask" if snapshot.jobs.data():
            harness.tell(JobAsked(at_s, list(snapshot.jobs)[step.which % len(snapshot.jobs)], step.value, "ana"))
        case "owner":
            harness.tell(OwnerSet(at_s, step.value))
        case _:
            harness.tell(at_s=at_s)


def chaos(snapshot: Snapshot) -> Plan:
    """A policy that changes the `snapshot` at random: starts, pauses and resizes that no sensible one would choose."""
    draft, rng = Draft(snapshot), snapshot.rng()
    for view in sorted(snapshot.jobs.values(), key=lambda v: v.number):
        if not view.partitions or view.verdict or draft.is_protected(view):
            continue
        drawn = rng.random()
        if drawn < 0.2:
            draft.pause(view, "paused: by chance")
        elif drawn < 0.4 and len(view.job.sizes) > 1 and draft.slices_of(view):
            draft.resize(view, rng.choice(view.job.sizes), "resized: by chance", rng.choice(_BOUNDARIES))
    for view in draft.candidates():
        if rng.random() < 0.6:
            draft.start(view, "starts: by chance", boundary=rng.choice(_BOUNDARIES))
    return draft.plan()


def sharing_chaos(snapshot: Snapshot) -> Plan:
    """As `chaos(snapshot)`; jobs also join others, in every way in which a partition can be shared."""
    plan, rng = chaos(snapshot), Random(f"sharing/{snapshot.seed}/{snapshot.decision}")
    for partition in snapshot.partitions_of(plan):
        if len(partition.tenants) == 1 and partition.id.startswith(_SHARED) and rng.random() < 0.3:
            plan = _if_allowed(snapshot, plan, replace(partition, sharing=rng.choice(list(Sharing))))
    for _rank, _number, job_id in sorted(snapshot.waiting, key=lambda entry: entry[1]):
        there = snapshot.partitions_of(plan)
        if not there or rng.random() < 0.5 or any(t.job == job_id for p in there for t in p.tenants):
            continue
        host = rng.choice(there)
        size = snapshot.jobs[job_id].job.sizes[0]
        newcomer = Tenant(job_id, (size,) + (0,) * (len(host.slices) - 1), boundary=rng.choice(_BOUNDARIES))
        # A partition with the name of a job is for that job alone: jobs that share have another, and move there.
        pid = host.id if host.id.startswith(_SHARED) else f"{_SHARED}{snapshot.decision}/{job_id}"
        joined = Partition(pid, host.slices, (*host.tenants, newcomer), rng.choice(list(Sharing)[1:]))
        plan = _if_allowed(snapshot, plan, joined, host.id)
    return plan


def _if_allowed(snapshot: Snapshot, plan: Plan, new: Partition, instead_of: str = "") -> Plan:
    """The plan with a partition more, in the place of another; without it if that breaks a rule."""
    gone = {new.id, instead_of or new.id}
    changed = replace(
        plan,
        put=(*(p for p in plan.put if p.id not in gone), new),
        drop=(*plan.drop, *(pid for pid in sorted(gone - {new.id}) if pid in snapshot.partitions)),
        reasons=plan.reasons | {t.job: "shares: by chance" for t in new.tenants},
    )
    return plan if violations(snapshot, changed) else changed


class Scene(Struct, frozen=True):
    """A cluster, what happens to it, and what decides meanwhile: the policy under test, or chance."""

    cluster: tuple[Node, ...]  # the nodes that there are
    steps: tuple[Step, ...]  # what happens, in order
    decided_by: str  # "itself": the policy under test; or "chaos" or "sharing_chaos", as the functions above
    seed: int = 0  # of the random numbers that decide


@st.composite
def scenes(draw: st.DrawFn, most: int = 25) -> Scene:
    """A scene of up to `most` steps. It depends on no policy: one scene serves all of them."""
    cluster = draw(nodes())
    steps = draw(histories(cluster, most))
    decided_by = draw(st.sampled_from(("itself", "chaos", "sharing_chaos")))
    return Scene(tuple(cluster), tuple(steps), decided_by, draw(st.integers(0, 3)))


def snapshots_of(scene: Scene, bound: BoundPolicy) -> list[Snapshot]:
    """The last states of a `scene` in which the policy may be asked."""
    decide = {"itself": bound.decide, "chaos": chaos, "sharing_chaos": sharing_chaos}[scene.decided_by]
    harness = Harness(decide, scene.cluster, bound.order, seed=scene.seed, shifts=bound.shifts)
    play(harness, scene.steps, scene.cluster)
    return DrawnSnapshots([*(snapshot for snapshot, _plan in harness.asked[-8:]), harness.snapshot])


def snapshots(bound: BoundPolicy, most: int = 25) -> st.SearchStrategy[list[Snapshot]]:
    """The last states of a drawn scene, of up to `most` steps, in which the policy may be asked."""
    return scenes(most).map(lambda scene: snapshots_of(scene, bound))
