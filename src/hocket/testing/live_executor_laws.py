"""The laws for live executors: what `LiveExecutor` promises of futures, of reports and of its end.

The parameter `under` of each law is the executor. Reports are those of real runs. A law takes them from the backend
by `under.deliver`, and hands them over when and how it wants: again, in another order, or too late.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from threading import Lock, Thread
from typing import Any

from msgspec.structs import replace

from hocket.agent.protocol import Report, RunKey
from hocket.model.event import (
    EpochEnded,
    Event,
    JobAsked,
    JobRequest,
    JobStarted,
    JobSubmitted,
    OwnerSet,
)
from hocket.model.job import Owner
from hocket.model.snapshot import Snapshot
from hocket.testing.executor_harness import CHANGES, ExecutorHarness, ExecutorUnderTest, LawBroken

_ON_THEIR_WAY = 100  # moments that may still come before the last one
_NEWS = ("started", "progress")  # reports that change their job


__tracebackhide__ = True


class Outbox:
    """What the agents report, kept: handed over at once while `passes`, else when the law says so."""

    def __init__(self, under: ExecutorUnderTest, times: int = 1) -> None:
        """While it passes them, every report is handed over so many times."""
        self.passes = True
        self._times, self._lock = times, Lock()
        self._all: list[tuple[str, Report]] = []
        under.deliver = self._deliver

    def _deliver(self, node: str, reports: Sequence[Report]) -> Sequence[Report]:
        with self._lock:
            self._all += [(node, report) for report in reports]
            return list(reports) * self._times if self.passes else []

    def of(self, job: str, *kinds: str) -> list[Report]:
        """All reports of a job so far, of these kinds or any."""
        with self._lock:
            return [r for _node, r in self._all if r.run.job == job and (not kinds or r.event in kinds)]

    def by_node(self) -> dict[str, list[Report]]:
        """All reports so far, in order."""
        found: dict[str, list[Report]] = {}
        with self._lock:
            for node, report in self._all:
                found.setdefault(node, []).append(report)
        return found


# -- futures ------------------------------------------------------------------------------------------------------


def a_future_is_done_when_its_cycle_is_settled(under: ExecutorUnderTest) -> None:
    """The future of what was posted is done once its cycle is settled and not before, and tells what was refused."""
    with ExecutorHarness(under, nodes=0) as harness:
        job = under.job("a")
        future = harness.live.post(lambda _state, now_s: [JobSubmitted(now_s, job)], lambda refused: sorted(refused))
        moment = harness.wait(harness.now_s + under.patience_s)
        if moment is None or not any(isinstance(e, JobSubmitted) for e in moment[1]):
            raise LawBroken("", "a", "the posted event in the next moment", moment)
        actions = harness.controller.cycle(*moment)
        harness.live.observe(harness.snapshot)
        harness.live.apply(actions)
        harness.expect(False, future.done(), "before its cycle is settled, the future is done:", "a")
        harness.done(harness.controller)
        harness.expect(True, future.done(), "once its cycle is settled, the future is done:", "a")
        harness.expect(["a"], future.result(), "refused, for there is no node:", "a")


def a_failed_cycle_fails_its_futures_and_may_be_repeated(under: ExecutorUnderTest) -> None:
    """If a cycle cannot be written its futures fail, and what it took in counts when it is handed over again."""
    with ExecutorHarness(under, "a", nodes=1) as harness:
        posted = _posted(harness, "first")
        moment = harness.wait(harness.now_s + under.patience_s)
        harness.fail(moment, failure := RuntimeError("the disk is full"))
        _has_failed(posted, failure, harness)
        outbox, started = _held_back(harness)
        for is_last in (False, True):
            future = harness.live.report(started, "n0")
            moment = _moment_with(harness, "a", JobStarted, future)
            if is_last:
                harness.finish(moment)
            else:
                harness.fail(moment, failure)
                _has_failed(future, failure, harness)
        harness.expect(len(started), _result(harness, future), "reports taken in:", "a")
        outbox.passes = True
        harness.until(lambda: harness.nodes_up() == {"n0"}, "node 'n0' is up")
        _until_epoch(harness, "a", 2)
        harness.expect(1, len(harness.runs("a")), "runs:", "a")


def what_is_refused_fails_and_is_forgotten(under: ExecutorUnderTest) -> None:
    """`refuse` fails the futures of all that waits for a cycle, and the next cycle takes in nothing of it."""
    with ExecutorHarness(under, nodes=0) as harness:
        futures = [_posted(harness, "refused"), harness.live.report([Report(RunKey("a", 1), 1, 0.0, "started")], "n0")]
        harness.live.refuse(failure := RuntimeError("there will be no cycle"))
        for future in futures:
            _has_failed(future, failure, harness)
        heard = len(harness.events)
        accepted = _posted(harness, "accepted")
        _result(harness, accepted)
        told = [e.owner.id for e in harness.events[heard:] if isinstance(e, OwnerSet)]
        harness.expect(["accepted"], told, "taken in after the refusal:")


def a_closed_executor_waits_no_more_and_takes_nothing_in(under: ExecutorUnderTest) -> None:
    """`close` lets a `wait` that is under way return None, and what is posted or reported afterwards fails."""
    with ExecutorHarness(under, nodes=0) as harness:
        answers: list[Any] = []

        def wait() -> None:
            for _ in range(_ON_THEIR_WAY):
                if (moment := harness.executor.wait(None)) is None:
                    break
                harness.finish(moment)
            answers.append(moment)

        thread = Thread(target=wait, daemon=True)
        thread.start()
        harness.live.close()
        thread.join(under.patience_s)
        harness.expect([None], answers, "`wait` gives")
        for future in (
            _posted(harness, "late"),
            harness.live.report([Report(RunKey("a", 1), 1, 0.0, "started")], "n0"),
        ):
            if not future.done() or future.exception() is None:
                raise LawBroken("", "", "what is handed over after `close` fails at once", future)


def all_jobs_save_and_leave_when_they_are_stopped(under: ExecutorUnderTest) -> None:
    """`stop_all` has every job save its state and leave, and tells which have not left yet."""
    with ExecutorHarness(under, "a", "b") as harness:
        for gpu, job in enumerate(("a", "b")):
            harness.give(job, "n0", gpu)
            _until_epoch(harness, job, 1)
        left = harness.live.stop_all(30.0)
        harness.unasked_is_fine = True  # The jobs pause, and no action says so.
        harness.until(lambda: not left(), "no job is left", seen=lambda: f"left: {left()}")
        harness.expect([[], []], [harness.runs("a"), harness.runs("b")], "nothing runs any more:")
        for job in ("a", "b"):
            harness.expect(len(harness.steps(job)), under.saved(job), "a checkpoint with all steps:", job)


# -- reports ------------------------------------------------------------------------------------------------------


def a_change_holds_back_later_reports_of_its_job(under: ExecutorUnderTest) -> None:
    """Of several reports that change one job, each is taken in by a cycle of its own, and in their order."""
    with ExecutorHarness(under, "a") as harness:
        _outbox, reports = _held_back(harness, progress=2)
        future = harness.live.report(reports, "n0")
        cycles: list[list[str]] = []

        def are_all_told() -> bool:
            if told := [type(e).__name__ for e in harness.of("a")[sum(map(len, cycles)) :]]:
                cycles.append(told)
            if (count := sum(map(len, cycles))) < len(reports):
                harness.expect(
                    False, future.done(), f"after {count} of {len(reports)} reports, their future is done:", "a"
                )
            return count >= len(reports)

        harness.until(are_all_told, "all reports are taken in", "a", lambda: cycles)
        harness.expect([["JobStarted"], ["EpochEnded"], ["EpochEnded"]], cycles, "told, cycle by cycle:", "a")
        harness.expect(True, future.done(), "after the last cycle, the future is done:", "a")
        harness.expect(len(reports), future.result(), "reports taken in:", "a")


def a_report_that_comes_again_changes_nothing(under: ExecutorUnderTest) -> None:
    """Reports that are handed over twice, at once or much later, change nothing, whatever the job does by then."""
    outbox = Outbox(under, times=2)
    with ExecutorHarness(under, "a", "b") as harness:
        harness.give("a", "n0", 0)
        _until_epoch(harness, "a", 2)
        harness.pause("a")
        _again_without_effect(harness, outbox, "a")
        harness.give("a", "n0", 0)
        harness.until(lambda: harness.is_running("a"), "it resumes", "a")
        _until_epoch(harness, "a", harness.view("a").epoch + 1)
        _again_without_effect(harness, outbox, "a")
        harness.tell(JobAsked(0.0, "a", JobRequest.STOP))
        harness.until(lambda: "a" not in harness.snapshot.jobs, "it ends", "a")
        _again_without_effect(harness, outbox, "a")
        told = [type(e).__name__ for e in harness.of("a", *CHANGES)]
        harness.expect(["JobStarted", "JobPaused", "JobStarted", "JobEnded"], told, "changes of where it runs:", "a")
        _epochs_are_told_once(harness, "a")


def a_stale_report_does_not_undo_a_later_one(under: ExecutorUnderTest) -> None:
    """What an earlier run reports late, or the present run said before, does not undo what was heard since."""
    outbox = Outbox(under)
    with ExecutorHarness(under, "a") as harness:
        harness.give("a", "n0", 0)
        _until_epoch(harness, "a", 2)
        harness.pause("a")
        first = outbox.of("a")
        harness.give("a", "n0", 0)
        harness.until(lambda: harness.is_running("a"), "it resumes", "a")
        _until_epoch(harness, "a", harness.view("a").epoch + 1)
        old, present = first[0].run, max(report.run for report in outbox.of("a"))
        if old == present:
            raise LawBroken("", "a", f"a resumed job is another run than {old}", present)
        broke = {"code": 3, "signal": None, "asked": False}
        stale = [replace(report, n=report.n + 1000) for report in first]  # as if they had never been heard
        stale += [Report(old, 2000, harness.now_s, "exited", broke), Report(old, 0, harness.now_s, "lost")]
        stale += [Report(present, 1, harness.now_s, event, broke) for event in ("exited", "cannot-start", "started")]
        stale.append(Report(present, 1, harness.now_s, "progress", {"epoch": 1, "metrics": {"stale": 1.0}}))
        _without_effect(harness, "a", {"n0": stale})
        _until_epoch(harness, "a", harness.view("a").epoch + 1)
        _epochs_are_told_once(harness, "a")


def reports_of_several_runs_may_come_in_any_order(under: ExecutorUnderTest) -> None:
    """Whichever run is heard first, and however the reports of two mingle, each job comes to what its own run says."""
    outbox = Outbox(under)
    with ExecutorHarness(under, "a", "b", "c", "d", nodes=2) as harness:
        outbox.passes = False
        for mingle, node, some, others in ((_one_after_the_other, "n0", "a", "b"), (_by_turns, "n1", "c", "d")):
            harness.give(some, node, 0)
            harness.give(others, node, 1)
            earlier, later = (_first_reports(harness, outbox, job, progress=2) for job in (some, others))
            for reports in mingle(later, earlier):
                _result(harness, harness.live.report(reports, node))
            for job in (some, others):
                told = [type(e).__name__ for e in harness.of(job, JobStarted, EpochEnded)]
                harness.expect(["JobStarted", "EpochEnded", "EpochEnded"], told, "told in order:", job)
                _epochs_are_told_once(harness, job)


def what_a_job_uses_is_known_until_it_ends(under: ExecutorUnderTest) -> None:
    """`usage` gives what a job's run reported last, of no other job, and nothing once the job is over."""
    outbox = Outbox(under)
    with ExecutorHarness(under, "a", "b") as harness:
        harness.give("a", "n0", 0)
        harness.until(lambda: harness.is_running("a"), "it starts", "a")
        run = outbox.of("a", "started")[0].run
        for use in ({"cpu": 0.5, "mem_mib": 100.0}, {"cpu": 1.5, "mem_mib": 200.0}):
            _result(harness, harness.live.report([Report(run, 0, harness.now_s, "use", use)], "n0"))
            harness.expect(use, harness.live.usage("a"), "it uses", "a")
        harness.expect({}, harness.live.usage("b"), "a job that did not run uses", "b")
        harness.tell(JobAsked(0.0, "a", JobRequest.STOP))
        harness.until(lambda: "a" not in harness.snapshot.jobs, "it ends", "a")
        harness.expect({}, harness.live.usage("a"), "a job that is over uses", "a")


