"""TensorBoard: the event files in a folder and those below it, new ones too.

A tag becomes a metric of that name (`val/acc`), below what its folder says it was measured on: Keras writes
`epoch_loss` in `train` and in `validation`, which become `train/epoch_loss` and `validation/epoch_loss`. Other folders
are runs, and not part of the name.

The epoch is the value of the tag `epoch` (or `train/epoch`) at the same step, if there ever is such a tag; else the
step. The scalars of one step are events of their own, so they are taken together once another step follows, or
nothing has for one poll.
"""

from __future__ import annotations

import os

from hocket.agent.progress.epoch_counter import EpochCounter
from hocket.agent.progress.event_file import EventFile, Scalars
from hocket.agent.progress.follow import LAST_LOOKS
from hocket.agent.progress.metrics import Row
from hocket.agent.progress.reader import Reader, Report

MOST_ENTRIES = 10_000  # of folders, looked at in one poll
DEEPEST = 6  # folders below the one that is followed

_MARK = ".tfevents."  # in the name of every event file
_PARTS = frozenset({"train", "val", "valid", "validation", "test", "eval"})
_NO_METRIC = "hp_metric"  # Lightning writes it at step 0, before anything was trained.


class TensorBoard(Reader):
    """Follows all event files; what stood there at first is an earlier run's."""

    def __init__(self, epochs: EpochCounter, counter: str, folders: list[str]) -> None:
        super().__init__(epochs)
        self._count = epochs
        self._counter = counter
        self._folders = folders
        self._has_counter = False  # seen among the tags
        self._runs: dict[str, _Run] = {}
        self._look_for_files(passing=True)

    def poll(self) -> list[Report]:
        """What steps were added."""
        return self._read(all_of_it=False)

    def _rest(self) -> list[Report]:
        reports = [report for _look in range(LAST_LOOKS) for report in self._read(all_of_it=False)]
        return reports + self._read(all_of_it=True)

    def _read(self, all_of_it: bool) -> list[Report]:
        self._look_for_files(passing=False)
        # By the clock, because a step's scalars may be spread over files.
        found = [step for run in self._runs.values() for step in run.steps(all_of_it)]
        found.sort(key=lambda step: step.wall_s)
        return [report for step in found for report in self._said(step)]

    def _said(self, step: Scalars) -> list[Report]:
        row = Row(step.values, self._counter)
        if row.count is not None:
            self._has_counter = True
            reports = self._count.said(row.count, row.metrics, within=not row.evaluates)
            return reports + self._count.at_step(step.step, {})
        if not self._has_counter:
            if not row.metrics:
                return []
            return self._count.said(step.step, row.metrics) + self._count.at_step(step.step, {})
        return self._count.said(self._count.current or 0, row.metrics, within=not row.evaluates)

    def _look_for_files(self, passing: bool) -> None:
        """Take up files that were not there before, and pass over what they hold already."""
        for folder in self._folders:
            new = [(entry, part) for entry, part in _event_files(folder) if entry.path not in self._runs]
            # By name: of steps at the same time those of the first file go first, however the file system lists them.
            for entry, part in sorted(new, key=lambda found: found[0].path):
                self._runs[entry.path] = _Run(entry.path, part, entry.stat().st_size if passing else 0)


class _Run:
    """One event file, step by step."""

    def __init__(self, path: str, part: str, passed: int) -> None:
        self._file = EventFile(path, passed)
        self._part = part
        self._step: Scalars | None = None  # of which more may come

    def steps(self, all_of_it: bool) -> list[Scalars]:
        """Steps that are complete."""
        complete: list[Scalars] = []
        added = self._file.read()
        for event in added:
            named = {self._named(tag): value for tag, value in event.values.items() if tag != _NO_METRIC}
            if self._step is not None and self._step.step != event.step:
                complete.append(self._step)
                self._step = None
            known = self._step.values if self._step is not None else {}
            self._step = Scalars(event.wall_s, event.step, {**known, **named})
        if self._step is not None and (all_of_it or not added):
            complete.append(self._step)
            self._step = None
        return complete

    def _named(self, tag: str) -> str:
        if self._part.startswith(f"{tag.replace('/', '_')}_"):
            return self._part  # Torch's `add_scalars` gives each of them a folder.
        return f"{self._part}/{tag}" if self._part in _PARTS else tag


def _event_files(folder: str) -> list[tuple[os.DirEntry[str], str]]:
    """Those in a folder and below it, each with the name of the folder it was found in; none for the first."""
    found: list[tuple[os.DirEntry[str], str]] = []
    seen = 0
    waiting = [(folder, "", DEEPEST)]
    while waiting:
        path, part, deeper = waiting.pop()
        try:
            with os.scandir(path) as entries:
                for entry in entries:
                    seen += 1
                    if seen > MOST_ENTRIES:
                        return found
                    if _MARK in entry.name and entry.is_file():
                        found.append((entry, part))
                    elif deeper and entry.is_dir(follow_symlinks=False):
                        waiting.append((entry.path, entry.name, deeper - 1))
        except (OSError, ValueError):
            continue
    return found
