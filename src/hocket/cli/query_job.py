"""A query that runs as a job: it reports each batch, writes its answer, takes other resources, and is paused when told.

SIGTERM asks it to leave; SIGTSTP to stop where it is, with all in memory, until SIGCONT.

Its agent says by variables where: `HOCKET_ANSWER` is the file of the present answer, `HOCKET_RESOURCES` that of the
threads and the memory that it has now, and `HOCKET_CHECKPOINT_DIR` the folder of its state.
"""

from __future__ import annotations

import os
import select
import signal
import threading
from collections.abc import Mapping
from math import inf
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from hocket.model.suspension import INTERRUPTED_EVERY_S

if TYPE_CHECKING:
    from hocket.query import Answer, Query

_FINISHING_S = 5.0  # for the batch under way, when asked to leave; then it is given up
_AGAIN_S = 0.1
_OF_DUCKDB = 0.8  # of the job's memory; the rest is for Python, and for what DuckDB does not count
_LEFT = 128 + signal.SIGTERM


class QueryResources(Struct, frozen=True):
    """What a query has now, as its agent writes it."""

    size: int = 1  # threads
    mem_mib: float = 0.0  # 0: not limited
    epoch_batches: int = 0  # length of a running epoch; 0: not counted in batches
    epoch_s: float = 0.0  # length of a running epoch; 0: not counted in seconds
    keep: str = ""  # where its state is to be when it leaves, `disk` or `none`; empty: it chooses


