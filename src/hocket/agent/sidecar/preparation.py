"""Workers that stand warm: interpreter up, imports done, waiting for devices. The sidecar's side of `warm.py`."""

from __future__ import annotations

import json
import os
import select
import time

from hocket.agent.process_tree import process
from hocket.agent.sidecar.workers import CannotStart, start_process

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from hocket.agent.cgroup import Cgroup
    from hocket.agent.sidecar.command import PythonProgram

_WARM = os.path.join(os.path.dirname(os.path.realpath(__file__)), "warm.py")
# Variables that an interpreter or a C library reads when it is loaded: set later they do nothing.
_READ_AT_ONCE = (
    "PYTHON", "LD_", "OMP_", "GOMP_", "KMP_", "MKL_", "OPENBLAS_", "NUMEXPR_", "MALLOC_", "LANG", "LC_", "TZ",
)  # fmt: skip
_FORKING_S = 10.0  # for one process to become several
GO = b"g"  # what each of them waits for, as `warm.py` has it


class Cold(Exception):
    """What was prepared cannot be handed over, and the job has to be started cold; the message says why."""


class _Standing:
    """One process that stands warm, or is getting there."""

    __slots__ = ("env", "facts", "is_closed", "outputs", "pid", "read_fd", "write_fd")

    def __init__(self, pid: int, env: dict[str, str], read_fd: int, write_fd: int, outputs: list[int]) -> None:
        self.pid = pid
        self.env = env
        self.read_fd = read_fd  # what it sends
        self.write_fd = write_fd  # what is sent to it
        self.outputs = outputs  # what it prints, and what the workers will print that it may become
        self.facts = b""  # a line of JSON, once it is ready
        self.is_closed = False  # it sends no more


