"""What the controller needs of the world: an executor that makes actions true, a journal that forgets nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from typing import Any, Protocol

from msgspec import Struct

from hocket.agent.protocol import Hello, Numbered, Order, Report
from hocket.model.action import Action
from hocket.model.event import Event
from hocket.model.plan import Plan
from hocket.model.resources import Node
from hocket.model.snapshot import Snapshot

FORMAT = 2  # of journals; a reader refuses what is newer than it knows. 1 had no checksums


class Header(Struct, frozen=True):
    """What a journal starts with: enough to fold and to decide again."""

    policy: str
    params: dict[str, Any] = {}
    nodes: tuple[Node, ...] = ()
    seed: int = 0
    workload: str = ""
    format: int = FORMAT


class Cycle(Struct, frozen=True, gc=False):
    """One pass: what happened, and what of the plan changed. A plan refused by the check has its violations here."""

    at_s: float
    events: tuple[Event, ...]
    plan: Plan | None = None
    refused: tuple[str, ...] = ()


class Journal(Protocol):
    """Append-only. What `append` has returned from survives a kill."""

    header: Header

    def append(self, cycle: Cycle) -> None:
        """Keep one cycle."""

    def __iter__(self) -> Iterator[Cycle]:
        """All cycles, oldest first."""


class DurableJournal(Journal, Protocol):
    """A journal that outlives its controller, which goes on with it after a kill. Cycles are numbered from 1."""

    name: str  # as errors say it

    def extend(self, cycles: Sequence[Cycle]) -> None:
        """Keep several cycles, all or none."""

    def after(self, number: int) -> Iterator[Cycle]:
        """The cycles that follow the first `number`, oldest first."""

    def __len__(self) -> int:
        """The number of the last cycle."""

    def recover(self) -> int:
        """After an append that failed: see what is there, and go on from that. Gives the number of the last cycle."""

    def save(self, state: bytes) -> None:
        """Keep the state after the last cycle, so that a restore need not fold all that went before."""

    def saved(self) -> Iterator[tuple[int, bytes]]:
        """The states that are kept, newest first, each with the number of its cycle."""

    def close(self) -> None:
        """Let go of it."""


class Executor(Protocol):
    """Makes actions true and reports events. `drive` calls it from one thread."""

    def apply(self, actions: Iterable[Action]) -> None:
        """Begin to make these true, in this order. An event tells when each is."""

    def wait(self, until_s: float | None) -> tuple[float, Sequence[Event]] | None:
        """The next moment and what happened then; nothing when `until_s` came first; None when nothing will come."""


Facts = Callable[[Snapshot, float], Iterable[Event]]  # what is to be recorded, made of the newest snapshot and the time
Refused = dict[str, str]  # job → why the cycle refused it


class LiveExecutor(Executor, Protocol):
    """An executor of real jobs, which a service drives while other threads hand it facts and reports.

    **The controller's thread** calls, for each cycle and in this order: `wait`; then, once the cycle is in the journal,
    `observe`, `apply` and `settle`; or, if it could not be written, `fail` and later `resume`. Between two such calls
    the executor may start nothing that an action did not ask for.

    **Any thread** may call `post`, `report`, `hello`, `refuse`, `close`, `stop_all`, `nodes` and `usage`, and the
    methods of `sessions`.

    **Promised**: the future of a `post` or `report` is done only when all that it handed over is in the journal, or it
    fails, and may be handed over again. A report that was taken in before changes nothing when it comes again. Reports
    of one run keep their order; if a report changes its job, further ones of that job wait for the next cycle, so that
    each is read beside a snapshot that knows of the one before.
    """

    @property
    def sessions(self) -> AgentSessions:
        """The agents that are connected."""

    # -- the controller's thread ----------------------------------------------------------------------------

    def observe(self, snapshot: Snapshot) -> None:
        """The state after the cycle that was just written; what `apply` and the next `wait` read."""

    def settle(self, events: Iterable[Event]) -> None:
        """The cycle is in the journal with these events: complete the futures of all that it took in."""

    def fail(self, failure: Exception) -> None:
        """The cycle could not be written: fail the futures of all that it took in, which may be handed over again."""

    def resume(self, snapshot: Snapshot) -> None:
        """Go on from a restored state. Agents connect again, and are told what they should have."""

    # -- any thread -----------------------------------------------------------------------------------------

    def post(self, make: Facts, result: Callable[[Refused], Any] = ...) -> Future[Any]:
        """Have facts taken in by the next cycle; `make` is called in the controller's thread.

        The future's result is `result` of the jobs that the cycle refused.
        """

    def report(self, reports: Sequence[Report], node: str = "") -> Future[Any]:
        """What a node's agent reports, in order. The future's result is their number."""

    def hello(self, hello: Hello) -> Facts:
        """The facts of an agent that connects, to be posted."""

    def nodes(self, job_id: str) -> list[str]:
        """The connected nodes where a job's logs may be: those that run it, or all if it runs nowhere."""

    def usage(self, job_id: str) -> dict[str, Any]:
        """What a job was last seen to use; empty if that is not known."""

    def refuse(self, failure: Exception) -> None:
        """Fail the futures of all that waits for a cycle: there will be none for now."""

    def stop_all(self, grace_s: float) -> Callable[[], list[str]]:
        """Ask every job to save and leave, and order nothing else. Gives a function that tells the jobs still there."""

    def close(self) -> None:
        """Let `wait` return None, and take nothing in any more."""


class UnknownSession(LookupError):
    """The agent must say hello again."""


class NameTaken(Exception):
    """Another agent has this node's name."""


class AgentSessions(Protocol):
    """The agents that are connected, and the orders that wait for them. For any thread."""

    lease_s: float  # an agent that is silent for longer is taken for lost

    def open(self, node: str, address: str, state: str = "") -> str:
        """A node's agent connects; gives its session. Raises NameTaken."""

    def node_of(self, session: str) -> str:
        """The node of a session, which is renewed. Raises UnknownSession."""

    def addresses(self) -> dict[str, str]:
        """Node → where other nodes reach it, of all that are connected."""

    def tell(self, node: str, orders: Iterable[Order]) -> None:
        """Leave orders for a node's agent."""

    def orders(self, session_id: str, after: int, wait_s: float) -> list[Numbered]:
        """The orders after that number, as soon as there are any. Raises UnknownSession."""


MakeExecutor = Callable[[Snapshot], LiveExecutor]  # of the restored state
