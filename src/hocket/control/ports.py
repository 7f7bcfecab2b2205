"""The controller's interfaces: an executor, which carries out actions and reports events, and a journal."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from concurrent.futures import Future
from typing import Any, Protocol

from msgspec import Struct

from hocket.agent.protocol import Hello, Numbered, Order, Report
from hocket.model.action import Action
from hocket.model.event import Event
from hocket.model.job import Job
from hocket.model.plan import Plan
from hocket.model.resources import Node
from hocket.model.snapshot import Snapshot

FORMAT = 3  # of journals whose first cycles were removed; a reader refuses newer ones
WHOLE_FORMAT = 2  # of those that have all cycles. Format 1 had no checksums


class Header(Struct, frozen=True):
    """The start of a journal: with it, cycles can be folded and decided again."""

    policy: str
    params: dict[str, Any] = {}
    nodes: tuple[Node, ...] = ()
    seed: int = 0
    workload: str = ""
    format: int = WHOLE_FORMAT


class Cycle(Struct, frozen=True, gc=False):
    """One pass: its events and the changes of the plan. A plan refused by the check has its violations here."""

    at_s: float
    events: tuple[Event, ...]
    plan: Plan | None = None
    refused: tuple[str, ...] = ()


class Beginning(Struct, frozen=True):
    """Where a journal begins whose first cycles were removed: all that later cycles need of them.

    Unlike a saved state it must be readable by later versions, as cycles are.
    """

    number: int  # of the last cycle that was removed
    at_s: float  # its time
    state: bytes  # of the controller after it (`saved_state.py`)
    jobs: bytes = b""  # what is kept of jobs beside that: their counts, and records of those that were live
    version: str = ""  # of the code that wrote it


class Journal(Protocol):
    """Append-only. When `append` has returned, the cycle survives a kill."""

    header: Header

    def append(self, cycle: Cycle) -> None:
        """Keep one cycle."""

    def __iter__(self) -> Iterator[Cycle]:
        """All cycles, oldest first."""


class OtherControllers(Protocol):
    """Other controllers of a journal, which may take it over; a journal in a file has none."""

    def unconfirmed_s(self) -> float:
        """For how long it has not been certain that this process holds the journal; another may have it since then."""

    def advertise(self, url: str, token: str) -> None:
        """Tell where this controller is called, and the digest of the token that it takes."""

    def urls(self) -> tuple[str, ...]:
        """Where this controller is called, and those that may take over; empty if there can be no others."""

    def share_notes(self, notes: str) -> None:
        """Keep what the next controller should know that is no event, for it may be of another home."""

    def notes_before(self) -> str:
        """What the controller before this one kept; empty if there is nothing, or it is in the home."""


class DurableJournal(Journal, Protocol):
    """A journal on disk, from which a controller is restored after a kill. Cycles are numbered from 1."""

    name: str  # for error messages
    others: OtherControllers
    lock_file: str  # which every controller of this journal holds on its machine; empty if there is none

    def extend(self, cycles: Sequence[Cycle]) -> None:
        """Keep several cycles, all or none."""

    def after(self, number: int) -> Iterator[Cycle]:
        """The cycles that follow the first `number`, oldest first. An error if they were removed."""

    def beginning(self) -> Beginning | None:
        """Where it begins; None: with cycle 1."""

    def ended(self) -> Iterator[bytes]:
        """What is kept of the jobs that ended before its beginning, in blocks."""

    def __len__(self) -> int:
        """The number of the last cycle."""

    def recover(self) -> int:
        """After a failed append: find the last stored cycle and continue from it. Returns its number."""

    def save(self, state: bytes) -> None:
        """Save the state after the last cycle, so that a restore need not fold all earlier cycles."""

    def saved(self) -> Iterator[tuple[int, bytes]]:
        """The saved states, newest first, each with the number of its cycle."""

    def keep(self, kind: str, values: Mapping[str, bytes | None]) -> None:
        """Keep values beside the cycles by their keys, and remove those that are None: all of it or nothing.

        They are not part of the record: no decision reads them.
        """

    def kept(self, kind: str, key: str | None = None) -> dict[str, bytes]:
        """The values of that kind by their keys, or the one with this key, if there is any."""

    @property
    def lost(self) -> str:
        """Why nothing can be appended any more; empty as long as it can."""

    def close(self) -> None:
        """Let go of it."""


class Executor(Protocol):
    """Carries out actions and reports events. `drive` calls it from one thread."""

    def apply(self, actions: Iterable[Action]) -> None:
        """Begin these actions, in this order. An event reports when each is done."""

    def wait(self, until_s: float | None) -> tuple[float, Sequence[Event]] | None:
        """The next time and its events; no events if `until_s` came first; None if nothing more will happen."""


Facts = Callable[[Snapshot, float], Iterable[Event]]  # makes events from the newest snapshot and the time
Refused = dict[str, str]  # job → why the cycle refused it
SecretsOf = Callable[[Job], Mapping[str, str]]  # the values of a job's secrets by name; raises SecretsLost


class SecretsLost(ValueError):
    """A job's secrets cannot be had; says why."""


