"""A probe: modes are tried on real steps, and the least time of each counts, since noise only adds time."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf

from hocket.runtimes.packing.step_modes.step_mode import StepMode

TIMED = 4  # steps of each mode
FEW, FEW_S = 1, 1.0  # Long steps one by one are timed so few times.
MORE, MORE_S = 12, 0.1  # Short steps are timed so many times: their times vary most.
LOOK = 2  # steps one by one, and in the chosen mode, when the two are compared again
LAUNCH_S = 0.0001  # per model: all that one graph for all can save; it is not tried if steps take ten times that
PATIENCE = 60  # steps after which a mode that never got warm is abandoned: models change too often for it

Times = dict[str, float]


@dataclass
class Probe:
    """Times are seconds per model, since models may come and go during a probe."""

    candidates: list[StepMode]
    is_look: bool = False  # Everything is warm, and only two modes are compared.
    least_s: Times = field(default_factory=dict)
    counted: int = 0
    counted_s: float = 0.0
    tried: int = 0
    gave_up: bool = False  # on a mode that never got warm
    _settled: bool = False  # The step before was like all that follow, or led there.
    _counts: bool = False

    def begins(self, settled: bool) -> bool:
        """A step is about to be made, which the mode calls settled or not; whether it counts.

        The first one that is settled may still capture, and the first one by one loads the libraries.
        """
        self._counts = self.is_look or (settled and self._settled)
        self._settled = settled
        return self._counts

    def changed(self) -> None:
        """The models changed: new ones must warm up. A mode that all models would have to enter again is abandoned."""
        if self.tried and not self.candidates[0].joins_cheaply:
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
        """Whether it cannot win: a joint graph saves less than captured ones, one graph for all only launches."""
        captured = min((s for n, s in self.least_s.items() if n.startswith("graph")), default=inf)
        if name == "joint":
            return captured < 0.7 * self.least_s.get("turn", 0.0)
        return name == "graph" and inf > captured > 10 * LAUNCH_S
