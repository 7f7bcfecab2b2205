"""What Rotary's paper leaves open, and what was taken instead."""

from __future__ import annotations

from hocket.reproductions import Assumption, Request
from hocket.workloads.rotary import measured_queries, measured_scales, stretch


def assumptions(request: Request) -> list[Assumption]:
    """What the paper leaves open."""
    batches = sum(len(q.orders[0]) for scale in measured_scales() for q in measured_queries(scale).values())
    return [
        Assumption(
            "accuracy of queries",
            f"{batches} batches of 22 queries, by intervals at 95 %; nothing new is said before a batch has ended",
            f"measured on our runtime at scale factor {' and '.join(f'{s:g}' for s in measured_scales())}: "
            "`python -m benchmarks.query batches`",
        ),
        Assumption(
            "run times of queries", f"measured CPU times, times {stretch(1.0):,.0f} at load 1",
            "ours: all queries to their last row would keep 20 cores busy; the paper's were of Spark",
        ),
        Assumption("speed by cores", "law:0.05", "ours, the usual law"),
        Assumption(
            "memory of queries", "2, 4 and 6 GiB by class; it never runs out", "Figure 3.1(a): epochs of 60, 120, 180 s"
        ),
        Assumption(
            "states of paused queries", "of the memory what joins, groups and sorts hold; 100 MiB/s",
            "ours, by EXPLAIN; in the other cases a second for each",
        ),
        Assumption("training", "parametric learning curves; seconds of an epoch by model", "ours; none was measured"),
        *(
            [
                Assumption(
                    "measured learning curves", "images cifar10 or imagenet, LSTMs deepspeech2, bert bert; half of the "
                    "batch sizes are of past jobs only", "Pollux's; the pairing with models is ours",
                )
            ]
            if request.curves is not None
            else []
        ),
        Assumption("training jobs", "30, all there at the start", "Table 3.3 has 10 to 40; arrivals are not told"),
        Assumption("past jobs", "each query once, in another order; 60 training jobs of 30 epochs", "ours"),
        Assumption("round_robin", "turns of 60 s", "an epoch of the paper's Figure 3.1(a)"),
    ]  # fmt: skip
