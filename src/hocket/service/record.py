"""What is known of one job, whether it is over or not."""

from __future__ import annotations

from typing import Any

from msgspec import Struct
from msgspec.structs import asdict

from hocket.control.held_time import HeldTime
from hocket.model.job import Job
from hocket.model.view import Observation
from hocket.service.thinned_curve import CurvePoint, ThinnedCurve

_LINES = 100  # about one job
GOES_ON = "goes on"  # the line of a job that a decision was about and that keeps its place
_ATTEMPTS = 100  # of one job
_WARNINGS = 50


class Line(Struct, frozen=True, gc=False):
    """Something that happened to a job."""

    at_s: float
    what: str
    reason: str = ""


class AttemptRecord(Struct, gc=False):
    """One try to run a job, from a start to whatever came next."""

    number: int  # from 1, without gaps: what users see
    run: int  # its number for agents, which name logs by it; numbers of runs have gaps
    nodes: list[str]
    size: int
    started_s: float | None = None  # None: it failed before it ran
    ended_s: float | None = None
    how: str = ""  # how it ended
    code: int | None = None  # exit code of a process that failed, as a shell has it; None if not known
    gpus: list[str] = []  # as `node:index`


class Record(Struct, eq=False):
    """One job."""

    number: int  # in the order of submission, from 1
    job: Job
    submitted_s: float
    started_s: float | None = None
    ended_s: float | None = None
    verdict: str = ""
    reason: str = ""
    attempts: int = 0
    epoch: int = 0
    metrics: dict[str, float] = {}
    ran_s: float = 0.0
    runs_since_s: float | None = None
    nodes: list[str] = []  # where the plan last had it
    size: int = 0  # that the plan last gave it
    lines: list[Line] = []  # the last ones
    tries: list[AttemptRecord] = []  # the last attempts
    warnings: list[str] = []
    saved_s: float | None = None  # when its state was last seen to be saved
    lost_s: float = 0.0  # work that was not saved when a run ended, in all
    lost_epochs: int = 0
    unseen: str = ""  # the warning that its criterion's metric was not seen, until it is
    step: int = 0  # steps done, as the job counts them; 0 if it named none
    lost_steps: int = 0  # of a job without epochs
    run: int = 0  # number of the last run that began or failed
    held: HeldTime | None = None  # None: it never was
    observations: tuple[Observation, ...] = ()  # its last reports, once it has ended; before that they are in its view
    gpus: list[str] = []  # that the plan last gave it, as `node:index`
    curve: ThinnedCurve | None = None  # its reports over its whole run time; None: it made none

    def ran_at(self, now_s: float) -> float:
        """Seconds it has run."""
        return self.ran_s + (now_s - self.runs_since_s if self.runs_since_s is not None else 0.0)

    def waited_at(self, now_s: float) -> float:
        """Seconds it neither ran nor was held."""
        until_s = self.ended_s if self.ended_s is not None else now_s
        held_s = self.held.at(until_s) if self.held is not None else 0.0
        return max(0.0, until_s - self.submitted_s - self.ran_at(until_s) - held_s)

    def attempt_of(self, run: int) -> int:
        """The number that users know a run by; 0 if it is not known."""
        return next((t.number for t in self.tries if t.run == run), 0)

    def run_of(self, attempt: int) -> int:
        """The run of an attempt, of the last one for 0; 0 if there is none."""
        if not attempt:
            return self.tries[-1].run if self.tries else 0
        return next((t.run for t in self.tries if t.number == attempt), 0)

    # -- what happens to it-------------------------------------------------------------------------------------

    def note(self, at_s: float, what: str, reason: str = "") -> None:
        """Add a line about what happened. Of several "goes on" in a row only the last is kept."""
        if what == GOES_ON and self.lines and self.lines[-1].what == GOES_ON:
            self.lines.pop()
        self.lines.append(Line(at_s, what, reason))
        del self.lines[:-_LINES]

    def warn(self, about: str) -> None:
        """Something that its user should look at."""
        if about not in self.warnings:
            self.warnings.append(about)
            del self.warnings[:-_WARNINGS]

    def reported(self, at_s: float, epoch: int, step: int, metrics: dict[str, float]) -> None:
        """It reported its progress."""
        if self.curve is None:
            self.curve = ThinnedCurve()
        self.curve.add(CurvePoint(at_s, epoch, step, metrics))

    def started(self, at_s: float, attempt: int) -> None:
        """It runs from now on, in this attempt; one that continues in the same process has number 0.

        A simulation has no numbers: there, other GPUs are another attempt.
        """
        last = self.tries[-1] if self.tries and self.tries[-1].ended_s is None else None
        if last is not None and (attempt == last.run or (not attempt and self.gpus == last.gpus)):
            return
        self.stopped(at_s, "left for other resources")
        self.runs_since_s = at_s
        self.started_s = at_s if self.started_s is None else self.started_s
        self.run = attempt or self.run + 1
        self._try(at_s)
        self.hold_changed(at_s)

    def suspended(self, at_s: float) -> None:
        """Its process was suspended: it does not run, but its attempt is not over."""
        if self.runs_since_s is not None:
            self.ran_s += at_s - self.runs_since_s
            self.runs_since_s = None
        self.hold_changed(at_s)

    @property
    def is_suspended(self) -> bool:
        """Whether its last attempt does not run and is not over."""
        return self.runs_since_s is None and bool(self.tries) and self.tries[-1].ended_s is None

    def continued(self, at_s: float) -> None:
        """Its suspended process runs again."""
        self.runs_since_s = at_s
        self.hold_changed(at_s)

    def stopped(self, at_s: float, how: str) -> None:
        """It has stopped running, if it ran, and its attempt is over."""
        if self.runs_since_s is not None:
            self.ran_s += at_s - self.runs_since_s
            self.runs_since_s = None
        if self.tries and self.tries[-1].ended_s is None:
            self.tries[-1].ended_s, self.tries[-1].how = at_s, how
        self.hold_changed(at_s)

    def failed(self, at_s: float, how: str, code: int | None = None) -> None:
        """Its attempt failed, perhaps before it ran."""
        self.run += 1  # A failure takes a number of its own (executors/agents/run_numbers.py).
        if not self.tries or self.tries[-1].ended_s is not None:
            self._try(None)
        self.tries[-1].code = code
        self.stopped(at_s, how)

    def hold_changed(self, at_s: float) -> None:
        """It may be held from now on, or no longer."""
        if self.held is not None:
            self.held.update(at_s, runs=self.runs_since_s is not None)

    def _try(self, started_s: float | None) -> None:
        self.attempts += 1
        self.tries.append(AttemptRecord(self.attempts, self.run, self.nodes, self.size, started_s, gpus=self.gpus))
        del self.tries[:-_ATTEMPTS]


def lines_of(record: Record) -> list[dict[str, Any]]:
    """What happened to a job, oldest first, as plain data."""
    return [asdict(line) for line in list(record.lines)]
