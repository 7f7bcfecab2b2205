"""What the MLFS paper shows: its figures' values and orders, by our names of the schedulers."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from msgspec import Struct

from hocket.reports.mlfs_run import MlfsRun

_HOUR_S = 3600.0
Order = tuple[tuple[str, ...], ...]  # best first; those of one group are about equal


class Metric(Struct, frozen=True):
    """One panel of Figures 4 and 5."""

    panel: str
    name: str
    value: Callable[[MlfsRun], float]
    unit: str
    less: bool  # is better
    order: Order
    paper: Mapping[str, str] = {}  # as far as the text gives values


_OURS: Order = (("mlfs_rl", "mlfs_c"), ("mlf_rl",), ("mlf_h",))
_JCT: Order = (
    *_OURS, ("graphene",), ("tiresias", "hypersched", "rl", "gandiva"), ("borg_fair",), ("slaq",)
)  # fmt: skip
_ACCURACY: Order = (*_OURS, ("hypersched",), ("tiresias", "rl"), ("borg_fair",))

METRICS = (
    Metric(
        "a", "done in less than 100 minutes", lambda p: 100 * p.soon, "%", False, _JCT,
        {
            "mlfs_rl": "85 %", "mlf_rl": "81 %", "mlf_h": "78 %", "tiresias": "61 %", "hypersched": "60 %",
            "rl": "60 %", "gandiva": "55 %", "borg_fair": "46 %", "slaq": "39 %",
        },
    ),
    Metric("b", "mean JCT", lambda p: p.jct_mean_s / _HOUR_S, "h", True, _JCT),
    Metric(
        "a", "makespan", lambda p: p.makespan_s / _HOUR_S, "h", True,
        (*_OURS, ("tiresias",), ("hypersched",), ("rl",), ("gandiva",), ("borg_fair",), ("slaq",)),
        {
            "mlfs_rl": "40–90 h", "mlf_rl": "51–102 h", "mlf_h": "54–116 h", "tiresias": "56–125 h",
            "hypersched": "58–128 h", "rl": "61–134 h", "gandiva": "64–138 h", "borg_fair": "78–158 h",
            "slaq": "85–170 h",
        },
    ),
    Metric(
        "c", "deadlines met", lambda p: 100 * p.deadlines, "%", False,
        (
            *_OURS, ("hypersched",), ("graphene",), ("tiresias", "rl", "gandiva"), ("borg_fair",), ("slaq",)
        ),
    ),
    Metric(
        "d", "mean waiting time", lambda p: p.waited_s / _HOUR_S, "h", True,
        (
            *_OURS, ("graphene",), ("hypersched", "tiresias", "rl", "gandiva"), ("borg_fair",), ("slaq",)
        ),
    ),
    Metric("e", "mean accuracy by the deadline", lambda p: 100 * p.accuracy, "%", False, _ACCURACY),
    Metric("f", "accuracies met by the deadline", lambda p: 100 * p.accuracies, "%", False, _ACCURACY),
    Metric(
        "g", "sent between servers", lambda p: p.sent_tib, "TiB", True,
        (*_OURS[:2], ("mlf_h", "borg_fair", "graphene", "tiresias", "hypersched", "slaq", "rl"), ("gandiva",)),
    ),
    Metric(
        "h", "time of a decision", lambda p: p.decision_ms, "ms", True,
        (
            ("gandiva",), ("borg_fair",), ("tiresias",), ("graphene",), ("hypersched",), ("slaq",), ("rl", "mlf_rl"),
            ("mlf_h",), ("mlfs_rl", "mlfs_c"),
        ),
        {
            "gandiva": "23 ms", "borg_fair": "28 ms", "tiresias": "35 ms", "hypersched": "38 ms", "slaq": "40 ms",
            "rl": "49 ms", "mlf_rl": "49 ms", "mlf_h": "40 ms", "mlfs_rl": "54 ms",
        },
    ),
)  # fmt: skip


class Ratio(Struct, frozen=True):
    """By how many percent one scheduler is above another, at the highest load."""

    ours: str
    other: str
    metric: str
    paper: str  # on 80 GPUs
    simulated: str = ""  # on the trace: what the paper has in brackets; empty where it has nothing
    derived: bool = False  # from other ratios of the paper


RATIOS = (
    Ratio("mlfs_rl", "tiresias", "mean JCT", "−34 %", "−30 %"),
    Ratio("mlfs_rl", "slaq", "mean JCT", "−53 %", "−47 %"),
    Ratio("mlfs_rl", "mlf_rl", "mean JCT", "−22 %", "−18 %"),
    Ratio("mlf_rl", "mlf_h", "mean JCT", "−11 %", "−10 %"),
    Ratio("mlf_rl", "mlf_h", "makespan", "−15 %", "−11 %"),
    Ratio("mlf_rl", "mlf_h", "deadlines met", "+16 %", "+21 %"),
    Ratio("mlf_rl", "mlf_h", "mean waiting time", "−14 %", "−21 %"),
    Ratio("mlf_rl", "mlf_h", "mean accuracy by the deadline", "+14 %", "+8 %"),
    Ratio("mlf_rl", "mlf_h", "accuracies met by the deadline", "+8 %", "+9 %"),
    Ratio("mlf_rl", "mlf_h", "sent between servers", "−14 %", "−15 %"),
    Ratio("mlf_h", "tiresias", "mean JCT", "−5 %", "−5 %", derived=True),
    Ratio("mlf_h", "slaq", "mean JCT", "−32 %", "−28 %", derived=True),
    Ratio("mlfs_rl", "tiresias", "makespan", "−32 %", "−17 %"),
    Ratio("mlfs_rl", "slaq", "makespan", "−52 %", "−39 %"),
    Ratio("mlfs_rl", "hypersched", "deadlines met", "+47 %", "+43 %"),
    Ratio("mlfs_rl", "slaq", "deadlines met", "+102 %", "+101 %"),
    Ratio("mlfs_rl", "tiresias", "mean waiting time", "−40 %", "−47 %"),
    Ratio("mlfs_rl", "slaq", "mean waiting time", "−52 %", "−57 %"),
    Ratio("mlfs_rl", "hypersched", "mean accuracy by the deadline", "+43 %", "+41 %"),
    Ratio("mlfs_rl", "borg_fair", "mean accuracy by the deadline", "+64 %", "+60 %"),
    Ratio("mlfs_rl", "hypersched", "accuracies met by the deadline", "+32 %", "+34 %"),
    Ratio("mlfs_rl", "borg_fair", "accuracies met by the deadline", "+61 %", "+54 %"),
    Ratio("mlfs_rl", "borg_fair", "sent between servers", "−36 %", "−37 %"),
    Ratio("mlfs_rl", "gandiva", "sent between servers", "−45 %", "−54 %"),
)


class Contribution(Struct, frozen=True):
    """What one part of MLFS brings, in percent of the value without it: Figures 6 to 9."""

    figure: str
    what: str
    with_it: str  # the approach
    without: str
    value: Callable[[MlfsRun], float]
    paper: str


CONTRIBUTIONS = (
    Contribution("6", "urgency: deadlines met of urgent jobs", "mlf_h", "without urgency",
         lambda p: p.urgent_deadlines, "+22 to +30 %"),
    Contribution("6", "deadlines: deadlines met", "mlf_h", "without deadlines", lambda p: p.deadlines, "+13 to +25 %"),
    Contribution("7", "bandwidth: mean JCT", "mlf_h", "without traffic", lambda p: p.jct_mean_s, "−5 to −15 %"),
    Contribution("7", "bandwidth: sent between servers", "mlf_h", "without traffic",
         lambda p: p.sent_tib, "−20 to −35 %"),
    Contribution("8", "migration: servers overloaded", "mlf_h", "without migration",
         lambda p: float(p.overloads), "−36 to −60 %"),
    Contribution("8", "migration: sent between servers", "mlf_h", "without migration",
         lambda p: p.sent_tib, "+10 to +14 %"),
    Contribution("8", "migration: mean accuracy by the deadline", "mlf_h", "without migration",
         lambda p: p.accuracy, "+8 to +10 %"),
    Contribution("8", "migration: mean JCT", "mlf_h", "without migration", lambda p: p.jct_mean_s, "−15 to −24 %"),
    Contribution("9", "load control: accuracies met by the deadline", "mlfs_c", "mlf_h",
         lambda p: p.accuracies, "+17 to +23 %"),
    Contribution("9", "load control: mean JCT", "mlfs_c", "mlf_h", lambda p: p.jct_mean_s, "−28 to −42 %"),
)  # fmt: skip
