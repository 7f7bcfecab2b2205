"""Policies that go by believed ends keep the laws where jobs are not equally fast on all kinds of GPU."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.laws.drawing import DRAWN

from hocket.policies import find
from hocket.testing import laws
from hocket.testing import strategies as some

paces = st.dictionaries(st.sampled_from(some.KINDS), st.sampled_from([0.1, 0.5, 1.0, 3.0]))


@pytest.mark.parametrize("policy", ["backfill", "srtf"])
@DRAWN
@given(data=st.data())
def test_jobs_that_are_slower_on_some_gpus_end_too(policy, data):
    nodes = data.draw(some.nodes())
    drawn = data.draw(some.workloads(nodes))
    jobs = tuple(replace(s, truth=replace(s.truth, kinds=data.draw(paces))) for s in drawn.submissions)
    knobs = {"hysteresis": 0.0} if policy == "srtf" else {}
    laws.hold_in_a_run(find(policy).bound(knobs), replace(drawn, submissions=jobs), nodes)
