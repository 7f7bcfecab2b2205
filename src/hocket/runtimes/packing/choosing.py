"""Which way to run a pack: measured on real steps, so that nothing but the slower ones' excess is lost.

A new mix of models is probed, unless models of the same sizes were clearly faster one way, or were probed a few times:
then their way is taken at once. Now and then a few steps are made in turn and compared, so that a way which was wrong,
or has become so, is noticed and all are measured again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from math import inf
from time import perf_counter, thread_time
from typing import NamedTuple

import torch

from hocket.runtimes.packing.certificate import Ledger
from hocket.runtimes.packing.member import Member
from hocket.runtimes.packing.probing import LOOK, Probe, Times
from hocket.runtimes.packing.ways.way import Way

MARGIN = 0.97  # Another way than in turn must take less than this share of its time.
CLEARLY = 0.67  # Less than this share of the time in turn is no accident of one probe.
OFTEN = 3  # probes of models of the same sizes, after which others are not probed
LOOK_COST = 0.005  # of the time: looking back costs no more
LOOK_NOT_BEFORE = 50  # steps
STALE = 2000  # steps in turn for the only reason that models of the same sizes did best so
ENTRY = 4.0  # steps in turn, that it costs all models to enter a way

Key = tuple[object, ...]


class Kin(NamedTuple):
    """Models of the same sizes, as they were probed last."""

    models: int
    times: Times
    probes: int  # so far

    def is_known(self, turn: str) -> bool:
        """Whether others may do as they do: one way is clearly faster, or they were asked often enough."""
        fastest = min(self.times.values(), default=inf)
        return self.probes >= OFTEN or fastest < CLEARLY * self.times.get(turn, 0.0)


class Remembered:
    """What was measured: a sweep packs the same kinds again and again."""

    def __init__(self) -> None:
        self.certificates: dict[bool, Ledger] = {exact: Ledger() for exact in (True, False)}
        self.times: dict[Key, Times] = {}  # by mix
        self.kin: dict[Key, Kin] = {}  # by sizes


class Chooser:
    """Chooses among ways, remembers what it found, and looks whether it still holds."""

    def __init__(self, device: torch.device, ways: Sequence[Way], remembered: Remembered) -> None:
        self.ways = list(ways)  # the first is in turn
        self.probe: Probe | None = None
        self.looks = 0  # how often it looked back
        self._device = device
        self._remembered = remembered
        self._excluded: set[tuple[str, Key]] = set()
        self._where: Key = (str(device), *((w.name, w.exact) for w in ways))
        self._doubted: Counter[Key] = Counter()  # how often a mix was probed again
        self._key: Key = ()
        self._kin: Key = ()
        self._members: list[Member] = []
        self._way: Way = self.ways[0]
        self._steps = 0  # since the way was chosen, or looked at
        self._until_look = self._until_better = inf
        self._better, self._better_s = self._way, Times()
        self._in_turn_s = inf  # what a step in turn is known or believed to take
        self._not_before = LOOK_NOT_BEFORE
        self._began: float | None = None  # of the step before
        self._pace_s: float | None = None  # of late
        # One thread's own work is what counts where it does all of it: others on the machine then spoil no probe.
        alone = device.type == "cpu" and torch.get_num_threads() == 1
        self.clock: Callable[[], float] = thread_time if alone else perf_counter

    def way(self, members: Sequence[Member]) -> Way:
        """The way for the next step of these models."""
        if members != self._members:
            self._members = list(members)
            key = (*self._where, *mix(members))
            if key != self._key:
                kin = (*self._where, *sizes(members))
                goes_on = self.probe if self.probe is not None and not self.probe.is_look and kin == self._kin else None
                self._key, self._kin, self.probe = key, kin, None
                self._choose(goes_on)
        if self.probe is not None and not self.probe.candidates:
            self._learn(self.probe, len(members))
        if self.probe is not None and not self.probe.is_look:
            return self.probe.candidates[0]
        return self._way

    def _learn(self, probe: Probe, models: int) -> None:
        """The probe is over: choose by what it found."""
        times = self._remembered.times.setdefault(self._key, {})
        times.update({name: s * models for name, s in probe.least_s.items()})
        self.probe = None
        if probe.is_look:
            self._look_after(times)
            return
        kin = self._remembered.kin.get(self._kin)
        probes = OFTEN if probe.gave_up else 1 + (kin.probes if kin else 0)
        self._remembered.kin[self._kin] = Kin(models, times, probes)
        self._settle()

    def _choose(self, probe: Probe | None) -> None:
        """For a new mix: by what is remembered, as kin did, or by a probe, which may be under way."""
        able, kin = self._able(), self._remembered.kin.get(self._kin)
        if self._key in self._remembered.times:
            self._settle(newcomers=True)
        elif len(able) == 1 or (len(self._members) == 1 and self._device.type == "cpu"):
            self._take(self.ways[0])
        elif kin is not None and kin.is_known(self.ways[0].name):
            times = {name: s * len(self._members) / kin.models for name, s in kin.times.items()}
            self._begin(times)
            if self._way is self.ways[0]:
                self._until_look = STALE
            else:
                self._look_after(times)
        else:
            self.probe = probe or Probe(able)
            self.probe.changed()

    def _able(self) -> list[Way]:
        return [w for w in self.ways if w is self.ways[0] or any(w.refuses(m) is None for m in self._members)]

    def _settle(self, newcomers: bool = False) -> None:
        """By what was measured: the fastest, or in turn unless that is clearly slower."""
        turn = self.ways[0].name
        times = {n: s for n, s in self._remembered.times[self._key].items() if (n, self._key) not in self._excluded}
        if newcomers:
            self._begin(times)
        else:
            self._take(self._fastest(times))
        if turn in times and self._way.name != turn:
            self._look_after(times)

    def _look_after(self, times: Times) -> None:
        """When to look whether the way still is the faster one: so seldom that it costs next to nothing."""
        name = self._way.name
        self._in_turn_s = times[self.ways[0].name]
        after = max(LOOK_NOT_BEFORE, LOOK * self._in_turn_s / (LOOK_COST * times[name]))
        self._until_look = self._steps + after * 2 ** self._doubted[self._key]
        self._not_before = self._steps + LOOK_NOT_BEFORE
        self._began = self._pace_s = None

    def _fastest(self, times: Times) -> Way:
        turn = self.ways[0]
        known = [way for way in self._able() if way.name in times]
        return min(known, key=lambda w: times[w.name] * (1 if w is turn else 1 / MARGIN), default=turn)

    def _begin(self, times: Times) -> None:
        """The fastest way; but at first one that newcomers enter cheaply, for others may come and go soon."""
        best, in_turn = self._fastest(times), times.get(self.ways[0].name, inf)
        light = self._fastest({w.name: times[w.name] for w in self.ways if w.light and w.name in times})
        if best is light or best.light or times[light.name] > CLEARLY * in_turn:
            self._take(best)
            return
        self._take(light)
        # To enter the better way and to leave it costs all models a capture each.
        self._until_better = ENTRY * in_turn / max(times[light.name] - times[best.name], 1e-9)
        self._better, self._better_s = best, times

    def _take(self, way: Way) -> None:
        self._way, self._steps, self._until_look, self._until_better = way, 0, inf, inf
        self._not_before = LOOK_NOT_BEFORE
        self._began = self._pace_s = None

    def times_s(self) -> Times:
        """Least step times by way for the present mix, as far as they were measured."""
        return dict(self._remembered.times.get(self._key, {}))

    def exclude(self, way: Way) -> None:
        """This way did not keep its promise for the present mix."""
        self._excluded.add((way.name, self._key))
        self._remembered.kin.pop(self._kin, None)
        if self._key in self._remembered.times:
            self._settle()
        else:
            self._take(self.ways[0])

    # -- looking back ---------------------------------------------------------------------------------------

    def looks_back(self) -> bool:
        """Whether the next step is made in turn, though another way was chosen: only to see how long it takes."""
        if self.probe is not None:
            return self.probe.is_look and bool(self.probe.candidates) and self.probe.candidates[0] is self.ways[0]
        self._steps += 1
        if self._way is self.ways[0]:
            if self._steps >= self._until_look:  # It was taken only because others did best so, long ago.
                self.probe = Probe(self._able())
            return False
        if self._steps >= self._until_better:
            self._take(self._better)
            self._look_after(self._better_s)
        elif self._steps >= self._until_look or (self._steps >= self._not_before and self._has_slowed()):
            self.looks += 1
            self.probe = Probe([self.ways[0], self._way], is_look=True)
            return True
        return False

    def _has_slowed(self) -> bool:
        """Whether steps of late took longer than one in turn is known to take. Costs a look at the clock."""
        now = self.clock()
        if self._began is not None:
            took = now - self._began
            self._pace_s = took if self._pace_s is None else 0.9 * self._pace_s + 0.1 * took
        self._began = now
        return self._pace_s is not None and self._pace_s > self._in_turn_s

    def measured(self, run: Callable[[], None]) -> None:
        """Run a step of the probe."""
        probe = self.probe
        if probe is None or not probe.candidates:
            run()
            return
        way = probe.candidates[0]
        counts = probe.begins(way.settled([m for m in self._members if way.refuses(m) is None]))
        if counts:
            self._wait()
        began = self.clock()
        run()
        if counts:
            self._wait()
        probe.record(self.clock() - began, len(self._members) or 1)
        if not probe.candidates and probe.is_look:
            self._compared(probe.least_s)

    def _compared(self, now_s: Times) -> None:
        """What looking back has shown: the way holds, or all are measured again."""
        turn, name = self.ways[0].name, self._way.name
        if now_s[name] < MARGIN * now_s[turn]:
            return
        self._remembered.kin.pop(self._kin, None)
        self._remembered.times.pop(self._key, None)
        self._doubted[self._key] += 1
        self.probe = Probe(self._able())

    def _wait(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)


def mix(members: Sequence[Member]) -> Key:
    """How many models of which kind: what the best way depends on."""
    return tuple(sorted(Counter(map(kind, members)).items()))


def sizes(members: Sequence[Member]) -> Key:
    """What is alike among mixes of models that differ in batch, optimiser or activation only."""
    return min(len(members), 3), *sorted({m.shapes for m in members})


def kind(member: Member) -> tuple[str, ...]:
    """Its layers, sizes, batch and optimiser."""
    training = member.training
    batch = getattr(training.data, "batch_size", None)
    rest = (type(member.optimiser).__name__, batch, training.accumulate, training.autocast, training.clip is None)
    return member.layers, member.shapes, *map(str, rest)
