"""How a controller and an agent log: lines on stderr, as text or as JSON, that never stop what they tell of.

Each layer has one logger: `hocket.control`, `hocket.executors`, `hocket.service`, `hocket.agent` and `hocket.sidecar`.
What a line is about is in its fields (`job`, `run`, `node`, `cycle`, …), given as `extra` or by `cycle_number`.
"""

from __future__ import annotations

import json
import logging
import os
from contextvars import ContextVar
from datetime import UTC, datetime
from functools import lru_cache

import msgspec

from hocket.agent.stderr_handler import StderrHandler

LEVEL_VARIABLE = "HOCKET_LOG_LEVEL"
LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}

# In the controller's thread, the cycle that lines belong to; other threads have none.
cycle_number: ContextVar[int | None] = ContextVar("cycle_number", default=None)

_MOST_REPEATED, _REPEATED_S = 5, 60.0  # of one message of another package, in that time
_MOST_MESSAGES = 1000  # that are told apart

_CONTROL = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160))}
_NOT_FIELDS = {*vars(logging.makeLogRecord({})), "message", "asctime", "taskName", "color_message"}


def set_up_logging(level: str, as_json: bool, file: str | os.PathLike[str] | None = None, **fields: str) -> None:
    """Log this process to stderr from that level on; `fields` are on every line. If stderr is `file`, it is rotated.

    Other packages are heard from INFO on, for what they say below that is about themselves.
    """
    handler = StderrHandler(None if file is None else os.fspath(file))
    handler.setFormatter(JsonLogLine(fields) if as_json else TextLogLine())
    root = logging.getLogger()
    for old in [h for h in root.handlers if isinstance(h, StderrHandler)]:
        root.removeHandler(old)
    handler.addFilter(RepeatedMessages())
    root.addHandler(handler)
    root.setLevel(max(LEVELS[level], logging.INFO))
    logging.getLogger("hocket").setLevel(LEVELS[level])
    # No line shows these, and to find them out takes as long as to write the line.
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    logging._srcfile = None


class RepeatedMessages(logging.Filter):
    """Leaves out what other packages say again and again, such as a traceback for each of thousands of connections."""

    def __init__(self) -> None:
        super().__init__()
        self._seen: dict[tuple[str, str], tuple[float, int]] = {}  # logger, message → since when, and how often

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether to log it: of each message, a few in a minute."""
        if record.name.startswith("hocket"):
            return True
        key, now_s = (record.name, str(record.msg)), record.created
        since_s, count = self._seen.get(key, (now_s, 0))
        if not 0 <= now_s - since_s < _REPEATED_S:
            left_out, since_s, count = max(0, count - _MOST_REPEATED), now_s, 0
            if left_out:
                record.msg, record.args = f"{record.getMessage()} (and {left_out} times before, not logged)", None
        if key not in self._seen and len(self._seen) >= _MOST_MESSAGES:
            self._seen.clear()
        self._seen[key] = since_s, count + 1
        return count < _MOST_REPEATED


class TextLogLine(logging.Formatter):
    """Time, level, logger, message; a traceback follows on lines of its own."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s %(message)s")

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: ARG002, N802 - logging's
        """RFC 3339, in UTC: the lines of several machines can be put together."""
        return _time(record, 3)

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the name is logging's
        """One line, whatever a job is called: no name can pass for a line of its own, or reach the terminal."""
        record.message = record.message.translate(_CONTROL)
        return super().formatMessage(record)


class JsonLogLine(logging.Formatter):
    """One JSON object a line: time, level, logger, message, then the fields that the record has."""

    def __init__(self, fields: dict[str, str]) -> None:
        super().__init__()
        self._fields = fields

    def format(self, record: logging.LogRecord) -> str:
        """The line, without its end."""
        said = {
            "time": _time(record, 6),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        cycle = cycle_number.get()
        given = {name: value for name, value in vars(record).items() if name not in _NOT_FIELDS and name[0] != "_"}
        found = {**said, **self._fields, **({} if cycle is None else {"cycle": cycle}), **given}
        if record.exc_info and record.exc_info[0] is not None:
            found["exception"] = self.formatException(record.exc_info)
        try:
            return msgspec.json.encode(found, enc_hook=str).decode()
        except UnicodeEncodeError:  # A path that is not UTF-8.
            return json.dumps(found, default=str)


def _time(record: logging.LogRecord, digits: int) -> str:
    """RFC 3339, in UTC, with so many digits of the second's fraction."""
    whole_s, fraction_s = divmod(record.created, 1)
    return f"{_second(whole_s)}.{int(fraction_s * 10**digits):0{digits}d}Z"


@lru_cache(maxsize=1)  # Hundreds of lines may have the same.
def _second(whole_s: float) -> str:
    return datetime.fromtimestamp(whole_s, UTC).strftime("%Y-%m-%dT%H:%M:%S")
