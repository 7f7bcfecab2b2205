"""Jobs that a Python program submits: commands, and functions that are sent along."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from hocket.cli.live.bundle_upload import Bundles
from hocket.cli.live.client import Client
from hocket.cli.live.job_rows import row_in, send_job_request, shown
from hocket.cli.live.submission import sent
from hocket.cli.live.waiting import await_ends
from hocket.cli.terminal.errors import InputError
from hocket.job_input.read_job import NAMES, FieldProblem, read_job
from hocket.model.job import FUNCTION_COMMAND

FUNCTION_FILE = ".hocket_function.pkl"  # in the working directory of the job


class SubmissionError(ValueError):
    """A job that cannot be submitted, or a controller that does not answer; says why, in one line."""


class SubmittedJob:
    """A job that the controller has."""

    def __init__(self, job_id: str, home: str | Path | None = None) -> None:
        """`job_id` as it was answered; `home` is the folder of the controller, as `submit` takes it."""
        self.id = job_id  # its name, or with `~2` behind it if that was used before
        self.home = Path(home) if home is not None else None

    @property
    def state(self) -> str:
        """Where it stands: `waiting`, `running`, `paused`, `finished`, `failed`, …"""
        with self.client() as client:
            return row_in(_in_words(lambda: shown(client, self.id))).state

    def wait(self) -> str:
        """Wait for its end; its state then."""
        with self.client() as client:
            ends: dict[str, str] = _in_words(lambda: await_ends(client, [self.id]))
        return ends[self.id]

    def stop(self) -> None:
        """Ask it to end."""
        with self.client() as client:
            _in_words(lambda: send_job_request(client, "stop", [self.id]))

    def client(self) -> Client:
        """What calls its controller; to be used in a `with` statement."""
        return Client(self.home)

    def __repr__(self) -> str:
        return f"SubmittedJob({self.id!r})"


def submit(
    work: Callable[..., object] | Sequence[str] | str,
    *arguments: object,
    home: str | Path | None = None,
    **options: object,
) -> SubmittedJob:
    """Submit a job to the controller.

    `work` is a command, as words or as one line, or a function, which is called with `arguments` in a process of its
    own on the node that the job gets. `options` are those of `hocket submit` by the names of keys in files: `name`,
    `gpus="1-4"`, `working_dir="."`, `pip=["einops"]`, `env={"A": "1"}`, `until="acc >= 92%"`, …

    The controller is that of `home`, or the one that `HOCKET_URL` and `HOCKET_TOKEN`, or `HOCKET_HOME`, name.
    Raises SubmissionError.
    """
    return submit_from(os.getcwd(), os.environ, work, arguments, home, options)


def check_options(options: Mapping[str, object]) -> None:
    """Refuse a name that no option of a job has. Raises SubmissionError."""
    if unknown := [name for name in options if name not in NAMES]:
        raise SubmissionError(f"{unknown[0]} is no option of a job")


def submit_from(
    folder: str,
    shell: Mapping[str, str],
    work: Callable[..., object] | Sequence[str] | str,
    arguments: Sequence[object],
    home: str | Path | None,
    options: Mapping[str, object],
) -> SubmittedJob:
    """As `submit`, by a program in this folder that has these variables. Raises SubmissionError."""
    check_options(options)
    given = {name: value for name, value in options.items() if value is not None}
    with Bundles() as bundles:
        if callable(work):
            given |= _of_function(work, arguments, given, bundles)
        elif arguments:
            raise SubmissionError("arguments are for functions: a command has them among its words")
        else:
            given["command"] = work if isinstance(work, str) else list(work)
        try:
            job = read_job(given, folder, shell, bundles.pack)
            with Client(Path(home) if home is not None else None) as client:
                (job_id,) = sent(client, [job], bundles)
        except (FieldProblem, InputError) as error:
            raise SubmissionError(str(error)) from error
    return SubmittedJob(job_id, home)


def _of_function(
    work: Callable[..., object], arguments: Sequence[object], given: dict[str, Any], bundles: Bundles
) -> dict[str, Any]:
    """The options of a job that calls a function: it is in the bundle, beside the working directory's own files."""
    from ray import cloudpickle

    bundles.extra = {FUNCTION_FILE: cloudpickle.dumps((work, tuple(arguments)))}
    found: dict[str, Any] = {"command": [*FUNCTION_COMMAND, FUNCTION_FILE]}
    if "working_dir" not in given:
        bundles.empty = tempfile.mkdtemp(prefix="hocket-function-")
        found["working_dir"] = bundles.empty
    if "name" not in given and "traits" not in given:
        found["traits"] = {"program": getattr(work, "__name__", "function")[:200]}
    return found


def _in_words(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except InputError as error:
        raise SubmissionError(str(error)) from error
