"""Rules of the simulated world that no scenario tells."""

import pytest

from hocket.executors.simulated import simulate
from hocket.executors.simulated.executor import SimulatedExecutor
from hocket.model.action import Checkpoint, Move, Pause, Prepare, Resize, Resume, Start
from hocket.model.criterion import parse
from hocket.model.curve import Curve, Point
from hocket.model.event import (
    EpochEnded,
    JobCheckpointed,
    JobEnded,
    JobFailed,
    JobPaused,
    JobRefused,
    JobStarted,
    JobSubmitted,
    NodeLost,
    PhasesObserved,
)
from hocket.model.job import Job
from hocket.model.partition import EPOCH, NOW, Boundary, Holding, Partition, Sharing, Tenant
from hocket.model.resources import Node, Slice
from hocket.model.view import Costs, Tier
from hocket.policies import find
from hocket.workloads import Fault, Submission, Truth, Workload


def events_of(submissions, kind, **options):
    workload = Workload("test", tuple(submissions))
    run = simulate(workload, [Node("n0", 2)], find("fifo").bound(), **options)
    return [e for cycle in run.journal for e in cycle.events if isinstance(e, kind)]


def world_of(truth, boundary=NOW, **workload):
    """A world in which job 'a' is on its only GPU, and the action that starts it there again."""
    world = SimulatedExecutor(Workload("test", (Submission(0.0, Job("a"), truth),), **workload), [Node("n0", 1)])
    slices = (Slice("n0", (0,)),)
    partition = Partition("a", slices, (Tenant("a", (1,), "", boundary),))
    start = Start("a", "", Holding("a", slices, (1,), boundary), partition)
    world.wait(None)
    world.apply([start])
    return world, start


def what_follows(world):
    """All that happens from now on, as (time, event's type)."""
    return [(e.at_s, type(e)) for _at_s, events in iter(lambda: world.wait(None), None) for e in events]


def test_a_job_that_starts_at_once_is_ended_when_its_time_is_up():
    job = Job("a", criterion=parse("for 10m"))
    (end,) = events_of([Submission(5.0, job, Truth(1e6))], JobEnded)
    assert (end.at_s, end.verdict) == (605.0, "attained")


def test_a_name_may_be_used_again_once_its_job_is_over():
    submissions = [Submission(at_s, Job("a"), Truth(10.0)) for at_s in (0.0, 5.0, 20.0)]
    assert [e.at_s for e in events_of(submissions, JobEnded)] == [10.0, 30.0]
    assert [e.at_s for e in events_of(submissions, JobRefused)] == [5.0]


def test_a_run_that_is_cut_lasts_until_it_is_cut():
    workload = Workload("test", (Submission(0.0, Job("a"), Truth(1e6)),))
    run = simulate(workload, [Node("n0", 2)], find("fifo").bound(), until_s=3600.0)
    assert run.final.now_s == 3600.0
    assert run.final.jobs["a"].ran_at(run.final.now_s) == 3600.0
    assert [type(e) for e in next(iter(run.journal)).events] == [JobSubmitted]


def test_after_a_crash_a_job_goes_on_from_what_it_saved_by_itself():
    def ends(**truth):
        (end,) = events_of([Submission(0.0, Job("a"), Truth(10.0, epochs=10, crashes_s=(5.5,), **truth))], JobEnded)
        return end.at_s

    assert ends() == 15.5  # It saves only when it is told to.
    assert ends(saves_epochs=1) == 10.5
    assert ends(saves_epochs=2) == 11.5


def test_a_start_before_a_preparation_is_done_is_a_cold_one():
    truth = Truth(1000.0, costs=Costs(prepare_s=20.0, start_s=5.0))
    slices = (Slice("n0", (0,)),)
    start = Start("a", "", Holding("a", slices, (1,), NOW), Partition("a", slices, (Tenant("a", (1,)),)))
    for waits_s, takes_s in ((12.0, 25.0), (20.0, 5.0)):
        world = SimulatedExecutor(Workload("test", (Submission(0.0, Job("a", warm=True), truth),)), [Node("n0", 1)])
        world.wait(None)
        world.apply([Prepare("a")])
        now_s, _events = world.wait(waits_s)
        assert now_s == waits_s
        world.apply([start])
        began = [world.wait(None) for _ in range(2)]
        assert waits_s + takes_s in [at_s for at_s, events in began if any(isinstance(e, JobStarted) for e in events)]


