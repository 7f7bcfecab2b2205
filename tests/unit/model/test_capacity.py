"""What is free, node by node, and what of it changed."""

from hocket.model.capacity import Capacity
from hocket.model.resources import Node, Slice


def test_what_changed_since_another_capacity_is_told_by_node():
    nodes = [Node("a", 8), Node("b", 2, cores=4.0), Node("c", 8), Node("d", 0, cores=4.0)]
    whole = Capacity.of(nodes)
    assert list(whole.changed_since(None)) == [0, 1, 2, 3]
    assert list(whole.changed_since(Capacity.of(nodes))) == [0, 1, 2, 3], "another layout: anything may have changed"
    assert list(whole.changed_since(whole)) == []
    less = whole.take((Slice("b", (1,)), Slice("d", cores=1.0)))
    assert list(less.changed_since(whole)) == [1, 3]
    other = less.give((Slice("b", (1,)),)).take((Slice("c", (0, 7)),))
    assert list(other.changed_since(whole)) == [2, 3]
    assert {2, 3} <= set(whole.changed_since(other)), "of a newer one it may know less, never wrong"


def test_what_is_free_of_a_node_is_a_slice_of_it_with_the_same_amounts():
    free = Capacity.of([Node("a", 8, cores=4.0, mem_mib=100.0)]).take((Slice("a", (0, 2), 1.5),))["a"]
    assert free.slice_of("a") == Slice("a", (1, 3, 4, 5, 6, 7), 2.5, 100.0)
    assert free.vector == free.slice_of("a").vector == (6, 2.5, 100.0, 0.0)
