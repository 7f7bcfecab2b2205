"""The queue in columns: which jobs are tried, in which order, and which only later."""

from math import inf

import numpy as np
import pytest
from msgspec.structs import replace

from hocket.control.fold import fold
from hocket.control.state import State
from hocket.model.curve import Beliefs, Estimate
from hocket.model.event import JobSubmitted
from hocket.model.snapshot import empty_snapshot
from hocket.policies import find
from hocket.policies.kit.decision_cache import clear
from hocket.policies.mlfs.mlf_h import MlfH
from hocket.policies.mlfs.queue import queue_of
from hocket.workloads.mlfs import mlfs_workload

WEIGHTS = MlfH().weights


def waiting(jobs=200, seed=1):
    """A snapshot in which these wait, submitted over a month."""
    workload = mlfs_workload(jobs, 30 * 86400.0, 3600.0, 1.0, seed=seed)
    state = State(empty_snapshot(workload.nodes), find("mlf_h").bound({}).order)
    for n, submission in enumerate(workload.submissions):
        beliefs = Beliefs(run_s=Estimate(1000.0 * n, 0.0)) if n % 4 else Beliefs()
        fold(state, [JobSubmitted(submission.at_s, submission.job, beliefs)])
    return state.snapshot()


def all_tasks(queue, among):
    return np.arange(len(queue.entries)) if among is None else among


@pytest.fixture
def snapshot():
    clear()
    return waiting()


@pytest.mark.parametrize("place", [0, 3, 50, 199])
def test_ranking_a_job_later_does_not_move_it(snapshot, place):
    with queue_of(snapshot, WEIGHTS, all_tasks) as queue:
        whole = queue.order.tolist()
        assert queue.later is None
    first = whole[place]
    with queue_of(snapshot, WEIGHTS, all_tasks, lambda _queue: first) as queue:
        assert queue.order.tolist() == whole[: place + 1]
        assert queue.rank(queue.later()).tolist() == whole[place + 1 :]


@pytest.mark.parametrize("weights", [WEIGHTS, replace(WEIGHTS, waiting=0.0), replace(WEIGHTS, alpha=1.0)])
def test_a_job_that_has_waited_too_short_to_go_first_does_not(snapshot, weights):
    excluded = 0
    with queue_of(snapshot, weights, all_tasks) as queue:
        whole, priority = queue.order.tolist(), queue.priority.copy()
    for place in range(0, len(whole), 7):
        tried = []

        def looked_at(_queue, among, tried=tried):
            tried.append(set(among.tolist()))
            return among

        with queue_of(snapshot, weights, looked_at, lambda _queue, n=whole[place]: n) as queue:
            assert queue.order.tolist() == whole[: place + 1]
        excluded += len(whole) - len(tried[0])
        assert tried[0] >= {n for n in whole if priority[n] >= priority[whole[place]]}
    assert excluded > 0 or not weights.waiting * (1 - weights.alpha)


def test_priorities_fall_along_the_order(snapshot):
    with queue_of(snapshot, WEIGHTS, all_tasks) as queue:
        along = queue.priority[queue.order]
    assert (np.diff(along) <= 0).all()


@pytest.mark.parametrize("patience_s", [0.0, 86400.0, 29 * 86400.0, inf])
def test_the_jobs_that_have_waited_longest_are_given_repeatedly(snapshot, patience_s):
    for _ in range(3):  # What was seen before is looked at first.
        with queue_of(snapshot, WEIGHTS, all_tasks, patience_s=patience_s) as queue:
            since_s = {n: snapshot.jobs[entry[-1]].submitted_s for n, entry in enumerate(queue.entries)}
            patient = [n for n in since_s if snapshot.now_s - since_s[n] >= patience_s]
            assert list(queue.longest) == sorted(patient, key=lambda n: (since_s[n], queue.entries[n][1]))
