"""las with `promote`, with switching costs and faults: no starved job stays on a lower level."""

import pytest
from tests.laws.drawing import drawn
from tests.laws.test_policies import WORKLOADS

from hocket.control.controller import Controller
from hocket.control.journal import MemoryJournal
from hocket.control.ports import Header
from hocket.executors.simulated import BeliefMode, SimulatedExecutor
from hocket.model.snapshot import empty_snapshot
from hocket.policies import find

_SOON_S = 1.01  # A job that is leaving is looked at once a second.


@pytest.mark.parametrize("policy", ["las", "tiresias"])
@pytest.mark.parametrize("promote", [0.2, 1.0])
def test_a_starved_job_is_on_the_top_level(policy, promote):
    for workload, nodes in drawn(WORKLOADS):
        starved_jobs_rise(policy, promote, workload, nodes)


def starved_jobs_rise(policy, promote, workload, nodes):
    bound = find(policy).bound({"levels_gpu_s": [1, 10, 100], "promote": promote})
    controller = Controller(
        empty_snapshot(nodes), bound.decide, bound.order, MemoryJournal(Header(policy)), shifts=bound.shifts
    )
    executor = SimulatedExecutor(workload, nodes, beliefs=BeliefMode("oracle"))
    while (moment := executor.wait(controller.next_timer_s())) is not None:
        executor.apply(controller.cycle(*moment))
        snapshot = controller.snapshot
        for _rank, _number, job_id in snapshot.waiting:
            view = snapshot.jobs[job_id]
            starved_s = view.since_s + promote * view.ran_s
            if view.rank[1] and view.ran_s and not view.tenancies:
                assert snapshot.now_s <= starved_s + _SOON_S, f"'{job_id}' starved at {starved_s} s"