def test_a_resize_saves_as_a_pause_does():
    submissions = [
        Submission(0.0, Job("a", sizes=(1, 2)), Truth(20.0, crashes_s=(18.0,))),  # at size 1; it runs at size 2
        Submission(5.0, Job("b"), Truth(100.0)),
    ]
    run = simulate(Workload("test", tuple(submissions)), [Node("n0", 2)], find("fair").bound())
    ends = {e.job: e.at_s for cycle in run.journal for e in cycle.events if isinstance(e, JobEnded)}
    # Half of it is done when it shrinks; it breaks 8 s later, and goes on from that half.
    assert ends["a"] == 5.0 + 8.0 + 10.0


def test_a_job_that_is_paused_and_resumed_again_and_again_has_one_entry_in_the_heap():
    jobs = (Submission(0.0, Job("a"), Truth(100.0)), Submission(0.0, Job("b"), Truth(60.0)))
    world = SimulatedExecutor(Workload("test", jobs), [Node("n0", 2)])

    def on(job, gpu):
        slices = (Slice("n0", (gpu,)),)
        return job, "", Holding(job, slices, (1,)), Partition(job, slices, (Tenant(job, (1,)),))

    world.wait(None)
    world.apply([Start(*on("b", 1))])
    for at_s in range(0, 50, 10):  # It runs for 4 s of each 10 s.
        world.apply([Resume(*on("a", 0)) if at_s else Start(*on("a", 0))])
        assert world.wait(at_s + 4.0)[0] == at_s + 4.0
        world.apply([Pause("a", "", Tier.DISK, NOW)])
        assert type(world.wait(None)[1][-1]) is JobPaused
        assert world.wait(at_s + 10.0)[0] == at_s + 10.0
        assert len(world._heap) == 2
    world.apply([Resume(*on("a", 0))])
    ends = [(at_s, events[-1].job) for at_s, events in (world.wait(None), world.wait(None))]
    assert ends == [(60.0, "b"), (50.0 + 100.0 - 5 * 4.0, "a")]
    assert world._heap == []


def test_a_job_that_is_due_sooner_than_its_entry_says_ends_in_time():
    job, truth = Job("a", sizes=(1, 2)), Truth(100.0)
    world = SimulatedExecutor(Workload("test", (Submission(0.0, job, truth),)), [Node("n0", 2)])

    def on(*gpus):
        slices = (Slice("n0", gpus),)
        return Holding("a", slices, (len(gpus),)), Partition("a", slices, (Tenant("a", (len(gpus),)),))

    world.wait(None)
    world.apply([Start("a", "", *on(0))])
    world.wait(40.0)
    world.apply([Resize("a", "", *on(0, 1))])
    world.wait(None)
    assert world.wait(None)[0] == 40.0 + 60.0 / 2
    assert world.wait(None) is None


@pytest.mark.parametrize("length", [Boundary("after", seconds=60.0), Boundary("after", batches=60)])
def test_running_epochs_take_the_place_of_those_that_a_job_has_itself(length):
    world, _start = world_of(Truth(100.0, epochs=4, comp_s=1.0), length)
    ends = [(60.0, EpochEnded), (100.0, EpochEnded), (100.0, JobEnded)]  # The last one ends with the job.
    assert what_follows(world) == [(0.0, JobStarted), *ends]


def test_a_query_that_has_read_all_its_data_amid_a_running_epoch_reports_its_last_answer():
    accuracy = Curve((Point(0.0, 0.0), Point(4.0, 1.0)))
    world, _start = world_of(Truth(100.0, epochs=4, metric="acc", quality=accuracy), Boundary("after", seconds=60.0))
    found = []
    while happened := world.wait(None):
        found += [(e.at_s, e.metrics["acc"]) for e in happened[1] if isinstance(e, EpochEnded)]
    assert found == [(60.0, pytest.approx(0.6)), (100.0, pytest.approx(1.0))]


