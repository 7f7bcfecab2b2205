"""Reshape's evaluation: four workloads on 16 GPUs of two kinds, under three approaches.

The simulated jobs are those of `workloads/reshape.py`, where all that the paper leaves open is fixed, in two readings.
Under Reshape
jobs can be prepared before they have GPUs; under the other two approaches every change terminates a job.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate
from math import inf
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
from hocket.reproductions.bounds import Work, least_makespan_s, least_mean_jct_s
from hocket.workloads.gavel import GavelSpeeds, read_gavel
from hocket.workloads.reshape import COSTS, JOB_SETS, KINDS, READINGS, REPORTS, SIZES, WORKLOADS, reshape_workload
from hocket.workloads.truth import Submission, Workload

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
        Case(label, seed, {"workload": number, "profiles": request.profiles, "reading": reading})
        for reading in READINGS
        for seed in request.seeds
        for number in WORKLOADS
        for label in POLICIES
    ]


def run_case(case: Case, began: Callable[[int], None], progressed: Callable[[int], None]) -> ReshapeRun:
    """One workload under one approach."""
    began(1)
    number, workload = case.settings["workload"], _workload(case)
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


def _workload(case: Case) -> Workload:
    path = case.settings["profiles"]
    profiles: GavelSpeeds | None = read_gavel(path) if path else None
    return reshape_workload(
        case.settings["workload"], case.seed, early=case.label == OURS, profiles=profiles,
        reading=case.settings["reading"],
    )  # fmt: skip


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


# -- what no scheduler can beat -----------------------------------------------------------------------------


def least_s(workload: Workload) -> tuple[float, float]:
    """Makespan and mean JCT, at the least."""
    gpus = {node.gpu_kind: node.gpus for node in workload.nodes}
    rates = [_rates(s, gpus) for s in workload.submissions]
    # How much of all GPU time a job needs, where a GPU of each kind counts for what it does on average: at the size and
    # on the kind that need least.
    worth = {kind: sum(max(r[kind][n] / n for n in r[kind]) for r in rates) / len(rates) for kind in gpus}
    whole = sum(n * worth[kind] for kind, n in gpus.items())
    works = []
    for s, r in zip(workload.submissions, rates, strict=True):
        of_each_second = min(worth[kind] * n / r[kind][n] for kind in gpus for n in r[kind])
        alone_s = _start_s(s) + s.truth.run_s / max(rate for by_size in r.values() for rate in by_size.values())
        works.append(Work(s.at_s, (s.truth.run_s * of_each_second / whole,), alone_s))
    return max(least_makespan_s(works), _of_the_longest(workload, rates, gpus)), least_mean_jct_s(works)


Rates = dict[str, dict[int, float]]  # kind → number of GPUs → speed


def _rates(s: Submission, kinds: Iterable[str]) -> Rates:
    truth = s.truth
    assert truth.speed is not None
    return {kind: {n: truth.speed.at(n).mean * truth.kinds.get(kind, 1.0) for n in s.job.sizes} for kind in kinds}


def _start_s(s: Submission) -> float:
    return s.truth.costs.prepare_s + s.truth.costs.start_s


def _of_the_longest(workload: Workload, rates: Sequence[Rates], gpus: Mapping[str, int]) -> float:
    """The makespan of the n longest jobs that come from some moment on, if all GPUs serve them alone, for every n."""
    best: Rates = {kind: {n: max(r[kind][n] for r in rates) for n in rates[0][kind]} for kind in gpus}
    together = _rates_together(len(rates), best, gpus)
    latest_s = 0.0
    for first, s in enumerate(workload.submissions):
        longest_s = sorted((later.truth.run_s for later in workload.submissions[first:]), reverse=True)
        for n, work_s in enumerate(accumulate(longest_s), start=1):
            latest_s = max(latest_s, s.at_s + _start_s(s) + work_s / together[n])
    return latest_s


def _rates_together(jobs: int, best: Rates, gpus: Mapping[str, int]) -> list[float]:
    """The most that 0, 1, 2 and more jobs do in a second, each on GPUs of one kind.

    Those on one kind share it equally, for a GPU more brings less and less.
    """
    totals = [0.0, *[-inf] * jobs]  # by the number of jobs on the kinds so far
    for kind, many in gpus.items():
        alike = [0.0, *(n * _concave(best[kind], many / n) for n in range(1, jobs + 1))]
        totals = [max(totals[n - k] + alike[k] for k in range(n + 1)) for n in range(jobs + 1)]
    return totals


def _concave(by_size: Mapping[int, float], size: float) -> float:
    """The speed at a size, or what two of those that there are come to if jobs alternate between them."""
    points = [(0.0, 0.0), *((float(n), speed) for n, speed in by_size.items())]
    lines = [
        ya + (yb - ya) * (size - xa) / (xb - xa)
        for xa, ya in points
        for xb, yb in points
        if xa <= size <= xb and xa < xb
    ]
    return max(lines, default=max(by_size.values()))


# -- what it showed -----------------------------------------------------------------------------------------


def compare_with_paper(_request: Request, results: Results) -> Findings:
    """The paper's figures and ours, for both readings of its run times and costs."""
    findings: list[Finding] = []
    for reading in READINGS:
        findings += _compared(reading, [(case, run) for case, run in results if case.settings["reading"] == reading])
    return Findings(tuple(findings), tuple(_remarks(findings, results)))


