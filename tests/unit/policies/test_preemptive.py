"""srtf, edf and round robin: which jobs preempt which, and which do not."""

import pytest

from hocket.model.action import Move, Pause, Resize, Resume, Start
from hocket.model.criterion import parse
from hocket.model.curve import Beliefs, Estimate
from hocket.model.event import JobEnded, JobSubmitted
from hocket.model.resources import Node
from hocket.policies import find
from hocket.testing.builders import cluster, job, submitted
from hocket.testing.harness import Harness


def after(policy: str, *events, nodes="1x4", **knobs) -> Harness:
    harness = Harness.of(find(policy).bound(knobs), cluster(nodes) if isinstance(nodes, str) else nodes)
    for event in events:
        harness.tell(event)
        harness.settle()
    return harness


def test_srtf_pauses_the_job_with_the_longest_time_left():
    harness = after(
        "srtf", submitted(job("a", 2), 0, 500), submitted(job("b", 2), 0, 900), submitted(job("c", 2), 10, 60)
    )
    assert harness.did(Pause) == ["b"]
    assert harness.did(Start) == ["a", "b", "c"]


def test_srtf_compares_what_is_left_now_not_what_was_left_at_the_start():
    harness = after("srtf", submitted(job("a", 4), 0, 500), submitted(job("b", 4), 450, 100))
    assert harness.did(Pause) == []  # a has 50 s left


def test_srtf_swaps_no_job_for_less_than_the_hysteresis():
    events = submitted(job("a", 4), 0, 105), submitted(job("b", 4), 0.5, 100)
    assert after("srtf", *events).did(Pause) == []
    assert after("srtf", *events, hysteresis=0).did(Pause) == ["a"]


def test_srtf_puts_jobs_of_which_nothing_is_believed_last():
    harness = after("srtf", submitted(job("a", 4)), submitted(job("b", 4), 1, 1e5))
    assert harness.did(Pause) == ["a"]


def test_srtf_gives_a_displaced_elastic_job_what_is_left_over():
    harness = after("srtf", submitted(job("a", 1, 2, 4), 0, 900), submitted(job("b", 1), 1, 10))
    assert harness.did(Pause) == []
    assert harness.did(Resize) == ["a"]
    assert (harness.snapshot.jobs["a"].size, harness.snapshot.jobs["b"].size) == (2, 1)


def test_srtf_reviews_a_job_that_outlived_its_belief():
    harness = after("srtf", submitted(job("a", 4), 0, 100), submitted(job("b", 4), 50, 120))
    assert harness.did(Pause) == []
    harness.tell(at_s=160)  # a is believed to need another 160 s
    assert harness.did(Pause) == ["a"]


V100_AND_K80 = [Node("v", 1, "v100"), Node("k", 1, "k80")]


def slow_on_k80(name: str, at_s: float, run_s: float, **more) -> JobSubmitted:
    return JobSubmitted(at_s, job(name, **more), Beliefs(Estimate(run_s), kinds={"k80": 0.1}))


def test_srtf_counts_what_is_left_at_the_speed_of_the_place():
    slow, mid = slow_on_k80("slow", 0, 1000, gpu_kinds=("k80",)), submitted(job("mid", gpu_kinds=("k80",)), 1, 3000)
    harness = after("srtf", slow, mid, nodes=V100_AND_K80)
    assert harness.did(Pause) == ["slow"]  # It would take 10,000 s.
    assert harness.did(Start) == ["slow", "mid"]
    harness.tell(JobEnded(3001, "mid"))
    assert harness.did(Resume) == ["slow"]


def test_srtf_pauses_no_job_for_one_that_would_be_slower_there():
    # 'new' takes 1000 s on the v100, and 10,000 on the k80, where 8000 are left.
    jobs = submitted(job("k", gpu_kinds=("k80",)), 0, 8000), submitted(job("v", gpu_kinds=("v100",)), 0, 5000)
    harness = after("srtf", *jobs, slow_on_k80("new", 1, 1000), nodes=V100_AND_K80)
    assert harness.did(Pause) == ["v"]
    alone = after("srtf", jobs[0], slow_on_k80("new", 1, 1000), nodes=V100_AND_K80[1:])
    assert alone.did(Pause) == []


@pytest.mark.parametrize("there", [(), (("long", 90_000),)])  # on a free GPU, or in another's place
def test_srtf_starts_the_job_that_is_done_soonest_where_there_is_room(there):
    harness = Harness.of(find("srtf").bound(), V100_AND_K80[1:])
    for name, run_s in there:
        harness.tell(submitted(job(name), 0, run_s))
        harness.settle()
    harness.tell(slow_on_k80("slow", 1, 1000), submitted(job("fast"), 1, 3000))  # 'slow' takes 10,000 s there
    harness.settle()
    assert harness.did(Start)[-1] == "fast"
    assert harness.did(Pause) == [name for name, _run_s in there]
    harness.tell(JobEnded(3001, "fast"))
    harness.settle()
    assert harness.did(Start)[-1] == "slow"


