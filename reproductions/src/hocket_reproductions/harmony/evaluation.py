"""Harmony's evaluation: 80 parameter-server jobs on 100 machines, against isolated and naively co-located ones.

The jobs are those of `workloads/harmony.py`, where everything that the paper leaves open is fixed, their run times in
two readings. Every run simulates their phases. Isolated jobs begin on the fewest machines that hold their data, or on
16 at least, as all that the paper measures of single jobs (Figures 2, 4 and 9): the paper says neither.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from random import Random
from time import process_time
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from hocket.executors.simulated import memory, phases, simulate
from hocket.executors.simulated.beliefs import parse_beliefs
from hocket.policies import find as find_policy
from hocket.reports.account import account
from hocket.reports.mean_interval import MeanInterval, mean_interval
from hocket.reproductions import Assumption, Case, Finding, Findings, Reproduction, Request, Results
from hocket.reproductions.bounds import JobNeeds, least_makespan_s, least_mean_jct_s
from hocket.workloads import harmony as jobs
from hocket.workloads.philly import read_philly
from hocket.workloads.truth import Workload
from hocket_reproductions.harmony.figures import draw_figures
from hocket_reproductions.harmony.measurements import ERRORS, all_measurements
from hocket_reproductions.harmony.run_result import HarmonyRun, groups_formed, standing_still, use_over_time

OURS, PAPER, USE, NAIVE = "harmony", "as printed", "utilisation", "naive"
ISOLATED, ISOLATED_16 = "isolated", "isolated on 16"
BASELINES = {ISOLATED_16: "isolated on 16 machines or more", ISOLATED: "isolated on the fewest machines"}
TURNS, GROUPS = "turns alone", "no reloading"  # the ablation: subtasks, and grouping with them
POLICIES = {ISOLATED: "isolated", ISOLATED_16: "isolated", NAIVE: "naive", TURNS: "naive"}  # all others are harmony
SETTINGS: dict[str, dict[str, Any]] = {
    PAPER: {"variant": "paper"}, USE: {"objective": "use"}, TURNS: {"coordinated": True}, GROUPS: {"reloading": False},
    ISOLATED_16: {"least": jobs.REFERENCE},
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
    for reading in jobs.READINGS:
        found += _cases(reading, request)
    return found


def _cases(reading: str, request: Request) -> Iterable[Case]:
    """What rests on how long jobs run is run in both readings; what naive jobs and errors do, in the first only."""
    compared, is_first = (OURS, *BASELINES), reading == jobs.READINGS[0]
    for seed in request.seeds:
        for label in (*compared, TURNS, GROUPS, *((PAPER, USE) if is_first else ())):
            yield Case(label, seed, {"reading": reading})
        for label in compared:
            for which in ("compute", "communication"):
                yield Case(label, seed, {"reading": reading, "which": which})
            for gap in GAPS_MIN:
                yield Case(label, seed, {"reading": reading, "gap_s": 60 * gap})
        for error in ERRORS if is_first else ():
            yield Case(OURS, seed, {"reading": reading, "beliefs": f"noisy:{error:g}"})
    for seed in range(NAIVE_SAMPLES) if is_first else ():
        yield Case(NAIVE, seed, {"reading": reading})
    if request.trace is not None:
        for n in range(WINDOWS):
            for label in compared:
                yield Case(label, 0, {"reading": reading, "trace": request.trace, "window": n})


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
    workload = _workload(case)
    policy = find_policy(POLICIES.get(case.label, "harmony")).bound(SETTINGS.get(case.label, {}))
    beliefs = parse_beliefs(case.settings.get("beliefs", "oracle" if case.label in BASELINES else "learned"))
    since = process_time()
    ran = simulate(workload, workload.nodes, policy, seed=case.seed, beliefs=beliefs, noise=NOISE)
    cpu_s = process_time() - since
    accounted = account(ran.journal.header, ran.journal)
    ended = [r.jct_s for r in accounted.jobs if r.jct_s is not None]
    machine_s = accounted.makespan_s * len(workload.nodes)
    moved_s, moved_at_most_s = standing_still(ran.journal, workload)
    is_main = set(case.settings) == {"reading"}
    grouped = case.label == OURS and (is_main or "which" in case.settings)
    formed = groups_formed(ran.journal, workload, NOISE, case.seed) if grouped else []
    played = HarmonyRun(
        accounted.makespan_s,
        tuple(ended),
        len(accounted.jobs) - len(ended),
        accounted.counts.failures,
        moved_s / machine_s if machine_s else 0.0,
        moved_at_most_s / machine_s if machine_s else 0.0,
        use_over_time(accounted, workload, NOISE, case.seed) if is_main and case.label != NAIVE else (),
        tuple(f.error for f in formed),
        tuple(f.plain_error for f in formed),
        tuple((f.machines, f.jobs) for f in formed),
        tuple(1e3 * s for s in ran.decision_s) if is_main and case.seed == 0 else (),
        cpu_s,
    )
    progressed(1)
    return played


def _workload(case: Case) -> Workload:
    arrivals_s: tuple[float, ...] = ()
    if "trace" in case.settings:
        arrivals_s = _windows(case.settings["trace"])[case.settings["window"]]
    # Naive runs are samples of one workload: their seed decides which jobs share machines.
    return jobs.harmony_workload(
        case.settings.get("which", "all"), case.settings.get("gap_s", 0.0), 0 if case.label == NAIVE else case.seed,
        arrivals_s, rests_s=60.0, spills=case.label not in (TURNS, GROUPS), reading=case.settings["reading"],
    )  # fmt: skip


def works(workload: Workload) -> list[JobNeeds]:
    """What any scheduler has to do for each job: processors compute, links are busy where its data fits at least."""
    found, machines = [], len(workload.nodes)
    for s in workload.submissions:
        truth = s.truth
        iterations = truth.run_s / (truth.comp_s + truth.comm_s)
        cpu_s = iterations * truth.comp_s * truth.reference_size / machines
        link_s = iterations * truth.comm_s
        net_s = link_s * phases.LINK_BUSY * s.job.sizes[0] / machines
        alone_s = truth.costs.prepare_s + truth.costs.start_s + cpu_s + link_s
        found.append(JobNeeds(s.at_s, (cpu_s, net_s), alone_s))
    return found


# -- what it showed -----------------------------------------------------------------------------------------


Runs = dict[tuple[str, str], dict[int, HarmonyRun]]  # (approach, what is changed) → by seed
Bounds = dict[
    str, dict[int, tuple[float, float, list[JobNeeds]]]
]  # what is changed → by seed: mean JCT, makespan, of what


def compare_with_paper(request: Request, results: Results) -> Findings:
    """The paper's figures and ours, for both readings and both baselines."""
    numbers: dict[str, float] = next((played.numbers for case, played in results if case.label == "measurements"), {})
    found: list[Finding] = []
    remarks: list[str] = []
    for reading in jobs.READINGS:
        of_it = [(case, played) for case, played in results if case.settings.get("reading") == reading]
        runs, bounds = _by_setting(of_it)
        shown: list[Finding] = []
        for baseline in BASELINES:
            shown += _compared(Comparison(runs, bounds, baseline), request)
        shown += [*_utilisation(runs, bounds), *_groups(runs), *_told_wrong(runs), *_prediction(runs)]
        found += [replace(f, group=f"{f.group} ({reading})") for f in shown]
        remarks += [f"With {reading}: {remark}" for remark in _remarks(runs)]
    found += _measurements(numbers)
    return Findings(tuple(found), (*remarks, *_shortfalls(found), _CORRECTED))


