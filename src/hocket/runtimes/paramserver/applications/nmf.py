"""Non-negative matrix factorisation by stochastic gradient descent.

The factors of items are the model; those of users belong to the blocks, as each user is in one block.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from hocket.runtimes.paramserver.algorithm import Algorithm, Array, DataBlock
from hocket.runtimes.paramserver.column_spool import ROWS_AT_ONCE, ColumnSpool, KeyCounts
from hocket.runtimes.paramserver.file_blocks import FileBlocks, FileReading, ReadInput
from hocket.runtimes.paramserver.kernel import Kernel
from hocket.runtimes.paramserver.readers import ratings_parts


class Nmf(Algorithm):
    """Ratings as products of `rank` factors of a user and an item, none below 0."""

    def __init__(
        self, items: int, ratings: int, mean: float, rank: int = 16, learning_rate: float = 0.02,
        regularisation: float = 0.02,
    ) -> None:  # fmt: skip
        self.items, self.ratings, self.rank = items, ratings, rank
        self.learning_rate, self.regularisation = learning_rate, regularisation
        # At this size a product of factors is the mean rating.
        self._start = float(np.sqrt(max(mean, 1e-3) / rank))

    def init(self, rng: np.random.Generator) -> Mapping[str, Array]:
        """Factors of the right size on average."""
        return {"items": rng.uniform(0.5, 1.5, (self.items, self.rank)).astype(np.float32) * np.float32(self._start)}

    def needs(self, block: DataBlock) -> Mapping[str, Array | None]:
        """The factors of the items that are rated in the block."""
        return {"items": block.data["items"]}

    def compute(self, block: DataBlock, params: Mapping[str, Array]) -> Mapping[str, Array]:
        """One pass over the block's ratings, which changes its users' factors and a copy of the items'."""
        if "users" not in block.state:
            rng = np.random.default_rng(int(block.data["seed"][0]))
            drawn = rng.uniform(0.5, 1.5, (int(block.data["users"][0]), self.rank))
            block.state["users"] = drawn.astype(np.float32) * np.float32(self._start)
        changed = params["items"].copy()
        descend(
            block.data["user"], block.data["item"], block.data["rating"], block.state["users"], changed,
            np.float32(self.learning_rate), np.float32(self.regularisation), np.empty(self.rank, np.float32),
        )  # fmt: skip
        # Each block moves an item as if it were alone; a part of each keeps the sum from going too far.
        changed -= params["items"]
        changed *= block.data["share"][:, None]
        return {"items": changed}

    def objective(self, block: DataBlock, params: Mapping[str, Array]) -> float:
        """The block's part of the mean squared error."""
        if "users" not in block.state:
            return float(np.square(block.data["rating"]).sum() / self.ratings)
        return float(
            squared_error(
                block.data["user"], block.data["item"], block.data["rating"], block.state["users"], params["items"]
            )
            / self.ratings
        )


def load(
    path: Path, blocks: int, batch: int, reading: FileReading | None = None, seed: int = 0, **options: Any
) -> tuple[Nmf, FileBlocks]:
    """The algorithm and its blocks for a file of ratings."""
    reading = reading or FileReading()
    key = {"application": "nmf", "blocks": blocks, "batch": batch, "seed": seed}
    found = reading.blocks(path, key, lambda: _read(path, blocks, batch, seed, reading))
    return Nmf(**found.facts, **options), found.blocks


def _read(path: Path, blocks: int, batch: int, seed: int, reading: FileReading) -> ReadInput:
    columns = ColumnSpool({"user": np.int32, "item": np.int32, "rating": np.float32}, reading.folder)
    for part in ratings_parts(path, reading):
        columns.append(user=part.users, item=part.items, rating=part.values)
    items = 1 + max(int(part.max()) for (part,) in columns.parts("item"))
    count = columns.length("rating")
    mean = math.fsum(part.sum(dtype=np.float64) for (part,) in columns.parts("rating")) / count
    made = _RatingsBlocks(columns, blocks, batch, items, path.name, seed)
    facts = {"items": items, "ratings": count, "mean": mean}
    return ReadInput(facts, FileBlocks(range(made.count), made.block, made.columns))


