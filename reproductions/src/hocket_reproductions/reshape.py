"""Reshape's evaluation: four workloads on 16 GPUs of two kinds, under three approaches.

The simulated jobs are those of `workloads/reshape.py`, where all that the paper leaves open is fixed. Under Reshape
jobs can be prepared before they have GPUs; under the other two approaches every change terminates a job.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from hocket.control.ports import Cycle
from hocket.estimators.quality import refitted
from hocket.executors.simulated import BeliefMode, simulate
from hocket.model.criterion import Goal
from hocket.model.curve import Beliefs
from hocket.model.event import JobEnded, JobResized, JobStarted, JobSubmitted
from hocket.model.partition import Partition
from hocket.policies import find as find_policy
from hocket.reports.account import account
from hocket.reports.figure_style import colour, dash, drawing, save
from hocket.reports.mean_interval import mean_interval
from hocket.reproductions import Assumption, Case, Finding, Findings, Reproduction, Request, Results
from hocket.workloads.gavel import GavelSpeeds, read_gavel
from hocket.workloads.reshape import COSTS, JOB_SETS, KINDS, OVER_S, REPORTS, SIZES, SPEED, WORKLOADS, reshape_workload
from hocket.workloads.truth import Submission

if TYPE_CHECKING:
    from matplotlib.axes import Axes

OURS, TERMINATION, DEFAULT = "reshape", "termination", "default"
POLICIES = {OURS: "reshape", TERMINATION: "optimus", DEFAULT: "k8s_default"}
PROFILE_ERROR = 0.05  # of the accuracies that the fourth workload's offline profile has, relative
PROFILED = 3  # reports in that profile

# The paper's figures: by how much Reshape is below the other two (Figure 6), and overheads (Table VIII), in percent.
MAKESPAN = {DEFAULT: (45, 34, 42, 36), TERMINATION: (17, 20, 17, 18)}
JCT = {DEFAULT: (63, 58, 61, 55), TERMINATION: (27, 37, 35, 36)}
OVERHEAD = {OURS: (8.9, 6.7, 7.6, 8.3), TERMINATION: (29.3, 21.9, 27.1, 28.6)}
PENDING = {OURS: 0, TERMINATION: 3, DEFAULT: 12}  # when workload one's last job comes (Figure 8)
ADDED = {OURS: 16, TERMINATION: 46}  # in workload one (Figure 11)
_HOUR_S = 3600.0


class ReshapeMoment(Struct, frozen=True, array_like=True):
    """How things stand from this moment on, by plan."""

    at_s: float
    pending: int  # jobs without GPUs
    running: int
    gpus: int
    submitted: int = 0  # jobs that came in this moment


class Adjustment(Struct, frozen=True, array_like=True):
    """GPUs were added to a job, or removed."""

    at_s: float
    gpus: int  # below 0: removed
    took_s: float  # without training


class ReshapeRun(Struct, frozen=True):
    """One workload under one approach."""

    workload: int
    unfinished: int
    makespan_s: float
    jcts_s: tuple[float, ...]
    ran_s: float  # of all jobs together
    moments: tuple[ReshapeMoment, ...]
    adjustments: tuple[Adjustment, ...]

    @property
    def jct_mean_s(self) -> float:
        """Mean job completion time."""
        return sum(self.jcts_s) / len(self.jcts_s)

    @property
    def overhead(self) -> float:
        """Time spent on adding and removing GPUs, of all run time."""
        return sum(a.took_s for a in self.adjustments) / self.ran_s if self.ran_s else 0.0

    @property
    def added(self) -> int:
        """How often GPUs were added to a job."""
        return sum(a.gpus > 0 for a in self.adjustments)

    @property
    def removed(self) -> int:
        """How often GPUs were removed from a job."""
        return sum(a.gpus < 0 for a in self.adjustments)

    @property
    def pending_at_last(self) -> int:
        """Jobs without GPUs once the last submission was decided on."""
        last = max(m.at_s for m in self.moments if m.submitted)
        return next(m.pending for m in reversed(self.moments) if m.at_s == last)


def cases(request: Request) -> list[Case]:
    """Every workload under every approach, seed by seed."""
    if request.profiles is not None:  # Report errors in the input before anything runs.
        profiles = read_gavel(request.profiles)
        for number in WORKLOADS:
            reshape_workload(number, profiles=profiles)
    return [
        Case(label, seed, {"workload": number, "profiles": request.profiles})
        for seed in request.seeds
        for number in WORKLOADS
        for label in POLICIES
    ]


def run_case(case: Case, began: Callable[[int], None], progressed: Callable[[int], None]) -> ReshapeRun:
    """One workload under one approach."""
    began(1)
    path, number = case.settings["profiles"], case.settings["workload"]
    profiles: GavelSpeeds | None = read_gavel(path) if path else None
    workload = reshape_workload(number, case.seed, early=case.label == OURS, profiles=profiles)
    if WORKLOADS[number].goals:
        submissions = tuple(_with_profile(s, case.seed) for s in workload.submissions)
        workload = replace(workload, submissions=submissions)
    policy = find_policy(POLICIES[case.label]).bound()
    ran = simulate(workload, workload.nodes, policy, seed=case.seed, beliefs=BeliefMode("oracle"))
    accounted = account(ran.journal.header, ran.journal)
    moments, adjustments = retold(ran.journal)
    jcts_s = [r.jct_s for r in accounted.jobs if r.jct_s is not None]
    progressed(1)
    return ReshapeRun(
        number,
        len(accounted.jobs) - len(jcts_s),
        accounted.makespan_s,
        tuple(jcts_s),
        sum(r.ran_s for r in accounted.jobs),
        moments,
        adjustments,
    )


def _with_profile(submission: Submission, seed: int) -> Submission:
    """What is believed of a job that ends at an accuracy: speeds, and a curve through its offline profile's points."""
    truth, goal = submission.truth, submission.job.criterion
    assert truth.quality is not None
    assert isinstance(goal, Goal)
    rng = Random(f"{seed}/profile/{submission.job.id}")
    known = Beliefs(None, truth.reference_size, truth.speed, truth.kinds, truth.spread)
    for epoch in range(1, PROFILED + 1):
        seen = truth.quality.at(epoch).mean * (1 + rng.gauss(0.0, PROFILE_ERROR))
        known = refitted(known, goal, epoch, seen, truth.run_s * epoch / truth.epochs)
    return replace(submission, beliefs=known)


