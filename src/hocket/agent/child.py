"""One process of a job: started in a session of its own, and never outliving the sidecar that started it."""

from __future__ import annotations

import ctypes
import errno
import os
import signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_prctl = ctypes.CDLL(None).prctl
_PASSING = (errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.ENOSPC, errno.EDQUOT)
_SIGNALS = tuple(signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP})


class CannotStart(Exception):
    """A process could not be started; the message names the command or the folder, and why."""

    def __init__(self, what: str, number: int) -> None:
        super().__init__(f"{what}: {os.strerror(number)}")
        self.passing = may_pass(number)


def may_pass(number: int) -> bool:
    """Whether that error is about the machine at this moment: too few processes, too little memory or space."""
    return number in _PASSING


def adopt_orphans() -> None:
    """From now on, whoever descends from us and loses its parent becomes our child."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def start(argv: list[str], cwd: str, env: dict[str, str], inherited: tuple[int, ...] = ()) -> tuple[int, int]:
    """Start a program that reads nothing; its process id and the pipe it prints into, once it runs. Or CannotStart."""
    sidecar = os.getpid()
    try:
        told, tell = os.pipe()
        printed, output = os.pipe()
        pid = os.fork()
    except OSError as error:
        raise CannotStart(f"command '{argv[0]}' cannot be started", error.errno or 0) from error
    if pid == 0:
        _become(argv, cwd, env, output, inherited, tell, sidecar)
    os.close(tell)
    os.close(output)
    trouble = os.read(told, 64)  # Nothing, once the program runs: the other end is closed by exec.
    os.close(told)
    if not trouble:
        return pid, printed
    os.close(printed)
    os.waitpid(pid, 0)
    step, number = trouble.split()
    what = f"folder '{cwd}' cannot be entered" if step == b"chdir" else f"command '{argv[0]}' cannot be started"
    raise CannotStart(what, int(number))


def _become(
    argv: list[str], cwd: str, env: dict[str, str], output: int, inherited: tuple[int, ...], tell: int, sidecar: int
) -> NoReturn:
    """In the new process: let go of all that is the sidecar's, and become the program."""
    step = "exec"
    try:
        signal.set_wakeup_fd(-1)
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
