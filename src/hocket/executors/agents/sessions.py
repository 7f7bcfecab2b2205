"""One session for each agent that said hello, with the orders that wait for it. For many threads."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from secrets import token_hex
from threading import Condition, RLock
from time import monotonic

from msgspec import Struct

from hocket.agent.protocol import ForgetJob, Numbered, Order, PrepareRun, ReadAnswer, ReadLog, StartRun
from hocket.control.ports import LateHello, NameTaken, UnknownSession

_log = logging.getLogger("hocket.executors")
_MOST_ORDERS = 1000  # in one answer
_FENCE = 0.75  # of the lease, after which an agent without an answer lets its runs stand still


class _Session(Struct, eq=False):
    node: str
    heard_at: float
    address: str
    state: str = ""  # tells the agent's folder from others; empty if it did not say
    folder: str = ""  # its path on that node; empty if it did not say
    containment: str = ""  # what contains its jobs; empty if it did not say
    which: tuple[int, int] = (0, 0)  # orders the hellos of one agent
    orders: list[Numbered] = []
    sent: int = 0  # orders so far
    changed: Condition | None = None  # what its agent waits on, so that an order for one wakes no other

    def wake(self) -> None:
        """There is something for its agent to see."""
        if self.changed is not None:
            self.changed.notify_all()


def _log_order(level: int, node: str, numbered: Numbered, how: str) -> None:
    if not _log.isEnabledFor(level):
        return
    order, n = numbered.order, numbered.n
    kind = str(order.__struct_config__.tag)
    run = None if isinstance(order, ForgetJob | ReadAnswer | ReadLog) else order.run
    job = order.job if isinstance(order, ForgetJob | ReadAnswer | ReadLog) else order.run.job
    of = f"job '{job}'" if run is None else f"run {run.number} of job '{job}'"
    fields = {"node": node, "job": job, "order": kind, "n": n} | ({} if run is None else {"run": run.number})
    _log.log(level, "order %d (%s) for %s %s node '%s'", n, kind, of, how, node, extra=fields)


class Sessions:
    """The sessions by id, at most one a node."""

    def __init__(self, lease_s: float) -> None:
        self.lease_s = lease_s
        self._lock = RLock()
        self._sessions: dict[str, _Session] = {}
        self._by_node: dict[str, _Session] = {}  # the same
        self._with_files: dict[str, set[str]] = {}  # job that is not over → the nodes that may have files of it
        self._closed = self._hushed = False

    @property
    def fence_s(self) -> float:
        """After so long without an answer, an agent's runs stand still, so that none runs on when they are lost."""
        return self.lease_s * _FENCE

    def open(
        self,
        node: str,
        address: str,
        state: str = "",
        folder: str = "",
        containment: str = "",
        which: tuple[int, int] = (0, 0),
    ) -> str:
        """A node's agent said hello; an older session of the node is no more.

        Raises NameTaken if that was of another agent, by its state folder, which was heard from within its lease, and
        LateHello if the session was opened by a later hello of the same agent. An agent that does not name its state
        folder is another one than those that do.
        """
        with self._lock:
            now, other = monotonic(), self._by_node.get(node)
            if other is not None:
                if other.state and other.state == state and (0, 0) != which <= other.which:
                    raise LateHello(f"node '{node}' has said hello again since")
                is_other = other.state and other.state != state  # Older agents do not say it.
                if is_other and now - other.heard_at <= self.lease_s:
                    ago = f"it was heard from {now - other.heard_at:.1f} s ago, at {other.address}"
                    raise NameTaken(
                        f"node '{node}' has an agent with another state folder already ({ago}): say another --name, "
                        f"or wait until it is silent for {self.lease_s:g} s"
                    )
            how = "connects" if other is None else "connects again"
            _log.info("the agent of node '%s' %s, at %s", node, how, address, extra={"node": node, "address": address})
            self._end(node)
            session = token_hex(16)
            new = _Session(node, now, address, state, folder, containment, which, changed=Condition(self._lock))
            self._sessions[session] = self._by_node[node] = new
            return session

    def end(self, node: str) -> None:
        """The node is lost: its agent must say hello again."""
        with self._lock:
            self._end(node)

    def end_all(self) -> None:
        """What the agents were told may not be what they should have been: all must say hello again."""
        with self._lock:
            ended = list(self._sessions.values())
            self._sessions.clear()
            self._by_node.clear()
            for session in ended:
                session.wake()
        _log.info("all agents are to connect again")

    def hush(self, last: Iterable[tuple[str, Order]] = ()) -> None:
        """No more orders but these last ones, by node. What the agents should have is told at their next hello."""
        with self._lock:  # All under one lock, which `tell` takes again: nothing comes in between.
            for session in self._sessions.values():
                session.orders.clear()
            for node, order in last:
                self.tell(node, [order])
            self._hushed = True

    def close(self) -> None:
        """No agent waits any longer."""
        with self._lock:
            self._closed = True
            for session in self._sessions.values():
                session.wake()

    def node_of(self, session: str) -> str:
        """The node of a session, which was just heard from. Raises UnknownSession."""
        with self._lock:
            return self._heard(session).node

    def waiting(self, session: str) -> int:
        """How many orders the agent of a session was told so far. Raises UnknownSession."""
        with self._lock:
            return self._heard(session).sent

    def has(self, node: str) -> bool:
        """Has the node's agent said hello?"""
        with self._lock:
            return node in self._by_node

    def addresses(self) -> dict[str, str]:
        """Where other nodes reach each node."""
        with self._lock:
            return {s.node: s.address for s in self._sessions.values()}

    def folders(self) -> dict[str, str]:
        """Where each node's agent keeps the files of its jobs, of those that said it."""
        with self._lock:
            return {s.node: s.folder for s in self._sessions.values() if s.folder}

    def containments(self) -> dict[str, str]:
        """What contains the jobs of each node, of those that said it."""
        with self._lock:
            return {s.node: s.containment for s in self._sessions.values() if s.containment}

    def silent_s(self) -> dict[str, float]:
        """For how long each connected node was not heard from."""
        with self._lock:
            now = monotonic()
            return {s.node: now - s.heard_at for s in self._sessions.values()}

    def renew(self) -> None:
        """No agent could be heard for a while: all have their lease from now on."""
        with self._lock:
            for session in self._sessions.values():
                session.heard_at = monotonic()

    def silent(self) -> list[str]:
        """Nodes that were not heard from for longer than their lease."""
        late = monotonic() - self.lease_s
        with self._lock:
            return [s.node for s in self._sessions.values() if s.heard_at < late]

    def tell(self, node: str, orders: Iterable[Order]) -> None:
        """Leave orders for a node's agent; one that is not there learns what it must from the answer to its hello."""
        with self._lock:
            session = self._by_node.get(node)
            if session is None or self._hushed:
                return
            for order in orders:
                if isinstance(order, PrepareRun | StartRun):
                    self._with_files.setdefault(order.run.job, set()).add(node)
                session.sent += 1
                session.orders.append(numbered := Numbered(session.sent, order))
                level = logging.DEBUG if isinstance(order, ReadLog | ForgetJob) else logging.INFO
                _log_order(level, node, numbered, "queued for")
            session.wake()

    def note_files(self, node: str, jobs: Iterable[str]) -> None:
        """A node's agent has files of these jobs."""
        with self._lock:
            for job in jobs:
                self._with_files.setdefault(job, set()).add(node)

    def nodes_with_files(self) -> dict[str, frozenset[str]]:
        """Job that is not over → the nodes that may have files of it."""
        with self._lock:
            return {job: frozenset(nodes) for job, nodes in self._with_files.items()}

    def tell_forget(self, job: str) -> None:
        """A job is over: the agents that may have files of it are told. One that is away is told at its next hello."""
        with self._lock:
            for node in sorted(self._with_files.pop(job, ())):
                self.tell(node, [ForgetJob(job)])

    def orders(self, session_id: str, after: int, wait_s: float) -> list[Numbered]:
        """The orders after that number, as soon as there are any. Raises UnknownSession."""
        until = monotonic() + wait_s
        with self._lock:
            while True:
                session = self._heard(session_id)
                if session.orders and session.orders[0].n <= after and _log.isEnabledFor(logging.DEBUG):
                    for order in (o for o in session.orders if o.n <= after):
                        _log_order(logging.DEBUG, session.node, order, "taken by")
                session.orders = [o for o in session.orders if o.n > after]
                if session.orders:
                    return session.orders[:_MOST_ORDERS]
                left = until - monotonic()
                if left <= 0 or self._closed:
                    return []
                assert session.changed is not None
                session.changed.wait(left)

    def _heard(self, session_id: str) -> _Session:
        session = self._sessions.get(session_id)
        if session is None:
            raise UnknownSession(session_id)
        session.heard_at = monotonic()
        return session

    def _end(self, node: str) -> None:
        ended = self._by_node.pop(node, None)
        if ended is not None:
            self._sessions = {key: s for key, s in self._sessions.items() if s is not ended}
            ended.wake()