class Comparison(Struct, frozen=True):
    """The runs of one reading against one baseline."""

    runs: Runs
    bounds: Bounds
    baseline: str


def _by_setting(results: Results) -> tuple[Runs, Bounds]:
    runs: Runs = {}
    bounds: Bounds = {}
    for case, played in results:
        changed = {k: v for k, v in case.settings.items() if k != "reading"}
        key = "trace" if "trace" in changed else " ".join(f"{k}={v}" for k, v in changed.items())
        number = changed.get("window", case.seed)
        runs.setdefault((case.label, key), {})[number] = played
        if case.label == ISOLATED:  # The same jobs for all: the bounds are worked out once.
            least = works(_workload(case))
            bounds.setdefault(key, {})[number] = least_mean_jct_s(least), least_makespan_s(least), least
    return runs, bounds


def _compared(of: Comparison, request: Request) -> Iterable[Finding]:
    """What the paper has relative to isolated."""
    yield from _speed_ups(of)
    yield from _ablation(of)
    yield from _other_jobs(of, request)


def _faster(
    of: Comparison, label: str, group: str, what: str, papers: tuple[str, str], remark: str = "", key: str = ""
) -> Iterable[Finding]:
    """An approach against isolated, on the same jobs: mean JCT and makespan, and the most that there is to gain."""
    if (label, key) not in of.runs:
        return
    others, mine, bounds = of.runs[of.baseline, key], of.runs[label, key], of.bounds[key]
    pairs = [(mine[s], others[s if s in others else 0], bounds[s if s in bounds else 0]) for s in mine]
    group = f"{group}, times faster than {BASELINES[of.baseline]}"
    for n, (name, field) in enumerate((("mean JCT", "jct_mean_s"), ("makespan", "makespan_s"))):
        ours = mean_interval([getattr(b, field) / getattr(a, field) for a, b, _least in pairs])
        bound = mean_interval([getattr(b, field) / least[n] for _a, b, least in pairs])
        yield Finding(f"{what}, {name}", papers[n], ours, "×", remark, group, bound)