def _compared(reading: str, results: Results) -> list[Finding]:
    played = {(c.label, r.workload, c.seed): r for c, r in results}
    seeds = sorted({c.seed for c, _r in results})
    least = {(r.workload, c.seed): least_s(_workload(c)) for c, r in results if c.label == OURS}
    findings: list[Finding] = []

    def add(
        group: str, what: str, paper: str, values: Iterable[float], unit: str = "", most: Iterable[float] = ()
    ) -> None:
        ours, bound = mean_interval(list(values)), mean_interval(list(most))
        findings.append(Finding(what, paper, ours, unit, group=f"{group} ({reading})", bound=bound))

    measures: tuple[tuple[str, Mapping[str, Sequence[int]], Callable[[ReshapeRun], float]], ...] = (
        (_MAKESPAN, MAKESPAN, lambda p: p.makespan_s),
        (_JCT, JCT, lambda p: p.jct_mean_s),
    )
    for n, (title, paper, value) in enumerate(measures):
        for other, percent in paper.items():
            for number in WORKLOADS:
                theirs = {s: value(played[other, number, s]) for s in seeds}
                ours = [100 * (1 - value(played[OURS, number, s]) / theirs[s]) for s in seeds]
                most = [100 * (1 - least[number, s][n] / theirs[s]) for s in seeds]
                add(title, f"workload {number}, against {other}", f"{percent[number - 1]} %", ours, "%", most)
    for number in WORKLOADS:
        above = [100 * (played[OURS, number, s].makespan_s / least[number, s][0] - 1) for s in seeds]
        add(_ABOVE, f"workload {number}", "", above, "%")
    for label, shares in OVERHEAD.items():
        for number in WORKLOADS:
            overheads = [100 * played[label, number, s].overhead for s in seeds]
            add(_OVERHEAD, f"workload {number}, {label}", f"{shares[number - 1]:g} %", overheads, "%")
    for label, pending in PENDING.items():
        add(_PENDING, label, str(pending), [float(played[label, 1, s].pending_at_last) for s in seeds])
    for label, count in ADDED.items():
        runs = [played[label, 1, s] for s in seeds]
        add(_EVENTS, f"{label}, added", str(count), [float(r.added) for r in runs])
        add(_EVENTS, f"{label}, removed", "0" if label == TERMINATION else "", [float(r.removed) for r in runs])
    return findings


_MAKESPAN = "Figure 6(a), by how much Reshape's makespan is shorter"
_JCT = "Figure 6(b), by how much Reshape's mean JCT is shorter"
_ABOVE = "Reshape's makespan, above the bound for any scheduler"
_OVERHEAD = "Table VIII, time spent on adding and removing GPUs, of all run time"
_PENDING = "Figure 8, jobs pending when workload one's last comes"
_EVENTS = "Figure 11, events in workload one"


