"""Who holds which partition is known without looking at every job."""

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hocket.control.state import State
from hocket.policies import find, policies
from hocket.testing import strategies as some
from hocket.testing.harness import Harness


def looked_up(state: State) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for view in state.jobs.values():
        for tenancy in view.tenancies:
            for held in (tenancy.holding, tenancy.coming):
                if held is not None:
                    found.setdefault(held.partition, set()).add(view.job.id)
    return found


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_the_index_of_holders_is_what_a_look_at_every_job_finds(data):
    cluster = data.draw(some.nodes())
    harness = Harness.of(find(data.draw(st.sampled_from(sorted(policies())))).bound(), cluster)
    state = harness.controller.state
    state.note_leavers(set())  # From now on it is kept.
    for _ in range(3):
        some.play(harness, data.draw(some.histories(cluster, 10)), cluster)
        assert state.holders == looked_up(state)
