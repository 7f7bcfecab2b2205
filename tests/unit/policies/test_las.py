"""las: a job that has starved rises to the top, whatever took it off its GPUs."""

import pytest

from hocket.model.action import Pause
from hocket.model.event import JobAsked, JobFailed, JobRequest, NodeJoined, NodeLost
from hocket.policies import find
from hocket.policies.registry import PolicyError
from hocket.testing import laws
from hocket.testing.builders import cluster, job, submission, submitted, workload
from hocket.testing.harness import Harness, simulated

# One GPU and one threshold, at 100 s. Job 'a' runs for 150 s or a little more, and 'b' after it. So 'b' has sunk as
# well when 'a' has waited as long as it ran, and makes way for it.
NODES = cluster("1x1")


def begun(policy: str = "las", *, second_s: float = 10.0) -> Harness:
    harness = Harness.of(find(policy).bound({"levels_gpu_s": [100], "promote": 1}), NODES)
    harness.tell(submitted(job("a")))
    harness.settle()
    harness.tell(submitted(job("b"), second_s))
    return harness


def swap_s(harness: Harness) -> float:
    """When 'b' is paused for 'a', if only timers happen."""
    while (at_s := harness.controller.next_timer_s()) is not None:
        if any(isinstance(a, Pause) and a.job == "b" for a in harness.tell(at_s=at_s)):
            return at_s
        harness.settle()
    raise AssertionError("'a' is not looked at any more")


@pytest.mark.parametrize("policy", ["las", "tiresias"])
@pytest.mark.parametrize("takes_s", [0.0, 10.0, 200.0])
def test_a_pause_may_take_its_time(policy, takes_s):
    harness = begun(policy, second_s=150)
    while (at_s := harness.controller.next_timer_s()) is not None and at_s < 150 + takes_s:
        harness.tell(at_s=at_s)
    harness.answer(at_s=150 + takes_s)  # It holds its GPU until then, and that counts as running.
    harness.settle()
    assert swap_s(harness) == pytest.approx(2 * (150 + takes_s), abs=0.01)


def test_a_job_whose_run_failed_starves_too():
    harness = begun()
    harness.tell(JobFailed(150, "a", "no memory"))
    harness.settle()
    assert swap_s(harness) == pytest.approx(300, abs=0.01)


def test_a_job_that_lost_its_node_starves_too():
    harness = begun()
    harness.tell(NodeLost(150, "n0"))
    harness.tell(NodeJoined(160, NODES[0]))
    harness.settle()
    assert swap_s(harness) == pytest.approx(300, abs=0.01)


def test_a_job_that_its_user_paused_starves_too():
    harness = begun()
    harness.tell(JobAsked(150, "a", JobRequest.PAUSE))
    harness.settle()
    harness.tell(JobAsked(160, "a", JobRequest.RESUME))
    assert swap_s(harness) == pytest.approx(300, abs=0.01)


@pytest.mark.parametrize("policy", ["las", "tiresias"])
@pytest.mark.parametrize("levels", [[5, 3], [5, 5], [0, 5], [-1], [5, float("nan")], [float("inf")]])
def test_thresholds_ascend_from_above_0(policy, levels):
    with pytest.raises(PolicyError, match=f"policy '{policy}': levels_gpu_s: each must be above 0 and above the one"):
        find(policy).bound({"levels_gpu_s": levels})


def test_without_thresholds_all_stand_on_one_level():
    assert find("las").bound({"levels_gpu_s": []}).settings["levels_gpu_s"] == ()


def test_lent_gpus_are_given_back_when_their_job_sinks_to_the_level_of_one_that_waits():
    """The elastic job started first, so it stays before the one that waits, also when both are on the same level."""
    jobs = workload(
        submission(job("elastic", 1, 3), 0, 1000),
        submission(job("waits", 3), 10, 200),  # Sinks at 43 s.
        submission(job("short"), 50, 5),  # takes its place until 55 s
    )
    bound = find("las").bound({"levels_gpu_s": [100], "restart_s": 1})
    laws.hold_in_a_run(bound, jobs, cluster("1x4"))
    ran = simulated(bound, jobs, cluster("1x4"))
    # From 50 s on 'elastic' has three GPUs, so it sinks at 60 s.
    assert ran.ended["waits"][0] == pytest.approx(60 + 200 - 40, abs=0.1)


def test_a_job_that_made_way_takes_the_place_of_one_of_a_lower_level_that_did_not():
    jobs = workload(
        submission(job("low"), 0, 1000),  # Sinks at 100 s; its one GPU is too few for 'urgent'.
        submission(job("high", 1, 2), 90, 100),
        submission(job("urgent", 2, priority=1), 110, 10),
    )
    bound = find("las").bound({"levels_gpu_s": [100]})
    laws.hold_in_a_run(bound, jobs, cluster("1x3"))
    harness = Harness.of(bound, cluster("1x3"))
    for each in jobs.submissions:
        harness.tell(submitted(each.job, each.at_s))
        harness.settle()
    assert {j: v.size for j, v in harness.controller.snapshot.jobs.items()} == {"low": 0, "high": 1, "urgent": 2}
    assert len(harness.asked) == 3, "one decision for each"
