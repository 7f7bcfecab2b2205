"""The processes of a job: how they are started and signalled, what they print, how they ended and which end counts."""

from __future__ import annotations

import ctypes
import errno
import os
import signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import NoReturn

    from hocket.agent.cgroup import Cgroup


class Workers:
    """One process a worker, each the leader of its own group and session."""

    def __init__(self, pids: list[int]) -> None:
        self.pids = pids  # by rank on this machine
        self._ended: dict[int, int] = {}  # process id → exit status, in the order in which they ended

    def ended(self, pid: int, status: int) -> bool:
        """A child has ended: whether it was a worker."""
        if pid not in self.pids:
            return False
        self._ended[pid] = os.waitstatus_to_exitcode(status)
        return True

    @property
    def alive(self) -> list[int]:
        """Those that were not waited for, so that their numbers are still theirs."""
        return [pid for pid in self.pids if pid not in self._ended]

    @property
    def failed(self) -> bool:
        """Whether one of them ended badly."""
        return any(self._ended.values())

    @property
    def outcome(self) -> tuple[int, int]:
        """Rank and exit code (or minus the signal) of the first that failed, or else of the first."""
        for pid, code in self._ended.items():
            if code:
                return self.pids.index(pid), code
        return 0, self._ended[self.pids[0]]

    def signal(self, number: int, with_group: bool = True) -> None:
        """Send a signal to each worker that lives, and to what stands in its group."""
        for pid in self.alive:
            try:
                (os.killpg if with_group else os.kill)(pid, number)
            except ProcessLookupError:  # It ends just now.
                pass
            except PermissionError:  # It runs as another user: what can be done is done.
                pass

    def has_company(self) -> bool:
        """Whether something in the group of a worker outlives it: a shell has ended, and what it ran has not."""
        for pid in self.pids:
            try:
                os.killpg(pid, 0)
                return True
            except ProcessLookupError:
                continue
            except PermissionError:
                return True
        return False


def told(code: int) -> dict[str, int | str | None]:
    """An exit code as two facts: the code, or the name of the signal."""
    if code >= 0:
        return {"code": code, "signal": None}
    try:
        return {"code": None, "signal": signal.Signals(-code).name}
    except ValueError:
        return {"code": None, "signal": f"SIG{-code}"}


def shown(code: int) -> str:
    """An exit code in words."""
    facts = told(code)
    return f"exit code {code}" if facts["signal"] is None else str(facts["signal"])


_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_prctl = ctypes.CDLL(None).prctl
_PASSING = (errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.ENOSPC, errno.EDQUOT)
_SIGNALS = tuple(signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP})


class CannotStart(Exception):
    """A process could not be started; the message names the command or the folder, and why."""

    def __init__(self, what: str, number: int, passing: bool = False) -> None:
        super().__init__(f"{what}: {os.strerror(number)}")
        self.passing = passing or may_pass(number)


def may_pass(number: int) -> bool:
    """Whether that error is about the machine at this moment: too few processes, too little memory or space."""
    return number in _PASSING


def adopt_orphans() -> None:
    """From now on, a process that descends from us and loses its parent becomes our child."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def start_process(
    argv: list[str], cwd: str, env: dict[str, str], cgroup: Cgroup | None = None, inherited: tuple[int, ...] = ()
) -> tuple[int, int]:
    """Start a program that reads nothing; its process id and the pipe it prints into, once it runs. Or CannotStart.

    It is in the cgroup before it runs, so that all it does counts there and nothing that it starts is outside.
    """
    sidecar = os.getpid()
    try:
        told, tell = os.pipe()
        printed, output = os.pipe()
        pid = os.fork()
    except OSError as error:
        raise CannotStart(f"command '{argv[0]}' cannot be started", error.errno or 0) from error
    if pid == 0:
        _become(argv, cwd, env, output, cgroup, inherited, tell, sidecar)
    os.close(tell)
    os.close(output)
    trouble = os.read(told, 64)  # Nothing, once the program runs: the other end is closed by exec.
    os.close(told)
    if not trouble:
        return pid, printed
    os.close(printed)
    os.waitpid(pid, 0)
    step, number = trouble.split()
    if step == b"cgroup":
        raise CannotStart("its cgroup cannot be entered", int(number), passing=True)
    what = f"folder '{cwd}' cannot be entered" if step == b"chdir" else f"command '{argv[0]}' cannot be started"
    raise CannotStart(what, int(number))


def _become(
    argv: list[str],
    cwd: str,
    env: dict[str, str],
    output: int,
    cgroup: Cgroup | None,
    inherited: tuple[int, ...],
    tell: int,
    sidecar: int,
) -> NoReturn:
    """In the new process: let go of all that is the sidecar's, and become the program."""
    step = "cgroup"
    try:
        signal.set_wakeup_fd(-1)
        if cgroup is not None:
            cgroup.enter()
        step = "exec"
        for number in _SIGNALS:  # A program inherits what is ignored: by Python, by us, by the shell that started us.
            if signal.getsignal(number) != signal.SIG_DFL:
                signal.signal(number, signal.SIG_DFL)
        os.setsid()
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != sidecar:  # It died before it could have been noticed.
            os._exit(1)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(output, 1)
        os.dup2(output, 2)
        for fd in inherited:
            os.set_inheritable(fd, True)
        step = "chdir"
        os.chdir(cwd)
        step = "exec"
        os.execvpe(argv[0], argv, env)
    except OSError as error:
        os.write(tell, f"{step} {error.errno}".encode())
    except BaseException:
        os.write(tell, b"exec 22")
    finally:
        os._exit(127)


_CHUNK = 1 << 16  # what a pipe holds
_AT_ONCE = 16 * _CHUNK  # before anything else is looked at
_MOST_DRAINED = 64 << 20  # after the end, should a process that cannot be killed go on printing
_LONGEST_LINE = 1 << 16  # that is waited for


class Output:
    """The reading ends of the workers' pipes. One that is closed is no worker's end."""

    def __init__(self, pipes: list[int], take: Callable[[bytes], None]) -> None:
        for fd in pipes:
            os.set_blocking(fd, False)
        self._begun = dict.fromkeys(pipes, b"")  # lines that were not ended yet
        self._by_line = len(pipes) > 1
        self._take = take

    def sources(self) -> dict[int, Callable[[], None]]:
        """What to do when one of these can be read."""
        return {fd: lambda fd=fd: self._read(fd, _AT_ONCE) for fd in self._begun}  # type: ignore[misc]

    def drain(self) -> None:
        """Take what is left."""
        for fd in list(self._begun):
            self._read(fd, _MOST_DRAINED)
            if fd in self._begun:
                self._close(fd)

    def _read(self, fd: int, most: int) -> None:
        while most > 0:
            try:
                data = os.read(fd, _CHUNK)
            except BlockingIOError:
                return
            if not data:
                self._close(fd)
                return
            if self._by_line:
                self._take_lines(fd, self._begun[fd] + data)
            else:
                self._take(data)
            if len(data) < _CHUNK:
                return
            most -= len(data)

    def _take_lines(self, fd: int, text: bytes) -> None:
        end = max(text.rfind(b"\n"), text.rfind(b"\r")) + 1
        if not end and len(text) > _LONGEST_LINE:
            end = len(text)
        self._begun[fd] = text[end:]
        self._take(text[:end])

    def _close(self, fd: int) -> None:
        os.close(fd)
        self._take(self._begun.pop(fd))
