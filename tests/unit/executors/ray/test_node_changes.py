"""Which nodes of Ray get an agent, what is reserved of them and what they are called: as values, without Ray."""

from hocket.executors.ray.messages import NodeNeeds, Reserved
from hocket.executors.ray.node_changes import (
    Changes,
    NewNode,
    NodeGroup,
    RayNode,
    actor_name,
    changes,
    digests,
    gpu_kind,
    group_name,
    read_group_name,
    reservation,
    room_to_ask_for,
    serves,
)

NOW = "digest-now"


def node(node_id: str, name: str = "box", alive: bool = True, **free: float) -> RayNode:
    return RayNode(node_id, name, "10.0.0.1", alive, dict(free), dict(free))


def group(node_id: str, name: str = "box", digest: str = NOW, is_ready: bool = True) -> NodeGroup:
    return NodeGroup(name, node_id, Reserved(1.0), is_ready, digest)


def test_a_cluster_in_which_every_node_has_its_agent_needs_no_change() -> None:
    assert changes([node("a", "x"), node("b", "y")], [group("a", "x"), group("b", "y")], NOW) == Changes()


def test_a_node_that_joins_is_reserved_first_and_gets_an_agent_when_it_is() -> None:
    (reserve,) = changes([node("a", "x")], [], NOW).reserve
    assert reserve == NewNode(node("a", "x"), "x")
    waiting = group("a", "x", digest="", is_ready=False)
    assert changes([node("a", "x")], [waiting], NOW) == Changes()
    made = group("a", "x", digest="")
    assert changes([node("a", "x")], [made], NOW) == Changes(start=(made,))


def test_a_node_that_died_or_is_unknown_loses_what_was_reserved() -> None:
    dead, unknown = group("a", "x"), group("b", "y")
    assert changes([node("a", "x", alive=False)], [dead, unknown], NOW) == Changes(remove=(dead, unknown))


def test_of_two_groups_of_one_node_one_is_removed() -> None:
    first, second = group("a", "x"), group("a", "x2")
    assert changes([node("a", "x")], [first, second], NOW).remove == (first,)


def test_an_agent_with_other_settings_is_replaced_and_keeps_what_is_reserved() -> None:
    old = group("a", "x", digest="before")
    assert changes([node("a", "x")], [old], NOW) == Changes(replace=(old,))


def test_nodes_of_one_name_are_told_apart_and_one_that_returns_has_its_name_again() -> None:
    raylets = [node("bbbbbbbb2"), node("aaaaaaaa1")]
    first, second = changes(raylets, [], NOW).reserve
    assert first == NewNode(raylets[1], "box")
    assert second == NewNode(raylets[0], "box-bbbbbb", is_namesake=True)
    (back,) = changes([node("new"), node("old", alive=False)], [group("old")], NOW).reserve
    assert back == NewNode(node("new"), "box")
    (beside,) = changes([node("newcomer"), node("old")], [group("old")], NOW).reserve
    assert beside == NewNode(node("newcomer"), "box-newcom", is_namesake=True)


def test_a_name_has_only_what_tokens_may_have_in_theirs() -> None:
    (new,) = changes([node("a", "gpu node/1@rack#2")], [], NOW).reserve
    assert new.name == "gpu-node-1-rack-2"


def test_all_that_is_free_is_reserved_or_as_much_as_is_said() -> None:
    free = node("a", CPU=8.0, GPU=4.0, memory=64e9)
    assert reservation(free) == Reserved(8.0, 4, 64e9)
    assert reservation(free, gpus=1, cores=2.0) == Reserved(2.0, 1, 16e9)
    assert reservation(free, gpus=9, cores=99.0) == Reserved(8.0, 4, 64e9)


def test_a_part_of_a_core_or_gpu_that_others_use_is_not_reserved() -> None:
    assert reservation(node("a", CPU=3.5, GPU=1.5, memory=7.0)) == Reserved(3.0, 1, 7.0)


def test_a_node_without_a_free_core_is_left_alone() -> None:
    assert reservation(node("head", memory=1e9)) is None
    assert reservation(node("full", CPU=0.5, GPU=4.0)) is None


def test_the_kind_of_gpus_is_what_ray_calls_them() -> None:
    assert gpu_kind({"CPU": 8.0, "accelerator_type:H100": 1.0}) == "H100"
    assert gpu_kind({"CPU": 8.0}) == ""
    both = RayNode("a", "x", "", total={"accelerator_type:A100": 1.0}, free={"CPU": 1.0, "GPU": 2.0})
    assert reservation(both) == Reserved(1.0, 2, 0.0, "A100")
    assert reservation(both, gpus=0) == Reserved(1.0)


def test_what_is_ours_is_told_by_its_name() -> None:
    assert read_group_name("hocket-1", group_name("hocket-1", "n1", "abc")) == ("n1", "abc")
    assert read_group_name("hocket-2", group_name("hocket-1", "n1", "abc")) is None
    assert read_group_name("hocket-1", "another user's") is None
    assert digests([actor_name("n1", "abc", "d1"), "another's"]) == {("n1", "abc"): "d1"}


def test_a_node_serves_what_it_has_all_of() -> None:
    has = node("a", CPU=2.0, GPU=1.0)
    assert serves(has, [{"CPU": 3.0}, {"CPU": 2.0, "GPU": 1.0}])
    assert not serves(has, [{"CPU": 1.0, "accelerator_type:A100": 0.001}, {"GPU": 2.0}])
    assert not serves(has, [])


def test_a_node_that_is_not_up_yet_is_asked_for_only_once() -> None:
    groups, waits = [group("b", "y"), group("a", "x")], {"CPU": 2.0}
    assert room_to_ask_for(groups, NodeNeeds([waits], ["x", "y"])) == [{"CPU": 1.0}, {"CPU": 1.0}, waits]
    assert room_to_ask_for(groups, NodeNeeds([waits], ["x"])) == [{"CPU": 1.0}, waits]
    assert room_to_ask_for(groups, NodeNeeds([], ["x", "y"])) == []
