"""Rotary-DLT: a device for an epoch, first to jobs that have come least far, then to those that have come farthest."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from hocket.model.plan import Plan
from hocket.model.snapshot import Snapshot
from hocket.model.view import JobView
from hocket.policies.kit.completion_progress import estimate_in_words, need_in_words, progress
from hocket.policies.kit.epoch_turns import EpochParams, EpochTurns, LargestMemory
from hocket.policies.registry import policy


class RotaryDlt(EpochParams, frozen=True):
    threshold: Annotated[
        float,
        Meta(
            ge=0, le=1, description="progress of all jobs from which on the farthest go first: 1 is fair, 0 efficient"
        ),
    ] = 0.5
    trial: Annotated[bool, Meta(description="whether jobs of which nothing is known go first, for an epoch")] = True
    memory: Annotated[bool, Meta(description="whether a job needs a GPU with its estimated memory")] = True


@policy(
    "rotary_dlt", params=RotaryDlt, paper="Rotary, ICDE'23", reads_usage=False, reads=(), reads_past_jobs=True
)  # fmt: skip
def decide(snapshot: Snapshot, params: RotaryDlt) -> Plan:
    """At the end of each epoch, the device goes to the job with least progress; once all have come far enough, to the
    one with most.

    Algorithms 5 and 6 of Rotary. Progress is the epochs done over those that the criterion needs, or allows.
    """
    now_s, views = snapshot.now_s, snapshot.jobs.data().values()
    known = {view.number: progress(view, now_s) for view in views}
    done = {number: 0.0 if found is None else found for number, found in known.items()}
    is_far = all(done[view.number] >= params.threshold for view in views if not view.held)

    def key(view: JobView) -> tuple[bool, float]:
        is_trial = params.trial and known[view.number] is None and not view.epoch
        return not is_trial, -done[view.number] if is_far else done[view.number]

    def why(view: JobView) -> str:
        if params.trial and known[view.number] is None:
            return "granted an epoch: nothing is known of it yet"
        most = "most" if is_far else "least"
        return f"granted an epoch: {most} progress, {done[view.number]:.0%}; {estimate_in_words(view, now_s)}"

    largest = LargestMemory(snapshot)

    def needs(view: JobView) -> JobView:
        memory = view.beliefs.memory_mib
        if not params.memory or memory is None or not view.job.demand.gpus:
            return view
        return largest.with_memory(view, memory.points[-1].mean)

    def outlook(view: JobView) -> str:
        return f"has {done[view.number]:.0%} and {need_in_words(view, now_s)}"

    turns = EpochTurns(snapshot, params, key, why, needs=needs, outlook=outlook)
    turns.compare()
    order = "most" if is_far else "least"
    return turns.plan(f"waits: at the end of an epoch the device goes to the job with {order} progress")
