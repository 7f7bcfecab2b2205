"""Every policy there is keeps every law. A new policy file is covered with no change here."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hocket.policies import find, policies
from hocket.testing import laws
from hocket.testing import strategies as some

quick = settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
runs = settings(quick, max_examples=25)


@pytest.mark.parametrize("name", policies())
@quick
@given(data=st.data())
def test_every_decision_keeps_the_laws(name, data):
    bound = find(name).bound()
    for snapshot in data.draw(some.snapshots(bound)):
        laws.hold(bound, snapshot)


@pytest.mark.parametrize("name", policies())
@runs
@given(data=st.data())
def test_every_run_keeps_the_laws(name, data):
    cluster = data.draw(some.nodes())
    laws.hold_in_a_run(find(name).bound(), data.draw(some.workloads(cluster)), cluster)
