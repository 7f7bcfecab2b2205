"""Kills with -9 at random what a live controller's folder has, and remembers what."""

import random
import time
from collections import Counter
from collections.abc import Iterable

from tests.live.processes import Found

_SEVERAL = 0.2  # how likely it is that more than one is killed


class RandomKills:
    """By kind, how often something is killed beside the other kinds; `everything`: how likely it is that all are."""

    def __init__(self, dice: random.Random, weights: dict[str, int], everything: float) -> None:
        self._dice, self._weights, self._everything = dice, weights, everything
        self.count: Counter[str] = Counter()
        self.killed: list[tuple[float, Found]] = []

    def kill_some(self, there: Iterable[Found]) -> None:
        """Often one thing; at times several at once, which is how machines die; now and then all there is."""
        there = sorted(there, key=lambda found: found.pid)
        if self._dice.random() < self._everything:
            victims = there
        else:
            count = 1 + (self._dice.random() < _SEVERAL) * self._dice.randint(1, 3)
            kinds = self._dice.choices(list(self._weights), list(self._weights.values()), k=count)
            victims = [
                self._dice.choice(of_kind) for kind in kinds if (of_kind := [f for f in there if f.kind == kind])
            ]
        for victim in victims:
            if victim.kill():
                self.count[victim.kind] += 1
                self.killed.append((time.time(), victim))

    def spared(self) -> set[str]:
        """The kinds of which none was killed."""
        return self._weights.keys() - self.count.keys()

    def told(self) -> str:
        """In a few words."""
        return f"{self.count.total()} kills ({', '.join(f'{n} {kind}' for kind, n in sorted(self.count.items()))})"
