"""The laws for executors, as functions to call on your own: each raises `Broken` with what it found.

from hocket.testing import executor_laws
from hocket.testing.executor_harness import ExecutorUnderTest

class MyExecutorUnderTest(ExecutorUnderTest): ...     # how your executor begins, and what an observer sees of what runs

@pytest.mark.parametrize("law", executor_laws.LAWS)
def test_my_executor_keeps_the_law(law):
    executor_laws.keep(law, MyExecutorUnderTest())

The parameter `under` of each law is such an object. What holds for every executor is in here; what only live ones
promise is in `live_executor_laws.py`, and part of `LAWS`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import Future
from threading import Thread
from typing import get_args

from hocket.control.drive import Moment
from hocket.model.action import Action
from hocket.model.event import (
    JobAsked,
    JobCheckpointed,
    JobEnded,
    JobMoved,
    JobPaused,
    JobPrepared,
    JobRequest,
    JobResized,
    JobStarted,
    NodeLost,
    StateStored,
)
from hocket.model.view import Tier
from hocket.testing import live_executor_laws
from hocket.testing.executor_harness import CHANGES, ExecutorHarness, ExecutorUnderTest, LawBroken
from hocket.testing.laws import Broken

Law = Callable[[ExecutorUnderTest], None]

__tracebackhide__ = True  # pytest shows the test and what was found, not the laws' own frames.


def keep(law: str, under: ExecutorUnderTest) -> None:
    """Try one law, by its name in `LAWS`; raises `Broken` if the executor breaks it, in a few lines.

    A law that the executor is exempt from is not tried; test that `under.exempt` is what you expect it to be. Nor are
    those for live executors, unless it is one.
    """
    if law in under.exempt or (law in LIVE and not under.is_live):
        return
    try:
        LAWS[law](under)
    except LawBroken as broken:
        raise Broken(_in_short(law, under, broken)) from None


def _in_short(tried: str, under: ExecutorUnderTest, broken: LawBroken) -> str:
    law = broken.law or tried
    test = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0]
    lines = [
        f"executor '{under.name}' breaks the law '{law}'" + (f" with job '{broken.job}'" if broken.job else ""),
        f"the law: {(LAWS[law].__doc__ or '').partition(chr(10))[0]}",
        f"expected: {_cut(broken.expected)}",
        f"seen: {_cut(broken.seen)}",
        *(f"before that: {_cut(event, 160)}" for event in broken.events),
        "repeat it: " + (f"python -m pytest '{test}'" if test else f"executor_laws.keep('{tried}', …)"),
    ]
    return "\n".join(lines)


def _cut(value: object, most: int = 300) -> str:
    text = " ".join(str(value).split())
    return text if len(text) <= most else f"{text[:most]}…"


# -- the life of a job --------------------------------------------------------------------------------------------


def a_start_runs_once_where_it_was_asked_to(under: ExecutorUnderTest) -> None:
    """A start leads to one started event and to one run, on the GPUs asked for; nothing else starts."""
    with ExecutorHarness(under, "a", "waits") as harness:
        harness.give("a", "n0", 1)
        harness.until_steps("a", 2)
        harness.expect(1, len(harness.of("a", JobStarted)), "started events:", "a")
        harness.expect([[("n0", 1)]], harness.runs("a"), "runs on", "a")
        harness.expect([], harness.of("waits", *CHANGES), "events of a job that was given nothing:", "waits")
        harness.expect([], harness.runs("waits"), "runs of a job that was given nothing:", "waits")


def a_pause_frees_the_gpus_and_keeps_the_state(under: ExecutorUnderTest) -> None:
    """Once a job is paused nothing of it runs, all its steps are saved, and nothing is heard of it until it resumes."""
    with ExecutorHarness(under, "a", "b") as harness:
        harness.give("a", "n0", 0)
        harness.until_steps("a", 2)
        made = harness.pause("a")
        harness.expect([], harness.runs("a"), "runs of a paused job:", "a")
        if under.saved("a") < made:
            raise LawBroken("", "a", f"a checkpoint with all {made} steps", f"one with {under.saved('a')}")
        heard = len(harness.events)
        harness.give("b", "n0", 0)
        harness.until_steps("b", 3)
        harness.expect([], harness.of("a", since=heard), "events of a paused job:", "a")
        harness.expect(made, len(harness.steps("a")), "steps of a paused job stay at", "a")


def a_resume_goes_on_from_the_pause(under: ExecutorUnderTest) -> None:
    """A resumed job makes the step after the last one that it had made: none is lost, and none is made twice."""
    with ExecutorHarness(under, "a") as harness:
        harness.give("a", "n0", 0)
        harness.until_steps("a", 2)
        for gpu in (0, 1):  # where it was, and elsewhere
            made = harness.pause("a")
            harness.give("a", "n0", gpu)
            harness.until_steps("a", made + 2)
            _no_step_is_lost_or_repeated(harness, "a")
            harness.expect([[("n0", gpu)]], harness.runs("a"), "runs on", "a")


def a_resize_ends_on_the_new_gpus_with_the_work_kept(under: ExecutorUnderTest) -> None:
    """A resized job runs once, on exactly its new GPUs, with no step lost; what it gave up can be used at once."""
    with ExecutorHarness(under, "a", "b") as harness:
        harness.give("a", "n0", 0)
        harness.until_steps("a", 2)
        for n, gpus in enumerate(((0, 1), (1,)), 1):
            harness.give("a", "n0", *gpus)
            harness.until_told("a", JobResized, n)
            _has_moved_to(harness, "a", [("n0", gpu) for gpu in gpus])
        _can_be_used(harness, "b", 0)


def a_move_ends_in_the_new_place_with_the_work_kept(under: ExecutorUnderTest) -> None:
    """A moved job runs once, in its new place, with no step lost; the old place can be used at once."""
    with ExecutorHarness(under, "a", "b", nodes=2) as harness:
        harness.give("a", "n0", 0)
        harness.until_steps("a", 2)
        harness.give("a", "n1", 1, place="elsewhere")
        harness.until_told("a", JobMoved)
        _has_moved_to(harness, "a", [("n1", 1)])
        _can_be_used(harness, "b", 0)


def a_checkpoint_saves_and_the_job_goes_on(under: ExecutorUnderTest) -> None:
    """A checkpoint is told once, has the steps made before it was asked for, and the job goes on as it was."""
    with ExecutorHarness(under, "a") as harness:
        harness.give("a", "n0", 0)
        harness.until_steps("a", 2)
        _save(harness, "a")
        harness.until_steps("a", len(harness.steps("a")) + 2)
        harness.expect(1, len(harness.of("a", JobCheckpointed)), "checkpointed events:", "a")
        harness.expect(1, len(harness.of("a", *CHANGES)), "changes of where it runs, the start included:", "a")
        harness.expect([[("n0", 0)]], harness.runs("a"), "runs on", "a")
        _no_step_is_lost_or_repeated(harness, "a")


def an_ended_job_is_gone(under: ExecutorUnderTest) -> None:
    """A job that is ended is told to have ended once; then nothing of it runs, and its GPUs can be used at once."""
    with ExecutorHarness(under, "a", "b") as harness:
        harness.give("a", "n0", 0)
        harness.until_steps("a", 1)
        harness.tell(JobAsked(0.0, "a", JobRequest.STOP))
        harness.until_told("a", JobEnded)
        harness.expect([], harness.runs("a"), "runs of an ended job:", "a")
        _can_be_used(harness, "b", 0)
        harness.expect(1, len(harness.of("a", JobEnded)), "ended events:", "a")


def a_job_that_was_prepared_starts_warm(under: ExecutorUnderTest) -> None:
    """A prepared job is told to be so once, runs nowhere before it starts, and then starts with what was prepared."""
    with ExecutorHarness(under, "a", "b", warm=["b"]) as harness:
        harness.give("a", "n0", 0)
        harness.until_steps("a", 1)
        harness.take_back("a")
        harness.give("b", "n0", 0)  # It is prepared while the other one still runs there.
        harness.until_told("b", JobPrepared)
        harness.expect([], harness.runs("b"), "runs of a job that is only prepared:", "b")
        harness.until_told("b", JobStarted)
        took_s = harness.took_s(harness.of("b", JobStarted)[0])
        harness.until_steps("b", 2)
        given = [type(action).__name__ for action in harness.actions if action.job == "b"]
        harness.expect(["Prepare", "Start"], given, "the controller gives", "b")
        harness.expect(False, under.started_cold("b", took_s), "it started cold:", "b")
        harness.expect(1, len(harness.of("b", JobPrepared)), "prepared events:", "b")
        harness.expect([[("n0", 0)]], harness.runs("b"), "runs once, on", "b")
        _no_step_is_lost_or_repeated(harness, "b")


def a_state_that_is_stored_elsewhere_is_kept(under: ExecutorUnderTest) -> None:
    """Where a paused job's state is after a store is told once, the job stays paused, and then goes on from it.

    It is on disk if it is to be; in memory if the executor can bring it there.
    """
    with ExecutorHarness(under, "a") as harness:
        harness.give("a", "n0", 0)
        harness.until_steps("a", 2)
        made = harness.pause("a")
        stores = 0
        for tier in (Tier.MEMORY, Tier.DISK):
            stores += harness.view("a").tier is not tier  # What is there already is not brought there.
            harness.store("a", tier)
            harness.until_told("a", StateStored, stores)
            there = tier if under.loads_into_memory else Tier.DISK
            harness.expect(there, harness.view("a").tier, "its state is in", "a")
        _all_are_answered(harness, "a")
        harness.expect([], harness.runs("a"), "runs of a paused job:", "a")
        harness.give("a", "n0", 0)
        harness.until_steps("a", made + 2)
        _no_step_is_lost_or_repeated(harness, "a")
        harness.expect(stores, len(harness.of("a", StateStored)), "stored events:", "a")


def a_job_paused_in_memory_goes_on_in_its_process(under: ExecutorUnderTest) -> None:
    """A process that is suspended saves nothing, makes no step and goes on as the same run; or saves all, and ends."""
    with ExecutorHarness(under, "a", without_gpus=["a"]) as harness:
        harness.give("a", "n0")
        harness.until_steps("a", 2)
        harness.store("a", Tier.MEMORY)  # from its next pause on
        made = harness.pause("a")
        harness.expect(
            (Tier.MEMORY, 0), (harness.view("a").tier, under.saved("a")), "its state, and its last save:", "a"
        )
        harness.expect(made, len(harness.steps("a")), "steps while it is paused:", "a")
        harness.give("a", "n0")
        harness.until_steps("a", made + 2)
        _no_step_is_lost_or_repeated(harness, "a")
        harness.expect(1, harness.view("a").starts, "runs in all:", "a")
        made = harness.pause("a")
        harness.store("a", Tier.DISK)
        harness.until_told("a", StateStored, 1)
        harness.expect(
            (Tier.DISK, made), (harness.view("a").tier, under.saved("a")), "its state, and its last save:", "a"
        )
        harness.give("a", "n0")
        harness.until_steps("a", made + 2)
        harness.expect(2, harness.view("a").starts, "runs in all:", "a")
        _no_step_is_lost_or_repeated(harness, "a")
        _all_are_answered(harness, "a")


# -- nodes --------------------------------------------------------------------------------------------------------


def a_lost_node_costs_its_own_jobs_one_run(under: ExecutorUnderTest) -> None:
    """Jobs on a lost node lose one run, and go on elsewhere from their last checkpoint; other jobs notice nothing."""
    with ExecutorHarness(under, "a", "b", nodes=2) as harness:
        harness.give("a", "n0", 0)
        harness.give("b", "n1", 0)
        harness.until_steps("a", 2)
        harness.until_steps("b", 1)
        _save(harness, "a")
        saved = under.saved("a")
        changes = harness.of("b", *CHANGES)
        _lose(harness, "n0", under.lose)
        harness.take_back("a")
        harness.cycle()
        harness.expect(1, harness.view("a").failures, "runs that were lost:", "a")
        before = len(harness.steps("a"))
        harness.give("a", "n1", 1)
        harness.until_steps("a", before + 2)
        harness.until_steps("b", len(harness.steps("b")) + 2)
        harness.expect(
            saved + 1, harness.steps("a")[before], f"after a checkpoint with {saved} steps it goes on with", "a"
        )
        harness.expect(1, harness.view("a").failures, "runs that were lost:", "a")
        harness.expect([[("n1", 1)]], harness.runs("a"), "runs on", "a")
        harness.expect(changes, harness.of("b", *CHANGES), "changes of a job on another node:", "b")
        harness.expect([[("n1", 0)]], harness.runs("b"), "runs on", "b")
        _no_step_is_lost_or_repeated(harness, "b")


def a_node_that_returns_runs_nothing_twice(under: ExecutorUnderTest) -> None:
    """When a node is back, what ran there and goes on elsewhere runs once, and the node can be used again."""
    with ExecutorHarness(under, "a", "b", nodes=2) as harness:
        harness.give("a", "n0", 0)
        harness.until_steps("a", 2)
        _save(harness, "a")
        _lose(harness, "n0", under.isolate)
        harness.give("a", "n1", 0, place="elsewhere")
        harness.until_told("a", JobStarted, 2)
        under.bring_back("n0")
        harness.until(lambda: harness.nodes_up() == {"n0", "n1"}, "node 'n0' is up again")
        once = [[("n1", 0)]]
        harness.until(lambda: harness.runs("a") == once, f"runs once, on {once}", "a", lambda: harness.runs("a"))
        harness.give("b", "n0", 0)
        harness.until_steps("b", 2)
        harness.expect(once, harness.runs("a"), "runs once, on", "a")
        harness.expect([JobStarted] * 2, [type(e) for e in harness.of("a", *CHANGES)], "changes of where it runs:", "a")
        harness.expect(1, len([e for e in harness.events if isinstance(e, NodeLost)]), "times that a node was lost:")


def a_node_that_was_away_for_a_moment_goes_on(under: ExecutorUnderTest) -> None:
    """If what runs a node's jobs ends and begins again before the node counts as lost, its jobs notice nothing."""
    with ExecutorHarness(under, "a") as harness:
        harness.give("a", "n0", 0)
        harness.until_steps("a", 2)
        heard = len(harness.events)
        under.restart("n0")
        reached = harness.view("a").epoch
        # What was done meanwhile is told once it is back; it may have to be heard first that all is well.
        harness.until(
            lambda: harness.view("a").epoch > reached + 1 or bool(harness.of("a", *CHANGES, since=heard)), "goes on"
        )
        harness.expect(1, len(harness.of("a", *CHANGES)), "changes of where it runs:", "a")
        harness.expect([[("n0", 0)]], harness.runs("a"), "runs once, on", "a")
        harness.expect([], [e for e in harness.events if isinstance(e, NodeLost)], "nodes that were lost:")
        _no_step_is_lost_or_repeated(harness, "a")


