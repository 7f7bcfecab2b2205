"""The loads of servers and GPUs, as columns that change with the draft of a plan.

A GPU that runs tasks is a partition of its own, with its part of the server's cores, memory and network, and its tasks
stacked on it. It is never widened while it has tasks, for that would move them all.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from hocket.model.partition import Partition
from hocket.model.resources import Slice
from hocket.model.snapshot import Snapshot
from hocket.policies.kit.gpu_index import GpuIndex, gpu_index_of
from hocket.policies.kit.incremental_columns import Missing, MissingLine, Needs, gpu_columns

if TYPE_CHECKING:
    from hocket.policies.kit.task_shapes import Column

_TOLERANCE = 1e-9
_ROUNDING = 1e-6  # what a count may be off by
_MANY = 1e9


class Undo(Struct, frozen=True, gc=False):
    """How it was before a task was added."""

    gpu: int
    part: Slice | None  # of its server, that a GPU got which was free
    rows: tuple[Any, ...]
    known: tuple[dict[object, Any], dict[Needs, float]]  # `_cache` and `_fits_nowhere`


class LoadTable:
    """Columns by server and by GPU. A GPU is free, open to tasks, or neither (a job without tasks has it)."""

    __slots__ = (
        "_cache",
        "_divisor",
        "_fits_nowhere",
        "_fitted_nowhere",
        "_gained",
        "changed_servers",
        "free",
        "gpu_load",
        "gpu_tenants",
        "index",
        "left",
        "limit",
        "load",
        "open",
        "room",
        "tenants",
        "use",
    )  # fmt: skip

    def __init__(self, index: GpuIndex, limit: float) -> None:
        import numpy as np

        servers, gpus = len(index.names), len(index.server_of)
        self.index, self.limit = index, limit
        self.load = np.zeros((servers, 4))
        self.use = np.zeros((servers, 4))
        self.left = np.zeros((servers, 3))  # cores, memory, network that no partition has
        self.tenants = np.zeros(servers, dtype=int)
        self.gpu_load = np.zeros(gpus)
        self.gpu_tenants = np.zeros(gpus, dtype=int)
        self.free = np.zeros(gpus, dtype=bool)
        self.open = np.zeros(gpus, dtype=bool)
        self.room = np.zeros((gpus, 3))  # of an open GPU's partition: cores, memory, network
        self._cache: dict[object, Any] = {}  # what was computed, until something changes
        self._fits_nowhere: dict[Needs, float] = {}  # needs beside a GPU → a GPU load that has no place
        self._fitted_nowhere: dict[Needs, float] = {}  # the same of the last decision, and …
        self._gained: Any = None  # … the GPUs with more room than there
        self.changed_servers: list[int] = []  # servers on which something changed, in order
        self._divisor = np.where(index.has > 0, index.has, inf)

    def slice_of(self, gpu: int, rest: Column) -> Slice:
        """What a free GPU's partition would get: its fair part of the server, or more if its first task needs it."""
        index = self.index
        server = int(index.server_of[gpu])
        columns = zip(self.left[server].tolist(), index.fair[server].tolist(), rest.tolist(), strict=True)
        amounts = [min(left, max(fair, need)) for left, fair, need in columns]
        return Slice(index.names[server], (gpu - index.begins[server],), *amounts)

    def add_task(self, gpu: int, needs: Column) -> Undo:
        """Add a task to a GPU."""
        known = (self._cache, self._fits_nowhere)
        server = self._touch(gpu)
        room, is_free = self.room[gpu], self.free[gpu]
        before = (
            self.load[server].tolist(), self.use[server].tolist(), self.left[server].tolist(), self.gpu_load[gpu],
            is_free, self.open[gpu], room.tolist(),
        )  # fmt: skip
        part = self.slice_of(gpu, needs[1:]) if is_free else None
        if part is not None:
            room[:] = part.vector[1:]
            self.left[server] -= room
            self.free[gpu], self.open[gpu] = False, True
        room -= needs[1:]
        self._add(server, gpu, needs, 1)
        return Undo(gpu, part, before, known)

    def undo(self, step: Undo) -> None:
        """Take back the last `add_task` that was not."""
        gpu = step.gpu
        server = self._touch(gpu)
        (
            self.load[server], self.use[server], self.left[server], self.gpu_load[gpu], self.free[gpu],
            self.open[gpu], self.room[gpu],
        ) = step.rows  # fmt: skip
        self.tenants[server] -= 1
        self.gpu_tenants[gpu] -= 1
        self._cache, self._fits_nowhere = step.known

    def remove_task(self, gpu: int, needs: Column, back: Slice | None) -> None:
        """Remove a task from a GPU; with the last one its partition goes, and gives `back` back."""
        server = self._touch(gpu)
        self._fits_nowhere = self._fitted_nowhere = {}
        self._add(server, gpu, needs, -1)
        self.room[gpu] += needs[1:]
        if back is not None:
            self.free[gpu], self.open[gpu] = True, False
            self.gpu_load[gpu] = 0.0
            self.left[server] += back.vector[1:]

    def take_slices(self, slices: tuple[Slice, ...]) -> None:
        """Give a job without tasks these for itself."""
        self._cache = {}
        index = self.index
        for part in slices:
            server = index.server_by_name.get(part.node)
            if server is None:
                continue
            self.changed_servers.append(server)
            gpus = [index.begins[server] + g for g in part.gpus]
            self.free[gpus] = False
            self.gpu_load[gpus] = 1.0
            self.left[server] -= part.vector[1:]
            self.load[server] += part.vector
            self.use[server] = self.load[server] / self._divisor[server]
            self.tenants[server] += 1

    def _touch(self, gpu: int) -> int:
        server = int(self.index.server_of[gpu])
        self._cache = {}
        self.changed_servers.append(server)
        return server

    def _add(self, server: Any, gpu: int, needs: Column, sign: int) -> None:
        load, change = self.load[server], needs if sign > 0 else -needs
        load += change
        self.use[server] = load / self._divisor[server]
        self.gpu_load[gpu] += change[0]
        self.tenants[server] += sign
        self.gpu_tenants[gpu] += sign

    def fits_somewhere(self, needs: Needs) -> bool:
        """Could a task with these needs be anywhere, with nothing overloaded?"""
        import numpy as np

        load, rest = needs[0], needs[1:]
        if load >= self._fits_nowhere.get(rest, inf) or not self.has_gpu_for(load):
            return False
        if load > self._cache.get(rest, -inf):  # What fits with a larger load fits with this one.
            among = self._gained if load >= self._fitted_nowhere.get(rest, inf) else None
            if not len(self._fitting(np.array(needs), among)):
                self._fits_nowhere = {**self._fits_nowhere, rest: load}  # A copy: `undo` brings the old one back.
                return False
            self._cache[rest] = load
        return True

    def most_that_fit(self, needs: Needs) -> int:
        """No more tasks with these needs fit than this; perhaps fewer."""
        import numpy as np

        if not self.fits_somewhere(needs):
            return 0
        found: int | None = self._cache.get(needs)
        if found is None:
            (load, *rest), at = needs, self._fitting(np.array(needs))
            more = np.full(len(at), _MANY)
            for need, has in ((load, self.limit - self.gpu_load[at]), *zip(rest, self.room[at].T, strict=True)):
                if need:
                    np.minimum(more, has / need + _ROUNDING, out=more)
            # A free GPU takes any task, and its partition is made for it.
            most = max(1.0, self.limit / load + _ROUNDING) if load else _MANY
            found = self._cache[needs] = int(np.where(self.free[at], most, more).astype(int).sum())
        return found

    def fitting_gpus(self, needs: Column) -> Any:
        """[GPU]: could the task be there, with nothing overloaded? An empty GPU or server takes any."""
        import numpy as np

        gpus = np.zeros(len(self.gpu_load), dtype=bool)
        gpus[self._fitting(needs)] = True
        return gpus

    def _fitting(self, needs: Column, among: Any = None) -> Any:
        """The GPUs of these, or of all, on which the task could be."""
        import numpy as np

        rest, most = needs[1:], self.limit + _TOLERANCE
        if among is None:
            at = np.flatnonzero(self.open & (self.gpu_load + needs[0] <= most) | self.free)
        else:
            at = among[self.open[among] & (self.gpu_load[among] + needs[0] <= most) | self.free[among]]
        if not len(at) or not rest.any():
            return at
        server = self.index.server_of[at]
        room = np.where(self.free[at][:, None], self.left[server], self.room[at])
        after = self.use[server, 1:] + rest / self._divisor[server, 1:]
        return at[_all(room >= rest - _TOLERANCE) & (_all(after <= most) | (self.tenants[server] == 0))]

    def reuse(self, older: LoadTable) -> None:
        """What fitted nowhere in the last decision is looked for only where room has grown since."""
        import numpy as np

        if older.index is not self.index or older.limit != self.limit or not older._fits_nowhere:
            return
        servers = _any(self.left > older.left) | _any(self.use[:, 1:] < older.use[:, 1:])
        servers |= (self.tenants == 0) & (older.tenants > 0)
        gpus = (self.gpu_load < older.gpu_load) | _any(self.room > older.room) | servers[self.index.server_of]
        gpus |= (self.free & ~older.free) | (self.open & ~older.open)
        self._fitted_nowhere, self._gained = older._fits_nowhere, np.flatnonzero(gpus)

    def loads_on(self, server: int, needs: list[float]) -> list[float]:
        """The loads of a server's GPUs, infinite where the task cannot be."""
        begins, ends = self.index.begins[server : server + 2]
        load, *rest = needs
        most = self.limit + _TOLERANCE
        enough = _covers(self.left[server].tolist(), rest)
        found = []
        for is_open, is_free, has, room in zip(
            self.open[begins:ends].tolist(),
            self.free[begins:ends].tolist(),
            self.gpu_load[begins:ends].tolist(),
            self.room[begins:ends].tolist(),
            strict=True,
        ):
            fits = (is_open and has + load <= most and _covers(room, rest)) or (is_free and enough)
            found.append(has if fits else inf)
        return found

    def stays_within_limit(self, server: int, needs: list[float]) -> bool:
        """Would the server not be overloaded by the task, apart from its GPUs?"""
        if not any(needs[1:]) or not self.tenants[server]:
            return True
        use, has = self.use[server].tolist(), self._divisor[server].tolist()
        return all(u + n / h <= self.limit + _TOLERANCE for u, n, h in zip(use[1:], needs[1:], has[1:], strict=True))

    def has_room(self, gpu: int, needs: Column, most: float) -> bool:
        """Could the task be on this GPU, with no more than this load?"""
        if self.gpu_load[gpu] + needs[0] > most + _TOLERANCE:
            return False
        room = self.left[self.index.server_of[gpu]] if self.free[gpu] else self.room[gpu]
        return bool((self.free[gpu] or self.open[gpu]) and (room >= needs[1:] - _TOLERANCE).all())

    def has_gpu_for(self, load: float) -> bool:
        """Is there a GPU with room for a task of this load? Other resources do not count here."""
        least: float | None = self._cache.get("least")
        if least is None:
            least = -inf if self.free.any() else float(self.gpu_load[self.open].min(initial=inf))
            self._cache["least"] = least
        return least + load <= self.limit + _TOLERANCE

    def most_by_load(self, load: float) -> int:
        """At most so many tasks with this GPU load fit; other resources may allow fewer."""
        import numpy as np

        found: int | None = self._cache.get(load)
        if found is None:
            found = self._cache[load] = int(self.most_by_loads(np.array([load]))[0])
        return found

    def most_by_loads(self, loads: Column) -> Any:
        """[load]: the same for many loads."""
        import numpy as np

        some = loads > 0
        each = (self.limit + _TOLERANCE - self.gpu_load) / np.where(some, loads, 1.0)[:, None]
        each = np.maximum(each, 0.0, out=each).astype(int)
        found = each[:, self.open].sum(axis=1) + np.maximum(each[:, self.free], 1).sum(axis=1)
        return np.where(some, found, 1 << 30)

    @property
    def headroom(self) -> float:
        """The GPU load that can still come, at most. An empty GPU takes any one task."""
        shared = (self.limit + _TOLERANCE - self.gpu_load[self.open]).clip(min=0.0).sum()
        return float(shared) + (max(1.0, self.limit) + _TOLERANCE) * int(self.free.sum())


