"""What is free until deadlines is reserved for the jobs that attain most for what they take."""

from __future__ import annotations

from hocket.model.criterion import parse
from hocket.model.curve import Beliefs, Curve, Estimate, Point
from hocket.model.event import JobSubmitted
from hocket.model.job import Job, Kind
from hocket.model.resources import Demand, Node
from hocket.policies import find
from hocket.policies.kit.job_outlooks import job_outlooks
from hocket.policies.kit.wanted_sizes import jobs_with_a_share, wanted_sizes
from hocket.testing.harness import Harness

SIZES = tuple(range(1, 11))
LINEAR = Curve(tuple(Point(float(n), float(n)) for n in SIZES))


def query(name: str, work_s: float, within: str) -> JobSubmitted:
    """It is known to attain when it has done so much work at one core."""
    criterion = parse(f"acc >= 90%{within}")
    job = Job(name, kind=Kind.QUERY, demand=Demand(cores=1.0), sizes=SIZES, criterion=criterion)
    completes = Curve((Point(0.0, 0.0), Point(0.999, 0.0), Point(1.0, 1.0)))
    return JobSubmitted(0.0, job, Beliefs(speed=LINEAR, completes=completes, unit_s=Estimate(work_s)))


def wanted(*jobs: JobSubmitted, cores: float = 10.0, least_share: float = 0.0) -> dict[str, int]:
    harness = Harness.of(find("fifo").bound(), [Node("db", cores=cores)])
    harness.tell(*jobs)
    snapshot = harness.snapshot
    outlooks = job_outlooks(snapshot, 0.05, False)
    sizes = wanted_sizes(snapshot, outlooks, jobs_with_a_share(snapshot, outlooks, least_share))
    return {view.id: sizes[view.number] for view in snapshot.jobs.data().values()}


def test_a_job_has_as_few_replicas_as_are_enough() -> None:
    assert wanted(query("slow", 400.0, " within 500s"), query("fast", 1400.0, " within 500s")) == {"slow": 1, "fast": 3}


def test_a_job_for_which_too_little_is_left_gets_nothing() -> None:
    a, b = query("a", 2400.0, " within 500s"), query("b", 2450.0, " within 500s")
    assert wanted(a, b) == {"a": 6, "b": 4}
    assert wanted(a, b, query("c", 2500.0, " within 500s")) == {"a": 6, "b": 4, "c": 0}
    assert wanted(a, query("late", 5000.0, " within 400s")) == {"a": 6, "late": 0}


def test_a_job_with_time_gets_what_is_left_now_and_the_rest_later() -> None:
    first, second = query("first", 3500.0, " within 500s"), query("second", 5400.0, " within 1000s")
    assert wanted(first, second) == {"first": 8, "second": 2}


def test_jobs_without_a_deadline_get_what_those_with_one_leave() -> None:
    timed, timeless = query("timed", 4700.0, " within 500s"), query("timeless", 10.0, "")
    assert wanted(timed, timeless) == {"timed": 10, "timeless": 0}
    assert wanted(timed, timeless, cores=12.0) == {"timed": 10, "timeless": 1}


def test_jobs_without_a_deadline_have_their_share_first_and_one_of_them_always_runs() -> None:
    timeless = [query(f"timeless-{n}", 10.0 + n, "") for n in range(3)]
    two = wanted(query("timed", 3700.0, " within 500s"), *timeless, least_share=0.2)
    assert (two["timed"], two["timeless-0"], two["timeless-1"], two["timeless-2"]) == (8, 1, 1, 0)
    timed = query("timed", 3900.0, " within 500s")
    assert wanted(timed, timeless[0], cores=8.0) == {"timed": 8, "timeless-0": 0}
    assert wanted(timed, timeless[0], cores=8.0, least_share=0.01) == {"timed": 0, "timeless-0": 1}


def test_a_share_takes_nothing_where_all_jobs_are_alike() -> None:
    harness = Harness.of(find("fifo").bound(), [Node("db", cores=10.0)])
    harness.tell(query("a", 10.0, ""), query("b", 20.0, ""))
    assert not jobs_with_a_share(harness.snapshot, job_outlooks(harness.snapshot, 0.05, False), 0.5)
    harness = Harness.of(find("fifo").bound(), [Node("db", cores=10.0)])
    harness.tell(query("a", 10.0, " within 500s"))
    assert not jobs_with_a_share(harness.snapshot, job_outlooks(harness.snapshot, 0.05, False), 0.5)
