"""MLF-RL as a policy: its network ranks, places and evicts, and MLF-H decides where it must not."""

from functools import partial

import numpy as np
import pytest
from msgspec.structs import replace
from tests.unit.policies.mlfs.test_mlf_h import chain, placed

from hocket.executors.simulated import BeliefMode, simulate
from hocket.model.event import JobEnded
from hocket.policies import find
from hocket.policies.mlfs.mlf_rl import FAR, decide_with
from hocket.policies.mlfs.network import HOST_FEATURES, JOB_FEATURES, LEAVING_FEATURES, PolicyNetwork
from hocket.policies.mlfs.weights_file import SHIPPED
from hocket.testing.builders import cluster, submitted
from hocket.testing.harness import Harness
from hocket.workloads.mlfs import mlfs_workload, servers


def network(linear=None, **arrays):
    """A network that scores by these features alone, and else does as MLF-H."""
    n = len(JOB_FEATURES)
    weights = np.array([(linear or {}).get(name, 0.0) for name in JOB_FEATURES])
    neutral = {
        "mean": np.zeros(n), "scale": np.ones(n), "low": np.full(n, -np.inf), "high": np.full(n, np.inf),
        "linear": weights, "hidden": np.zeros((n, 1)), "bias": np.zeros(1), "out": np.zeros(1), "offset": np.zeros(1),
        "hosts": np.zeros(len(HOST_FEATURES)), "gpu": np.zeros(1), "missing": np.zeros(1),
        "leaving": np.array([-1.0] + [0.0] * (len(LEAVING_FEATURES) - 1)),
    }  # fmt: skip
    return PolicyNetwork(**(neutral | arrays))


def bound(of, **knobs):
    policy = find("mlf_rl").bound({"round_s": 0, **knobs})
    return replace(policy, decide=partial(decide_with, params=policy.params, network=of))


def first_started(of, *jobs):
    """Which of these jobs, that come together, one GPU gets first."""
    world = Harness.of(bound(of), cluster("1x1"))
    world.tell(*(submitted(job) for job in jobs))
    return {task.partition("/")[0] for task in placed(world.snapshot)}


@pytest.mark.parametrize(("weight", "first"), [(1.0, "large"), (-1.0, "small")])
def test_jobs_start_in_the_order_of_their_scores(weight, first):
    jobs = (chain("small", 1, 0.5), chain("large", 1, 0.9))
    assert first_started(network({"needs": weight}), *jobs) == {first}


@pytest.mark.parametrize(("weight", "node"), [(-5.0, "n0"), (0.0, "n1"), (5.0, "n1")])
def test_what_the_network_makes_of_a_server_counts(weight, node):
    hosts = np.array([weight] + [0.0] * (len(HOST_FEATURES) - 1))
    world = Harness.of(bound(network({"priority": 1.0}, hosts=hosts)), cluster("2x1"))
    world.tell(submitted(chain("a", 1, 0.3)))
    world.tell(submitted(chain("b", 1, 0.3)))
    assert {p.slices[0].node for p in world.snapshot.partitions.values() for t in p.tenants if t.job == "b"} == {node}


@pytest.mark.parametrize(("counts", "gpus"), [(0.0, 2), (-2.0, 1)])
def test_the_network_may_fill_gpus_or_spread_tasks(counts, gpus):
    world = Harness.of(bound(network({"priority": 1.0}, gpu=np.array([counts]))), cluster("1x2"))
    world.tell(submitted(chain("a", 1, 0.3)))
    world.tell(submitted(chain("b", 1, 0.3)))
    assert len(world.snapshot.partitions) == gpus


def test_a_score_is_that_of_the_job_alone():
    columns = np.random.default_rng(0).normal(size=(50, len(JOB_FEATURES)))
    of = network(hidden=np.random.default_rng(1).normal(size=(len(JOB_FEATURES), 1)), out=np.ones(1))
    np.testing.assert_allclose(of.scores(columns)[7:9], of.scores(columns[7:9]))


# -- MLF-H goes on ------------------------------------------------------------------------------------------


def run_with(policy, seed=3):
    """What a short run does, and the reasons that were given."""
    load = mlfs_workload(25, 4 * 3600.0, 1800.0, 1.0, seed=seed)
    ran = simulate(load, servers((3, 4)), policy, seed=seed, beliefs=BeliefMode("oracle"))
    ends = {e.job: e.at_s for cycle in ran.journal for e in cycle.events if isinstance(e, JobEnded)}
    reasons = [r for cycle in ran.journal if cycle.plan is not None for r in cycle.plan.reasons.values()]
    return ends, reasons


def test_with_unsound_weights_mlf_h_decides_and_the_reasons_say_why(tmp_path):
    (tmp_path / "cut.json").write_bytes(SHIPPED["mlf_rl"].read_bytes()[:300])
    ends, reasons = run_with(find("mlf_rl").bound({"weights_file": str(tmp_path / "cut.json")}))
    assert ends == run_with(find("mlf_h").bound())[0]
    assert reasons
    assert all("(by MLF-H: weights 'cut.json': Input data was truncated)" in reason for reason in reasons)


def test_far_from_its_training_mlf_h_decides_and_the_reasons_say_so():
    far = network({"needs": 5.0}, high=np.full(len(JOB_FEATURES), -100.0))
    world = bound(far, round_s=60)
    ends, reasons = run_with(world)
    assert ends == run_with(find("mlf_h").bound())[0]
    assert sum(FAR in reason for reason in reasons) > 10
    assert run_with(bound(far, round_s=60, guard=False))[0] != ends


def test_a_few_jobs_far_from_training_do_not_matter():
    low = network(high=np.array([0.0] + [np.inf] * (len(JOB_FEATURES) - 1)))
    columns = np.full((8, len(JOB_FEATURES)), -1.0)
    columns[:2, 0] = 1.0
    assert not low.is_far(columns)
    columns[2, 0] = 1.0
    assert low.is_far(columns)


def test_what_all_jobs_share_is_far_for_all_of_them():
    n = len(JOB_FEATURES)
    of = network(low=np.full(n, -1.0), high=np.full(n, 1.0))
    for used, pressure in ((0.0, 0.0), (2.0, 0.0), (0.0, 2.0), (-2.0, 0.0), (1.0, -1.0)):
        columns = np.zeros((4, n))
        columns[:, -2:] = used, pressure
        assert of.is_far_for_all(used, pressure) is of.is_far(columns)
    assert JOB_FEATURES[-2:] == ("used", "pressure")


@pytest.mark.parametrize(("constant", "stays"), [(-1.0, False), (1.0, True)])
def test_a_task_that_fits_nowhere_waits_or_stays_as_the_network_says(constant, stays):
    leaving = np.array([constant] + [0.0] * (len(LEAVING_FEATURES) - 1))
    policy = bound(network({"priority": 1.0}, leaving=leaving), round_s=60)
    load = mlfs_workload(40, 2 * 3600.0, 1800.0, 1.0, seed=3)  # Its jobs take other loads than they ask for.
    ran = simulate(load, servers((5, 4)), policy, seed=3, beliefs=BeliefMode("oracle"))
    reasons = [r for cycle in ran.journal if cycle.plan is not None for r in cycle.plan.reasons.values()]
    assert any("waits: its server is overloaded" in reason for reason in reasons) is not stays
    assert any("stays: no other server has room for it" in reason for reason in reasons) is stays
