"""A function of Ray Tune in the process of a job: what it reports reaches the controller, and from there Ray Tune.

`ray.tune.report` and `ray.tune.get_checkpoint` ask Ray Train's session, which is this one here. What is reported with a
checkpoint is kept in `$HOCKET_CHECKPOINT_DIR`; after a pause the function is called again, and finds it.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from inspect import isgenerator
from typing import Any

from hocket.agent.progress.report import report as report_progress
from hocket.ray.train import ReportedCheckpoints, is_number


class TrialSession:
    """Takes the place of Ray Train's own session, which exists only in the process that tunes."""

    world_rank = None  # as in a trial that is no distributed training

    def __init__(self, trial_id: str) -> None:
        self.trial_id = self.trial_name = trial_id
        self._folder = ReportedCheckpoints(os.environ["HOCKET_CHECKPOINT_DIR"])
        path, self._reports = self._folder.newest()
        self.loaded_checkpoint = None if path is None else _checkpoint(path)

    def report(self, metrics: dict[str, Any], checkpoint: Any = None, **_: Any) -> None:
        """Numbers are passed on; each report is an epoch. It is told before it is kept."""
        self._reports += 1
        numbers = {name: float(value) for name, value in metrics.items() if name != "epoch" and is_number(value)}
        report_progress(epoch=self._reports, **numbers)
        text = " ".join(f"{name}={value:.6g}" for name, value in numbers.items())
        print(f"report {self._reports}: {text}", flush=True)
        if checkpoint is not None:
            with checkpoint.as_directory() as source:
                shutil.copytree(source, self._folder.part(self._reports), dirs_exist_ok=True)
            self._folder.keep(self._reports)


def run_trial(function: Callable[[dict[str, Any]], Any], config: dict[str, Any], trial_id: str) -> None:
    """Call it as Ray Tune does: what it returns or yields is a report, too."""
    import ray.train._internal.session as of_ray

    of_ray._session = session = TrialSession(trial_id)
    result = function(config)
    for metrics in result if isgenerator(result) else [result]:
        if isinstance(metrics, dict):
            session.report(metrics)


def _checkpoint(path: Any) -> Any:
    from ray.tune import Checkpoint

    return Checkpoint.from_directory(path)
