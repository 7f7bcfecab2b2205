"""What a waiting job is said to wait for: whichever of its requirements binds, with numbers."""

import pytest
from msgspec.structs import replace

from hocket.model.capacity import Capacity
from hocket.model.event import JobSaved, JobSubmitted, NodeLost, OwnerSet
from hocket.model.job import Job, Owner, Preempt, Task, TaskGraph
from hocket.model.resources import Demand, Node, Slice
from hocket.model.shortage import shortage, wait_of
from hocket.policies.kit.draft import Draft
from hocket.testing.builders import job, snapshot, submitted
from hocket.testing.harness import Harness

GIB = 1024.0
N0 = Node("n0", 8, "v100", 16 * GIB, cores=16, mem_mib=64 * GIB, net_mbps=1000)
N1 = Node("n1", 8, "a100", 40 * GIB, cores=32, mem_mib=128 * GIB, net_mbps=1000)
TWO = (N0, N1)


def gpus(node: str, count: int) -> Slice:
    return Slice(node, tuple(range(count)))


@pytest.mark.parametrize(
    ("nodes", "taken", "wanted", "of", "words"),
    [
        pytest.param(
            (N0,), [gpus("n0", 8)], job("j"), ["gpus"], "1 GPU: none is free", id="gpus-none",
        ),
        pytest.param(
            (N0,), [gpus("n0", 7)], job("j", 2), ["gpus"], "2 GPUs, of which 1 is free", id="gpus-one-node",
        ),
        pytest.param(
            TWO, [gpus("n0", 6), gpus("n1", 5)], job("j", 8), ["gpus"],
            "8 GPUs, of which 5 are free (3 on n1, 2 on n0)", id="gpus-two-nodes",
        ),
        pytest.param(
            TWO, [gpus("n1", 7)], job("j", 2, gpu_kinds=("a100",)), ["gpus", "gpu_kinds"],
            "2 GPUs of kind a100, of which 1 is free; on nodes with other GPUs there would be room", id="kind",
        ),
        pytest.param(
            TWO, [gpus("n1", 7), gpus("n0", 7)], job("j", gpus=2, gpu_kinds=("a100",)), ["gpus"],
            "2 GPUs of kind a100 on one node: n1 has 1 free", id="kind-on-one-node",
        ),
        pytest.param(
            TWO, [gpus("n1", 8)], job("j", gpu_mem_mib=24 * GIB), ["gpus", "gpu_mem_mib"],
            "1 GPU of 24 GiB or more: none is free; on nodes with other GPUs there would be room", id="gpu-mem",
        ),
        pytest.param(
            TWO, [gpus("n0", 5), gpus("n1", 5)], job("j", gpus=4), ["gpus"],
            "4 GPUs on one node: n0 has 3 free, the most of any", id="gpus-of-a-replica",
        ),
        pytest.param(
            TWO, [gpus("n0", 5), gpus("n1", 5)], job("j", 4, max_nodes=1), ["gpus", "max_nodes"],
            "4 GPUs on one node: n0 has 3 free, the most of any; on more nodes there would be room", id="max-nodes-1",
        ),
        pytest.param(
            (N0, N1, replace(N0, id="n2")), [gpus("n0", 6), gpus("n1", 6), gpus("n2", 6)], job("j", 5, max_nodes=2),
            ["gpus", "max_nodes"],
            "5 GPUs on at most 2 nodes, of which 4 are free (2 on n0, 2 on n1); on more nodes there would be room",
            id="max-nodes-2",
        ),
        pytest.param(
            TWO, [gpus("n0", 4), gpus("n1", 1)], job("j", 3, gpus=4), ["gpus"],
            "3 replicas of 4 GPUs, of which 2 fit: n1 has 7 free, the most of any", id="replicas-of-several-gpus",
        ),
        pytest.param(
            (N0,), [Slice("n0", (0,), mem_mib=54.5 * GIB)], job("j", mem_mib=16 * GIB), ["mem_mib"],
            "16 GiB of memory on one node: n0 has 9.5 GiB free", id="memory",
        ),
        pytest.param(
            (N0,), [Slice("n0", (0,), mem_mib=64 * GIB - 15.99 * GIB)], job("j", mem_mib=16 * GIB), ["mem_mib"],
            "16 GiB of memory on one node: n0 has 15.9 GiB free", id="memory-nearly-enough",
        ),
        pytest.param(
            (N0,), [Slice("n0", (), mem_mib=64 * GIB - 100.5)], job("j", mem_mib=512), ["mem_mib"],
            "512 MiB of memory on one node: n0 has 100 MiB free", id="memory-in-mib",
        ),
        pytest.param(
            TWO, [Slice("n0", (), 10), Slice("n1", (), 26.25)], job("j", gpus=0, cores=8), ["cores"],
            "8 cores on one node: n0 has 6 free, the most of any", id="cores",
        ),
        pytest.param(
            TWO, [Slice("n0", (), 4), Slice("n1", (), 24.75)], job("j", 2, gpus=0, cores=8), ["cores"],
            "2 replicas of 8 cores, of which 1 fits: n0 has 12 free, the most of any", id="cores-of-replicas",
        ),
        pytest.param(
            (N0,), [Slice("n0", (), net_mbps=950)], job("j", net_mbps=100), ["net_mbps"],
            "100 Mbps of network on one node: n0 has 50 Mbps free", id="network",
        ),
        pytest.param(
            (N0,), [Slice("n0", tuple(range(8)), 12)], job("j", cores=8), ["gpus", "cores"],
            "1 GPU: none is free; 8 cores on one node: n0 has 4 free", id="two-at-once",
        ),
        pytest.param(
            TWO, [Slice("n0", (), mem_mib=60 * GIB), gpus("n1", 8)], job("j", mem_mib=16 * GIB), ["gpus", "mem_mib"],
            "1 GPU and 16 GiB of memory on one node: n0 has 8 GPUs and 4 GiB free; n1 has 0 GPUs and 128 GiB free",
            id="not-in-the-same-place",
        ),
        pytest.param(
            TWO, [Slice("n0", (), mem_mib=60 * GIB), gpus("n1", 7)], job("j", 2, mem_mib=16 * GIB), ["gpus", "mem_mib"],
            "2 replicas of 1 GPU and 16 GiB of memory, of which 1 fits: "
            "n1 has 1 GPU and 128 GiB free; n0 has 8 GPUs and 4 GiB free", id="replicas-not-in-the-same-place",
        ),
        pytest.param(
            (N0,), [], job("j", gpu_kinds=("h100",)), ["gpu_kinds"],
            "a node with GPUs of kind h100: there are v100", id="kind-nowhere",
        ),
        pytest.param(
            TWO, [], job("j", gpu_mem_mib=80 * GIB), ["gpu_mem_mib"],
            "a node with GPUs of 80 GiB or more: those of n1 have 40 GiB, the most of any", id="gpu-mem-nowhere",
        ),
        pytest.param((), [], job("j"), ["nodes"], "a node: there is none yet", id="no-nodes"),
    ],
)  # fmt: skip
def test_what_is_short_is_named_with_numbers(nodes, taken, wanted: Job, of: list[str], words: str) -> None:
    found = shortage(wanted, Capacity.of(nodes).take(taken))
    assert found is not None
    assert (list(found.of), found.words) == (of, words)