class LiveExecutor(Executor, Protocol):
    """An executor of real jobs, which a service drives while other threads hand it events and reports.

    **The controller's thread** calls, for each cycle and in this order: `wait`; then, once the cycle is in the journal,
    `observe`, `apply` and `settle`; or, if it could not be written, `fail` and later `resume`. Between two such calls
    the executor may start only what an action asked for.

    **Any thread** may call `post`, `report`, `hello`, `refuse`, `close`, `stop_all`, `nodes`, `usage` and
    `unwritten_s`, and the methods of `sessions`.

    **Guarantees**: the future of a `post` or `report` is done only when all its events are in the journal, or it
    fails, and may be handed over again. A report that was taken in before changes nothing when it comes again. Reports
    of one run keep their order; if a report changes its job, further ones of that job wait for the next cycle, so that
    each is read with a snapshot that includes the one before.
    """

    secrets_of: SecretsOf  # asked in the controller's thread, when a job starts that names some

    @property
    def sessions(self) -> AgentSessions:
        """The agents that are connected."""

    # -- the controller's thread ----------------------------------------------------------------------------

    def observe(self, snapshot: Snapshot) -> None:
        """The state after the cycle that was just written; what `apply` and the next `wait` read."""

    def settle(self, events: Iterable[Event]) -> None:
        """The cycle is in the journal with these events: complete the futures of its events."""

    def fail(self, failure: Exception) -> None:
        """The cycle could not be written: fail the futures of its events, which may be handed over again."""

    def resume(self, snapshot: Snapshot) -> None:
        """Continue from a restored state. Agents connect again, and are told which runs they should have."""

    # -- any thread -----------------------------------------------------------------------------------------

    def post(self, make: Facts, result: Callable[[Refused], Any] = ...) -> Future[Any]:
        """Add events to the next cycle; `make` is called in the controller's thread.

        The future's result is `result` of the jobs that the cycle refused.
        """

    def report(self, reports: Sequence[Report], node: str = "") -> Future[Any]:
        """Take reports of a node's agent, in order. The future's result is their number."""

    def hello(self, hello: Hello) -> Facts:
        """The events of an agent that connects, to be posted."""

    def now_s(self) -> float:
        """The time, on the clock of the events; it never jumps."""

    def nodes(self, job_id: str) -> list[str]:
        """The connected nodes where a job's logs may be: those that run it, or all if it runs nowhere."""

    def usage(self, job_id: str) -> dict[str, Any]:
        """The last measured use of a job; empty if unknown."""

    def usage_over_time(self, job_id: str) -> list[dict[str, float]]:
        """The same at some moments since it first ran, oldest first, each with its `at_s`."""

    def unwritten_s(self) -> float:
        """The age of the oldest `post` or `report` that is not in the journal yet; 0 if there is none."""

    def refuse(self, failure: Exception) -> None:
        """Fail the futures of all that wait for a cycle: there will be none for now."""

    def stop_all(self, grace_s: float) -> Callable[[], list[str]]:
        """Tell every job to save and exit, and send no other orders. Returns a function: the jobs still running."""

    def close(self) -> None:
        """Let `wait` return None, and accept nothing more."""


class UnknownSession(LookupError):
    """The agent must say hello again."""


class LateHello(Exception):
    """A hello that comes after a later one of the same agent."""


class NameTaken(Exception):
    """Another agent has this node's name."""


class AgentSessions(Protocol):
    """The agents that are connected, and the orders that wait for them. For any thread."""

    lease_s: float  # an agent that does not call for longer counts as lost

    @property
    def fence_s(self) -> float:
        """Shorter than the lease: after so long without an answer, an agent's runs stand still."""

    def open(
        self,
        node: str,
        address: str,
        state: str = "",
        folder: str = "",
        containment: str = "",
        which: tuple[int, int] = (0, 0),
    ) -> str:
        """A node's agent connects; returns its session. `which` orders its hellos. Raises NameTaken, LateHello."""

    def node_of(self, session: str) -> str:
        """The node of a session, which is renewed. Raises UnknownSession."""

    def waiting(self, session: str) -> int:
        """The number of the last order for an agent. Raises UnknownSession."""

    def addresses(self) -> dict[str, str]:
        """Node → where other nodes reach it, of all that are connected."""

    def folders(self) -> dict[str, str]:
        """Node → the folder in which its agent keeps the files of its jobs, of those that said it."""

    def containments(self) -> dict[str, str]:
        """What contains the jobs of each node, of those that said it."""

    def nodes_with_files(self) -> Mapping[str, Set[str]]:
        """Job that is not over → the nodes that may have files of it."""

    def silent_s(self) -> dict[str, float]:
        """For how long each connected node was not heard from."""

    def tell(self, node: str, orders: Iterable[Order]) -> None:
        """Leave orders for a node's agent."""

    def orders(self, session_id: str, after: int, wait_s: float) -> list[Numbered]:
        """The orders after that number, as soon as there are any. Raises UnknownSession."""


MakeExecutor = Callable[[Snapshot], LiveExecutor]  # of the restored state
