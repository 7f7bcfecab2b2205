"""A hyperparameter study as `hocket tune` tells a controller of it, so that its page can show it.

The study itself is kept where `hocket tune` runs. If its trials are jobs, they are named here, and what those do
now the controller knows better.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

MOST_TRIALS = 2000  # that are told of: of more, the best and the last
_Name = Annotated[str, Meta(min_length=1, max_length=200)]
_Count = Annotated[int, Meta(ge=0, le=10**12)]
_Value = bool | Annotated[int, Meta(ge=-(2**53), le=2**53)] | float | Annotated[str, Meta(max_length=500)] | None


class Hyperparameter(Struct, frozen=True, forbid_unknown_fields=True):
    """One axis of the space that is searched."""

    name: _Name
    kind: Literal["choice", "uniform", "loguniform", "randint"]
    low: float | None = None  # None: it is a choice
    high: float | None = None
    values: Annotated[list[_Value], Meta(max_length=500)] = []  # of a choice


class TrialSummary(Struct, frozen=True, forbid_unknown_fields=True):
    """One configuration, and its results so far."""

    number: Annotated[int, Meta(ge=0, le=10**6)]
    job: Annotated[str, Meta(max_length=200)]  # that it is now; empty: none, or none yet
    config: Annotated[dict[_Name, _Value], Meta(max_length=100)]
    results: Annotated[list[tuple[_Count, float]], Meta(max_length=200)] = []  # units, and the metric after so many
    asked: _Count = 0  # units that it shall reach, as far as the search has decided
    failed: Annotated[str, Meta(max_length=500)] = ""  # why; empty: it has not


class Importance(Struct, frozen=True, forbid_unknown_fields=True):
    """How much each hyperparameter matters for being among the best, by Optuna."""

    shares: Annotated[dict[_Name, float], Meta(max_length=100)]  # all together 1
    units: _Count  # after which the trials are compared
    trials: _Count  # that were


class StudySummary(Struct, frozen=True, forbid_unknown_fields=True):
    """All that is told of a study; the next telling takes its place."""

    name: _Name
    state: Literal["running", "paused", "done", "failed"]
    search: Annotated[str, Meta(max_length=200)]  # in words
    metric: _Name
    goal: Literal["min", "max"]
    unit: Annotated[str, Meta(max_length=200)]  # what the search counts: 1 epoch
    units: _Count  # that a trial gets at most
    done: float  # units of all trials together
    total: _Count  # that there will be, if none fails
    seconds: float  # that it has taken
    space: Annotated[list[Hyperparameter], Meta(max_length=100)]
    trials: Annotated[list[TrialSummary], Meta(max_length=MOST_TRIALS)]
    more_trials: _Count = 0  # that are left out
    best: _Count | None = None  # the trial with the best result
    importance: Importance | None = None  # None: Optuna is not there, or there are too few results
    owner: Annotated[str, Meta(max_length=200)] = ""  # of its jobs; for users, it is their own in any case