def empty_table(index: GpuIndex, servers: int) -> LoadTable:
    """These servers, a mask of the layout's nodes, empty, and to be used in full."""
    table = LoadTable(index, 1.0)
    for server, i in enumerate(index.servers):
        if servers >> i & 1:
            table.left[server] = index.has[server, 1:]
            table.free[slice(*index.begins[server : server + 2])] = True
    return table


class TaskPlacements(Struct, frozen=True):
    """The load table of a plan, and the tasks in it."""

    table: LoadTable
    places: dict[str, dict[str, int]]  # job → task → GPU; the inner ones are not to be changed
    shapes: dict[str, str]  # of these jobs
    missing: dict[str, Missing]  # of these jobs, those that lack a task
    missing_by_rest: dict[Needs, MissingLine]  # those tasks, by what they need beside a GPU


def placements_of(snapshot: Snapshot, limit: float) -> TaskPlacements:
    """The servers as the present plan uses them."""
    import numpy as np

    capacity = snapshot.capacity
    index = gpu_index_of(capacity.layout)
    table = LoadTable(index, limit)
    if index.names:
        bits = len(capacity.layout.nodes) * capacity.layout.width
        mask = capacity.free_mask.to_bytes(bits // 8 + 1, "little")
        table.free[:] = np.unpackbits(np.frombuffer(mask, dtype=np.uint8), bitorder="little")[index.bit_of]
    with gpu_columns(capacity.layout) as columns:
        columns.follow(snapshot)
        table.left[:] = columns.left
        plain = columns.others()
        for partition in plain:
            _add_plain(partition, table)
        table.open[:] = columns.tenants > 0
        table.room[:] = columns.room
        table.gpu_tenants[:] = columns.tenants
        table.gpu_load += columns.amounts[:, 0]
        # By the order of the GPUs, whatever that of the partitions: sums of floats depend on it.
        if plain:
            np.add.at(table.load, index.server_of, columns.amounts)
        else:  # The same, faster.
            for n, column in enumerate(columns.amounts.T):
                table.load[:, n] = np.bincount(index.server_of, column, len(index.names))
        table.tenants += np.bincount(index.server_of, columns.tenants, len(index.names)).astype(int)
        np.divide(table.load, table._divisor, out=table.use)
        if columns.last_table is not None:
            table.reuse(columns.last_table)
        return TaskPlacements(
            table, dict(columns.places), dict(columns.shapes), dict(columns.missing), dict(columns.missing_by_rest)
        )


def keep_for_next_decision(table: LoadTable) -> None:
    """At the end of a decision: what fits nowhere now may be known at the next one (`LoadTable.reuse`)."""
    with gpu_columns(table.index.layout) as columns:
        columns.last_table = table


def _all(columns: Any) -> Any:
    """[row]: is each of its three true? NumPy's own takes ten times as long where rows are short."""
    return columns[:, 0] & columns[:, 1] & columns[:, 2]


def _any(columns: Any) -> Any:
    return columns[:, 0] | columns[:, 1] | columns[:, 2]


def _covers(has: list[float], needs: list[float]) -> bool:
    return has[0] >= needs[0] - _TOLERANCE and has[1] >= needs[1] - _TOLERANCE and has[2] >= needs[2] - _TOLERANCE


def _add_plain(partition: Partition, table: LoadTable) -> None:
    """A job without tasks has this for itself."""
    for part in partition.slices:
        server = table.index.server_by_name.get(part.node)
        if server is not None:
            table.load[server] += part.vector
            table.tenants[server] += 1
            table.gpu_load[[table.index.begins[server] + g for g in part.gpus]] = 1.0
