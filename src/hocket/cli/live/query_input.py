"""A query among what a user says of a job: `--query "SELECT …" --data DIR`, or the command `hocket query …`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from hashlib import sha256
from itertools import pairwise
from typing import Any

from hocket.model.criterion import CriterionError, Goal, parse
from hocket.model.job import QUERY_COMMAND, Kind, Preempt

# What a query needs, unless its user says otherwise. Its size is its threads, so that it has a core for each of them.
# It can be preempted at any time, for it keeps its state, or begins again where that is cheaper.
_NEEDS: dict[str, Any] = {"cpus": 1, "preempt": str(Preempt.ALWAYS), "max_nodes": 1, "progress": "none"}

_ENGINES = ("duckdb", "spark")


class QueryProblem(ValueError):
    """What is wrong with a field; `field` is its name."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(problem)
        self.field = field


def with_query(said: Mapping[str, object], words: list[str]) -> dict[str, Any]:
    """What was said of a job whose command has these words, with all that a query means. Raises QueryProblem."""
    found = dict(said)
    sql, data = found.pop("query", ""), found.pop("data", "")
    engine, master = found.pop("engine", ""), found.pop("master", "")
    if sql:
        if words:
            raise QueryProblem("query", "must stand without a command, and there is one")
        if not data:
            raise QueryProblem("data", "must say where the tables of the query are, and is missing")
        words = [*QUERY_COMMAND, str(sql), "--data", str(data), *_until(found.get("until")), *_engine(engine, master)]
    else:
        for name, value in (("data", data), ("engine", engine), ("master", master)):
            if value:
                raise QueryProblem(name, "must stand with query")
    if words and os.path.basename(words[0]) == QUERY_COMMAND[0] and words[1:2] == [QUERY_COMMAND[1]]:
        words = [*QUERY_COMMAND, *words[2:]]
        if "gpus" in found or "replica_gpus" in found:
            raise QueryProblem("gpus", "must not be said of a query: its size is threads")
        found = {"kind": str(Kind.QUERY), **_NEEDS, **found, "gpus": found.pop("threads", 1), "command": words}
    elif "threads" in found:
        raise QueryProblem("threads", "must be said of a query only")
    return found


def query_traits(words: list[str]) -> dict[str, float | str]:
    """By what a query with this command is compared with past ones: its text, but for blanks, and its data."""
    sql = next((word for word in words[2:] if " " in word.strip()), "")
    if not sql:
        return {}
    digest = sha256(" ".join(sql.split()).encode(errors="replace")).hexdigest()[:12]
    data = next((value for option, value in pairwise(words) if option == "--data"), "")
    found: dict[str, float | str] = {"query": digest}
    return found | {"data": data[-200:]} if data else found


def _engine(engine: object, master: object) -> list[str]:
    if engine not in ("", *_ENGINES):
        raise QueryProblem("engine", f"must be {' or '.join(_ENGINES)}, not '{engine}'")
    if engine == "spark" and not master:
        raise QueryProblem("master", "must say where Spark is, and is missing")
    if engine != "spark" and master:
        raise QueryProblem("master", "must stand with engine spark")
    return ["--engine", str(engine), *(["--master", str(master)] if master else [])] if engine else []


def _until(until: object) -> list[str]:
    """The goal without its deadline, which counts from submission: the controller sees to that."""
    try:
        goal = parse(str(until)) if until else None
    except CriterionError:
        return []  # It is refused where all criteria are read.
    return ["--until", f"{goal.metric} {goal.relation} {goal.target:g}"] if isinstance(goal, Goal) else []
