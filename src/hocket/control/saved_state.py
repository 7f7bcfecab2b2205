"""A controller's whole state as bytes, and back: to the last bit and in the same order.

A snapshot's document (`model/document.py`) is for users: it leaves out values that can be computed from the rest. Sums
of floats are then slightly different, and ranks are those of another time. Here nothing may differ.
"""

from __future__ import annotations

from functools import cache
from math import inf
from typing import Any
from zlib import compress, crc32, decompress
from zlib import error as zlib_error

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from hocket import __version__
from hocket.control.controller import Bind, Controller
from hocket.control.journal import JournalError, JournalLost
from hocket.control.journal.stored import one_line
from hocket.control.ports import DurableJournal, Journal
from hocket.model.capacity import Capacity, Free
from hocket.model.event import PolicySet
from hocket.model.job import Owner
from hocket.model.partition import Holding, Partition
from hocket.model.past_job import NO_PAST_JOBS, PastJobs
from hocket.model.plan import Wake
from hocket.model.reservation import NodeReservation
from hocket.model.resources import Slice
from hocket.model.snapshot import History, Snapshot, Usage, queues_of
from hocket.model.versioned import versioned
from hocket.model.view import JobView, NodeView, Tenancy
from hocket.policies.registry import BoundPolicy, PolicyError, UnknownPolicy

FORMAT = 4  # raise it when the meaning of a field changes; changes of names or types are noticed anyway
_FASTEST = 1  # level of compression
_EVENTS_PER_JOB = 2  # between two saved states, for each live job

Times = list[tuple[float, str]]  # (when, job), a heap


class UnreadableState(ValueError):
    """A state that other code saved, or another policy: fold the cycles instead."""


class SavedState(Struct, frozen=True):
    """The state after one cycle. Maps and lists stand in the order in which the controller has them.

    A new field needs a default, and so does one of what is in here: a journal whose first cycles were removed begins
    with a state that an earlier version may have written.
    """

    now_s: float
    nodes: list[NodeView]
    owners: list[Owner]
    usage: dict[str, Usage]
    jobs: list[JobView]
    partitions: list[Partition]
    leaving: dict[str, tuple[Slice, ...]]
    unsettled: tuple[tuple[str, str], ...]
    free: list[tuple[bytes, float, float, float]]  # by node: GPUs as a mask of any length, cores, memory, network
    up: list[bool]  # by node
    history: list[tuple[Any, History]]
    memo: Any
    wake: Wake
    seed: int
    decision: int
    submissions: int
    arrived: tuple[str, ...]
    due: tuple[str, ...]
    reservations: tuple[NodeReservation, ...]
    timers: Times
    verdict_s: dict[str, float]
    shifts: Times
    shift_by_job: dict[str, float]
    followers: dict[str, list[str]]
    refused_plans: int
    cycles: int
    past_jobs: PastJobs = NO_PAST_JOBS


class _Sealed(Struct, frozen=True, array_like=True):
    form: int  # identifies the code that can read the state
    policy: str  # the policy with which the journal began
    params: bytes
    state: bytes  # compressed: to write all of it would hold up the controller for longer
    followed: PolicySet | None = None  # the policy set last, if any


_ENCODER = msgspec.msgpack.Encoder()
_SEALED = msgspec.msgpack.Decoder(_Sealed)
_STATE = msgspec.msgpack.Decoder(SavedState)


def encode(controller: Controller, policy: BoundPolicy) -> bytes:
    """The state of a controller that began with this policy, between two cycles. Outdated entries are left out."""
    controller.drop_outdated_timers()
    state = controller.state
    saved = SavedState(
        state.now_s,
        state.nodes.values(),
        state.owners.values(),
        state.usage.live,
        state.jobs.values(),
        state.partitions.values(),
        state.leaving.live,
        tuple(state.unsettled),
        [_plain(free) for _node, free in state.capacity],
        [bool(state.capacity.up >> i & 1) for i in range(len(state.capacity.layout.nodes))],
        state.history.items(),
        state.memo,
        state.wake,
        state.seed,
        state.decision,
        state.submissions,
        tuple(state.arrived),
        state.due,
        state.reservations,
        controller.timers.heap,
        controller.timers.verdict_s,
        state.shifts.heap if state.shifts is not None else [],
        state.shifts.by_job if state.shifts is not None else {},
        state.followers,
        controller.refused_plans,
        controller.cycles,
        state.past_jobs,
    )
    state_bytes = compress(_ENCODER.encode(saved), _FASTEST)
    return _ENCODER.encode(_Sealed(form(), policy.policy.name, _params(policy), state_bytes, controller.policy_set))


