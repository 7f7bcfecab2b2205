"""A job whose owner's quota is used up takes the place of a job of the same owner, when it is its turn."""

import pytest

from hocket.model.job import Owner
from hocket.policies import find, policies
from hocket.testing import laws
from hocket.testing.builders import cluster, job, submission, workload

# The owner may run one job. When its urgent one comes, a less urgent job of another owner comes too, and wants the
# free GPU: if that is given away first, there is no room for the urgent one.
MINE = submission(job("mine", owner="cy", priority=-1, deadline_s=9000.0), 0.0, 1000.0)
URGENT = submission(job("urgent", 2, owner="cy", priority=1, deadline_s=200.0), 100.0, 50.0)
OTHER = submission(job("other", owner="ana", priority=0, deadline_s=5000.0), 100.0, 500.0)
TWO_OWNERS = workload(MINE, OTHER, URGENT, owners=(Owner("cy", max_jobs=1),))
ONE_NODE = cluster("1x2")


@pytest.mark.parametrize("name", policies())
def test_a_policy_asked_more_often_decides_alike(name):
    laws.hold_in_a_run(find(name).bound(), TWO_OWNERS, ONE_NODE, besides=())


@pytest.mark.parametrize("name", ["borg_fair", "edf", "las", "srtf"])
def test_it_goes_before_jobs_that_come_after_it(name):
    ran = laws.hold_in_a_run(find(name).bound(), TWO_OWNERS, ONE_NODE, besides=())
    assert ran.ended["urgent"][0] == pytest.approx(150.0)
