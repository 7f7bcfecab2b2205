"""The catalogue: what became of each job, by the journal's cycles."""

import msgspec
import pytest

from hocket.control.journal import SqliteJournal
from hocket.control.ports import Cycle, Header
from hocket.model.event import (
    EpochEnded,
    JobAsked,
    JobEnded,
    JobFailed,
    JobPaused,
    JobRequest,
    JobResized,
    JobStarted,
    JobSubmitted,
    JobWarned,
    NodeLost,
    StateStored,
)
from hocket.model.job import Job
from hocket.model.partition import Partition, Tenant
from hocket.model.plan import Plan
from hocket.model.resources import Slice
from hocket.model.view import RECENT_OBSERVATIONS, JobView, Observation, Tier
from hocket.service.catalogue import Catalogue, reports_by_job
from hocket.service.ended_jobs import EndedJobs


def test_time_on_a_lost_node_ends_with_the_node():
    catalogue = Catalogue()
    placed = Plan(put=(Partition("a", (Slice("n0", (0,)),), (Tenant("a", (1,)),)),), reasons={"a": "starts"})
    for cycle in (
        Cycle(0.0, (JobSubmitted(0.0, Job("a")),), placed),
        Cycle(10.0, (JobStarted(10.0, "a"),)),
        Cycle(30.0, (NodeLost(30.0, "n0"),)),
        Cycle(100.0, (), placed),
        Cycle(110.0, (JobStarted(110.0, "a"),)),
        Cycle(115.0, (JobEnded(115.0, "a"),)),
    ):
        catalogue.add_cycle(cycle)
    record = catalogue.records["a"]
    assert record.ran_s == 25.0
    assert record.waited_at(999.0) == 90.0
    assert "lost its node" in [line.what for line in record.lines]


def test_that_a_job_goes_on_epoch_after_epoch_is_one_line_of_its_story():
    catalogue = Catalogue()
    placed = Plan(put=(Partition("a", (Slice("n0", (0,)),), (Tenant("a", (1,)),)),), reasons={"a": "granted: 1"})
    catalogue.add_cycle(Cycle(0.0, (JobSubmitted(0.0, Job("a")),), placed))
    for k in range(2, 300):
        catalogue.add_cycle(Cycle(float(k), (EpochEnded(float(k), "a", k, {}),), Plan(reasons={"a": f"granted: {k}"})))
    paused = Plan(drop=("a",), reasons={"a": "paused: b goes first"})
    catalogue.add_cycle(Cycle(300.0, (), paused))
    told = [(line.what, line.reason) for line in catalogue.records["a"].lines]
    assert told == [
        ("submitted", ""), ("given a place", "granted: 1"), ("goes on", "granted: 299"),
        ("decided", "paused: b goes first"),
    ]  # fmt: skip


def test_how_its_end_was_judged_is_told_by_the_journal():
    catalogue = Catalogue()
    catalogue.add_cycle(Cycle(0.0, (JobSubmitted(0.0, Job("a")), JobSubmitted(0.0, Job("b")))))
    catalogue.add_cycle(Cycle(9.0, (JobEnded(9.0, "a", "missed", "missed: acc >= 95%"), JobEnded(9.0, "b"))))
    a, b = catalogue.records["a"], catalogue.records["b"]
    assert (a.verdict, a.reason) == ("missed", "missed: acc >= 95%")
    assert (a.lines[-1].what, a.lines[-1].reason) == ("missed", "missed: acc >= 95%")
    assert (b.verdict, b.reason) == ("finished", "finished by itself")