def a_job_over_two_nodes_is_one_run(under: ExecutorUnderTest) -> None:
    """A job over two nodes starts on both, pauses, resumes and ends on both, and each of that is told once."""
    with ExecutorHarness(under, "a", "b", nodes=2) as harness:
        both = [("n0", 0), ("n1", 1)]
        harness.spread("a", *both)
        harness.until_steps("a", 2)
        _runs_on(harness, "a", both)
        made = harness.pause("a")
        harness.expect([], harness.runs("a"), "runs of a paused job:", "a")
        harness.spread("a", *both)
        harness.until_steps("a", made + 2)
        _runs_on(harness, "a", both)
        _no_step_is_lost_or_repeated(harness, "a")
        harness.tell(JobAsked(0.0, "a", JobRequest.STOP))
        harness.until_told("a", JobEnded)
        harness.expect([], harness.runs("a"), "runs of an ended job:", "a")
        _can_be_used(harness, "b", 0)
        told = [type(event).__name__ for event in harness.of("a", *CHANGES)]
        harness.expect(["JobStarted", "JobPaused", "JobStarted", "JobEnded"], told, "changes of where it runs:", "a")


def a_lost_node_costs_a_job_over_two_nodes_one_run(under: ExecutorUnderTest) -> None:
    """If one node of a run is lost, all of it is, once: nothing of it goes on, and the job resumes as it was saved."""
    with ExecutorHarness(under, "a", nodes=2) as harness:
        harness.spread("a", ("n0", 0), ("n1", 0))
        harness.until_steps("a", 2)
        _save(harness, "a")
        _lose(harness, "n1", under.lose)
        harness.take_back("a")
        harness.until(lambda: not harness.runs("a"), "nothing of it runs", "a", lambda: harness.runs("a"))
        saved = under.saved("a")  # The part on the other node may have saved once more when it was ended.
        harness.expect(1, harness.view("a").failures, "runs that were lost:", "a")
        before = len(harness.steps("a"))
        harness.give("a", "n0", 0)
        harness.until_steps("a", before + 2)
        goes_on = f"after a checkpoint with {saved} steps it goes on with"
        harness.expect(saved + 1, harness.steps("a")[before], goes_on, "a")
        harness.expect(1, harness.view("a").failures, "runs that were lost:", "a")
        harness.expect([[("n0", 0)]], harness.runs("a"), "runs once, on", "a")


