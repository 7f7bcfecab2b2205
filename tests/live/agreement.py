"""Do the simulated and the live executor agree? A live journal, simulated again with the figures measured in it.

Both journals are folded again to see what every job held and which actions were begun when. Compared are the sequences
of (job, what, size), job by job and over all jobs, and the times.
"""

from collections import defaultdict
from collections.abc import Iterable
from itertools import combinations
from statistics import median
from typing import NamedTuple

from hocket.control.ports import Cycle, Header
from hocket.executors.simulated import BeliefMode, simulate
from hocket.model.curve import Curve, Point
from hocket.model.event import (
    EpochEnded,
    JobEnded,
    JobFailed,
    JobSubmitted,
    NodeJoined,
    NodeLost,
    WorkLost,
)
from hocket.model.resources import Node
from hocket.model.view import Costs
from hocket.policies.registry import find
from hocket.reports.switch_times import DONE, SwitchTimes
from hocket.workloads.truth import Fault, Submission, Truth, Workload

TIE_S = 0.5  # what is not further apart than this, live and simulated, may come in either order
_DONE = {**DONE, JobEnded: "end"}


class Work(NamedTuple):
    """What a job has to do, as its script was told."""

    epochs: int
    saves: bool = False  # after every epoch, by itself
    breaks_at: float | None = None  # epochs


class Entry(NamedTuple):
    """One thing that happened to a job."""

    at_s: float  # since the first submission
    job: str
    what: str  # start, pause, resize, move, end, crash, lost
    size: int  # from now on; of what is over, until now

    def __str__(self) -> str:
        return f"{self.job} {self.what} at size {self.size}"


class Story(NamedTuple):
    """What a journal tells."""

    entries: list[Entry]
    submitted: list[JobSubmitted]  # at seconds since the first one
    took_s: dict[str, list[float]]  # start, pause, resize, move → from the action to its event
    epoch_s: dict[int, list[float]]  # size → seconds an epoch, of each run with several
    beside_s: list[float]  # what runs from the first epoch to the last took beyond their epochs
    nodes: list[Node]
    faults: list[Fault]


class _Run:
    """From a start or a resize to whatever came next."""

    def __init__(self, since_s: float, size: int) -> None:
        self.since_s, self.size = since_s, size
        self.epochs: list[EpochEnded] = []
        self.ended_s: float | None = None  # if the job finished

    def epoch_s(self) -> float | None:
        """Of its epochs, if there are enough. The last one of a job is told by its end: others wait for more output."""
        whole = self.epochs[:-1] if self.ended_s is not None else self.epochs
        if len(whole) < 2:
            return None
        return (whole[-1].at_s - whole[0].at_s) / (whole[-1].epoch - whole[0].epoch)


def told(header: Header, cycles: Iterable[Cycle]) -> Story:
    """Fold a journal again, as it was decided, and look on."""
    switches = SwitchTimes(header)
    listener = _Listener(list(header.nodes))
    for cycle in cycles:
        held = _sizes(switches)
        switches.add(cycle)
        listener.hear(cycle, held, _sizes(switches))
    return listener.story(switches.took_s)


def _sizes(switches: SwitchTimes) -> dict[str, int]:
    return {job_id: view.size for job_id, view in switches.state.jobs.items() if view.size}


