"""A query changes its size in its process: by an order and a report, without another run."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from hocket.agent.protocol import Hello, Report, ResizeRun, RunKey, RunLimits
from hocket.executors.agents.launching import resize_orders, run_orders, spec_of
from hocket.executors.agents.local_effects import local_effect, resizes_in_place
from hocket.executors.agents.multi_node_exits import MultiNodeExits
from hocket.executors.agents.orders import Orders
from hocket.executors.agents.reconcile import Reconciliation
from hocket.executors.agents.reports_to_events import facts
from hocket.executors.agents.run_numbers import present
from hocket.executors.agents.sessions import Sessions
from hocket.model.event import JobFailed, JobResized
from hocket.model.job import Job, Kind, Launch
from hocket.model.partition import Boundary, Holding
from hocket.model.resources import Demand, Node, Slice
from hocket.model.versioned import versioned
from hocket.model.view import Doing, JobView, Tenancy
from hocket.testing.builders import snapshot

JOB = Job(
    "q", kind=Kind.QUERY, command=("hocket", "query", "SELECT 1", "--data", "d"), sizes=(1, 2),
    demand=Demand(cores=1.0, mem_mib=512.0), launch=Launch(),
)  # fmt: skip


def holding(threads: int, node: str = "n0", boundary: Boundary | None = None) -> Holding:
    slices = (Slice(node, cores=float(threads), mem_mib=512.0 * threads),)
    return Holding("q", slices, (threads,), boundary or Boundary())


def view(to: Holding | None, doing: Doing = Doing.RESIZING, job: Job = JOB) -> JobView:
    return JobView(job, 0, 0.0, starts=1, tenancies=(Tenancy("", holding(1), doing, to),))


@pytest.mark.parametrize(
    ("changing", "expected"),
    [
        (view(holding(2)), True),
        (view(holding(1, boundary=Boundary("after", batches=2))), True),  # It must learn its running epoch.
        (view(holding(2, node="n1")), False),
        (view(holding(2), Doing.MOVING), False),
        (view(holding(2), job=replace(JOB, kind=Kind.TRAINING)), False),
        (view(None, Doing.NOTHING), False),
    ],
)
def test_a_query_on_its_node_goes_on_in_its_process(changing: JobView, expected: bool) -> None:
    assert resizes_in_place(changing) is expected
    if expected:
        assert local_effect(changing, prepares=True, now_s=1.0) is None  # Its agent says when.


def test_the_order_has_the_size_the_limits_and_the_running_epoch() -> None:
    run = RunKey("q", 1)
    to = holding(2, boundary=Boundary("after", batches=3_000_001, seconds=1.5))
    env = {"HOCKET_SIZE": "2", "HOCKET_EPOCH_BATCHES": "3000001", "HOCKET_EPOCH_S": "1.5"}
    assert resize_orders(JOB, run, to) == {"n0": ResizeRun(run, env, RunLimits(1024.0, 2.0))}
    assert env.items() <= run_orders(JOB, run, to, {})["n0"].env.items()
    assert "HOCKET_EPOCH_BATCHES" not in run_orders(JOB, run, holding(2), {})["n0"].env


def test_its_steps_are_reported_beside_its_epochs() -> None:
    assert spec_of(JOB, 1)["counts_steps"]
    assert not spec_of(replace(JOB, kind=Kind.TRAINING), 1)["counts_steps"]


def test_the_report_makes_it_so_without_another_run() -> None:
    changing = view(holding(2))
    said = Report(present(changing), 0, 1.0, "resized", {"size": "2"})
    assert facts(changing, said, 5.0) == [JobResized(5.0, "q", in_place=True)]
    assert facts(view(None, Doing.NOTHING), said, 5.0) == []  # It was said twice.
    assert facts(changing, replace(said, run=RunKey("q", 7)), 5.0) == []


@pytest.mark.parametrize(
    ("kind", "code", "final"), [(Kind.QUERY, 2, True), (Kind.QUERY, 1, False), (Kind.TRAINING, 2, False)]
)
def test_a_query_that_is_refused_is_not_run_again(kind: Kind, code: int, final: bool) -> None:
    running = view(None, Doing.NOTHING, replace(JOB, kind=kind))
    (failed,) = facts(running, Report(present(running), 3, 1.0, "exited", {"code": code}), 5.0)
    assert isinstance(failed, JobFailed)
    assert failed.final is final
    assert ("hocket logs q" in failed.reason) is final


@pytest.mark.parametrize("to", [holding(2), holding(1, boundary=Boundary("after", batches=2))], ids=["size", "epoch"])
def test_an_agent_that_comes_back_is_told_again(to: Holding) -> None:
    changing = view(to)
    node = Node("n0", cores=4.0, mem_mib=8192.0)
    state = replace(snapshot([node]), jobs=versioned([("q", changing)]))
    sessions = Sessions(lease_s=30.0)
    session = sessions.open("n0", "127.0.0.1", "s")
    orders = Orders(state, sessions, prepares=True)
    hello = Hello(node, "127.0.0.1", runs=(present(changing),))
    assert Reconciliation(hello, sessions, orders, MultiNodeExits()).facts(state, 1.0) == []
    (told,) = sessions.orders(session, 0, 1.0)
    assert isinstance(told.order, ResizeRun)
    assert told.order.run == present(changing)
