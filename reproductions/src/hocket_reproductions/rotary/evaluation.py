"""Rotary's evaluation: queries with goals and deadlines, training with criteria, and both on one machine.

The simulated jobs are those of `workloads/rotary.py`, where all that the paper leaves open is fixed. The paper's
figures are plots without numbers; what can be compared is which policy attains more, and where.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from hocket.executors.simulated import simulate
from hocket.model.criterion import Convergence, Goal, RunTime, limit_of
from hocket.model.event import EpochEnded, JobEnded
from hocket.policies import find as find_policy
from hocket.reports.account import account
from hocket.reports.figure_style import colour, drawing, save
from hocket.reports.mean_interval import mean_interval
from hocket.reproductions import Case, Finding, Findings, Reproduction, Request, Results
from hocket.workloads.rotary import (
    CLASSES,
    CRITERIA,
    measured_scales,
    rotary_workload,
    true_accuracy,
)
from hocket.workloads.truth import Submission, Workload
from hocket_reproductions.rotary import suspended
from hocket_reproductions.rotary.assumptions import assumptions
from hocket_reproductions.rotary.bound import most_attained
from hocket_reproductions.rotary.overhead import PRINTED, spent_by_estimators
from hocket_reproductions.rotary.suspended import PauseCosts

AQP: dict[str, tuple[str, dict[str, Any]]] = {
    "rotary_aqp": ("rotary_aqp", {}),
    "relaqs": ("relaqs", {}),
    "edf": ("edf", {}),
    "laf": ("laf", {}),
    "round_robin": ("round_robin", {"quantum_s": 60.0}),
    "rotary": ("rotary", {}),
}
DLT: dict[str, tuple[str, dict[str, Any]]] = {
    "rotary_dlt, T = 0 %": ("rotary_dlt", {"threshold": 0.0}),
    "rotary_dlt, T = 50 %": ("rotary_dlt", {"threshold": 0.5}),
    "rotary_dlt, T = 100 %": ("rotary_dlt", {"threshold": 1.0}),
    "srf": ("srf", {}),
    "bcf": ("bcf", {}),
    "laf": ("laf", {}),
    "rotary": ("rotary", {}),
}
ABLATED: dict[str, tuple[str, dict[str, Any]]] = {
    "variant=paper": ("rotary", {"variant": "paper"}),
    "hopeless=0": ("rotary", {"hopeless": 0.0}),
    "switching=false": ("rotary", {"switching": False}),
    "extra=turn": ("rotary", {"extra": "turn"}),
    "adaptive=false": ("rotary", {"adaptive": False}),
}
BASELINES = ("relaqs", "edf", "laf", "round_robin")
BOUND = "at most, if all were known beforehand"
LARGER = "Queries as measured at scale factor {scale:g}, attained of 30 {which}"
SINGLE = {f"only={only}": f"Figure 3.7, attained of 30 {only} queries" for only in CLASSES}
OVERHEAD = "overhead of estimators"
HOURS = (2, 4)  # within which training on the shared machine is compared
LOADS = (1.0, 2.0)
MINUTES = (60, 120, 180, 240, 300, 360)
_EVENTS = "attained"


class RotaryRun(Struct, frozen=True):
    """One run."""

    attained: dict[str, int]  # by class of queries, or kind of criterion
    jobs: dict[str, int]  # of each class
    false: int  # attained by what was said, and not in truth
    waited_s: float  # mean over all jobs
    ended_s: list[float]  # when each attained
    rates: dict[str, list[float]]  # attainment rates of all jobs after so many minutes; of training only
    decision_ms: float  # mean
    training_ended_s: list[float] = []  # when each attained, of training
    took_s: float = 0.0  # from the first arrival to the last end
    spent_s: dict[str, float] = {}  # CPU seconds of each estimator
    paused: PauseCosts = PauseCosts()

    @property
    def all(self) -> int:
        """Attained jobs."""
        return sum(self.attained.values())


def cases(request: Request) -> list[Case]:
    """Tables 3.1 and 3.2, single classes, what estimates are worth, and the mixture; seed by seed."""
    found = []
    for seed in request.seeds:
        for load in LOADS:
            found += [_case(label, seed, "aqp", AQP[label], load=load) for label in AQP]
            found += [_case(BOUND, seed, "aqp", (BOUND, {}), load=load)]
        for only in CLASSES:
            found += [_case(label, seed, "aqp", AQP[label], only=only) for label in AQP]
            found += [_case(BOUND, seed, "aqp", (BOUND, {}), only=only)]
        for which in _larger():
            found += [_case(label, seed, "aqp", AQP[label], **which) for label in AQP]
            found += [_case(BOUND, seed, "aqp", (BOUND, {}), **which)]
        found += [_case(f"{label}, envelope", seed, "aqp", AQP[label], rule="envelope") for label in ("rotary_aqp",)]
        found += [
            _case(f"{label}, no past jobs", seed, "aqp", AQP[label], past=False) for label in ("rotary_aqp", "rotary")
        ]
        found += [_case(f"rotary, {label}", seed, "aqp", policy, load=2.0) for label, policy in ABLATED.items()]
        found += [
            _case(rule, seed, "aqp", policy, load=suspended.LOAD, disk_mib_s=suspended.DISK_MIB_S)
            for rule, policy in suspended.RULES.items()
        ]
        found += [_case(label, seed, "dlt", policy) for label, policy in DLT.items()]
        found += [_case("rotary, no past jobs", seed, "dlt", DLT["rotary"], past=False)]
        if request.curves is not None:
            measured = [_case(label, seed, "dlt", policy, curves=request.curves) for label, policy in DLT.items()]
            found += [replace(case, settings={**case.settings, "curves": request.curves}) for case in measured]
        found += [_case(OVERHEAD, seed, "dlt", DLT["rotary_dlt, T = 50 %"], trainings=count) for count in PRINTED]
        found += [_case(which, seed, which, AQP["rotary"]) for which in ("mixed", "half-aqp", "half-dlt")]
    return found


def _larger() -> list[dict[str, Any]]:
    """Workloads of queries that were measured on more data, if the table has such: all, and the heavy ones alone."""
    scales = [scale for scale in measured_scales() if scale > 1.0]
    return [{"scale": scale, **which} for scale in scales for which in ({"load": 1.0}, {"only": "heavy"})]


def _case(label: str, seed: int, which: str, policy: tuple[str, dict[str, Any]], **workload: Any) -> Case:
    return Case(label, seed, {"which": which, "policy": policy[0], "params": policy[1], "workload": workload})


def run_case(case: Case, began: Callable[[int], None], progressed: Callable[[int], None]) -> RotaryRun:
    """One workload under one policy."""
    began(1)
    settings = case.settings
    workload = rotary_workload(settings["which"], case.seed, **settings["workload"])
    if settings["policy"] == BOUND:
        bound = most_attained(workload)
        progressed(1)
        return RotaryRun({BOUND: bound.most}, {BOUND: len(workload.submissions)}, 0, 0.0, [], {}, 0.0)
    policy = find_policy(settings["policy"]).bound(settings["params"])
    with spent_by_estimators() as spent:
        ran = simulate(workload, workload.nodes, policy, seed=case.seed)
    accounted = account(ran.journal.header, ran.journal)
    progressed(1)
    reports, ends = _told(ran.journal)
    attained: dict[str, int] = {}
    jobs: dict[str, int] = {}
    false = 0
    for record in accounted.jobs:
        kind = record.job.id.partition("-")[0]
        jobs[kind] = jobs.get(kind, 0) + 1
        attained.setdefault(kind, 0)
        if record.verdict == _EVENTS:
            attained[kind] += 1
            scale = settings["workload"].get("scale", 1.0)
            false += kind in CLASSES and _is_false(record.job.id, record.job.criterion, reports[record.job.id], scale)
    waited = [record.waited_s for record in accounted.jobs]
    rates = {str(m): _rates(workload, reports, ends, 60.0 * m) for m in MINUTES} if settings["which"] == "dlt" else {}
    return RotaryRun(
        attained, jobs, false, sum(waited) / len(waited),
        [r.ended_s for r in accounted.jobs if r.verdict == _EVENTS and r.ended_s is not None], rates,
        1000 * sum(ran.decision_s) / max(len(ran.decision_s), 1),
        [
            r.ended_s for r in accounted.jobs
            if r.verdict == _EVENTS and r.ended_s is not None and r.job.id.partition("-")[0] in CRITERIA
        ],
        max((r.ended_s or 0.0 for r in accounted.jobs), default=0.0), dict(spent),
        suspended.pause_costs(ran.journal, {s.job.id: s.truth for s in workload.submissions}),
    )  # fmt: skip


Reports = dict[str, list[tuple[float, int, dict[str, float]]]]  # job → (when, epoch, metrics)


def _told(cycles: Iterable[Any]) -> tuple[Reports, dict[str, tuple[float, str]]]:
    reports: Reports = {}
    ends = {}
    for cycle in cycles:
        for event in cycle.events:
            if isinstance(event, EpochEnded):
                reports.setdefault(event.job, []).append((event.at_s, event.epoch, event.metrics))
            elif isinstance(event, JobEnded):
                ends[event.job] = (event.at_s, event.verdict)
    return reports, ends


def _is_false(job_id: str, goal: Any, reports: list[tuple[float, int, dict[str, float]]], scale: float = 1.0) -> bool:
    """Was its answer less accurate than it said when it was stopped?"""
    query, _, order = job_id.rpartition("-")[-1].partition(".")
    return bool(true_accuracy(query, int(order), reports[-1][-1]["fraction"], scale) < goal.target)


def _rates(workload: Workload, reports: Reports, ends: dict[str, tuple[float, str]], at_s: float) -> list[float]:
    """Attainment rates of training jobs at a moment, as section 3.3.2 defines them."""
    found = []
    for submission in workload.submissions:
        job = submission.job
        ended = ends.get(job.id)
        if ended is not None and ended[0] <= at_s:
            found.append(1.0)  # Attained, or its epochs are used up.
            continue
        seen = [(epoch, metrics) for when, epoch, metrics in reports.get(job.id, ()) if when <= at_s]
        found.append(_rate(submission, *seen[-1]) if seen else 0.0)
    return found


def _rate(submission: Submission, epoch: int, metrics: dict[str, float]) -> float:
    match submission.job.criterion:
        case RunTime(limit=limit):
            return min(1.0, epoch / limit.count)  # type: ignore[union-attr]
        case Goal(target=target):
            return min(1.0, metrics["acc"] / target)
        case Convergence() as criterion:
            quality = submission.truth.quality
            assert quality is not None
            most = limit_of(criterion).count  # type: ignore[union-attr]
            values = [p.mean for p in quality.points[:most]]
            line = next((k for k, (a, b) in enumerate(pairwise(values), 2) if criterion.met_by(a, b)), most)
            return min(1.0, epoch / line)
        case _:
            raise AssertionError(submission.job.id)


# -- what it showed -----------------------------------------------------------------------------------------------


def compare_with_paper(request: Request, results: Results) -> Findings:
    """What the paper says in words, beside our numbers."""
    runs: dict[tuple[str, str, str], list[RotaryRun]] = {}
    for case, run in results:
        settings = case.settings
        about = ", ".join(f"{k}={v}" for k, v in sorted(settings["workload"].items()))
        runs.setdefault((settings["which"], about, case.label), []).append(run)
    findings: list[Finding] = []

    def add(group: str, what: str, values: Iterable[float], unit: str = "", paper: str = "–", remark: str = "") -> None:
        findings.append(Finding(what, paper, mean_interval(list(values)), unit, remark, group))

    remarks: list[str] = []
    for load in LOADS:
        group = f"Figure 3.5, attained of 30 queries (load {load:g})"
        of = {label: runs["aqp", f"load={load}", label] for label in AQP}
        for label, found in of.items():
            add(group, label, (r.all for r in found))
            add(group, f"{label}, heavy", (r.attained.get("heavy", 0) for r in found))
        add(group, BOUND, (r.all for r in runs["aqp", f"load={load}", BOUND]))
        group = f"Figure 3.5, differences by seed (load {load:g})"
        _differences(findings, remarks, of, "rotary_aqp", BASELINES, group)
        _differences(findings, remarks, of, "rotary", (*BASELINES, "rotary_aqp"), group)
        for label in AQP:
            add(f"Figure 3.6(b), mean wait (load {load:g})", label, (r.waited_s for r in of[label]), "s")
    intervals = runs["aqp", "load=1.0", "rotary_aqp"]
    envelope = runs["aqp", "rule=envelope", "rotary_aqp, envelope"]
    for label, found in (("by intervals", intervals), ("by the envelope, as printed", envelope)):
        shares = (100.0 * r.false / max(r.all, 1) for r in found)
        add("Figure 3.6(a), false attainments of rotary_aqp", label, shares, "%")
        add("Figure 3.6(a), false attainments of rotary_aqp", f"{label}, attained", (r.all for r in found))
    for only, group in SINGLE.items():
        of = {label: runs["aqp", only, label] for label in AQP}
        for label in AQP:
            add(group, label, (r.all for r in of[label]))
        add(group, BOUND, (r.all for r in runs["aqp", only, BOUND]))
        for ours, others in (("rotary_aqp", BASELINES), ("rotary", (*BASELINES, "rotary_aqp"))):
            _differences(findings, remarks, of, ours, others, f"{group}, differences by seed")
    for larger in _larger():
        about = ", ".join(f"{k}={v}" for k, v in sorted(larger.items()))
        group = LARGER.format(
            scale=larger["scale"], which=f"{larger['only']} queries" if "only" in larger else "queries"
        )
        of = {label: runs["aqp", about, label] for label in AQP}
        for label, found in of.items():
            add(group, label, (r.all for r in found))
        add(group, BOUND, (r.all for r in runs["aqp", about, BOUND]))
        for ours, others in (("rotary_aqp", BASELINES), ("rotary", (*BASELINES, "rotary_aqp"))):
            _differences(findings, remarks, of, ours, others, f"{group}, differences by seed")
    for label in ("rotary_aqp", "rotary"):
        found = runs["aqp", "past=False", f"{label}, no past jobs"]
        add("Figure 3.8, attained without past jobs (load 1)", label, (r.all for r in found))
    for label in ABLATED:
        group = "Ablations of rotary, attained of 30 queries (load 2)"
        add(group, label, (r.all for r in runs["aqp", "load=2.0", f"rotary, {label}"]))
    _suspended(remarks, runs, add)
    _training(findings, remarks, runs, add)
    if request.curves is not None:
        _measured_curves(findings, {label: runs["dlt", f"curves={request.curves}", label] for label in DLT}, add)
    _overhead(findings, runs)
    _mixture(runs["mixed", "", "mixed"], runs["half-aqp", "", "half-aqp"], runs["half-dlt", "", "half-dlt"], add)
    return Findings(tuple(findings), tuple(remarks))


def _differences(
    findings: list[Finding], remarks: list[str], of: dict[str, list[RotaryRun]], ours: str, others: Sequence[str],
    group: str,
) -> None:  # fmt: skip
    """By seed, for the same jobs: how many more one policy attains than the others."""
    for other in others:
        gains = [float(a.all - b.all) for a, b in zip(of[ours], of[other], strict=True)]
        found = mean_interval(gains)
        findings.append(Finding(f"{ours} over {other}", "above 0", found, "", "", group))
        if found is not None and found.mean - (found.half_width or 0.0) <= 0:
            remarks.append(
                f"{group}: {'the paper has ' if ours == 'rotary_aqp' else ''}{ours} above {other}"
                f"{'' if ours == 'rotary_aqp' else ' is not shown'}; here the difference is {found.mean:.1f} ± "
                f"{found.half_width or 0.0:.1f}, which may be none."
            )


def _suspended(remarks: list[str], runs: dict[tuple[str, str, str], list[RotaryRun]], add: Callable[..., None]) -> None:
    """Where states are kept: attained, and seconds lost, by rule and by seed."""
    about = f"disk_mib_s={suspended.DISK_MIB_S}, load={suspended.LOAD}"
    of = {rule: runs["aqp", about, rule] for rule in suspended.RULES}
    ours = of["arbitrated"]
    for rule, found in of.items():
        add(suspended.GROUP, f"{rule}, attained of 30", (r.all for r in found))
        add(suspended.GROUP, f"{rule}, lost by pauses", (r.paused.lost_s for r in found), "s")
        add(suspended.GROUP, f"{rule}, pauses", (r.paused.pauses for r in found))
        if found is ours:
            continue
        both = list(zip(ours, found, strict=True))
        gains, saved = [float(a.all - b.all) for a, b in both], [b.paused.lost_s - a.paused.lost_s for a, b in both]
        group = f"{suspended.GROUP}, differences by seed"
        add(group, f"arbitrated over {rule}, attained", gains, "", "above 0")
        add(group, f"arbitrated over {rule}, saved", saved, "s", "above 0")
        for what, unit, values in (("more attained", "", gains), ("less time lost", " s", saved)):
            mean = mean_interval(values)
            if mean is not None and mean.mean - (mean.half_width or 0.0) <= 0:
                remarks.append(
                    f"{group}: {what} than by the rule '{rule}' is not shown: {mean.mean:.1f} ± "
                    f"{mean.half_width or 0.0:.1f}{unit}."
                )


def _mixture(
    mixed: list[RotaryRun], queries: list[RotaryRun], trainings: list[RotaryRun], add: Callable[..., None]
) -> None:
    """Both kinds on one machine under rotary, and each on its own half of it: by seed, for the same jobs.

    Training has no deadline in time, so in the end the same of it attains; what it loses meanwhile is told by hours.
    """
    group = "Training and queries on one machine, attained of 60"
    add(group, "rotary on the whole machine", (r.all for r in mixed))
    add(group, "each kind on its own half", (a.all + b.all for a, b in zip(queries, trainings, strict=True)))
    both = list(zip(mixed, queries, trainings, strict=True))
    add(group, "difference by seed", [m.all - a.all - b.all for m, a, b in both])
    add(group, "difference by seed, queries", [_of_queries(m) - a.all for m, a, _b in both])
    for hours in HOURS:
        gains = [_within(m, hours) - _within(b, hours) for m, _a, b in both]
        add(group, f"difference by seed, training within {hours} h", gains)


def _overhead(findings: list[Finding], runs: dict[tuple[str, str, str], list[RotaryRun]]) -> None:
    """Table 3.3: what each estimator takes, of the time of the whole workload."""
    for count, (run_s, printed) in PRINTED.items():
        group, of = (
            f"Table 3.3, overhead of estimators, {count} training jobs",
            runs["dlt", f"trainings={count}", OVERHEAD],
        )
        findings.append(
            Finding("overall running time", f"{run_s:,.0f}", mean_interval([r.took_s for r in of]), "s", "", group)
        )
        for what, spent_s in printed.items():
            share = mean_interval([100.0 * r.spent_s[what] / r.took_s for r in of])
            remark = f"paper {spent_s:g} s, ours {sum(r.spent_s[what] for r in of) / len(of):.2g} s of CPU time"
            findings.append(Finding(what, f"{100.0 * spent_s / run_s:.4f}", share, "%", remark, group))


def _of_queries(run: RotaryRun) -> int:
    return sum(run.attained.get(name, 0) for name in CLASSES)


def _within(run: RotaryRun, hours: int) -> int:
    return sum(at_s <= 3600.0 * hours for at_s in run.training_ended_s)


def _training(
    findings: list[Finding], remarks: list[str], runs: dict[tuple[str, str, str], list[RotaryRun]],
    add: Callable[..., None],
) -> None:  # fmt: skip
    of = {label: runs["dlt", "", label] for label in DLT}
    for minutes in (120, 240):
        group = f"Figure 3.9, attained of 30 training jobs within {minutes} min"
        for label, found in of.items():
            add(group, label, (sum(at <= 60.0 * minutes for at in r.ended_s) for r in found))
        group = f"Figure 3.9, least attainment rate after {minutes} min"
        for label, found in of.items():
            add(group, label, (100.0 * min(r.rates[str(minutes)]) for r in found), "%")
        group = f"Figure 3.9, jobs at an attainment rate of 100 % after {minutes} min"
        for label, found in of.items():
            add(group, label, (sum(rate >= 1.0 for rate in r.rates[str(minutes)]) for r in found))
    for label, found in of.items():
        for kind in CRITERIA:
            add("Training jobs attained in the end", f"{label}, {kind}", (r.attained.get(kind, 0) for r in found))
    add(
        "Figure 3.10, attained within 120 min without past jobs", "rotary",
        (sum(at <= 7200.0 for at in r.ended_s) for r in runs["dlt", "past=False", "rotary, no past jobs"]),
    )  # fmt: skip
    fair, efficient = of["rotary_dlt, T = 100 %"], of["rotary_dlt, T = 0 %"]
    for other in ("srf", "bcf", "laf"):
        for what, ours, value in (
            ("T = 0 %, jobs at 100 % after 120 min", efficient, lambda r: float(sum(x >= 1.0 for x in r.rates["120"]))),
            ("T = 100 %, least attainment rate after 120 min, in %", fair, lambda r: 100.0 * min(r.rates["120"])),
        ):
            gain = mean_interval([value(a) - value(b) for a, b in zip(ours, of[other], strict=True)])
            group = "Figure 3.9, differences by seed"
            findings.append(Finding(f"{what}, over {other}", "above 0", gain, "", "", group))
            if gain is not None and gain.mean - (gain.half_width or 0.0) <= 0:
                remarks.append(f"{group}: {what}, over {other}: {gain.mean:.1f} ± {gain.half_width or 0.0:.1f}.")
    remarks.append(
        "Deadlines of training are in epochs, so in the end every policy attains the same jobs: they differ in when."
    )


def _measured_curves(findings: list[Finding], of: dict[str, list[RotaryRun]], add: Callable[..., None]) -> None:
    """Training that learns as Pollux measured: attained in time, and rotary against each other policy, by seed."""

    def within(run: RotaryRun, hours: int) -> int:
        return sum(at_s <= 3600.0 * hours for at_s in run.ended_s)

    for hours in HOURS:
        group = f"Measured learning curves, attained of 30 training jobs within {hours} h"
        for label, found in of.items():
            add(group, label, (within(r, hours) for r in found))
        for other in ("srf", "bcf", "laf"):
            gains = [float(within(a, hours) - within(b, hours)) for a, b in zip(of["rotary"], of[other], strict=True)]
            findings.append(
                Finding(f"rotary over {other}", "–", mean_interval(gains), "", "", f"{group}, differences by seed")
            )


def draw_figures(_request: Request, results: Results, folder: Path) -> list[Path]:
    """Attained queries by policy and class (Figure 3.5), and attained training jobs over time (Figure 3.9)."""
    with drawing() as figure:
        sheet = figure((7.6, 3.8))
        axes = sheet.add_subplot()
        for at, label in enumerate(AQP):
            found = [r for c, r in results if c.label == label and c.settings["workload"] == {"load": 1.0}]
            below = 0.0
            for n, name in enumerate(CLASSES):
                mean = sum(r.attained.get(name, 0) for r in found) / len(found)
                axes.bar(at, mean, bottom=below, color=colour(n), label=name if not at else None)
                below += mean
        axes.set_xticks(range(len(AQP)), list(AQP), rotation=15)
        axes.set_ylabel("attained of 30")
        axes.legend()
        files = save(sheet, folder, "figure-3.5-attained-queries")
        sheet = figure((7.6, 3.8))
        axes = sheet.add_subplot()
        for n, label in enumerate(DLT):
            found = [
                r
                for c, r in results
                if c.label == label and c.settings["which"] == "dlt" and not c.settings["workload"]
            ]
            ends = sorted(at / 60.0 for r in found for at in r.ended_s)
            axes.step(
                ends, [(i + 1) / len(found) for i in range(len(ends))], where="post", color=colour(n), label=label
            )
        axes.set_xlabel("minutes")
        axes.set_ylabel("attained of 30")
        axes.legend()
        return files + save(sheet, folder, "figure-3.9-attained-training")


REPRODUCTION = Reproduction(
    "rotary",
    "Liu et al., Rotary: A Resource Arbitration Framework for Progressive Iterative Analytics, ICDE'23",
    "30 queries on 20 cores, 30 training jobs on 4 GPUs, and both on one machine",
    assumptions,
    cases,
    run_case,
    RotaryRun,
    compare_with_paper,
    draw_figures,
    takes={"curves": "Pollux's validation curves, for training beside the parametric families"},
)
