"""Which step mode a pack uses: modes are timed on real steps, so only the additional time of slower modes is lost.

A new mix of models is probed, unless one mode was clearly fastest for models of the same sizes, or these were
probed a few times: then their mode is used at once. From time to time a few steps are made one by one and compared; if
the chosen mode is no longer faster, all modes are timed again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from math import inf
from time import perf_counter, thread_time
from typing import NamedTuple

import torch

from hocket.runtimes.packing.certificate import CertificateTable
from hocket.runtimes.packing.member import Member
from hocket.runtimes.packing.mode_probe import LOOK, Probe, Times
from hocket.runtimes.packing.step_modes.step_mode import StepMode

MARGIN = 0.97  # Another mode must take less than this share of the time one by one.
CLEARLY = 0.67  # Less than this share of the time one by one cannot be noise.
OFTEN = 3  # probes of models of the same sizes, after which others are not probed
LOOK_COST = 0.005  # of the time, at most, is spent on comparing again
LOOK_NOT_BEFORE = 50  # steps
STALE = 2000  # steps one by one, if that was chosen only by what similar models measured
ENTRY = 4.0  # what it costs all models to enter a mode, in steps one by one

Key = tuple[object, ...]


class SimilarMix(NamedTuple):
    """Models of the same sizes, as they were probed last."""

    models: int
    times: Times
    probes: int  # so far

    def is_known(self, turn: str) -> bool:
        """Whether other mixes may use these times: one mode is clearly faster, or there were enough probes."""
        fastest = min(self.times.values(), default=inf)
        return self.probes >= OFTEN or fastest < CLEARLY * self.times.get(turn, 0.0)


class Measurements:
    """Measured times: a sweep packs the same kinds repeatedly."""

    def __init__(self) -> None:
        self.certificates: dict[bool, CertificateTable] = {exact: CertificateTable() for exact in (True, False)}
        self.times: dict[Key, Times] = {}  # by mix
        self.similar: dict[Key, SimilarMix] = {}  # by sizes


class ModeChooser:
    """Chooses among modes, remembers their times, and checks them from time to time."""

    def __init__(self, device: torch.device, modes: Sequence[StepMode], remembered: Measurements) -> None:
        self.modes = list(modes)  # the first is one by one
        self.probe: Probe | None = None
        self.looks = 0  # how often it compared again
        self._device = device
        self._remembered = remembered
        self._excluded: set[tuple[str, Key]] = set()
        self._where: Key = (str(device), *((w.name, w.exact) for w in modes))
        self._doubted: Counter[Key] = Counter()  # how often a mix was probed again
        self._key: Key = ()
        self._similar: Key = ()
        self._members: list[Member] = []
        self._mode: StepMode = self.modes[0]
        self._steps = 0  # since the mode was chosen, or looked at
        self._until_look = self._until_better = inf
        self._better, self._better_s = self._mode, Times()
        self._in_turn_s = inf  # what a step one by one is known or estimated to take
        self._not_before = LOOK_NOT_BEFORE
        self._began: float | None = None  # of the step before
        self._pace_s: float | None = None  # recent
        # Where one thread does all work its CPU time counts: other processes then do not disturb a probe.
        alone = device.type == "cpu" and torch.get_num_threads() == 1
        self.clock: Callable[[], float] = thread_time if alone else perf_counter

    def mode(self, members: Sequence[Member]) -> StepMode:
        """The mode for the next step of these models."""
        if members != self._members:
            self._members = list(members)
            key = (*self._where, *mix(members))
            if key != self._key:
                similar = (*self._where, *sizes(members))
                goes_on = (
                    self.probe
                    if self.probe is not None and not self.probe.is_look and similar == self._similar
                    else None
                )
                self._key, self._similar, self.probe = key, similar, None
                self._choose(goes_on)
        if self.probe is not None and not self.probe.candidates:
            self._learn(self.probe, len(members))
        if self.probe is not None and not self.probe.is_look:
            return self.probe.candidates[0]
        return self._mode

    def _learn(self, probe: Probe, models: int) -> None:
        """The probe is over: choose by its times."""
        times = self._remembered.times.setdefault(self._key, {})
        times.update({name: s * models for name, s in probe.least_s.items()})
        self.probe = None
        if probe.is_look:
            self._look_after(times)
            return
        similar = self._remembered.similar.get(self._similar)
        probes = OFTEN if probe.gave_up else 1 + (similar.probes if similar else 0)
        self._remembered.similar[self._similar] = SimilarMix(models, times, probes)
        self._settle()

    def _choose(self, probe: Probe | None) -> None:
        """For a new mix: by what is remembered, as for similar models, or by a probe, which may be running."""
        able, similar = self._able(), self._remembered.similar.get(self._similar)
        if self._key in self._remembered.times:
            self._settle(models_changed=True)
        elif len(able) == 1 or (len(self._members) == 1 and self._device.type == "cpu"):
            self._take(self.modes[0])
        elif similar is not None and similar.is_known(self.modes[0].name):
            times = {name: s * len(self._members) / similar.models for name, s in similar.times.items()}
            self._begin(times)
            if self._mode is self.modes[0]:
                self._until_look = STALE
            else:
                self._look_after(times)
        else:
            self.probe = probe or Probe(able)
            self.probe.changed()

    def _able(self) -> list[StepMode]:
        return [w for w in self.modes if w is self.modes[0] or any(w.refuses(m) is None for m in self._members)]

    def _settle(self, models_changed: bool = False) -> None:
        """By what was measured: the fastest, or one by one unless that is clearly slower."""
        turn = self.modes[0].name
        times = {n: s for n, s in self._remembered.times[self._key].items() if (n, self._key) not in self._excluded}
        if models_changed:
            self._begin(times)
        else:
            self._take(self._fastest(times))
        if turn in times and self._mode.name != turn:
            self._look_after(times)

    def _look_after(self, times: Times) -> None:
        """When to compare with one by one again: so rarely that it costs almost nothing."""
        name = self._mode.name
        self._in_turn_s = times[self.modes[0].name]
        after = max(LOOK_NOT_BEFORE, LOOK * self._in_turn_s / (LOOK_COST * times[name]))
        self._until_look = self._steps + after * 2 ** self._doubted[self._key]
        self._not_before = self._steps + LOOK_NOT_BEFORE
        self._began = self._pace_s = None

    def _fastest(self, times: Times) -> StepMode:
        turn = self.modes[0]
        known = [mode for mode in self._able() if mode.name in times]
        return min(known, key=lambda w: times[w.name] * (1 if w is turn else 1 / MARGIN), default=turn)

    def _begin(self, times: Times) -> None:
        """The fastest mode; but at first one that is cheap to join, since models may come and go soon."""
        best, in_turn = self._fastest(times), times.get(self.modes[0].name, inf)
        cheap = self._fastest({w.name: times[w.name] for w in self.modes if w.joins_cheaply and w.name in times})
        if best is cheap or best.joins_cheaply or times[cheap.name] > CLEARLY * in_turn:
            self._take(best)
            return
        self._take(cheap)
        # Entering and leaving the better mode costs a capture for each model.
        self._until_better = ENTRY * in_turn / max(times[cheap.name] - times[best.name], 1e-9)
        self._better, self._better_s = best, times

    def _take(self, mode: StepMode) -> None:
        self._mode, self._steps, self._until_look, self._until_better = mode, 0, inf, inf
        self._not_before = LOOK_NOT_BEFORE
        self._began = self._pace_s = None

    def times_s(self) -> Times:
        """Least step times by mode for the present mix, as far as they were measured."""
        return dict(self._remembered.times.get(self._key, {}))

    def exclude(self, mode: StepMode) -> None:
        """Do not use this mode for the present mix: it was not exact."""
        self._excluded.add((mode.name, self._key))
        self._remembered.similar.pop(self._similar, None)
        if self._key in self._remembered.times:
            self._settle()
        else:
            self._take(self.modes[0])

    # -- comparing again ---------------------------------------------------------------------------------------

    def must_recheck(self) -> bool:
        """Whether the next step is made one by one, though another mode was chosen, to time it."""
        if self.probe is not None:
            return self.probe.is_look and bool(self.probe.candidates) and self.probe.candidates[0] is self.modes[0]
        self._steps += 1
        if self._mode is self.modes[0]:
            if self._steps >= self._until_look:  # It was chosen only by what similar models measured, long ago.
                self.probe = Probe(self._able())
            return False
        if self._steps >= self._until_better:
            self._take(self._better)
            self._look_after(self._better_s)
        elif self._steps >= self._until_look or (self._steps >= self._not_before and self._has_slowed()):
            self.looks += 1
            self.probe = Probe([self.modes[0], self._mode], is_look=True)
            return True
        return False

    def _has_slowed(self) -> bool:
        """Whether recent steps took longer than steps one by one are known to take."""
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
        mode = probe.candidates[0]
        counts = probe.begins(mode.is_warm([m for m in self._members if mode.refuses(m) is None]))
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
        """Keep the mode if it still is the faster one, else measure all again."""
        turn, name = self.modes[0].name, self._mode.name
        if now_s[name] < MARGIN * now_s[turn]:
            return
        self._remembered.similar.pop(self._similar, None)
        self._remembered.times.pop(self._key, None)
        self._doubted[self._key] += 1
        self.probe = Probe(self._able())

    def _wait(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)


def mix(members: Sequence[Member]) -> Key:
    """How many models of which kind: what the best mode depends on."""
    return tuple(sorted(Counter(map(kind, members)).items()))


def sizes(members: Sequence[Member]) -> Key:
    """What is equal in mixes of models that differ only in batch, optimiser or activation."""
    return min(len(members), 3), *sorted({m.shapes for m in members})


def kind(member: Member) -> tuple[str, ...]:
    """Its layers, sizes, batch and optimiser."""
    training = member.training
    batch = getattr(training.data, "batch_size", None)
    rest = (type(member.optimiser).__name__, batch, training.accumulate, training.autocast, training.clip is None)
    return member.layers, member.shapes, *map(str, rest)
