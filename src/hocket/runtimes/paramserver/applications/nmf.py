"""Non-negative matrix factorisation by stochastic gradient descent.

The factors of items are the model; those of users belong to the blocks, as each user is in one block.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from hocket.runtimes.paramserver.algorithm import Algorithm, Array, DataBlock
from hocket.runtimes.paramserver.kernel_compiler import compiled
from hocket.runtimes.paramserver.readers import Ratings, read_ratings


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
            np.float32(self.learning_rate), np.float32(self.regularisation),
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


def load(path: Path, blocks: int, batch: int, **options: Any) -> tuple[Nmf, list[DataBlock]]:
    """The algorithm and its blocks for a file of ratings."""
    ratings = read_ratings(path)
    made = ratings_blocks(ratings, blocks, batch, path.name, int(options.pop("seed", 0)))
    items = int(ratings.items.max()) + 1
    return Nmf(items, len(ratings.values), float(ratings.values.mean(dtype=np.float64)), **options), made


def ratings_blocks(ratings: Ratings, blocks: int, batch: int, name: str, seed: int = 0) -> list[DataBlock]:
    """Blocks of about the same number of ratings, with whole users; `batch` of them make an iteration."""
    order = np.argsort(ratings.users, kind="stable")
    users, items, values = ratings.users[order], ratings.items[order], ratings.values[order]
    known = np.unique(users)
    firsts = np.searchsorted(users, known)
    cuts = np.searchsorted(firsts, [len(users) * i // blocks for i in range(blocks + 1)])
    cuts[-1] = len(known)
    behind = np.append(firsts, len(users))
    made = []
    for i in range(blocks):
        low, high = behind[cuts[i]], behind[cuts[i + 1]]
        if low == high:
            continue  # fewer users than blocks
        keys, where = np.unique(items[low:high], return_inverse=True)
        _ids, user = np.unique(users[low:high], return_inverse=True)
        made.append(
            DataBlock(
                f"{name}, users {known[cuts[i]]}-{known[cuts[i + 1] - 1]}",
                {
                    "user": user.astype(np.int32), "item": where.astype(np.int32), "rating": values[low:high],
                    "items": keys.astype(np.int64), "users": np.array([cuts[i + 1] - cuts[i]]),
                    "seed": np.array([seed * 1_000_003 + i]),
                },
            )
        )  # fmt: skip
    return [_with_shares(block, made, i, batch) for i, block in enumerate(made)]


def _with_shares(block: DataBlock, made: list[DataBlock], number: int, batch: int) -> DataBlock:
    """A block that knows which part of an item's ratings in its iteration is its own."""
    first = number // batch * batch
    together = made[first : first + batch]
    own = np.bincount(block.data["item"], minlength=len(block.data["items"]))
    total = np.zeros(len(own))
    for other in together:
        counts = np.bincount(other.data["item"], minlength=len(other.data["items"]))
        places = np.searchsorted(other.data["items"], block.data["items"])
        places[places == len(counts)] = 0
        total += np.where(other.data["items"][places] == block.data["items"], counts[places], 0)
    return DataBlock(block.name, {**block.data, "share": (own / total).astype(np.float32)}, block.state)


def _descend(
    user: Array, item: Array, rating: Array, users: Array, items: Array, rate: Any, regularisation: Any
) -> None:
    """Ratings are sorted by user: the factors of one stay in the core's registers while its ratings are looked at."""
    rank, zero, kept = users.shape[1], rate * 0, rate / rate - rate * regularisation
    u = np.empty(rank, users.dtype)
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


def _squared_error(user: Array, item: Array, rating: Array, users: Array, items: Array) -> float:
    total = 0.0
    for n in range(len(rating)):
        u, i = users[user[n]], items[item[n]]
        predicted = rating[n] * 0
        for f in range(users.shape[1]):
            predicted += u[f] * i[f]
        error = rating[n] - predicted
        total += error * error
    return total


descend = compiled(_descend)
squared_error = compiled(_squared_error)
