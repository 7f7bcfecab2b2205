"""The jobs that TOML files describe, and errors that name the file and the job."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from hocket.cli.terminal.errors import InputError
from hocket.job_input.read_job import NAMES, FieldProblem

FILE_LIMIT = 1 << 26  # bytes: what is larger is no list of jobs


def jobs_in(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """What a TOML file says of each job, and how an error names that job.

    It holds one job, or several as `[[job]]` tables; what stands above those holds for all of them.
    """
    whole = _table(path)
    tables = whole.pop("job", None)
    for_all = _known(whole, str(path), ("job",))
    if tables is None:
        yield str(path), for_all
        return
    if not isinstance(tables, list) or not tables or not all(isinstance(t, dict) for t in tables):
        raise InputError(f"{path}: job must be [[job]] tables")
    for n, table in enumerate(tables, 1):
        name = table.get("name")
        where = f"{path}: job {n}" + (f" ('{name}')" if isinstance(name, str) else "")
        own = _known(table, where)
        both = for_all | own
        for key in ("env", "traits"):
            if isinstance(for_all.get(key), dict) and isinstance(own.get(key), dict):
                both[key] = for_all[key] | own[key]
        yield where, both


def located(where: str, problem: FieldProblem) -> FieldProblem:
    """The problem, saying in which file and job it is."""
    return FieldProblem(f"{where}:", str(problem), problem.text, problem.position)


def _table(path: Path) -> dict[str, Any]:
    import tomllib

    try:
        if path.stat().st_size > FILE_LIMIT:
            raise InputError(f"{path}: a file of jobs must have at most {FILE_LIMIT >> 20} MiB")
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"{path}: must be TOML: {error}") from error


def _known(table: Mapping[str, Any], where: str, also: tuple[str, ...] = ()) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in table.items():
        name = key.replace("-", "_")
        if name not in NAMES:
            raise InputError(f"{where}: unknown key '{key}'{_meant(name, (*NAMES, *also))}")
        if name in found:
            raise InputError(f"{where}: '{name}' must be said once, and is there twice")
        found[name] = value
    return found


_ELSEWHERE = {
    "id": "name", "cores": "cpus", "cpu": "cpus", "memory": "mem", "sizes": "gpus", "limit": "time", "timeout": "time",
    "dir": "cwd", "workdir": "cwd", "environment": "env", "criterion": "until", "jobs": "job",
}  # fmt: skip  # What others call it.


def _meant(key: str, known: tuple[str, ...]) -> str:
    from difflib import get_close_matches

    near = [_ELSEWHERE[key]] if _ELSEWHERE.get(key) in known else get_close_matches(key[:100], known, n=1, cutoff=0.6)
    return f"; did you mean '{near[0]}'?" if near else f"; there are {', '.join(known)}"