def _remarks(findings: Sequence[Finding], results: Results) -> Iterable[str]:
    for reading in READINGS:
        for title, name in ((_MAKESPAN, "makespan"), (_JCT, "mean JCT")):
            short = [
                f"{f.what} ({f.ours.mean:.0f} instead of {f.paper}; {f.gap.set_up:.0f} by the set-up, "
                f"{f.gap.policy:.0f} at most by the policy)"
                for f in findings
                if f.group == f"{title} ({reading})" and f.ours is not None and f.gap is not None
            ]
            if short:
                yield (
                    f"With {reading} we fall short of the paper's {name} in {len(short)} of 8 figures: "
                    f"{'; '.join(short)}."
                )
    if left := sum(r.unfinished for _c, r in results):
        yield f"{left} jobs did not end; they are in none of these figures."
    least_s = ADDED[TERMINATION] * READINGS["table-iv"].termination.restart_s(warm=False)
    run_s = least_s / (OVERHEAD[TERMINATION][0] / 100) / WORKLOADS[1].jobs
    yield (
        f"Table VIII contradicts the rest: {ADDED[TERMINATION]} additions of 242 s are {OVERHEAD[TERMINATION][0]:g} % "
        f"of all run time in workload one, so its {WORKLOADS[1].jobs} jobs ran for {run_s:.0f} s on average. Then "
        "hardly four would run at a time, and none would be pending (Figure 8), nor would any run in the 20,000th "
        "second (Figure 10)."
    )


# -- figures ------------------------------------------------------------------------------------------------


Runs = dict[tuple[str, int], list[ReshapeRun]]  # (approach, workload) → its runs, by seed


def draw_figures(_request: Request, results: Results, folder: Path) -> list[Path]:
    """Makespan, JCT, pending and running jobs, GPU use, and add and remove events. Over time: the first seed."""
    files: list[Path] = []
    for reading in READINGS:
        of_it = [(case, run) for case, run in results if case.settings["reading"] == reading]
        files += _drawn(of_it, folder / reading) if of_it else []
    return files


def _drawn(results: Results, folder: Path) -> list[Path]:
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
    times = "; ".join(f"{t.name} {' or '.join(f'{t.run_s(r):.0f}' for r in READINGS.values())} s" for t in types)
    terminations = " or ".join(f"{r.termination.restart_s(warm=False):g}" for r in READINGS.values())
    speeds = "; ".join(
        f"{', '.join(f'{p.mean:.2f} at {p.x:.0f}' for p in r.speed.points)} ({name})" for name, r in READINGS.items()
    )
    found = [
        Assumption(
            "run time on one V100",
            times,
            "ImageNet: Gavel's measured ResNet-50 at batch size 64 (introduction; 4.395 steps/s), or Table IV's "
            "ResNet-18 (table-iv; 0.18 s an iteration of 64), others in proportion to the multiply-adds of a forward "
            "pass in their papers; CIFAR-10 and MNIST: Gavel's ResNet-18 at batch size 256",
        ),
        Assumption(
            "allowed sizes", f"{', '.join(map(str, SIZES))} GPUs of one server", "Table III; MirroredStrategy is local"
        ),
        Assumption(
            "switching",
            f"prepare {COSTS.prepare_s:g} s, start {COSTS.start_s:g} s, checkpoint {COSTS.checkpoint_s:g} s, "
            f"stop {COSTS.stop_s:g} s; a termination and restart {terminations} s",
            "the case study: a cold start takes 174 s, a resize 27 s down and 37 s up, a termination and restart 204 "
            "and 242 s. An early start costs 184 s here (110 there), which is to Reshape's disadvantage",
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
            Assumption(
                "speed by GPUs",
                f"{speeds}, for every type",
                "the introduction's figures of ResNet, or Table IV; the rest by law",
            ),
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
