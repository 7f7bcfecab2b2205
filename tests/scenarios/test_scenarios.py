"""One tiny scenario a paper, through the real cycle: a scripted policy plans, changes take time, and the story of
what was told and what happened is as the file says.

A scenario is a TOML file: `nodes`, `owners`, `jobs` (when, the job, the truth about it), `faults`, `plans` (the
script), `looks` (what must be so after the last cycle up to a moment) and `story`. In the story a line is an event, a
plan of the script by its number (`= 2`), a plan that was refused (`! words`) or an action (`> words`), each after its
time. Partitions name whole nodes as plain text; boundaries are `now`, `step`, `epoch`, `after 30s`, `after 9 batches`.

After every cycle the state is sound, and a book that is kept from actions and events alone, beside the state, agrees
with it: no GPU is held by two partitions, and no node gives more than it has.
"""

from __future__ import annotations

import tomllib
from collections import defaultdict
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import Struct
from msgspec.structs import replace

from hocket.control.controller import Controller
from hocket.control.journal import MemoryJournal
from hocket.control.ports import Header
from hocket.control.replay import replay
from hocket.executors.simulated import SimulatedExecutor
from hocket.model.action import Action, Checkpoint, End, Move, Pause, Prepare, Resize, Resume, Start, Store
from hocket.model.criterion import parse
from hocket.model.event import (
    EpochEnded,
    Event,
    JobEnded,
    JobFailed,
    JobMoved,
    JobPaused,
    JobRefused,
    JobResized,
    JobStarted,
    JobSubmitted,
    NodeJoined,
    NodeLost,
    OwnerSet,
    StateStored,
    TimePassed,
)
from hocket.model.job import Job, Owner
from hocket.model.partition import Boundary, Holding, Partition, Sharing, Tenant
from hocket.model.plan import Plan, Wake
from hocket.model.resources import Node, Slice
from hocket.model.snapshot import Snapshot, empty_snapshot
from hocket.model.view import Costs, Doing, Tier
from hocket.policies.registry import Params, Policy
from hocket.testing.invariants import broken_invariants
from hocket.workloads.truth import Fault, Submission, Truth, Workload

FOLDER = Path(__file__).parent
PAPERS = {"Dorm", "Reshape", "Harmony", "Rotary-DLT", "Rotary-AQP", "Pack", "Ratchet", "MLFS"}
FREE = Costs()


# -- reading ------------------------------------------------------------------------------------------------


class When(Struct, frozen=True, forbid_unknown_fields=True):
    """What a plan of the script waits for: all of these."""

    at_s: float = 0.0
    jobs: dict[str, dict[str, Any]] = {}  # job → fields of its view; `epoch` and `failures` at least
    gone: list[str] = []  # jobs that are over
    down: list[str] = []  # nodes that are lost

    def holds(self, snapshot: Snapshot) -> bool:
        if snapshot.now_s < self.at_s or any(j in snapshot.jobs for j in self.gone):
            return False
        if any(snapshot.nodes[n].up for n in self.down):
            return False
        for job, fields in self.jobs.items():
            view = snapshot.jobs.get(job)
            if view is None:
                return False
            for name, value in fields.items():
                has = getattr(view, name)
                if has < value if name in ("epoch", "failures") else has != value:
                    return False
        return True


class Step(Struct, forbid_unknown_fields=True):
    """One plan of the script. One that is to be refused is tried at its moment, and the script goes on."""

    about: str
    when: When = When()
    put: list[dict[str, Any]] = []
    drop: tuple[str, ...] = ()
    ends: dict[str, str] = {}
    tiers: dict[str, Tier] = {}
    checkpoints: dict[str, Tier] = {}
    refused: bool = False


class Look(Struct, forbid_unknown_fields=True):
    """What must be so after the last cycle up to `at_s`."""

    at_s: float
    jobs: dict[str, dict[str, Any]] = {}  # job → fields of its view, `doing` of its first tenant, or "gone"
    promised: dict[str, list[str]] | None = None
    unsettled: list[str] | None = None
    free_gpus: int | None = None
    usage: dict[str, dict[str, float]] = {}


class Come(Struct, forbid_unknown_fields=True):
    """A submission."""

    job: dict[str, Any]
    truth: Truth
    at_s: float = 0.0


class Scenario(Struct, forbid_unknown_fields=True):
    """One file."""

    title: str
    nodes: list[Node]
    jobs: list[Come]
    plans: list[Step]
    story: list[str]
    paper: str = ""
    owners: list[Owner] = []
    faults: list[Fault] = []
    failures: list[JobFailed] = []  # of jobs, told by the world at their time
    looks: list[Look] = []
    every_s: float = 0.0  # the script looks this often, so that cycles run while changes are under way
    until_s: float = 1000.0


