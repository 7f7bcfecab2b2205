"""Which trials to train next, and how far: a pure function of the brackets and what is known of the trials."""

from __future__ import annotations

from collections.abc import Iterator

from hocket.tune.brackets import Asha, Bracket, Search
from hocket.tune.trials import Trials

Due = tuple[int, int]  # a trial and the units it is to reach


def due(search: Search, trials: Trials) -> list[Due]:
    """What to submit now; nothing while submitted trials must be awaited, or when all is done."""
    if isinstance(search, Asha):
        return list(_without_waiting(search, trials))
    found: list[Due] = []
    for bracket in search.brackets():
        more, is_done = _of_bracket(bracket, trials)
        found += more
        if search.in_turn and not is_done:
            break
    return found


def dropped(search: Search, trials: Trials) -> set[int]:
    """Trials that will never go on: what is kept of them can be deleted."""
    gone = {t.number for t in trials.all.values() if t.failed}
    for bracket in search.brackets():
        top = bracket.rungs[-1].units
        gone |= {n for n in bracket.numbers if n in trials.all and trials.all[n].result_at(top) is not None}
        if search.asynchronous:
            continue  # A trial that is not among the best now may be later.
        for rung, following in zip(bracket.rungs, bracket.rungs[1:], strict=False):
            there = [n for n in bracket.numbers if n in trials.all and trials.all[n].asked >= rung.units]
            if any(trials.all[n].asked >= following.units for n in there):
                gone |= {n for n in there if trials.all[n].asked == rung.units}
    return gone


def _of_bracket(bracket: Bracket, trials: Trials) -> tuple[list[Due], bool]:
    """A rung begins when all of the rung below are over: the best of them go on."""
    there = list(bracket.numbers)
    for number, rung in enumerate(bracket.rungs):
        missing = [n for n in there if n not in trials.all or trials.all[n].asked < rung.units]
        missing = [n for n in missing if n not in trials.all or not trials.all[n].failed]
        if missing:
            return [(n, rung.units) for n in missing], False
        if not all(trials.all[n].is_over_at(rung.units) for n in there):
            return [], False
        if number + 1 < len(bracket.rungs):
            there = trials.ranked(there, rung.units)[: bracket.rungs[number + 1].trials]
    return [], True


def _without_waiting(search: Asha, trials: Trials) -> Iterator[Due]:
    """As long as there is room: the best of the highest rung that has not all gone on, else a new trial."""
    (bracket,) = search.brackets()
    under_way = sum(not t.is_over_at(t.asked) for t in trials.all.values())
    asked = {t.number: t.asked for t in trials.all.values()}
    for _ in range(search.at_once - under_way):
        found = _promotable(search, bracket, trials, asked)
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
            if asked[number] == rung.units and not trials.all[number].failed:
                return number, following.units
    return None
