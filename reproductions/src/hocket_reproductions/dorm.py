"""Dorm's evaluation: 50 applications on 20 servers, under three settings of Dorm and under Swarm.

Swarm is run on one server with everything as well, where no application waits for cores that lie in pieces: so one
sees how much of a speed-up is due to where our Swarm puts containers.

The simulated applications are those of `workloads/dorm.py`, where all that the paper leaves open is fixed. Utilisation,
fairness loss and adjustments are those of the plans, by the paper's formulas (1), (2) and (4).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from hocket.control.ports import Cycle
from hocket.executors.simulated import simulate
from hocket.model.event import JobEnded, JobSubmitted
from hocket.model.job import Job
from hocket.model.partition import Partition
from hocket.model.resources import Demand, Node
from hocket.policies import find as find_policy
from hocket.policies.kit.dominant_shares import fair_shares
from hocket.reports.account import account
from hocket.reports.figure_style import colour, dash, drawing, save
from hocket.reports.mean_interval import mean_interval
from hocket.reproductions import Assumption, Case, Finding, Findings, Reproduction, Request, Results
from hocket.workloads.dorm import COSTS, GAP_S, READINGS, SIGMA, SWARM, TYPES, dorm_workload
from hocket.workloads.gavel import read_gavel
from hocket.workloads.truth import Workload

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BASELINE = "swarm"
POOLED = "swarm, pooled"  # on one server that has everything: as good as fixed sizes can be placed
POLICIES: dict[str, tuple[str, dict[str, Any]]] = {
    "dorm-1": ("dorm", {"theta1": 0.2, "theta2": 0.1}),
    "dorm-2": ("dorm", {"theta1": 0.1, "theta2": 0.2}),
    "dorm-3": ("dorm", {"theta1": 0.1, "theta2": 0.1}),
    BASELINE: ("static", {"models": SWARM}),
    POOLED: ("static", {"models": SWARM}),
}
# The paper's figures.
UTILISATION = {"dorm-1": 2.55, "dorm-2": 2.46, "dorm-3": 2.32}
MOST_LOSS = {"dorm-1": 1.5, "dorm-3": 0.6}
KILLED = {"dorm-2": 80, "dorm-3": 76}
SPEED_UP = {"dorm-1": 2.79, "dorm-2": 2.73, "dorm-3": 2.72}
FIRST_S, DAY_S = 5 * 3600.0, 24 * 3600.0
_HOUR_S = 3600.0


class DormMoment(Struct, frozen=True):
    """As things are planned from now on."""

    at_s: float
    utilisation: float  # Σ_k u_k (1), from 0 to 3
    loss: float  # Σ_i |s_i - ŝ_i| of those that run (2)
    adjusted: int  # applications that were killed and resumed to get here (4)
    running: int
    waiting: int


class DormRun(Struct, frozen=True):
    """One run."""

    moments: tuple[DormMoment, ...]
    jct_s: dict[str, float]  # of applications that ended
    ran_s: dict[str, float]
    unfinished: int

    def mean_utilisation(self, until_s: float) -> float:
        """Over time, from the beginning."""
        return self._mean(until_s, lambda m: m.utilisation)

    def mean_loss(self, until_s: float) -> float:
        """Over time, from the beginning."""
        return self._mean(until_s, lambda m: m.loss)

    def most_utilisation(self, until_s: float) -> float:
        """The highest until then."""
        return max(m.utilisation for m in self.moments if m.at_s <= until_s)

    def most_loss(self, until_s: float) -> float:
        """The highest until then."""
        return max(m.loss for m in self.moments if m.at_s <= until_s)

    @property
    def most_adjusted(self) -> int:
        """By one decision."""
        return max(m.adjusted for m in self.moments)

    def adjusted_before(self, until_s: float) -> int:
        """In all, until then."""
        return sum(m.adjusted for m in self.moments if m.at_s <= until_s)

    def _mean(self, until_s: float, value: Callable[[DormMoment], float]) -> float:
        area = 0.0
        for a, b in pairwise((*self.moments, DormMoment(until_s, 0.0, 0.0, 0, 0, 0))):
            area += value(a) * max(min(b.at_s, until_s) - a.at_s, 0.0)
            if b.at_s >= until_s:
                break
        return area / until_s


def cases(request: Request) -> list[Case]:
    """Every approach, seed by seed."""
    if request.profiles is not None:  # Report errors in the input before anything runs.
        dorm_workload(profiles=read_gavel(request.profiles))
    return [
        Case(label, seed, {"profiles": request.profiles, "reading": reading})
        for reading in READINGS for seed in request.seeds for label in POLICIES
    ]  # fmt: skip


def run_case(case: Case, began: Callable[[int], None], progressed: Callable[[int], None]) -> DormRun:
    """The workload under one approach."""
    began(1)
    workload = _workload(case)
    name, settings = POLICIES[case.label]
    nodes = pooled(workload.nodes) if case.label == POOLED else workload.nodes
    ran = simulate(workload, nodes, find_policy(name).bound(settings), seed=case.seed)
    accounted = account(ran.journal.header, ran.journal)
    progressed(1)
    return DormRun(
        retold(ran.journal, nodes),
        {r.job.id: r.jct_s for r in accounted.jobs if r.jct_s is not None},
        {r.job.id: r.ran_s for r in accounted.jobs},
        len(accounted.jobs) - sum(r.jct_s is not None for r in accounted.jobs),
    )


def _workload(case: Case) -> Workload:
    path = case.settings["profiles"]
    return dorm_workload(case.seed, read_gavel(path) if path else None, case.settings["reading"])


def pooled(nodes: Sequence[Node]) -> tuple[Node, ...]:
    """One server that has what all of these have."""
    cores, gpus, mem_mib = (sum(column) for column in zip(*(_amounts(node) for node in nodes), strict=True))
    return (Node("pool", int(gpus), cores=cores, mem_mib=mem_mib),)


def most_utilisation(case: Case, until_s: float) -> float:
    """The mean over time that no scheduler exceeds: all that came run with all their containers, as far as they fit."""
    workload = _workload(case)
    totals = [sum(column) for column in zip(*(_amounts(node) for node in workload.nodes), strict=True)]
    wanted, area = [0.0] * len(totals), 0.0
    came_s = [s.at_s for s in workload.submissions]
    for submission, (since_s, next_s) in zip(workload.submissions, pairwise((*came_s, until_s)), strict=True):
        needs = _amounts(submission.job.demand.times(submission.job.sizes[-1]))
        wanted = [w + n for w, n in zip(wanted, needs, strict=True)]
        used = sum(min(1.0, w / t) for w, t in zip(wanted, totals, strict=True))
        area += used * max(min(next_s, until_s) - since_s, 0.0)
    return area / until_s


def fastest_s(case: Case) -> dict[str, float]:
    """How long each application takes at least, whatever the scheduler: all its containers from its submission on."""
    found = {}
    for submission in _workload(case).submissions:
        truth, most = submission.truth, submission.job.sizes[-1]
        assert truth.speed is not None
        found[submission.job.id] = COSTS.prepare_s + COSTS.start_s + truth.run_s / truth.speed.at(most).mean
    return found


def retold(cycles: Iterable[Cycle], nodes: Sequence[Node]) -> tuple[DormMoment, ...]:
    """Utilisation, fairness loss and adjustments after every decision that changed something, and after every end."""
    totals = tuple(sum(column) for column in zip(*(_amounts(node) for node in nodes), strict=True))
    live: dict[str, Job] = {}
    planned: dict[str, Partition] = {}
    moments: list[DormMoment] = []
    for cycle in cycles:
        before = dict(planned)
        for event in cycle.events:
            match event:
                case JobSubmitted(job=job):
                    live[job.id] = job
                case JobEnded(job=name):
                    live.pop(name, None)
                    planned.pop(name, None)
                case _:
                    pass
        adjusted = 0
        if cycle.plan is not None and not cycle.refused:
            for partition in cycle.plan.put:
                adjusted += partition.id in planned
                planned[partition.id] = partition
        if planned != before:
            moments.append(_moment(cycle.at_s, totals, live, planned, adjusted))
    return tuple(moments)


def _amounts(of: Node | Demand) -> tuple[float, float, float]:
    return of.cores, float(of.gpus), of.mem_mib


def _moment(
    at_s: float, totals: tuple[float, ...], live: dict[str, Job], planned: dict[str, Partition], adjusted: int
) -> DormMoment:
    running = [live[name] for name in planned]
    fair = fair_shares(totals, [(_amounts(j.demand), j.weight, j.sizes[-1]) for j in running])
    used = loss = 0.0
    for job, share in zip(running, fair, strict=True):
        size = planned[job.id].size_of(job.id)
        has = [size * d / t for d, t in zip(_amounts(job.demand), totals, strict=True)]
        used += sum(has)
        loss += abs(max(has) - share)
    return DormMoment(at_s, used, loss, adjusted, len(running), len(live) - len(running))


# -- what it showed -----------------------------------------------------------------------------------------


def compare_with_paper(_request: Request, results: Results) -> Findings:
    """The paper's figures and ours, for both readings of its set-up."""
    findings: list[Finding] = []
    for reading in READINGS:
        findings += _compared(reading, [(case, run) for case, run in results if case.settings["reading"] == reading])
    return Findings(tuple(findings), tuple(_remarks(findings, results)))