class _Listener:
    """The story as it is told."""

    def __init__(self, nodes: list[Node]) -> None:
        self._nodes, self._faults = nodes, []
        self._entries: list[Entry] = []
        self._submitted: list[JobSubmitted] = []
        self._runs: dict[str, _Run] = {}
        self._all_runs: list[_Run] = []
        self._down_s: dict[str, float] = {}

    def hear(self, cycle: Cycle, held: dict[str, int], holds: dict[str, int]) -> None:
        """A cycle, and what jobs held before and after it."""
        for event in cycle.events:
            at_s = event.at_s
            if (what := _DONE.get(type(event))) is not None:
                over = what in ("pause", "end")
                if what == "end" and event.job in self._runs:
                    self._runs[event.job].ended_s = at_s
                size = held.get(event.job, 0) if over else holds.get(event.job, 0)
                self._changes(at_s, event.job, what, size, runs=not over)
            elif isinstance(event, JobFailed):
                self._changes(at_s, event.job, "crash", held.get(event.job, 0), runs=False)
            elif isinstance(event, EpochEnded) and event.job in self._runs:
                self._runs[event.job].epochs.append(event)
            elif isinstance(event, JobSubmitted):
                self._submitted.append(event)
            elif isinstance(event, NodeLost):
                self._down_s[event.node] = at_s
                for job_id in sorted(held.keys() - holds.keys()):
                    if all(isinstance(e, WorkLost) or getattr(e, "job", None) != job_id for e in cycle.events):
                        self._changes(at_s, job_id, "lost", held[job_id], runs=False)
            elif isinstance(event, NodeJoined):
                if event.node.id in self._down_s:
                    self._faults.append(Fault(self._down_s.pop(event.node.id), event.node.id, at_s))
                else:
                    self._nodes.append(event.node)

    def _changes(self, at_s: float, job_id: str, what: str, size: int, runs: bool) -> None:
        self._entries.append(Entry(at_s, job_id, what, size))
        self._runs.pop(job_id, None)
        if runs:
            self._runs[job_id] = _Run(at_s, size)
            self._all_runs.append(self._runs[job_id])

    def story(self, took_s: dict[str, list[float]]) -> Story:
        """All of it, from the first submission on."""
        zero_s = self._submitted[0].at_s
        epoch_s: dict[int, list[float]] = defaultdict(list)
        for run in self._all_runs:
            if (found_s := run.epoch_s()) is not None:
                epoch_s[run.size].append(found_s)
        beside_s = [
            run.ended_s - run.since_s - run.epochs[-1].epoch * median(epoch_s[run.size])
            for run in self._all_runs
            if run.ended_s is not None and run.size in epoch_s and run.epochs and run.epochs[0].epoch == 1
        ]
        return Story(
            [e._replace(at_s=e.at_s - zero_s) for e in self._entries],
            [JobSubmitted(s.at_s - zero_s, s.job, s.beliefs, s.costs) for s in self._submitted],
            took_s,
            epoch_s,
            beside_s,
            self._nodes,
            [
                *(Fault(f.at_s - zero_s, f.node, f.back_s - zero_s) for f in self._faults),
                *(Fault(at_s - zero_s, node) for node, at_s in self._down_s.items()),
            ],
        )


class Figures(NamedTuple):
    """Medians of what was measured."""

    start_s: float
    stop_s: float  # of a pause; where there was none, what a resize takes beyond a start
    resize_s: float  # only to be printed: the simulator takes it for a stop and a start
    beside_s: float
    epoch_s: dict[int, float]  # by size

    @classmethod
    def of(cls, story: Story) -> "Figures":
        """Those of a live run. What it never did takes no time."""
        changes_s = story.took_s["resize"] + story.took_s["move"]
        took_s = (story.took_s["start"], story.took_s["pause"], changes_s, story.beside_s)
        start_s, stop_s, resize_s, beside_s = (max(median(found), 0.0) if found else 0.0 for found in took_s)
        if not story.took_s["pause"]:
            stop_s = max(resize_s - start_s, 0.0)
        epoch_s = {size: median(found) for size, found in sorted(story.epoch_s.items())}
        return cls(start_s, stop_s, resize_s, beside_s, epoch_s)

    def truth(self, work: Work) -> Truth:
        """How a job with that work behaves. Sizes between and beyond those measured are as the simulator has it."""
        reference = min(self.epoch_s)
        epoch_s = self.epoch_s[reference]
        run_s = work.epochs * epoch_s + self.beside_s
        return Truth(
            run_s,
            reference,
            Curve(tuple(Point(float(size), epoch_s / self.epoch_s[size]) for size in self.epoch_s)),
            epochs=work.epochs,
            costs=Costs(start_s=self.start_s, stop_s=self.stop_s),
            crashes_s=() if work.breaks_at is None else (run_s * work.breaks_at / work.epochs,),
            saves_epochs=1 if work.saves else 0,
        )


