"""An invariant that is broken is said: a sound state, spoilt in one place."""

import pytest
from msgspec.structs import replace

from hocket.model.event import JobSubmitted
from hocket.model.resources import Slice
from hocket.model.snapshot import Usage
from hocket.model.versioned import VersionedQueue, versioned
from hocket.model.view import Hold, JobState
from hocket.policies import find
from hocket.testing.builders import cluster, job
from hocket.testing.harness import Harness
from hocket.testing.invariants import broken_indices, broken_invariants


@pytest.fixture
def harness():
    """'a' runs on one of two GPUs, 'b' waits for two."""
    found = Harness.of(find("fifo").bound(), cluster("1x2"))
    found.tell(JobSubmitted(0.0, job("a", 1)), JobSubmitted(0.0, job("b", 2)))
    found.settle()
    return found


def with_view(snapshot, name, **changes):
    jobs = dict(snapshot.jobs.items())
    jobs[name] = replace(jobs[name], **changes)
    return replace(snapshot, jobs=versioned(jobs.items()))


def with_free(snapshot, **changes):
    free = dict(enumerate(f for _node, f in snapshot.capacity))
    return replace(snapshot, capacity=snapshot.capacity._with({0: replace(free[0], **changes)}, snapshot.capacity.up))


def without_nodes(snapshot):
    return replace(snapshot, nodes=versioned((k, replace(v, up=False)) for k, v in snapshot.nodes.items()))


def with_a_job_too_many_that_waits(snapshot):
    waiting = snapshot.waiting.add(2, ((), 9, "nobody"))
    return replace(snapshot, waiting=waiting)


SPOILT = {
    "free and taken GPUs are not its 2": lambda s: with_free(s, gpus=0b11),
    "free and taken cores make": lambda s: with_free(s, cores=1.0),
    "which do not all have it": lambda s: with_view(s, "a", partitions=("a", "another")),
    "the waiting queue has": with_a_job_too_many_that_waits,
    "the placed queue has": lambda s: with_view(s, "a", rank=(7,)),
    "miscounts its entries": lambda s: replace(s, waiting=VersionedQueue(s.waiting.buckets(), 5)),
    "is held and has partitions": lambda s: with_view(s, "a", held=Hold.PAUSED),
    "by plan, usage says": lambda s: replace(s, usage=versioned([("ana", Usage(gpus=1))])),
    "says size 3 on": lambda s: with_view(s, "a", size=3),
    "is waiting with tenancies": lambda s: with_view(s, "a", state=JobState.WAITING),
    "prepares, and runs or starts already": lambda s: with_view(s, "a", preparing=True),
    "has two tenancies of one task": lambda s: with_view(s, "a", tenancies=s.jobs["a"].tenancies * 2),
    "a time below 0 or in the future": lambda s: with_view(s, "b", since_s=s.now_s + 1),
    "beyond its plan and is not leaving": lambda s: replace(
        s, partitions=versioned([("a", replace(s.partitions["a"], slices=(Slice(s.partitions["a"].slices[0].node),)))])
    ),
    "is leaving and holds no GPU beyond its plan": lambda s: replace(s, leaving=versioned([("a/", ())])),
    "leaving names tenants that hold nothing": lambda s: replace(s, leaving=versioned([("b/", ())])),
    "is being ended and has partitions": lambda s: with_view(s, "a", verdict="stopped"),
    "a tenant is unsettled twice": lambda s: replace(s, unsettled=(("a", ""), ("a", ""))),
    "is lost and still has something": without_nodes,
    "which is lost": without_nodes,
    "is held by": lambda s: with_view(s, "b", tenancies=(twin(s),)),
}


def twin(snapshot):
    """What 'a' holds, as another partition."""
    tenancy = snapshot.jobs["a"].tenancies[0]
    return replace(tenancy, holding=replace(tenancy.holding, partition="b"))


def test_a_sound_state_has_no_faults(harness):
    assert broken_invariants(harness.snapshot) == broken_indices(harness.controller.state) == []


@pytest.mark.parametrize(("said", "spoil"), SPOILT.items(), ids=SPOILT)
def test_what_is_broken_is_said(harness, said, spoil):
    found = broken_invariants(spoil(harness.snapshot))
    assert any(said in each for each in found), found


def test_an_index_that_is_not_in_snapshots_is_compared_too(harness):
    state = harness.controller.state
    state.followers["a"] = ["b"]
    assert "the index 'followers'" in broken_indices(state)[0]
    state.followers.clear()
    state.tasks_placed["a"] = 1
    assert "the index 'tasks_placed'" in broken_indices(state)[0]