def decode(
    data: bytes, policy: BoundPolicy, journal: Journal, bind: Bind | None = None, *, any_version: bool = False
) -> Controller:
    """The controller as it was; it began with this policy. Raises UnreadableState.

    With `any_version`, a state that another version saved is read too, where nothing else is left of the cycles before:
    fields that it does not have get their defaults, and ranks are computed anew.
    """
    try:
        sealed = _SEALED.decode(data)
        is_ours = sealed.form == form()
        if not is_ours and not any_version:
            raise UnreadableState("it was saved by another version of hocket")
        is_same = sealed.params == _params(policy) or not is_ours  # Another version may have other parameters.
        if sealed.policy != policy.policy.name or not is_same:
            raise UnreadableState(f"its journal was begun under policy '{sealed.policy}', or with other parameters")
        if (now := sealed.followed) is not None:
            if bind is None:
                raise UnreadableState(f"it was saved under policy '{now.policy}'")
            policy = bind(now.policy, now.params)
        saved = _STATE.decode(decompress(sealed.state))
    except (msgspec.MsgspecError, zlib_error, UnknownPolicy, PolicyError) as error:
        raise UnreadableState(one_line(error)) from error
    controller = Controller(_snapshot(saved), policy.decide, policy.order, journal, **policy.needs, bind=bind)
    controller.policy_set = now
    controller.refused_plans, controller.cycles = saved.refused_plans, saved.cycles
    controller.timers.heap, controller.timers.verdict_s = saved.timers, saved.verdict_s
    controller.state.followers = saved.followers
    if (shifts := controller.state.shifts) is not None:
        shifts.heap, shifts.by_job = saved.shifts, saved.shift_by_job
    if not is_ours:
        for view in list(controller.state.jobs.live.values()):
            controller.state.put_view(view, view)
    return controller


@cache
def form() -> int:
    """A checksum that changes with the version, and with every field of a saved state, however deep."""
    schema = msgspec.json.encode(msgspec.json.schema(SavedState), order="sorted")
    return crc32(schema, crc32(f"{FORMAT} {__version__}".encode()))


def _params(policy: BoundPolicy) -> bytes:
    return _ENCODER.encode(policy.params)


def _snapshot(saved: SavedState) -> Snapshot:
    partitions = {p.id: p for p in saved.partitions}
    views = {v.id: _view(v, partitions) for v in saved.jobs}
    return Snapshot(
        saved.now_s,
        versioned((v.node.id, v) for v in saved.nodes),
        versioned((o.id, o) for o in saved.owners),
        versioned(saved.usage.items()),
        versioned(views.items()),
        *queues_of(views.values()),
        versioned(partitions.items()),
        versioned(saved.leaving.items()),
        saved.unsettled,
        _capacity(saved),
        versioned((_frozen(key), seen) for key, seen in saved.history),
        saved.memo,
        saved.wake,
        saved.seed,
        saved.decision,
        saved.submissions,
        saved.arrived,
        saved.due,
        saved.reservations,
        saved.past_jobs,
    )


def _capacity(saved: SavedState) -> Capacity:
    whole = Capacity.of(v.node for v in saved.nodes)
    up = sum(1 << i for i, there in enumerate(saved.up) if there)
    return whole._with({i: Free(int.from_bytes(f[0], "little"), *f[1:]) for i, f in enumerate(saved.free)}, up)


def _plain(free: Free) -> tuple[bytes, float, float, float]:
    gpus = free.gpus.to_bytes((free.gpus.bit_length() + 7) // 8, "little")
    return gpus, free.cores, free.mem_mib, free.net_mbps


def _view(view: JobView, partitions: dict[str, Partition]) -> JobView:
    tenancies = view.tenancies
    if tenancies:
        tenancies = tuple(
            t if t.holding is None else Tenancy(t.task, _shared(t.holding, partitions), t.doing, t.coming)
            for t in tenancies
        )
    return replace(view, rank=_frozen(view.rank), tenancies=tenancies) if view.rank or tenancies else view


def _shared(holding: Holding, partitions: dict[str, Partition]) -> Holding:
    """Let a tenant that holds what is planned share the partition's object, as before: comparing them is fast."""
    partition = partitions.get(holding.partition)
    if partition is None or partition.slices != holding.slices:
        return holding
    return replace(holding, slices=partition.slices)


def _frozen(value: Any) -> Any:
    """Ranks and keys are tuples all through, or they would not compare."""
    return tuple(_frozen(v) for v in value) if isinstance(value, list | tuple) else value


class StateSaver:
    """Saves a controller's state into its journal after a number of events, so that a restore has few events to fold.

    The number is the larger of `events` and two for each live job, since saving costs more with more jobs.
    """

    def __init__(self, journal: DurableJournal, policy: BoundPolicy, events: int = 10_000) -> None:
        self.trouble = ""  # why the last save failed; the next restore then takes longer, but nothing is lost
        self._journal, self._policy, self._events = journal, policy, events
        # A restored controller saves after its first cycle: how many events follow the last state is unknown.
        self._since = inf if len(journal) else 0.0

    def after_cycle(self, controller: Controller, events: int) -> bool:
        """Count a cycle with so many events, which is in the journal. True if the state was saved."""
        self._since += events
        if self._since < max(self._events, _EVENTS_PER_JOB * len(controller.state.jobs.live)):
            return False
        self._since = 0.0
        try:
            self._journal.save(encode(controller, self._policy))
        except JournalLost:
            raise
        except JournalError as error:
            self.trouble = str(error)
            return False
        self.trouble = ""
        return True
