"""The loop that drives a controller, live and simulated: wait for events, cycle, hand the actions to the executor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from hocket.control.controller import Controller
from hocket.control.journal import JournalError
from hocket.control.ports import Executor
from hocket.model.event import Event

Moment = tuple[float, Sequence[Event]]  # when, and what happened then


class Hooks(Protocol):
    """What a run adds to the loop. All are called in the loop's thread."""

    def take(self, now_s: float, events: Sequence[Event]) -> Moment:
        """Before a cycle: its time and events, which may be more than the executor reported."""

    def written(self, controller: Controller) -> None:
        """The cycle is in the journal. Its actions have not been sent yet."""

    def done(self, controller: Controller) -> None:
        """The actions have been sent."""

    def recover(self, error: JournalError) -> Controller:
        """The cycle could not be written: return a controller restored from the journal, or raise."""


def drive(controller: Controller, executor: Executor, hooks: Hooks | None = None, first: Moment | None = None) -> None:
    """Run cycles until the executor reports the end; `first` is the input of the first cycle."""
    moment = first if first is not None else executor.wait(controller.next_timer_s())
    while moment is not None:
        if hooks is None:
            now_s, events = moment
            if actions := controller.cycle(now_s, events):
                executor.apply(actions)
        else:
            controller = step(controller, executor, hooks, moment)
        moment = executor.wait(controller.next_timer_s())


def step(controller: Controller, executor: Executor, hooks: Hooks, moment: Moment) -> Controller:
    """One cycle with its hooks. Returns the controller to continue with: a restored one if the journal failed."""
    try:
        actions = controller.cycle(*hooks.take(*moment))
    except JournalError as error:
        return hooks.recover(error)
    hooks.written(controller)
    executor.apply(actions)
    hooks.done(controller)
    return controller
