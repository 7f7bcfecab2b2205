"""Each query alone, on one core and on all that it may get: how its process starts, and what each batch takes and says.

Read from the journal of a controller that ran them one after the other. The time of the first batch is what the query
says of it; the others end when they are reported.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import closing
from pathlib import Path
from statistics import median

from msgspec import Struct

from hocket.control.journal import open_to_read
from hocket.model.event import EpochEnded, JobSubmitted, ProgressReported


class LoneBatch(Struct, frozen=True):
    """What a query said after a batch."""

    at_s: float  # since its first batch began
    fraction: float
    accuracy: float  # 0 if it promised none
    state_mib: float
    process_mib: float
    write_s: float
    read_s: float


class LoneRun(Struct, frozen=True):
    """A query that ran alone."""

    query: str
    threads: int
    start_s: float  # from its submission to its first batch
    batches: tuple[LoneBatch, ...]

    @property
    def run_s(self) -> float:
        """All its batches."""
        return max(0.001, self.batches[-1].at_s)


def name_of(query: str, threads: int) -> str:
    """Of the job that runs it alone."""
    return f"alone-{query}-{threads}"


def lone_runs(journals: Iterable[Path]) -> dict[tuple[str, int], LoneRun]:
    """By query and threads."""
    found = {}
    for path in journals:
        begun: dict[str, float] = {}
        said: dict[str, list[tuple[float, dict[str, float]]]] = {}
        with closing(open_to_read(str(path))) as journal:
            for cycle in journal:
                for event in cycle.events:
                    match event:
                        case JobSubmitted(job=job):
                            begun.setdefault(job.id, event.at_s)
                        case ProgressReported(job=job_id, metrics=metrics) | EpochEnded(job=job_id, metrics=metrics):
                            if "fraction" in metrics:
                                said.setdefault(job_id, []).append((event.at_s, metrics))
        for job_id, reports in said.items():
            _alone, query, threads = job_id.split("-")
            found[query, int(threads)] = _run(query, int(threads), begun[job_id], reports)
    return found


def _run(query: str, threads: int, submitted_s: float, reports: list[tuple[float, dict[str, float]]]) -> LoneRun:
    first_s = reports[0][0]
    took_s = reports[0][1].get("redo_s", 0.0)
    batches = []
    for at_s, said in reports:
        if batches and said["fraction"] <= batches[-1].fraction:
            continue
        batches.append(
            LoneBatch(
                round(at_s - first_s + took_s, 4), said["fraction"], said.get("acc", 0.0),
                *(said.get(name, 0.0) for name in ("state_mib", "process_mib", "write_s", "read_s")),
            )
        )  # fmt: skip
    return LoneRun(query, threads, max(0.05, round(first_s - submitted_s - took_s, 4)), tuple(batches))


def start_s(runs: Iterable[LoneRun]) -> float:
    """Until a process has its data open: about the same for all queries."""
    return median(run.start_s for run in runs)


def process_sizes(runs: Sequence[LoneRun]) -> tuple[float, float, float]:
    """MiB of a process without its state: after its first batch and before its last, medians over queries; the most."""
    sizes = [[b.process_mib - b.state_mib for b in run.batches[:-1] or run.batches] for run in runs]
    found = median(s[0] for s in sizes), median(s[-1] for s in sizes), max(max(s) for s in sizes)
    return round(found[0], 1), round(found[1], 1), round(found[2], 1)
