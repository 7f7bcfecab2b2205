"""The paper's figures beside ours, and the order of the schedulers in each metric beside the paper's."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from msgspec import Struct

from hocket.reports.formatting import format_number
from hocket.reports.mean_interval import MeanInterval, mean_interval
from hocket.reports.mlfs_run import MlfsRun
from hocket.reproductions import Finding, Findings, Request, Results
from hocket_reproductions.mlfs.paper_values import CONTRIBUTIONS, METRICS, RATIOS, Metric

Runs = dict[str, list[MlfsRun]]  # approach → its runs, by seed
_CLOSE = 0.02  # of a single run's value: no more apart are about equal


def compare_with_paper(_request: Request, results: Results) -> Findings:
    """The paper's figures and ours."""
    small, large = by_jobs(results), by_times(results)
    findings: list[Finding] = []
    remarks: list[str] = []
    for where, runs in (("Figure 4", small), ("Figure 5", large)):
        if not runs:
            continue
        findings += _panels(where, runs)
        findings += _orders(where, runs)
        remarks += _differences(where, runs)
    findings += _ratios(small, large)
    findings += _parts(small)
    findings += _goals(small)
    return Findings(tuple(findings), (*remarks, *_others(results)))


def by_jobs(results: Results) -> dict[float, Runs]:
    """The runs on 80 GPUs, by how many jobs there are."""
    return _grouped(results, "jobs")


def by_times(results: Results) -> dict[float, Runs]:
    """The runs on the trace, by how many times each job comes."""
    return _grouped(results, "k")


def _grouped(results: Results, setting: str) -> dict[float, Runs]:
    found: dict[float, Runs] = {}
    for case, played in sorted(results, key=lambda r: r[0].seed):
        if setting in case.settings:
            found.setdefault(case.settings[setting], {}).setdefault(case.label, []).append(played)
    return dict(sorted(found.items()))


def _size(at: float) -> str:
    return f"{at:,.0f} jobs" if at > 16 else f"×{at:g}"


def _shown(runs: dict[float, Runs]) -> float:
    """Where most schedulers were run, the largest: what the tables show."""
    return max(runs, key=lambda at: (len(runs[at]), at))


def _panels(where: str, runs: dict[float, Runs]) -> Iterator[Finding]:
    at = _shown(runs)
    for metric in METRICS:
        group = f"{where}({metric.panel}), {metric.name}, {_size(at)}"
        for label, played in runs[at].items():
            if label.startswith("without"):
                continue
            ours = mean_interval([metric.value(p) for p in played])
            others = "; ".join(
                f"{_size(n)} {_mean(metric, found[label])}" for n, found in runs.items() if n != at and label in found
            )
            paper = metric.paper.get(label, "") if where == "Figure 4" else ""
            yield Finding(label, paper, ours, metric.unit, others, group)


def _mean(metric: Metric, played: Sequence[MlfsRun]) -> str:
    return format_number(sum(metric.value(p) for p in played) / len(played))


# -- orders -------------------------------------------------------------------------------------------------


def _orders(where: str, runs: dict[float, Runs]) -> Iterator[Finding]:
    at = _shown(runs)
    for metric in METRICS:
        known = [label for tier in metric.order for label in tier if label in runs[at]]
        if len(known) < 2:
            continue
        paper = " < ".join(" ≈ ".join(t for t in tier if t in known) for tier in metric.order if {*tier} & {*known})
        group = f"{where}, order of the schedulers, best first, {_size(at)}"
        yield Finding(f"{metric.name}", paper, None, "", f"ours: {order(metric, runs[at], known)}", group)


def order(metric: Metric, runs: Runs, labels: Sequence[str]) -> str:
    """The schedulers, best first; "≈" between neighbours that no interval tells apart."""
    sign = 1 if metric.less else -1
    ranked = sorted(labels, key=lambda label: sign * sum(map(metric.value, runs[label])) / len(runs[label]))
    text = ranked[0]
    for a, b in pairwise(ranked):
        text += f" < {b}" if is_better(metric, runs[a], runs[b]) else f" ≈ {b}"
    return text


def is_better(metric: Metric, a: Sequence[MlfsRun], b: Sequence[MlfsRun]) -> bool:
    """Is the first better, by more than chance? Seeds are paired; a single one must differ by a few percent."""
    gaps = [(metric.value(y) - metric.value(x)) * (1 if metric.less else -1) for x, y in zip(a, b, strict=False)]
    found = mean_interval(gaps)
    if found is None:
        return False
    if found.half_width is None:
        return found.mean > _CLOSE * max(abs(metric.value(b[0])), 1e-9)
    return found.mean > found.half_width


