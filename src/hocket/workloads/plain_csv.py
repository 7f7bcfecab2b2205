"""A plain CSV of jobs: one row per job, a header with names of fields.

`id`, `submit_s` and `run_s` are required. The other columns are optional, a cell may be empty, and lists are
separated by semicolons (`1;2;4`); `submission.py` says what each field means. Unlike in public traces, an
unknown column is refused: it may be a misspelled field.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from hocket.workloads.csv_table import Table, read_table
from hocket.workloads.errors import plain
from hocket.workloads.fields import Fields
from hocket.workloads.selection import Selection
from hocket.workloads.submission import read_submission
from hocket.workloads.truth import Submission, Workload


def read_csv(path: str, selection: Selection = Selection()) -> Workload:
    """The jobs of the file."""
    table = read_table(path, ("id", "submit_s", "run_s"), selection.rows)
    submissions: list[Submission] = []
    seen: dict[str, int] = {}
    for n, row in enumerate(zip(*table.cells.values(), strict=True)):
        # The first row keeps its empty cells, so that `finish` sees every column's name.
        values = {name: cell or None for name, cell in zip(table.cells, row, strict=True) if cell or n == 0}
        fields = Fields(values, _place(table, n), from_text=True, noun="column", names_at=partial(_header, table))
        submission = read_submission(fields)
        earlier = seen.setdefault(submission.job.id, n)
        if earlier != n:
            raise table.repeated("id", submission.job.id, n, earlier)
        submissions.append(submission)
    return Workload("csv", selection.of(submissions, path))


def _header(table: Table) -> str:
    return f"{plain(table.path)} line {table.header_line()}"


def _place(table: Table, row: int) -> Callable[[str], str]:
    return lambda _name: f"{plain(table.path)} line {table.line(row)}"
