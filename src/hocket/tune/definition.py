"""What a study is: all that decides its outcome, as its journal has it."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from hocket.control.ports import Header
from hocket.model.metric_name import more_is_better
from hocket.model.resources import Node
from hocket.policies.registry import BoundPolicy
from hocket.tune.brackets import Search
from hocket.tune.sampling import EARLIER, RANDOM
from hocket.tune.space import Domain

MOST_TRIALS = 1_000_000  # More would be a mistake: all of them wait at once.
MOST_SEED = 2**32 - 1  # as NumPy has it


class StudyError(ValueError):
    """A study cannot be run as it was given: says what, which rule and which value."""


def check_name(name: str) -> None:
    """Raise StudyError unless this can be a study's name: its folder has it, too."""
    if not (name.isprintable() and 0 < len(name) <= 200 and "/" not in name and name not in (".", "..")):
        raise StudyError(f"name is 1 to 200 printable characters without '/', and no '.' or '..', not {name!r}")


def goal_of(metric: str) -> Literal["min", "max"]:
    """What is better where no goal was given: more of an accuracy, a score or a reward, by its name; less of others."""
    return "max" if more_is_better(metric) else "min"


def check_search(search: Search, goal: str, seed: int) -> None:
    """Raise StudyError if a study cannot be searched like this."""
    if (trials := sum(len(b.numbers) for b in search.brackets())) > MOST_TRIALS:
        raise StudyError(f"a study has at most {MOST_TRIALS:,} trials, not {trials:,}: take fewer, or fewer units")
    if not 0 <= seed <= MOST_SEED:
        raise StudyError(f"seed is from 0 to {MOST_SEED}, not {seed}")
    if (least := getattr(search, "least", 1)) > search.units:
        raise StudyError(f"least is at most the search's {search.units} units, not {least}")
    if goal not in ("min", "max"):
        raise StudyError(f"goal is min or max, not '{goal}'")


class JobTemplate(Struct, frozen=True):
    """The jobs that a study's trials are, where they are no models in this process."""

    command: tuple[str, ...]  # with a placeholder for each hyperparameter
    unit: str  # what the search counts, as a limit of a criterion: 1 epoch, 100 steps
    prefix: str  # trial 3 is job PREFIX-3
    options: dict[str, Any] = {}  # of `hocket submit`, as they were given


class Definition(Struct, frozen=True):
    """A study that goes on must be the one that was begun."""

    name: str
    space: dict[str, Domain] | str  # a function goes by its name
    search: Search
    unit_steps: int  # steps that are one unit of the search's resource
    metric: str
    goal: str  # min or max
    seed: int
    device: str
    mode: str | None = field(name="way")  # the name in journals
    exact: bool
    memory_mib: float | None
    sampler: str
    jobs: JobTemplate | None = None  # None: trials are models in this process

    @property
    def most_steps(self) -> int:
        """The most steps that one trial can make."""
        return max(b.rungs[-1].units for b in self.search.brackets()) * self.unit_steps


def header_of(definition: Definition, policy: BoundPolicy, node: Node) -> Header:
    """What the study's journal begins with."""
    told = msgspec.json.encode(definition).decode()
    return Header(policy.policy.name, policy.settings, (node,), definition.seed, told)


def definition_of(header: Header) -> Definition:
    """What a journal says about its study."""
    try:
        found = msgspec.json.decode(header.workload, type=Definition)
    except msgspec.DecodeError as error:
        raise StudyError(f"the journal is not one of a study: {error}") from error
    return replace(found, sampler=RANDOM) if found.sampler == EARLIER else found


def refuse_another(where: str, kept: Header, wanted: Header) -> None:
    """Say the first thing in which a study differs from the one that was begun there."""
    before, now = _told(kept), _told(wanted)
    now["params"] = {name: now["params"].get(name) for name in before["params"]}  # A newer version has more.
    for name in now:
        shown = "mode" if name == "way" else name
        if before.get(name) != now[name]:
            was = f"{shown} {before.get(name)!r}, not {now[name]!r}"
            raise StudyError(f"study '{where}' was begun with {was}: give it another folder")


def _told(header: Header) -> dict[str, Any]:
    try:
        told: dict[str, Any] = msgspec.json.decode(header.workload)
    except msgspec.DecodeError as error:
        raise StudyError(f"the journal is not one of a study: {error}") from error
    params = msgspec.json.decode(msgspec.json.encode(header.params))  # as a journal has them: without tuples
    if told.get("sampler") == EARLIER:
        told["sampler"] = RANDOM
    return told | {"policy": header.policy, "params": params}
