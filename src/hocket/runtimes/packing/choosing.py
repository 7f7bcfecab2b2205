"""Which way to run a pack: measured on real steps, so that nothing but the slower ones' excess is lost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from time import perf_counter

import torch

from hocket.runtimes.packing.member import Member
from hocket.runtimes.packing.ways.way import Way

WARM, TIMED = 5, 6  # steps of each way in a probe; a captured graph is warm after five
MARGIN = 0.97  # Another way than in turn must take less than this share of its time.

Key = tuple[object, ...]


@dataclass
class Probe:
    """One way after another, a few steps each; the least time of each counts, for noise only adds."""

    key: Key
    candidates: list[Way]
    steps: int = 0  # of the present candidate
    best_s: dict[str, float] = field(default_factory=dict)

    def timed(self) -> bool:
        """Whether the next step counts."""
        return self.steps >= WARM

    def record(self, seconds: float) -> None:
        """The step took so long; go to the next candidate once this one is known."""
        name = self.candidates[0].name
        if self.timed():
            self.best_s[name] = min(self.best_s.get(name, seconds), seconds)
        self.steps += 1
        if self.steps == WARM + TIMED:
            self.candidates.pop(0)
            self.steps = 0
            if self._hopeless():
                self.candidates.pop(0)

    def _hopeless(self) -> bool:
        """A joint graph saves a part of what captured ones save."""
        captured = min((s for n, s in self.best_s.items() if n.startswith("graph")), default=float("inf"))
        return bool(self.candidates) and self.candidates[0].name == "joint" and captured < 0.7 * self.best_s["turn"]


class Chooser:
    """Chooses among ways by a probe for each new mix of models, and remembers what it found."""

    def __init__(self, device: torch.device, ways: Sequence[Way], remembered: dict[Key, dict[str, float]]) -> None:
        self.ways = list(ways)  # the first is in turn
        self.probe: Probe | None = None
        self._device = device
        self._remembered = remembered
        self._excluded: set[tuple[str, Key]] = set()
        self._key: Key = ()
        self._members: list[Member] = []
        self._mix: Key = ()

    def way(self, members: Sequence[Member]) -> Way:
        """The way for the next step of these models."""
        if members != self._members:
            self._members, self._mix = list(members), mix(members)
        key = self._mix
        if key != self._key or self.probe is None:
            self._key, self.probe = key, None
            if key not in self._remembered:
                able = [w for w in self.ways if w is self.ways[0] or any(w.refuses(m) is None for m in members)]
                if len(able) == 1 or (len(members) == 1 and self._device.type == "cpu"):
                    return self.ways[0]
                self.probe = Probe(key, able)
        if self.probe is not None:
            if self.probe.candidates:
                return self.probe.candidates[0]
            self._remembered[key] = self.probe.best_s
            self.probe = None
        return self.best(key)

    def best(self, key: Key) -> Way:
        """By what was measured: the fastest, or in turn unless that is clearly slower."""
        times = {n: s for n, s in self._remembered[key].items() if (n, key) not in self._excluded}
        known = {way.name: way for way in self.ways if way.name in times}
        turn = self.ways[0]
        if not known:
            return turn
        name = min(known, key=lambda n: times[n] * (1 if n == turn.name else 1 / MARGIN))
        return known[name]

    def times_s(self) -> dict[str, float]:
        """Least step times by way for the present mix, as far as they were measured."""
        return dict(self._remembered.get(self._key, {}))

    def exclude(self, way: Way) -> None:
        """This way did not keep its promise for the present mix."""
        self._excluded.add((way.name, self._key))

    def measured(self, run: Callable[[], None]) -> None:
        """Run a step of the probe."""
        probe = self.probe
        if probe is None or not probe.candidates:
            run()
            return
        if probe.timed():
            self._wait()
        began = perf_counter()
        run()
        if probe.timed():
            self._wait()
        probe.record(perf_counter() - began)

    def _wait(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)


def mix(members: Sequence[Member]) -> Key:
    """How many models of which kind: what the best way depends on."""
    return tuple(sorted(Counter(map(kind, members)).items()))


def kind(member: Member) -> str:
    """Its layers, sizes, batch and optimiser, as text."""
    known = getattr(member, "_kind", None)
    if known is None:
        layers = ",".join(type(m).__name__ for m in member.module.modules())
        sizes = ",".join(str(tuple(p.shape)) for p in member.parameters)
        batch = getattr(member.training.data, "batch_size", None)
        rest = (batch, member.training.accumulate, member.training.autocast, member.training.clip is None)
        known = f"{layers}|{sizes}|{type(member.optimiser).__name__}|{rest}"
        member._kind = known  # type: ignore[attr-defined]
    return str(known)
