"""Latent Dirichlet allocation by collapsed Gibbs sampling.

How often each word has each topic is the model; the topics of a block's own words belong to the block. Blocks of one
iteration do not see what the others change (AD-LDA: Newman et al., JMLR 2009).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from hocket.runtimes.paramserver.algorithm import Algorithm, Array, DataBlock
from hocket.runtimes.paramserver.column_spool import ColumnSpool, KeyCounts
from hocket.runtimes.paramserver.file_blocks import FileBlocks, FileReading, ReadInput
from hocket.runtimes.paramserver.kernel import Kernel
from hocket.runtimes.paramserver.readers import bags_of_words_parts


class Lda(Algorithm):
    """Documents as mixtures of `topics`. In the first epoch topics are drawn at random, and nothing else is done."""

    def __init__(self, words: int, tokens: int, topics: int = 20, alpha: float = 0.1, beta: float = 0.01) -> None:
        self.words, self.tokens, self.topics, self.alpha, self.beta = words, tokens, topics, alpha, beta

    def init(self, rng: np.random.Generator) -> Mapping[str, Array]:  # noqa: ARG002
        """No word has a topic yet."""
        return {
            "word_topics": np.zeros((self.words, self.topics), np.int32),
            "topics": np.zeros(self.topics, np.int64),
        }

    def needs(self, block: DataBlock) -> Mapping[str, Array | None]:
        """The counts of the words that are in the block."""
        return {"word_topics": block.data["words"], "topics": None}

    def compute(self, block: DataBlock, params: Mapping[str, Array]) -> Mapping[str, Array]:
        """Draw the topic of each of the block's words anew, given those of all others."""
        counts, totals = params["word_topics"].copy(), params["topics"].copy()
        if "topic" not in block.state:
            rng = np.random.default_rng(int(block.data["seed"][0]))
            block.state["topic"] = rng.integers(0, self.topics, len(block.data["word"]), dtype=np.int16)
            block.state["random"] = rng.integers(1, 2**62, 1, dtype=np.uint64)
            np.add.at(counts, (block.data["word"], block.state["topic"]), 1)
            totals += np.bincount(block.state["topic"], minlength=self.topics)
        else:
            sample(
                block.data["starts"], block.data["word"], block.state["topic"], counts, totals, block.state["random"],
                np.float32(self.alpha), np.float32(self.beta), np.float32(self.beta * self.words),
                *np.empty((3, self.topics), np.float32),
            )  # fmt: skip
        counts -= params["word_topics"]
        totals -= params["topics"]
        return {"word_topics": counts, "topics": totals}

    def objective(self, block: DataBlock, params: Mapping[str, Array]) -> float:
        """The block's part of the negative log-likelihood of a word, given its document's topics."""
        return float(
            negative_log_likelihood(
                block.data["starts"], block.data["word"], block.state["topic"], params["word_topics"],
                params["topics"], self.alpha, self.beta, self.beta * self.words, *np.empty((2, self.topics)),
            )
            / self.tokens
        )  # fmt: skip


def load(
    path: Path,
    blocks: int,
    batch: int,  # noqa: ARG001
    reading: FileReading | None = None,
    seed: int = 0,
    **options: Any,
) -> tuple[Lda, FileBlocks]:
    """The algorithm and its blocks for a file of bags of words."""
    reading = reading or FileReading()
    key = {"application": "lda", "blocks": blocks, "seed": seed}
    found = reading.blocks(path, key, lambda: _read(path, blocks, seed, reading))
    return Lda(**found.facts, **options), found.blocks


def _read(path: Path, blocks: int, seed: int, reading: FileReading) -> ReadInput:
    columns, words = ColumnSpool(dict.fromkeys(("document", "word", "count"), np.int32), reading.folder), 0
    for part in bags_of_words_parts(path, reading):
        columns.append(document=part.document, word=part.word, count=part.counts)
        words = part.words
    made = _BagsBlocks(columns, blocks, path.name, seed)
    return ReadInput({"words": words, "tokens": made.tokens}, FileBlocks(made.numbers, made.block, made.columns))


