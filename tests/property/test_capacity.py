"""Capacity against brute force: what is free, where a job fits, and that nothing is taken twice."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hocket.model.capacity import Capacity, OverCapacity
from hocket.model.job import Job
from hocket.model.resources import Demand, Node, Slice
from hocket.testing import strategies as some

examples = settings(max_examples=100, deadline=None)


def room(free, demand: Demand) -> int:
    """How many replicas fit a node, counted one by one."""
    n = 0
    while (
        n < 64
        and free.gpus.bit_count() >= demand.gpus * (n + 1)
        and free.cores + 1e-9 >= demand.cores * (n + 1)
        and free.mem_mib + 1e-9 >= demand.mem_mib * (n + 1)
        and free.net_mbps + 1e-9 >= demand.net_mbps * (n + 1)
    ):
        n += 1
    return n


def accepts(job: Job, node: Node) -> bool:
    return (not job.gpu_kinds or node.gpu_kind in job.gpu_kinds) and node.gpu_mem_mib >= job.gpu_mem_mib


@st.composite
def partly_taken(draw):
    """A cluster with some of it taken by jobs, and one node perhaps lost."""
    nodes = draw(some.nodes(5))
    capacity, held = Capacity.of(nodes), []
    if draw(st.booleans()):
        capacity = capacity.lose(draw(st.sampled_from(nodes)).id)
    for i in range(draw(st.integers(0, 8))):
        job = draw(some.jobs(f"t{i}", nodes))
        size = draw(st.sampled_from(job.sizes))
        if (places := capacity.place(job, size)) is not None:
            slices = capacity.slices(job, places)
            capacity = capacity.take(slices)
            held.append(slices)
    return nodes, capacity, held


@examples
@given(st.data())
def test_a_job_is_placed_exactly_when_it_fits(data):
    nodes, capacity, _held = data.draw(partly_taken())
    job = data.draw(some.jobs("new", nodes))
    size = data.draw(st.integers(1, 12))
    free = [(node, f) for node, f in capacity if capacity.up >> capacity.layout.index_of(node.id) & 1]
    rooms = sorted((room(f, job.demand) for node, f in free if accepts(job, node)), reverse=True)
    fits = sum(rooms[: job.max_nodes or None]) >= size
    places = capacity.place(job, size)
    # Where replicas go is greedy, largest rooms first, which is exact for the number of nodes too.
    assert (places is not None) == fits
    if places is None:
        return
    assert sum(n for _i, n in places) == size
    assert len({i for i, _n in places}) == len(places)
    assert not job.max_nodes or len(places) <= job.max_nodes
    slices = capacity.slices(job, places)
    taken = capacity.take(slices)
    for (i, replicas), part in zip(places, slices, strict=True):
        node = capacity.layout.nodes[i]
        assert part.node == node.id
        assert accepts(job, node)
        assert len(part.gpus) == job.demand.gpus * replicas
        assert part.cores == pytest.approx(job.demand.cores * replicas)
        assert room(capacity[node.id], job.demand) >= replicas
    assert taken.gpus == capacity.gpus - sum(len(p.gpus) for p in slices)


@examples
@given(st.data())
def test_what_is_given_back_is_free_again_and_old_versions_stay(data):
    nodes, capacity, held = data.draw(partly_taken())
    before = {node.id: free for node, free in capacity}
    order = data.draw(st.permutations(held))
    line = [capacity]
    for slices in order:
        line.append(line[-1].give(slices))
    whole = Capacity.of(nodes)
    for node, free in line[-1]:
        lost = not line[-1].up >> line[-1].layout.index_of(node.id) & 1
        assert free.gpus == (0 if lost else whole[node.id].gpus)
        assert free.cores == pytest.approx(0 if lost else node.cores)
    assert {node.id: free for node, free in capacity} == before
    draft = capacity.draft()
    for slices in order:
        draft = draft.give(slices)
    assert draft.gpus == line[-1].gpus
    assert {node.id: free for node, free in capacity} == before


@examples
@given(st.data())
def test_nothing_is_taken_that_is_not_free(data):
    nodes, capacity, _held = data.draw(partly_taken())
    node = data.draw(st.sampled_from(nodes))
    part = Slice(
        node.id,
        tuple(data.draw(st.lists(st.integers(0, 9), max_size=3))),
        data.draw(st.sampled_from([0.0, 1.0, 17.0])),
        data.draw(st.sampled_from([0.0, 1000.0, 70_000.0])),
        data.draw(st.sampled_from([0.0, 1001.0])),
    )
    free = capacity[node.id]
    up = capacity.up >> capacity.layout.index_of(node.id) & 1
    fits = (
        up
        and len(set(part.gpus)) == len(part.gpus)
        and all(free.gpus >> g & 1 for g in part.gpus)
        and part.cores <= free.cores + 1e-9
        and part.mem_mib <= free.mem_mib + 1e-9
        and part.net_mbps <= free.net_mbps + 1e-9
    )
    if fits:
        assert capacity.take((part,)).gpus == capacity.gpus - len(part.gpus)
    else:
        with pytest.raises(OverCapacity, match=node.id):
            capacity.take((part,))