def test_time_in_which_a_job_is_held_is_no_waiting_time():
    catalogue = Catalogue()
    placed = Plan(put=(Partition("b", (Slice("n0", (0,)),), (Tenant("b", (1,)),)),))
    for cycle in (
        Cycle(0.0, (JobSubmitted(0.0, Job("a")),)),
        Cycle(1.0, (JobSubmitted(1.0, Job("b", after=("a", "gone"))),)),
        Cycle(11.0, (JobAsked(11.0, "b", JobRequest.PAUSE),)),
        Cycle(21.0, (JobEnded(21.0, "a"),)),  # It is still paused.
        Cycle(31.0, (JobAsked(31.0, "b", JobRequest.RESUME),), placed),
        Cycle(34.0, (JobStarted(34.0, "b", attempt=1),)),
        Cycle(40.0, (JobAsked(40.0, "b", JobRequest.PAUSE),)),
        Cycle(42.0, (JobPaused(42.0, "b"),)),  # It ran until now.
    ):
        catalogue.add_cycle(cycle)
    record = catalogue.records["b"]
    assert (record.waited_at(99.0), record.ran_at(99.0)) == (3.0, 8.0)
    catalogue.add_cycle(Cycle(102.0, (JobAsked(102.0, "b", JobRequest.RESUME),)))
    assert record.waited_at(107.0) == 8.0
    catalogue.add_cycle(Cycle(110.0, (JobEnded(110.0, "b", "stopped"),)))
    assert record.waited_at(999.0) == 11.0


def test_a_job_that_is_over_keeps_its_last_reports(tmp_path):
    catalogue = Catalogue(EndedJobs(tmp_path / "ended.db"))
    catalogue.add_cycle(Cycle(0.0, (JobSubmitted(0.0, Job("a")), JobSubmitted(0.0, Job("b")))))
    seen = tuple(Observation(float(n), n, {"acc": n / 100}) for n in range(1, RECENT_OBSERVATIONS + 1))
    before = JobView(job=Job("a"), number=1, submitted_s=0.0, observations=seen)
    end = Cycle(99.0, (EpochEnded(99.0, "a", 70, {"acc": 0.7}), EpochEnded(99.0, "b", 1, {}), JobEnded(99.0, "a")))
    catalogue.add_cycle(end)
    reports = reports_by_job(end)
    catalogue.keep_observations("a", before, reports["a"])
    catalogue.keep_observations("b", before, reports["b"])
    assert catalogue.records["b"].observations == (), "it is not over"
    catalogue.store_ended(2, everything=True)
    kept = catalogue.get("a").observations
    assert (kept[0].epoch, kept[-1].epoch, kept[-1].metrics) == (2, 70, {"acc": 0.7})
    catalogue.close(2)


# -- attempts and warnings --------------------------------------------------------------------------------------


def test_every_attempt_is_told_with_where_when_and_how_it_ended():
    catalogue = Catalogue()
    placed = Plan(put=(Partition("a", (Slice("n0", (0, 1)),), (Tenant("a", (2,)),)),), reasons={"a": "starts"})
    for cycle in (
        Cycle(0.0, (JobSubmitted(0.0, Job("a")),), placed),
        Cycle(1.0, (JobStarted(1.0, "a", attempt=1),)),
        Cycle(2.0, (JobResized(2.0, "a"),)),  # Only its boundary changed.
        Cycle(5.0, (JobFailed(5.0, "a", "exit code 3"),)),
        Cycle(6.0, (JobFailed(6.0, "a", "its sidecar was lost", own=False),)),  # before it ran
        Cycle(7.0, (JobStarted(7.0, "a", attempt=5),)),
        Cycle(9.0, (JobResized(9.0, "a", attempt=6),)),
        Cycle(11.0, (JobPaused(11.0, "a"),)),
        Cycle(12.0, (JobStarted(12.0, "a", attempt=7),)),
        Cycle(13.0, (JobEnded(13.0, "a"),)),
    ):
        catalogue.add_cycle(cycle)
    record = catalogue.records["a"]
    assert [(t.number, t.run, t.started_s, t.ended_s, t.how) for t in record.tries] == [
        (1, 1, 1.0, 5.0, "failed: exit code 3"),
        (2, 3, None, 6.0, "failed: its sidecar was lost"),
        (3, 5, 7.0, 9.0, "left for other resources"),
        (4, 6, 9.0, 11.0, "paused"),
        (5, 7, 12.0, 13.0, "finished"),
    ]
    assert [record.run_of(attempt) for attempt in (0, 1, 2, 3, 6)] == [7, 1, 3, 5, 0]
    assert [record.attempt_of(run) for run in (1, 2, 3, 7)] == [1, 0, 2, 5]
    assert {(*t.nodes, t.size) for t in record.tries} == {("n0", 2)}
    assert record.attempts == 5
    assert record.ran_s == 4.0 + 4.0 + 1.0