def scenario_of(name: str) -> Scenario:
    raw = tomllib.loads((FOLDER / f"{name}.toml").read_text())
    return msgspec.convert(raw, Scenario)


def job_of(raw: dict[str, Any]) -> Job:
    criterion = raw.pop("criterion", None)
    job = msgspec.convert(raw, Job)
    return job if criterion is None else replace(job, criterion=parse(criterion))


def boundary_of(text: str) -> Boundary:
    at, _, length = text.partition(" ")
    if not length:
        return Boundary(at)
    if length.endswith(" batches"):
        return Boundary(at, batches=int(length.removesuffix(" batches")))
    return Boundary(at, seconds=float(length.removesuffix("s")))


def partition_of(raw: dict[str, Any], nodes: dict[str, Node]) -> Partition:
    slices = [nodes[s].whole() if isinstance(s, str) else msgspec.convert(s, Slice) for s in raw["slices"]]
    tenants = [
        Tenant(t["job"], tuple(t.get("replicas", (1,))), t.get("task", ""), boundary_of(t.get("boundary", "now")))
        for t in raw["tenants"]
    ]
    return Partition(raw["id"], tuple(slices), tuple(tenants), Sharing(raw.get("sharing", "alone")))


class Script:
    """The scripted policy: a function of the snapshot; how far it is stands in the memo."""

    def __init__(self, scenario: Scenario) -> None:
        nodes = {n.id: n for n in scenario.nodes}
        self.every_s = scenario.every_s
        self.steps = [
            (
                step,
                Plan(
                    tuple(partition_of(p, nodes) for p in step.put),
                    step.drop,
                    step.ends,
                    step.checkpoints,
                    step.tiers,
                    {"*": step.about, **dict.fromkeys(step.ends, step.about)},
                ),
            )
            for step in scenario.plans
        ]

    def decide(self, snapshot: Snapshot) -> Plan:
        done = snapshot.memo or 0
        kept = [(step, plan) for step, plan in self.steps if not step.refused]
        tried = [plan for step, plan in self.steps if step.refused and step.when.at_s == snapshot.now_s]
        plan = tried[0] if tried else Plan()
        if not tried and done < len(kept) and kept[done][0].when.holds(snapshot):
            plan = kept[done][1]
            done += 1
        moments = [s.when.at_s for s, _ in kept[done:]] + [s.when.at_s for s, _ in self.steps if s.refused]
        if self.every_s:
            moments.append(snapshot.now_s + self.every_s)
        at_s = min((m for m in moments if m > snapshot.now_s), default=None)
        return replace(plan, memo=done, wake=Wake(at_s=at_s))


def by_submission(_view: object, _now_s: float) -> tuple[Any, ...]:
    return ()


# -- telling ------------------------------------------------------------------------------------------------


def place(to: Holding) -> str:
    parts = []
    for part, replicas in zip(to.slices, to.replicas, strict=True):
        gpus = f" gpu {','.join(map(str, part.gpus))}" if part.gpus else ""
        parts.append(f"{part.node}{gpus} x{replicas}")
    boundary = to.boundary
    length = (
        f" {boundary.seconds:g}s" if boundary.seconds else f" {boundary.batches} batches" if boundary.batches else ""
    )
    until = "" if boundary.at == "now" else f" until {boundary.at}{length}"
    return f"{to.partition}: {' + '.join(parts)}{until}"


def told(action: Action) -> str:
    match action:
        case Start(job, task, to, _) | Resume(job, task, to, _) | Resize(job, task, to, _) | Move(job, task, to, _):
            return f"{type(action).__name__} {tenant_name(job, task)} in {place(to)}"
        case Pause(job, task, tier, boundary):
            return f"Pause {tenant_name(job, task)} to {tier}" + ("" if boundary.at == "now" else f" at {boundary.at}")
        case End(job, verdict):
            return f"End {job} {verdict}"
        case Store(job, tier) | Checkpoint(job, tier, _):
            return f"{type(action).__name__} {job} to {tier}"
        case Prepare(job):
            return f"Prepare {job}"


