"""`torchrun -m hocket.ray.train SCRIPT …`: a script of Ray Train, unchanged, as an elastic job of Hocket.

    hocket submit --gpus 1-4 -- torchrun -m hocket.ray.train train.py

The script creates a `TorchTrainer` and calls `fit`. Ray Train would start workers on Ray; here the processes that
Hocket has started are its workers, as in Ray Train's own local mode under torchrun. What the script reports with a
checkpoint is kept in `$HOCKET_CHECKPOINT_DIR`; after a pause, or with another number of processes,
`ray.train.get_checkpoint` finds it. Ray itself is not started: `ray.init` does nothing.
"""

from __future__ import annotations

import json
import os
import runpy
import shutil
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from hocket.agent.progress.report import report as report_progress

_NEWEST = "newest.json"  # in the folder: the number of the report that the newest checkpoint came with


class ReportedCheckpoints:
    """Where checkpoints of a script are kept: the newest, which a file names.

    That file is replaced with each, so that a job that saves often is seen to save.
    """

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)

    def newest(self) -> tuple[Path | None, int]:
        """The last that is whole, and how often the script had reported when it was kept."""
        try:
            reports = int(json.loads((self._folder / _NEWEST).read_text()))
        except (OSError, ValueError):
            return None, 0
        path = self._path(reports)
        return (path, reports) if path.is_dir() else (None, 0)

    def part(self, reports: int) -> Path:
        """Where one that is not whole yet is written, by all processes of the job."""
        return self._folder / f"{self._path(reports).name}.part"

    def keep(self, reports: int) -> None:
        """Make a complete checkpoint the newest one, and remove earlier ones."""
        path = self._path(reports)
        shutil.rmtree(path, ignore_errors=True)  # of an attempt that began anew
        self.part(reports).rename(path)
        new = self._folder / f"{_NEWEST}.part"
        new.write_text(json.dumps(reports))
        new.replace(self._folder / _NEWEST)
        for other in self._folder.glob("ray-*"):
            if other != path:
                shutil.rmtree(other, ignore_errors=True)

    def _path(self, reports: int) -> Path:
        return self._folder / f"ray-{reports:08}"


def run_script(script: str, arguments: list[str]) -> None:
    """Run it as `python SCRIPT …` does, with Ray Train's trainers on the processes of this job."""
    os.environ.setdefault("RAY_TRAIN_V2_ENABLED", "1")
    sys.argv = [script, *arguments]
    sys.path[0] = os.path.dirname(os.path.abspath(script))
    use_own_processes()
    runpy.run_path(script, run_name="__main__")


def use_own_processes() -> None:
    """Have trainers train in this process and those that torchrun's variables name, and keep what is reported."""
    import ray
    import ray.train.v2._internal.execution.local_mode.torch as local_torch
    from ray.train.v2._internal.execution.train_fn_utils import LocalTrainFnUtils
    from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

    folder = ReportedCheckpoints(os.environ.get("HOCKET_CHECKPOINT_DIR", "") or os.path.abspath("ray_checkpoints"))

    class OwnProcesses(LocalTrainFnUtils):  # type: ignore[misc]
        """As Ray Train's local mode, which keeps nothing on disk."""

        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            self._reports = 0

        def get_checkpoint(self) -> Any:
            """The newest, also of an earlier attempt; a script that does not ask for it begins anew."""
            if self._reports == 0:
                path, self._reports = folder.newest()
                self._last_checkpoint = None if path is None else ray.train.Checkpoint.from_directory(path)
            return self._last_checkpoint

        def report(self, metrics: dict[str, Any], checkpoint: Any = None, *_: Any, **__: Any) -> None:
            """Called by all processes together, as Ray Train asks for."""
            self._reports += 1
            self._last_metrics = metrics
            if self._context.get_world_rank() == 0:  # Told before it is kept: if it is killed between, it tells again.
                numbers = {name: value for name, value in metrics.items() if name != "epoch" and is_number(value)}
                report_progress(epoch=self._reports, **numbers)
                text = " ".join(f"{name}={value:.6g}" for name, value in numbers.items())
                print(f"report {self._reports} of {self._context.get_world_size()} processes: {text}", flush=True)
            self._keep(checkpoint)

        def _keep(self, checkpoint: Any) -> None:
            part = folder.part(self._reports)
            if checkpoint is not None:
                with checkpoint.as_directory() as source:
                    shutil.copytree(source, part, dirs_exist_ok=True)
            self.barrier()
            if self._context.get_world_rank() == 0 and part.exists():
                folder.keep(self._reports)
            self.barrier()
            path, _reports = folder.newest()
            self._last_checkpoint = None if path is None else ray.train.Checkpoint.from_directory(path)

        def barrier(self) -> None:
            import torch.distributed

            if torch.distributed.is_initialized():
                torch.distributed.barrier()

        def broadcast_from_rank_zero(self, data: Any) -> Any:
            import torch.distributed

            if not torch.distributed.is_initialized():
                return data
            box = [data]
            torch.distributed.broadcast_object_list(box)
            return box[0]

    began = DataParallelTrainer.__init__

    def begin(self: Any, *arguments: Any, **options: Any) -> None:
        began(self, *arguments, **options)
        self.running_in_local_mode = True  # whatever number of workers the script asks for

    DataParallelTrainer.__init__ = begin
    local_torch.LocalTrainFnUtils = OwnProcesses
    ray.init = lambda *_, **__: None


def is_number(value: object) -> bool:
    """Can it be passed on as a metric?"""
    with suppress(TypeError, ValueError):
        float(value)  # type: ignore[arg-type]
        return not isinstance(value, str | bool)
    return False


def main() -> int:
    """Run the script that the command line names."""
    if len(sys.argv) < 2:
        print("usage: torchrun -m hocket.ray.train SCRIPT [ARGUMENT…]", file=sys.stderr)
        return 2
    run_script(sys.argv[1], sys.argv[2:])
    return 0


if __name__ == "__main__":
    sys.exit(main())