def test_srtf_asks_others_of_the_same_shape_when_one_is_slow_there():
    first, slow, fast = submitted(job("first"), 0, 5000), slow_on_k80("slow", 1, 1000), submitted(job("fast"), 1, 3000)
    harness = Harness.of(find("srtf").bound(), V100_AND_K80[1:])
    harness.tell(first)
    harness.settle()
    harness.tell(slow, fast)
    assert harness.did(Pause) == ["first"]
    harness.settle()
    assert harness.did(Start) == ["first", "fast"]


def test_edf_pauses_the_latest_deadline():
    harness = after(
        "edf",
        submitted(job("none", 1)),
        submitted(job("late", 2, deadline_s=900.0)),
        submitted(job("soon", 1, deadline_s=100.0)),
        submitted(job("urgent", 2, deadline_s=50.0), 10),
    )
    # What has no deadline goes first, but alone it does not suffice; with 'late' it is not needed.
    assert harness.did(Pause) == ["late"]


def test_edf_counts_the_deadline_of_a_criterion():
    harness = after(
        "edf",
        submitted(job("a", 4, deadline_s=900.0)),
        submitted(job("b", 4, criterion=parse("acc >= 90% within 60s")), 5),
    )
    assert harness.did(Pause) == ["a"]
    run_time = after(
        "edf", submitted(job("a", 4, deadline_s=900.0)), submitted(job("b", 4, criterion=parse("for 60s")), 5)
    )
    assert run_time.did(Pause) == []  # "for 60s" says how long, not until when


def test_edf_without_preemption_waits():
    events = submitted(job("a", 4, deadline_s=900.0)), submitted(job("b", 4, deadline_s=9.0), 5)
    assert after("edf", *events, preempt=False).did(Pause) == []


def test_round_robin_lets_each_have_its_turn():
    harness = after("round_robin", submitted(job("a", 4)), submitted(job("b", 4), 10), submitted(job("c", 4), 20))
    turns = []
    for at_s in (1800, 3600, 5400, 7200):
        assert harness.controller.next_timer_s() == at_s
        harness.tell(at_s=at_s)
        harness.settle()
        turns += [v.job.id for v in harness.snapshot.jobs.values() if v.size]
    assert turns == ["b", "c", "a", "b"]


def test_round_robin_leaves_a_job_alone_while_no_job_waits():
    harness = after("round_robin", submitted(job("a", 4)))
    assert harness.controller.next_timer_s() is None
    harness.tell(submitted(job("b", 4), 5000))
    harness.settle()
    assert harness.did(Pause) == ["a"]  # Its turn was long over.


def test_round_robin_keeps_room_for_a_large_job_that_has_waited_a_turn():
    harness = after(
        "round_robin",
        *(submitted(job(f"a{i}")) for i in range(4)),
        submitted(job("large", 4), 10),
        submitted(job("b"), 20),
        quantum_s=100,
    )
    harness.tell(JobEnded(50, "a0"))
    harness.settle()
    assert harness.snapshot.jobs["b"].size == 1  # free, and 'large' has not waited long
    harness.tell(submitted(job("c"), 100), at_s=110)
    harness.settle()
    harness.tell(JobEnded(120, "a1"))
    harness.settle()
    assert harness.snapshot.jobs["c"].size == 0
    assert "'large' has waited a whole turn" in harness.asked[-1][1].reasons["*"]
    harness.tell(at_s=150)
    harness.settle()
    assert harness.snapshot.jobs["large"].size == 4


def test_no_job_is_paused_for_one_that_would_not_fit_anyway():
    for policy in ("srtf", "edf", "las"):
        nodes = [*cluster("1x4", gpu_kind="v100"), *[n for n in cluster("2x1", gpu_kind="p100") if n.id == "n1"]]
        harness = Harness.of(find(policy).bound(), nodes)
        harness.tell(submitted(job("a", 4), 0, 1e6), submitted(job("p", 1, gpu_kinds=("p100",)), 0, 5))
        harness.settle()
        harness.tell(submitted(job("b", 1, gpu_kinds=("p100",), deadline_s=500.0), 4000, 50))
        harness.settle()
        assert not {"a"} & set(harness.did(Pause) + harness.did(Move) + harness.did(Resume)), policy