def _speed_ups(of: Comparison) -> Iterable[Finding]:
    group = "Figure 10"
    yield from _faster(of, OURS, group, "harmony", ("2.11×", "1.60×"))
    yield from _faster(of, USE, group, "harmony, by utilisation", ("–", "–"), "objective=use")
    yield from _faster(of, PAPER, group, "Algorithm 1 as printed", ("–", "–"), "variant=paper")
    yield from _faster(of, NAIVE, group, "naive, mean", ("1.11×", "1.09×"), f"{NAIVE_SAMPLES} samples")
    sampled_s = [p.jct_mean_s for p in of.runs.get((NAIVE, ""), {}).values()]
    if not sampled_s:
        return
    isolated_s, group = of.runs[of.baseline, ""][0].jct_mean_s, f"{group}, times faster than {BASELINES[of.baseline]}"
    yield Finding("naive, best, mean JCT", "–", MeanInterval(isolated_s / min(sampled_s)), "×", group=group)
    yield Finding("naive, worst, mean JCT", "< 1×", MeanInterval(isolated_s / max(sampled_s)), "×", group=group)


def _ablation(of: Comparison) -> Iterable[Finding]:
    for label, what, gain in (
        (TURNS, "subtasks", "32 % of the gain"),
        (GROUPS, "+ grouping", "81 % of the gain"),
        (OURS, "+ reloading", "all of it"),
    ):
        yield from _faster(of, label, "Ablation", what, (gain, gain))


def _utilisation(runs: Runs, bounds: Bounds) -> Iterable[Finding]:
    group, mine = "Figure 11, mean utilisation", list(runs[OURS, ""].values())
    # Links can be kept busy without need, by more machines; processors cannot.
    most = [100 * sum(w.needs_s[0] for w in least) / end_s for _jct_s, end_s, least in bounds[""].values()]
    less = "the paper's Harmony has 1.65 times as much"
    isolated = ((baseline, ("56.5 %", "50.4 %"), less) for baseline in BASELINES)
    for label, papers, remark in ((OURS, ("93.2 %", "83.1 %"), ""), *isolated):
        for paper, of, what in zip(papers, ("cpu", "net"), ("CPU", "network"), strict=True):
            ours = mean_interval([100 * p.mean(of) for p in runs[label, ""].values()])
            bound = mean_interval([round(share, 6) for share in most]) if label == OURS and of == "cpu" else None
            yield Finding(f"{label}, {what}", paper, ours, "%", remark, group, bound)
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


