"""Which trials to train next, and how far: a pure function of the brackets and what is known of the trials."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from hocket.tune.brackets import Asha, Bracket, Search
from hocket.tune.trials import Trials

Due = tuple[int, int]  # a trial and the units it is to reach


def due(search: Search, trials: Trials) -> list[Due]:
    """What to submit now; nothing while submitted trials must be awaited, or when all is done."""
    if isinstance(search, Asha):
        return list(_without_waiting(search, trials))
    found: list[Due] = []
    for bracket in search.brackets():
        at = _standing(bracket, trials)
        found += at.due
        if search.in_turn and not at.is_done:
            break
    return found


def dropped(search: Search, trials: Trials) -> set[int]:
    """Trials that will never go on: what is kept of them can be deleted."""
    gone = {t.number for t in trials.all.values() if t.failed}
    for bracket in search.brackets():
        top = bracket.rungs[-1].units
        gone |= {n for n in bracket.numbers if n in trials.all and trials.all[n].result_at(top) is not None}
        if not search.asynchronous:  # There a trial that is not among the best now may be later.
            gone |= _standing(bracket, trials).dropped
    return gone


class _Standing(NamedTuple):
    """How far a bracket is."""

    due: list[Due]
    dropped: set[int]  # trials that were not among the best of their rung
    is_done: bool


def _standing(bracket: Bracket, trials: Trials) -> _Standing:
    """A rung begins when all of the rung below are over: the best of them go on."""
    there = list(bracket.numbers)
    gone: set[int] = set()
    others: set[int] = set()  # of the rung below; until the best of that are submitted, all of them may go on
    for number, rung in enumerate(bracket.rungs):
        missing = [n for n in there if n not in trials.all or trials.all[n].asked < rung.units]
        missing = [n for n in missing if n not in trials.all or not trials.all[n].failed]
        if missing:
            return _Standing([(n, rung.units) for n in missing], gone, False)
        gone |= others
        if not all(trials.all[n].is_over_at(rung.units) for n in there):
            return _Standing([], gone, False)
        if number + 1 < len(bracket.rungs):
            best = trials.ranked(there, rung.units)[: bracket.rungs[number + 1].trials]
            others, there = set(there) - set(best), best
    return _Standing([], gone, True)


def _without_waiting(search: Asha, trials: Trials) -> Iterator[Due]:
    """As long as there is room: the best of the highest rung that has not all gone on, else a new trial."""
    (bracket,) = search.brackets()
    under_way = sum(not t.is_over_at(t.asked) for t in trials.all.values())
    asked = {t.number: t.asked for t in trials.all.values()}
    for _ in range(search.at_once - under_way):
        found = _promotable(search, bracket, trials, asked) or _below(bracket.rungs[0].units, trials, asked)
        if found is None:
            if len(asked) == search.trials:
                return
            found = len(asked), bracket.rungs[0].units
        asked[found[0]] = found[1]
        yield found


def _promotable(search: Asha, bracket: Bracket, trials: Trials, asked: dict[int, int]) -> Due | None:
    for rung, following in reversed(list(zip(bracket.rungs, bracket.rungs[1:], strict=False))):
        ranked = trials.ranked(trials.all, rung.units)
        for number in ranked[: len(ranked) // search.eta]:
            trial = trials.all[number]
            if asked[number] < following.units and trial.is_over_at(trial.asked) and not trial.failed:
                return number, following.units
    return None


def _below(units: int, trials: Trials, asked: dict[int, int]) -> Due | None:
    """The first trial that rests below the first rung: only where a study was extended, and has higher rungs now."""
    for trial in trials.all.values():
        if asked[trial.number] < units and trial.is_over_at(trial.asked) and not trial.failed:
            return trial.number, units
    return None
