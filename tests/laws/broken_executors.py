"""Executors that each break one law, so that the laws are seen to find them.

A class is named after what it does wrong, as the test that it belongs to reads it.
"""

# ruff: noqa: ARG002, N801

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from msgspec.structs import replace
from tests.laws.executors_under_test import Agents, Simulated

from hocket.agent.protocol import Hello, Report
from hocket.control.ports import Facts
from hocket.executors.agents.executor import AgentExecutor
from hocket.executors.agents.run_numbers import present
from hocket.executors.agents.sessions import Sessions
from hocket.executors.agents.usage_reports import UsageReports
from hocket.executors.simulated import SimulatedExecutor
from hocket.model.action import Action, Checkpoint, End, Move, Pause, Resize, Resume, Start, Store
from hocket.model.event import (
    EpochEnded,
    Event,
    JobCheckpointed,
    JobEnded,
    JobFailed,
    JobMoved,
    JobPaused,
    JobPrepared,
    JobStarted,
    NodeJoined,
    NodeLost,
    StateStored,
)
from hocket.model.view import Tier
from hocket.testing.executor_harness import ExecutorUnderTest

Moment = tuple[float, Sequence[Event]] | None
BROKEN: list[tuple[str, type[ExecutorUnderTest], str]] = []  # the law, what breaks it, and what was expected


class Wrapped(SimulatedExecutor):
    """The simulated executor, with `act` and `tell` between it and the controller."""

    def apply(self, actions: Iterable[Action]) -> None:
        for action in actions:
            self.act(action)

    def act(self, action: Action) -> None:
        super().apply([action])

    def wait(self, until_s: float | None) -> Moment:
        moment = super().wait(until_s)
        return moment and (moment[0], [said for event in moment[1] for said in self.tell(event)])

    def tell(self, event: Event) -> Iterable[Event]:
        return [event]


def breaks(law: str, expected: str) -> Any:
    """Register an executor that breaks that law; `expected` is part of what the law then says it expected."""

    def register(kind: Any) -> Any:
        under = Agents if issubclass(kind, AgentExecutor) else Simulated

        class Broken(under):  # type: ignore[misc, valid-type]
            name = kind.__name__.replace("_", " ")
            patience_s = 60.0 if issubclass(kind, AgentExecutor) else 10.0

            def make(self, *world: Any) -> Any:
                return kind(*world, Sessions(self.lease_s)) if self.is_live else kind(*world)

        BROKEN.append((law, Broken, expected))
        return kind

    return register


# -- the life of a job --------------------------------------------------------------------------------------------


@breaks("a_start_runs_once_where_it_was_asked_to", "it runs, and makes 2 steps")
class drops_a_start(Wrapped):
    def act(self, action: Action) -> None:
        if not isinstance(action, Start):
            super().act(action)


@breaks("a_start_runs_once_where_it_was_asked_to", "runs on")
class starts_on_another_gpu(Wrapped):
    def act(self, action: Action) -> None:
        if isinstance(action, Start):
            (part,) = action.to.slices
            action = replace(action, to=replace(action.to, slices=(replace(part, gpus=(0,)),)))
        super().act(action)


@breaks("a_start_runs_once_where_it_was_asked_to", "runs of a job that was given nothing")
class starts_what_nobody_asked_for(Wrapped):
    def act(self, action: Action) -> None:
        super().act(action)
        if isinstance(action, Start):
            self._runs["waits"].tenancies[""] = self._runs["a"].tenancies[""]


@breaks("a_pause_frees_the_gpus_and_keeps_the_state", "runs of a paused job")
class pauses_in_word_only(Wrapped):
    def act(self, action: Action) -> None:
        if isinstance(action, Pause):
            self._save(self._runs[action.job])
            self._ready.append(JobPaused(self.now_s, action.job))
        else:
            super().act(action)


