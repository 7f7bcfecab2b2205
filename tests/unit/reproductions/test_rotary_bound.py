"""What any schedule could attain at most, if all were known beforehand."""

from itertools import pairwise

from hocket.model.criterion import parse
from hocket.model.curve import Curve, Point
from hocket.model.job import Job, Kind
from hocket.model.resources import Demand, Node
from hocket.workloads.rotary import rotary_workload
from hocket.workloads.truth import Submission, Truth, Workload
from hocket_reproductions.rotary.bound import most_attained, need_of

NODE = Node("db", cores=4.0)
SPEEDS = Curve(tuple(Point(float(n), s) for n, s in ((1, 1.0), (2, 1.5), (3, 1.75), (4, 2.0))))


def query(name: str, at_s: float, work_s: float, within_s: float) -> Submission:
    """It attains when it has done half of its work: `work_s` at one core."""
    criterion = parse(f"acc >= 50% within {within_s:g}s")
    job = Job(name, kind=Kind.QUERY, demand=Demand(cores=1.0), sizes=(1, 2, 3, 4), criterion=criterion)
    accuracy = Curve((Point(0.0, 0.0), Point(10.0, 1.0)))
    return Submission(at_s, job, Truth(2 * work_s, 1, SPEEDS, epochs=10, metric="acc", quality=accuracy))


def bound(*jobs: Submission) -> tuple[int, int]:
    found = most_attained(Workload("test", jobs, (NODE,)))
    return found.most, found.possible


def test_a_job_that_all_cores_do_not_help_is_not_possible():
    assert bound(query("a", 0.0, 200.0, 100.0)) == (1, 1)
    assert bound(query("a", 0.0, 201.0, 100.0)) == (0, 0)


def test_jobs_share_the_cores_until_their_deadlines():
    assert bound(*(query(f"j{n}", 0.0, 150.0, 100.0) for n in range(3))) == (2, 3)  # Each needs two of the four cores.
    assert bound(*(query(f"j{n}", 0.0, 100.0, 100.0) for n in range(5))) == (4, 5)


def test_cores_are_handed_on_within_a_piece_of_time():
    # 125 s of work in 100 s: one core all the time, and two for half of it; the other two, and three for half of it.
    assert bound(query("a", 0.0, 125.0, 100.0), query("b", 0.0, 162.4, 100.0)) == (2, 2)
    assert bound(query("a", 0.0, 125.0, 100.0), query("b", 0.0, 163.0, 100.0)) == (1, 2)


def test_what_a_later_job_needs_is_free_when_the_first_has_attained():
    assert bound(query("a", 0.0, 200.0, 100.0), query("b", 100.0, 200.0, 100.0)) == (2, 2)
    assert bound(query("a", 0.0, 200.0, 100.0), query("b", 50.0, 200.0, 100.0)) == (1, 2)


def test_training_needs_the_epochs_until_its_criterion_holds():
    workload = rotary_workload("dlt", 0)
    for submission in workload.submissions:
        epochs = need_of(submission).work_s / (submission.truth.run_s / submission.truth.epochs)
        if submission.job.id.startswith("convergence") and epochs < 1e9:
            values = [submission.truth.quality.at(float(k)).mean for k in range(1, round(epochs) + 1)]
            changes = [abs(b - a) for a, b in pairwise(values)]
            assert changes[-1] < submission.job.criterion.change
            assert all(change >= submission.job.criterion.change for change in changes[:-1])