# -- the port -----------------------------------------------------------------------------------------------------


def time_never_goes_backward(under: ExecutorUnderTest) -> None:
    """Each moment that `wait` gives is no earlier than the one before, and no event is of a later time than that."""
    with ExecutorHarness(under, "a") as harness:
        harness.cycle(within_s=0.3)  # Nothing runs.
        harness.give("a", "n0", 0)
        harness.until_steps("a", 1)
        harness.pause("a")
        harness.cycle(within_s=0.3)
        harness.give("a", "n0", 0)
        harness.until_told("a", JobStarted, 2)


def a_wait_ends_when_it_was_asked_to(under: ExecutorUnderTest) -> None:
    """`wait(until_s)` returns by then, whether nothing runs or a job does."""
    with ExecutorHarness(under, "a") as harness:
        for what in ("nothing runs", "a job runs"):
            moment: Future[Moment | None] = Future()
            Thread(target=_wait, args=(harness, moment), daemon=True).start()
            expected = f"`wait` returns after 0.3 s while {what}"
            try:
                found = moment.result(under.patience_s)
            except TimeoutError:
                raise LawBroken("", "", expected, "it does not return") from None
            if found is None:
                raise LawBroken("", "", expected, "it says that nothing will come")
            harness.finish(found)
            harness.give("a", "n0", 0)
            harness.until(lambda: harness.is_running("a"), "it starts", "a")