@breaks("a_pause_frees_the_gpus_and_keeps_the_state", "a checkpoint with all 2 steps")
class pauses_without_saving(Wrapped):
    def act(self, action: Action) -> None:
        super().act(action)
        if isinstance(action, Pause):
            self._runs[action.job].saved_s = 0.0


@breaks("a_pause_frees_the_gpus_and_keeps_the_state", "events of a paused job")
class reports_progress_of_a_paused_job(Wrapped):
    def tell(self, event: Event) -> Iterable[Event]:
        yield event
        if isinstance(event, EpochEnded) and event.job == "b":
            yield replace(event, job="a", epoch=100)


@breaks("a_resume_goes_on_from_the_pause", "step 3 after [1, 2]")
class resumes_at_zero(Wrapped):
    def act(self, action: Action) -> None:
        if isinstance(action, Resume):
            run = self._runs[action.job]
            run.done_s, run.epoch = 0.0, 0
        super().act(action)


@breaks("a_resume_goes_on_from_the_pause", "step 3 after [1, 2]")
class loses_a_step_when_it_resumes(Wrapped):
    def act(self, action: Action) -> None:
        if isinstance(action, Resume):
            run = self._runs[action.job]
            run.epoch += 1
            run.done_s = float(run.epoch)
        super().act(action)


@breaks("a_resize_ends_on_the_new_gpus_with_the_work_kept", "runs on")
class resizes_in_word_only(Wrapped):
    def act(self, action: Action) -> None:
        held = dict(self._runs[action.job].tenancies) if isinstance(action, Resize) else None
        super().act(action)
        if held is not None:
            self._runs[action.job].tenancies = held


@breaks("a_resize_ends_on_the_new_gpus_with_the_work_kept", "step 3 after [1, 2]")
class resizes_from_zero(Wrapped):
    def act(self, action: Action) -> None:
        super().act(action)
        if isinstance(action, Resize):
            run = self._runs[action.job]
            run.done_s, run.epoch = 0.0, 0


@breaks("a_move_ends_in_the_new_place_with_the_work_kept", "runs on")
class runs_a_moved_job_twice(Wrapped):
    def act(self, action: Action) -> None:
        held = self._runs[action.job].tenancies.get("")
        super().act(action)
        if isinstance(action, Move) and held is not None:
            self._runs[action.job].tenancies["left behind"] = held


@breaks("a_checkpoint_saves_and_the_job_goes_on", "a checkpoint with 2 steps")
class saves_nothing(Wrapped):
    def act(self, action: Action) -> None:
        super().act(action)
        if isinstance(action, Checkpoint):
            self._runs[action.job].saved_s = 0.0


@breaks("a_checkpoint_saves_and_the_job_goes_on", "checkpointed events: 1")
class tells_a_checkpoint_twice(Wrapped):
    def tell(self, event: Event) -> Iterable[Event]:
        return [event, event] if isinstance(event, JobCheckpointed) else [event]


@breaks("an_ended_job_is_gone", "runs of an ended job")
class ends_in_word_only(Wrapped):
    def act(self, action: Action) -> None:
        if isinstance(action, End):
            self._ready.append(JobEnded(self.now_s, action.job, action.verdict))
        else:
            super().act(action)


@breaks("a_job_that_was_prepared_starts_warm", "it started cold: False")
class forgets_what_it_prepared(Wrapped):
    def act(self, action: Action) -> None:
        if isinstance(action, Start):
            self._runs[action.job].prepared = None
        super().act(action)


@breaks("a_job_that_was_prepared_starts_warm", "it started cold: False")
class has_agents_prepare_nothing(AgentExecutor):
    def __init__(self, *world: Any) -> None:
        super().__init__(*world)
        self._orders.prepares = False


@breaks("a_state_that_is_stored_elsewhere_is_kept", "step 3 after [1, 2]")
class loses_a_state_that_it_stores(Wrapped):
    def act(self, action: Action) -> None:
        super().act(action)
        if isinstance(action, Store):
            run = self._runs[action.job]
            run.done_s, run.epoch = 0.0, 0


