"""What a training script wrote down itself, line by line, and what must hold of that however often it was killed."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from tests.whole_lines import json_lines

Line = dict[str, Any]  # event (start, epoch, checkpoint, stop, end), pid, time, epoch, and more


class Attempt(NamedTuple):
    """The lines of one process."""

    lines: list[Line]

    @property
    def only_ended(self) -> bool:
        """Did it find everything done?"""
        return [line["event"] for line in self.lines] == ["start", "end"]


class Told(NamedTuple):
    """A job's ledger in numbers."""

    attempts: int
    stops: int  # as it was asked to
    epochs: int
    again: int  # epochs that were computed more than once, for the checkpoint was older
    ends: int


def read(path: Path) -> list[Line]:
    """The lines of a ledger, as far as they are written; of a job that never ran there is none."""
    return json_lines(path)


def attempts(lines: list[Line]) -> list[Attempt]:
    """The lines by process, in the order of their starts."""
    found: list[Attempt] = []
    present: dict[int, Attempt] = {}
    for line in lines:
        if line["event"] == "start":
            present[line["pid"]] = Attempt([])
            found.append(present[line["pid"]])
        present[line["pid"]].lines.append(line)
    return found


def told(lines: list[Line]) -> Told:
    """In numbers."""
    epochs = [line["epoch"] for line in lines if line["event"] == "epoch"]
    count = [line["event"] for line in lines].count
    return Told(count("start"), count("stop"), len(set(epochs)), len(epochs) - len(set(epochs)), count("end"))


def wrongs(lines: list[Line], epochs: int, interval: int) -> Iterator[str]:
    """What should not be in the ledger of a job of so many epochs, which saves one in every `interval`."""
    yield from _ends(lines)
    yield from _twice_at_once(lines)
    yield from _lost_epochs(lines, epochs, interval)
    yield from _other_results(lines)


def _ends(lines: list[Line]) -> Iterator[str]:
    """It ended once. A script that is killed after it said so can but say so again, and do nothing else."""
    ended = False
    for attempt in attempts(lines):
        if ended and not attempt.only_ended:
            yield f"process {attempt.lines[0]['pid']} went on with it after its end"
        ended = ended or attempt.lines[-1]["event"] == "end"
    if not ended:
        yield "it never ended"


def _twice_at_once(lines: list[Line]) -> Iterator[str]:
    """Once a process has begun, none that began before it says anything."""
    latest = None
    over: set[int] = set()
    for line in lines:
        if line["event"] == "start":
            over = (over | {latest} if latest is not None else over) - {line["pid"]}
            latest = line["pid"]
        elif line["pid"] in over:
            yield f"process {line['pid']} still lived ({line['event']} {line['epoch']}) when {latest} had begun"


def _lost_epochs(lines: list[Line], epochs: int, interval: int) -> Iterator[str]:
    """A start continues from the last checkpoint, not far behind the last epoch, and leaves none out."""
    highest, saved, here = 0, (0, 0), 0
    for line in lines:
        epoch, event = line["epoch"], line["event"]
        if event == "start":
            if (epoch, line["batch"]) < saved:
                yield f"process {line['pid']} began at epoch {epoch}, batch {line['batch']}; {saved} had been saved"
            if not highest - interval <= epoch <= highest:
                yield f"process {line['pid']} began at epoch {epoch}; {highest} had been done"
            here = epoch
        elif event == "epoch":
            if epoch != here + 1:
                yield f"process {line['pid']} did epoch {epoch} after {here}"
            here, highest = epoch, max(highest, epoch)
        elif event == "checkpoint":
            saved = max(saved, (epoch, line["batch"]))
        elif event == "end" and epoch != epochs:
            yield f"process {line['pid']} ended after epoch {epoch} of {epochs}"


def _other_results(lines: list[Line]) -> Iterator[str]:
    """An epoch that is computed again comes to the same, to the last digit."""
    results: dict[int, float] = {}
    for line in lines:
        if line["event"] == "epoch" and results.setdefault(line["epoch"], line["acc"]) != line["acc"]:
            yield f"epoch {line['epoch']} came to {results[line['epoch']]}, and when done again to {line['acc']}"