def _compared(reading: str, results: Results) -> list[Finding]:
    runs: dict[str, list[DormRun]] = {}  # by seed, for cases come seed by seed
    for case, played in results:
        runs.setdefault(case.label, []).append(played)
    swarm, of_swarm = runs[BASELINE], [(case, run) for case, run in results if case.label == BASELINE]
    findings: list[Finding] = []

    def add(
        group: str, what: str, paper: str, values: Iterable[float], unit: str = "", most: Iterable[float] = ()
    ) -> None:
        found, bound = mean_interval(list(values)), mean_interval(list(most))
        findings.append(Finding(what, paper, found, unit, group=f"{group} ({reading})", bound=bound))

    used = [most_utilisation(case, FIRST_S) / run.mean_utilisation(FIRST_S) for case, run in of_swarm]
    for label, factor in UTILISATION.items():
        both = zip(runs[label], swarm, strict=True)
        ratios = (p.mean_utilisation(FIRST_S) / q.mean_utilisation(FIRST_S) for p, q in both)
        add(_USE, f"{label}, mean, relative to swarm", f"{factor:g}×", ratios, "×", used)
    add(_USE, "swarm, most", "1.8", (q.most_utilisation(FIRST_S) for q in swarm))
    for label, most in MOST_LOSS.items():
        add(_LOSS, f"{label}, most in 24 hours", f"≤ {most:g}", (p.most_loss(DAY_S) for p in runs[label]))
    both = zip(runs["dorm-3"], swarm, strict=True)
    ratios = (q.mean_loss(DAY_S) / p.mean_loss(DAY_S) for p, q in both)
    add(_LOSS, "swarm's, relative to dorm-3's, mean over 24 hours", "1.52×", ratios, "×")
    for label, count in KILLED.items():
        add(_KILLED, f"{label}, most in one decision", "2", (float(p.most_adjusted) for p in runs[label]))
        add(_KILLED, f"{label}, in 24 hours", str(count), (float(p.adjusted_before(DAY_S)) for p in runs[label]))
    fastest = [_speed_up(fastest_s(case), run.jct_s) for case, run in of_swarm]
    for label, factor in SPEED_UP.items():
        pairs = list(zip(runs[label], swarm, strict=True))
        whole = (_speed_up(p.jct_s, q.jct_s) for p, q in pairs)
        add(_FASTER, f"{label}, from submission to end", f"{factor:g}×", whole, "×", fastest)
        add(_FASTER, f"{label}, time in service only", "", (_speed_up(p.ran_s, q.ran_s) for p, q in pairs), "×")
        both = zip(runs[label], runs[POOLED], strict=True)
        against = (_speed_up(p.jct_s, q.jct_s) for p, q in both)
        add(_FASTER, f"{label}, from submission to end, against a pooled swarm", "", against, "×")
    both = zip(swarm, runs[POOLED], strict=True)
    add(_FASTER, "swarm against a pooled swarm", "", (_speed_up(p.jct_s, q.jct_s) for p, q in both), "×")
    return findings


