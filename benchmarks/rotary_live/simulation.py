"""The same arrivals in the simulator: queries that start, compute, report and keep states as they did alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from benchmarks.rotary_live.drawing import Drawn
from benchmarks.rotary_live.lone_runs import LoneRun
from benchmarks.rotary_live.outcome import Ran, counted
from hocket.executors.simulated import simulate
from hocket.model.criterion import Duration, Goal
from hocket.model.curve import Curve, Point
from hocket.model.event import PastJobsGiven
from hocket.model.job import Job, Kind
from hocket.model.past_job import PastJob
from hocket.model.resources import Demand, Node
from hocket.model.view import Costs
from hocket.policies.registry import BoundPolicy
from hocket.workloads.rotary import curve_of_batches
from hocket.workloads.truth import Submission, Truth, Workload
from hocket_reproductions.rotary.suspended import pause_costs

_STEPS = 20  # epochs of a query under policies that set no running epochs
_SAVED_S = 0.1  # to leave without a state


def simulated(
    bound: BoundPolicy, queries: Sequence[Drawn], arrived_s: Sequence[float],
    alone: Mapping[tuple[str, int], LoneRun], start_s: float, past: Sequence[PastJob], cores: int, mem_mib: float,
) -> Ran:  # fmt: skip
    """What comes of them."""
    submissions = []
    for query, at_s in zip(queries, arrived_s, strict=True):
        goal = Goal("acc", ">=", query.accuracy, Duration(query.deadline_s))
        job = Job(
            query.id, kind=Kind.QUERY, demand=Demand(cores=1.0), sizes=tuple(range(1, cores + 1)), criterion=goal,
            model=query.query,
        )  # fmt: skip
        truth = truth_of(alone[query.query, 1], alone[query.query, cores], start_s)
        submissions.append(Submission(round(at_s, 3), job, truth))
    changes = (PastJobsGiven(0.0, tuple(past)),) if bound.policy.reads_past_jobs else ()
    node = Node("here", cores=float(cores), mem_mib=mem_mib)
    workload = Workload("rotary-live", tuple(submissions), (node,), changes=changes)
    ran = simulate(workload, workload.nodes, bound)
    cycles = list(ran.journal)
    costs = pause_costs(cycles, {s.job.id: s.truth for s in submissions})
    return counted(ran.journal.header, cycles, costs.lost_s)


def truth_of(one: LoneRun, all_cores: LoneRun, start_s: float) -> Truth:
    """How the query behaves, by a run on one core and one on all that it may get."""
    whole_s = one.run_s
    done = [_STEPS * b.at_s / whole_s for b in one.batches]

    def curve(values: Sequence[float]) -> Curve:
        return curve_of_batches(done, values)

    also = {
        name: curve([getattr(b, name) for b in one.batches])
        for name in ("fraction", "state_mib", "process_mib", "write_s", "read_s")
    }
    also["redo_s"] = Curve((Point(0.0, 0.0), Point(float(_STEPS), whole_s)))
    last = one.batches[-2] if len(one.batches) > 1 else one.batches[-1]  # The last answer leaves no state.
    threads = all_cores.threads
    speed = (
        Curve((Point(1.0, 1.0), Point(float(threads), max(1.0, whole_s / all_cores.run_s)))) if threads > 1 else None
    )
    return Truth(
        whole_s, 1, speed, epochs=_STEPS, metric="acc", quality=curve([b.accuracy for b in one.batches]),
        costs=Costs(start_s=start_s, checkpoint_s=_SAVED_S + last.write_s), load_s=last.read_s, also=also,
    )  # fmt: skip
