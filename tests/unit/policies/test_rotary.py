"""Rotary's policies and those it is compared with: which job is granted the next epoch, and why."""

import pytest
from msgspec.structs import replace

from hocket.executors.simulated import simulate
from hocket.model.action import Pause, Resize, Start
from hocket.model.criterion import parse
from hocket.model.curve import Beliefs, Curve, Estimate, Point
from hocket.model.event import EpochEnded, JobSubmitted, PastJobsGiven
from hocket.model.job import Job, Kind
from hocket.model.past_job import PastJob
from hocket.model.resources import Demand, Node
from hocket.policies import find
from hocket.reports.account import account
from hocket.testing.builders import cluster, job, submitted
from hocket.testing.harness import Harness
from hocket.workloads.rotary import rotary_workload
from hocket.workloads.truth import Submission, Truth, Workload

ONE_GPU = cluster("1x1")
TWENTY = [Node("db", cores=20.0, mem_mib=64_000.0)]


def training(name: str, until: str, **more) -> Job:
    return job(name, criterion=parse(until), **more)


def query(name: str, until: str = "acc >= 90% within 10000s", cores: int = 20, **more) -> Job:
    sizes = tuple(range(1, cores + 1))
    return Job(name, kind=Kind.QUERY, demand=Demand(cores=1.0), sizes=sizes, criterion=parse(until), **more)


def epoch(of: Harness, name: str, number: int, at_s: float, **metrics: float) -> None:
    """The job reports the end of an epoch."""
    of.tell(EpochEnded(at_s, name, number, metrics))
    of.settle()


def runs(of: Harness) -> list[str]:
    """The jobs that have a place."""
    return [entry[-1] for entry in of.snapshot.placed]


def world(policy: str, *jobs: Job, nodes=ONE_GPU, past: tuple[PastJob, ...] = (), **knobs) -> Harness:
    found = Harness.of(find(policy).bound(knobs), nodes)
    if past:
        found.tell(PastJobsGiven(0.0, past))
    found.tell(*(submitted(j) for j in jobs))
    found.settle()
    return found


# -- a turn is an epoch -------------------------------------------------------------------------------------------


def test_a_job_keeps_its_device_until_its_epoch_ends_and_then_another_has_it():
    w = world("rotary_dlt", training("a", "for 10 epochs"), training("b", "for 10 epochs"), threshold=1.0)
    assert runs(w) == ["a"]
    w.tell(submitted(training("c", "for 10 epochs"), 5.0))
    assert w.did(Pause) == []
    epoch(w, "a", 1, 10.0)
    assert w.did(Pause) == ["a"]
    assert runs(w) == ["b"]


def test_a_job_that_reports_no_epochs_makes_way_after_a_time():
    w = world("bcf", training("a", "for 10h"), training("b", "for 10h"), longest_epoch_s=100.0)
    w.tell(at_s=99.0)
    assert runs(w) == ["a"]
    w.tell(at_s=100.0)
    w.settle()
    assert runs(w) == ["b"]


# -- rotary_dlt ---------------------------------------------------------------------------------------------------


def test_the_job_with_least_progress_goes_first_until_all_have_reached_the_threshold():
    jobs = training("a", "for 4 epochs"), training("b", "for 40 epochs")
    fair = world("rotary_dlt", *jobs, threshold=1.0)
    epoch(fair, "a", 1, 10.0)
    epoch(fair, "b", 1, 20.0)
    assert runs(fair) == ["b"]  # 1 of 40 is less than 1 of 4
    efficient = world("rotary_dlt", *jobs, threshold=0.0)
    epoch(efficient, "a", 1, 10.0)
    assert runs(efficient) == ["a"]


def test_between_the_two_the_order_turns_when_the_last_job_reaches_the_threshold():
    w = world("rotary_dlt", training("a", "for 4 epochs"), training("b", "for 2 epochs"), threshold=0.25)
    epoch(w, "a", 1, 10.0)  # b has none: it goes first
    assert runs(w) == ["b"]
    epoch(w, "b", 1, 20.0)  # all have a quarter: the farthest goes on
    assert runs(w) == ["b"]


def test_the_estimate_is_part_of_the_reason():
    curve = tuple((float(k), 0.95 - 0.8 * 2 ** (-k / 3)) for k in range(1, 21))
    past = (PastJob(model="resnet", metric="acc", points=curve, unit_s=30.0),)
    w = world("rotary_dlt", training("a", "acc >= 90% within 20 epochs", model="resnet"), past=past)
    reason = w.snapshot.jobs["a"].reason
    assert "granted an epoch" in reason
    assert "sure of acc 90% in time, in" in reason


