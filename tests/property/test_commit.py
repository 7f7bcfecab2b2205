"""The common case of `commit` does exactly what `adopt` and `next_actions` do."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hocket.control import commit
from hocket.control.commit import commit_starts
from hocket.executors.simulated import simulate
from hocket.model.job import Job
from hocket.model.resources import Node
from hocket.model.snapshot import Snapshot
from hocket.policies import find, policies
from hocket.testing import strategies as some
from hocket.testing.harness import Harness
from hocket.workloads import Submission, Truth, Workload

examples = settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))


def played(bound, cluster, history, commit_starts) -> Harness:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(commit, "commit_starts", commit_starts)
        return some.play(Harness.of(bound, cluster), history, cluster)


@examples
@given(st.data())
def test_the_common_case_is_no_special_case(data):
    cluster = data.draw(some.nodes())
    bound = find(data.draw(st.sampled_from(sorted(policies())))).bound()
    history = data.draw(some.histories(cluster, 30))
    short = played(bound, cluster, history, commit_starts)
    long = played(bound, cluster, history, lambda *_: None)
    assert short.log == long.log
    assert short.journal.cycles == long.journal.cycles
    for field in Snapshot.__struct_fields__:
        assert getattr(short.snapshot, field) == getattr(long.snapshot, field), field


def test_a_plan_that_preempts_jobs_is_a_common_case():
    taken = []

    def way(state, plan, capacity):
        actions = commit_starts(state, plan, capacity)
        taken.append((bool(plan.drop), actions is not None))
        return actions

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(commit, "commit_starts", way)
        jobs = (
            Submission(0.0, Job("long", sizes=(2,)), Truth(9000.0, 2)),
            Submission(4000.0, Job("new", sizes=(2,)), Truth(60.0, 2)),
        )
        simulate(Workload("test", jobs), [Node("pool", 2)], find("las").bound())
    assert (True, True) in taken
