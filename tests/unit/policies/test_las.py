"""las: who sinks is noticed, whatever happens in the same moment."""

import pytest

from hocket.model.action import Pause
from hocket.model.event import EpochEnded
from hocket.policies import find
from hocket.testing.builders import cluster, job, submitted
from hocket.testing.harness import Harness


@pytest.mark.parametrize("before_s", [0.5, 0.0007, 0.0, -0.0007])
@pytest.mark.parametrize("policy", ["las", "tiresias"])
def test_a_job_that_sinks_makes_way_though_it_reports_in_that_very_moment(policy, before_s):
    """The level counts a rounding early, so that a report may find the job there before its time has come."""
    harness = Harness.of(find(policy).bound({"levels_gpu_s": [8.0]}), cluster("1x1"))
    harness.tell(submitted(job("old")))
    harness.settle()
    harness.tell(submitted(job("new"), 5.0))
    harness.tell(EpochEnded(8.0 - before_s, "old", 1, {}))
    if before_s > 0:
        harness.tell(at_s=8.0)
    assert [a.job for a in harness.log if isinstance(a, Pause)] == ["old"]