def _differences(where: str, runs: dict[float, Runs]) -> Iterator[str]:
    """A sentence for each metric in which ours orders schedulers otherwise than the paper."""
    at = _shown(runs)
    noise = "chance" if max(map(len, runs[at].values())) > 1 else f"{_CLOSE * 100:g} %"  # as `is_better` has it
    for metric in METRICS:
        wrong = [
            (ahead, behind)
            for i, tier in enumerate(metric.order)
            for later in metric.order[i + 1 :]
            for behind in tier
            for ahead in later
            if behind in runs[at] and ahead in runs[at] and is_better(metric, runs[at][ahead], runs[at][behind])
        ]
        if not wrong:
            yield (
                f"{where}, {metric.name}, {_size(at)}: no two schedulers stand the other way round than in the paper "
                f"by more than {noise}."
            )
            continue
        before: dict[str, list[str]] = {}
        for ahead, behind in wrong:
            before.setdefault(ahead, []).append(behind)
        pairs = "; ".join(f"{ahead} before {' and '.join(behind)}" for ahead, behind in before.items())
        reasons = " ".join(dict.fromkeys(why(metric.name, ahead, behind) for ahead, behind in wrong))
        yield f"{where}, {metric.name}, {_size(at)}: ours has {pairs}, the paper the other way round. {reasons}"


# -- ratios and parts ---------------------------------------------------------------------------------------


def _ratios(small: dict[float, Runs], large: dict[float, Runs]) -> Iterator[Finding]:
    metrics = {m.name: m for m in METRICS}
    for where, runs in (("80 GPUs", small), ("the trace", large)):
        if not runs:
            continue
        at = _shown(runs)
        for ratio in RATIOS:
            if ratio.ours in runs[at] and ratio.other in runs[at]:
                values = _gains(runs[at][ratio.ours], runs[at][ratio.other], metrics[ratio.metric].value)
                paper = ratio.simulated if runs is large else ratio.paper
                remark = "the paper's by its other ratios" if ratio.derived and paper else ""
                what = f"{ratio.ours} against {ratio.other}, {ratio.metric}"
                group = f"How much more or less, {where}, {_size(at)}"
                yield Finding(what, paper, mean_interval(values), "%", remark, group)


def _gains(ours: Sequence[MlfsRun], others: Sequence[MlfsRun], value: object) -> list[float]:
    assert callable(value)
    return [100 * (value(a) / value(b) - 1) for a, b in zip(ours, others, strict=False) if value(b)]


def _parts(runs: dict[float, Runs]) -> Iterator[Finding]:
    if not runs:
        return
    at = _shown(runs)
    for part in CONTRIBUTIONS:
        by_size: dict[float, MeanInterval | None] = {
            n: mean_interval(_gains(found[part.with_it], found[part.without], part.value))
            for n, found in runs.items()
            if part.with_it in found and part.without in found
        }
        others = "; ".join(f"{_size(n)} {s.mean:+.1f} %" for n, s in by_size.items() if n != at and s is not None)
        group = f"Figure {part.figure}, with it against without, {_size(at)}"
        yield Finding(part.what, part.paper, by_size.get(at), "%", others, group)


def _goals(runs: dict[float, Runs]) -> Iterator[Finding]:
    """Load control must not cost goals."""
    for at, found in runs.items():
        if "mlfs_c" in found and "mlf_h" in found:
            pairs = zip(found["mlfs_c"], found["mlf_h"], strict=False)
            more = mean_interval([float(a.goals - b.goals) for a, b in pairs])
            yield Finding(
                f"goals reached with load control less those without, {_size(at)}", "", more, "",
                f"of {found['mlf_h'][0].jobs:,} a seed", "Load control",
            )  # fmt: skip


def _others(results: Results) -> Iterator[str]:
    if left := sum(p.unfinished for _c, p in results):
        yield f"{left} jobs did not end; they met no deadline and are in no JCT."
    if any(c.label == "without migration" for c, _p in results):
        yield (
            "Servers are overloaded only where tasks take more than they asked for, which is ours: the paper does not "
            "say what overloads its servers. What is counted is how often one becomes overloaded; without migration it "
            "stays so, and can become it once only."
        )
    costs = [(c, p) for c, p in results if "k" in c.settings and c.label in ("mlf_h", "las")]
    for case, played in costs:
        yield (
            f"The trace ×{case.settings['k']:g} under {case.label} took {played.cpu_s:,.0f} CPU-seconds and "
            f"{played.peak_mib:,.0f} MiB for {played.jobs:,} jobs."
        )
    yield (
        "Load, run times and what tasks ask for are assumed, as the table says: what is comparable is the order of the "
        "schedulers and the direction of differences, not their size. Times of decisions are by the clock."
    )