def _wait(harness: ExecutorHarness, moment: Future[Moment | None]) -> None:
    """In a thread of its own: what the executor's `wait` gives, or raises."""
    try:
        moment.set_result(harness.wait(harness.now_s + 0.3))
    except BaseException as error:
        moment.set_exception(error)


def events_are_of_known_jobs(under: ExecutorUnderTest) -> None:
    """No event speaks of a job that was not submitted."""
    with ExecutorHarness(under, "a") as harness:
        harness.give("a", "n0", 0)
        harness.until_steps("a", 1)
        harness.pause("a")


def every_action_is_answered_once(under: ExecutorUnderTest) -> None:
    """Every action is answered by one event; no job starts, pauses, is resized or moved unless it was asked to."""
    with ExecutorHarness(under, "a", "b", warm=["b"]) as harness:
        harness.give("a", "n0", 0)
        harness.until_steps("a", 1)
        _save(harness, "a")
        harness.give("a", "n0", 1, place="elsewhere")
        harness.until_told("a", JobMoved)
        harness.take_back("a")
        harness.give("b", "n0", 1)  # It is prepared, and starts when the other one has paused.
        harness.until_told("b", JobStarted)
        harness.store("a", Tier.MEMORY)
        harness.until_told("a", StateStored)
        harness.give("a", "n0", 0)
        harness.until_told("a", JobStarted, 2)
        harness.tell(JobAsked(0.0, "b", JobRequest.STOP))
        harness.until_told("b", JobEnded)
        harness.give("a", "n0", 0, 1)
        harness.until_told("a", JobResized)
        harness.save("a")
        harness.until_steps("a", len(harness.steps("a")) + 1)
        _all_are_answered(harness, "a")
        harness.tell(JobAsked(0.0, "a", JobRequest.STOP))
        harness.until_told("a", JobEnded)
        _all_are_answered(harness, "a")
        given = {type(action).__name__ for action in harness.actions}
        harness.expect(
            {kind.__name__ for kind in get_args(Action)}, given, "the controller gives actions of all kinds:"
        )


