"""What the controller and a node's agent say to each other, as JSON over HTTP.

The agent calls; the controller never does, so an agent may stand behind a firewall, in a container or on another
host, and assumes nothing of the controller's files. Every call carries the token (`Authorization: Bearer …`).

| call | says |
| --- | --- |
| `POST /v1/agents/hello` `Hello` → `Welcome` | the node is there, with these runs; first of all, and after a 410 |
| `POST /v1/agents/{session}/reports` `[Report, …]` → `ReportsAccepted` | answered once in the journal |
| `GET /v1/agents/{session}/orders?after=N` → `[Numbered, …]` | what to do, as soon as there is anything, or `[]` |
| `POST /v1/agents/{session}/alive` → `Alive` | the agent is there; several times in each lease |
| `POST /v1/agents/{session}/logs/{request}` bytes | the part of a log, or the answer, that an order asked for |
| `GET /v1/bundles/{digest}/{offset}` → bytes | a part of a working directory that an order names; empty at its end |

A part of a log comes with the headers `X-Attempt` (the run's number; 0 if nothing is kept of it), `X-Offset` (where it
begins, which is later than asked for when that was removed) and `X-Next-Offset`.

A session that the controller does not know (it was restarted, or took the agent for lost) is answered 410: say hello
again. So is a hello that comes after a later one of the same agent. A hello of a node that has an agent with another
state folder, heard from within its lease, is answered 409, and ends the newcomer: two with one name would take each
other's sessions, and jobs, in turn.

**Several controllers** may share a journal in PostgreSQL: one holds it and leads, the others stand by. An agent knows
their urls by what the leader says; when its controller is away, it asks the others which of them leads now, and says
hello there. It carries out orders of its present session only.

**Leases.** The controller takes an agent that is silent for `lease_s` for lost, and starts its jobs elsewhere. The
agent's runs stand still before that: `fence_s`, which is shorter, after it sent the last call that was answered. They
go on when the controller answers again, unless it orders their end. A new session renews the lease only once the
agent has carried out the orders that the controller had for it when it said hello.

Orders are numbered from 1 in each session; asking `after=N` says that all up to N are taken. Reports may be said twice;
a run's reports are numbered by its sidecar, and the controller passes over those it has heard.

A **run** is one attempt of a job on one node: (job, number). The controller numbers them; a later run of a job has a
larger number. An agent has at most one of a job that has devices; beside it the next one may stand prepared, without.
"""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, Struct

from hocket.model.resources import Node

RunNumber = Annotated[int, Meta(ge=0, le=2**31 - 1)]


class RunKey(Struct, frozen=True, order=True):
    """One attempt of a job on this node."""

    job: str
    number: RunNumber


class Hello(Struct, frozen=True):
    """A node joins, with the runs that its agent still has: those whose sidecar lives, or has reports to be heard."""

    node: Node
    address: str  # where other nodes reach it
    runs: tuple[RunKey, ...] = ()
    jobs: tuple[str, ...] = ()  # of which it keeps run folders: those that are over are to be forgotten
    state: str = ""  # tells its state folder from all others: another agent with the same name has another one
    folder: str = ""  # the path of its state folder on that node, for users; older agents do not say it
    seen: dict[str, RunNumber] = {}  # job → the largest number of a run of it that was here, as far as that is kept
    containment: str = ""  # what contains its jobs: `cgroup v2`, `none`, …; older agents do not say it
    # Which hello it is: how often its agent was started, and how often it has said hello since. One that was under way
    # for long, and comes after a later one, says what was true once. Older agents do not say it.
    start: RunNumber = 0
    number: RunNumber = 0


class Welcome(Struct, frozen=True):
    """The session, and how often to be heard from at least."""

    session: str
    lease_s: float  # an agent that is silent for so long is taken for lost, and its runs with it
    poll_s: float  # how long a call for orders may stand
    fence_s: float = 0.0  # without an answer for so long, its runs stand still; 0: they go on (older controllers)
    orders: int = 0  # how many wait; when they are carried out, the runs that are left may go on


class Alive(Struct, frozen=True):
    """The answer to a sign of life."""

    controllers: tuple[str, ...] = ()  # urls of this controller and of those that may take over; empty: there are none


