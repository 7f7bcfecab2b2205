"""Folds the facts about where the state of a job is: in memory, on disk, or nowhere."""

from __future__ import annotations

from msgspec.structs import replace

from hocket.control.state import State
from hocket.model.event import JobCheckpointed, StateStored
from hocket.model.view import JobState, Tier


def checkpointed(state: State, event: JobCheckpointed) -> None:
    """A job has saved its state while it runs on."""
    if (view := state.jobs.live.get(event.job)) is not None:
        state.put_view(view, replace(view, tier=event.tier))


def stored(state: State, event: StateStored) -> None:
    """A paused job's state is elsewhere now: a process that was suspended has ended, unless it is still in memory."""
    view = state.jobs.live.get(event.job)
    if view is None:
        return
    if view.suspended is None or event.tier is Tier.MEMORY:
        state.put_view(view, replace(view, tier=event.tier, storing=None))
        return
    idle = JobState.WAITING if event.tier is Tier.NONE else JobState.PAUSED
    becomes = view.state if view.tenancies else idle
    state.put_view(view, replace(view, tier=event.tier, storing=None, suspended=None, state=becomes))
    state.leaving.drop(f"{event.job}/")
    state.notes.freed = True
