"""Faults in the product itself, each of which some seed must find: what is checked can fail.

Each takes something away that the product relies on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

from tests.faultsim.journal_store import SimulatedJournal

from hocket.agent.node.controller_link import Session
from hocket.agent.node.lease import Lease
from hocket.agent.node.runs import Runs
from hocket.agent.protocol import RunKey
from hocket.agent.sidecar.lease_watch import LeaseWatch
from hocket.executors.agents import executor, launching, orders, reconcile, reports_to_events, run_numbers
from hocket.executors.agents.broken_parts import BrokenParts
from hocket.executors.agents.executor import AgentExecutor
from hocket.executors.agents.multi_node_exits import MultiNodeExits, nodes_of_attempt
from hocket.model.view import JobView


def no_fencing() -> Iterator[Any]:
    """Runs go on without a lease."""
    yield patch.object(LeaseWatch, "look", lambda self, now_s, _sessions: setattr(self, "next_s", now_s + 2.0))


def lease_from_answer() -> Iterator[Any]:
    """The lease counts from when an answer came, not from when the call was sent, and is longer than it should."""
    renew = Lease.renew
    yield patch.object(
        Lease, "renew", lambda self, _sent_s, welcome: renew(self, _now_s() + welcome.lease_s / 2, welcome)
    )


def _now_s() -> float:
    from hocket.agent.node import lease  # As it is in the simulation.

    return lease.boot_s()


def reports_counted_again() -> Iterator[Any]:
    """A report that was taken in before is taken in once more."""
    take_report = AgentExecutor._take_report

    def forgetful(self: AgentExecutor, report: Any, node: str, now_s: float) -> Any:
        self._heard.clear()
        return take_report(self, report, node, now_s)

    yield patch.object(AgentExecutor, "_take_report", forgetful)


def journal_after_orders() -> Iterator[Any]:
    """Orders go out before their cycle is in the journal, which a kill then lacks."""
    commit = SimulatedJournal._commit

    def late(self: SimulatedJournal, rows: Any) -> None:
        waiting = self.__dict__.setdefault("late_rows", [])
        waiting += rows
        if len(waiting) > 2:
            commit(self, waiting[:-2])
            del waiting[:-2]

    yield patch.object(SimulatedJournal, "_commit", late)


def run_numbers_reused() -> Iterator[Any]:
    """A run that failed does not use its number up."""

    def present(view: JobView) -> RunKey:
        return RunKey(view.job.id, max(view.starts, 1))

    def coming(view: JobView) -> RunKey:
        return RunKey(view.job.id, view.starts + 1)

    for module in (executor, orders, reconcile, reports_to_events, run_numbers, launching):
        for name, other in (("present", present), ("coming", coming)):
            if hasattr(module, name):
                yield patch.object(module, name, other)


def parts_left_running() -> Iterator[Any]:
    """A job on several nodes starts again while parts of its last attempt run."""
    yield patch.object(BrokenParts, "must_wait", lambda _self, _job: False)


def job_started_without_lease() -> Iterator[Any]:
    """A sidecar starts a job without a look at the lease."""
    yield patch.object(LeaseWatch, "is_over", False)


def undelivered_ends_forgotten() -> Iterator[Any]:
    """An order to end a run counts as carried out before its sidecar has it."""
    yield patch.object(Runs, "_await_delivery", lambda _self, _runs: None)


def strangers_tell_of_ends() -> Iterator[Any]:
    """What a node says of a run counts, wherever that run is; all nodes of a job are told to stop it."""
    for module in (executor, orders):
        yield patch.object(module, "nodes_of_attempt", lambda view, _run: run_numbers.nodes_of(view))
    gone = MultiNodeExits.gone
    yield patch.object(
        MultiNodeExits,
        "gone",
        lambda self, view, report, node: (
            gone(self, view, report, node) if node in nodes_of_attempt(view, report.run) else report
        ),
    )


def lease_outlives_boot() -> Iterator[Any]:
    """The end of a lease counts after a reboot."""
    yield patch("hocket.agent.node.lease.boot_of_lease", lambda _path: _boot_id())


def _boot_id() -> str:
    from hocket.agent.node import lease  # As it is in the simulation.

    return lease.boot_id()


def late_orders_carried_out() -> Iterator[Any]:
    """Orders are carried out though hello was said since they were sent."""
    yield patch.object(Session, "carry_out", lambda _self, _session, call: call() is None)


def reports_lost() -> Iterator[Any]:
    """An agent takes reports for said when they did not get through."""
    yield patch.object(Runs, "not_delivered", lambda _self: None)


PLANTED: dict[str, Callable[[], Iterator[Any]]] = {
    plant.__name__.replace("_", "-"): plant
    for plant in (
        no_fencing,
        lease_from_answer,
        reports_counted_again,
        journal_after_orders,
        run_numbers_reused,
        parts_left_running,
        job_started_without_lease,
        undelivered_ends_forgotten,
        strangers_tell_of_ends,
        lease_outlives_boot,
        late_orders_carried_out,
        reports_lost,
    )
}


@contextmanager
def plant(names: frozenset[str]) -> Iterator[None]:
    """With these in the product."""
    with ExitStack() as within:
        for name in names:
            for change in PLANTED[name]():
                within.enter_context(change)
        yield
