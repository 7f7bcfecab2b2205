"""More of the same: a study goes on in its folder with more units, more trials or both, and keeps what it has."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import msgspec
from msgspec.structs import asdict, replace

from hocket.control.ports import Header
from hocket.model.event import EpochEnded
from hocket.tune.brackets import Search
from hocket.tune.definition import Definition, StudyError, definition_of, refuse_another
from hocket.tune.trials import Trials, job_id

EXTENDED = "extended.json"  # in a study's folder: its search now, where that is not the one it was begun with
_GROWS = ("units", "trials")
_FREE = ("at_once",)  # changes which trials run at the same time, and not what they are


def refuse_smaller(where: str, kept: Search, wanted: Search) -> None:
    """Raise StudyError unless the search that is wanted is the one that is kept, or more of it."""
    if type(kept) is not type(wanted):
        said, now = (type(s).__struct_config__.tag for s in (kept, wanted))
        raise StudyError(f"study '{where}' was begun with search {said}, not {now}: give it another folder")
    was, now_is = asdict(kept), asdict(wanted)
    for name, value in was.items():
        if name in _GROWS and now_is[name] < value:
            raise StudyError(f"study '{where}' has {value} {name} already, and can only get more, not {now_is[name]}")
        if name not in (*_GROWS, *_FREE) and now_is[name] != value:
            raise StudyError(
                f"study '{where}' was begun with {name} {value}, not {now_is[name]}: give it another folder"
            )


def refuse_other(folder: Path, kept: Header, wanted: Header) -> None:
    """Raise StudyError if the study in a folder is another one; it may have had fewer units or trials so far."""
    begun, now = definition_of(kept), definition_of(wanted)
    refuse_smaller(str(folder), in_force(folder, begun).search, now.search)
    same = replace(now, search=begun.search)
    refuse_another(str(folder), kept, replace(wanted, workload=msgspec.json.encode(same).decode()))


def missing_results(search: Search, trials: Trials, at_s: float) -> Iterator[EpochEnded]:
    """Results at rungs that an extended search has and the search before did not.

    A trial that was trained beyond such a rung is not trained again: the first result that follows stands for it.
    """
    for bracket in search.brackets():
        for trial in (trials.all[n] for n in bracket.numbers if n in trials.all):
            for rung in bracket.rungs:
                if rung.units < trial.units and trial.result_at(rung.units) is None:
                    after = next(r for r in trial.results if r.units > rung.units)
                    yield EpochEnded(at_s, job_id(trial.number, trial.asked), rung.units, after.metrics)


def in_force(folder: Path, definition: Definition) -> Definition:
    """The definition with the search that the study in this folder has now."""
    try:
        text = (folder / EXTENDED).read_bytes()
    except FileNotFoundError:
        return definition
    try:
        return replace(definition, search=msgspec.json.decode(text, type=Search))
    except msgspec.DecodeError as error:
        raise StudyError(f"{folder / EXTENDED} is damaged: {error}") from error


def keep(folder: Path, search: Search) -> None:
    """From now on the study has this search."""
    part = folder / f"{EXTENDED}.part"
    with part.open("wb") as file:
        file.write(msgspec.json.encode(search))
        file.flush()
        os.fsync(file.fileno())
    part.replace(folder / EXTENDED)
