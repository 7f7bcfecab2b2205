"""A probe: ways are tried one after another on real steps, and the least time of each counts, for noise only adds."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf

from hocket.runtimes.packing.ways.way import Way

TIMED = 4  # steps of each way
FEW, FEW_S = 1, 1.0  # In turn, steps that take long are made so few times: each is the sum of much work.
MORE, MORE_S = 12, 0.1  # Steps that take no time are made so many times, for their times are the least certain.
LOOK = 2  # steps in turn, and as many of the chosen way, when they are compared again
LAUNCH_S = 0.0001  # a model's, at most: all that one graph for all saves, so that steps of ten times that are not tried
PATIENCE = 60  # steps, after which a way that never got warm is given up: models come and go too fast for it

Times = dict[str, float]


@dataclass
class Probe:
    """Times are seconds a model, for models may come and go meanwhile."""

    candidates: list[Way]
    is_look: bool = False  # Everything is warm, and only two ways are compared.
    least_s: Times = field(default_factory=dict)
    counted: int = 0
    counted_s: float = 0.0
    tried: int = 0
    gave_up: bool = False  # on a way that never got warm
    _settled: bool = False  # The step before was like all that follow, or led there.
    _counts: bool = False

    def begins(self, settled: bool) -> bool:
        """A step is about to be made, which the way calls settled or not; whether it counts.

        The first one that is settled may still capture, and the first one in turn brings the libraries.
        """
        self._counts = self.is_look or (settled and self._settled)
        self._settled = settled
        return self._counts

    def changed(self) -> None:
        """Other models: whoever is new has to get warm. A way that everybody would have to enter anew is given up."""
        if self.tried and not self.candidates[0].light:
            self.gave_up = True
            self._next()
        self._settled = False

    def record(self, seconds: float, models: int) -> None:
        """The step of so many models took so long; go to the next candidate once this one is known."""
        name = self.candidates[0].name
        if self._counts:
            self.least_s[name] = min(self.least_s.get(name, inf), seconds / models)
            self.counted += 1
            self.counted_s += seconds
        self.tried += 1
        if self._enough() or self.tried == PATIENCE:
            self.gave_up = self.gave_up or not self._enough()
            self._next()

    def _enough(self) -> bool:
        is_long = self.candidates[0].name == "turn" and self.counted_s >= FEW_S
        least = LOOK if self.is_look else FEW if is_long else TIMED
        return self.counted >= least and (self.is_look or self.counted_s >= MORE_S or self.counted >= MORE)

    def _next(self) -> None:
        self.candidates.pop(0)
        while self.candidates and self._hopeless(self.candidates[0].name):
            self.candidates.pop(0)
        self.counted = self.tried = 0
        self.counted_s = 0.0
        self._settled = False

    def _hopeless(self, name: str) -> bool:
        """A joint graph saves a part of what captured ones save, and one graph for all their launches at most."""
        captured = min((s for n, s in self.least_s.items() if n.startswith("graph")), default=inf)
        if name == "joint":
            return captured < 0.7 * self.least_s.get("turn", 0.0)
        return name == "graph" and inf > captured > 10 * LAUNCH_S