def test_an_attempt_that_is_suspended_goes_on_and_is_over_when_its_state_is_stored():
    catalogue = Catalogue()
    paused = {"tier": Tier.MEMORY, "node": "n0", "mem_mib": 312.4}
    for cycle in [
        Cycle(0.0, (JobSubmitted(0.0, Job("a")),)),
        Cycle(1.0, (JobStarted(1.0, "a", attempt=1),)),
        Cycle(5.0, (JobPaused(5.0, "a", **paused),)),
        Cycle(9.0, (JobStarted(9.0, "a", in_place=True),)),
        Cycle(11.0, (JobPaused(11.0, "a", **paused),)),
    ]:
        catalogue.add_cycle(cycle)
    record = catalogue.records["a"]
    assert (record.attempts, record.ran_at(20.0), record.is_suspended) == (1, 6.0, True)
    assert record.lines[-1].reason == "in memory: its process is suspended, with 312 MiB"
    catalogue.add_cycle(Cycle(12.0, (StateStored(12.0, "a", Tier.DISK),)))
    assert not record.is_suspended
    assert (record.tries[-1].ended_s, record.tries[-1].how) == (12.0, "paused")
    catalogue.add_cycle(Cycle(20.0, (JobStarted(20.0, "a", attempt=2),)))
    assert record.attempts == 2
    catalogue.add_cycle(Cycle(21.0, (JobPaused(21.0, "a", **paused),)))
    catalogue.add_cycle(Cycle(22.0, (JobFailed(22.0, "a", "its sidecar was lost", own=False),)))
    assert (record.attempts, record.tries[-1].how) == (2, "failed: its sidecar was lost")  # It was that attempt.


def test_a_warning_is_kept_once_and_after_the_end():
    catalogue = Catalogue()
    catalogue.add_cycle(
        Cycle(0.0, (JobSubmitted(0.0, Job("a")), JobWarned(0.0, "a", "look"), JobWarned(0.0, "a", "look")))
    )
    catalogue.add_cycle(Cycle(1.0, (JobEnded(1.0, "a"),)))
    assert catalogue.records["a"].warnings == ["look"]


# -- the ended_jobs --------------------------------------------------------------------------------------------------


def a_life(number):
    """Some cycles: most jobs end, every tenth goes on."""
    at_s = float(number)
    yield Cycle(at_s, (JobSubmitted(at_s, Job(f"j{number}", owner="ana" if number % 2 else "bo")),))
    yield Cycle(at_s, (JobStarted(at_s, f"j{number}", attempt=1),), Plan(reasons={"*": f"waits for {number}"}))
    if number % 10:
        yield Cycle(at_s + 0.5, (JobEnded(at_s + 0.5, f"j{number}", "finished" if number % 3 else "attained"),))


def cycles(jobs):
    return [cycle for number in range(jobs) for cycle in a_life(number)]


def journal_of(path, kept):
    journal = SqliteJournal(path, Header("fifo"))
    journal.extend(kept)
    return journal


def shown(catalogue):
    listed = msgspec.json.encode(catalogue.listed(over=True))
    return listed, catalogue.over, catalogue.queue_reason, [r.job.id for r in catalogue.listed()]


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr("hocket.service.catalogue._RECORDS", 16)


