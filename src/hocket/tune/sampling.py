"""Where configurations come from."""

from __future__ import annotations

from random import Random
from typing import Protocol

import msgspec

from hocket.tune.space import Domain, Drawn, Space, Value, drawn
from hocket.tune.trials import Trial

RANDOM = "random"  # the name in journals
EARLIER = "dice"  # the same in those of earlier versions
_TRIES = 100  # to draw a new configuration, in a space that may have none left


class Sampler(Protocol):
    """Gives the configuration of each trial."""

    def ask(self, number: int) -> Drawn:
        """The configuration of a trial; those before it were asked for."""

    def tell(self, trial: Trial, scores: dict[int, float], is_complete: bool) -> None:
        """A trial is over, after these units with these scores: trained to the end, failed or stopped early."""


class RandomSampler:
    """Draws at random, without repeating a configuration while there are others. The same seed gives the same."""

    def __init__(self, space: Space, seed: int) -> None:
        self._space, self._seed = space, seed
        self._drawn: list[Drawn] = []
        self._seen: set[bytes] = set()

    def ask(self, number: int) -> Drawn:
        """The configuration of a trial."""
        while len(self._drawn) <= number:
            self._drawn.append(self._next())
        return self._drawn[number]

    def tell(self, trial: Trial, scores: dict[int, float], is_complete: bool) -> None:
        """Random sampling does not learn."""

    def __str__(self) -> str:
        return RANDOM

    def _next(self) -> Drawn:
        rng = Random(f"{self._seed}/{len(self._drawn)}")

        def decide(_name: str, domain: Domain) -> Value:
            return domain.draw(rng)

        for _ in range(_TRIES):
            found = drawn(self._space, decide)
            key = msgspec.json.encode(found.config)
            if key not in self._seen:
                break
        self._seen.add(key)
        return found
