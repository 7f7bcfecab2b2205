"""A reserved node: who gets it, what the check and `why` say, and what a restart, a replay and a document keep."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from hocket.control.check import violations
from hocket.control.replay import replay
from hocket.control.saved_state import decode, encode
from hocket.model.document import to_document
from hocket.model.event import JobEnded, NodeReserved, NodeUnreserved
from hocket.model.job import Job
from hocket.model.partition import STEP, Partition, Sharing, Tenant
from hocket.model.plan import Plan
from hocket.model.rebuild import from_document
from hocket.model.reservation import NodeReservation
from hocket.model.resources import Node, Slice
from hocket.model.shortage import wait_of
from hocket.policies import Draft, Params, Policy, find
from hocket.testing import laws
from hocket.testing.builders import job, submitted
from hocket.testing.harness import Harness

NODES = [Node("n0", 2), Node("n1", 2)]
FOR_ANA = NodeReservation("r", "n0", ("ana",), 1.0)


def running(*jobs: Any, policy: str = "fifo") -> Harness:
    harness = Harness.of(find(policy).bound(), NODES)
    harness.tell(*(submitted(j) for j in jobs), at_s=0.0)
    harness.answer()
    return harness


def node_of(harness: Harness, job_id: str) -> str:
    view = harness.snapshot.jobs[job_id]
    return harness.snapshot.partitions[view.partitions[0]].slices[0].node if view.partitions else ""


def test_only_jobs_of_its_owners_start_on_a_reserved_node_and_others_run_on() -> None:
    harness = running(job("a", 1, owner="bo"))
    assert node_of(harness, "a") == "n0"
    harness.tell(NodeReserved(1.0, FOR_ANA))
    harness.tell(submitted(job("b", 2, owner="bo"), 2.0), submitted(job("c", 1, owner="ana"), 2.0), at_s=2.0)
    assert [node_of(harness, name) for name in "abc"] == ["n0", "n1", "n0"]
    harness.answer()
    harness.tell(JobEnded(3.0, "a"), submitted(job("d", 1, owner="cy"), 3.0), at_s=3.0)
    assert node_of(harness, "d") == ""
    harness.tell(NodeUnreserved(4.0, "r"))
    assert node_of(harness, "d") == "n0"


def test_begin_and_end_wake_the_policy() -> None:
    harness = running()
    harness.tell(NodeReserved(1.0, replace(FOR_ANA, from_s=10.0, until_s=20.0)))
    harness.tell(submitted(job("a", 2, owner="bo"), 2.0), submitted(job("b", 2, owner="bo"), 2.0), at_s=2.0)
    harness.answer()
    assert harness.controller.next_timer_s() == 10.0
    harness.tell(at_s=10.0)
    assert node_of(harness, "a") == "n0"  # It began before.
    harness.tell(JobEnded(11.0, "a"))
    harness.tell(submitted(job("c", 2, owner="bo"), 12.0))
    assert (node_of(harness, "c"), harness.controller.next_timer_s()) == ("", 20.0)
    harness.tell(at_s=20.0)
    assert (node_of(harness, "c"), harness.snapshot.reservations) == ("n0", ())
    assert harness.controller.next_timer_s() is None


def test_a_reservation_that_ended_while_there_was_no_job_is_over() -> None:
    harness = running()
    harness.tell(NodeReserved(1.0, replace(FOR_ANA, until_s=20.0)))
    assert harness.controller.next_timer_s() is None
    harness.tell(NodeReserved(30.0, replace(FOR_ANA, owners=("cy",), from_s=30.0)))  # The name is free again.
    harness.tell(submitted(job("a", 3, owner="ana"), 31.0), submitted(job("b", 2, owner="cy"), 31.0), at_s=31.0)
    assert (node_of(harness, "a"), node_of(harness, "b")) == ("", "n0")


def test_a_reservation_that_is_removed_before_it_begins_never_holds() -> None:
    harness = running()
    harness.tell(NodeReserved(1.0, replace(FOR_ANA, from_s=10.0)))
    harness.tell(NodeUnreserved(2.0, "r"))
    assert harness.controller.next_timer_s() is None
    harness.tell(submitted(job("a", 2, owner="bo"), 11.0), submitted(job("b", 2, owner="bo"), 11.0), at_s=11.0)
    assert {node_of(harness, "a"), node_of(harness, "b")} == {"n0", "n1"}


def refused(harness: Harness, *put: Partition, drop: tuple[str, ...] = ()) -> list[str]:
    reasons = {t.job: "starts" for p in put for t in p.tenants} | dict.fromkeys(drop, "paused")
    return violations(harness.snapshot, Plan(put=put, drop=drop, reasons=reasons))


def test_the_check_refuses_jobs_of_others_and_names_job_owner_node_and_reservation() -> None:
    a = Partition("a", (Slice("n0", (0,)),), (Tenant("a", (1,)),))
    harness = Harness(lambda s: Plan() if "a" in s.partitions else Plan(put=(a,), reasons={"a": "starts"}), NODES)
    harness.tell(submitted(job("a", 1, 2, owner="bo")))
    harness.tell(NodeReserved(1.0, FOR_ANA))
    names = (("b", "bo"), ("m", "ana"))
    harness.tell(*(submitted(Job(name, owner), 2.0) for name, owner in names), at_s=2.0)
    there = Slice("n0", (1,))
    says = "job 'b' of owner 'bo' is placed on node 'n0', which is reserved for ana as 'r'"
    assert refused(harness, Partition("b", (there,), (Tenant("b", (1,)),))) == [says]
    assert refused(harness, Partition("b", (Slice("n1", (1,)),), (Tenant("b", (1,)),))) == []
    assert refused(harness, Partition("m", (there,), (Tenant("m", (1,)),))) == []
    grown = Partition("a", (Slice("n0", (0, 1)),), (Tenant("a", (2,)),))
    assert refused(harness, grown) == [says.replace("'b'", "'a'")]  # It may not grow there …
    joined = Partition("ab", a.slices, (Tenant("a", a.tenants[0].replicas), Tenant("b", (1,))), Sharing.STACKED)
    assert refused(harness, joined, drop=("a",)) == [says]  # … nor another join it there …
    stays = Partition("am", a.slices, (Tenant("a", a.tenants[0].replicas), Tenant("m", (1,))), Sharing.STACKED)
    assert refused(harness, stays, drop=("a",)) == []  # … but one of the owner's may.


def test_a_job_of_others_gets_no_more_replicas_in_what_it_has() -> None:
    wide = Partition("a", (Slice("n0", (0, 1)),), (Tenant("a", (1,)),))
    harness = Harness(lambda s: Plan() if "a" in s.partitions else Plan(put=(wide,), reasons={"a": "starts"}), NODES)
    harness.tell(submitted(job("a", 1, 2, owner="bo")))
    more = replace(wide, tenants=(Tenant("a", (2,)),))
    assert refused(harness, more) == []
    harness.tell(NodeReserved(1.0, FOR_ANA))
    assert "job 'a' of owner 'bo' is placed on node 'n0'" in refused(harness, more)[0]
    assert refused(harness, replace(wide, tenants=(replace(wide.tenants[0], boundary=STEP),))) == []


def test_the_law_finds_a_policy_that_ignores_reservations() -> None:
    def decide(snapshot: Any, _params: Any) -> Plan:
        draft = Draft(snapshot)
        for view in draft.candidates():
            draft.start(replace(view, job=replace(view.job, excluded_nodes=())), "starts")
        return draft.plan()

    harness = Harness(lambda _snapshot: Plan(), NODES)
    harness.tell(NodeReserved(1.0, FOR_ANA), submitted(job("a", 1, owner="bo"), 1.0), at_s=1.0)
    bound = Policy("deaf", decide, Params, None, "", "", "").bound()
    with pytest.raises(laws.Broken, match="passes_the_check"):
        laws.hold(bound, harness.snapshot)
    with pytest.raises(laws.Broken, match="job 'a' of owner 'bo' is placed on node 'n0', which is reserved for ana"):
        laws.reservations_are_kept(harness.snapshot, bound.decide(harness.snapshot))


def test_why_names_the_reservation_and_when_it_ends() -> None:
    harness = running(job("a", 2, owner="ana"))
    harness.tell(NodeReserved(1.0, replace(FOR_ANA, node="n1", until_s=101.0)))
    harness.tell(submitted(job("b", 1, owner="bo"), 2.0))
    wait = wait_of(harness.snapshot.jobs["b"], harness.snapshot, 2.0)
    assert wait.words == "1 GPU: none is free (n1 is reserved for ana as 'r')"
    assert (wait.short_of, wait.expected_s) == (("gpus", "reservation"), 99.0)
    harness.tell(NodeReserved(3.0, NodeReservation("s", "n0", ("ana",), 3.0)))
    wait = wait_of(harness.snapshot.jobs["b"], harness.snapshot, 3.0)
    assert wait.words == "a node with GPUs: n0 is reserved for ana as 's', n1 is reserved for ana as 'r'"
    assert wait.short_of == ("reservation",)


@pytest.mark.parametrize("now_s", [5.0, 15.0])
def test_a_saved_state_and_a_document_keep_reservations(now_s: float) -> None:
    bound = find("fifo").bound()
    harness = running(job("a", 1, owner="bo"))
    harness.tell(NodeReserved(1.0, replace(FOR_ANA, from_s=10.0, until_s=20.0)))
    harness.tell(submitted(job("b", 3, owner="bo"), 2.0))
    harness.tell(at_s=now_s)
    snapshot = harness.snapshot
    restored = decode(encode(harness.controller, bound), bound, harness.journal)
    assert restored.snapshot == snapshot
    assert restored.next_timer_s() == harness.controller.next_timer_s()
    assert from_document(to_document(snapshot)).jobs == snapshot.jobs
    assert from_document(to_document(snapshot)).reservations == snapshot.reservations


def test_a_document_may_leave_out_what_follows_from_its_reservations() -> None:
    harness = running()
    harness.tell(submitted(job("b", 3, owner="bo"), 1.0))
    document = replace(to_document(harness.snapshot), reservations=(FOR_ANA,))
    assert from_document(document).jobs["b"].job.excluded_nodes == ("n0",)


def test_a_replay_makes_the_same_decisions() -> None:
    harness = running(job("a", 1, owner="bo"))
    harness.tell(NodeReserved(1.0, replace(FOR_ANA, from_s=10.0, until_s=20.0)))
    for at_s, owner in ((9.0, "bo"), (11.0, "bo"), (12.0, "ana")):
        harness.tell(submitted(job(f"j{at_s:g}", 1, owner=owner), at_s))
        harness.answer()
    harness.tell(at_s=20.0)
    found = replay(harness.journal.header, harness.journal, find("fifo").bound())
    assert (found.difference, found.decisions) == (None, len(harness.asked))