def retold(cycles: Iterable[Cycle]) -> tuple[tuple[ReshapeMoment, ...], tuple[Adjustment, ...]]:
    """The run over time: jobs that wait and run by plan, on how many GPUs; and every resize with its cost."""
    live: dict[str, JobSubmitted] = {}
    planned: dict[str, Partition] = {}
    held: dict[str, Partition] = {}
    moments: list[ReshapeMoment] = []
    adjustments: list[Adjustment] = []
    for cycle in cycles:
        came = 0
        for event in cycle.events:
            match event:
                case JobSubmitted():
                    live[event.job.id] = event
                    came += 1
                case JobStarted(job=job):
                    held[job] = planned[job]
                case JobResized(job=job):
                    adjustments.append(_adjustment(event.at_s, live[job], held[job], planned[job]))
                    held[job] = planned[job]
                case JobEnded(job=job):
                    live.pop(job, None)
                    planned.pop(job, None)
                    held.pop(job, None)
                case _:
                    pass
        if cycle.plan is not None and not cycle.refused:
            for partition in cycle.plan.put:
                planned[partition.tenants[0].job] = partition
        gpus = sum(p.gpus for p in planned.values())
        now = ReshapeMoment(cycle.at_s, len(live) - len(planned), len(planned), gpus, came)
        if not moments or came or replace(moments[-1], at_s=now.at_s, submitted=0) != now:
            moments.append(now)
    return tuple(moments), tuple(adjustments)


def _adjustment(at_s: float, of: JobSubmitted, was: Partition, now: Partition) -> Adjustment:
    nodes = {part.node for part in was.slices}
    at_home = all(part.node in nodes for part in now.slices)
    return Adjustment(at_s, now.gpus - was.gpus, of.costs.restart_s(of.job.warm and at_home))


