"""What is kept from one decision to the next only saves time."""

import threading

import pytest

from hocket.control.controller import Controller, run
from hocket.control.journal import MemoryJournal
from hocket.control.ports import Header
from hocket.control.state import empty
from hocket.executors.simulated import BeliefMode
from hocket.executors.simulated.executor import SimulatedExecutor
from hocket.policies import find
from hocket.policies.mlfs import kept
from hocket.policies.mlfs.kept import Rows, forget
from hocket.workloads.mlfs import mlfs_workload


def decided(workload, settings=None, each=lambda decide, snapshot: decide(snapshot)):
    """All decisions of a run, each made by `each`."""
    bound, made = find("mlf_h").bound(settings or {}), []

    def decide(snapshot):
        made.append((snapshot, each(bound.decide, snapshot)))
        return made[-1][1]

    controller = Controller(
        empty(workload.nodes), decide, bound.order, MemoryJournal(Header("mlf_h", nodes=workload.nodes)), **bound.needs
    )
    run(controller, SimulatedExecutor(workload, workload.nodes, beliefs=BeliefMode("noisy", 0.11)))
    return bound.decide, made


@pytest.mark.parametrize("settings", [{}, {"whole": False}, {"evict": False, "copies": 1}])
def test_a_decision_is_the_same_with_and_without_what_is_kept(settings):
    def twice(decide, snapshot):
        warm = decide(snapshot)
        forget()
        assert decide(snapshot) == warm
        return warm

    forget()
    _decide, made = decided(mlfs_workload(60, 10000.0, 3600.0, 1.0, seed=2), settings, twice)
    assert sum(bool(plan.put) for _s, plan in made) > 20


def test_a_decision_is_the_same_whatever_was_decided_before():
    decide, made = decided(mlfs_workload(40, 5000.0, 3600.0, 1.0, seed=4))
    forget()
    for snapshot, plan in reversed(made):
        assert decide(snapshot) == plan


def test_decisions_in_several_threads_do_not_meet():
    decide, made = decided(mlfs_workload(40, 5000.0, 3600.0, 1.0, seed=5))
    wrong = []

    def again(moments):
        wrong.extend(s.now_s for s, plan in moments if decide(s) != plan)

    threads = [threading.Thread(target=again, args=(made[n::2] * 3,)) for n in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_columns_that_broke_off_are_not_kept():
    forget()
    with pytest.raises(ZeroDivisionError), kept.rows(2):
        raise ZeroDivisionError
    assert not kept._spare


def test_rows_of_entries_that_are_gone_are_cleared_away():
    rows = Rows(2)
    for n in range(5):
        entries = [((float(n), float(i), f"s{i % 3}"), i, f"j{i}") for i in range(600)]
        one, two, text = rows.columns(entries)
        assert one.tolist() == [n] * 600
        assert two.tolist() == list(range(600))
        assert [rows.texts[int(i)] for i in text] == [f"s{i % 3}" for i in range(600)]
    assert len(rows._entries) <= 2 * 600 + 1024 + 600
