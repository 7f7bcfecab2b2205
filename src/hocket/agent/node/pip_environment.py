"""A virtual environment with what a job asks pip for, beside what the agent's own Python has."""

from __future__ import annotations

import os
import signal
import site
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from hashlib import sha256
from importlib.util import find_spec

from hocket.agent.requirements import names_files

_BUILD_S = 1800.0
_LOOK_S = 0.5  # between looks whether it is still wanted
_LONGEST = 300  # characters of what pip says


class PipError(Exception):
    """What pip says; the environment cannot be built."""


def environment_key(requirements: Sequence[str], bundle: str) -> str:
    """Tells environments apart; those that name files of a working directory are of that one only."""
    of_bundle = bundle if any(map(names_files, requirements)) else ""
    return sha256("\n".join([sys.version, sys.prefix, of_bundle, *requirements]).encode()).hexdigest()[:32]


def build(folder: str, requirements: Sequence[str], cwd: str, log: str, is_wanted: Callable[[], bool]) -> None:
    """Make the environment in this folder; file names are relative to `cwd`. What is not wanted any more is given up.

    Raises PipError and OSError.
    """
    with open(log, "wb") as output:
        own_pip = ["--without-pip"] if find_spec("pip") is not None else []  # faster: the agent's own will do
        _run([sys.executable, "-m", "venv", *own_pip, "--symlinks", folder], cwd, output.fileno(), log, is_wanted)
        # After the environment's own packages, those of the agent's Python: torch need not be installed again.
        with open(os.path.join(_packages(folder), "hocket_agent.pth"), "w", encoding="utf-8") as file:
            file.write("".join(f"{path}\n" for path in _own_packages()))
        wanted = os.path.join(folder, "requirements.txt")
        with open(wanted, "w", encoding="utf-8") as file:
            file.write("".join(f"{line}\n" for line in _located(requirements, cwd)))
        pip = [os.path.join(folder, "bin", "python"), "-m", "pip", "--disable-pip-version-check", "--no-input"]
        _run([*pip, "install", "--no-color", "-r", wanted], cwd, output.fileno(), log, is_wanted)


def _located(requirements: Sequence[str], cwd: str) -> list[str]:
    """As they are in a file elsewhere: pip reads `-r` and `-c` relative to the file they stand in."""
    found = []
    for line in requirements:
        option, blank, path = line.partition(" ")
        if option in ("-r", "-c", "--requirement", "--constraint") and blank:
            line = f"{option} {os.path.join(cwd, path.strip())}"
        found.append(line)
    return found


def _run(command: list[str], cwd: str, output: int, log: str, is_wanted: Callable[[], bool]) -> None:
    # A session of its own: what it starts ends with it.
    null = subprocess.DEVNULL
    child = subprocess.Popen(command, cwd=cwd, stdin=null, stdout=output, stderr=output, start_new_session=True)
    until_s = time.monotonic() + _BUILD_S
    while child.poll() is None:
        if time.monotonic() > until_s or not is_wanted():
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()
            raise PipError(f"it took longer than {_BUILD_S:g} s, or is not wanted any more; see '{log}'")
        with suppress(subprocess.TimeoutExpired):
            child.wait(_LOOK_S)
    if child.returncode:
        raise PipError(f"{_last_line(log) or f'exit code {child.returncode}'}; see '{log}'")


def _last_line(log: str) -> str:
    """The last error, or else the last line."""
    with open(log, encoding="utf-8", errors="replace") as file:
        lines = [line.strip() for line in file if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR:")]
    return (errors or lines or [""])[-1][:_LONGEST]


def _packages(folder: str) -> str:
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    return os.path.join(folder, "lib", version, "site-packages")


def _own_packages() -> list[str]:
    found = [*site.getsitepackages(), *([site.getusersitepackages()] if site.ENABLE_USER_SITE else [])]
    return [path for path in found if os.path.isdir(path)]
