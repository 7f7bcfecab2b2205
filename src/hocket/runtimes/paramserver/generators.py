"""Made-up data sets with the proportions of Harmony's (ICDCS 2021, Table I), a thousandth of their size at scale 1."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from hocket.runtimes.paramserver.algorithm import Array, TrainingError

_LINES = 50_000  # that are made at a time


class DataSetSize(NamedTuple):
    """How large a data set is at scale 1. All numbers of examples and the model's rows grow with the scale."""

    examples: int  # ratings, documents or rows
    rows: int  # of the model: items, words or features
    per_example: int = 1  # words of a document, features of a row
    classes: int = 1  # topics or classes that it is made from
    users: int = 0


# By application and size: Netflix 64× and 128×, NyTimes and PubMed, Bösen's synthetic ones.
SIZES = {
    "nmf": {
        "small": DataSetSize(3_500_000, 4_000, users=60_000, classes=8),
        "large": DataSetSize(7_000_000, 20_000, users=120_000, classes=8),
    },
    "lda": {
        "small": DataSetSize(500, 5_000, per_example=150, classes=20),
        "large": DataSetSize(8_000, 10_000, per_example=60, classes=20),
    },
    "mlr": {
        "small": DataSetSize(60_000, 20_000, per_example=100, classes=10),
        "large": DataSetSize(120_000, 40_000, per_example=100, classes=10),
    },
    "lasso": {
        "small": DataSetSize(60_000, 20_000, per_example=100, classes=1),
        "large": DataSetSize(120_000, 40_000, per_example=100, classes=1),
    },
}


def generate(application: str, path: Path, size: str = "small", scale: float = 1.0, seed: int = 0) -> DataSetSize:
    """Write a data set for `application` to a file; its numbers of examples and of the model's rows."""
    if application not in SIZES:
        raise TrainingError(f"there is no data set for '{application}'; there are: {', '.join(SIZES)}")
    if size not in SIZES[application]:
        raise TrainingError(f"size must be {' or '.join(SIZES[application])}, not '{size}'")
    if not 0 < scale <= 1000:
        raise TrainingError(f"scale must be above 0 and at most 1000, not {scale:g}")
    of = SIZES[application][size]
    scaled = of._replace(
        examples=max(20, round(of.examples * scale)), rows=max(20, round(of.rows * scale)),
        users=max(10, round(of.users * scale)),
    )  # fmt: skip
    generate_sized(application, path, scaled, seed)
    return scaled


def generate_sized(application: str, path: Path, size: DataSetSize, seed: int = 0) -> None:
    """Write a data set of this very size to a file."""
    rng = np.random.default_rng(seed)
    part = path.with_name(f"{path.name}.part")
    try:
        with open(part, "w", encoding="ascii") as file:
            file.writelines(_WRITERS[application](size, rng))
        part.replace(path)
    except OSError as error:
        raise TrainingError(f"{path}: {error.strerror or error}") from error
    finally:
        part.unlink(missing_ok=True)


def _ratings(size: DataSetSize, rng: np.random.Generator) -> Iterator[str]:
    """Products of few factors; some items are rated far more often than others."""
    users = rng.gamma(1.0, 1.0, (size.users, size.classes))
    items = rng.gamma(1.0, 1.0, (size.rows, size.classes))
    user = np.sort(rng.integers(0, size.users, size.examples))
    popular = rng.permutation(size.rows)
    for first in range(0, size.examples, _LINES):
        mine = user[first : first + _LINES]
        item = popular[(size.rows * rng.beta(0.7, 2.0, len(mine))).astype(np.int64).clip(0, size.rows - 1)]
        rating = (users[mine] * items[item]).sum(axis=1) * 2 / size.classes + rng.normal(0, 0.1, len(mine))
        yield _lines("%d %d %.3f\n", mine, item, rating.clip(0, None))


def _bags(size: DataSetSize, rng: np.random.Generator) -> Iterator[str]:
    """Documents as mixtures of topics, in UCI's `docword` format."""
    topics = rng.dirichlet(np.full(size.rows, 0.05), size.classes)
    documents = [
        np.unique(
            rng.choice(size.rows, size.per_example, p=_normal(rng.dirichlet(np.full(size.classes, 0.2)) @ topics)),
            return_counts=True,
        )
        for _ in range(size.examples)
    ]
    yield f"{size.examples}\n{size.rows}\n{sum(len(words) for words, _counts in documents)}\n"
    for number, (words, counts) in enumerate(documents, 1):
        yield _lines("%d %d %d\n", np.full(len(words), number), words + 1, counts)


def _classes(size: DataSetSize, rng: np.random.Generator) -> Iterator[str]:
    """Sparse rows, labelled by noisy linear functions."""
    weights = rng.normal(size=(size.rows, size.classes)) * 3 / np.sqrt(size.per_example)
    for features, values in _rows(size, rng):
        scores = (weights[features] * values[:, None]).sum(axis=0) + rng.gumbel(0, 0.2, size.classes)
        yield _example(str(int(scores.argmax())), features, values)


def _regression(size: DataSetSize, rng: np.random.Generator) -> Iterator[str]:
    """Sparse rows, and a sum over a tenth of the features."""
    weights = rng.normal(size=size.rows) * (rng.random(size.rows) < 0.1)
    for features, values in _rows(size, rng):
        yield _example(f"{weights[features] @ values + rng.normal(0, 0.1):.6g}", features, values)


def _rows(size: DataSetSize, rng: np.random.Generator) -> Iterator[tuple[Array, Array]]:
    count = min(size.per_example, size.rows // 2)
    for _ in range(size.examples):
        features = np.unique(rng.integers(0, size.rows, count))
        yield features, rng.normal(size=len(features)).round(4)


def _example(label: str, features: Array, values: Array) -> str:
    pairs = " ".join(f"{i}:{v:g}" for i, v in zip((features + 1).tolist(), values.tolist(), strict=True))
    return f"{label} {pairs}\n"


def _lines(form: str, *columns: Array) -> str:
    return "".join(form % row for row in zip(*(column.tolist() for column in columns), strict=True))


def _normal(chances: Array) -> Array:
    found: Array = chances / chances.sum()
    return found


_WRITERS: dict[str, Callable[[DataSetSize, np.random.Generator], Any]] = {
    "nmf": _ratings, "lda": _bags, "mlr": _classes, "lasso": _regression,
}  # fmt: skip
