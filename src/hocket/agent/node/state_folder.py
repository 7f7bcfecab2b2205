"""An agent's folder: one for each run, and what outlives runs.

| path | holds | is removed |
| --- | --- | --- |
| `lock` | the agent's process id; locked as long as it lives | never |
| `identity` | what tells this folder from those of other agents | never |
| `containment` | what contains the jobs of the agent that was started last, in words | never |
| `starts` | how often an agent was started on it | never |
| `lease` | until when its runs may go on without an answer from the controller | never |
| `controllers` | urls of the controllers that it may have, where there are several | never |
| `phase_tokens` | the socket on which phase tokens are handed out; a file beside it | when the agent leaves |
| `runs/JOB/NUMBER/` | a run folder | when the job is forgotten, but for its logs and its answer; see below |
| `checkpoints/JOB/` | what the job saves, shared by its runs | never, unless empty: it is the user's result |
| `checkpoints/.JOB.attempt` | the number of the run that has this folder | when the job is forgotten |
| `code/`, `pip/` | working directories and packages that jobs brought (`job_code.py`) | unused for two weeks |
| `work/JOB/` | where a job without a folder of its own works | never, unless empty |

Logs of forgotten jobs are kept until there are more than 1,000 such jobs, or they take more than 1 GiB together; then
the ones forgotten first go. Of a job that goes on, the logs of its last 20 runs are kept.

A job may be called anything, so its folders have a name made of it: letters, digits, `-`, `_` and `~` as they are,
all else as `%XX`, and a long one cut and told apart by a hash. No such name is `.`, `..` or has a `/` in it.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
import urllib.parse
from collections.abc import Iterator
from contextlib import suppress

from hocket.agent import lease_file, run_folder

_LONGEST = 120
CONTAINMENT = "containment"
_FORGOTTEN = "forgotten"  # an empty file among a job's runs; its time says when
RUNS_KEPT = 20
_PATIENCE_S = 1.0  # An agent that was killed may hold the lock a moment longer than it can be seen.


class StateFolder:
    """Makes what is needed, readable by its owner only."""

    def __init__(self, path: str, most_forgotten: int = 1000, most_forgotten_bytes: int = 1 << 30) -> None:
        self.path = os.path.abspath(path)
        self._most, self._most_bytes = most_forgotten, most_forgotten_bytes
        for folder in (self.path, *(os.path.join(self.path, name) for name in ("runs", "checkpoints", "work"))):
            os.makedirs(folder, 0o700, exist_ok=True)
        self._lock = run_folder.take_lock(self.path, f"state folder '{self.path}' has an agent already", _PATIENCE_S)
        self.identity = self._find_identity()
        self.starts = self._count_start()
        self._forgotten = self._find_forgotten()  # a job's folder → the bytes it takes; oldest first

    def _find_identity(self) -> str:
        """As it was written when the folder was new; empty where it cannot be, for another one each time is worse."""
        path = os.path.join(self.path, "identity")
        with suppress(OSError), open(path, encoding="ascii", errors="replace") as file:
            if identity := file.read().strip():
                return identity
        identity = secrets.token_hex(16)
        try:
            new = os.open(f"{path}.new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with open(new, "w", encoding="ascii") as file:
                file.write(identity)
            os.replace(f"{path}.new", path)
        except OSError:
            return ""
        return identity

    def keep_containment(self, text: str) -> None:
        """Write down what contains its jobs, for `hocket doctor`."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        with suppress(OSError), open(os.open(os.path.join(self.path, CONTAINMENT), flags, 0o600), "w") as file:
            file.write(f"{text}\n")

    def _count_start(self) -> int:
        """How often an agent was started here, this time included; it survives a crash of the machine."""
        path = os.path.join(self.path, "starts")
        try:
            with open(path, encoding="ascii", errors="replace") as file:
                starts = int(file.read(20)) + 1
        except (OSError, ValueError):
            starts = 1
        with suppress(OSError):  # The disk is full: it has its bytes already, unless it is new.
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                os.pwrite(fd, b"%-19d\n" % starts, 0)
                os.fsync(fd)
            finally:
                os.close(fd)
        return starts

    @property
    def lease(self) -> str:
        """The file that says until when runs may go on."""
        return os.path.join(self.path, lease_file.NAME)

    @property
    def controllers(self) -> str:
        """The file that says where controllers are called."""
        return os.path.join(self.path, "controllers")

    @property
    def phase_tokens(self) -> str:
        """The socket on which phase tokens are handed out, once a job needs them."""
        return os.path.join(self.path, "phase_tokens")

    def job(self, job: str) -> str:
        """Where the runs of a job are."""
        return runs_folder(self.path, job)

    def run(self, job: str, number: int) -> str:
        """Where one run is."""
        return run_folder_of(self.path, job, number)

    def make_run(self, job: str, number: int) -> str:
        """An empty folder for a new run; whatever was there is gone."""
        folder = self.run(job, number)
        remove(os.path.join(self.job(job), _FORGOTTEN))
        self._forgotten.pop(self.job(job), None)
        remove(folder)
        for path in (self.job(job), folder):
            os.makedirs(path, 0o700, exist_ok=True)
        return folder

    def checkpoints(self, job: str) -> str:
        """Where a job saves; it is there."""
        path = checkpoints_folder(self.path, job)
        os.makedirs(path, 0o700, exist_ok=True)
        return path

    def attempt_file(self, job: str) -> str:
        """The file that says which attempt the checkpoints of a job belong to."""
        return os.path.join(self.path, "checkpoints", f".{safe_name(job)}.attempt")  # No such name begins with a '.'.

    def work(self, job: str) -> str:
        """Where a job works that has no other place; it is there."""
        path = os.path.join(self.path, "work", safe_name(job))
        os.makedirs(path, 0o700, exist_ok=True)
        return path

    def runs(self) -> Iterator[str]:
        """All run folders that are there."""
        for job in _listed(os.path.join(self.path, "runs")):
            yield from (os.path.join(job, str(n)) for n in numbers(job))

    def kept_run(self, job: str, number: int) -> tuple[int, str] | None:
        """The number and folder of a run of which something is kept; the job's last run for 0."""
        there = numbers(self.job(job))
        wanted = number or max(there, default=0)
        return (wanted, self.run(job, wanted)) if wanted in there else None

    def forget(self, job: str) -> None:
        """Keep the logs of a job only, and of those that are kept no more than stated."""
        folder = self.job(job)
        if os.path.isdir(folder):
            # The mark comes first: if the agent is killed here, the next one ends what was begun.
            with suppress(OSError), open(os.path.join(folder, _FORGOTTEN), "wb"):  # or the disk is full
                pass
            _keep_logs_of_all(folder)
            self._forgotten.pop(folder, None)
            self._forgotten[folder] = _size(folder)
        for name in ("checkpoints", "work"):
            with suppress(OSError):  # It is not empty, or not there.
                os.rmdir(os.path.join(self.path, name, safe_name(job)))
        remove(self.attempt_file(job))
        while len(self._forgotten) > self._most or sum(self._forgotten.values()) > self._most_bytes:
            oldest = next(iter(self._forgotten))
            del self._forgotten[oldest]
            remove(oldest)

    def _find_forgotten(self) -> dict[str, int]:
        """Those that bear the mark; what an agent before us did not come to remove is removed."""
        times: dict[str, float] = {}
        for folder in _listed(os.path.join(self.path, "runs")):
            try:
                times[folder] = os.stat(os.path.join(folder, _FORGOTTEN)).st_mtime
            except OSError:  # It is not forgotten.
                continue
            _keep_logs_of_all(folder)
        return {folder: _size(folder) for folder in sorted(times, key=times.__getitem__)}