class _BagsBlocks:
    """Blocks of about the same number of words, with whole documents."""

    def __init__(self, columns: ColumnSpool, blocks: int, name: str, seed: int) -> None:
        self._name, self._seed = name, seed
        documents = KeyCounts()
        for document, count in columns.parts("document", "count"):
            documents.add(document, count)
        documents.merge()
        self._known = documents.keys
        self._before = np.concatenate([[0], np.cumsum(documents.weights)])  # words before each document
        self._entries = np.concatenate([[0], np.cumsum(documents.counts)])
        self.tokens = int(self._before[-1])
        self._cuts = np.searchsorted(self._before, [self.tokens * i // blocks for i in range(blocks + 1)])
        # Fewer documents than blocks leave some empty.
        self.numbers = [i for i in range(blocks) if self._cuts[i] < self._cuts[i + 1]]
        begins = self._cuts[self.numbers]
        self.columns = columns.divided(
            "document",
            lambda document: np.searchsorted(self._known[begins], document, "right") - 1,
            self._entries[begins],
        )
        columns.close()

    def block(self, i: int) -> DataBlock:
        """One of them."""
        begin, end = int(self._cuts[i]), int(self._cuts[i + 1])
        rows = int(self._entries[begin]), int(self._entries[end])
        document, word, count = (self.columns.rows(name, *rows) for name in ("document", "word", "count"))
        order = np.argsort(document, kind="stable")
        keys, where = np.unique(np.repeat(word[order], count[order]), return_inverse=True)
        return DataBlock(
            f"{self._name}, documents {self._known[begin] + 1}-{self._known[end - 1] + 1}",
            {
                "starts": (self._before[begin : end + 1] - self._before[begin]).astype(np.int64),
                "word": where.astype(np.int32), "words": keys.astype(np.int64),
                "seed": np.array([self._seed * 1_000_003 + i]),
            },
        )  # fmt: skip


@Kernel
def sample(
    starts: Array, word: Array, topic: Array, counts: Array, totals: Array, random: Array, alpha: Any, beta: Any,
    beta_sum: Any, in_document: Array, weight: Array, likely: Array,
) -> None:  # fmt: skip
    """One pass over all words. Random numbers are those of xorshift64*, whose state is kept with the block.

    The last three are room for a number a topic.
    """
    topics, one = len(totals), np.float32(1)
    for k in range(topics):
        weight[k] = one / (np.float32(totals[k]) + beta_sum)
    state = random[0]
    for d in range(len(starts) - 1):
        for k in range(topics):
            in_document[k] = alpha
        for n in range(starts[d], starts[d + 1]):
            in_document[topic[n]] += one
        for n in range(starts[d], starts[d + 1]):
            w, old = word[n], topic[n]
            in_document[old] -= one
            counts[w, old] -= 1
            totals[old] -= 1
            weight[old] = one / (np.float32(totals[old]) + beta_sum)
            for k in range(topics):
                likely[k] = in_document[k] * (np.float32(counts[w, k]) + beta) * weight[k]
            # A loop of its own: in one that also writes, the order of a sum depends on how near arrays are in memory.
            total = np.float32(0)
            for k in range(topics):
                total += likely[k]
            state ^= state >> np.uint64(12)
            state ^= state << np.uint64(25)
            state ^= state >> np.uint64(27)
            drawn = np.float32((state * np.uint64(2685821657736338717)) >> np.uint64(40)) * np.float32(2.0**-24)
            rest = total * drawn
            new = 0
            while new < topics - 1:
                rest -= likely[new]
                if rest < 0:
                    break
                new += 1
            topic[n] = new
            in_document[new] += one
            counts[w, new] += 1
            totals[new] += 1
            weight[new] = one / (np.float32(totals[new]) + beta_sum)
    random[0] = state


@Kernel
def negative_log_likelihood(
    starts: Array, word: Array, topic: Array, counts: Array, totals: Array, alpha: float, beta: float, beta_sum: float,
    in_document: Array, weight: Array,
) -> float:  # fmt: skip
    """The last two are room for a number a topic."""
    topics = len(totals)
    for k in range(topics):
        weight[k] = 1.0 / (totals[k] + beta_sum)
    found = 0.0
    for d in range(len(starts) - 1):
        length = starts[d + 1] - starts[d]
        for k in range(topics):
            in_document[k] = alpha
        for n in range(starts[d], starts[d + 1]):
            in_document[topic[n]] += 1.0
        for n in range(starts[d], starts[d + 1]):
            likely = 0.0
            for k in range(topics):
                likely += in_document[k] * (counts[word[n], k] + beta) * weight[k]
            found -= np.log(likely / (length + topics * alpha))
    return found