@breaks("a_state_that_is_stored_elsewhere_is_kept", "StateStored, 1 in all")
class does_not_answer_a_store(Wrapped):
    def tell(self, event: Event) -> Iterable[Event]:
        return [] if isinstance(event, StateStored) else [event]


@breaks("a_job_paused_in_memory_goes_on_in_its_process", "runs in all: 1")
class begins_another_run_instead_of_going_on(Wrapped):
    def tell(self, event: Event) -> Iterable[Event]:
        return [replace(event, in_place=False) if isinstance(event, JobStarted) else event]


@breaks("a_job_paused_in_memory_goes_on_in_its_process", "step 3 after [1, 2]")
class loses_what_is_in_memory(Wrapped):
    def act(self, action: Action) -> None:
        if isinstance(action, Resume):
            run = self._runs[action.job]
            run.done_s, run.epoch = 0.0, 0
        super().act(action)


@breaks("a_job_paused_in_memory_goes_on_in_its_process", "last save: (<Tier.MEMORY: 'memory'>, 0)")
class writes_what_is_to_stay_in_memory(Wrapped):
    def act(self, action: Action) -> None:
        super().act(replace(action, tier=Tier.DISK) if isinstance(action, Pause) else action)


@breaks("a_job_paused_in_memory_goes_on_in_its_process", "last save: (<Tier.DISK: 'disk'>, 4)")
class ends_a_suspended_process_without_saving(Wrapped):
    def act(self, action: Action) -> None:
        saved_s = self._runs[action.job].saved_s
        super().act(action)
        if isinstance(action, Store):
            self._runs[action.job].saved_s = saved_s


# -- nodes --------------------------------------------------------------------------------------------------------


@breaks("a_lost_node_costs_its_own_jobs_one_run", "changes of a job on another node")
class loses_the_jobs_of_other_nodes(Wrapped):
    def tell(self, event: Event) -> Iterable[Event]:
        yield event
        if isinstance(event, NodeLost):
            yield JobFailed(event.at_s, "b", "a node was lost", own=False)


@breaks("a_lost_node_costs_its_own_jobs_one_run", "runs that were lost: 1")
class tells_a_loss_twice(Wrapped):
    def tell(self, event: Event) -> Iterable[Event]:
        yield event
        if isinstance(event, NodeLost):
            yield JobFailed(event.at_s, "a", "its node was lost", own=False)


@breaks("a_lost_node_costs_its_own_jobs_one_run", "it goes on with 3")
class forgets_checkpoints_with_a_node(Wrapped):
    def tell(self, event: Event) -> Iterable[Event]:
        if isinstance(event, NodeLost):
            run = self._runs["a"]
            run.done_s, run.epoch = 0.0, 0
        return [event]


@breaks("a_node_that_returns_runs_nothing_twice", "runs once")
class goes_on_where_it_was_before(Wrapped):
    def tell(self, event: Event) -> Iterable[Event]:
        if isinstance(event, NodeJoined):
            run = self._runs["a"]
            run.tenancies["left behind"] = run.tenancies[""]
        return [event]


@breaks("a_node_that_was_away_for_a_moment_goes_on", "changes of where it runs: 1")
class forgets_runs_when_their_agent_is_back(AgentExecutor):
    def hello(self, hello: Hello) -> Facts:
        return super().hello(replace(hello, runs=()))


@breaks("a_job_over_two_nodes_is_one_run", "runs once, on")
class starts_on_the_first_node_only(Wrapped):
    def act(self, action: Action) -> None:
        if isinstance(action, Start):
            action = replace(action, to=replace(action.to, slices=action.to.slices[:1]))
        super().act(action)


@breaks("a_job_over_two_nodes_is_one_run", "changes of where it runs")
class tells_an_end_for_each_node(Wrapped):
    def tell(self, event: Event) -> Iterable[Event]:
        return [event, event] if isinstance(event, JobEnded) else [event]