class QueryJob:
    """One attempt of it."""

    def __init__(self, answer: Path, resources: Path | None, state: Path | None, attempt: int) -> None:
        self.state = state
        # One an hour, until it is known better.
        self.interrupted_every_s = INTERRUPTED_EVERY_S / attempt
        self._answer_file, self._resources_file = answer, resources
        self._asked_to_leave = threading.Event()
        self._asked_to_suspend = threading.Event()
        self._suspending = threading.Lock()
        self._has_stopped = threading.Event()  # no batch is under way any more
        self._interrupts = threading.Lock()
        self._resources: QueryResources | None = None  # None: what DuckDB takes by itself
        self._epoch_batches, self._epoch_began_s = 0, monotonic()

    @classmethod
    def of(cls, env: Mapping[str, str]) -> QueryJob | None:
        """That of the job whose process this is; None outside of Hocket."""
        if not (answer := env.get("HOCKET_ANSWER")):
            return None
        state, resources = env.get("HOCKET_CHECKPOINT_DIR"), env.get("HOCKET_RESOURCES")
        attempt = env.get("HOCKET_ATTEMPT", "1")
        return cls(
            Path(answer), Path(resources) if resources else None, Path(state) if state else None,
            max(int(attempt), 1) if attempt.isdecimal() else 1,
        )  # fmt: skip

    def run(self, query: Query) -> int:
        """Answer it to the end, or until asked to leave; gives the exit code. Raises QueryError."""
        from hocket.model.view import Tier
        from hocket.query import QueryError

        self._handle_signals_signals(query)
        print(f"split {query.how}" if query.mode is not None else query.how, flush=True)
        self._take_resources(query)
        try:
            for answer in query:
                self._tell(query, answer)
                if not query.meets_goal(answer):
                    if not self._asked_to_leave.is_set() and self._asked_to_suspend.is_set():
                        self._suspend_after_batch(query)
                    if self._asked_to_leave.is_set():
                        break
                    self._take_resources(query)
            else:
                return 0
        except QueryError:
            if not self._asked_to_leave.is_set():
                raise
            print("the batch under way is given up", flush=True)
        with self._interrupts:  # The state must not be interrupted.
            self._has_stopped.set()
        keep = self._read_resources().keep
        kept = query.leave(Tier(keep) if keep in (Tier.DISK, Tier.NONE) else None)
        redone = "it is cheaper to begin again" if not keep else "its state is dropped, as it was told"
        print(f"leaves: {'its state is on disk' if kept is Tier.DISK else redone}", flush=True)
        return _LEFT

    def _handle_signals_signals(self, query: Query) -> None:
        """Note signals at once, though DuckDB is at work, and act when the batch takes too long."""
        read_end, write_end = os.pipe()
        os.set_blocking(write_end, False)
        signal.signal(signal.SIGTERM, lambda *_: self._asked_to_leave.set())
        for number in (signal.SIGTSTP, signal.SIGCONT):
            signal.signal(number, lambda *_: None)
        signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
        threading.Thread(target=self._handle_signals, args=(query, read_end), daemon=True).start()

    def _handle_signals(self, query: Query, signals: int) -> None:
        leave_s = suspend_s = inf  # when to give the batch up, and when to stop amid it
        while not self._has_stopped.is_set():
            due_s = min(leave_s, suspend_s)
            ready = select.select([signals], [], [], max(due_s - monotonic(), 0.0) if due_s < inf else None)[0]
            for number in os.read(signals, 64) if ready else b"":
                if number == signal.SIGTERM:
                    self._asked_to_leave.set()
                    leave_s, suspend_s = min(leave_s, monotonic() + _FINISHING_S), inf
                elif number == signal.SIGTSTP and not self._asked_to_leave.is_set():
                    self._asked_to_suspend.set()
                    suspend_s = monotonic() + _FINISHING_S
                elif number == signal.SIGCONT:
                    self._asked_to_suspend.clear()
                    suspend_s = inf
            if suspend_s < inf and monotonic() >= suspend_s:
                self._stop_process(query, "amid a batch")
                suspend_s = inf
            if leave_s < inf and monotonic() >= leave_s:
                with self._interrupts:
                    if not self._has_stopped.is_set():
                        query.interrupt()
                leave_s = monotonic() + _AGAIN_S  # An interrupt between two statements has no effect.

    def _suspend_after_batch(self, query: Query) -> None:
        """Stop here, where a batch has just been counted."""
        written = ", and on disk" if query.save_before_suspension() else ""
        self._stop_process(query, f"after a batch{written}")

    def _stop_process(self, query: Query, how: str) -> None:
        """Stop all threads of this process, until it is told to go on; unless that came meanwhile."""
        with self._suspending:
            if self._asked_to_suspend.is_set() and not self._asked_to_leave.is_set():
                print(f"suspended: its state is in memory, {how}", flush=True)
                began_s = monotonic()
                _stop()
                query.was_suspended(monotonic() - began_s)
                print("goes on from memory", flush=True)
            self._asked_to_suspend.clear()

    def _read_resources(self) -> QueryResources:
        """What the agent says that the job has now."""
        import msgspec

        before = self._resources or QueryResources()
        if self._resources_file is None:
            return before
        try:
            return msgspec.json.decode(self._resources_file.read_bytes(), type=QueryResources)
        except (OSError, msgspec.MsgspecError):
            return before  # It is being replaced, or the disk is full: the next batch sees it.

    def _take_resources(self, query: Query) -> None:
        """Go on with what the job has now."""
        now = self._read_resources()
        if self._resources_file is None or now == self._resources:
            return
        self._resources = now
        query.set_resources(now.size, now.mem_mib * _OF_DUCKDB)
        memory = f", {now.mem_mib:g} MiB" if now.mem_mib else ""
        print(f"goes on with {now.size} thread{'' if now.size == 1 else 's'}{memory}", flush=True)

    def _tell(self, query: Query, answer: Answer) -> None:
        """Write the answer, and report the batch; at the end of a running epoch, an epoch too, counted in batches."""
        import msgspec

        import hocket
        from hocket.cli.answer_table import in_one_line, shown_answer

        batches = max(len(query.ledger), 1)
        shown = shown_answer(query, answer)
        _replace(self._answer_file, msgspec.json.encode(shown))
        is_epoch = self._is_epoch_over(batches) or answer.is_exact
        hocket.report(batches if is_epoch else None, step=batches, **self._metrics(query, answer))
        print(f"batch {batches}: {in_one_line(shown)}", flush=True)

    def _is_epoch_over(self, batches: int) -> bool:
        lengths = self._resources or QueryResources()
        if lengths.epoch_batches and batches - self._epoch_batches < lengths.epoch_batches:
            return False
        if lengths.epoch_s and monotonic() - self._epoch_began_s < lengths.epoch_s:
            return False
        self._epoch_batches, self._epoch_began_s = batches, monotonic()
        return True

    def _metrics(self, query: Query, answer: Answer) -> dict[str, Any]:
        widths = [
            width / abs(float(value))
            for row, row_widths in zip(answer.rows, answer.half_widths, strict=True)
            for value, width in zip(row, row_widths, strict=True)
            if width is not None and value
        ]
        at_risk = query.suspension()
        found = {
            "fraction": answer.fraction, "rows_read": round(query.rows * answer.fraction),
            "state_mib": at_risk.state_mib, "redo_s": at_risk.redo_s, "write_s": at_risk.write_s,
            "read_s": at_risk.read_s, "process_mib": _resident_mib(),
        }  # fmt: skip
        found |= {"half_width": sum(widths) / len(widths)} if widths else {}
        return found | ({"acc": answer.accuracy} if answer.accuracy is not None else {})


def _stop() -> None:
    """Returns when it is told to go on."""
    os.kill(os.getpid(), signal.SIGSTOP)


def _resident_mib() -> float:
    """Memory of this process, in MiB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


def _replace(path: Path, data: bytes) -> None:
    """Replace a file at once: a reader finds the old content or the new one, never a part."""
    part = path.with_name(f"{path.name}.part")
    try:
        part.write_bytes(data)
        os.replace(part, path)
    except OSError as error:
        print(f"the answer cannot be written: {error.strerror}", flush=True)