_TIMES = {"done in less than 100 minutes", "mean JCT", "makespan", "deadlines met", "mean waiting time"}
_ACCURACIES = {"mean accuracy by the deadline", "accuracies met by the deadline"}
_TASKS = {"mlfs_rl", "mlfs_c", "mlf_rl", "mlf_h", "rl", "graphene", "gandiva"}
_WHOLE = {"tiresias", "hypersched", "borg_fair", "slaq"}


class Reason(Struct, frozen=True):
    """A sentence, and which pairs it is true of."""

    metrics: set[str]
    ahead: set[str]
    behind: set[str]
    sentence: str


_REASONS = (
    Reason(
        _TIMES | _ACCURACIES, {"graphene"}, {"mlf_h"},
        "graphene runs small jobs first; equations 3 and 5 sum over all dependants, so mlf_h runs large graphs "
        "first, and a job stops if one of its tasks must leave an overloaded server and fits nowhere.",
    ),
    Reason(
        _TIMES | _ACCURACIES | {"sent between servers"}, {"mlf_h", "mlfs_c"}, {"mlf_rl", "mlfs_rl"},
        "mlf_rl was trained on short windows of small clusters, for minutes where the paper took 26 hours.",
    ),
    Reason(
        _TIMES | _ACCURACIES, {"rl"}, _TASKS,
        "rl runs short jobs of few tasks first, by run times that are known with little error, and is rewarded for "
        "nothing but completion times; in the paper it may know neither.",
    ),
    Reason(
        {"sent between servers"}, _TASKS | _WHOLE, {"rl"},
        "rl does not look at where data are.",
    ),
    Reason(
        _ACCURACIES, _WHOLE, _TASKS,
        "The first epochs gain most: schedulers that pause jobs run the first epochs of every new job, but those that "
        "place tasks never pause a job, so a waiting job has learned nothing.",
    ),
    Reason(
        _TIMES, _TASKS | _WHOLE, {"hypersched"},
        "hypersched pauses jobs that gain little more before their deadline, and those end last: it optimises "
        "the accuracy by the deadline, not the end by the deadline.",
    ),
    Reason(
        _TIMES, {"slaq"}, {"borg_fair", "gandiva"},
        "slaq prefers jobs whose loss falls most, which are mostly young ones, so it is close to least service first; "
        "in the paper it can add CPU cores, here sizes are fixed.",
    ),
    Reason(
        _TIMES | _ACCURACIES, _TASKS | _WHOLE, {"gandiva"},
        "gandiva never lets a job overtake another: one that needs many GPUs delays all later jobs.",
    ),
    Reason(
        _TIMES, _TASKS, _WHOLE,
        "Tasks share GPUs, whole jobs do not, so more jobs run at a time.",
    ),
    Reason(
        _TIMES, {"tiresias", "hypersched", "slaq"}, _TASKS,
        "Schedulers that pause jobs start new jobs at once; those that place tasks never pause a job.",
    ),
    Reason(
        _TIMES, _WHOLE, _TASKS,
        "Tasks that share a GPU run slower, by a tenth for every further task; whole jobs do not share.",
    ),
    Reason(
        _TIMES | _ACCURACIES, _WHOLE, _WHOLE,
        "All of them run the same rigid jobs here, and differ only in the order; in the paper some change sizes.",
    ),
    Reason(
        {"sent between servers"}, _TASKS | _WHOLE, _TASKS | _WHOLE,
        "graphene ignores traffic, gandiva looks only at the sizes of jobs, and a whole job is placed on as few "
        "servers as possible.",
    ),
    Reason(
        {"time of a decision"}, _TASKS | _WHOLE, _TASKS | _WHOLE,
        "The time of a decision depends on the implementation; mlf_h works on columns, and rounds in which "
        "nothing can change are skipped.",
    ),
)  # fmt: skip


def why(metric: str, ahead: str, behind: str) -> str:
    """One sentence; it says so if the reason is unknown."""
    for reason in _REASONS:
        if metric in reason.metrics and ahead in reason.ahead and behind in reason.behind:
            return reason.sentence
    return f"We do not know why {ahead} is before {behind} there."