def _other_jobs(of: Comparison, request: Request) -> Iterable[Finding]:
    """Subsets of the jobs, and other arrivals."""
    for which, papers in (("compute", ("2.31×", "1.58×")), ("communication", ("1.83×", "1.57×"))):
        yield from _faster(of, OURS, "Section V-D, 60 jobs", f"{which}-heavy", papers, key=f"which={which}")
    for gap in GAPS_MIN:
        papers = ("2.01×", "1.56×") if gap == 8 else ("–", "–")
        yield from _faster(
            of, OURS, "Section V-D, Poisson arrivals", f"every {gap:g} min", papers, key=f"gap_s={60 * gap}"
        )
    if request.trace is not None:
        group, papers = "Section V-D, arrivals of a trace", ("2.02×", "1.57×")
        yield from _faster(of, OURS, group, "Philly instead of Google", papers, key="trace")


def _told_wrong(runs: Runs) -> Iterable[Finding]:
    group = "Figure 13(a), kept where phases are told wrong"
    for error in ERRORS:
        noisy, right = runs.get((OURS, f"beliefs=noisy:{error:g}")), runs[OURS, ""]
        if noisy is None:
            continue
        paper = "> 90 %" if error <= 0.075 else "–"
        for what, of in (("makespan", "makespan_s"), ("mean JCT", "jct_mean_s")):
            share = [100 * getattr(right[s], of) / getattr(noisy[s], of) for s in right]
            yield Finding(f"speed-up at {error:.0%} error, {what}", paper, mean_interval(share), "%", group=group)


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
    wrong = "All jobs grouped at once by wrong phases, work done a second"
    rows: list[tuple[str, str, str, float, str, str]] = [
        *((wrong, f"at {error:.0%} error", "–", 100, f"kept_{error:g}", "%") for error in ERRORS),
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


def _remarks(runs: Runs) -> Iterable[str]:
    if left := sum(p.unfinished for by_seed in runs.values() for p in by_seed.values()):
        yield f"{left} jobs did not end; they are in none of these figures."
    if sampled := runs.get((NAIVE, "")):
        failures = sum(p.failures for p in sampled.values())
        yield f"naive co-location ran out of memory {failures / len(sampled):.1f} times a run, on average."


def _shortfalls(found: Sequence[Finding]) -> Iterable[str]:
    """What is below the paper, and why."""
    for f in found:
        if f.gap is not None and f.ours is not None:
            yield (
                f"{f.group}: {f.what} is {f.ours.mean:.2f} instead of {f.paper}; {f.gap.set_up:.2f} of that no "
                f"scheduler can reach here, and {f.gap.policy:.2f} at most are the policy's."
            )


_CORRECTED = (
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
        Assumption(
            "convergence",
            f"epochs: after {jobs.EPOCHS} epochs, every job; run-times: alone on {jobs.REFERENCE} machines, lognormal, "
            f"median {jobs.MEDIAN_S / 3600:g} h, sigma {jobs.SIGMA:g}",
            "the paper gives no run times. 93 % of all processors are busy over the whole makespan (Figure 11), and "
            "27.2 of 80 jobs run at once, so no few jobs can have most of the work; median and sigma are ours",
        ),
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
        Assumption(
            "isolated",
            f"knows COMP and COMM of every job; starts on the least machines, or on {jobs.REFERENCE} at least",
            f"section V-A has no number; all that is measured of single jobs (Figures 2, 4, 9) is on {jobs.REFERENCE}",
        ),
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
