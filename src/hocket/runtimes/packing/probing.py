"""A probe: ways are tried one after another on real steps, and the least time of each counts, for noise only adds."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf

from hocket.runtimes.packing.ways.way import Way

WARM, TIMED = 3, 4  # steps of each way: one is eager, one captures, and then all are alike
MORE, MORE_S = 12, 0.1  # Steps that take no time are made so many times, for their times are the least certain.
LOOK = 2  # steps in turn, and as many of the chosen way, when they are compared again
PATIENCE = 60  # steps, after which a way that never got warm is given up: models come and go too fast for it

Times = dict[str, float]


@dataclass
class Probe:
    """Times are seconds a model, for models may come and go meanwhile."""

    candidates: list[Way]
    is_look: bool = False  # Everything is warm, and only two ways are compared.
    least_s: Times = field(default_factory=dict)
    steps: int = 0  # of the present candidate with the present models
    counted: int = 0
    counted_s: float = 0.0
    tried: int = 0
    gave_up: bool = False  # on a way that never got warm

    def timed(self) -> bool:
        """Whether the next step counts."""
        warm = 0 if self.is_look else 1 if self.candidates[0].name == "turn" else WARM
        return self.steps >= warm

    def changed(self) -> None:
        """Other models: whoever is new has to get warm."""
        self.steps = 0

    def record(self, seconds: float, models: int) -> None:
        """The step of so many models took so long; go to the next candidate once this one is known."""
        name = self.candidates[0].name
        if self.timed():
            self.least_s[name] = min(self.least_s.get(name, inf), seconds / models)
            self.counted += 1
            self.counted_s += seconds
        self.steps += 1
        self.tried += 1
        if self._enough() or self.tried == PATIENCE:
            self.gave_up = self.gave_up or not self._enough()
            self._next()
            if self._hopeless():
                self._next()

    def _enough(self) -> bool:
        least = LOOK if self.is_look else TIMED
        return self.counted >= least and (self.is_look or self.counted_s >= MORE_S or self.counted >= MORE)

    def _next(self) -> None:
        self.candidates.pop(0)
        self.steps = self.counted = self.tried = 0
        self.counted_s = 0.0

    def _hopeless(self) -> bool:
        """A joint graph saves a part of what captured ones save."""
        captured = min((s for n, s in self.least_s.items() if n.startswith("graph")), default=inf)
        is_joint = bool(self.candidates) and self.candidates[0].name == "joint"
        return is_joint and captured < 0.7 * self.least_s.get("turn", 0.0)