class Preparation:
    """What the workers of a job will be, from its start to the hand-over.

    One process stands for all of them, and becomes as many as there shall be. Where it cannot (its imports started
    threads, or looked at what differs between workers), each worker stands for itself, and their number is fixed.
    What they print meanwhile stays in their pipes: it counts only if they are handed over.
    """

    def __init__(
        self,
        python: PythonProgram,
        cwd: str,
        envs: list[dict[str, str]],
        most: int = 1,
        cgroup: Cgroup | None = None,
    ) -> None:
        """Start it, for so many workers as there are environments, or another number up to `most`."""
        self._python, self._cwd, self._envs, self._most = python, cwd, envs, max(most, len(envs))
        self._cgroup = cgroup
        self._standing: list[_Standing] = []
        self._is_shared = self._most > 1
        self._start(envs[0], self._most)

    def _start(self, env: dict[str, str], outputs: int = 1) -> None:
        # Whatever the imports do, they do it without a GPU.
        env = {**env, "CUDA_VISIBLE_DEVICES": ""}
        its_read_fd, write_fd = os.pipe()
        read_fd, its_write_fd = os.pipe()
        more = [os.pipe() for _ in range(outputs - 1)]
        ours = [write_fd, read_fd, *(printed for printed, _ in more)]
        theirs = [its_read_fd, its_write_fd, *(output for _, output in more)]
        argv = [*self._python.interpreter, _WARM, ",".join(map(str, theirs)), *self._python.program]
        try:
            pid, output = start_process(argv, self._cwd, env, self._cgroup, tuple(theirs))
        except BaseException:
            for fd in ours:
                os.close(fd)
            self.abandon()
            raise
        finally:
            for fd in theirs:
                os.close(fd)
        os.set_blocking(read_fd, False)
        self._standing.append(_Standing(pid, env, read_fd, write_fd, [output, *(printed for printed, _ in more)]))

    @property
    def pids(self) -> list[int]:
        """Of what stands, by rank."""
        return [s.pid for s in self._standing]

    @property
    def is_ready(self) -> bool:
        """Whether all that can be done beforehand is done."""
        return all(s.facts.endswith(b"\n") for s in self._standing)

    @property
    def line(self) -> int | None:
        """The line of the script from which on imports are left to it; None if all are done."""
        line: int | None = json.loads(self._standing[0].facts)["line"]
        return line

    @property
    def mem_mib(self) -> float:
        """What all of it holds."""
        return sum(found.mem_mib for pid in self.pids if (found := process(pid)) is not None)

    def sources(self) -> dict[int, Callable[[], None]]:
        """What to do when these can be read. It raises Cold when one of the workers cannot be prepared."""
        return {s.read_fd: lambda s=s: self._read(s) for s in self._standing if not s.is_closed}  # type: ignore[misc]

    def _read(self, worker: _Standing) -> None:
        try:
            said = os.read(worker.read_fd, 1 << 16)
        except BlockingIOError:
            return
        worker.facts += said
        worker.is_closed = not said  # It is ending, or will be late.
        if not worker.facts.endswith(b"\n"):
            return
        facts = json.loads(worker.facts)
        if "cannot" in facts:
            raise Cold(facts["cannot"])
        if self._is_shared and not self._can_be_shared(worker):
            self._is_shared = False
            try:
                for env in self._envs[1:]:
                    self._start(env)
            except CannotStart as error:
                raise Cold(str(error)) from error

    def _can_be_shared(self, first: _Standing) -> bool:
        """Whether it can become all workers: threads do not survive that, and what differs must not have been seen."""
        try:
            for env in self._envs:
                _changes(first, env)
        except Cold:
            return False
        return bool(json.loads(first.facts)["threads"] == 1)

    def check(self, limit_mib: float) -> None:
        """Raise Cold if it holds too much memory."""
        if limit_mib and (mem_mib := self.mem_mib) > limit_mib:
            raise Cold(f"prepared it holds {mem_mib:.0f} MiB of memory, and may hold {limit_mib:g}")

    def hand_over(self, envs: list[dict[str, str]]) -> tuple[list[int], list[int]]:
        """Let the workers run, each in its environment, or raise Cold before any of them does.

        Gives their process ids and the pipes they print into, by rank.
        """
        if self._is_shared and len(envs) > 1:
            if len(envs) > self._most:
                raise Cold(f"it was prepared for at most {self._most} workers, and gets {len(envs)}")
            return self._fork(self._standing[0], envs)
        if len(envs) != len(self._standing):
            raise Cold(f"it stands ready with {len(self._standing)} workers, and gets {len(envs)}")
        lines = [_line([_changes(worker, env)]) for worker, env in zip(self._standing, envs, strict=True)]
        for worker, line in zip(self._standing, lines, strict=True):
            try:
                os.write(worker.write_fd, line)
            except BrokenPipeError:
                if worker is self._standing[0]:
                    raise Cold("what was prepared has ended") from None
        self._close_pipes()
        return self.pids, [self._first_output(worker) for worker in self._standing]

    def _fork(self, worker: _Standing, envs: list[dict[str, str]]) -> tuple[list[int], list[int]]:
        line = _line([_changes(worker, env) for env in envs])
        try:
            while line:
                line = line[os.write(worker.write_fd, line) :]
            worker.facts = b""
            until = time.monotonic() + _FORKING_S
            while not worker.facts.endswith(b"\n") and time.monotonic() < until:
                select.select([worker.read_fd], [], [], until - time.monotonic())
                said = os.read(worker.read_fd, 1 << 16)
                if not said:
                    break
                worker.facts += said
            pids: list[int] = json.loads(worker.facts or b"{}").get("pids", [])
            if len(pids) < len(envs) or not all(pids):
                raise Cold("it could not be made into as many workers as there shall be")
            os.write(worker.write_fd, GO * len(pids))
        except (BrokenPipeError, BlockingIOError):
            raise Cold("what was prepared has ended") from None
        self._close_pipes()
        for fd in worker.outputs[len(pids) :]:
            os.close(fd)
        return pids, worker.outputs[: len(pids)]

    def _first_output(self, worker: _Standing) -> int:
        for fd in worker.outputs[1:]:
            os.close(fd)
        return worker.outputs[0]

    def abandon(self) -> None:
        """Have no more to do with them; those that run are to be killed."""
        self._close_pipes()
        for fd in (fd for worker in self._standing for fd in worker.outputs):
            os.close(fd)

    def _close_pipes(self) -> None:
        for worker in self._standing:
            os.close(worker.read_fd)
            os.close(worker.write_fd)


def _line(changes: list[dict[str, Any]]) -> bytes:
    return json.dumps(changes).encode() + b"\n"


def _changes(worker: _Standing, env: dict[str, str]) -> dict[str, Any]:
    new = {name: value for name, value in env.items() if worker.env.get(name) != value}
    gone = [name for name in worker.env if name not in env]
    touched = set(json.loads(worker.facts)["touched"])
    for name in (*new, *gone):
        if name in touched:
            raise Cold(f"its imports looked at {name}, which is another now")
        if name.startswith(_READ_AT_ONCE):
            raise Cold(f"{name} counts from the start of an interpreter, and is another now")
    return {"set": new, "unset": gone}
