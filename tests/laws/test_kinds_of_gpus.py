"""Policies that go by believed ends keep the laws where jobs are not equally fast on all kinds of GPU."""

from itertools import cycle

import pytest
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.laws.drawing import drawn

from hocket.policies import find
from hocket.testing import laws
from hocket.testing import strategies as some

paces = st.dictionaries(st.sampled_from(some.KINDS), st.sampled_from([0.1, 0.5, 1.0, 3.0]))


@st.composite
def workloads(draw):
    """A workload with its cluster; its jobs run at a pace of their own on each kind of GPU."""
    nodes = draw(some.nodes())
    workload = draw(some.workloads(nodes))
    jobs = tuple(replace(s, truth=replace(s.truth, kinds=draw(paces))) for s in workload.submissions)
    return replace(workload, submissions=jobs), nodes


WORKLOADS = workloads()


@pytest.mark.parametrize("policy", ["backfill", "srtf"])
def test_jobs_that_are_slower_on_some_gpus_end_too(policy):
    bound = find(policy).bound({"hysteresis": 0.0} if policy == "srtf" else {})
    for (workload, nodes), turn in zip(drawn(WORKLOADS), cycle(laws.BESIDES)):
        laws.hold_in_a_run(bound, workload, nodes, besides=(turn,))
