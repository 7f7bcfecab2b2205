"""Deciding again what was decided: recorded journals, every policy, and a policy that was changed."""

from __future__ import annotations

import lzma
from pathlib import Path
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from hocket.control.controller import Controller
from hocket.control.journal import JournalError, MemoryJournal, SqliteJournal
from hocket.control.ports import Cycle, Header
from hocket.control.replay import PolicyBrokeError, Replay, encoded, replay
from hocket.executors.simulated import SimulatedExecutor, parse_beliefs, simulate
from hocket.model.event import JobSubmitted
from hocket.model.job import Job
from hocket.model.plan import Plan
from hocket.model.snapshot import Snapshot, empty_snapshot
from hocket.model.view import Costs
from hocket.policies import find, policies
from hocket.policies.registry import BoundPolicy, bind
from hocket.workloads.cluster import parse_cluster
from hocket.workloads.demo import demo
from hocket.workloads.truth import Fault, Workload

FOLDER = Path(__file__).parent
RECORDED = sorted(path.name.removesuffix(".db.xz") for path in FOLDER.glob("*.db.xz"))


def unpacked(name: str, folder: Path) -> Path:
    path = folder / f"{name}.db"
    path.write_bytes(lzma.decompress((FOLDER / f"{name}.db.xz").read_bytes()))
    return path


@pytest.mark.parametrize("name", RECORDED)
def test_a_recorded_journal_is_decided_as_it_was(name: str, tmp_path: Path) -> None:
    journal = SqliteJournal(unpacked(name, tmp_path))
    found = replay(journal.header, journal, bind(name, journal.header.params))
    recorded = sum(1 for cycle in journal if cycle.plan is not None)
    journal.close()
    assert found == Replay(found.cycles, recorded, None, (name,)), (
        "if the policy was changed on purpose: tests/replay/record.py"
    )
    assert recorded > 20


def test_recorded_journals_are_small() -> None:
    assert RECORDED
    assert all((FOLDER / f"{name}.db.xz").stat().st_size < 100_000 for name in RECORDED)


def ran(name: str, **settings: Any) -> tuple[MemoryJournal, BoundPolicy]:
    bound = find(name).bound()
    nodes = parse_cluster("4x4")
    whole = demo(5)
    workload = Workload("demo", whole.submissions, owners=whole.owners, faults=(Fault(3000.0, "n002", 4500.0),))
    simulation = simulate(workload, nodes, bound, until_s=6500.0, **settings)
    assert isinstance(simulation.journal, MemoryJournal)
    return simulation.journal, bound


@pytest.mark.parametrize("name", sorted(policies()))
@pytest.mark.parametrize("beliefs", ["learned", "noisy:0.3"])
def test_every_policy_decides_again_as_it_did(name: str, beliefs: str) -> None:
    journal, bound = ran(name, beliefs=parse_beliefs(beliefs), noise=0.2, seed=3)
    found = replay(journal.header, journal, bound)
    decided = sum(1 for cycle in journal if cycle.plan is not None)
    assert found == Replay(len(journal), decided, None, (name,))
    assert found.decisions > 20


def ran_off_beat(name: str, seed: int) -> tuple[MemoryJournal, BoundPolicy]:
    """A run with a clock like a live one's: moments come early, late, or unasked for, and switches take their time."""
    dice = Random(f"{name}/{seed}")
    bound, nodes, whole = find(name).bound(), parse_cluster("4x4"), demo(5)
    costs = Costs(*(dice.choice((0.0, 0.01, 0.05, 1.0)) for _step in Costs.__struct_fields__))
    submissions = tuple(replace(s, truth=replace(s.truth, costs=costs)) for s in whole.submissions)
    workload = Workload("demo", submissions, owners=whole.owners, faults=(Fault(3000.0, "n002", 4500.0),))
    journal = MemoryJournal(Header(name, bound.settings, tuple(nodes), seed))
    controller = Controller(empty_snapshot(nodes, seed), bound.decide, bound.order, journal, **bound.needs)
    executor = SimulatedExecutor(
        workload, nodes, seed=seed, beliefs=parse_beliefs("noisy:0.3"), noise=0.2, until_s=6500.0
    )
    while True:
        until_s = controller.next_timer_s() if dice.random() < 0.9 else None
        if until_s is not None and dice.random() < 0.5:
            until_s = max(until_s + dice.choice((-2e-3, -1e-3, -5e-4, -1e-6, 1e-6, 0.05, 0.1)), executor.now_s)
        moment = executor.wait(until_s)
        if moment is None:
            return journal, bound
        executor.apply(controller.cycle(*moment))


@pytest.mark.parametrize("name", sorted(policies()))
def test_a_run_whose_moments_come_early_or_late_is_decided_again_as_it_was(name: str) -> None:
    has_moments_of_ranks = find(name).bound().shifts is not None
    for seed in range(20 if has_moments_of_ranks else 3):
        journal, bound = ran_off_beat(name, seed)
        assert replay(journal.header, journal, bound).difference is None, seed


def changed(bound: BoundPolicy, at: int, change: Any) -> BoundPolicy:
    """The policy, with something else for its decision of that number."""

    def decide(snapshot: Snapshot) -> Plan:
        plan = bound.decide(snapshot)
        return change(plan) if snapshot.decision == at else plan  # type: ignore[no-any-return]

    return replace(bound, decide=decide)