def actions_take_hold_in_order(under: ExecutorUnderTest) -> None:
    """Actions that are given together take hold in their order: a checkpoint, then a pause, are told in that order."""
    with ExecutorHarness(under, "a") as harness:
        harness.give("a", "n0", 0)
        harness.until_steps("a", 2)
        harness.save("a")
        harness.pause("a")
        told = [type(e).__name__ for e in harness.of("a", JobStarted, JobCheckpointed, JobPaused)]
        given = [type(a).__name__ for a in harness.actions]
        harness.expect(["Start", "Checkpoint", "Pause"], given, "the controller gives", "a")
        in_order = list(dict.fromkeys(told))  # It may be saved once more as it leaves.
        harness.expect(["JobStarted", "JobCheckpointed", "JobPaused"], in_order, "told in order:", "a")


# -- what the laws are made of ------------------------------------------------------------------------------------


def _all_are_answered(harness: ExecutorHarness, job: str) -> None:
    harness.until(lambda: not harness.unanswered(), "all actions are answered", job, harness.unanswered)


def _save(harness: ExecutorHarness, job: str) -> None:
    """Have the job saved, with all that it has done so far."""
    made = harness.steps(job)[-1]
    harness.save(job)
    harness.until_told(job, JobCheckpointed, len(harness.of(job, JobCheckpointed)) + 1)
    seen = harness.under.saved
    harness.until(lambda: seen(job) >= made, f"a checkpoint with {made} steps", job, lambda: f"one with {seen(job)}")


