"""Random histories: the state is sound after every cycle, and folding the journal again gives the same state."""

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hocket.control.controller import Controller
from hocket.control.journal import MemoryJournal
from hocket.control.ports import Cycle
from hocket.model.event import TimePassed
from hocket.model.snapshot import Snapshot, empty_snapshot
from hocket.policies import find
from hocket.testing import strategies as some
from hocket.testing.equal_snapshots import rebuilt
from hocket.testing.harness import Harness

examples = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
drivers = st.sampled_from(["dice", "las", "fair", "backfill"])


def driven(data) -> tuple[Harness, list]:
    """A harness that has lived through a history; it checks every invariant on the way."""
    cluster = data.draw(some.nodes())
    name = data.draw(drivers)
    seed = data.draw(st.integers(0, 5))
    harness = (
        Harness(some.sharing_chaos, cluster, seed=seed)
        if name == "dice"
        else Harness.of(find(name).bound(), cluster, seed=seed)
    )
    return some.play(harness, data.draw(some.histories(cluster, 30)), cluster), cluster


def assert_equal(a: Snapshot, b: Snapshot) -> None:
    for field in Snapshot.__struct_fields__:
        assert getattr(a, field) == getattr(b, field), field


@examples
@given(st.data())
def test_the_state_folded_again_from_the_journal_equals_the_live_one(data):
    harness, cluster = driven(data)
    kept = [msgspec.json.decode(msgspec.json.encode(c), type=Cycle) for c in harness.journal.cycles]
    live = harness.controller
    journal = MemoryJournal(harness.journal.header)
    start = empty_snapshot(cluster, live.state.seed)
    shifts = live.state.shifts.of_policy if live.state.shifts is not None else None
    again = Controller(start, live.decide, live.state.order, journal, shifts=shifts)
    for cycle in kept:
        # The timers are the controller's own: they ring again by themselves.
        again.cycle(cycle.at_s, [e for e in cycle.events if not isinstance(e, TimePassed)])
    assert_equal(again.snapshot, live.snapshot)
    assert [c.plan for c in again.journal] == [c.plan for c in harness.journal]


@examples
@given(st.data())
def test_an_old_snapshot_is_not_changed_by_what_happens_later(data):
    cluster = data.draw(some.nodes())
    harness = Harness.of(find("las").bound(), cluster)
    steps = data.draw(some.histories(cluster, 20))
    taken = []
    for step in steps:
        some.play(harness, [step], cluster)
        taken.append((harness.snapshot, rebuilt(harness.snapshot)))
    data.draw(st.randoms()).shuffle(taken)
    for snapshot, then in taken:
        assert_equal(snapshot, then)


@examples
@given(st.data())
def test_once_everything_is_answered_nothing_is_leaving_or_unsettled(data):
    harness, _cluster = driven(data)
    if harness.controller.state.wake.at_s is None:
        for _ in range(60):
            if not harness.pending:
                break
            harness.answer()
        if not harness.pending:
            snapshot = harness.snapshot
            assert not snapshot.leaving.data()
            assert not snapshot.unsettled