def other_memo(plan: Plan) -> Plan:
    return replace(plan, memo="changed on purpose")


def cycle_of(journal: MemoryJournal, decision: int) -> int:
    """The number of the cycle in which that decision was made."""
    with_plan = [n for n, cycle in enumerate(journal, 1) if cycle.plan is not None and not cycle.refused]
    return with_plan[decision]


@pytest.mark.parametrize("decision", [0, 7, 20])
def test_a_changed_policy_is_found_at_the_cycle_where_it_decides_otherwise(decision: int) -> None:
    journal, bound = ran("fifo")
    found = replay(journal.header, journal, changed(bound, decision, other_memo))
    assert found.decisions == decision
    difference = found.difference
    assert difference is not None
    assert difference.cycle == cycle_of(journal, decision)
    assert difference.at_s == journal.cycles[difference.cycle - 1].at_s
    assert difference.fields == ("memo",)
    assert difference.now.plan is not None
    assert difference.now.plan.memo == "changed on purpose"
    assert difference.recorded.plan is not None
    assert difference.recorded.plan.memo != "changed on purpose"


def test_reasons_in_other_words_are_counted_and_are_no_difference() -> None:
    journal, bound = ran("fifo")
    with_reasons = [d for d in range(20) if (p := journal.cycles[cycle_of(journal, d) - 1].plan) and p.reasons]

    def in_other_words(plan: Plan) -> Plan:
        return replace(plan, reasons=dict.fromkeys(plan.reasons, "in other words"))

    found = replay(journal.header, journal, changed(bound, with_reasons[3], in_other_words))
    assert found.difference is None
    assert found.reworded == 1
    assert replay(journal.header, journal, bound).reworded == 0


def test_a_reason_for_another_job_is_a_difference() -> None:
    journal, bound = ran("fifo")
    found = replay(journal.header, journal, changed(bound, 7, lambda p: replace(p, reasons=p.reasons | {"x": "new"})))
    assert found.difference is not None
    assert found.difference.fields == ("reasons",)


def test_a_difference_tells_what_each_plan_changes() -> None:
    journal, bound = ran("fifo")
    decision = next(
        d for d in range(40) if (plan := journal.cycles[cycle_of(journal, d) - 1].plan) is not None and plan.put
    )
    found = replay(journal.header, journal, changed(bound, decision, lambda plan: replace(plan, put=())))
    difference = found.difference
    assert difference is not None
    assert "put" in difference.fields
    assert any(change.startswith("gets ") for change in difference.recorded.changes.values())
    assert difference.now.changes == {}


def test_a_plan_that_would_now_be_refused_differs() -> None:
    journal, bound = ran("fifo")
    found = replay(journal.header, journal, changed(bound, 5, lambda plan: replace(plan, drop=("nowhere",))))
    assert found.difference is not None
    assert found.difference.now.refused == ("the plan drops partition 'nowhere', which does not exist",)


def test_another_policy_is_compared_by_what_it_does() -> None:
    journal, _bound = ran("fifo")
    found = replay(journal.header, journal, find("srtf").bound())
    assert found.difference is not None
    assert set(found.difference.fields) <= {"put", "drop", "ends", "checkpoints", "tiers"}
    same = replay(journal.header, journal.cycles[: found.difference.cycle - 1], find("srtf").bound())
    assert same.difference is None


def test_a_policy_that_is_asked_otherwise_differs() -> None:
    journal, bound = ran("fifo")
    at = next(n for n, cycle in enumerate(journal, 1) if n > 50 and cycle.plan is not None)
    cycles = [replace(c, plan=None) if n == at else c for n, c in enumerate(journal, 1)]
    found = replay(journal.header, cycles, bound)
    assert found.difference is not None
    assert (found.difference.cycle, found.difference.fields) == (at, ("asked",))
    assert not found.difference.recorded.asked


def test_a_policy_that_breaks_is_named() -> None:
    journal, bound = ran("fifo")

    def broken(_plan: Plan) -> Plan:
        raise ZeroDivisionError("by nought")

    with pytest.raises(PolicyBrokeError, match=r"policy 'fifo' at [\d.]+ s: ZeroDivisionError: by nought"):
        replay(journal.header, journal, changed(bound, 3, broken))


def test_a_fact_that_no_run_can_have_recorded_is_refused_by_its_cycle() -> None:
    journal, bound = ran("fifo")
    strange = Cycle(1.0, (JobSubmitted(1.0, Job("none", sizes=())),))
    with pytest.raises(JournalError, match="cycle 4 at 1 s: its events contradict earlier cycles: "):
        replay(journal.header, [*journal.cycles[:3], strange], bound)


def test_the_encoding_is_that_of_a_plan_that_came_back() -> None:
    assert encoded(Plan(reviews={"a": 5})) == encoded(Plan(reviews={"a": 5.0}))
    assert encoded(Plan(memo=(1, 2))) == encoded(Plan(memo=[1, 2]))
    assert encoded(Plan(memo={"b": 1, "a": 2})) == encoded(Plan(memo={"a": 2, "b": 1}))
    assert encoded(Plan(memo=1)) != encoded(Plan(memo=2))


def test_progress_is_told_now_and_then() -> None:
    journal, bound = ran("fifo")
    told: list[int] = []
    replay(journal.header, journal, bound, told.append)
    assert told == list(range(256, len(journal) + 1, 256))
