"""What came of a run, by its journal: who attained, where states were kept, and the time that pauses cost.

That time is measured, whatever the policy meant by it. Of a job that was paused and went on it is, for each pause, the
time from its last report to when its cores were free (what it wrote, and a batch that was given up), the time from when
it had cores again to its next report, less the batch that this one was of (a new process, what it read), and batches
that it had done before. A batch that stood still in memory and was then finished costs nothing: what is too much before
the pause is too little after it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import Struct

from benchmarks.rotary_live.drawing import class_of
from hocket.model.event import EpochEnded, JobFailed, JobPaused, JobStarted, ProgressReported, StateStored
from hocket.model.view import Tier
from hocket.reports.account import Account, account

_NEXT_TO = 0.002  # seconds between two tenancies that are one


class Lost(Struct, frozen=True):
    """Seconds that pauses cost, over all jobs."""

    leaving_s: float = 0.0  # writing, and batches that were given up
    going_on_s: float = 0.0  # new processes, and reading
    redone_s: float = 0.0  # whole batches that were done again
    written_s: float = 0.0  # of `leaving_s`, as the processes say: what it takes to write such states

    @property
    def all_s(self) -> float:
        """Together."""
        return self.leaving_s + self.going_on_s + self.redone_s


class Ran(Struct, frozen=True):
    """What came of all queries."""

    verdicts: dict[str, str]  # job → how it ended
    times_s: dict[str, float]  # job → from its submission to its end
    pauses: dict[str, int]  # by where the state was kept
    made_way: int  # states in memory that were brought to disk
    restarts: int  # of processes, beside the first of each
    failed: int  # runs that broke
    lost_s: float
    lost: Lost | None = None  # its parts; of live runs

    @property
    def attained(self) -> list[str]:
        """Jobs that did."""
        return [job for job, verdict in self.verdicts.items() if verdict == "attained"]

    def of_class(self, name: str) -> tuple[int, int]:
        """Attained, and all."""
        return sum(class_of(j) == name for j in self.attained), sum(class_of(j) == name for j in self.verdicts)

    @property
    def mean_s(self) -> float:
        """From submission to end."""
        return sum(self.times_s.values()) / max(1, len(self.times_s))


def counted(header: Any, cycles: Sequence[Any], lost_s: float | None = None) -> Ran:
    """What a journal says; `lost_s` is what pauses cost where that is known otherwise (of simulated runs)."""
    accounted = account(header, cycles)
    pauses: Counter[str] = Counter()
    starts: Counter[str] = Counter()
    kept: dict[str, Tier] = {}
    made_way = failed = 0
    for cycle in cycles:
        for event in cycle.events:
            if isinstance(event, JobPaused):
                pauses[str(event.tier)] += 1
                kept[event.job] = event.tier
            elif isinstance(event, StateStored):
                made_way += event.tier is Tier.DISK and kept.get(event.job) is Tier.MEMORY
                kept[event.job] = event.tier
            elif isinstance(event, JobStarted) and not event.in_place:
                starts[event.job] += 1
            elif isinstance(event, JobFailed):
                failed += 1
    lost = time_lost(accounted, cycles) if lost_s is None else None
    return Ran(
        {r.job.id: r.verdict for r in accounted.jobs},
        {r.job.id: round(r.jct_s, 2) for r in accounted.jobs if r.jct_s is not None},
        dict(pauses), made_way, sum(n - 1 for n in starts.values()), failed,
        round(lost.all_s if lost is not None else lost_s or 0.0, 3), lost,
    )  # fmt: skip


class _Report(Struct):
    at_s: float
    fraction: float
    took_s: float  # the batch that it is of; 0 where it says again what was known
    write_s: float


def time_lost(accounted: Account, cycles: Iterable[Any]) -> Lost:
    """By the times at which jobs held cores and reported."""
    held: dict[str, list[tuple[float, float]]] = {}
    for span in sorted(accounted.spans, key=lambda s: (s.job, s.since_s)):
        spans = held.setdefault(accounted.jobs[span.job].job.id, [])
        if spans and span.since_s - spans[-1][1] < _NEXT_TO:
            spans[-1] = spans[-1][0], span.until_s
        else:
            spans.append((span.since_s, span.until_s))
    reports = _reports(cycles)
    parts = [0.0, 0.0, 0.0, 0.0]
    for job_id, spans in held.items():
        for n, part in enumerate(_of_job(spans, reports.get(job_id, []))):
            parts[n] += part
    return Lost(*(round(part, 3) for part in parts))


def _of_job(spans: Sequence[tuple[float, float]], reports: Sequence[_Report]) -> tuple[float, float, float, float]:
    leaving_s = going_on_s = redone_s = written_s = 0.0
    furthest = 0.0
    for n, (since_s, until_s) in enumerate(spans):
        # A report is read a moment after it was made: one of the last batch may come when the cores are free already.
        until = spans[n + 1][0] if n + 1 < len(spans) else until_s + 1e9
        here = [r for r in reports if since_s <= r.at_s < until]
        redone_s += sum(r.took_s for r in here if r.fraction <= furthest)
        furthest = max([furthest, *(r.fraction for r in here)])
        if not here:  # Nothing came of it.
            leaving_s += until_s - since_s if n + 1 < len(spans) else 0.0
            continue
        if n:
            going_on_s += here[0].at_s - since_s - here[0].took_s
        if n + 1 < len(spans):
            leaving_s += max(until_s, here[-1].at_s) - here[-1].at_s
            written_s += here[-1].write_s
    return leaving_s, going_on_s, redone_s, written_s


def _reports(cycles: Iterable[Any]) -> dict[str, list[_Report]]:
    """By job. A report says how long what is unsaved took; it falls where a state was written or a process began."""
    found: dict[str, list[_Report]] = {}
    unsaved: dict[str, float] = {}
    for cycle in cycles:
        for event in cycle.events:
            if not isinstance(event, ProgressReported | EpochEnded) or "fraction" not in event.metrics:
                continue
            said, job = event.metrics, event.job
            redo_s, before_s = said.get("redo_s", 0.0), unsaved.get(job, 0.0)
            unsaved[job] = redo_s
            took_s = redo_s - before_s if redo_s >= before_s else redo_s
            found.setdefault(job, []).append(_Report(event.at_s, said["fraction"], took_s, said.get("write_s", 0.0)))
    return found
