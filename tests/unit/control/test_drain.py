"""A drained node: what is free, what the check says, and how it meets losses, restarts and protection."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from hocket.control.check import violations
from hocket.model.document import to_document
from hocket.model.event import (
    JobAsked,
    JobEnded,
    JobRequest,
    JobSaved,
    NodeDrained,
    NodeJoined,
    NodeLost,
    NodeUndrained,
)
from hocket.model.job import Preempt
from hocket.model.partition import Partition, Sharing, Tenant
from hocket.model.plan import Plan
from hocket.model.rebuild import from_document
from hocket.model.resources import Node, Slice
from hocket.model.shortage import wait_of
from hocket.policies import Draft, Params, Policy, find
from hocket.testing import laws
from hocket.testing.builders import job, snapshot, submitted
from hocket.testing.harness import Harness
from hocket.testing.invariants import broken_invariants

NODES = [Node("n0", 2), Node("n1", 2)]


def running(*jobs: Any) -> Harness:
    harness = Harness.of(find("fifo").bound(), NODES)
    harness.tell(*(submitted(j) for j in jobs), at_s=0.0)
    harness.answer()
    return harness


def node_of(harness: Harness, job_id: str) -> str:
    view = harness.snapshot.jobs[job_id]
    return harness.snapshot.partitions[view.partitions[0]].slices[0].node if view.partitions else ""


def test_jobs_go_on_and_what_they_free_is_given_to_nobody() -> None:
    harness = running(job("a", 2))
    harness.tell(NodeDrained(1.0, "n0"))
    harness.tell(submitted(job("b", 2), 2.0), submitted(job("c", 1), 2.0), at_s=2.0)
    harness.answer()
    assert (node_of(harness, "a"), node_of(harness, "b"), node_of(harness, "c")) == ("n0", "n1", "")
    wait = wait_of(harness.snapshot.jobs["c"], harness.snapshot, 2.0)
    assert "n0 is drained" in wait.words
    harness.tell(JobEnded(3.0, "a"))
    assert (harness.snapshot.capacity.gpus, node_of(harness, "c")) == (0, "")
    harness.tell(NodeUndrained(4.0, "n0"))
    assert (harness.snapshot.capacity.gpus, node_of(harness, "c")) == (1, "n0")


def test_an_opened_node_has_what_its_jobs_do_not_have() -> None:
    harness = running(job("a", 1))
    harness.tell(NodeDrained(1.0, "n0"))
    harness.tell(NodeUndrained(2.0, "n0"))
    assert harness.snapshot.capacity["n0"].gpus.bit_count() == 1
    assert not list(broken_invariants(harness.snapshot))


@pytest.mark.parametrize("gpus", [2, 3])
def test_a_node_that_was_lost_comes_back_drained(gpus: int) -> None:
    harness = running(job("a", 2))
    harness.tell(NodeDrained(1.0, "n0"))
    harness.tell(NodeLost(2.0, "n0"))
    harness.tell(NodeJoined(3.0, Node("n0", gpus)))
    harness.tell(submitted(job("b", 2), 4.0))
    assert harness.snapshot.nodes["n0"].drained
    assert (node_of(harness, "a"), harness.snapshot.capacity["n0"].gpus) == ("n1", 0)
    harness.tell(NodeUndrained(5.0, "n0"))
    assert node_of(harness, "b") == "n0"


def test_with_clear_jobs_leave_as_soon_as_they_may() -> None:
    saved = job("b", 1, preempt=Preempt.SAVED)
    harness = running(job("a", 1), saved)
    harness.tell(JobAsked(1.0, "b", JobRequest.RESUME))  # It is not held: nothing happens.
    assert node_of(harness, "a") == node_of(harness, "b") == "n0"
    harness.tell(NodeDrained(2.0, "n0", clear=True))
    assert (node_of(harness, "a"), node_of(harness, "b")) == ("n1", "n0")
    assert harness.snapshot.jobs["b"].protected_at(2.0)
    harness.answer()
    harness.tell(JobSaved(3.0, "b"))
    assert node_of(harness, "b") == "n1"
    assert harness.snapshot.jobs["b"].failures == 0


def test_a_document_of_a_snapshot_has_it() -> None:
    harness = running(job("a", 1))
    harness.tell(NodeDrained(1.0, "n0", clear=False))
    again = from_document(to_document(harness.snapshot, "fifo"))
    assert again.capacity == harness.snapshot.capacity
    assert again.nodes["n0"].drained


def test_a_plan_that_places_a_job_there_is_refused() -> None:
    harness = running(job("a", 1), job("held", 2), job("b", 1))
    harness.tell(JobAsked(0.0, "b", JobRequest.PAUSE))
    harness.answer()
    harness.tell(NodeDrained(1.0, "n0"), JobAsked(1.0, "held", JobRequest.STOP))
    now = harness.snapshot
    new = Partition("b", (Slice("n0", (1,)),), (Tenant("b", (1,)),))
    assert "partition 'b': node 'n0' is drained" in violations(now, Plan((new,), reasons={"*": "so"}))
    old = now.partitions[now.jobs["a"].partitions[0]]
    beside = replace(old, tenants=(*old.tenants, Tenant("b", (1,))), sharing=Sharing.STACKED)
    found = violations(now, Plan((beside,), reasons={"*": "so"}))
    assert f"job 'b' is placed on node '{old.slices[0].node}', which is drained" in found


def test_the_law_finds_a_policy_that_uses_a_drained_node() -> None:
    def decide(given: Any, _params: Any) -> Plan:
        draft = Draft(given)
        plan = draft.plan()
        put = tuple(Partition(j, (Slice("n0", (0,)),), (Tenant(j, (1,)),)) for j in given.jobs)
        return replace(plan, put=put, reasons=dict.fromkeys(given.jobs, "starts"))

    scene = snapshot(NODES, submitted(job("a", 1)), NodeDrained(0.0, "n0"))
    with pytest.raises(laws.Broken, match="job 'a' is placed on node 'n0', which is drained"):
        laws.drained_nodes_get_no_jobs(scene, Policy("bad", decide, Params, None, "", "", "").bound().decide(scene))


@pytest.mark.parametrize("limits", [{}, {"max_nodes": 2}], ids=["any GPUs", "by place"])
@pytest.mark.parametrize(("policy", "knobs"), [("las", {}), ("srtf", {}), ("edf", {}), ("fair", {"quantum_s": 0})])
def test_no_job_is_paused_for_gpus_of_a_drained_node(
    policy: str, knobs: dict[str, Any], limits: dict[str, Any]
) -> None:
    harness = Harness.of(find(policy).bound(knobs), NODES)
    old = [submitted(job(name, 1, owner="x", deadline_s=1e6), 0.0, 1e5) for name in "abcd"]
    harness.tell(*old, at_s=0.0)
    harness.answer()
    harness.tell(at_s=9000.0)
    stays = [name for name in "abcd" if node_of(harness, name) == "n1"]
    harness.tell(NodeDrained(9001.0, "n1"))
    harness.tell(submitted(job("new", 1, owner="y", deadline_s=9000.0, **limits), 9002.0, 10.0))
    assert [node_of(harness, name) for name in stays] == ["n1", "n1"]
    assert node_of(harness, "new") == "n0"