def simulated(header: Header, live: Story, figures: Figures, works: dict[str, Work]) -> Story:
    """The same submissions and faults, by the same policy, in the simulator."""
    policy = find(header.policy).bound(header.params)
    submissions = tuple(Submission(s.at_s, s.job, figures.truth(works[s.job.id]), s.beliefs) for s in live.submitted)
    workload = Workload("agreement", submissions, tuple(live.nodes), faults=tuple(live.faults))
    journal = simulate(workload, live.nodes, policy, seed=header.seed, beliefs=BeliefMode("learned")).journal
    return told(journal.header, journal)


class Agreement(NamedTuple):
    """What came of a comparison."""

    wrongs: list[str]  # where the sequences differ
    pairs: list[tuple[Entry, Entry]]  # live, simulated: the same thing of the same job
    tie_s: float = TIE_S  # what counted as a tie

    @property
    def largest_s(self) -> float:
        """Between two times of the same thing."""
        return max(self._apart_s(), default=0.0)

    @property
    def median_s(self) -> float:
        """Likewise."""
        return median(self._apart_s())

    @property
    def largest_share(self) -> float:
        """Of the whole run."""
        return self.largest_s / max(live.at_s for live, _ in self.pairs)

    def _apart_s(self) -> list[float]:
        return [abs(live.at_s - again.at_s) for live, again in self.pairs]


def compared(live: Story, again: Story, tie_s: float = TIE_S) -> Agreement:
    """The same things happen to every job, and in the same order over all jobs, ties aside."""
    wrongs, pairs = [], []
    for job_id in [s.job.id for s in live.submitted]:
        one, other = ([e for e in story.entries if e.job == job_id] for story in (live, again))
        if [e[1:] for e in one] != [e[1:] for e in other]:
            wrongs.append(f"{job_id}: live {_listed(one)}; simulated {_listed(other)}")
        pairs += zip(one, other, strict=False)
    pairs.sort()
    for (a, a_again), (b, b_again) in combinations(pairs, 2):
        gap_s, gap_again_s = b.at_s - a.at_s, b_again.at_s - a_again.at_s
        if gap_again_s < 0 and max(gap_s, -gap_again_s) > tie_s:
            wrongs.append(f"live, '{a}' comes {gap_s:.2f} s before '{b}'; simulated, {-gap_again_s:.2f} s after it")
    return Agreement(wrongs, pairs, tie_s)


def _listed(entries: list[Entry]) -> str:
    return ", ".join(f"{e.what} {e.size} at {e.at_s:.1f} s" for e in entries)


def report(name: str, header: Header, live: Story, figures: Figures, found: Agreement) -> str:
    """A page to read."""
    speeds = ", ".join(f"{epoch_s:.3f} s at size {size}" for size, epoch_s in figures.epoch_s.items())
    kinds = {what: sum(e.what == what for e in live.entries) for what in dict.fromkeys(e.what for e in live.entries)}
    lines = [
        f"{name}: {len(live.submitted)} jobs by '{header.policy}', {', '.join(f'{n} × {k}' for k, n in kinds.items())}",
        f"measured: start {figures.start_s:.3f} s, stop {figures.stop_s:.3f} s, resize {figures.resize_s:.3f} s, "
        f"{figures.beside_s:.3f} s beside the epochs; epochs of {speeds}",
        "",
        f"{'job':<12}{'what':<8}{'size':>4}{'live s':>10}{'simulated s':>13}{'difference s':>14}",
    ]
    for one, other in found.pairs:
        apart_s = other.at_s - one.at_s
        lines.append(f"{one.job:<12}{one.what:<8}{one.size:>4}{one.at_s:>10.2f}{other.at_s:>13.2f}{apart_s:>+14.2f}")
    same = "the same sequence" if not found.wrongs else f"{len(found.wrongs)} differences in sequence"
    lines += [
        "",
        f"{same} (ties of {found.tie_s:g} s in either order); band: largest {found.largest_s:.2f} s, "
        f"{found.largest_share:.1%} of the run, median {found.median_s:.2f} s",
        *found.wrongs,
    ]
    return "\n".join(lines)