def happened(event: Event) -> str:
    name = type(event).__name__
    match event:
        case JobSubmitted():
            return f"{name} {event.job.id}"
        case JobRefused():
            return f"{name} {event.reason}"
        case JobPaused() | StateStored():
            return f"{name} {tenant_name(event.job, getattr(event, 'task', ''))} {event.tier}"
        case EpochEnded():
            metrics = "".join(f" {k}={v:g}" for k, v in event.metrics.items())
            return f"{name} {event.job} {event.epoch}{metrics}"
        case JobEnded():
            return f"{name} {event.job} {event.verdict}"
        case NodeLost():
            return f"{name} {event.node}"
        case NodeJoined():
            return f"{name} {event.node.id}"
        case OwnerSet():
            return f"{name} {event.owner.id}"
        case _:
            return f"{name} {tenant_name(getattr(event, 'job', ''), getattr(event, 'task', ''))}"


def tenant_name(job: str, task: str) -> str:
    return f"{job}/{task}" if task else job


# -- the book -----------------------------------------------------------------------------------------------


class Book:
    """Which tenant has which resources, from actions and events alone."""

    def __init__(self, nodes: list[Node]) -> None:
        self.nodes = {n.id: n for n in nodes}
        self.has: dict[tuple[str, str], Holding] = {}
        self.takes: dict[tuple[str, str], Holding] = {}
        self.shared: set[str] = set()

    def act(self, action: Action) -> None:
        if isinstance(action, Start | Resume | Resize | Move):
            assert (action.job, action.task) not in self.takes, f"told twice: {told(action)}"
            assert isinstance(action, Start | Resume) != ((action.job, action.task) in self.has), told(action)
            self.takes[action.job, action.task] = action.to
            if action.partition.sharing is not Sharing.ALONE:
                self.shared.add(action.to.partition)
        elif isinstance(action, Pause):
            assert (action.job, action.task) in self.has, f"nothing to leave: {told(action)}"

    def hear(self, event: Event) -> None:
        match event:
            case JobStarted(_, job, task) | JobResized(_, job, task) | JobMoved(_, job, task):
                self.has[job, task] = self.takes.pop((job, task))
            case JobPaused(_, job, task):
                self.forget(lambda key: key == (job, task))
            case JobEnded(_, job) | JobFailed(_, job):
                self.forget(lambda key: key[0] == job)
            case NodeLost(_, node):
                both = [*self.has.items(), *self.takes.items()]
                hit = {key for key, held in both if any(s.node == node for s in held.slices)}
                self.forget(hit.__contains__)

    def forget(self, gone: Any) -> None:
        self.has = {k: v for k, v in self.has.items() if not gone(k)}
        self.takes = {k: v for k, v in self.takes.items() if not gone(k)}

    def balance(self) -> None:
        """No GPU is in two partitions' hands, and no node gives more than it has."""
        gpus: dict[tuple[str, int], dict[str, set[tuple[str, str]]]] = defaultdict(lambda: defaultdict(set))
        shares: dict[tuple[str, Any], Slice] = {}  # (node, tenant or shared partition) → the most it has there
        for key in {*self.has, *self.takes}:
            for held in (self.has.get(key), self.takes.get(key)):
                for part in held.slices if held is not None else ():
                    assert held is not None
                    holder = held.partition if held.partition in self.shared else key
                    most = shares.get((part.node, holder), part)
                    shares[part.node, holder] = Slice(
                        part.node, (), max(part.cores, most.cores), max(part.mem_mib, most.mem_mib)
                    )
                    for gpu in part.gpus:
                        gpus[part.node, gpu][held.partition].add(key)
        for gpu, partitions in gpus.items():
            tenants = set().union(*partitions.values())
            assert len(partitions) == 1 or len(tenants) == 1, f"GPU {gpu} is held by {dict(partitions)}"
            (first, *_) = partitions
            assert len(tenants) == 1 or first in self.shared, f"GPU {gpu} is held alone by {tenants}"
        for node in self.nodes.values():
            for name in ("cores", "mem_mib"):
                total = sum(getattr(s, name) for (n, _), s in shares.items() if n == node.id)
                assert total <= getattr(node, name) + 1e-6, f"{total:g} {name} of {node} are held"

    def agrees(self, snapshot: Snapshot) -> None:
        has, takes = {}, {}
        for view in snapshot.jobs.values():
            for tenancy in view.tenancies:
                if tenancy.holding is not None:
                    has[view.id, tenancy.task] = tenancy.holding
                if tenancy.coming is not None:
                    takes[view.id, tenancy.task] = tenancy.coming
        assert has == self.has
        assert takes == self.takes


# -- running ------------------------------------------------------------------------------------------------


class World(SimulatedExecutor):
    """The simulated executor, in which jobs also break at moments that the scenario names."""

    def __init__(self, workload: Workload, scenario: Scenario) -> None:
        super().__init__(workload, scenario.nodes, until_s=scenario.until_s)
        for failure in scenario.failures:
            self._push(failure.at_s, None, failure)

    def _node_event(self, event: Event, out: list[Event]) -> None:
        if isinstance(event, JobFailed):
            self._crash(self._runs[event.job], event.reason, out)
        else:
            super()._node_event(event, out)