def _lose(harness: ExecutorHarness, node: str, lose: Callable[[str], None]) -> None:
    lose(node)
    harness.until(lambda: node not in harness.nodes_up(), f"node '{node}' is lost")


def _runs_on(harness: ExecutorHarness, job: str, gpus: list[tuple[str, int]]) -> None:
    """It runs once, on these; what runs beside the first part may take a moment to be seen."""
    harness.until(lambda: harness.runs(job) == [gpus], f"runs once, on {gpus}", job, lambda: harness.runs(job))


def _has_moved_to(harness: ExecutorHarness, job: str, gpus: list[tuple[str, int]]) -> None:
    if harness.runs(job) not in ([], [gpus]):  # A process may take a moment to be seen.
        raise LawBroken("", job, f"runs on {gpus} or not yet", harness.runs(job))
    harness.until_steps(job, len(harness.steps(job)) + 2)
    _no_step_is_lost_or_repeated(harness, job)
    harness.expect([gpus], harness.runs(job), "runs once, on", job)


def _can_be_used(harness: ExecutorHarness, job: str, gpu: int) -> None:
    """Another job can have that GPU of the first node."""
    harness.give(job, "n0", gpu)
    harness.until_steps(job, 1)
    harness.expect([[("n0", gpu)]], harness.runs(job), "runs on", job)


def _no_step_is_lost_or_repeated(harness: ExecutorHarness, job: str) -> None:
    steps = harness.steps(job)
    for n, made in enumerate(steps, 1):
        if made != n:
            raise LawBroken("", job, f"step {n} after {steps[max(0, n - 4) : n - 1]}", f"step {made}")


LIVE = {law.__name__ for law in live_executor_laws.LAWS}  # They are tried on live executors only.
LAWS: dict[str, Law] = {
    law.__name__: law
    for law in (
        a_start_runs_once_where_it_was_asked_to,
        a_pause_frees_the_gpus_and_keeps_the_state,
        a_resume_goes_on_from_the_pause,
        a_resize_ends_on_the_new_gpus_with_the_work_kept,
        a_move_ends_in_the_new_place_with_the_work_kept,
        a_checkpoint_saves_and_the_job_goes_on,
        an_ended_job_is_gone,
        a_job_that_was_prepared_starts_warm,
        a_state_that_is_stored_elsewhere_is_kept,
        a_job_paused_in_memory_goes_on_in_its_process,
        a_lost_node_costs_its_own_jobs_one_run,
        a_node_that_returns_runs_nothing_twice,
        a_node_that_was_away_for_a_moment_goes_on,
        a_job_over_two_nodes_is_one_run,
        a_lost_node_costs_a_job_over_two_nodes_one_run,
        time_never_goes_backward,
        a_wait_ends_when_it_was_asked_to,
        events_are_of_known_jobs,
        every_action_is_answered_once,
        actions_take_hold_in_order,
        *live_executor_laws.LAWS,
    )
}