_USE = "Figure 6, utilisation in the first 5 hours"
_LOSS = "Figure 7, fairness loss"
_KILLED = "Figure 8, applications killed and resumed"
_FASTER = "Figure 9(a), speed-up against swarm, mean of all applications"


def _speed_up(ours: dict[str, float], theirs: dict[str, float]) -> float:
    ratios = [theirs[job] / ours[job] for job in ours if theirs.get(job) and ours[job]]
    return sum(ratios) / len(ratios)


def _remarks(findings: Sequence[Finding], results: Results) -> Iterable[str]:
    for f in findings:
        spread = 0.0 if f.ours is None or f.ours.half_width is None else f.ours.half_width
        if f.paper.endswith("×") and f.ours is not None and f.ours.mean + spread < float(f.paper[:-1]):
            why = f"; no scheduler can reach {f.gap.set_up:.2f} of that here" if f.gap and f.gap.set_up else ""
            yield f"We fall short of the paper: {f.group}, {f.what}: {f.ours.mean:.2f} instead of {f.paper}{why}."
        elif f.paper.startswith("≤") and f.ours is not None and f.ours.mean - spread > float(f.paper[2:]):
            yield f"We are above the paper: {f.group}, {f.what}: {f.ours.mean:.2f} where it has {f.paper}."
    if left := sum(r.unfinished for _c, r in results):
        yield f"{left} applications did not end; they are in no speed-up."
    yield (
        "P2's limit is ⌈θ1·2m⌉, which is 1 for θ1 = 0.1 and 2 for 0.2 with three resources. When P2 has no solution, "
        "all stay as they are, so the loss can be above the limit until an application ends."
    )
    yield "The sharing overhead of Figure 9(b) is not measured again: what a kill and resume costs was taken from it."


