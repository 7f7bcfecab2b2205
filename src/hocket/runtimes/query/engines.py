"""The engines by name."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from hocket.runtimes.query.data_sources import open_data
from hocket.runtimes.query.engine import QueryEngine
from hocket.runtimes.query.statement import QueryError


def open_engine(
    source: str | Path,
    engine: Literal["duckdb", "spark"] = "duckdb",
    master: str = "",
    spark_conf: Mapping[str, str] | None = None,
    *,
    threads: int | None = None,
    memory: str = "",
    state: Path | None = None,
) -> QueryEngine:
    """Open the tables there, for an engine to read. Raises QueryError."""
    if engine == "spark":
        if not master:
            raise QueryError("engine 'spark' needs a master: spark://HOST:PORT, local[N], yarn or k8s://…")
        from hocket.runtimes.query.spark_data import open_spark_data

        return open_spark_data(source, master, spark_conf, threads, memory, state)
    if engine != "duckdb":
        raise QueryError(f"engine '{engine}' is not known; engines: duckdb, spark")
    if master or spark_conf:
        raise QueryError("a master and settings of Spark need engine 'spark'")
    return open_data(source, threads, memory, state)
