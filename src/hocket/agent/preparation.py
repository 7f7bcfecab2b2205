"""Workers that stand warm: interpreter up, imports done, waiting for devices. The sidecar's side of `warm.py`."""

from __future__ import annotations

import json
import os

from hocket.agent import child
from hocket.agent.process_tree import process

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from hocket.agent.command_line import PythonProgram

_WARM = os.path.join(os.path.dirname(os.path.realpath(__file__)), "warm.py")
# Variables that an interpreter or a C library reads when it is loaded: set later they do nothing.
_READ_AT_ONCE = (
    "PYTHON", "LD_", "OMP_", "GOMP_", "KMP_", "MKL_", "OPENBLAS_", "NUMEXPR_", "MALLOC_", "LANG", "LC_", "TZ",
)  # fmt: skip


class Cold(Exception):
    """What was prepared cannot be handed over, and the job has to be started cold; the message says why."""


class _Standing:
    """One worker that stands warm, or is getting there."""

    __slots__ = ("env", "facts", "hear", "is_mute", "output", "pid", "tell")

    def __init__(self, pid: int, env: dict[str, str], hear: int, tell: int, output: int) -> None:
        self.pid = pid
        self.env = env
        self.hear = hear  # what it says
        self.tell = tell  # what it is told
        self.output = output  # what it prints
        self.facts = b""  # a line of JSON, once it is ready
        self.is_mute = False


class Preparation:
    """All workers of a job, from their start to the hand-over.

    What they print meanwhile stays in their pipes: it counts only if they are handed over.
    """

    def __init__(self, python: PythonProgram, cwd: str, envs: list[dict[str, str]]) -> None:
        """Start them, or raise `child.CannotStart`."""
        self._standing: list[_Standing] = []
        try:
            for env in envs:
                # Whatever the imports do, they do it without a GPU.
                self._start(python, cwd, {**env, "CUDA_VISIBLE_DEVICES": ""})
        except BaseException:
            self.abandon()
            raise

    def _start(self, python: PythonProgram, cwd: str, env: dict[str, str]) -> None:
        its_ear, tell = os.pipe()
        hear, its_mouth = os.pipe()
        argv = [*python.interpreter, _WARM, f"{its_ear},{its_mouth}", *python.program]
        try:
            pid, output = child.start(argv, cwd, env, (its_ear, its_mouth))
        except BaseException:
            os.close(tell)
            os.close(hear)
            raise
        finally:
            os.close(its_ear)
            os.close(its_mouth)
        os.set_blocking(hear, False)
        self._standing.append(_Standing(pid, env, hear, tell, output))

    @property
    def pids(self) -> list[int]:
        """Of the workers, by rank."""
        return [s.pid for s in self._standing]

    @property
    def outputs(self) -> list[int]:
        """The pipes they print into, by rank."""
        return [s.output for s in self._standing]

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
        return {s.hear: lambda s=s: self._hear(s) for s in self._standing if not s.is_mute}  # type: ignore[misc]

    def _hear(self, worker: _Standing) -> None:
        try:
            said = os.read(worker.hear, 1 << 16)
        except BlockingIOError:
            return
        worker.facts += said
        worker.is_mute = not said  # It is ending, or will be late.
        if worker.facts.endswith(b"\n") and "cannot" in (facts := json.loads(worker.facts)):
            raise Cold(facts["cannot"])

    def check(self, limit_mib: float) -> None:
        """Raise Cold if it holds too much memory."""
        if limit_mib and (mem_mib := self.mem_mib) > limit_mib:
            raise Cold(f"prepared it holds {mem_mib:.0f} MiB of memory, and may hold {limit_mib:g}")

    def hand_over(self, envs: list[dict[str, str]]) -> None:
        """Let the workers run, each in its environment; or raise Cold before any of them does."""
        lines = [_changes(worker, env) for worker, env in zip(self._standing, envs, strict=True)]
        for worker, line in zip(self._standing, lines, strict=True):
            try:
                os.write(worker.tell, line)
            except BrokenPipeError:
                if worker is self._standing[0]:
                    raise Cold("what was prepared has ended") from None
        self._hang_up()

    def abandon(self) -> None:
        """Have no more to do with them; those that run are to be killed."""
        self._hang_up()
        for fd in self.outputs:
            os.close(fd)

    def _hang_up(self) -> None:
        for worker in self._standing:
            os.close(worker.hear)
            os.close(worker.tell)


def _changes(worker: _Standing, env: dict[str, str]) -> bytes:
    new = {name: value for name, value in env.items() if worker.env.get(name) != value}
    gone = [name for name in worker.env if name not in env]
    touched = set(json.loads(worker.facts)["touched"])
    for name in (*new, *gone):
        if name in touched:
            raise Cold(f"its imports looked at {name}, which is another now")
        if name.startswith(_READ_AT_ONCE):
            raise Cold(f"{name} counts from the start of an interpreter, and is another now")
    return json.dumps({"set": new, "unset": gone}).encode() + b"\n"