def test_nodes_that_are_down_are_named() -> None:
    one_down = Capacity.of(TWO).take([gpus("n0", 8)]).lose("n1")
    assert shortage(job("j"), one_down).words == "1 GPU: none is free (n1 is down)"
    assert shortage(job("j", gpu_kinds=("a100",)), one_down).words == "a node with GPUs of kind a100: n1 is down"
    assert shortage(job("j"), one_down.give([gpus("n0", 8)]).lose("n0")).words == "a node: none of 2 is up"


def test_a_job_that_fits_lacks_nothing() -> None:
    assert shortage(job("j", 8, mem_mib=8 * GIB, gpu_kinds=("a100",)), Capacity.of(TWO)) is None


# -- in a cluster with jobs -------------------------------------------------------------------------------------------


def running(*jobs: Job, nodes=(N0,), run_s: dict[str, float] | None = None) -> Harness:
    """A cluster on which all start that fit, in the order of submission."""

    def greedy(state):
        draft = Draft(state)
        for view in draft.candidates():
            draft.start(view, "starts")
        return draft.plan()

    harness = Harness(greedy, nodes)
    for each in jobs:
        harness.tell(submitted(each, run_s=(run_s or {}).get(each.id)))
        harness.answer()
    return harness


def waits(harness: Harness, name: str, now_s: float = 0.0, said: str = ""):
    return wait_of(harness.snapshot.jobs[name], harness.snapshot, now_s, said)