class Report(Struct, frozen=True):
    """One line of a run's `events.jsonl`, or with number 0 what the agent itself has to say.

    That is `lost` (its sidecar died and what was left of it is killed, or it is not known here; it never starts again),
    `resized` (a `ResizeRun` is carried out), `phases` (what a job that takes turns has measured of its phases, as
    `PhaseMeans` has it), `cannot-start` (it cannot be begun here; `passing` says that this is for
    want of space, processes or open files, and not the job's fault), or `prepared` with `warm` false (what stood
    prepared died; it can still be run, cold). Of a sidecar, `cannot-start` means that the job's command or folder will
    not do, unless it is `passing` too.
    """

    run: RunKey
    n: RunNumber
    at_s: float
    # prepared, started, progress, use, checkpoint-asked, exited, hung, cannot-start, warning, lost, let-go,
    # frozen, thawed, resized, suspended, continued, phases
    event: str
    fields: dict[str, Any] = {}


class ReportsAccepted(Struct, frozen=True):
    """All reports of that call are in the journal."""

    reports: int


class RunLimits(Struct, frozen=True):
    """What a run may use on one node, all its replicas there together. Agents enforce it where they can."""

    mem_mib: float = 0.0  # 0: as much as there is
    cores: float = 0.0  # 0: not said


class PrepareRun(Struct, frozen=True, tag_field="order", tag="prepare"):
    """Stand a job ready before its main, without devices."""

    run: RunKey
    # As a sidecar's spec.json, but for the folders and the mark, which are the agent's own; with `working_dir`, the
    # digest of a bundle, and `pip`, a list of requirements, if the run needs them.
    spec: dict[str, Any]
    limits: RunLimits = RunLimits()


class StartRun(Struct, frozen=True, tag_field="order", tag="run"):
    """Run it, or let the prepared one go on, on these devices."""

    run: RunKey
    spec: dict[str, Any]
    env: dict[str, str]  # of the hand-over: devices, ranks, sizes
    secrets: dict[str, str] = {}  # variables too, which the agent writes to no file
    limits: RunLimits = RunLimits()


class ResizeRun(Struct, frozen=True, tag_field="order", tag="resize"):
    """Let it go on with other resources, in the same process: it looks at them by itself (a query, between batches)."""

    run: RunKey
    env: dict[str, str]  # sizes, as in `StartRun`
    limits: RunLimits = RunLimits()


class SuspendRun(Struct, frozen=True, tag_field="order", tag="suspend"):
    """Stop its processes, which keep their memory and use no cores; within the grace they may choose when."""

    run: RunKey
    grace_s: float


class ContinueRun(Struct, frozen=True, tag_field="order", tag="continue"):
    """Let a suspended run go on with these resources, in the same process."""

    run: RunKey
    env: dict[str, str]  # sizes, as in `StartRun`
    limits: RunLimits = RunLimits()


class StopRun(Struct, frozen=True, tag_field="order", tag="stop"):
    """Ask it to save its state and leave; kill it when the grace is over."""

    run: RunKey
    grace_s: float
    keep: str = ""  # what a query does with its state: `disk` or `none`; it chooses itself if nothing is said


class SaveRun(Struct, frozen=True, tag_field="order", tag="save"):
    """Ask it to save its state and go on."""

    run: RunKey


class ForgetJob(Struct, frozen=True, tag_field="order", tag="forget"):
    """The job is over: kill what may be left, and keep its logs only."""

    job: str


class ReadLog(Struct, frozen=True, tag_field="order", tag="read-log"):
    """Send a part of a job's output."""

    request: str
    job: str
    number: int  # of the run; 0 for the last
    offset: int  # in bytes of all that it printed, kept or not; from the end when negative
    limit: int


class ReadAnswer(Struct, frozen=True, tag_field="order", tag="read-answer"):
    """Send the present answer of a query, or the last one that it gave."""

    request: str
    job: str


# What an agent does with runs, and with the logs and answers of them.
RunOrder = PrepareRun | StartRun | ResizeRun | SuspendRun | ContinueRun | StopRun | SaveRun | ForgetJob
Order = RunOrder | ReadLog | ReadAnswer


class Numbered(Struct, frozen=True):
    """An order and its number in the session."""

    n: int
    order: Order
