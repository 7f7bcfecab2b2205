"""Harmony's evaluation: 80 parameter-server jobs on 100 machines, against isolated and naively co-located ones.

The jobs are those of `workloads/harmony.py`, where everything that the paper leaves open is fixed. Every run simulates
its phases.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from random import Random
from time import process_time
from typing import Any

from hocket.executors.simulated import memory, phases, simulate
from hocket.executors.simulated.beliefs import parse_beliefs
from hocket.policies import find as find_policy
from hocket.reports.account import account
from hocket.reports.mean_interval import MeanInterval, mean_interval
from hocket.reproductions import Assumption, Case, Finding, Findings, Reproduction, Request, Results
from hocket.workloads import harmony as jobs
from hocket.workloads.philly import read_philly
from hocket_reproductions.harmony.figures import draw_figures
from hocket_reproductions.harmony.measurements import ERRORS, all_measurements
from hocket_reproductions.harmony.run_result import HarmonyRun, groups_formed, standing_still, use_over_time

OURS, PAPER, USE, ISOLATED, NAIVE = "harmony", "as printed", "utilisation", "isolated", "naive"
TURNS, GROUPS = "turns alone", "no reloading"  # the ablation: subtasks, and grouping with them
POLICIES = {ISOLATED: "isolated", NAIVE: "naive", TURNS: "naive"}  # all others are harmony
SETTINGS: dict[str, dict[str, Any]] = {
    PAPER: {"variant": "paper"}, USE: {"objective": "use"}, TURNS: {"coordinated": True}, GROUPS: {"reloading": False},
}  # fmt: skip
NOISE = 0.03  # of a phase on one machine
NAIVE_SAMPLES = 200
GAPS_MIN = (2.0, 4.0, 8.0)
WINDOWS = 5  # of the trace's arrivals


def cases(request: Request) -> list[Case]:
    """Main runs, ablation, subsets, arrivals, errors, and what is measured without a run."""
    if request.trace is not None:
        _windows(request.trace)  # Report errors in the input before anything runs.
    found = [Case("measurements", 0)]
    for seed in request.seeds:
        found += [Case(label, seed, {}) for label in (OURS, PAPER, USE, ISOLATED, TURNS, GROUPS)]
        for which in ("compute", "communication"):
            found += [Case(label, seed, {"which": which}) for label in (OURS, ISOLATED)]
        for gap in GAPS_MIN:
            found += [Case(label, seed, {"gap_s": 60 * gap}) for label in (OURS, ISOLATED)]
        found += [Case(OURS, seed, {"beliefs": f"noisy:{error:g}"}) for error in ERRORS]
    found += [Case(NAIVE, seed, {}) for seed in range(NAIVE_SAMPLES)]
    if request.trace is not None:
        found += [
            Case(label, 0, {"trace": request.trace, "window": n}) for n in range(WINDOWS) for label in (OURS, ISOLATED)
        ]
    return found


def _windows(path: str) -> list[tuple[float, ...]]:
    """Arrivals of 80 jobs in a row from a trace, at several places."""
    times = [s.at_s for s in read_philly(path).submissions]
    if len(times) < 80 * WINDOWS:
        raise ValueError(f"--trace '{path}' must have {80 * WINDOWS} jobs at least, not {len(times)}")
    rng = Random("harmony/windows")
    starts = [rng.randrange(len(times) - 80) for _ in range(WINDOWS)]
    return [tuple(t - times[i] for t in times[i : i + 80]) for i in starts]


def run_case(case: Case, began: Callable[[int], None], progressed: Callable[[int], None]) -> HarmonyRun:
    """One workload under one approach, or the measurements."""
    began(1)
    if case.label == "measurements":
        played = HarmonyRun(numbers=all_measurements())
        progressed(1)
        return played
    arrivals_s: tuple[float, ...] = ()
    if "trace" in case.settings:
        arrivals_s = _windows(case.settings["trace"])[case.settings["window"]]
    # Naive runs are samples of one workload: their seed decides which jobs share machines.
    workload = jobs.harmony_workload(
        case.settings.get("which", "all"), case.settings.get("gap_s", 0.0), 0 if case.label == NAIVE else case.seed,
        arrivals_s, rests_s=60.0, spills=case.label not in (TURNS, GROUPS),
    )  # fmt: skip
    policy = find_policy(POLICIES.get(case.label, "harmony")).bound(SETTINGS.get(case.label, {}))
    told = {ISOLATED: "oracle"}.get(case.label, "learned")
    beliefs = parse_beliefs(case.settings.get("beliefs", told))
    since = process_time()
    ran = simulate(workload, workload.nodes, policy, seed=case.seed, beliefs=beliefs, noise=NOISE)
    cpu_s = process_time() - since
    accounted = account(ran.journal.header, ran.journal)
    ended = [r.jct_s for r in accounted.jobs if r.jct_s is not None]
    machine_s = accounted.makespan_s * len(workload.nodes)
    moved_s, moved_at_most_s = standing_still(ran.journal, workload)
    first = case.seed == 0 and not case.settings
    grouped = case.label == OURS and ("which" in case.settings or not case.settings)
    formed = groups_formed(ran.journal, workload, NOISE, case.seed) if grouped else []
    played = HarmonyRun(
        accounted.makespan_s,
        tuple(ended),
        len(accounted.jobs) - len(ended),
        accounted.counts.failures,
        moved_s / machine_s if machine_s else 0.0,
        moved_at_most_s / machine_s if machine_s else 0.0,
        use_over_time(accounted, workload, NOISE, case.seed) if not case.settings and case.label != NAIVE else (),
        tuple(f.error for f in formed),
        tuple(f.plain_error for f in formed),
        tuple((f.machines, f.jobs) for f in formed),
        tuple(1e3 * s for s in ran.decision_s) if first else (),
        cpu_s,
    )
    progressed(1)
    return played


# -- what it showed -----------------------------------------------------------------------------------------


Runs = dict[tuple[str, str], dict[int, HarmonyRun]]  # (approach, what is changed) → by seed


def compare_with_paper(request: Request, results: Results) -> Findings:
    """The paper's figures and ours."""
    runs: Runs = {}
    numbers: dict[str, float] = {}
    for case, played in results:
        if case.label == "measurements":
            numbers = played.numbers
            continue
        key = "trace" if "trace" in case.settings else " ".join(f"{k}={v}" for k, v in case.settings.items())
        runs.setdefault((case.label, key), {})[case.settings.get("window", case.seed)] = played
    found = [
        *_speed_ups(runs), *_ablation(runs), *_utilisation(runs), *_groups(runs), *_other_jobs(runs, request),
        *_told_wrong(runs, numbers), *_prediction(runs), *_measurements(numbers),
    ]  # fmt: skip
    return Findings(tuple(found), tuple(_remarks(found, runs)))


