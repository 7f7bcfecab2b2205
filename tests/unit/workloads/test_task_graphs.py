"""Generated task graphs have the shape, the shares and the volumes that were asked for."""

import pytest

from hocket.control.admission import faults
from hocket.model.job import Job
from hocket.model.resources import Demand
from hocket.workloads.errors import WorkloadError
from hocket.workloads.task_graphs import SYNC_SHARE, Partitioning, task_graph

WORKER, SERVER = Demand(1, 2.0, gpu_share=0.5), Demand(1, 1.0, gpu_share=0.1)


def graph_of(between_mib=60.0, sync_mib=90.0, **cut):
    return task_graph(Partitioning(**cut), WORKER, SERVER, between_mib, sync_mib)


def edges_of(graph):
    return {(e.source, e.target): e.mib for e in graph.edges}


def test_a_sequential_model_is_a_chain_that_ends_at_its_server():
    graph = graph_of(parts=3)
    assert edges_of(graph) == {("r0p0", "r0p1"): 60.0, ("r0p1", "r0p2"): 60.0, ("r0p2", "ps"): 90.0}
    assert [t.share for t in graph.tasks] == [1 / 3, 1 / 3, 1 / 3, SYNC_SHARE]
    assert [t.is_parameter_server for t in graph.tasks] == [False, False, False, True]


def test_each_part_of_a_layer_is_fed_by_all_of_the_layer_before():
    graph = graph_of(parts=5, structure="layered", sync="all-reduce")
    pairs = [(f"r0p{a}", f"r0p{b}") for a, b in ((0, 2), (0, 3), (1, 2), (1, 3), (2, 4), (3, 4))]
    assert list(edges_of(graph)) == pairs  # One replica: nothing is added up.


def test_data_parallel_replicas_meet_only_where_they_are_added_up():
    graph = graph_of(parts=2, replicas=4, sync="all-reduce")
    assert len(graph.tasks) == 9
    assert {pair: mib for pair, mib in edges_of(graph).items() if pair[1] == "reduce"} == {
        (f"r{r}p1", "reduce"): 90.0 * 2 * 3 / 4 for r in range(4)
    }


def test_one_part_on_one_gpu_is_one_task():
    graph = graph_of()
    assert [t.id for t in graph.tasks] == ["r0p0"]
    assert graph.edges == ()


@pytest.mark.parametrize("structure", ["sequential", "layered"])
@pytest.mark.parametrize("sync", ["ps", "all-reduce"])
@pytest.mark.parametrize(("parts", "replicas"), [(1, 1), (1, 8), (7, 1), (32, 2)])
def test_every_generated_graph_is_admitted(structure, sync, parts, replicas):
    graph = graph_of(parts=parts, replicas=replicas, structure=structure, sync=sync)
    assert list(faults(Job("j", tasks=graph))) == []


@pytest.mark.parametrize(
    ("cut", "words"),
    [
        ({"parts": 0}, "parts must be from 1 up, not 0"),
        ({"structure": "ring"}, "structure must be sequential or layered, not 'ring'"),
        ({"sync": "gossip"}, "sync must be ps or all-reduce, not 'gossip'"),
        ({"sync_mib": -1.0}, "sync_mib must be a finite number from 0 up, not -1.0"),
        ({"between_mib": float("nan")}, "between_mib must be a finite number from 0 up, not nan"),
    ],
)
def test_what_is_no_partitioning_is_refused(cut, words):
    with pytest.raises(WorkloadError, match=words):
        graph_of(**cut)
