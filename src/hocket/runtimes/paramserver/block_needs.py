"""Which rows of the model each block of a host needs, known as the blocks come."""

from __future__ import annotations

from collections.abc import Mapping

from hocket.runtimes.paramserver.algorithm import Algorithm, Array, DataBlock
from hocket.runtimes.paramserver.pull_plan import ArrayLayout, checked_needs

Needs = dict[str, Array | None]  # array → row numbers; None: all rows


class BlockNeeds:
    """What `compute` and `objective` need, by block."""

    def __init__(self, algorithm: Algorithm, layouts: Mapping[str, ArrayLayout]) -> None:
        self._algorithm, self._layouts = algorithm, layouts
        self.of_compute: dict[int, Needs] = {}
        self.of_objective: dict[int, Needs] = {}

    def noted(self, number: int, block: DataBlock, copied: bool = False) -> DataBlock:
        """The same block. `copied`: its row numbers shall not keep it in memory."""
        for known, asked in (
            (self.of_compute, self._algorithm.needs(block)),
            (self.of_objective, self._algorithm.objective_needs(block)),
        ):
            needs = checked_needs(number, asked, self._layouts)
            known[number] = {n: k if k is None or not copied else k.copy() for n, k in needs.items()}
        return block

    def bytes_at_once(self, batch: int, workers: int) -> int:
        """An estimate of what is pulled and summed up for an iteration, and of what workers compute with."""
        sizes = sorted(self._bytes(needs) for needs in self.of_compute.values())
        whole = sum(layout.rows * layout.row_bytes for layout in self._layouts.values())
        return 2 * min(whole, sum(sizes[-batch:])) + 2 * workers * max(sizes, default=0)

    def _bytes(self, needs: Needs) -> int:
        rows = {name: self._layouts[name].rows if keys is None else len(keys) for name, keys in needs.items()}
        return sum(count * self._layouts[name].row_bytes for name, count in rows.items())