def test_the_estimate_follows_what_is_short_and_not_the_gpus() -> None:
    small, large = job("small", mem_mib=1 * GIB), job("large", mem_mib=50 * GIB)
    harness = running(small, large, job("next", mem_mib=20 * GIB), run_s={"small": 10.0, "large": 500.0})
    found = waits(harness, "next")
    assert (found.short_of, found.words) == (("mem_mib",), "20 GiB of memory on one node: n0 has 13 GiB free")
    assert found.expected_s == 500.0  # seven GPUs are free now, and one more in 10 s
    assert waits(harness, "next", now_s=100.0).expected_s == 400.0


def test_what_is_not_known_to_end_makes_the_estimate_unknown() -> None:
    harness = running(job("a", 8), job("next"))
    assert waits(harness, "next").expected_s is None


def test_a_quota_is_told_with_numbers_and_when_it_has_room() -> None:
    harness = running()
    harness.tell(OwnerSet(0.0, Owner("ana", max_gpus=3, max_mem_mib=20 * GIB)))
    for each in (job("a", 2, owner="ana"), job("b", 2, owner="ana"), job("m", 2, owner="ana", mem_mib=8.25 * GIB)):
        harness.tell(submitted(each, run_s=70.0))
        harness.answer()
    found = waits(harness, "b")
    assert found.short_of == ("quota", "gpus")
    assert found.words == "room in the quota of owner 'ana', 3 GPUs: its jobs use 2, this one needs 2"
    assert found.expected_s == 70.0
    harness.tell(OwnerSet(0.0, Owner("ana", max_jobs=1)))
    assert waits(harness, "b").words == "room in the quota of owner 'ana', 1 job at once: 1 of its jobs run"
    harness.tell(OwnerSet(0.0, Owner("ana", max_mem_mib=1 * GIB)))
    assert "'ana', 1 GiB of memory: its jobs use 0 MiB, this one needs 16.5 GiB" in waits(harness, "m").words


def test_a_job_for_which_there_is_room_waits_for_the_policy() -> None:
    state = snapshot((N0,), JobSubmitted(0.0, job("j")))
    found = wait_of(state.jobs["j"], state, 0.0, "waits: 'big' is first in line and does not fit yet")
    room = "its turn: there is room for it, and the policy keeps it waiting"
    assert found.words == f"{room} ('big' is first in line and does not fit yet)"
    assert (found.short_of, found.expected_s) == ((), None)
    assert wait_of(state.jobs["j"], state, 0.0).words == room


def test_jobs_that_are_protected_from_preemption_are_named() -> None:
    first, second = job("a", 4, preempt=Preempt.NEVER), job("b", 4, preempt=Preempt.SAVED)
    harness = running(first, second, job("next", 8))
    assert waits(harness, "next").words == (
        "8 GPUs: none is free; 2 jobs that run are protected from preemption: "
        "'a' (it was submitted with --preempt never), 'b' (it has not saved its state yet)"
    )
    harness.tell(JobSaved(0.0, "b"))
    # What b has would not be enough without what a has.
    assert waits(harness, "next").words == (
        "8 GPUs: none is free; 1 job that runs is protected from preemption: "
        "'a' (it was submitted with --preempt never)"
    )


def test_protected_jobs_are_not_named_where_others_have_what_is_short() -> None:
    harness = running(job("a", 2, preempt=Preempt.NEVER), job("b", 6), job("next", 4))
    assert waits(harness, "next").words == "4 GPUs: none is free"


def test_where_tasks_fit_is_for_the_policy_to_say() -> None:
    graph = TaskGraph((Task("a", Demand(1)), Task("b", Demand(1))))
    state = snapshot((N0,), JobSubmitted(0.0, replace(job("j"), tasks=graph)))
    assert wait_of(state.jobs["j"], state, 0.0).words == "the policy, which places its 2 tasks"


def test_a_lost_node_gives_nothing_back() -> None:
    harness = running(job("a", 8), job("b", 8), job("next", 1), nodes=TWO, run_s={"a": 10.0, "b": 50.0})
    harness.tell(NodeLost(0.0, "n0"))
    assert "(n0 is down)" in waits(harness, "next").words