# -- figures ------------------------------------------------------------------------------------------------


def draw_figures(_request: Request, results: Results, folder: Path) -> list[Path]:
    """Utilisation, fairness loss and adjustments over the first seed's day; speed-up by type over all seeds."""
    files: list[Path] = []
    for reading in READINGS:
        files += _drawn([(case, run) for case, run in results if case.settings["reading"] == reading], folder / reading)
    return files


def _drawn(results: Results, folder: Path) -> list[Path]:
    runs: dict[str, list[DormRun]] = {}
    for case, played in results:
        runs.setdefault(case.label, []).append(played)
    first = {label: found[0] for label, found in runs.items()}
    files: list[Path] = []
    with drawing() as figure:
        for name, title, value in (
            ("figure-6-utilisation", "Resource utilisation, sum of three resources", lambda m: m.utilisation),
            ("figure-7-fairness-loss", "Fairness loss", lambda m: m.loss),
        ):
            sheet = figure((7.6, 3.8))
            _over_time(sheet.add_subplot(), first, title, value)
            files += save(sheet, folder, name)
        sheet = figure((7.6, 3.8))
        _adjustments(sheet.add_subplot(), {k: v for k, v in first.items() if k not in (BASELINE, POOLED)})
        files += save(sheet, folder, "figure-8-adjustments")
        sheet = figure((7.6, 3.8))
        _speed_ups(sheet.add_subplot(), runs)
        files += save(sheet, folder, "figure-9-speed-up")
    return files


def _over_time(axes: Axes, first: dict[str, DormRun], title: str, value: Callable[[DormMoment], float]) -> None:
    for n, (label, played) in enumerate(first.items()):
        moments = [m for m in played.moments if m.at_s <= DAY_S]
        axes.step(
            [m.at_s / _HOUR_S for m in moments], [value(m) for m in moments], where="post", color=colour(n),
            linestyle=dash(n), label=label,
        )  # fmt: skip
    axes.set_title(title, loc="left")
    axes.set_xlabel("hours")
    axes.set_ylim(bottom=0)
    axes.legend()


def _adjustments(axes: Axes, first: dict[str, DormRun]) -> None:
    for n, (label, played) in enumerate(first.items()):
        moments = [m for m in played.moments if m.at_s <= DAY_S]
        axes.step(
            [m.at_s / _HOUR_S for m in moments], list(accumulate(m.adjusted for m in moments)), where="post",
            color=colour(n), linestyle=dash(n), label=label,
        )  # fmt: skip
    axes.set_title("Applications killed and resumed, in all", loc="left")
    axes.set_xlabel("hours")
    axes.set_ylim(bottom=0)
    axes.legend()