def _faster(
    runs: Runs, label: str, group: str, what: str, papers: tuple[str, str], remark: str = "", key: str = ""
) -> Iterable[Finding]:
    """An approach against isolated, on the same jobs: mean JCT and makespan."""
    others, mine = runs[ISOLATED, key if (ISOLATED, key) in runs else ""], runs[label, key]
    pairs = [(mine[s], others.get(s) or others[0]) for s in mine]
    jct = mean_interval([b.jct_mean_s / a.jct_mean_s for a, b in pairs])
    makespan = mean_interval([b.makespan_s / a.makespan_s for a, b in pairs])
    yield Finding(f"{what}, mean JCT", papers[0], jct, "×", remark, group)
    yield Finding(f"{what}, makespan", papers[1], makespan, "×", remark, group)


def _speed_ups(runs: Runs) -> Iterable[Finding]:
    group = "Figure 10, times faster than isolated"
    yield from _faster(runs, OURS, group, "harmony", ("2.11×", "1.60×"))
    yield from _faster(runs, USE, group, "harmony, by utilisation", ("–", "–"), "objective=use")
    yield from _faster(runs, PAPER, group, "Algorithm 1 as printed", ("–", "–"), "variant=paper")
    yield from _faster(runs, NAIVE, group, "naive, mean", ("1.11×", "1.09×"), f"{NAIVE_SAMPLES} samples")
    isolated_s, sampled_s = runs[ISOLATED, ""][0].jct_mean_s, [p.jct_mean_s for p in runs[NAIVE, ""].values()]
    yield Finding("naive, best, mean JCT", "–", MeanInterval(isolated_s / min(sampled_s)), "×", group=group)
    yield Finding("naive, worst, mean JCT", "< 1×", MeanInterval(isolated_s / max(sampled_s)), "×", group=group)


