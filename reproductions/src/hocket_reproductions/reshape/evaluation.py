"""Reshape's evaluation: four workloads on 16 GPUs of two kinds, under three approaches.

The simulated jobs are those of `workloads/reshape.py`, where all that the paper leaves open is fixed, in two readings.
Under Reshape
jobs can be prepared before they have GPUs; under the other two approaches every change terminates a job.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from random import Random

from msgspec.structs import replace

from hocket.estimators.quality import refitted
from hocket.executors.simulated import BeliefMode, simulate
from hocket.model.criterion import Goal
from hocket.model.curve import Beliefs
from hocket.policies import find as find_policy
from hocket.reports.account import account
from hocket.reports.mean_interval import mean_interval
from hocket.reproductions import Assumption, Case, Finding, Findings, Reproduction, Request, Results
from hocket.workloads.gavel import GavelSpeeds, read_gavel
from hocket.workloads.reshape import COSTS, JOB_SETS, KINDS, READINGS, REPORTS, SIZES, WORKLOADS, reshape_workload
from hocket.workloads.truth import Submission, Workload
from hocket_reproductions.reshape.bounds import least_s
from hocket_reproductions.reshape.figures import draw_figures
from hocket_reproductions.reshape.run_result import ReshapeRun, retold

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
