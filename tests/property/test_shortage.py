"""What is short, on any cluster: something exactly when a job fits nowhere, and never what there is enough of."""

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.property.test_capacity import partly_taken

from hocket.model.resources import RESOURCES, Demand
from hocket.model.shortage import shortage, wait_of
from hocket.policies import find
from hocket.testing import strategies as some

examples = settings(max_examples=100, deadline=None)


@examples
@given(st.data())
def test_something_is_short_exactly_when_the_job_fits_nowhere(data):
    nodes, capacity, _held = data.draw(partly_taken())
    job = data.draw(some.jobs("new", nodes))
    found = shortage(job, capacity)
    assert (found is not None) == (capacity.place(job, job.sizes[0]) is None)
    if found is None:
        return
    assert found.of
    assert found.words
    asked = {name: needs for name, needs in zip(RESOURCES, job.demand.vector, strict=True) if needs}
    named = [name for name in found.of if name in asked]
    assert named or found.of[0] in ("nodes", "gpu_kinds", "gpu_mem_mib")
    if not named or not capacity.up & capacity.layout.eligible(job):
        return
    # Either what is named is short by itself, or there is enough of each and not in the same places.
    alone = [name for name in asked if not _fits(job, capacity, {name: asked[name]})]
    assert named == (alone or list(asked))
    # What is not named may be asked for without end: it is not what is short.
    assert not _fits(job, capacity, {name: asked[name] for name in named})


def _fits(job, capacity, demand):
    return capacity.place(replace(job, demand=Demand(**demand)), job.sizes[0]) is not None


@settings(max_examples=60, deadline=None)
@given(some.snapshots(find("las").bound()))
def test_what_each_waiting_job_waits_for_is_told_at_any_moment(found):
    for snapshot in found:
        for _rank, _number, job_id in snapshot.waiting:
            view = snapshot.jobs[job_id]
            wait = wait_of(view, snapshot, snapshot.now_s, "waits: as it is")
            fits = snapshot.capacity.place(view.job, view.job.sizes[0]) is not None
            assert wait.words
            assert bool(wait.short_of) == (not fits or bool(snapshot.short_of_quota(view)))
            assert ("quota" in wait.short_of) == bool(snapshot.short_of_quota(view))
            assert wait.expected_s is None or wait.expected_s >= 0