# -- what it showed -----------------------------------------------------------------------------------------


def compare_with_paper(_request: Request, results: Results) -> Findings:
    """The paper's figures and ours."""
    played = {(c.label, r.workload, c.seed): r for c, r in results}
    seeds = sorted({c.seed for c, _r in results})
    findings = []
    measures: tuple[tuple[str, Mapping[str, Sequence[int]], Callable[[ReshapeRun], float]], ...] = (
        (_MAKESPAN, MAKESPAN, lambda p: p.makespan_s),
        (_JCT, JCT, lambda p: p.jct_mean_s),
    )
    for title, paper, value in measures:
        for other, percent in paper.items():
            for number in WORKLOADS:
                ours = [100 * (1 - value(played[OURS, number, s]) / value(played[other, number, s])) for s in seeds]
                what = f"workload {number}, against {other}"
                findings.append(Finding(what, f"{percent[number - 1]} %", mean_interval(ours), "%", group=title))
    for label, shares in OVERHEAD.items():
        for number in WORKLOADS:
            ours = [100 * played[label, number, s].overhead for s in seeds]
            findings.append(
                Finding(
                    f"workload {number}, {label}", f"{shares[number - 1]:g} %", mean_interval(ours), "%",
                    group="Table VIII, time spent on adding and removing GPUs, of all run time",
                )
            )  # fmt: skip
    for label, pending in PENDING.items():
        waits = [float(played[label, 1, s].pending_at_last) for s in seeds]
        findings.append(
            Finding(
                label, str(pending), mean_interval(waits), group="Figure 8, jobs pending when workload one's last comes"
            )
        )
    for label, count in ADDED.items():
        runs = [played[label, 1, s] for s in seeds]
        added, removed = mean_interval([float(r.added) for r in runs]), mean_interval([float(r.removed) for r in runs])
        findings.append(Finding(f"{label}, added", str(count), added, group=_EVENTS))
        findings.append(Finding(f"{label}, removed", "0" if label == TERMINATION else "", removed, group=_EVENTS))
    return Findings(tuple(findings), tuple(_remarks(findings, results)))


_MAKESPAN = "Figure 6(a), by how much Reshape's makespan is shorter"
_JCT = "Figure 6(b), by how much Reshape's mean JCT is shorter"
_EVENTS = "Figure 11, events in workload one"


def _remarks(findings: Sequence[Finding], results: Results) -> Iterable[str]:
    for title, name in ((_MAKESPAN, "makespan"), (_JCT, "mean JCT")):
        short = [
            f"{f.what} ({f.ours.mean:.0f} instead of {f.paper})"
            for f in findings
            if f.group == title and f.ours is not None and f.ours.mean < float(f.paper.split()[0])
        ]
        if short:
            yield f"We fall short of the paper's {name} in {len(short)} of 8 figures: {'; '.join(short)}."
    lengths = {n: [r.makespan_s for c, r in results if c.label == OURS and r.workload == n] for n in WORKLOADS}
    shares = ", ".join(f"{100 * OVER_S * len(found) / sum(found):.0f} %" for found in lengths.values() if found)
    yield (
        f"Jobs come over {OVER_S:,.0f} s, which is {shares} of Reshape's makespan in the four: no approach can "
        "shorten that part. The paper's jobs seem to run longer than those that we could derive."
    )
    if left := sum(r.unfinished for _c, r in results):
        yield f"{left} jobs did not end; they are in none of these figures."
    yield (
        "Run times, speeds and costs are assumed, as the table says: what is comparable is the order of the approaches "
        "and the direction of the differences, not their size."
    )


# -- figures ------------------------------------------------------------------------------------------------


Runs = dict[tuple[str, int], list[ReshapeRun]]  # (approach, workload) → its runs, by seed


