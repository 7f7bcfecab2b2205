"""Summaries of studies that `hocket tune` has sent: kept beside the journal, the last one of each study.

Which jobs a study's trials are, and what was found, only its tuner knows. So it sends summaries, which the page shows.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from concurrent.futures import Future
from time import time
from typing import Any

import msgspec
from msgspec import Struct

from hocket.control.ports import DurableJournal, LiveExecutor
from hocket.model.event import Event
from hocket.model.snapshot import Snapshot
from hocket.model.study_summary import StudySummary

KIND = "study"  # of the values in the journal
MOST_OF_OWNER = 50  # studies of one owner that are kept: the one whose last summary is oldest is dropped


class StudyHead(Struct, frozen=True):
    """A study in one line."""

    id: str  # what its jobs' names begin with
    name: str
    owner: str
    state: str
    metric: str
    goal: str
    trials: int
    failed: int
    best: float | None  # the best value so far
    best_trial: int | None
    done: float
    total: int
    told_s: float  # when its last summary came


class KeptStudy(Struct, frozen=True):
    """A study as it is kept: the whole of it is compressed JSON."""

    head: StudyHead
    whole: bytes

    def summary(self) -> dict[str, Any]:
        """All of its last summary."""
        found: dict[str, Any] = msgspec.json.decode(zlib.decompress(self.whole))
        return found


class StudyRefused(ValueError):
    """A study of that id is another owner's."""


class Studies:
    """The summaries of all studies. For any thread."""

    def __init__(self, journal: DurableJournal, executor: LiveExecutor, clock: Callable[[], float] = time) -> None:
        self._journal, self._executor, self._clock = journal, executor, clock
        found = {key: msgspec.msgpack.decode(value, type=KeptStudy) for key, value in journal.kept(KIND).items()}
        self._kept: dict[str, KeptStudy] = found  # replaced as a whole

    def listed(self) -> list[StudyHead]:
        """Those with the newest summaries come first."""
        return sorted((kept.head for kept in self._kept.values()), key=lambda head: (-head.told_s, head.id))

    def find(self, study: str) -> KeptStudy | None:
        """The one of this id."""
        return self._kept.get(study)

    def tell(self, study: str, summary: StudySummary) -> Future[Any]:
        """Done when it is kept, in place of the study's last summary; StudyRefused if it is another owner's."""
        kept = KeptStudy(_head(study, summary, self._clock()), zlib.compress(msgspec.json.encode(summary), 6))

        def make(_snapshot: Snapshot, _now_s: float) -> list[Event]:
            before = self._kept.get(study)
            if before is not None and before.head.owner != summary.owner:
                raise StudyRefused(f"study '{study}' is of owner '{before.head.owner}', not '{summary.owner}'")
            others = {key: other for key, other in self._kept.items() if key != study}
            same = sorted((o.head for o in others.values() if o.head.owner == summary.owner), key=lambda h: h.told_s)
            gone = [head.id for head in same[: max(0, len(same) + 1 - MOST_OF_OWNER)]]
            self._journal.keep(KIND, {**dict.fromkeys(gone), study: msgspec.msgpack.encode(kept)})
            self._kept = {key: other for key, other in others.items() if key not in gone} | {study: kept}
            return []

        return self._executor.post(make)

    def forget(self, study: str) -> Future[Any]:
        """Done when nothing is kept of it; its jobs stay."""

        def make(_snapshot: Snapshot, _now_s: float) -> list[Event]:
            self._journal.keep(KIND, {study: None})
            self._kept = {key: other for key, other in self._kept.items() if key != study}
            return []

        return self._executor.post(make)


def _head(study: str, of: StudySummary, now_s: float) -> StudyHead:
    best = next((trial for trial in of.trials if trial.number == of.best), None)
    choose = max if of.goal == "max" else min
    value = choose((value for _units, value in best.results), default=None) if best is not None else None
    return StudyHead(
        study, of.name, of.owner, of.state, of.metric, of.goal, len(of.trials) + of.more_trials,
        sum(bool(trial.failed) for trial in of.trials), value, of.best, of.done, of.total, now_s,
    )  # fmt: skip