@breaks("a_lost_node_costs_a_job_over_two_nodes_one_run", "nothing of it runs")
class leaves_the_rest_of_a_lost_run_alone(Wrapped):
    def _lose_node(self, run: Any, node: str) -> None:
        pass


@breaks("a_lost_node_costs_a_job_over_two_nodes_one_run", "runs that were lost: 1")
class tells_the_loss_of_each_part(Wrapped):
    def tell(self, event: Event) -> Iterable[Event]:
        yield event
        if isinstance(event, NodeLost):
            yield JobFailed(event.at_s, "a", "its other part was lost", own=False)


# -- the port -----------------------------------------------------------------------------------------------------


@breaks("time_never_goes_backward", "a moment from 1.000 s on")
class turns_time_back(Wrapped):
    def wait(self, until_s: float | None) -> Moment:
        moment = super().wait(until_s)
        return moment and (moment[0] if moment[0] < 1.0 else moment[0] - 0.7, moment[1])


@breaks("time_never_goes_backward", "nothing from after")
class tells_what_is_to_come(Wrapped):
    def tell(self, event: Event) -> Iterable[Event]:
        return [replace(event, at_s=event.at_s + 5.0) if isinstance(event, EpochEnded) else event]


@breaks("a_wait_ends_when_it_was_asked_to", "a moment by")
class waits_for_too_long(Wrapped):
    def wait(self, until_s: float | None) -> Moment:
        return super().wait(until_s if until_s is None or until_s == 0.0 else until_s + 5.0)


@breaks("a_wait_ends_when_it_was_asked_to", "a moment by")
class waits_for_too_long_now_and_then(Wrapped):
    def wait(self, until_s: float | None) -> Moment:
        return super().wait(until_s if until_s is None or until_s < self.now_s + 0.2 else until_s + 5.0)


@breaks("events_are_of_known_jobs", "one of ['a']")
class speaks_of_other_jobs(Wrapped):
    def tell(self, event: Event) -> Iterable[Event]:
        return [replace(event, job="another") if isinstance(event, EpochEnded) else event]


@breaks("every_action_is_answered_once", "one JobStarted for each Start")
class tells_a_start_twice(Wrapped):
    def tell(self, event: Event) -> Iterable[Event]:
        return [event, event] if isinstance(event, JobStarted) else [event]


@breaks("every_action_is_answered_once", "one JobPrepared for each Prepare")
class tells_twice_that_a_job_is_prepared(Wrapped):
    def tell(self, event: Event) -> Iterable[Event]:
        return [event, event] if isinstance(event, JobPrepared) else [event]


@breaks("every_action_is_answered_once", "one StateStored for each Store")
class tells_twice_that_a_state_is_stored(Wrapped):
    def tell(self, event: Event) -> Iterable[Event]:
        return [event, event] if isinstance(event, StateStored) else [event]


@breaks("every_action_is_answered_once", "JobMoved, 1 in all")
class does_not_answer_a_move(Wrapped):
    def tell(self, event: Event) -> Iterable[Event]:
        return [] if isinstance(event, JobMoved) else [event]


@breaks("every_action_is_answered_once", "all actions are answered")
class answers_only_the_first_checkpoint(Wrapped):
    def tell(self, event: Event) -> Iterable[Event]:
        if isinstance(event, JobCheckpointed):
            self.answered = getattr(self, "answered", 0) + 1
            return [event] if self.answered == 1 else []
        return [event]


@breaks("actions_take_hold_in_order", "told in order")
class begins_with_the_last_action(Wrapped):
    def apply(self, actions: Iterable[Action]) -> None:
        super().apply(reversed(list(actions)))


# -- live ---------------------------------------------------------------------------------------------------------


@breaks("a_future_is_done_when_its_cycle_is_settled", "before its cycle is settled")
class answers_before_it_is_written(AgentExecutor):
    def wait(self, until_s: float | None) -> Moment:
        moment = super().wait(until_s)
        for posted in self._taken:
            posted.done.set_result(posted.result({}))
        return moment


