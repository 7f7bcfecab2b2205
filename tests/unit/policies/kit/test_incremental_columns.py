"""What is kept from one decision to the next only saves time."""

import threading
from random import Random

import pytest

from hocket.control.controller import Controller
from hocket.control.drive import drive
from hocket.control.journal import MemoryJournal
from hocket.control.ports import Header
from hocket.executors.simulated import BeliefMode
from hocket.executors.simulated.executor import SimulatedExecutor
from hocket.model.snapshot import empty_snapshot
from hocket.model.versioned import OpenQueue
from hocket.policies import find
from hocket.policies.kit.decision_cache import clear
from hocket.policies.kit.incremental_columns import GpuColumns, QueueColumns
from hocket.workloads.mlfs import mlfs_workload


def decided(workload, settings=None, each=lambda decide, snapshot: decide(snapshot), policy="mlf_h"):
    """All decisions of a run, each made by `each`."""
    bound, made = find(policy).bound(settings or {}), []

    def decide(snapshot):
        made.append((snapshot, each(bound.decide, snapshot)))
        return made[-1][1]

    controller = Controller(
        empty_snapshot(workload.nodes),
        decide,
        bound.order,
        MemoryJournal(Header(policy, nodes=workload.nodes)),
        **bound.needs,
    )
    drive(controller, SimulatedExecutor(workload, workload.nodes, beliefs=BeliefMode("noisy", 0.11)))
    return bound.decide, made


@pytest.mark.parametrize(
    ("policy", "settings"),
    [
        ("mlf_h", {}),
        ("mlf_h", {"whole": False}),
        ("mlf_h", {"evict": False, "copies": 1}),
        ("mlfs_c", {}),
        ("mlfs_c", {"inner": "graphene"}),
        ("gandiva", {}),
    ],
)
def test_a_decision_is_the_same_with_and_without_what_is_kept(policy, settings):
    def twice(decide, snapshot):
        warm = decide(snapshot)
        clear()
        assert decide(snapshot) == warm
        return warm

    clear()
    _decide, made = decided(mlfs_workload(25, 4000.0, 3600.0, 1.0, seed=2), settings, twice, policy)
    assert sum(bool(plan.put) for _s, plan in made) > 20


def test_a_decision_is_the_same_whatever_was_decided_before():
    decide, made = decided(mlfs_workload(25, 4000.0, 3600.0, 1.0, seed=4))
    clear()
    for snapshot, plan in reversed(made):
        assert decide(snapshot) == plan


def test_decisions_in_several_threads_do_not_meet():
    decide, made = decided(mlfs_workload(25, 4000.0, 3600.0, 1.0, seed=5))
    wrong = []

    def again(moments):
        wrong.extend(s.now_s for s, plan in moments if decide(s) != plan)

    threads = [threading.Thread(target=again, args=(made[n::2] * 3,)) for n in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.parametrize("settings", [{}, {"whole": False}])
def test_columns_of_gpus_are_those_of_the_snapshot_whatever_came_before(settings):
    _decide, made = decided(mlfs_workload(25, 2500.0, 3600.0, 1.0, seed=3), settings)
    kept, wanted = GpuColumns(made[0][0].capacity.layout), 0
    for snapshot, _plan in made:
        fresh = GpuColumns(snapshot.capacity.layout)
        for columns in (kept, fresh):
            columns.follow(snapshot)
        for name in ("left", "room", "tenants", "amounts"):
            assert (getattr(kept, name) == getattr(fresh, name)).all(), name
        for name in ("places", "shapes", "missing", "missing_by_rest"):
            assert getattr(kept, name) == getattr(fresh, name), name
        tasks = sorted((needs, job, k) for job, missing in kept.missing.items() for k, needs in missing)
        assert tasks == sorted(
            ((load, *rest), j, k) for rest, line in kept.missing_by_rest.items() for load, j, k in line
        )
        wanted += len(tasks)
    assert wanted > 20


def of(rows):
    """What stands in each row, by job."""
    (one, two, submission), text = rows.columns()
    return {
        entry[-1]: (one[n], two[n], rows.texts[text[n]], submission[n]) for n, entry in enumerate(rows.entries)
    }  # fmt: skip


def test_rows_are_those_of_the_queue_whatever_came_and_went():
    dice, queue, rows, there = Random(1), OpenQueue({}), QueueColumns(2), {}
    for n in range(400):
        for k in range(dice.randrange(8)):
            job_id = f"{n}/{k}"
            there[job_id] = entry = ((dice.random(), float(n), f"s{dice.randrange(4)}"), len(there), job_id)
            queue.put(k % 3, entry)
        for job_id in dice.sample(sorted(there), min(len(there), dice.randrange(9))):
            queue.drop(int(job_id.partition("/")[2]) % 3, there.pop(job_id))
        if n % 3:
            rows.follow(queue.seal())
            assert of(rows) == {j: (*entry[0], entry[1]) for j, entry in there.items()}
            assert set(rows.present()) == {entry[0][2] for entry in there.values()}


def test_no_more_texts_are_remembered_than_there_ever_were_at_once():
    queue, rows, line = OpenQueue({}), QueueColumns(1), []
    for n in range(100):
        line.append(((0.0, f"s{n}"), n, f"j{n}"))
        queue.put(0, line[-1])
        if len(line) > 5:
            queue.drop(0, line.pop(0))
        rows.follow(queue.seal())
    assert set(rows.present()) == {entry[0][1] for entry in line}
    assert len(rows.texts) <= 6


def test_rows_follow_a_queue_by_what_changed():
    queue, rows = OpenQueue({}), QueueColumns(1)
    for n in range(5000):
        queue.put(0, ((float(n), "s"), n, f"j{n}"))
    rows.follow(queue.seal())
    table, _text = rows.columns()
    table[0] = -1.0  # Servers that are not changed keep this.
    queue.put(0, ((5000.0, "s"), 5000, "j5000"))
    queue.drop(0, ((7.0, "s"), 7, "j7"))
    rows.follow(queue.seal())
    (numbers, _submission), _text = rows.columns()
    assert sorted(numbers.tolist()) == [-1.0] * 4999 + [5000.0]