class _RatingsBlocks:
    """Blocks of about the same number of ratings, with whole users; `batch` of them make an iteration."""

    def __init__(self, columns: ColumnSpool, blocks: int, batch: int, items: int, name: str, seed: int) -> None:
        self._batch, self._items, self._name, self._seed = batch, items, name, seed
        users = KeyCounts()
        for (part,) in columns.parts("user"):
            users.add(part)
        users.merge()
        ratings = columns.length("user")
        behind = np.concatenate([[0], np.cumsum(users.counts)])
        cuts = np.searchsorted(behind[:-1], [ratings * i // blocks for i in range(blocks + 1)])
        cuts[-1] = len(users.keys)
        # Fewer users than blocks leave some empty.
        self._numbers = [i for i in range(blocks) if cuts[i] < cuts[i + 1]]
        self._users = [(int(users.keys[cuts[i]]), int(users.keys[cuts[i + 1] - 1])) for i in self._numbers]
        self._spans = [(int(behind[cuts[i]]), int(behind[cuts[i + 1]])) for i in self._numbers]
        firsts = np.array([first for first, _ in self._users])
        self.count = len(self._numbers)
        self.columns = columns.divided(
            "user", lambda user: np.searchsorted(firsts, user, "right") - 1, np.array([low for low, _ in self._spans])
        )
        columns.close()
        self._rated: tuple[int, Array] = (-1, np.empty(0))  # how often each item is in an iteration, of the last one

    def block(self, place: int) -> DataBlock:
        """One of them, by its place among those that are not empty."""
        low, high = self._spans[place]
        users, items, ratings = (self.columns.rows(name, low, high) for name in ("user", "item", "rating"))
        order = np.argsort(users, kind="stable")
        keys, item = np.unique(items[order], return_inverse=True)
        known, user = np.unique(users[order], return_inverse=True)
        own = np.bincount(item, minlength=len(keys))
        return DataBlock(
            f"{self._name}, users {self._users[place][0]}-{self._users[place][1]}",
            {
                "user": user.astype(np.int32), "item": item.astype(np.int32), "rating": ratings[order],
                "items": keys.astype(np.int64), "users": np.array([len(known)]),
                "seed": np.array([self._seed * 1_000_003 + self._numbers[place]]),
                # Which part of an item's ratings in its iteration is the block's own.
                "share": (own / self._rated_with(place)[keys]).astype(np.float32),
            },
        )  # fmt: skip

    def _rated_with(self, place: int) -> Array:
        first = place // self._batch * self._batch
        if self._rated[0] != first:
            last = min(first + self._batch, self.count) - 1
            low, high = self._spans[first][0], self._spans[last][1]
            total = np.zeros(self._items, np.int64)
            for begin in range(low, high, ROWS_AT_ONCE):
                rows = self.columns.rows("item", begin, min(begin + ROWS_AT_ONCE, high))
                total += np.bincount(rows, minlength=self._items)
            self._rated = (first, total)
        return self._rated[1]


@Kernel
def descend(
    user: Array, item: Array, rating: Array, users: Array, items: Array, rate: Any, regularisation: Any, u: Array
) -> None:
    """Ratings are sorted by user: the factors of one are in `u` while its ratings are looked at."""
    rank, zero, kept = users.shape[1], rate * 0, rate / rate - rate * regularisation
    last = -1
    for n in range(len(rating)):
        x, y = user[n], item[n]
        if x != last:
            if last >= 0:
                for f in range(rank):
                    users[last, f] = u[f]
            for f in range(rank):
                u[f] = users[x, f]
            last = x
        predicted = zero
        for f in range(rank):
            predicted += u[f] * items[y, f]
        pace = rate * (rating[n] - predicted)
        for f in range(rank):
            of_user = kept * u[f] + pace * items[y, f]
            of_item = kept * items[y, f] + pace * u[f]
            # A NaN is not below 0, and stays to be found.
            u[f] = zero if of_user < zero else of_user
            items[y, f] = zero if of_item < zero else of_item
    if last >= 0:
        for f in range(rank):
            users[last, f] = u[f]


@Kernel
def squared_error(user: Array, item: Array, rating: Array, users: Array, items: Array) -> float:
    """The sum over all ratings."""
    total = 0.0
    for n in range(len(rating)):
        u, i = users[user[n]], items[item[n]]
        predicted = rating[n] * 0
        for f in range(users.shape[1]):
            predicted += u[f] * i[f]
        error = rating[n] - predicted
        total += error * error
    return total