class Telling(Struct):
    """What a run came to."""

    story: list[str]
    snapshots: list[tuple[float, Snapshot]]
    journal: MemoryJournal
    busy_cycles: int  # that ran while a change was under way


def tell(scenario: Scenario, costs: Costs | None = None) -> Telling:
    submissions = [
        Submission(c.at_s, job_of(dict(c.job)), c.truth if costs is None else replace(c.truth, costs=costs))
        for c in scenario.jobs
    ]
    workload = Workload(
        scenario.title, tuple(submissions), owners=tuple(scenario.owners), faults=tuple(scenario.faults)
    )
    script = Script(scenario)
    journal = MemoryJournal(Header("script", nodes=tuple(scenario.nodes)))
    controller = Controller(empty_snapshot(scenario.nodes), script.decide, by_submission, journal)
    world, book = World(workload, scenario), Book(scenario.nodes)
    found = Telling([], [], journal, 0)
    while (moment := world.wait(controller.next_timer_s())) is not None:
        now_s, events = moment
        before = controller.snapshot
        found.busy_cycles += any(
            v.preparing or any(t.doing is not Doing.NOTHING for t in v.tenancies) for v in before.jobs.values()
        )
        actions = controller.cycle(now_s, events)
        cycle = journal.cycles[-1]
        for event in cycle.events:
            book.hear(event)
            if not isinstance(event, TimePassed):
                found.story.append(f"{event.at_s:g} {happened(event)}")
        if cycle.refused:
            found.story += [f"{now_s:g} ! {words}" for words in cycle.refused]
        elif controller.state.memo != before.memo and controller.state.memo:
            found.story.append(f"{now_s:g} = {controller.state.memo}")
        for action in actions:
            book.act(action)
            found.story.append(f"{now_s:g} > {told(action)}")
        book.balance()
        after = controller.snapshot
        assert not (found_broken := broken_invariants(after)), (found_broken, found.story[-6:])
        book.agrees(after)
        found.snapshots.append((now_s, after))
        if actions:
            world.apply(actions)
    return found


def check(look: Look, telling: Telling) -> None:
    snapshot = [s for at_s, s in telling.snapshots if at_s <= look.at_s][-1]
    for job, fields in look.jobs.items():
        view = snapshot.jobs.get(job)
        assert view is not None, f"at {look.at_s:g} s job '{job}' is gone"
        for name, value in fields.items():
            has = view.tenancies[0].doing if name == "doing" else getattr(view, name)
            assert has == (tuple(value) if isinstance(value, list) else value), f"at {look.at_s:g} s: {job}.{name}"
    if look.promised is not None:
        assert {k: list(v) for k, v in snapshot.promised().items()} == look.promised, f"at {look.at_s:g} s"
    if look.unsettled is not None:
        assert [tenant_name(*key) for key in snapshot.unsettled] == look.unsettled, f"at {look.at_s:g} s"
    if look.free_gpus is not None:
        assert snapshot.capacity.gpus == look.free_gpus
    for owner, fields in look.usage.items():
        used = snapshot.usage[owner]
        assert {name: getattr(used, name) for name in fields} == fields, f"at {look.at_s:g} s"


NAMES = sorted(path.stem for path in FOLDER.glob("*.toml"))


@pytest.mark.parametrize("name", NAMES)
def test_the_story_is_as_written(name: str) -> None:
    scenario = scenario_of(name)
    telling = tell(scenario)
    assert telling.story == [" ".join(line.split()) for line in scenario.story]
    for look in scenario.looks:
        check(look, telling)
    assert telling.busy_cycles > 0, "no cycle ran while a change was under way: the scenario shows too little"


@pytest.mark.parametrize("name", NAMES)
def test_the_journal_replays_to_the_same_plans(name: str) -> None:
    scenario = scenario_of(name)
    journal = tell(scenario).journal
    script = Policy("script", lambda s, _p: Script(scenario).decide(s), Params, None, "", "", __file__)
    found = replay(journal.header, journal, script.bound())
    assert (found.difference, found.cycles) == (None, len(journal))


@pytest.mark.parametrize("name", NAMES)
def test_changes_that_take_no_time_keep_every_rule_too(name: str) -> None:
    tell(scenario_of(name), costs=FREE)


def test_every_paper_has_a_scenario() -> None:
    assert {scenario_of(name).paper for name in NAMES} >= PAPERS
