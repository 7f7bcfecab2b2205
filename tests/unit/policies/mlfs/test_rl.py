"""RL as a policy: what it learned ranks and places, and what it does not look at changes nothing."""

from functools import partial

import numpy as np
import pytest
from msgspec.structs import replace
from tests.unit.policies.mlfs.test_mlf_h import chain, placed
from tests.unit.policies.mlfs.test_mlf_rl import network, run_with

from hocket.learn.training import applied, evolving, numbers
from hocket.model.event import JobEnded
from hocket.policies import find
from hocket.policies.mlfs.network import HOST_FEATURES, JOB_FEATURES
from hocket.policies.mlfs.rl import HOST_READS, JOB_READS, decide_with, limited, untrained
from hocket.policies.mlfs.weights_file import SHIPPED
from hocket.testing.builders import cluster, submitted
from hocket.testing.harness import Harness


def bound(of, **knobs):
    policy = find("rl").bound({"round_s": 0, **knobs})
    return replace(policy, decide=partial(decide_with, params=policy.params, network=of))


@pytest.mark.parametrize(("weight", "first"), [(1.0, "large"), (-1.0, "small")])
def test_jobs_start_in_the_order_of_their_scores(weight, first):
    world = Harness.of(bound(network({"needs": weight})), cluster("1x1"))
    world.tell(submitted(chain("small", 1, 0.5)), submitted(chain("large", 1, 0.9)))
    assert {task.partition("/")[0] for task in placed(world.snapshot)} == {first}


def test_before_training_the_first_comes_first():
    world = Harness.of(bound(untrained()), cluster("1x1"))
    world.tell(submitted(chain("running", 1, 0.9)))
    for at_s, name in ((10.0, "early"), (20.0, "late")):
        world.tell(submitted(chain(name, 1, 0.9), at_s=at_s))
    world.settle()
    world.tell(JobEnded(30.0, "running", "finished"))
    assert {task.partition("/")[0] for task in placed(world.snapshot)} == {"early"}


def test_with_unsound_weights_the_first_comes_first_and_the_reasons_say_why(tmp_path):
    (tmp_path / "cut.json").write_bytes(SHIPPED["rl"].read_bytes()[:300])
    ends, reasons = run_with(find("rl").bound({"weights_file": str(tmp_path / "cut.json")}))
    assert ends == run_with(bound(untrained(), round_s=60))[0]
    note = "(first come, first served: weights 'cut.json': Input data was truncated)"
    assert reasons
    assert all(note in reason for reason in reasons)


def test_what_it_does_not_look_at_has_no_weight():
    n = len(JOB_FEATURES)
    of = limited(network(dict.fromkeys(JOB_FEATURES, 1.0), hidden=np.ones((n, 1)), hosts=np.ones(len(HOST_FEATURES))))
    assert {name for name, weight in zip(JOB_FEATURES, of.linear, strict=True) if weight} == set(JOB_READS)
    assert {name for name, weight in zip(JOB_FEATURES, of.hidden[:, 0], strict=True) if weight} == set(JOB_READS)
    assert {name for name, weight in zip(HOST_FEATURES, of.hosts, strict=True) if weight} == set(HOST_READS)


def test_training_changes_what_it_looks_at_and_nothing_else():
    base = untrained()
    changed = applied(base, [1.0] * numbers(base, "rl"), "rl")
    assert {part.array for part in evolving(base, "rl")} == {"linear", "hosts", "gpu"}
    assert limited(changed).linear.tolist() == changed.linear.tolist()
    assert limited(changed).hosts.tolist() == changed.hosts.tolist()
    assert (changed.linear != base.linear).sum() == len(JOB_READS)
    assert (base.linear != 0).sum() == 1
