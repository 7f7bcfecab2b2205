"""Which queries come when: those of the simulated workload for which a goal is accepted, in less time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from msgspec import Struct

from hocket.model.criterion import Duration, Goal
from hocket.query import Query, QueryError
from hocket.runtimes.query.data_sources import open_data
from hocket.workloads.rotary import CLASSES, GAP_S, rotary_workload


class Drawn(Struct, frozen=True):
    """One query that will come; times are those of Table 3.1."""

    id: str
    query: str
    at_s: float
    accuracy: float
    deadline_s: float


def accepted(data: Path, texts: dict[int, str]) -> frozenset[str]:
    """The queries that are not refused with a goal for their accuracy on these data.

    Of some all rows are final or a column has no interval: it depends on how they are split, so the queries are asked.
    """
    opened = open_data(str(data), 1)
    found = []
    for number, sql in texts.items():
        try:
            Query(sql, opened, until="acc >= 90%").close()
        except QueryError:
            continue
        found.append(f"q{number}")
    opened.connection.close()
    return frozenset(found)


def drawn(seed: int, count: int, able: Iterable[str]) -> list[Drawn]:
    """The first `count` queries that are accepted, of as many of these workloads as it takes."""
    able, found, more = set(able), list[Drawn](), 0.0
    for part in range(count):
        workload = rotary_workload("aqp", seed + 1000 * part)
        for submission in workload.submissions:
            if submission.job.model not in able:
                continue
            goal = submission.job.criterion
            assert isinstance(goal, Goal)
            assert isinstance(goal.deadline, Duration)
            name = f"{submission.job.id.partition('.')[0]}-{len(found) + 1}"
            found.append(
                Drawn(name, submission.job.model, more + submission.at_s, goal.target, goal.deadline.time_s)
            )  # fmt: skip
            if len(found) == count:
                return found
        more += workload.submissions[-1].at_s + GAP_S
    raise SystemExit("benchmarks: no query of Table 3.1 is accepted with a goal on these data")


def faster(queries: Sequence[Drawn], gap_s: float) -> list[Drawn]:
    """The same with so many seconds between arrivals in the mean; deadlines are shorter by the same factor."""
    factor = gap_s / GAP_S
    return [
        Drawn(q.id, q.query, round(q.at_s * factor, 3), q.accuracy, round(q.deadline_s * factor, 1)) for q in queries
    ]


def class_of(job_id: str) -> str:
    """light, medium or heavy."""
    kind = job_id.partition("-")[0]
    assert kind in CLASSES
    return kind