def _speed_ups(axes: Axes, runs: dict[str, list[DormRun]]) -> None:
    labels = [label for label in runs if label not in (BASELINE, POOLED)]
    width = 0.8 / len(labels)
    for n, label in enumerate(labels):
        found = [
            mean_interval(
                [
                    theirs.jct_s[job] / ours.jct_s[job]
                    for ours, theirs in zip(runs[label], runs[BASELINE], strict=True)
                    for job in ours.jct_s
                    if job.rpartition("-")[0] == kind.name and theirs.jct_s.get(job)
                ]
            )
            for kind in TYPES
        ]
        axes.bar(
            [i + (n - (len(labels) - 1) / 2) * width for i in range(len(TYPES))],
            [s.mean if s is not None else 0.0 for s in found], width,
            yerr=[(s.half_width or 0.0) if s is not None else 0.0 for s in found],
            color=colour(n), label=label, ecolor="#555555", capsize=2,
        )  # fmt: skip
    axes.set_xticks(range(len(TYPES)), [kind.name for kind in TYPES])
    axes.set_title("Speed-up against Swarm, from submission to end", loc="left")
    axes.set_ylabel("times (mean and 95 % interval)")
    axes.legend()


# -- what was assumed ---------------------------------------------------------------------------------------


def assumptions(request: Request) -> list[Assumption]:
    """Everything that the paper leaves open, as it was fixed before the first run."""
    found = [
        Assumption(
            "servers", "12 cores and 128 GB on each of 20, one GPU on every fourth", "240 cores, 5 GPUs, 2.5 TB in all"
        ),
        Assumption("Table II", "a blank is a 1; so the numbers of applications sum up to 50", "the text says 50"),
        Assumption(
            "θ1 and θ2", "dorm-1 0.2 and 0.1, dorm-2 0.1 and 0.2, dorm-3 0.1 and 0.1",
            "the table is missing; the text compares 1 with 3 and 2 with 3",
        ),
        Assumption("arrivals", f"in random order, exponential gaps of {GAP_S / 60:g} min on average", "section V-A"),
        Assumption(
            "run times", f"at Swarm's sizes, lognormal, median {_medians()} h, sigma {SIGMA:g}",
            "Figure 1: about 90 % run for more than 6 h; Figure 8: about 10 run at a time; sigma is ours",
        ),
        Assumption(
            "switching",
            f"checkpoint {COSTS.checkpoint_s:g} s, preparation {COSTS.prepare_s:g} s, start {COSTS.start_s:g} s",
            "Figure 9(b): two kills and resumes are 5 % of 3 h, so 270 s each; the split is ours",
        ),
        Assumption(
            "Swarm", "8, 8, 4, 2, 2, 2, 3 containers by type; what does not fit waits, and others may overtake; those "
            "without GPUs go to servers without GPUs first",
            "section V-A; the order and the places are ours",
        ),
        Assumption(
            "fair shares", "weighted DRF by progressive filling, containers divisible, at most n_max", "Ghodsi et al."
        ),
    ]  # fmt: skip
    if request.profiles is None:
        laws = ", ".join(f"{reading.speed} ({name})" for name, reading in READINGS.items())
        found.append(Assumption("speed by containers", f"{laws}, for every type", "ours; 2.79× needs linear"))
    else:
        pairs = "; ".join(f"{t.name} as {t.paired}" for t in TYPES)
        found.append(
            Assumption(
                "speed by containers", f"{pairs}; a container as one GPU, beyond 8 in proportion",
                f"measured: {Path(request.profiles).name}; the pairing is ours",
            )
        )  # fmt: skip
    return found


def _medians() -> str:
    return ", ".join(f"{reading.median_s / 3600:.1f} ({name})" for name, reading in READINGS.items())


REPRODUCTION = Reproduction(
    "dorm",
    "Sun et al., Towards Distributed Machine Learning in Shared Clusters: A Dynamically-Partitioned Approach, "
    "SMARTCOMP'17",
    "50 applications on 20 servers, three settings of Dorm, and Swarm",
    assumptions,
    cases,
    run_case,
    DormRun,
    compare_with_paper,
    draw_figures,
    takes={"profiles": "measured speeds by containers, instead of the scaling law"},
)
