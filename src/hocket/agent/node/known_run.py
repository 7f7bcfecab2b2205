"""One run as the agent knows it: its folder, its sidecar if that lives, and what the controller has still to hear."""

from __future__ import annotations

import fcntl
import json
import logging
import os
import time
from contextlib import suppress
from itertools import islice
from typing import Any

from msgspec import Struct

from hocket.agent import run_folder
from hocket.agent.cgroup import PROCESSES, Cgroup
from hocket.agent.node.ack_cursor import AckCursor, read_cursor, write_cursor
from hocket.agent.node.events_reader import facts, story
from hocket.agent.node.run_log import log_run
from hocket.agent.node.sidecar_process import SidecarProcess
from hocket.agent.node.state_folder import numbers
from hocket.agent.protocol import Report, RunKey
from hocket.model import phase_tokens

HAND_OVER = "start.json"  # The order to start what stands prepared, kept until the run is over.
CLOSED = "spec.over"  # what `spec.json` is called once nothing may be started from it


class RunReports(Struct, frozen=True):
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
        self.mark, self.cgroup = str(spec.get("mark", "")), cgroup_of(spec)
        env = spec.get("env")
        self.takes_turns = isinstance(env, dict) and bool(env.get(phase_tokens.VARIABLE))  # with phase tokens
        grace_s = spec.get("grace_s")
        self.grace_s = float(grace_s) if isinstance(grace_s, int | float) else 30.0
        self.cursor = read_cursor(folder)
        # Prepared, and not told to start: it may start cold when its sidecar is gone.
        is_ordered = os.path.exists(os.path.join(folder, HAND_OVER))
        self.stands_by = spec.get("warm") is True and not is_ordered and not story(self.events).started
        self.sidecar: SidecarProcess | None = None
        self.ended = self.cursor.over or self.cursor.lost_s > 0  # No more events will come.
        self.seen = self.cursor.offset  # how far the events were looked at
        self.growing: int | None = None  # by what to stop watching them
        self.orders: list[dict[str, Any]] = []  # that the sidecar does not have yet
        self.kill_s: float | None = None  # when to end a sidecar that does not do what it was told
        self.is_stopping = False  # it was told to leave: if its sidecar dies, it is lost, prepared or not
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
        write_cursor(self.folder, self.cursor)
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
        """Remember that it was told to start, and with what.

        Also if the machine crashes: it would count as prepared then, and its job as running.
        """
        path = os.path.join(self.folder, HAND_OVER)
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            os.write(fd, json.dumps(order).encode())
            os.fsync(fd)
        finally:
            os.close(fd)

    def hand_over(self) -> dict[str, Any] | None:
        """The order to start, if it was given; an agent may have died before it passed it on.

        It is empty where the file does not say it: the controller does then, when it orders the start again.
        """
        try:
            with open(os.path.join(self.folder, HAND_OVER), encoding="utf-8") as file:
                found = json.load(file)
        except FileNotFoundError:
            return None
        except (OSError, ValueError):  # The agent was killed before it was written, or the disk was full.
            return {}
        return found if isinstance(found, dict) else {}

    def close(self) -> bool:
        """See to it that nothing will ever be started from this folder; False if a sidecar lives there after all."""
        try:
            lock = os.open(os.path.join(self.folder, run_folder.LOCK), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
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

    # -- what its sidecar is told -------------------------------------------------------------------------------

    def deliver(self) -> bool:
        """Give the sidecar its orders; False if it lives and has not taken all of them."""
        try:
            while self.orders and self.sidecar is not None and run_folder.send(self.folder, self.orders[0]):
                del self.orders[0]
        except OSError as error:
            log_run(logging.WARNING, self.key, "run folder '%s': %s", self.folder, error)
        return not self.orders or self.sidecar is None

    # -- what is heard ------------------------------------------------------------------------------------------

    def unacknowledged(self, most: int) -> RunReports | None:
        """The next reports that the controller has not heard; None if there are none now."""
        reports, n, offset = [], self.cursor.n, self.cursor.offset
        for fact, end in islice(facts(self.events, offset), most):
            n, offset = fact["n"], end
            fields = {name: value for name, value in fact.items() if name not in ("n", "at", "event")}
            reports.append(Report(self.key, n, fact["at"], fact["event"], fields))
        with_lost = self.cursor.lost_s > 0 and not self.cursor.lost_acked and len(reports) < most
        if with_lost:
            reports.append(Report(self.key, 0, self.cursor.lost_s, "lost", {"reason": self._stderr()}))
        return RunReports(self, self._telling, n, offset, with_lost, tuple(reports)) if reports else None

    def acknowledged(self, part: RunReports) -> None:
        """The controller has these; unless it asked meanwhile for all of them again."""
        cursor = self.cursor
        if self.is_forgotten or part.telling != self._telling:
            return
        cursor.n, cursor.offset = part.n, part.offset
        cursor.lost_acked = cursor.lost_acked or part.with_lost
        if not self.see_whether_over():
            self.save_cursor()

    def see_whether_over(self) -> bool:
        """Whether all was heard, and no more will come."""
        if self.ended and self.unacknowledged(1) is None:
            self.cursor.over = True
            self.save_cursor()
        return self.cursor.over

    def say_again(self) -> None:
        """Everything counts as unacknowledged."""
        self._telling += 1
        self.cursor = AckCursor(lost_s=self.cursor.lost_s)
        self.save_cursor()

    def save_cursor(self) -> None:
        """Write down how far the controller is. Without that, a later agent says some things twice."""
        with suppress(OSError):
            write_cursor(self.folder, self.cursor)

    def _stderr(self) -> str:
        try:
            with open(os.path.join(self.folder, run_folder.STDERR), encoding="utf-8", errors="replace") as file:
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


def cgroup_of(spec: dict[str, Any]) -> Cgroup | None:
    """The cgroup that a sidecar's spec names."""
    folders = spec.get("cgroup")
    return Cgroup(folders) if isinstance(folders, dict) and PROCESSES in folders else None


def learnt(progress: dict[str, Any], job_folder: str, number: int) -> dict[str, Any]:
    """How to read the progress of this attempt: as was asked, and with what the attempts before it have shown."""
    if "first_epoch" in progress:
        return progress
    for earlier in reversed([n for n in numbers(job_folder) if n < number]):
        first = _shown(os.path.join(job_folder, str(earlier)))
        if first is not None:
            return {**progress, "first_epoch": first}
    return progress


def _shown(folder: str) -> int | None:
    for name in (run_folder.SPEC, CLOSED):
        try:
            with open(os.path.join(folder, name), encoding="utf-8") as file:
                known = json.load(file)["progress"]["first_epoch"]
        except (OSError, ValueError, TypeError, KeyError):
            continue
        return known if known in (0, 1) else None
    for fact, _ in facts(os.path.join(folder, run_folder.EVENTS), 0):
        if (
            fact["event"] == "progress" and "epoch" in fact
        ):  # The first one suffices: a job that counts from 0 begins with it.
            return 0 if fact.get("first_epoch") == 0 else None
    return None