def _ablation(runs: Runs) -> Iterable[Finding]:
    group = "Ablation, times faster than isolated"
    for label, what, gain in (
        (TURNS, "subtasks", "32 % of the gain"),
        (GROUPS, "+ grouping", "81 % of the gain"),
        (OURS, "+ reloading", "all of it"),
    ):
        yield from _faster(runs, label, group, what, (gain, gain))


def _utilisation(runs: Runs) -> Iterable[Finding]:
    group, mine = "Figure 11, mean utilisation", list(runs[OURS, ""].values())
    for label, papers in ((OURS, ("93.2 %", "83.1 %")), (ISOLATED, ("–", "–"))):
        for paper, of, what in zip(papers, ("cpu", "net"), ("CPU", "network"), strict=True):
            ours = mean_interval([100 * p.mean(of) for p in runs[label, ""].values()])
            yield Finding(f"{label}, {what}", paper, ours, "%", group=group)
    yield Finding("jobs at once", "27.2", mean_interval([p.mean("jobs") for p in mine]), group=group)
    yield Finding("groups at once", "6.7", mean_interval([p.mean("groups") for p in mine]), group=group)
    moved = mean_interval([100 * p.moved_share for p in mine])
    yield Finding("migrations, of machine time", "< 2 %", moved, "%", group=group)
    at_most = mean_interval([100 * p.moved_at_most for p in mine])
    yield Finding("the same if companions stood still too", "–", at_most, "%", group=group)
    yield Finding("CPU time of the simulation", "–", mean_interval([p.cpu_s for p in mine]), "s", group=group)


def _groups(runs: Runs) -> Iterable[Finding]:
    for what, key in (
        ("all jobs", ""),
        ("compute-heavy", "which=compute"),
        ("communication-heavy", "which=communication"),
    ):
        formed = [g for p in runs[OURS, key].values() for g in p.groups]
        for n, unit in enumerate(("machines", "jobs")) if formed else ():
            mean = MeanInterval(sum(g[n] for g in formed) / len(formed))
            yield Finding(f"{what}, {unit} a group", "–", mean, group="Figure 12")


def _other_jobs(runs: Runs, request: Request) -> Iterable[Finding]:
    """Subsets of the jobs, and other arrivals."""
    for which, papers in (("compute", ("2.31×", "1.58×")), ("communication", ("1.83×", "1.57×"))):
        yield from _faster(runs, OURS, "Section V-D, 60 jobs", f"{which}-heavy", papers, key=f"which={which}")
    group = "Section V-D, Poisson arrivals"
    for gap in GAPS_MIN:
        papers = ("2.01×", "1.56×") if gap == 8 else ("–", "–")
        yield from _faster(runs, OURS, group, f"every {gap:g} min", papers, key=f"gap_s={60 * gap}")
    if request.trace is not None:
        group, papers = "Section V-D, arrivals of a trace", ("2.02×", "1.57×")
        yield from _faster(runs, OURS, group, "Philly instead of Google", papers, key="trace")