def test_a_job_needs_a_gpu_with_its_estimated_memory():
    nodes = [Node("small", 1, gpu_mem_mib=4000.0), Node("large", 1, gpu_mem_mib=16_000.0)]
    beliefs = Beliefs(memory_mib=Curve((Point(32.0, 9000.0),)))
    w = Harness.of(find("rotary_dlt").bound(), nodes)
    w.tell(JobSubmitted(0.0, training("a", "for 5 epochs"), beliefs))
    w.tell(JobSubmitted(0.0, training("b", "for 5 epochs"), beliefs))
    w.settle()
    assert [s.node for s in w.snapshot.partitions["a"].slices] == ["large"]
    assert "estimated to need 8.8 GiB of a GPU's memory" in w.snapshot.jobs["b"].reason
    off = Harness.of(find("rotary_dlt").bound({"memory": False}), nodes)
    off.tell(JobSubmitted(0.0, training("a", "for 5 epochs"), beliefs))
    off.tell(JobSubmitted(0.0, training("b", "for 5 epochs"), beliefs))
    assert sorted(runs(off)) == ["a", "b"]


def test_an_estimate_beyond_every_gpu_does_not_keep_a_job_waiting_for_ever():
    beliefs = Beliefs(memory_mib=Curve((Point(32.0, 1e6),)))
    w = Harness.of(find("rotary_dlt").bound(), [Node("n", 1, gpu_mem_mib=4000.0)])
    w.tell(JobSubmitted(0.0, training("a", "for 5 epochs"), beliefs))
    assert runs(w) == ["a"]


# -- srf, bcf, laf ------------------------------------------------------------------------------------------------


def test_srf_grants_the_shortest_run_time_first_and_turns_to_the_others():
    jobs = training("long", "for 50 epochs"), training("short", "for 5 epochs"), training("acc", "acc >= 90%")
    w = world("srf", *jobs)
    epoch(w, "long", 1, 1.0)
    assert runs(w) == ["short"]
    epoch(w, "short", 1, 2.0)
    assert runs(w) == ["short"]


def test_bcf_grants_the_biggest_change_first():
    w = world("bcf", training("fine", "acc changes < 0.001"), training("coarse", "acc changes < 5%"))
    epoch(w, "fine", 1, 1.0, acc=0.5)
    assert runs(w) == ["coarse"]


