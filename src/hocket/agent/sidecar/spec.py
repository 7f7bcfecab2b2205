"""What one attempt of a job runs, and how: `spec.json` in its run folder, checked field by field."""

from __future__ import annotations

import json
import os
import signal

from hocket.agent.cgroup import PROCESSES, ROLES

TYPE_CHECKING = False  # Without `typing`, which costs each sidecar memory.
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_REQUIRED = object()


class BadSpec(ValueError):
    """A spec that cannot be run; the message names the field, the rule and the value."""


class Spec:
    """One attempt of a job on one machine."""

    job: str
    attempt: int  # from 1
    mark: str  # in the environment of each of its processes, and of no others
    argv: list[str]
    resume_argv: list[str] | None  # for attempts after the first, once there is a checkpoint
    cwd: str
    env: dict[str, str]  # added to the sidecar's own
    secrets: list[str]  # names of variables that are handed over in stdin, and in no file
    checkpoint_dir: str | None
    checkpoint: str  # a file, folder or pattern of its own in which it saves too; empty: none
    stop_signal: str  # asks for a checkpoint and the end
    checkpoint_signal: str | None  # asks for a checkpoint, and to go on
    grace_s: float
    log_bytes: int  # in one file
    log_kept: int  # full files kept beside the present one
    progress: dict[str, Any] | None  # for the progress reader; None: nothing is read
    awaited: str  # metric of its criterion, or "epochs" or "steps" if that counts them; empty: nothing is awaited
    counts_steps: bool  # its criterion does, so that they are reported beside epochs
    unseen_limit_s: float  # until it is warned that what is awaited was not seen
    hang_limit_s: float  # without progress; 0: none
    workers: int  # processes of this job on this machine; the order to start what is prepared may say another number
    most_workers: int  # that a run of this job may have on one machine; 0: as many as this one
    warm: bool  # prepare, and wait for the order to start
    warm_limit_mib: float  # memory of all that stands prepared; 0: none
    prepare_limit_s: float
    lease: str | None  # the agent's file that says until when the job may run; None: for ever
    cgroup: dict[str, str] | None  # the folders of its cgroup, as `Cgroup` has them; None: it has none
    attempt_file: str | None  # beside the checkpoint folder, with the number of the attempt that has it; None: none

    def __init__(self, fields: dict[str, Any]) -> None:
        """Take over the fields, or raise BadSpec."""
        unknown = sorted(set(fields) - set(_RULES))
        if unknown:
            raise BadSpec(f"spec: unknown field '{unknown[0]}'")
        for name, (rule, holds, default) in _RULES.items():
            value = fields.get(name, default)
            if value is _REQUIRED:
                raise BadSpec(f"spec: field '{name}' is missing")
            if not holds(value):
                shown = sorted(map(str, value)) if name == "env" and isinstance(value, dict) else value  # No secrets.
                raise BadSpec(f"spec: field '{name}' must be {rule}, not {shown!r}")
            setattr(self, name, value)

    def resumes(self) -> bool:
        """Whether there is something to go on from: it ran before, and its checkpoint folder is not empty."""
        if not self.ran_before:
            return False
        if self.checkpoint_dir is None:
            return True
        try:
            return bool(os.listdir(self.checkpoint_dir))
        except OSError:
            return False

    @property
    def ran_before(self) -> bool:
        """Whether there was an attempt before this one."""
        return self.attempt > 1

    def command(self) -> list[str]:
        """What this attempt runs if it starts now."""
        return self.resume_argv if self.resume_argv is not None and self.resumes() else self.argv

    def command_to_prepare(self) -> list[str]:
        """What it will most likely run: the attempt before it may have still to save what it goes on from."""
        return self.resume_argv if self.resume_argv is not None and self.ran_before else self.argv


