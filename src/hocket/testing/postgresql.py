"""A real PostgreSQL server in a temporary folder, for tests and benchmarks: no root, no port, nothing left behind."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType

_DEBIAN = Path("/usr/lib/postgresql")
_PATIENCE_S = 120.0
# The server refuses to run as root; then it runs as one of these users.
_UNPRIVILEGED = ("postgres", "nobody")


class NoPostgresql(RuntimeError):
    """There are no binaries of PostgreSQL on this machine; says where was looked."""


def binaries() -> Path:
    """The folder with `initdb` and `postgres`: from PyPI's `pgserver`, the path, or Debian's packages."""
    spec = find_spec("pgserver")
    packed = [
        folder for place in (spec and spec.submodule_search_locations) or () for folder in Path(place).glob("*/bin")
    ]
    found = shutil.which("initdb")
    debian = sorted(_DEBIAN.glob("*/bin"), key=lambda p: int(p.parent.name.split(".")[0]), reverse=True)
    for folder in (*packed, *([Path(found).resolve().parent] if found else []), *debian):
        if (folder / "initdb").exists() and (folder / "postgres").exists():
            return folder
    raise NoPostgresql(f"no PostgreSQL: neither pgserver, nor initdb on the path, nor anything in {_DEBIAN}")


class PostgresServer:
    """A server that listens on a Unix socket in its folder; `url` is its database."""

    def __init__(self) -> None:
        """Set a server up and start it. Raises NoPostgresql."""
        self._binaries = binaries()
        self._user = next(name for name in _UNPRIVILEGED if _exists(name)) if os.geteuid() == 0 else None
        # Short, for a socket's path may have 107 characters; its own, so that another user can be given it.
        self.folder = Path(tempfile.mkdtemp(prefix="hocket-pg-"))
        if self._user is not None:
            shutil.chown(self.folder, self._user)
        self.url = f"postgresql:///postgres?host={self.folder}&user=hocket"
        self._process: subprocess.Popen[bytes] | None = None
        try:
            flags = ("--username=hocket", "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync")
            if self._run("initdb", "-D", str(self.folder / "data"), *flags).wait():
                raise RuntimeError(f"initdb failed: {self._said()}")
            self.start()
        except PermissionError as error:
            self.close()
            raise NoPostgresql(
                f"PostgreSQL refuses to run as root, and '{self._user}' may not run it: {error}"
            ) from error
        except BaseException:
            self.close()
            raise

    def start(self) -> None:
        """Start it, or start it again after a kill."""
        deadline = time.monotonic() + _PATIENCE_S
        while True:
            settings = (
                "listen_addresses=", "max_connections=20", "shared_buffers=16MB", "log_min_messages=warning",
                "dynamic_shared_memory_type=mmap",  # in its folder: after a kill, it is removed with that
            )  # fmt: skip
            flags = [flag for setting in settings for flag in ("-c", setting)]
            self._process = self._run("postgres", "-D", str(self.folder / "data"), "-k", str(self.folder), *flags)
            while self._process.poll() is None:
                if self._answers():
                    return
                if time.monotonic() > deadline:
                    raise RuntimeError(f"PostgreSQL does not answer: {self._said()}")
                time.sleep(0.02)
            # After a kill, processes that it left behind hold its memory for a moment.
            if time.monotonic() > deadline or "still in use" not in self._said():
                raise RuntimeError(f"PostgreSQL did not start: {self._said()}")
            time.sleep(0.1)

    def kill(self) -> None:
        """As by `kill -9`: its processes end in the midst of what they do."""
        if self._process is not None:
            for pid in (*self._children(), self._process.pid):
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue
            self._process.wait()
            self._process = None

    def stop(self) -> None:
        """Shut it down in good order; open connections are closed."""
        if self._process is not None:
            self._process.send_signal(signal.SIGINT)
            self._process.wait(_PATIENCE_S)
            self._process = None

    def close(self) -> None:
        """Stop it and remove all that it wrote."""
        if self._process is not None:
            self._process.send_signal(signal.SIGQUIT)  # at once; unlike a kill, it gives its shared memory back
            self._process.wait(_PATIENCE_S)
            self._process = None
        elif (segment := self.segment()) is not None and shutil.which("ipcrm"):
            subprocess.run(["ipcrm", "-m", str(segment)], check=False, capture_output=True)
        shutil.rmtree(self.folder, ignore_errors=True)

    def segment(self) -> int | None:
        """The id of the shared memory by which a server knows that another one uses its folder; a kill leaves it."""
        try:
            words = (self.folder / "data" / "postmaster.pid").read_text().splitlines()[6].split()
        except (OSError, IndexError):
            return None
        return int(words[1])

    def __enter__(self) -> PostgresServer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _run(self, program: str, *arguments: str) -> subprocess.Popen[bytes]:
        with open(self.folder / "log", "ab") as log:
            return subprocess.Popen(
                [str(self._binaries / program), *arguments],
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={"PATH": os.environ.get("PATH", ""), "LC_ALL": "C", "TZ": "UTC"},
                user=self._user,
                group=None if self._user is None else pwd.getpwnam(self._user).pw_gid,
                extra_groups=None if self._user is None else [],
            )

    def _answers(self) -> bool:
        import psycopg

        try:
            psycopg.connect(self.url).close()
        except psycopg.OperationalError:
            return False
        return True

    def _children(self) -> list[int]:
        assert self._process is not None
        listed = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children")
        return [int(pid) for pid in listed.read_text().split()] if listed.exists() else []

    def _said(self) -> str:
        log = self.folder / "log"
        return " ".join(log.read_text(errors="replace").splitlines()[-3:]) if log.exists() else "nothing"


def _exists(user: str) -> bool:
    try:
        pwd.getpwnam(user)
    except KeyError:
        return False
    return True
