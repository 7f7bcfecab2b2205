"""How long one pass of NMF, LDA, MLR and Lasso takes over a sample, on one core: `python -m benchmarks.training_pass`.

What the phases of Harmony's 80 jobs rest on (`workloads/harmony.py`). Shapes are those of its Table I as far as it
gives them: the model's size fixes topics and classes, given the words and features of the data.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from time import process_time

for threads in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[threads] = "1"  # before NumPy: one core is what is measured

import msgspec  # noqa: E402
import numpy as np  # noqa: E402
from msgspec import Struct  # noqa: E402
from scipy import sparse  # noqa: E402

from benchmarks.machine import machine, median  # noqa: E402

ENTRY_BYTES = 12  # of one entry of the input: two 4-byte indices or one and a value, as all four data sets have them
REPEATS = 5


class Pass(Struct, frozen=True):
    """One algorithm over its sample."""

    algorithm: str
    shape: str
    sample_mb: float
    core_s_per_gb: float  # median


def nmf() -> tuple[str, float, Callable[[], None]]:
    """Stochastic gradient steps over ratings, 100 factors, in blocks of 20,000."""
    rng, rank, ratings = np.random.default_rng(0), 100, 400_000
    users, items = rng.integers(0, 20_000, ratings), rng.integers(0, 17_770, ratings)
    values = rng.random(ratings, dtype=np.float32)
    left, right = (rng.random((n, rank), dtype=np.float32) / rank for n in (20_000, 17_770))

    def run() -> None:
        for at in range(0, ratings, 20_000):
            u, i, v = users[at : at + 20_000], items[at : at + 20_000], values[at : at + 20_000]
            a, b = left[u], right[i]
            off = (v - np.einsum("ij,ij->i", a, b))[:, None] * np.float32(0.01)
            left[u] = np.maximum(a + off * b, 0)
            right[i] = np.maximum(b + off * a, 0)

    return f"{ratings:,} ratings, {rank} factors", ratings * ENTRY_BYTES, run


def lda() -> tuple[str, float, Callable[[], None]]:
    """Expected topics of each word in each document: 141,000 words × 3,700 topics × 4 bytes are PubMed's 2.1 GB."""
    rng, topics, words, entries = np.random.default_rng(0), 3_700, 5_000, 20_000
    document, word = np.sort(rng.integers(0, 200, entries)), rng.integers(0, words, entries)
    of_word = rng.random((words, topics), dtype=np.float32)
    of_document = rng.random((200, topics), dtype=np.float32)

    def run() -> None:
        for at in range(0, entries, 2_000):
            d, w = document[at : at + 2_000], word[at : at + 2_000]
            share = of_document[d] * of_word[w]
            share /= share.sum(axis=1, keepdims=True)
            first = np.flatnonzero(np.r_[True, d[1:] != d[:-1]])
            of_document[d[first]] += np.add.reduceat(share, first, axis=0)
            of_word[w] += share

    return f"{entries:,} words in documents, {topics:,} topics", entries * ENTRY_BYTES, run


def mlr() -> tuple[str, float, Callable[[], None]]:
    """Multinomial logistic regression, 10,000 classes: 300,000 features × 10,000 × 4 bytes are Table I's 12 GB."""
    rng, classes, features, samples, entries = np.random.default_rng(0), 10_000, 2_000, 400, 100
    rows = np.repeat(np.arange(samples), entries)
    columns = rng.integers(0, features, samples * entries)
    x = sparse.csr_matrix((rng.random(samples * entries, dtype=np.float32), (rows, columns)), (samples, features))
    label, weights = rng.integers(0, classes, samples), rng.random((features, classes), dtype=np.float32)

    def run() -> None:
        for at in range(0, samples, 100):
            part = x[at : at + 100]
            score = part @ weights
            score -= score.max(axis=1, keepdims=True)
            np.exp(score, out=score)
            score /= score.sum(axis=1, keepdims=True)
            score[np.arange(score.shape[0]), label[at : at + 100]] -= 1
            weights[:] -= np.float32(1e-4) * (part.T @ score)

    return f"{samples:,} samples of {entries}, {classes:,} classes", samples * entries * ENTRY_BYTES, run


def lasso() -> tuple[str, float, Callable[[], None]]:
    """Proximal gradient steps of sparse linear regression."""
    rng, features, samples, entries = np.random.default_rng(0), 200_000, 40_000, 100
    rows = np.repeat(np.arange(samples), entries)
    columns = rng.integers(0, features, samples * entries)
    x = sparse.csr_matrix((rng.random(samples * entries, dtype=np.float32), (rows, columns)), (samples, features))
    y, weights = rng.random(samples, dtype=np.float32), np.zeros(features, dtype=np.float32)

    def run() -> None:
        for at in range(0, samples, 5_000):
            part = x[at : at + 5_000]
            step = part.T @ (part @ weights - y[at : at + 5_000])
            moved = weights - np.float32(1e-6) * step
            weights[:] = np.sign(moved) * np.maximum(np.abs(moved) - np.float32(1e-7), 0)

    return f"{samples:,} samples of {entries}", samples * entries * ENTRY_BYTES, run


def passes() -> list[Pass]:
    """All four, by the median of several passes after one to warm up."""
    found = []
    for algorithm in (nmf, lda, mlr, lasso):
        shape, size, run = algorithm()
        run()
        took = []
        for _ in range(REPEATS):
            began = process_time()
            run()
            took.append(process_time() - began)
        found.append(Pass(algorithm.__name__, shape, size / 1e6, median(took) / (size / 1e9)))
    return found


if __name__ == "__main__":
    measured = passes()
    if "--json" in sys.argv:
        print(msgspec.json.encode({"machine": machine(), "passes": measured}).decode())
    else:
        for p in measured:
            print(f"{p.algorithm:6} {p.core_s_per_gb:10.1f} core-s a GB   {p.shape}, {p.sample_mb:.1f} MB")