def test_running_epochs_are_counted_on_when_work_is_lost():
    world, start = world_of(Truth(100.0, epochs=4, crashes_s=(70.0,)), Boundary("after", seconds=60.0))
    found = [e for _ in range(2) for e in world.wait(None)[1]]
    assert [type(e) for e in found] == [JobStarted, EpochEnded, JobFailed]
    world.apply([start])
    (epoch,) = [e for e in world.wait(None)[1] if isinstance(e, EpochEnded)]
    assert (epoch.at_s, epoch.epoch) == (130.0, 2)
    assert what_follows(world) == [(170.0, EpochEnded), (170.0, JobEnded)]


@pytest.mark.parametrize("moves", [False, True])
def test_phases_are_not_measured_where_no_job_takes_turns(moves):
    """'a' takes turns with 'b' for a second; then 'c' is with them, or 'a' with 'c', and no job takes turns."""
    jobs = tuple(Submission(0.0, Job(name), Truth(100.0, comm_s=0.5)) for name in "abc")
    world = SimulatedExecutor(Workload("test", jobs), [Node("n0", 2)])

    def on(job, gpu, names, sharing):
        slices = (Slice("n0", (gpu,)),)
        where = f"p{gpu}"
        return (
            job,
            "",
            Holding(where, slices, (1,)),
            Partition(where, slices, tuple(Tenant(n, (1,)) for n in names), sharing),
        )

    world.wait(None)
    world.apply([Start(*on(name, 0, "ab", Sharing.INTERLEAVED)) for name in "ab"])
    world.wait(1.0)
    if moves:
        world.apply([Move(*on("a", 1, "ac", Sharing.STACKED)), Start(*on("c", 1, "ac", Sharing.STACKED))])
    else:
        world.apply([Start(*on("c", 0, "abc", Sharing.STACKED))])
    measured = [
        e.job for _at, events in iter(lambda: world.wait(None), None) for e in events if type(e) is PhasesObserved
    ]
    assert measured == (["b"] if moves else [])


def test_a_job_stands_still_while_it_saves_its_state_and_goes_on_from_there():
    world, start = world_of(Truth(100.0, costs=Costs(checkpoint_s=50.0), crashes_s=(20.0,)))
    world.wait(10.0)
    world.apply([Checkpoint("a")])
    assert world.wait(None) == (60.0, [JobCheckpointed(60.0, "a")])
    assert [type(e) for e in world.wait(None)[1]] == [JobFailed]
    assert world.now_s == 70.0
    world.apply([start])
    assert what_follows(world)[-1] == (70.0 + 90.0, JobEnded)  # Ten seconds of its work were saved.


def test_what_is_not_yet_saved_is_lost_with_the_node():
    truth = Truth(100.0, costs=Costs(checkpoint_s=50.0))
    world, start = world_of(truth, faults=(Fault(30.0, "n0", 40.0),))
    world.wait(10.0)
    world.apply([Checkpoint("a")])
    assert [type(e) for e in world.wait(None)[1]] == [NodeLost]
    world.wait(40.0)
    world.apply([start])
    assert what_follows(world) == [(40.0, JobStarted), (140.0, JobEnded)]  # No word of a checkpoint.


def test_a_checkpoint_waits_for_the_boundary():
    world, _start = world_of(Truth(100.0, epochs=4, costs=Costs(checkpoint_s=50.0)), EPOCH)
    world.wait(10.0)
    world.apply([Checkpoint("a", boundary=EPOCH)])
    found = what_follows(world)
    assert found[:3] == [(25.0, EpochEnded), (75.0, JobCheckpointed), (100.0, EpochEnded)]
    assert found[-1] == (150.0, JobEnded)


def test_a_pause_does_not_wait_for_a_checkpoint():
    world, start = world_of(Truth(100.0, costs=Costs(checkpoint_s=50.0, stop_s=5.0)))
    world.wait(10.0)
    world.apply([Checkpoint("a")])
    world.wait(20.0)
    world.apply([Pause("a")])
    assert what_follows(world) == [(60.0, JobCheckpointed), (75.0, JobPaused)]
    world.apply([start])
    assert what_follows(world) == [(75.0, JobStarted), (165.0, JobEnded)]