def test_others_take_turns_under_bcf():
    w = world("bcf", *(training(name, "acc >= 90%") for name in "abc"))
    seen = []
    for n in range(6):
        (name,) = runs(w)
        seen.append(name)
        epoch(w, name, n // 3 + 1, 10.0 * (n + 1), acc=0.1)
    assert seen == ["a", "b", "c", "a", "b", "c"]


def test_laf_grants_training_by_target_and_queries_by_value():
    w = world("laf", training("hard", "acc >= 95%"), training("easy", "acc >= 70%"))
    epoch(w, "hard", 1, 1.0, acc=0.1)
    assert runs(w) == ["easy"]
    q = world("laf", query("a", cores=1), query("b", cores=1), nodes=[Node("db", cores=1.0)])
    epoch(q, "a", 1, 60.0, acc=0.4, fraction=0.1)
    assert runs(q) == ["b"]
    epoch(q, "b", 1, 120.0, acc=0.6, fraction=0.1)
    assert runs(q) == ["a"]


# -- queries ------------------------------------------------------------------------------------------------------


def test_a_lone_query_has_all_cores_and_two_share_them():
    w = world("rotary_aqp", query("a"), nodes=TWENTY)
    assert w.snapshot.jobs["a"].size == 20
    w.tell(submitted(query("b"), 10.0))
    assert w.snapshot.jobs["b"].partitions == ()  # until a's running epoch ends
    epoch(w, "a", 1, 60.0, acc=0.3, fraction=0.1)
    w.settle()
    assert (w.snapshot.jobs["a"].size, w.snapshot.jobs["b"].size) == (10, 10)


def test_running_epochs_are_as_long_as_the_memory_is_large():
    past = (
        PastJob(Kind.QUERY, "light", mem_mib=2048.0, unit_s=100.0),
        PastJob(Kind.QUERY, "usual", mem_mib=4096.0, unit_s=100.0),
        PastJob(Kind.QUERY, "heavy", mem_mib=6144.0, unit_s=100.0),
    )
    jobs = [query(name, model=name) for name in ("light", "usual", "heavy")]
    w = world("rotary_aqp", *jobs, nodes=TWENTY, past=past)
    lengths = {name: w.snapshot.partitions[name].tenants[0].boundary.seconds for name in ("light", "usual", "heavy")}
    assert lengths == {"light": 30.0, "usual": 60.0, "heavy": 90.0}
    fixed = world("rotary_aqp", *jobs, nodes=TWENTY, past=past, adaptive=False)
    assert {p.tenants[0].boundary.seconds for p in fixed.snapshot.partitions.values()} == {60.0}


def test_a_query_whose_memory_is_not_free_waits_and_says_so():
    past = (PastJob(Kind.QUERY, "q9", mem_mib=40_000.0, unit_s=100.0),)
    w = world("rotary_aqp", query("a", model="q9"), query("b", model="q9"), nodes=TWENTY, past=past)
    assert runs(w) == ["a"]
    assert w.snapshot.partitions["a"].slices[0].mem_mib == pytest.approx(40_000.0)
    assert "estimated to need 39.1 GiB of memory" in w.snapshot.jobs["b"].reason


def test_relaqs_grants_the_query_that_improved_most_and_newcomers_before_it():
    one = [Node("db", cores=1.0)]
    w = world("relaqs", query("a", cores=1), query("b", cores=1), nodes=one)
    epoch(w, "a", 1, 60.0, acc=0.5, fraction=0.1)
    assert runs(w) == ["b"]
    epoch(w, "b", 1, 120.0, acc=0.2, fraction=0.1)
    assert runs(w) == ["a"]  # 50 % against 20 %


# -- rotary -------------------------------------------------------------------------------------------------------


def foretold(*points: tuple[float, float], unit_s: float = 10.0) -> Beliefs:
    return Beliefs(completes=Curve(tuple(Point(*p) for p in points)), unit_s=Estimate(unit_s), needs_units=5.0)


def granted_first(first: tuple[Job, Beliefs], second: tuple[Job, Beliefs], **knobs) -> str:
    """Which of two jobs that are there at once is granted the only device."""
    w = Harness.of(find("rotary").bound(knobs), ONE_GPU)
    w.tell(*(JobSubmitted(0.0, what, beliefs) for what, beliefs in (first, second)))
    (name,) = runs(w)
    return name


A, B = (training(name, "acc >= 90% within 20 epochs") for name in "ab")


def test_the_likelier_job_goes_first():
    assert granted_first((A, foretold((0, 0), (20, 0.3))), (B, foretold((0, 0), (20, 0.9)))) == "b"


def test_of_jobs_that_are_as_likely_the_one_with_less_left_goes_first():
    assert granted_first((A, foretold((10, 0), (20, 0.9))), (B, foretold((0, 0), (4, 0.9), (20, 0.9)))) == "b"


def test_a_hopeless_job_goes_last_however_little_it_has_left():
    hopeless, slow = foretold((0, 0), (1, 0.02), (20, 0.02)), foretold((0, 0), (20, 0.3), unit_s=1000.0)
    assert granted_first((A, hopeless), (B, slow)) == "b"
    assert granted_first((A, hopeless), (B, slow), hopeless=0.0) == "a"


def test_the_printed_variant_goes_by_progress():
    halfway, fresh = foretold((0, 0), (20, 0.9)), foretold((0, 0), (20, 0.9))
    assert granted_first((A, halfway), (B, fresh), variant="paper") == "a"  # Both have none: by submission.
    w = world("rotary", training("a", "for 4 epochs"), training("b", "for 40 epochs"), variant="paper", threshold=1.0)
    epoch(w, "a", 1, 10.0)
    assert runs(w) == ["b"]


def test_the_memory_that_is_95_percent_sure_to_be_enough_must_be_free():
    nodes = [Node("small", 1, gpu_mem_mib=10_000.0), Node("large", 1, gpu_mem_mib=16_000.0)]
    beliefs = Beliefs(memory_mib=Curve((Point(32.0, 9000.0, 1000.0),)))
    for how, node in (("sure", "large"), ("mean", "small"), ("off", "small")):
        w = Harness.of(find("rotary").bound({"memory": how}), nodes)
        w.tell(JobSubmitted(0.0, training("a", "for 5 epochs"), beliefs))
        assert [s.node for s in w.snapshot.partitions["a"].slices] == [node], how


def test_training_and_queries_share_one_machine():
    nodes = [Node("server", 1, cores=4.0, mem_mib=64_000.0)]
    w = world("rotary", job("t", cores=2.0, criterion=parse("for 5 epochs")), query("q", cores=4), nodes=nodes)
    assert (w.snapshot.jobs["t"].size, w.snapshot.jobs["q"].size) == (1, 2)
    assert sorted(w.did(Start)) == ["q", "t"]
    assert w.did(Resize) == []


def test_reasons_name_the_estimate_and_the_job_that_it_was_compared_with():
    w = Harness.of(find("rotary").bound(), ONE_GPU)
    near, far = foretold((0, 0), (2, 0.83), (20, 0.83)), foretold((0, 0), (10, 0), (11, 0.4), (20, 0.4))
    w.tell(JobSubmitted(0.0, A, near), JobSubmitted(0.0, B, far))
    w.settle()
    assert w.snapshot.jobs["a"].reason == (
        "granted an epoch: 83% sure of acc 90% in time, in 1 epoch; 'b' needs 10 epochs, 40% sure"
    )


def test_a_job_that_goes_on_after_its_epoch_is_told_what_is_estimated_now():
    past = tuple(
        PastJob(model=m, metric="acc", points=tuple((float(k), 0.95 - 0.8 * 2 ** (-k / 3)) for k in range(1, 21)))
        for m in ("resnet", "vgg")
    )
    for told in (True, False):
        w = world("rotary", training("a", "acc >= 90% within 20 epochs", model="resnet"), past=past, tell_kept=told)
        first = w.snapshot.jobs["a"].reason
        for k in range(1, 11):
            epoch(w, "a", k, 10.0 * k, acc=0.95 - 0.8 * 2 ** (-k / 3))
        reason = w.snapshot.jobs["a"].reason
        assert reason.startswith("granted an epoch: ")
        assert (reason != first) is told
    assert find("rotary").bound().params.before == {"tell_kept": False}  # Journals from before have no such reasons.


def test_a_paused_job_is_told_what_the_other_needs():
    w = Harness.of(find("rotary").bound(), ONE_GPU)
    w.tell(JobSubmitted(0.0, A, foretold((0, 0), (19, 0.5), (20, 0.5))))
    w.settle()
    w.tell(JobSubmitted(1.0, B, foretold((0, 0), (2, 0.83), (20, 0.83))))
    w.tell(EpochEnded(100.0, "a", 1, {}))
    assert runs(w) == ["b"]
    reason = w.snapshot.jobs["a"].reason
    assert reason == "paused at the end of an epoch: 'b' goes first: it needs 1 epoch, 83% sure"


# -- bad input ----------------------------------------------------------------------------------------------------


def test_a_deadline_before_the_first_epoch_can_end_makes_a_job_hopeless_and_it_goes_last():
    late = training("a", "acc >= 90% within 5s"), foretold((1, 0.9), (20, 0.9), unit_s=30.0)
    assert granted_first(late, (B, foretold((0, 0), (20, 0.1), unit_s=1000.0))) == "b"
    w = Harness.of(find("rotary").bound(), ONE_GPU)
    w.tell(JobSubmitted(0.0, *late))
    reason = w.snapshot.jobs["a"].reason  # Nothing else wants the device.
    assert reason == "granted an epoch: its deadline is in 5 s, and an epoch takes about 30 s"


@pytest.mark.parametrize("metrics", [{}, {"acc": float("nan")}, {"loss": 0.3}], ids=["none", "NaN", "another"])
def test_a_job_whose_metric_never_comes_does_not_keep_others_from_their_epochs(metrics):
    w = world("rotary", training("mute", "acc >= 90%"), training("b", "acc >= 90% within 100 epochs"))
    ran = []
    for n in range(12):
        (name,) = runs(w)
        ran.append(name)
        told = metrics if name == "mute" else {"acc": 0.5 + 0.03 * n}
        epoch(w, name, w.snapshot.jobs[name].epoch + 1, 100.0 * (n + 1), **told)
    assert {*ran} == {"mute", "b"}
    assert w.snapshot.jobs["mute"].beliefs.completes is None
    assert "nothing is known yet" in w.snapshot.jobs["mute"].reason or "mute" not in runs(w)


def test_a_job_that_reports_epochs_backwards_keeps_its_turn_and_its_estimate():
    past = (PastJob(model="m", metric="acc", points=((1.0, 0.2), (5.0, 0.6), (20.0, 0.95)), unit_s=10.0),)
    w = world(
        "rotary", training("a", "acc >= 90% within 30 epochs", model="m"), training("b", "for 9 epochs"), past=past
    )
    for k in (1, 2, 3):
        if runs(w) == ["a"]:
            epoch(w, "a", k, 10.0 * k, acc=0.2 * k)
        else:
            epoch(w, "b", k, 10.0 * k)
    before, (runner,) = w.snapshot.jobs["a"].beliefs.completes, runs(w)
    w.tell(EpochEnded(40.0, runner, 1, {"acc": 0.1}))
    assert runs(w) == [runner]  # It has ended no epoch that counts.
    assert w.snapshot.jobs["a"].beliefs.completes == before


def test_a_query_whose_estimated_memory_exceeds_the_machine_runs_when_it_has_all_of_it():
    past = (PastJob(Kind.QUERY, "huge", mem_mib=1e6, unit_s=100.0),)
    w = world("rotary", query("a", model="huge"), query("b", model="huge"), nodes=TWENTY, past=past)
    assert runs(w) == ["a"]
    assert "estimated to need 62.5 GiB of memory" in w.snapshot.jobs["b"].reason  # What the machine has.
    assert w.snapshot.partitions["a"].slices[0].mem_mib == pytest.approx(64_000.0)


# -- a whole run --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["rotary_aqp", "rotary", "relaqs", "laf"])
def test_queries_of_table_3_1_attain_or_miss_and_no_plan_is_refused(policy):
    found = rotary_workload("aqp", seed=1, load=0.5)
    run = simulate(found, found.nodes, find(policy).bound(), seed=1)
    verdicts = {record.verdict for record in account(run.journal.header, run.journal).jobs}
    assert verdicts <= {"attained", "missed"}
    assert "attained" in verdicts
    assert run.refused_plans == 0


@pytest.mark.parametrize("kind", [Kind.TRAINING, Kind.QUERY])
def test_a_job_without_a_deadline_runs_while_queries_fill_the_machine(kind):
    """Queries come so fast that all cores would be theirs until the last has ended."""
    learns = Curve((Point(0.0, 0.0), Point(10.0, 1.0)))
    truth = Truth(100.0, epochs=10, metric="acc", quality=learns, also={"fraction": learns})
    asked = query("q", "acc >= 90% within 60s", cores=4, model="q")
    stream = [Submission(10.0 * n, replace(asked, id=f"q{n}"), truth) for n in range(20)]
    points = tuple((n / 10, n / 10) for n in range(1, 11))
    past = PastJobsGiven(0.0, (PastJob(Kind.QUERY, "q", {}, "acc", points, 100.0, 100.0),))
    patient = Submission(1.0, Job("patient", kind=kind, demand=Demand(cores=2.0)), Truth(60.0, epochs=3))
    workload = Workload("stream", (stream[0], patient, *stream[1:]), (Node("db", cores=4.0),), changes=(past,))

    def ended_s(least_share: float) -> tuple[float, int]:
        bound = find("rotary").bound({"least_share": least_share, "epoch_s": 10.0})
        ran = simulate(workload, workload.nodes, bound)
        found = account(ran.journal.header, ran.journal).jobs
        return found[1].ended_s, sum(job.verdict == "attained" for job in found)

    starved_s, most = ended_s(0.0)
    fair_s, attained = ended_s(0.1)
    assert starved_s > 160.0 > fair_s
    assert attained >= most - 2, (attained, most)


def test_a_job_without_a_deadline_gets_its_share_before_queries_leave_pieces_of_every_node():
    """It needs a whole node, and queries with deadlines come to both."""
    learns = Curve((Point(0.0, 0.0), Point(10.0, 1.0)))
    truth = Truth(100.0, epochs=10, metric="acc", quality=learns, also={"fraction": learns})
    comes = ((0.0, 3, 300), (0.0, 2, 120), (0.0, 4, 120), (9.0, 1, 120), (12.0, 2, 120), (18.0, 3, 60), (40.0, 3, 300))
    queries = [
        Submission(at_s, query(f"q{n}", f"acc >= 90% within {within_s}s", cores=cores, model="q"), truth)
        for n, (at_s, cores, within_s) in enumerate(comes)
    ]
    patient = Submission(14.0, Job("patient", kind=Kind.QUERY, demand=Demand(cores=4.0)), Truth(60.0, epochs=3))
    points = tuple((n / 10, n / 10) for n in range(1, 11))
    past = PastJobsGiven(0.0, (PastJob(Kind.QUERY, "q", {}, "acc", points, 100.0, 100.0),))
    nodes = (Node("a", cores=4.0, mem_mib=64_000.0), Node("b", cores=4.0, mem_mib=64_000.0))
    workload = Workload("w", (*queries[:5], patient, *queries[5:]), nodes, changes=(past,))
    ran = simulate(workload, nodes, find("rotary").bound({"epoch_s": 10.0}))
    ended_s = {record.job.id: record.ended_s for record in account(ran.journal.header, ran.journal).jobs}
    assert ended_s["patient"] < 100.0
