"""Trials of Ray Tune as jobs: Tune's search and its scheduler decide which there are, Hocket where and when they run.

    from hocket.ray.tune import trainable

    tuner = tune.Tuner(trainable(train, gpus="1-4"), param_space={"lr": tune.loguniform(1e-4, 0.1)}, tune_config=...)
    tuner.fit()

`train` is the function that was given to `Tuner` before, or a command: `"python train.py --lr {lr}"`. For each trial,
Tune starts an actor, which submits the job, passes on what the job reports, and stops it when Tune ends the trial. The
actor needs no core and no GPU of Ray. It runs on the node of the program that tunes, which knows the controller.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import ray
from ray import tune
from ray.tune.result import RESULT_DUPLICATE

from hocket.cli.live.client import Client
from hocket.cli.live.job_rows import MISSED, WELL, job_path, row_in
from hocket.cli.live.waiting import retry_while_away
from hocket.job_input.read_job import carried
from hocket.ray import trial_guard
from hocket.ray.submission import SubmissionError, SubmittedJob, check_options, submit_from
from hocket.ray.trial_guard import DONE
from hocket.ray.trial_session import run_trial
from hocket.tune.command_template import check_command, environment, filled
from hocket.tune.definition import StudyError

_CALLS = ("HOCKET_HOME", "HOCKET_URL", "HOCKET_TOKEN", "HOCKET_CA")  # by which the controller is found
_SHARE = 0.02  # of its node's own resource, for each actor: at most 50 at a time
_FIRST_S, _LAST_S = 0.1, 1.0  # between looks, after a report and when nothing comes

Work = Callable[[dict[str, Any]], Any] | Sequence[str] | str


def trainable(work: Work, *, name: str = "", home: str | Path | None = None, **options: object) -> Any:
    """What `ray.tune.Tuner` takes: each trial is a job, with these `options` of `hocket submit`.

    `work` is a function of Ray Tune, which gets the trial's configuration and calls `tune.report`; or a command with
    placeholders, `{lr}`, whose progress is read as that of any job. Jobs are called `name` and the trial's id.
    `home` is the folder of the controller, as for `submit`. Raises SubmissionError.
    """
    check_options(options)
    if "command" in options:
        raise SubmissionError("command is what each trial runs: give it first")
    if home is not None:
        home = os.path.abspath(os.path.expanduser(home))
    names = [word for word in _listed(options.get("env")) if "=" not in word]
    shell = carried(os.environ, bool(options.get("export_all")))
    shell |= {name: os.environ[name] for name in names if name in os.environ}
    calls = {name: os.environ[name] for name in _CALLS if name in os.environ}
    if "HOCKET_HOME" in calls:
        calls["HOCKET_HOME"] = os.path.abspath(os.path.expanduser(calls["HOCKET_HOME"]))
    command = shlex.split(work) if isinstance(work, str) else None if callable(work) else list(work)
    called = getattr(work, "__name__", "")
    prefix = name or (called if called.isidentifier() else "trial")
    folder = os.getcwd()

    class HocketTrial(TrialOfJob):
        """A trial whose work is a job."""

        def submitted(self, trial_id: str, config: dict[str, Any]) -> SubmittedJob:
            os.environ.update(calls)
            given = {**options, "name": f"{prefix}-{trial_id}"}
            if command is None:
                return submit_from(folder, shell, run_trial, (work, config, trial_id), home, given)
            try:
                check_command(command, config, reads_environment=True)
            except StudyError as error:
                raise SubmissionError(str(error)) from error
            given["env"] = _with(options.get("env"), environment(config))
            return submit_from(folder, shell, filled(command, config, 0), (), home, given)

    HocketTrial.__name__ = prefix
    return tune.with_resources(HocketTrial, lambda _config: tune.PlacementGroupFactory([_own_node()]))


class TrialOfJob(tune.Trainable):  # type: ignore[misc]
    """Submits the job of a trial, passes its reports on, and stops it with the trial."""

    def submitted(self, trial_id: str, config: dict[str, Any]) -> SubmittedJob:
        """The job of this trial."""
        raise NotImplementedError

    def setup(self, config: dict[str, Any]) -> None:
        """Submit it: whether there is room for it is the controller's to say."""
        self._reports: deque[dict[str, Any]] = deque()
        self._last = (-1.0, -1.0)  # epoch and step of the last report that was passed on
        self._job = self.submitted(self.trial_id, config)
        self._is_over, self._trouble = False, ""
        guard = [sys.executable, "-P", trial_guard.__file__, self._job.id]
        guard += [str(self._job.home)] if self._job.home is not None else []
        self._guard = subprocess.Popen(guard, stdin=subprocess.PIPE, start_new_session=True)

    def step(self) -> dict[str, Any]:
        """The next report of the job; nothing new, and `done`, when it has ended."""
        pause_s = _FIRST_S
        with self._job.client() as client:
            while not self._reports:
                if self._trouble:
                    raise RuntimeError(self._trouble)
                found = retry_while_away(client, partial(_shown, client, self._job.id))
                row = row_in(found)
                self._last, new = new_reports(found.get("observations") or (), self._last)
                self._reports.extend(new)
                if row.is_over:
                    self._is_over = True
                    if row.state in (*WELL, MISSED):
                        self._reports.append({RESULT_DUPLICATE: True, "done": True})
                    else:  # It is told once all reports are passed on.
                        self._trouble = f"job '{row.id}' is over ({row.state}): {row.reason}"
                elif not new:
                    time.sleep(pause_s)
                    pause_s = min(pause_s * 1.3, _LAST_S)
        return self._reports.popleft()

    def cleanup(self) -> None:
        """Tune has ended the trial: so does its job."""
        if not self._is_over:
            with suppress(SubmissionError):  # It ended just now; if it did not, the guard tries again.
                self._job.stop()
                self._is_over = True
        assert self._guard.stdin is not None
        with self._guard.stdin as to_guard, suppress(BrokenPipeError):
            to_guard.write(DONE if self._is_over else b"")
        self._guard.wait()  # This was only its first process, which leaves at once.

    def save_checkpoint(self, _folder: str) -> dict[str, Any]:
        """Which job it is; the job has its own checkpoints."""
        return {"job": self._job.id, "last": list(self._last)}

    def load_checkpoint(self, checkpoint: dict[str, Any] | None) -> None:
        """Only of the same trial, whose job runs on."""
        if checkpoint is None or checkpoint["job"] != self._job.id:
            raise RuntimeError("a trial that is a job of Hocket cannot go on from another one's state, or from a pause")
        self._last = (checkpoint["last"][0], checkpoint["last"][1])


def new_reports(
    observations: Iterable[Mapping[str, Any]], last: tuple[float, float]
) -> tuple[tuple[float, float], list[dict[str, Any]]]:
    """The reports beyond the last epoch and step that are known, and which are known now. Pure.

    A job that goes on from an earlier checkpoint says some of them again.
    """
    found = []
    for seen in observations:
        at = (float(seen["epoch"]), float(seen.get("step") or 0))
        if at > last:
            last = at
            found.append({"epoch": seen["epoch"], **{k: v for k, v in seen["metrics"].items() if v is not None}})
    return last, found


def _shown(client: Client, job: str) -> dict[str, Any]:
    found: dict[str, Any] = client.get(job_path(job)).json()
    return found


def _own_node() -> dict[str, float]:
    """A little of what only the node of this program has, so that the actor is there."""
    return {f"node:{ray.util.get_node_ip_address()}": _SHARE}


def _with(given: object, more: dict[str, str]) -> object:
    """An option `env`, with more variables."""
    return given | more if isinstance(given, dict) else [*_listed(given), *(f"{k}={v}" for k, v in more.items())]


def _listed(given: object) -> list[str]:
    return list(given) if isinstance(given, list | tuple) else [given] if isinstance(given, str) else []