@pytest.mark.usefixtures("small")
def test_a_catalogue_from_its_shelf_is_the_one_folded_from_all_cycles(tmp_path):
    journal = journal_of(tmp_path / "j.db", cycles(100))
    folded = shown(Catalogue.of(journal, None))
    first = Catalogue.of(journal, EndedJobs(tmp_path / "c.db"))
    assert shown(first) == folded
    assert len(first.records) < 100 // 10 + 20, "those that are over are not in memory"
    again = Catalogue.of(journal, EndedJobs(tmp_path / "c.db"))  # as after a kill
    assert shown(again) == folded
    again.close(len(journal))
    closed = Catalogue.of(journal, EndedJobs(tmp_path / "c.db"))
    assert len(closed.records) == 10
    assert shown(closed) == folded


@pytest.mark.usefixtures("small")
def test_only_cycles_after_the_shelf_are_folded_at_a_start(tmp_path):
    journal = journal_of(tmp_path / "j.db", cycles(100))
    Catalogue.of(journal, EndedJobs(tmp_path / "c.db")).close(len(journal))
    asked = []
    after = journal.after
    journal.after = lambda number: asked.append(number) or after(number)
    Catalogue.of(journal, EndedJobs(tmp_path / "c.db"))
    assert min(asked) >= len(journal) - 1


@pytest.mark.usefixtures("small")
def test_jobs_that_are_over_are_found_by_name_and_by_owner(tmp_path):
    journal = journal_of(tmp_path / "j.db", cycles(100))
    catalogue = Catalogue.of(journal, EndedJobs(tmp_path / "c.db"))
    assert "j1" not in catalogue.records
    some = ["j1", "nonesuch", "j99", *(f"x{n}" for n in range(1000)), "j2"]  # more than one statement may name
    assert set(catalogue.known_among(some)) == {"j1", "j2", "j99"}
    assert catalogue.get("j1").verdict == catalogue.known("j1").verdict == "finished"
    assert catalogue.get("none") is catalogue.known("none") is None
    assert [r.job.id for r in catalogue.listed(over=True, owner="ana", limit=2)] == ["j97", "j99"]
    assert [r.job.id for r in catalogue.listed(limit=2)] == ["j80", "j90"]


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("spoil", ["another journal", "a shorter journal", "garbage", "gone"])
def test_a_shelf_that_is_not_of_this_journal_or_damaged_is_made_anew(tmp_path, spoil):
    path = tmp_path / "c.db"
    journal = journal_of(tmp_path / "j.db", cycles(100))
    Catalogue.of(journal, EndedJobs(path)).close(len(journal))
    if spoil == "another journal":
        journal = journal_of(tmp_path / "other.db", [Cycle(c.at_s + 1, c.events, c.plan) for c in cycles(120)])
    elif spoil == "a shorter journal":
        journal = journal_of(tmp_path / "other.db", cycles(50))
    elif spoil == "garbage":
        path.write_bytes(b"nothing of the kind" * 999)
    else:
        path.unlink()
    assert shown(Catalogue.of(journal, EndedJobs(path))) == shown(Catalogue.of(journal, None))


@pytest.mark.usefixtures("small")
def test_a_shelf_that_cannot_be_written_loses_nothing(tmp_path, caplog):
    ended_jobs = EndedJobs(tmp_path / "c.db")
    catalogue = Catalogue(ended_jobs)
    kept = cycles(100)
    for number, cycle in enumerate(kept, 1):
        if number == 100:
            ended_jobs._db.execute("PRAGMA query_only = ON")
        if number == 200:
            ended_jobs._db.execute("PRAGMA query_only = OFF")
        catalogue.add_cycle(cycle)
        catalogue.store_ended(number)
    assert "cannot be written" in caplog.text
    folded = Catalogue()
    for cycle in kept:
        folded.add_cycle(cycle)
    assert shown(catalogue) == shown(folded)