def share_checkpoints(state: str, shared: str) -> None:
    """Keep the checkpoints of a state folder in a folder that several have. Raises OSError."""
    own, shared = os.path.join(state, "checkpoints"), os.path.abspath(os.path.expanduser(shared))
    os.makedirs(shared, 0o700, exist_ok=True)
    os.makedirs(state, 0o700, exist_ok=True)
    if os.path.realpath(own) == os.path.realpath(shared):
        return
    if os.path.islink(own):
        raise OSError(f"checkpoints of '{state}' are in '{os.readlink(own)}' already, and cannot be in '{shared}' too")
    try:
        os.rmdir(own)  # An empty one makes way.
    except FileNotFoundError:
        pass
    except OSError as error:
        raise OSError(f"'{own}' has checkpoints in it, and cannot become a link to '{shared}'") from error
    os.symlink(shared, own)


def runs_folder(state: str, job: str) -> str:
    """Where the runs of a job are, in a state folder."""
    return os.path.join(state, "runs", safe_name(job))


def run_folder_of(state: str, job: str, number: int) -> str:
    """Where one run is; its output is the file `log` there, with full files beside it."""
    return os.path.join(runs_folder(state, job), str(int(number)))


def checkpoints_folder(state: str, job: str) -> str:
    """Where a job saves, unless it has a place of its own."""
    return os.path.join(state, "checkpoints", safe_name(job))


def safe_name(job: str) -> str:
    """A file name that stands for a job and for no other."""
    name = urllib.parse.quote(job, safe="", errors="surrogatepass").replace(".", "%2E")
    if len(name) <= _LONGEST:
        return name
    digest = hashlib.sha256(job.encode(errors="surrogatepass")).hexdigest()[:32]
    return f"{name[: _LONGEST - 33]}+{digest}"  # No short name has a '+' in it.


def numbers(job_folder: str) -> list[int]:
    """The runs of a job that have a folder, in order."""
    names = [os.path.basename(path) for path in _listed(job_folder)]
    return sorted(int(name) for name in names if name.isdecimal() and name.isascii())


def remove(path: str) -> None:
    """A file or a folder is gone, as far as that can be done."""
    try:
        os.unlink(path)
    except IsADirectoryError:
        shutil.rmtree(path, ignore_errors=True)
    except OSError:
        pass


def _keep_logs_of_all(folder: str) -> None:
    for run in (os.path.join(folder, str(number)) for number in numbers(folder)):
        for path in _listed(run):
            name = os.path.basename(path)
            if name != "log" and not name.startswith("log.") and name != run_folder.ANSWER:
                remove(path)
        with suppress(OSError):  # It has printed something, or answered.
            os.rmdir(run)


def _size(folder: str) -> int:
    total = 0
    for run in _listed(folder):
        for path in _listed(run) if os.path.isdir(run) else ():
            with suppress(OSError):
                total += os.stat(path).st_size
    return total


def _listed(folder: str) -> list[str]:
    try:
        return [os.path.join(folder, name) for name in os.listdir(folder)]
    except OSError:
        return []
