"""Every index of a state is what its facts say, also the one that is built only when it is first needed."""

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hocket.policies import find, policies
from hocket.testing import strategies as some
from hocket.testing.harness import Harness


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_indices_follow_from_the_facts_after_every_cycle(data):
    cluster = data.draw(some.nodes())
    harness = Harness.of(find(data.draw(st.sampled_from(sorted(policies())))).bound(), cluster)
    harness.controller.state.update_leaving_of(set())  # builds `jobs_by_partition`
    some.play(harness, data.draw(some.histories(cluster, 30)), cluster)  # The harness looks at every index.
    assert harness.controller.state.jobs_by_partition is not None
