"""Short ways to write jobs, nodes, workloads and snapshots in a test."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from hocket.control.fold import fold
from hocket.control.state import State
from hocket.model.curve import NO_BELIEFS, Beliefs, Estimate
from hocket.model.event import Event, JobSubmitted
from hocket.model.job import Job, Owner
from hocket.model.resources import Demand, Node
from hocket.model.snapshot import Snapshot, empty_snapshot
from hocket.model.view import JobView
from hocket.workloads.truth import Fault, Submission, Truth, Workload


def job(
    name: str,
    *sizes: int,
    gpus: int = 1,
    cores: float = 0.0,
    mem_mib: float = 0.0,
    net_mbps: float = 0.0,
    **more: Any,
) -> Job:
    """A job: `job("a")`, `job("b", 8)`, `job("elastic", 1, 2, 4, owner="ana", cores=2)`.

    `name` is its id and `sizes` the numbers of replicas it can run with, 1 if none is given. `gpus`, `cores`, `mem_mib`
    and `net_mbps` are what each replica needs; `more` are other fields of `hocket.model.Job`.
    """
    demand = Demand(gpus, cores, mem_mib, net_mbps)
    return Job(name, demand=demand, sizes=sizes or (1,), **more)


def cluster(text: str, **more: Any) -> list[Node]:
    """Nodes that are alike: the `text` "2x8" gives n0 and n1 with eight GPUs each.

    `more` are other fields of `hocket.model.Node`, for every node.
    """
    count, _, gpus = text.partition("x")
    return [Node(f"n{i}", int(gpus), **more) for i in range(int(count))]


def submitted(what: Job, at_s: float = 0.0, run_s: float | None = None, **more: Any) -> JobSubmitted:
    """The event that the job `what` was submitted at `at_s` seconds.

    `run_s`, if given, is believed to be its run time in seconds at its largest size; `more` are other fields of the
    event.
    """
    beliefs = NO_BELIEFS if run_s is None else Beliefs(Estimate(run_s), what.sizes[-1])
    return JobSubmitted(at_s, what, beliefs, **more)


def submission(what: Job, at_s: float = 0.0, run_s: float = 100.0, **truth: Any) -> Submission:
    """The job `what` as the simulator submits it at `at_s` seconds: it runs for `run_s` seconds at its largest size.

    `truth` are other fields of `hocket.workloads.truth.Truth`: epochs, metrics, costs, crashes.
    """
    return Submission(at_s, what, Truth(run_s, **{"reference_size": what.sizes[-1], **truth}))


def workload(
    *submissions: Submission, owners: Iterable[Owner] = (), faults: Iterable[Fault] = (), name: str = "test"
) -> Workload:
    """A workload of these `submissions`, in the order of their times, called `name`.

    `owners` are those with a weight or quota of their own, `faults` the nodes that are lost for a while.
    """
    in_order = sorted(submissions, key=lambda s: s.at_s)
    return Workload(name, tuple(in_order), owners=tuple(owners), faults=tuple(faults))


def snapshot(
    nodes: Iterable[Node],
    *events: Event,
    order: Callable[[JobView, float], tuple[Any, ...]] = lambda _view, _now_s: (),
    now_s: float | None = None,
) -> Snapshot:
    """The state of a cluster of these `nodes` after these `events`, as a controller computes it.

    `order(view, now_s)` gives a job's rank, by default none: jobs are sorted by submission. `now_s` is the
    moment of the snapshot, by default that of the last event.
    """
    state = State(empty_snapshot(nodes), order)
    for event in events:
        fold(state, [event])
    if now_s is not None:
        state.now_s = now_s
    return state.snapshot()