def draw_figures(_request: Request, results: Results, folder: Path) -> list[Path]:
    """Makespan, JCT, pending and running jobs, GPU use, and add and remove events. Over time: the first seed."""
    runs: Runs = {}
    for case, played in results:
        runs.setdefault((case.label, played.workload), []).append(played)
    labels = list(dict.fromkeys(label for label, _number in runs))
    files: list[Path] = []
    with drawing() as figure:
        sheet = figure((10.5, 3.8))
        left, right = sheet.subplots(1, 2)
        _bars(left, runs, labels, "Makespan", lambda p: p.makespan_s)
        _bars(right, runs, labels, "Mean job completion time", lambda p: p.jct_mean_s)
        files += save(sheet, folder, "figure-6-makespan-jct")
        first = {label: runs[label, 1][0] for label in labels}
        sheet = figure((10.5, 3.8))
        left, right = sheet.subplots(1, 2)
        _over_time(left, first, "Pending jobs, workload 1", lambda m: m.pending)
        _over_time(right, first, "Running jobs, workload 1", lambda m: m.running)
        files += save(sheet, folder, "figure-7-pending-running")
        sheet = figure((6.4, 3.8))
        _at_submissions(sheet.add_subplot(), first)
        files += save(sheet, folder, "figure-8-pending-at-submission")
        sheet = figure((10.5, 3.8))
        for axes, number in zip(sheet.subplots(1, 2), (1, 2), strict=True):
            _distribution(axes, {label: runs[label, number] for label in labels}, number)
        files += save(sheet, folder, "figure-9-jct")
        sheet = figure((7.6, 3.8))
        _over_time(sheet.add_subplot(), first, "GPUs in use, workload 1", lambda m: m.gpus)
        files += save(sheet, folder, "figure-10-gpus")
        sheet = figure((7.6, 3.8))
        _events(sheet.add_subplot(), first)
        files += save(sheet, folder, "figure-11-events")
    return files


def _bars(axes: Axes, runs: Runs, labels: Sequence[str], title: str, value: Callable[[ReshapeRun], float]) -> None:
    numbers = sorted({number for _label, number in runs})
    width = 0.8 / len(labels)
    for n, label in enumerate(labels):
        found = [mean_interval([value(p) / _HOUR_S for p in runs[label, number]]) for number in numbers]
        axes.bar(
            [i + (n - (len(labels) - 1) / 2) * width for i in range(len(numbers))],
            [s.mean if s is not None else 0.0 for s in found],
            width,
            yerr=[(s.half_width or 0.0) if s is not None else 0.0 for s in found],
            color=colour(n),
            label=label,
            ecolor="#555555",
            capsize=2,
        )
    axes.set_xticks(range(len(numbers)), [f"workload {number}" for number in numbers])
    axes.set_title(title, loc="left")
    axes.set_ylabel("hours (mean and 95 % interval)")
    axes.legend()


def _over_time(axes: Axes, first: dict[str, ReshapeRun], title: str, value: Callable[[ReshapeMoment], int]) -> None:
    for n, (label, played) in enumerate(first.items()):
        times = [m.at_s / _HOUR_S for m in played.moments]
        values = [value(m) for m in played.moments]
        axes.step(times, values, where="post", color=colour(n), linestyle=dash(n), label=label, linewidth=1.3)
    axes.set_title(title, loc="left")
    axes.set_xlabel("hours since the first submission")
    axes.set_ylim(bottom=0)
    axes.legend()


def _at_submissions(axes: Axes, first: dict[str, ReshapeRun]) -> None:
    for n, (label, played) in enumerate(first.items()):
        pending = [m.pending for m in played.moments for _ in range(m.submitted)]
        axes.plot(range(1, len(pending) + 1), pending, color=colour(n), marker=".", label=label)
    axes.set_title("Pending jobs when each job is submitted, workload 1", loc="left")
    axes.set_xlabel("job")
    axes.legend()


def _distribution(axes: Axes, runs: dict[str, list[ReshapeRun]], number: int) -> None:
    for n, (label, several) in enumerate(runs.items()):
        times = sorted(t / _HOUR_S for played in several for t in played.jcts_s)
        axes.plot(times, [(i + 1) / len(times) for i in range(len(times))], color=colour(n), label=label)
    axes.set_title(f"Job completion time, workload {number}", loc="left")
    axes.set_xlabel("hours")
    axes.set_ylabel("share of jobs, all seeds")
    axes.legend(loc="lower right")