def _told_wrong(runs: Runs, numbers: dict[str, float]) -> Iterable[Finding]:
    group = "Figure 13(a), kept where phases are told wrong"
    for error in ERRORS:
        noisy, right = runs[OURS, f"beliefs=noisy:{error:g}"], runs[OURS, ""]
        paper = "> 90 %" if error <= 0.075 else "–"
        for what, of in (("makespan", "makespan_s"), ("mean JCT", "jct_mean_s")):
            share = [100 * getattr(right[s], of) / getattr(noisy[s], of) for s in right]
            yield Finding(f"speed-up at {error:.0%} error, {what}", paper, mean_interval(share), "%", group=group)
        if (kept := numbers.get(f"kept_{error:g}")) is not None:
            what = f"work done a second at {error:.0%} error, all grouped at once"
            yield Finding(what, "–", MeanInterval(100 * kept), "%", group=group)


def _prediction(runs: Runs) -> Iterable[Finding]:
    group, mine = "Figure 13(b), error of the predicted round", list(runs[OURS, ""].values())
    for what, all_errors in (
        ("foreseen", [e for p in mine for e in p.errors]), ("equation 1", [e for p in mine for e in p.plain_errors])
    ):  # fmt: skip
        errors = sorted(map(abs, all_errors))
        if errors:
            p95, remark = errors[int(0.95 * (len(errors) - 1))], f"{len(errors)} groups"
            yield Finding(f"{what}, mean", "< 5 %", MeanInterval(100 * sum(errors) / len(errors)), "%", remark, group)
            yield Finding(f"{what}, 95th percentile", "< 5 %", MeanInterval(100 * p95), "%", group=group)


def _measurements(numbers: dict[str, float]) -> list[Finding]:
    group, time, spill = "Figure 14, against the exhaustive search", "Scheduling time, CPU", "Section V-G, spilling"
    rows: list[tuple[str, str, str, float, str, str]] = [
        (group, "ours, mean", "98 %", 100, "quality_mean", "%"),
        (group, "ours, worst", "–", 100, "quality_worst", "%"),
        (group, "ours, by work done, mean", "–", 100, "work_mean", "%"),
        (group, "ours, by work done, worst", "–", 100, "work_worst", "%"),
        (group, "as printed, mean", "–", 100, "printed_mean", "%"),
        (group, "as printed, worst", "–", 100, "printed_worst", "%"),
        (time, "80 jobs, 100 machines", "1.2 s", 1e3, "work_s_80", "ms"),
        (time, "1,000 jobs, 1,000 machines", "–", 1e3, "work_s_1000", "ms"),
        (time, "8,000 jobs, 10,000 machines", "5 s", 1e3, "work_s_8000", "ms"),
        (time, "8,000 jobs, utilisation", "–", 100, "work_u_8000", "%"),
        (time, "64,000 jobs, 64,000 machines", "–", 1e3, "work_s_64000", "ms"),
        (time, "80 jobs, by utilisation", "–", 1e3, "use_s_80", "ms"),
        (time, "8,000 jobs, by utilisation", "–", 1e3, "use_s_8000", "ms"),
        (time, "8,000 jobs, by utilisation: utilisation", "–", 100, "use_u_8000", "%"),
        (spill, "round with the best fixed α", "52.9 s", 1, "alpha_fixed_s", "s"),
        (spill, "best fixed α", "0.3", 1, "alpha_fixed_best", ""),
        (spill, "round with adaptive α", "44.3 s", 1, "alpha_adaptive_s", "s"),
        (spill, "mean adaptive α", "–", 1, "alpha_mean", ""),
        (spill, "if half of all input was read: best fixed α", "0.3", 1, "half_fixed_best", ""),
        (spill, "… its round", "52.9 s", 1, "half_fixed_s", "s"),
        (spill, "… round with adaptive α", "44.3 s", 1, "half_adaptive_s", "s"),
    ]
    return [
        Finding(what, paper, MeanInterval(scale * numbers[name]), unit, group=heading)
        for heading, what, paper, scale, name, unit in rows
        if name in numbers
    ]


