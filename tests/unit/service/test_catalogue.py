"""The catalogue: what became of each job, by the journal's cycles."""

from hocket.control.ports import Cycle
from hocket.model.event import JobEnded, JobStarted, JobSubmitted, NodeLost
from hocket.model.job import Job
from hocket.model.partition import Partition, Tenant
from hocket.model.plan import Plan
from hocket.model.resources import Slice
from hocket.service.catalogue import Catalogue


def test_time_on_a_lost_node_ends_with_the_node():
    catalogue = Catalogue()
    placed = Plan(put=(Partition("a", (Slice("n0", (0,)),), (Tenant("a", (1,)),)),), reasons={"a": "starts"})
    for cycle in (
        Cycle(0.0, (JobSubmitted(0.0, Job("a")),), placed),
        Cycle(10.0, (JobStarted(10.0, "a"),)),
        Cycle(30.0, (NodeLost(30.0, "n0"),)),
        Cycle(100.0, (), placed),
        Cycle(110.0, (JobStarted(110.0, "a"),)),
        Cycle(115.0, (JobEnded(115.0, "a"),)),
    ):
        catalogue.see(cycle)
    record = catalogue.records["a"]
    assert record.ran_s == 25.0
    assert record.waited_at(999.0) == 90.0
    assert "lost its node" in [line.what for line in record.lines]