def read_spec(path: str) -> Spec:
    """Read a spec, or raise BadSpec."""
    try:
        with open(path, encoding="utf-8") as file:
            fields = json.load(file)
    except (OSError, ValueError) as error:
        raise BadSpec(f"spec '{path}' cannot be read: {error}") from error
    if not isinstance(fields, dict):
        raise BadSpec(f"spec '{path}' must be an object, not {type(fields).__name__}")
    return Spec(fields)


def signal_number(name: str) -> int:
    """The number of a signal that has a name."""
    return int(signal.Signals[name])


# -- rules --------------------------------------------------------------------------------------------------


def _text(value: object) -> bool:
    return isinstance(value, str) and value != "" and "\0" not in value


def _words(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(v, str) and "\0" not in v for v in value)


def _names(value: object) -> bool:
    return isinstance(value, list) and all(_text(name) for name in value)


def is_environment(value: object) -> bool:
    """Whether it can be a process's environment."""
    return isinstance(value, dict) and all(
        _text(k) and "=" not in k and isinstance(v, str) and "\0" not in v for k, v in value.items()
    )


def _signal(value: object) -> bool:
    return isinstance(value, str) and value in signal.Signals.__members__ and value not in ("SIGKILL", "SIGSTOP")


def _folder(value: object) -> bool:
    return _text(value) and os.path.isabs(str(value))


def _count(least: int) -> Callable[[object], bool]:
    return lambda value: isinstance(value, int) and not isinstance(value, bool) and value >= least


def is_count(value: object) -> bool:
    """Whether it is a count from 1."""
    return _count(1)(value)


def is_duration(value: object) -> bool:
    """Whether it is a finite number of seconds, or of anything else that is not negative."""
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < float("inf")


def _folders(value: object) -> bool:
    return isinstance(value, dict) and PROCESSES in value and all(k in ROLES and _folder(v) for k, v in value.items())


def _or_none(holds: Callable[[object], bool]) -> Callable[[object], bool]:
    return lambda value: value is None or holds(value)


# field → the rule in words, the rule, the default
_RULES: dict[str, tuple[str, Callable[[object], bool], Any]] = {
    "job": ("a text", _text, _REQUIRED),
    "attempt": ("a count from 1", _count(1), 1),
    "mark": ("a text without '\\0'", _text, _REQUIRED),
    "argv": ("a list of texts", _words, _REQUIRED),
    "resume_argv": ("a list of texts, or null", _or_none(_words), None),
    "cwd": ("an absolute path", _folder, _REQUIRED),
    "env": ("texts by name", is_environment, {}),
    "secrets": ("a list of names", _names, []),
    "checkpoint_dir": ("an absolute path, or null", _or_none(_folder), None),
    "checkpoint": ("a path without '\\0'", lambda value: isinstance(value, str) and "\0" not in value, ""),
    "stop_signal": ("a signal that can be caught", _signal, "SIGTERM"),
    "checkpoint_signal": ("a signal that can be caught, or null", _or_none(_signal), None),
    "grace_s": ("a number of seconds", is_duration, 30.0),
    "log_bytes": ("a count from 4096", _count(4096), 16 << 20),
    "log_kept": ("a count from 1", _count(1), 4),
    "progress": ("an object, or null", _or_none(lambda value: isinstance(value, dict)), None),
    "awaited": ("a text", lambda value: isinstance(value, str), ""),
    "counts_steps": ("true or false", lambda value: isinstance(value, bool), False),
    "unseen_limit_s": ("a number of seconds", is_duration, 60.0),
    "hang_limit_s": ("a number of seconds", is_duration, 0.0),
    "workers": ("a count from 1", _count(1), 1),
    "most_workers": ("a count", _count(0), 0),
    "warm": ("true or false", lambda value: isinstance(value, bool), False),
    "warm_limit_mib": ("a number of MiB", is_duration, 0.0),
    "prepare_limit_s": ("a number of seconds", is_duration, 120.0),
    "lease": ("an absolute path, or null", _or_none(_folder), None),
    "cgroup": ("folders by what they are used for, or null", _or_none(_folders), None),
    "attempt_file": ("an absolute path, or null", _or_none(_folder), None),
}
