"""Keeps a running controller's journal small: now and then, a process of its own removes old cycles from it."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing, suppress
from threading import Event as Flag
from threading import Thread

import msgspec

from hocket.control.journal import JournalError, open_to_read
from hocket.control.journal.stored import StoredJournal
from hocket.service.compaction import Compacted, CompactionRequest, Keep, removable

_log = logging.getLogger("hocket.service")
_FIRST_S = 60.0  # after the start
_EVERY_S = 600.0  # between two looks
_LEAVE_S = 5.0  # for the process to end when the controller does


class Retention:
    """Looks at the journal from time to time, in a thread of its own."""

    def __init__(
        self,
        store: str,
        journal: StoredJournal,
        keep: Keep,
        now_s: Callable[[], float],
        *,
        first_s: float = _FIRST_S,
        every_s: float = _EVERY_S,
    ) -> None:
        """`store` is as the journal was opened by; `now_s` is the clock of its cycles."""
        self._store, self._epoch, self._keep, self._now_s = store, journal.epoch, keep, now_s
        self._first_s, self._every_s = first_s, every_s
        self._over = Flag()
        self._process: subprocess.Popen[bytes] | None = None
        self._thread = Thread(target=self._run, name="retention", daemon=True)

    def start(self) -> None:
        """Begin to look, unless everything is kept."""
        if self._keep.history_s or self._keep.size:
            self._thread.start()

    def close(self) -> None:
        """End it; what is under way is finished by the next controller."""
        self._over.set()
        if (process := self._process) is not None:
            with suppress(ProcessLookupError):
                process.terminate()
        if self._thread.is_alive():
            self._thread.join(_LEAVE_S)

    def _run(self) -> None:
        wait_s = self._first_s
        while not self._over.wait(wait_s):
            wait_s = self._every_s
            try:
                if self._is_due():
                    self._compact()
            except (JournalError, OSError) as error:
                _log.warning("old cycles were not removed from the journal: %s", error)
            except Exception:
                _log.exception("old cycles were not removed from the journal")

    def _is_due(self) -> bool:
        with closing(open_to_read(self._store)) as journal:
            return removable(journal, self._keep, self._now_s()) > 0

    def _compact(self) -> None:
        request = msgspec.json.encode(CompactionRequest(self._store, self._epoch, self._keep, self._now_s()))
        # -P: no module is imported from the working directory.
        command = [sys.executable, "-P", "-m", "hocket.service.compaction"]
        self._process = process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        if self._over.is_set():
            process.terminate()
        said, error = process.communicate(request)
        self._process = None
        if self._over.is_set():
            return
        if process.returncode:
            lines = error.decode(errors="replace").strip().splitlines()
            raise OSError(lines[-1] if lines else f"the process ended with {process.returncode}")
        done = msgspec.json.decode(said, type=Compacted)
        to = f", to '{self._keep.archive}'" if done.archives else ""
        _log.info(
            "%d cycles with %d ended jobs were removed from the journal%s: %.1f MiB before, %.1f MiB now",
            done.cycles, done.jobs, to, done.bytes_before / (1 << 20), done.bytes_after / (1 << 20),
            extra={"cycles": done.cycles, "jobs": done.jobs, "longest_s": round(done.longest_s, 4)},
        )  # fmt: skip
