"""The runs on this node, for the log: what the agent does with them (`hocket.agent`), and what their sidecars tell.

A sidecar has no log of its own, for its job's output must hold nothing else: all that it does it writes down as facts,
which the agent reads anyway and logs here (`hocket.sidecar`).
"""

from __future__ import annotations

import logging
from typing import Any

from hocket.agent.protocol import RunKey

_agent = logging.getLogger("hocket.agent")
_sidecar = logging.getLogger("hocket.sidecar")
_LEVELS = {
    "use": logging.DEBUG,
    "progress": logging.DEBUG,
    "warning": logging.WARNING,
    "metric-unseen": logging.WARNING,
    "hung": logging.WARNING,
    "cannot-start": logging.WARNING,
}
_TOLD = (
    "code", "signal", "reason", "about", "epoch", "step", "metric", "then", "warm", "resumed", "asked", "killed",
    "pids", "ran_s",
)  # fmt: skip


def log_run(level: int, key: RunKey, message: str, *args: object, **fields: object) -> None:
    """Log what the agent does with a run."""
    if _agent.isEnabledFor(level):
        _log(_agent, level, key, message % args if args else message, fields)


def log_fact(key: RunKey, fact: dict[str, Any]) -> None:
    """Log what a sidecar tells of its run."""
    event = fact["event"]
    level = _LEVELS.get(event, logging.INFO)
    if _sidecar.isEnabledFor(level):
        told = {n: v for n in _TOLD if (v := fact.get(n)) is not None and v is not False and v != []}
        details = ", ".join(name if value is True else f"{name} {value}" for name, value in told.items())
        _log(_sidecar, level, key, f"{event}{f': {details}' if details else ''}", {"event": event, **told})


def _log(logger: logging.Logger, level: int, key: RunKey, message: str, fields: dict[str, object]) -> None:
    extra = {"job": key.job, "run": key.number, **fields}
    logger.log(level, "run %d of job '%s': %s", key.number, key.job, message, extra=extra)
