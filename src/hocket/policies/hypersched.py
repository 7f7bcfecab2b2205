"""HyperSched: GPUs to the jobs whose accuracy will have grown most when their deadlines come."""

from __future__ import annotations

from math import inf
from typing import Annotated

from msgspec import Meta

from hocket.model.plan import Plan
from hocket.model.snapshot import Snapshot
from hocket.model.view import JobView
from hocket.policies.edf import deadline_s
from hocket.policies.kit.gain_rounds import epochs_in, gain_of_unknown, in_rounds, rank, trend_of
from hocket.policies.registry import Params, policy


class HyperSched(Params, frozen=True):
    round_s: Annotated[float, Meta(gt=0, description="how often all GPUs are shared out anew")] = 300.0
    significant: Annotated[
        float, Meta(ge=0, description="a job that gains less than this, of 1, until its deadline is paused")
    ] = 0.01
    longest_deadline_s: Annotated[float, Meta(gt=0, description="deadline of jobs that state none")] = 86400.0


@policy(
    "hypersched", params=HyperSched, order=rank, paper="HyperSched, SoCC'19", reads_usage=False, reads=("deadline_s",)
)
def decide(snapshot: Snapshot, params: HyperSched) -> Plan:
    """In rounds, GPUs to the jobs whose metric will grow most by each until the deadline; others make way.

    Gains of metrics from 0 to 1, as accuracies are, count as they are; of others as shares of the range that the job's
    metric has seen. One whose deadline has passed gains nothing: it runs on what no other job wants, as do those whose
    gain is not significant.
    """
    now_s = snapshot.now_s

    def gain(view: JobView, size: int) -> float:
        due_s = deadline_s(view)
        left_s = (due_s if due_s < inf else view.submitted_s + params.longest_deadline_s) - now_s
        if left_s <= 0:
            return 0.0
        seen = trend_of(view)
        if seen is None:
            return gain_of_unknown(view, left_s, size, now_s, params.round_s)
        found = seen.gain(epochs_in(view, left_s, size, now_s)) / seen.scale if seen.scale > 0 else 0.0
        return found if found >= params.significant else 0.0

    return in_rounds(snapshot, params.round_s, gain)