def _remarks(found: Sequence[Finding], runs: Runs) -> Iterable[str]:
    short = [
        f"{f.what} ({f.ours.mean:.2f} instead of {f.paper})"
        for f in found
        if f.unit == "×" and f.ours is not None and f.paper.endswith("×") and f.paper[0].isdigit()
        and f.ours.mean < float(f.paper[:-1])
    ]  # fmt: skip
    if short:
        yield f"Below the paper's speed-up: {'; '.join(short)}."
    if left := sum(p.unfinished for by_seed in runs.values() for p in by_seed.values()):
        yield f"{left} jobs did not end; they are in none of these figures."
    failures = sum(p.failures for p in runs[NAIVE, ""].values())
    yield f"Naive co-location ran out of memory {failures / len(runs[NAIVE, '']):.1f} times a run, on average."
    yield (
        "The workload was corrected once after the first comparison, where its phases contradicted what the paper says "
        "of its own (COMM, mini-batch, memory above); under the first reading harmony was slower than isolated."
    )


# -- what was assumed ---------------------------------------------------------------------------------------


def assumptions(_request: Request) -> list[Assumption]:
    """Everything that the paper leaves open, with the values used here."""
    times = ", ".join(f"{name} {seconds:,g}" for name, seconds in jobs.CORE_S_PER_GB.items())
    return [
        Assumption(
            "COMP", f"core-seconds a GB: {times}; eight cores share it",
            "measured: python -m benchmarks.training_pass (NumPy, one core of this machine)",
        ),
        Assumption(
            "COMM", f"{jobs.EXCHANGED:.2%} of the model pulled and pushed by each worker over 1.1 Gbps",
            "Table I; section V-G: eight jobs iterate within 44.3 s, which whole models (1,181 s) contradict",
        ),
        Assumption(
            "ten hyper-parameters", f"mini-batches of {jobs.SETTINGS[0]:.2%} to {jobs.LARGEST_BATCH:.1%} of the input",
            "ours, none is named; so large that COMP equals COMM on 16 machines, as the paper's 'around 50 %' has it",
        ),
        Assumption(
            "in memory", f"data takes {jobs.IN_MEMORY:g} times its size",
            "Figure 4: on 16 machines two of NMF, MLR and Lasso fit, three do not (1.5 to 2.4 for data of mean size)",
        ),
        Assumption("convergence", f"after {jobs.EPOCHS} epochs, every job", "ours: the paper gives no run times"),
        Assumption("least machines", "input and model fill 80 % of the memory at most", "ours"),
        Assumption(
            "link", f"a COMM keeps it busy for {phases.LINK_BUSY:.0%} of its time; a secondary has the rest",
            "ours: the paper only says that one COMM does not fill it",
        ),
        Assumption(
            "noise", f"each phase on each machine varies by {NOISE:.0%}; {phases.STRAGGLERS:.1%} take twice as long",
            "ours; a job alone waits for its slowest machine as well",
        ),
        Assumption(
            "memory", f"collecting costs {memory.COLLECTING:.0%} of COMP for each unit of live over free memory; disk "
            f"{memory.DISK_MIB_S:g} MiB/s for what a mini-batch reads, unpacking {memory.UNPACKING_MIB_S:g} MiB/s",
            "m4.2xlarge; the rest ours",
        ),
        Assumption(
            "migration", "model written, model and input read again, on 16 machines; the job stands still meanwhile",
            "section IV-B4",
        ),
        Assumption(
            "profiling", "three iterations; newcomers at the start in groups of 16 machines and four jobs", "ours"
        ),
        Assumption("isolated", "knows COMP and COMM of every job; starts at the least machines", "section V-A"),
        Assumption(
            "naive", "two jobs, by lot, on 16 machines or as many as their data needs; all shared equally",
            "ours; Figure 4",
        ),
    ]  # fmt: skip


REPRODUCTION = Reproduction(
    "harmony",
    "Lee et al., Harmony: A Scheduling Framework Optimized for Multiple Distributed Machine Learning Jobs, ICDCS'21",
    "80 parameter-server jobs on 100 machines, against isolated and naive co-location",
    assumptions,
    cases,
    run_case,
    HarmonyRun,
    compare_with_paper,
    draw_figures,
    seeds=10,
    takes={"trace": "arrivals (the Philly table) instead of Google's"},
)
