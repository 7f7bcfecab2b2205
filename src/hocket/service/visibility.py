"""What a caller sees of a job: its owner and admins everything, other users where it stands, readers no command.

| of a job | admin, its owner | another user | read |
| --- | --- | --- | --- |
| owner, state, size, GPUs, times, what it waits for | yes | yes | yes |
| progress, metrics, attempts, reasons, warnings | yes | no | yes |
| command, folders, names of variables and secrets, notifications | yes | no | no |
| log | yes | no | no |
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from hocket.model.job_spec import FIELDS
from hocket.service.rows import JobRow
from hocket.service.tokens import Role, Token

# How a job is run is between its owner and the nodes.
_HOW_IT_RUNS = frozenset(f.api for f in FIELDS if f.part == "launch" or f.api == "command")


def sees_all_rows(token: Token) -> bool:
    """Does it see progress and reasons of all owners' jobs?"""
    return token.role is not Role.USER


def visible_row(row: JobRow, token: Token) -> JobRow:
    """One line about a job: of another owner's, where it stands."""
    if sees_all_rows(token) or token.owns(row.owner):
        return row
    return replace(
        row, epoch=0, metrics={}, until="", attempts=0, reason=visible_reason(row.reason), saved_s=None,
        lost_s=0.0, lost_epochs=0, step=0, lost_steps=0,
    )  # fmt: skip


def visible_why(why: dict[str, Any], owner: str, token: Token) -> dict[str, Any]:
    """Why a job stands where it stands: of another owner's, without what happened to it."""
    if sees_all_rows(token) or token.owns(owner):
        return why
    hidden = f"not shown: the job is of owner '{owner}'"
    return why | {"now": visible_reason(why["now"]) or hidden, "warning": "", "past": []}


def visible_job(shown: dict[str, Any], token: Token) -> dict[str, Any]:
    """All about a job: for readers, without how it is run."""
    if token.owns(shown["owner"]):
        return shown
    job = {name: value for name, value in shown["job"].items() if name not in _HOW_IT_RUNS}
    return shown | {"job": job, "checkpoint": [], "log": []}


def visible_reason(reason: str) -> str:
    """A reason that is about the queue; others may be about a job's files, or what it printed."""
    return reason if reason.startswith("waits") else ""