def _one_after_the_other(some: list[Report], others: list[Report]) -> list[list[Report]]:
    return [some, others]


def _by_turns(some: list[Report], others: list[Report]) -> list[list[Report]]:
    return [[report for pair in zip(some, others, strict=True) for report in pair]]


# -- what the laws are made of ------------------------------------------------------------------------------------


def _posted(harness: ExecutorHarness, owner: str) -> Future[Any]:
    """A fact that is about no job."""

    def make(_state: Snapshot, now_s: float) -> list[Event]:
        return [OwnerSet(now_s, Owner(owner))]

    return harness.live.post(make)


def _result(harness: ExecutorHarness, future: Future[Any]) -> Any:
    harness.until(future.done, "the future is done once its cycles are settled")
    return future.result()


def _has_failed(future: Future[Any], failure: Exception, harness: ExecutorHarness) -> None:
    seen = future.exception() if future.done() else "a future that is not done"
    harness.expect(repr(failure), repr(seen), "the future fails with")


def _moment_with(harness: ExecutorHarness, job: str, kind: type[Event], future: Future[Any]) -> Any:
    """The moment in which such an event of the job comes, its cycle not yet written."""
    until_s = harness.now_s + harness.under.patience_s
    while (moment := harness.wait(until_s)) is not None and not future.done():
        if any(isinstance(event, kind) and getattr(event, "job", "") == job for event in moment[1]):
            return moment
        harness.finish(moment)
        if moment[0] >= until_s:
            break
    raise LawBroken("", job, f"{kind.__name__} of what was reported", f"{moment}, {future}")


