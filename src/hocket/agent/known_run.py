"""One run as the agent knows it: its folder, its sidecar if that lives, and what the controller has still to hear."""

from __future__ import annotations

import fcntl
import json
import os
import time
from contextlib import suppress
from itertools import islice
from typing import Any

from msgspec import Struct

from hocket.agent import folder_lock, run_folder
from hocket.agent.heard import Heard, read_heard, write_heard
from hocket.agent.protocol import Report, RunKey
from hocket.agent.sidecar_process import SidecarProcess
from hocket.agent.tail import facts, story

HAND_OVER = "start.json"  # The order to start what stands prepared, kept until the run is over.
CLOSED = "spec.over"  # what `spec.json` is called once nothing may be started from it


class Part(Struct, frozen=True):
    """Some reports of a run, and what it means that they were heard."""

    run: KnownRun
    telling: int  # all that is said since `say_again` came so often
    n: int
    offset: int
    with_lost: bool
    reports: tuple[Report, ...]


class KnownRun:
    """Changed under the lock of `Runs` only."""

    def __init__(self, key: RunKey, folder: str, spec: dict[str, Any]) -> None:
        self.key, self.folder = key, folder
        self.events = os.path.join(folder, run_folder.EVENTS)
        self.mark = str(spec.get("mark", ""))
        grace_s = spec.get("grace_s")
        self.grace_s = float(grace_s) if isinstance(grace_s, int | float) else 30.0
        self.heard = read_heard(folder)
        # Prepared, and not told to start: it may start cold when its sidecar is gone.
        self.stands_by = spec.get("warm") is True and not os.path.exists(os.path.join(folder, HAND_OVER))
        self.sidecar: SidecarProcess | None = None
        self.ended = self.heard.over or self.heard.lost_s > 0  # No more events will come.
        self.seen = self.heard.offset  # how far the events were looked at
        self.growing: int | None = None  # by what to stop watching them
        self.orders: list[dict[str, Any]] = []  # that the sidecar does not have yet
        self.kill_s: float | None = None  # when to end a sidecar that does not do what it was told
        self.was_held = False  # by this agent: its processes are known to be its own
        self.is_forgotten = False
        self._telling = 0

    # -- its files ----------------------------------------------------------------------------------------------

    def create(self, spec: dict[str, Any], after: int = 0) -> None:
        """All that a sidecar needs, which numbers its facts after those of one before; OSError if there is no space."""
        fd = os.open(self.events, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        if after:
            os.write(fd, b'{"n":%d,"at":%.6f,"event":"%s"}\n' % (after, time.time(), run_folder.LET_GO.encode()))
        os.close(fd)
        write_heard(self.folder, self.heard)
        run_folder.create(self.folder, spec)

    @property
    def was_let_go(self) -> bool:
        """Whether it stood ready, and ended before it was told to start: it may begin again."""
        told = story(self.events)
        return self.stands_by and self.ended and not told.started and not told.cannot

    @property
    def last_n(self) -> int:
        """The number of its last fact."""
        return max((fact["n"] for fact, _ in facts(self.events, 0)), default=0)

    def keep_hand_over(self, order: dict[str, Any]) -> None:
        """Remember that it was told to start, and with what."""
        path = os.path.join(self.folder, HAND_OVER)
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with open(fd, "w", encoding="utf-8") as file:
            json.dump(order, file)

    def hand_over(self) -> dict[str, Any] | None:
        """The order to start, if it was given; an agent may have died before it passed it on."""
        try:
            with open(os.path.join(self.folder, HAND_OVER), encoding="utf-8") as file:
                found = json.load(file)
        except (OSError, ValueError):
            return None
        return found if isinstance(found, dict) else None

    def close(self) -> bool:
        """See to it that nothing will ever be started from this folder; False if a sidecar lives there after all."""
        try:
            lock = os.open(os.path.join(self.folder, folder_lock.LOCK), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError:
            return True
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.rename(os.path.join(self.folder, run_folder.SPEC), os.path.join(self.folder, CLOSED))
        except BlockingIOError:
            return False
        except OSError:  # It is called that already.
            pass
        finally:
            os.close(lock)
        return True

    # -- what is heard ------------------------------------------------------------------------------------------

    def unheard(self, most: int) -> Part | None:
        """The next reports that the controller has not heard; None if there are none now."""
        reports, n, offset = [], self.heard.n, self.heard.offset
        for fact, end in islice(facts(self.events, offset), most):
            n, offset = fact["n"], end
            fields = {name: value for name, value in fact.items() if name not in ("n", "at", "event")}
            reports.append(Report(self.key, n, fact["at"], fact["event"], fields))
        with_lost = self.heard.lost_s > 0 and not self.heard.lost_heard and len(reports) < most
        if with_lost:
            reports.append(Report(self.key, 0, self.heard.lost_s, "lost", {"reason": self._complaints()}))
        return Part(self, self._telling, n, offset, with_lost, tuple(reports)) if reports else None

    def has_heard(self, part: Part) -> None:
        """The controller has these; unless it asked meanwhile for all of them again."""
        heard = self.heard
        if self.is_forgotten or part.telling != self._telling:
            return
        heard.n, heard.offset = part.n, part.offset
        heard.lost_heard = heard.lost_heard or part.with_lost
        if not self.see_whether_over():
            self.keep_heard()

    def see_whether_over(self) -> bool:
        """Whether all was heard, and no more will come."""
        if self.ended and self.unheard(1) is None:
            self.heard.over = True
            self.keep_heard()
        return self.heard.over

    def say_again(self) -> None:
        """Everything counts as unheard."""
        self._telling += 1
        self.heard = Heard(lost_s=self.heard.lost_s)
        self.keep_heard()

    def keep_heard(self) -> None:
        """Write down how far the controller is. Without that, a later agent says some things twice."""
        with suppress(OSError):
            write_heard(self.folder, self.heard)

    def _complaints(self) -> str:
        try:
            with open(os.path.join(self.folder, run_folder.COMPLAINTS), encoding="utf-8", errors="replace") as file:
                said = file.read(1 << 16).strip()
        except OSError:
            said = ""
        return f"its sidecar died: {said[-500:]}" if said else "its sidecar died"


def read_run(folder: str) -> KnownRun | None:
    """The run that a folder holds; None if it was never complete, or only its logs are kept."""
    for name in (run_folder.SPEC, CLOSED):
        try:
            with open(os.path.join(folder, name), encoding="utf-8") as file:
                spec = json.load(file)
            return KnownRun(RunKey(str(spec["job"]), int(os.path.basename(folder))), folder, spec)
        except (OSError, ValueError, KeyError, TypeError):
            continue
    return None