def _events(axes: Axes, first: dict[str, ReshapeRun]) -> None:
    for n, (label, played) in enumerate(first.items()):
        for sign, name, style in ((1, "added", "-"), (-1, "removed", "--")):
            times = [0.0, *(a.at_s / _HOUR_S for a in played.adjustments if a.gpus * sign > 0)]
            if len(times) > 1:
                axes.step(
                    times, range(len(times)), where="post", color=colour(n), linestyle=style, label=f"{label}, {name}"
                )
    axes.set_title("GPUs added and removed, workload 1", loc="left")
    axes.set_xlabel("hours since the first submission")
    axes.set_ylabel("events so far")
    axes.legend()


# -- what was assumed ---------------------------------------------------------------------------------------


def assumptions(request: Request) -> list[Assumption]:
    """Everything that the paper leaves open, as it was fixed before the first run."""
    types = {t.name: t for types in JOB_SETS for t in types}.values()
    times = "; ".join(f"{t.name} {t.run_s:.0f} s" for t in types)
    speeds = ", ".join(f"{p.mean:.2f} at {p.x:.0f}" for p in SPEED.points)
    found = [
        Assumption(
            "run time on one V100",
            times,
            "ImageNet: Gavel's measured ResNet-50 at batch size 64 (4.395 steps/s), others in proportion to the "
            "multiply-adds of a forward pass in their papers; CIFAR-10 and MNIST: Gavel's ResNet-18 at batch size 256",
        ),
        Assumption(
            "allowed sizes", f"{', '.join(map(str, SIZES))} GPUs of one server", "Table III; MirroredStrategy is local"
        ),
        Assumption(
            "switching",
            f"prepare {COSTS.prepare_s:g} s, start {COSTS.start_s:g} s, checkpoint {COSTS.checkpoint_s:g} s, "
            f"stop {COSTS.stop_s:g} s",
            "the case study: a cold start takes 174 s, a resize 27 s down and 37 s up. This makes termination cost "
            "184 s (the paper: 204 and 242) and an early start 184 s (110): both are to Reshape's disadvantage",
        ),
        Assumption("arrivals", "exponential gaps, first at 0 and last at 11,000 s; types at random", "section V"),
        Assumption("beliefs", "run times and speeds as they are, for all approaches", "the profile, section III"),
        Assumption(
            "workload four",
            f"{REPORTS} reports a job; top-5 accuracy towards 50 %, half of what is missing every quarter; "
            f"the profile has the first {PROFILED}, {PROFILE_ERROR:.0%} off",
            "ours: the paper shows no accuracy curve",
        ),
        Assumption(
            "default scheduler", "a random size; a job that fits starts, out of order; sizes stay",
            "sections V, VI",
        ),
        Assumption(
            "termination",
            "one GPU to begin with, then the next size for the job that gains most by each GPU, a restart included",
            "section V; Optimus",
        ),
    ]  # fmt: skip
    if request.profiles is None:
        kinds = ", ".join(f"{k} {v:.2f}" for k, v in KINDS.items())
        found += [
            Assumption("speed by GPUs", f"{speeds}, for every type", "the introduction's figures of ResNet; 8 by law"),
            Assumption("speed by kind", kinds, "P100: Table IV; K80: Gavel's ResNet-50 at batch size 64"),
        ]
    else:
        pairs = "; ".join(f"{t.name} as {t.paired}" for t in types)
        found.append(
            Assumption("speed by GPUs and kind", pairs, f"measured: {Path(request.profiles).name}; the pairing is ours")
        )
    return found


REPRODUCTION = Reproduction(
    "reshape",
    "Wang et al., An Efficient and Non-Intrusive GPU Scheduling Framework for Deep Learning Training Systems, SC'20",
    "four workloads on 16 GPUs of two kinds, three approaches",
    assumptions,
    cases,
    run_case,
    ReshapeRun,
    compare_with_paper,
    draw_figures,
    takes={"profiles": "measured speeds by GPUs and kind, instead of the scaling law"},
)