def _held_back(harness: ExecutorHarness, progress: int = 0) -> tuple[Outbox, list[Report]]:
    """Start job a, and keep what its run reports: that it has started, and so many times how far it is."""
    outbox = Outbox(harness.under)
    outbox.passes = False
    harness.give("a", "n0", 0)
    return outbox, _first_reports(harness, outbox, "a", progress)


def _first_reports(harness: ExecutorHarness, outbox: Outbox, job: str, progress: int) -> list[Report]:
    count = 1 + progress

    def news() -> list[Report]:
        return outbox.of(job, *_NEWS)[:count]

    harness.until(lambda: len(news()) == count, f"its run reports {count} times", job, lambda: outbox.of(job))
    return news()


def _until_epoch(harness: ExecutorHarness, job: str, epoch: int) -> None:
    harness.until(lambda: harness.view(job).epoch >= epoch, f"epoch {epoch} is reported", job)


def _again_without_effect(harness: ExecutorHarness, outbox: Outbox, job: str) -> None:
    _without_effect(harness, job, outbox.by_node())


def _without_effect(harness: ExecutorHarness, job: str, reports_by_node: dict[str, list[Report]]) -> None:
    """Hand these over; nothing may change but that a run that goes on gets further."""
    before, heard = harness.snapshot.jobs.get(job), len(harness.events)
    for node, reports in reports_by_node.items():
        try:
            count = _result(harness, harness.live.report(reports, node))
        except LawBroken as broken:
            broken.law = ""  # What comes unasked now is the doing of these reports.
            raise
        harness.expect(len(reports), count, "reports taken in:", job)
    harness.expect([], harness.of(job, *CHANGES, since=heard), "changes that these reports make:", job)
    after = harness.snapshot.jobs.get(job)
    if before is not None and after is not None:
        for name in ("state", "starts", "failures", "tenancies", "tier"):
            harness.expect(getattr(before, name), getattr(after, name), f"its {name} stays", job)


def _epochs_are_told_once(harness: ExecutorHarness, job: str) -> None:
    told = [e.epoch for e in harness.of(job, EpochEnded) if isinstance(e, EpochEnded)]
    harness.expect(sorted(set(told)), told, "epochs, each once and in order:", job)


LAWS = (
    a_future_is_done_when_its_cycle_is_settled,
    a_failed_cycle_fails_its_futures_and_may_be_repeated,
    what_is_refused_fails_and_is_forgotten,
    a_closed_executor_waits_no_more_and_takes_nothing_in,
    all_jobs_save_and_leave_when_they_are_stopped,
    a_change_holds_back_later_reports_of_its_job,
    a_report_that_comes_again_changes_nothing,
    a_stale_report_does_not_undo_a_later_one,
    reports_of_several_runs_may_come_in_any_order,
    what_a_job_uses_is_known_until_it_ends,
)