@breaks("a_future_is_done_when_its_cycle_is_settled", "refused, for there is no node")
class never_tells_what_was_refused(AgentExecutor):
    def settle(self, facts_of_cycle: Iterable[Event]) -> None:
        super().settle([])


@breaks("a_failed_cycle_fails_its_futures_and_may_be_repeated", "the future fails with")
class takes_a_failed_cycle_for_written(AgentExecutor):
    def fail(self, failure: Exception) -> None:
        self.settle([])


@breaks("a_failed_cycle_fails_its_futures_and_may_be_repeated", "JobStarted of what was reported")
class remembers_reports_of_a_failed_cycle(AgentExecutor):
    def fail(self, failure: Exception) -> None:
        heard = {job: dict(runs) for job, runs in self._heard.items()}
        super().fail(failure)
        self._heard = heard


@breaks("what_is_refused_fails_and_is_forgotten", "the future fails with")
class takes_in_what_it_refused(AgentExecutor):
    def refuse(self, failure: Exception) -> None:
        pass


@breaks("a_closed_executor_waits_no_more_and_takes_nothing_in", "what is handed over after `close` fails")
class takes_in_what_comes_too_late(AgentExecutor):
    def _post(self, posted: Any) -> Any:
        with self._arrived:
            self._inbox.append(posted)
        return posted.done


@breaks("a_closed_executor_waits_no_more_and_takes_nothing_in", "`wait` gives [None]")
class waits_on_when_it_is_closed(AgentExecutor):
    def wait(self, until_s: float | None) -> Moment:
        return super().wait(until_s) or (self.snapshot.now_s, [])


@breaks("all_jobs_save_and_leave_when_they_are_stopped", "nothing runs any more")
class stops_nothing(AgentExecutor):
    def stop_all(self, grace_s: float) -> Callable[[], list[str]]:
        return list


@breaks("a_change_holds_back_later_reports_of_its_job", "of 3 reports, their future is done: False")
class takes_all_reports_in_at_once(AgentExecutor):
    def _events(self, now_s: float) -> list[Event]:
        found: list[Event] = []
        while any(posted.reports for posted in self._taken):
            found += super()._events(now_s)
        return found + super()._events(now_s)


@breaks("a_report_that_comes_again_changes_nothing", "one JobPaused for each Pause")
@breaks("a_stale_report_does_not_undo_a_later_one", "one JobPaused for each Pause")
class takes_every_report_for_the_present_runs(AgentExecutor):
    def _take_report(self, report: Report, node: str, now_s: float) -> list[Event]:
        view = self.snapshot.jobs.get(report.run.job)
        self._heard.clear()
        taken = report if view is None or report.event == "started" else replace(report, run=present(view))
        return super()._take_report(taken, node, now_s)


@breaks("a_stale_report_does_not_undo_a_later_one", "changes that these reports make: []")
class does_not_look_at_the_numbers_of_reports(AgentExecutor):
    def _take_report(self, report: Report, node: str, now_s: float) -> list[Event]:
        self._heard.clear()
        return super()._take_report(report, node, now_s)


@breaks("reports_of_several_runs_may_come_in_any_order", "told in order")
class hears_only_the_first_job_of_a_call(AgentExecutor):
    def report(self, reports: Sequence[Report], node: str = "") -> Any:
        return super().report([r for r in reports if r.run.job == reports[0].run.job], node)


@breaks("what_a_job_uses_is_known_until_it_ends", "it uses {'cpu'")
class never_looks_at_what_jobs_use(AgentExecutor):
    def _take_report(self, report: Report, node: str, now_s: float) -> list[Event]:
        found = super()._take_report(report, node, now_s)
        self._usage.forget(report.run.job)
        return found


@breaks("what_a_job_uses_is_known_until_it_ends", "a job that is over uses {}")
class remembers_what_ended_jobs_used(AgentExecutor):
    def _forget(self, job_id: str) -> None:
        used, self._usage = self._usage, UsageReports()
        super()._forget(job_id)
        self._usage = used
