"""The searches: how many configurations are trained how far, and which of them go on."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct


class Rung(Struct, frozen=True):
    """So many trials are trained to so many units in all."""

    trials: int  # number of trials in it
    units: int  # units to which each of them is trained, counted from its beginning


class Bracket(Struct, frozen=True):
    """Rungs, each with fewer trials that go further; trials are numbered through all brackets."""

    first: int  # number of its first trial
    rungs: tuple[Rung, ...]  # the first has the most trials

    @property
    def numbers(self) -> range:
        """The numbers of its trials."""
        return range(self.first, self.first + self.rungs[0].trials)


Trials = Annotated[int, Meta(ge=1, description="number of configurations that are tried")]
Units = Annotated[int, Meta(ge=1, description="what one configuration gets at most, in units of `unit_steps` steps")]
Eta = Annotated[int, Meta(ge=2, description="one trial in so many goes on to the next rung")]


class Hyperband(Struct, frozen=True, kw_only=True, tag="hyperband", forbid_unknown_fields=True):
    """Successive halving at every trade between many trials and long ones (Li et al., JMLR 2017)."""

    units: Units = 81
    eta: Eta = 3
    in_turn: Annotated[bool, Meta(description="one bracket after another, not all at once")] = False
    asynchronous = False

    def brackets(self) -> tuple[Bracket, ...]:
        """As in the paper: s from the largest down to 0, n = ⌈(s_max+1)/(s+1)·η^s⌉ trials from R·η^-s units up."""
        most = 0
        while self.eta ** (most + 1) <= self.units:
            most += 1
        found: list[Bracket] = []
        for s in range(most, -1, -1):
            trials = -(-(most + 1) * self.eta**s // (s + 1))
            rungs = _rungs(trials, self.units, self.eta, s)
            found.append(Bracket(found[-1].numbers.stop if found else 0, rungs))
        return tuple(found)


class SuccessiveHalving(Struct, frozen=True, kw_only=True, tag="halving", forbid_unknown_fields=True):
    """One bracket: of all trials one in η goes on, to η times as many units."""

    trials: Trials = 81
    units: Units = 81
    least: Annotated[int, Meta(ge=1, description="units of the first rung")] = 1
    eta: Eta = 3
    in_turn = False
    asynchronous = False

    def brackets(self) -> tuple[Bracket, ...]:
        """The only bracket."""
        return (Bracket(0, _rungs(self.trials, self.units, self.eta, _halvings(self))),)


class Asha(Struct, frozen=True, kw_only=True, tag="asha", forbid_unknown_fields=True):
    """Halving without waiting: a trial goes on once it is among the best 1/η seen so far (Li et al., 2020)."""

    trials: Trials = 81
    units: Units = 81
    least: Annotated[int, Meta(ge=1, description="units of the first rung")] = 1
    eta: Eta = 3
    at_once: Annotated[int, Meta(ge=1, description="trials that are under way at the same time")] = 32
    in_turn = False
    asynchronous = True

    def brackets(self) -> tuple[Bracket, ...]:
        """The only bracket; the number of trials in its upper rungs is not fixed."""
        return (Bracket(0, _rungs(self.trials, self.units, self.eta, _halvings(self))),)


class RandomSearch(Struct, frozen=True, kw_only=True, tag="random", forbid_unknown_fields=True):
    """Every trial is trained to its end."""

    trials: Trials = 20
    units: Units = 27
    in_turn = False
    asynchronous = False

    def brackets(self) -> tuple[Bracket, ...]:
        """One rung."""
        return (Bracket(0, (Rung(self.trials, self.units),)),)


Search = Hyperband | SuccessiveHalving | Asha | RandomSearch
SEARCHES: dict[str, type[Search]] = {
    "hyperband": Hyperband,
    "halving": SuccessiveHalving,
    "asha": Asha,
    "random": RandomSearch,
}


def total_units(brackets: tuple[Bracket, ...]) -> int:
    """What all trials get together if none fails; a trial goes on from where it stands."""
    sums = 0
    for bracket in brackets:
        before = 0
        for rung in bracket.rungs:
            sums += rung.trials * (rung.units - before)
            before = rung.units
    return sums


def _halvings(search: SuccessiveHalving | Asha) -> int:
    """How often η times as many units are still within the limit, and trials are left."""
    count = 0
    while search.least * search.eta ** (count + 1) <= search.units and search.eta ** (count + 1) <= search.trials:
        count += 1
    return count


def _rungs(trials: int, units: int, eta: int, halvings: int) -> tuple[Rung, ...]:
    """From `units`·η^-halvings up to `units`; rungs that would be equal after rounding are one."""
    found: list[Rung] = []
    for i in range(halvings + 1):
        reached = max(1, units // eta ** (halvings - i))
        left = max(1, trials // eta**i)
        if found and found[-1].units == reached:
            found.pop()
        found.append(Rung(left, reached))
    first = found[0]
    return (Rung(trials, first.units), *found[1:])
