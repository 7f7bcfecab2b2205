"""What servers and GPUs are used for, in columns: as the plan stands, and as it changes while a plan is written.

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
from hocket.policies.mlfs.ground import Ground, ground_of
from hocket.policies.mlfs.kept import Line, Missing, Needs, on_gpus

if TYPE_CHECKING:
    from hocket.policies.mlfs.shapes import Column

_TOLERANCE = 1e-9
_ROUNDING = 1e-6  # what a count may be off by
_MANY = 1e9


class Undo(Struct, frozen=True, gc=False):
    """How it was before a task was seated."""

    gpu: int
    part: Slice | None  # of its server, that a GPU got which was free
    rows: tuple[Any, ...]
    known: tuple[dict[object, Any], dict[Needs, float]]  # what was worked out, and what fitted nowhere


class Board:
    """The columns. `use` is of what a server has; a GPU is free, open to tasks, or neither."""

    __slots__ = (
        "_divisor", "_gained", "_known", "_nowhere", "_was_nowhere", "free", "gpu_load", "gpu_tenants", "ground",
        "left", "limit", "load", "open", "room", "tenants", "touched", "use",
    )  # fmt: skip

    def __init__(self, ground: Ground, limit: float) -> None:
        import numpy as np

        servers, gpus = len(ground.names), len(ground.server_of)
        self.ground, self.limit = ground, limit
        self.load = np.zeros((servers, 4))
        self.use = np.zeros((servers, 4))
        self.left = np.zeros((servers, 3))  # cores, memory, network that no partition has
        self.tenants = np.zeros(servers, dtype=int)
        self.gpu_load = np.zeros(gpus)
        self.gpu_tenants = np.zeros(gpus, dtype=int)
        self.free = np.zeros(gpus, dtype=bool)
        self.open = np.zeros(gpus, dtype=bool)
        self.room = np.zeros((gpus, 3))  # of an open GPU's partition: cores, memory, network
        self._known: dict[object, Any] = {}  # what was worked out, as it stands
        self._nowhere: dict[Needs, float] = {}  # rest of the needs → a load that fits nowhere until somebody leaves
        self._was_nowhere: dict[Needs, float] = {}  # the same of an earlier board, and …
        self._gained: Any = None  # … the GPUs with more room than there
        self.touched: list[int] = []  # servers on which something changed, in order
        self._divisor = np.where(ground.has > 0, ground.has, inf)

    def slice_of(self, gpu: int, rest: Column) -> Slice:
        """What a free GPU's partition would get: its fair part of the server, or more if its first task needs it."""
        ground = self.ground
        server = int(ground.server_of[gpu])
        columns = zip(self.left[server].tolist(), ground.fair[server].tolist(), rest.tolist(), strict=True)
        amounts = [min(left, max(fair, need)) for left, fair, need in columns]
        return Slice(ground.names[server], (gpu - ground.begins[server],), *amounts)

    def seat(self, gpu: int, needs: Column) -> Undo:
        """A task is on this GPU from now on."""
        known = (self._known, self._nowhere)
        server = self._touch(gpu)
        room, is_free = self.room[gpu], self.free[gpu]
        before = (
            self.load[server].tolist(), self.use[server].tolist(), self.left[server].tolist(), self.gpu_load[gpu],
            is_free, self.open[gpu], room.tolist(),
        )  # fmt: skip
        part = self.slice_of(gpu, needs[1:]) if is_free else None
        if part is not None:
            room[:] = (part.cores, part.mem_mib, part.net_mbps)
            self.left[server] -= room
            self.free[gpu], self.open[gpu] = False, True
        room -= needs[1:]
        self._add(server, gpu, needs, 1)
        return Undo(gpu, part, before, known)

    def undo(self, step: Undo) -> None:
        """Take back the last seat."""
        gpu = step.gpu
        server = self._touch(gpu)
        (
            self.load[server], self.use[server], self.left[server], self.gpu_load[gpu], self.free[gpu],
            self.open[gpu], self.room[gpu],
        ) = step.rows  # fmt: skip
        self.tenants[server] -= 1
        self.gpu_tenants[gpu] -= 1
        self._known, self._nowhere = step.known

    def leave(self, gpu: int, needs: Column, back: Slice | None) -> None:
        """A task is off this GPU; with the last one its partition goes, and gives this back."""
        server = self._touch(gpu)
        self._nowhere = self._was_nowhere = {}
        self._add(server, gpu, needs, -1)
        self.room[gpu] += needs[1:]
        if back is not None:
            self.free[gpu], self.open[gpu] = True, False
            self.gpu_load[gpu] = 0.0
            self.left[server] += (back.cores, back.mem_mib, back.net_mbps)

    def take(self, slices: tuple[Slice, ...]) -> None:
        """A job that is not partitioned gets these for itself."""
        self._known = {}
        ground = self.ground
        for part in slices:
            server = ground.index.get(part.node)
            if server is None:
                continue
            self.touched.append(server)
            gpus = [ground.begins[server] + g for g in part.gpus]
            self.free[gpus] = False
            self.gpu_load[gpus] = 1.0
            amounts = (len(gpus), part.cores, part.mem_mib, part.net_mbps)
            self.left[server] -= amounts[1:]
            self.load[server] += amounts
            self.use[server] = self.load[server] / self._divisor[server]
            self.tenants[server] += 1

    def _touch(self, gpu: int) -> int:
        server = int(self.ground.server_of[gpu])
        self._known = {}
        self.touched.append(server)
        return server

    def _add(self, server: Any, gpu: int, needs: Column, sign: int) -> None:
        load, change = self.load[server], needs if sign > 0 else -needs
        load += change
        self.use[server] = load / self._divisor[server]
        self.gpu_load[gpu] += change[0]
        self.tenants[server] += sign
        self.gpu_tenants[gpu] += sign

    def takes(self, needs: Needs) -> bool:
        """Could the task be anywhere, with nothing overloaded?"""
        import numpy as np

        load, rest = needs[0], needs[1:]
        if load >= self._nowhere.get(rest, inf) or not self.may_take(load):
            return False
        if load > self._known.get(rest, -inf):  # What fits with a larger load fits with this one.
            among = self._gained if load >= self._was_nowhere.get(rest, inf) else None
            if not len(self._fitting(np.array(needs), among)):
                self._nowhere = {**self._nowhere, rest: load}  # A seat that is undone has the old one.
                return False
            self._known[rest] = load
        return True

    def takes_at_most(self, needs: Needs) -> int:
        """No more such tasks fit than this; perhaps fewer."""
        import numpy as np

        if not self.takes(needs):
            return 0
        found: int | None = self._known.get(needs)
        if found is None:
            (load, *rest), at = needs, self._fitting(np.array(needs))
            more = np.full(len(at), _MANY)
            for need, has in ((load, self.limit - self.gpu_load[at]), *zip(rest, self.room[at].T, strict=True)):
                if need:
                    np.minimum(more, has / need + _ROUNDING, out=more)
            # A free GPU takes any task, and its partition is made for it.
            most = max(1.0, self.limit / load + _ROUNDING) if load else _MANY
            found = self._known[needs] = int(np.where(self.free[at], most, more).astype(int).sum())
        return found

    def fits(self, needs: Column) -> Any:
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
        server = self.ground.server_of[at]
        room = np.where(self.free[at][:, None], self.left[server], self.room[at])
        after = self.use[server, 1:] + rest / self._divisor[server, 1:]
        return at[_all(room >= rest - _TOLERANCE) & (_all(after <= most) | (self.tenants[server] == 0))]

    def follow(self, older: Board) -> None:
        """Know what is known of another board, as far as it is true here: what fitted nowhere fits where room grew."""
        import numpy as np

        if older.ground is not self.ground or older.limit != self.limit or not older._nowhere:
            return
        servers = _any(self.left > older.left) | _any(self.use[:, 1:] < older.use[:, 1:])
        servers |= (self.tenants == 0) & (older.tenants > 0)
        gpus = (self.gpu_load < older.gpu_load) | _any(self.room > older.room) | servers[self.ground.server_of]
        gpus |= (self.free & ~older.free) | (self.open & ~older.open)
        self._was_nowhere, self._gained = older._nowhere, np.flatnonzero(gpus)

    def gpu_loads(self, server: int, needs: list[float]) -> list[float]:
        """The same of one server: its GPUs' loads, infinite where the task cannot be."""
        begins, ends = self.ground.begins[server : server + 2]
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

    def bears(self, server: int, needs: list[float]) -> bool:
        """Would the server not be overloaded with the task, apart from its GPUs?"""
        if not any(needs[1:]) or not self.tenants[server]:
            return True
        use, has = self.use[server].tolist(), self._divisor[server].tolist()
        return all(u + n / h <= self.limit + _TOLERANCE for u, n, h in zip(use[1:], needs[1:], has[1:], strict=True))

    def has_room(self, gpu: int, needs: Column, most: float) -> bool:
        """Could the task be on this GPU, with no more than this load?"""
        if self.gpu_load[gpu] + needs[0] > most + _TOLERANCE:
            return False
        room = self.left[self.ground.server_of[gpu]] if self.free[gpu] else self.room[gpu]
        return bool((self.free[gpu] or self.open[gpu]) and (room >= needs[1:] - _TOLERANCE).all())

    def may_take(self, load: float) -> bool:
        """Is there a GPU with room for a task of this load? Of other resources this says nothing."""
        least: float | None = self._known.get("least")
        if least is None:
            least = -inf if self.free.any() else float(self.gpu_load[self.open].min(initial=inf))
            self._known["least"] = least
        return least + load <= self.limit + _TOLERANCE

    def seats(self, load: float) -> int:
        """At most so many tasks with this GPU load fit; other resources may allow fewer."""
        import numpy as np

        found: int | None = self._known.get(load)
        if found is None:
            found = self._known[load] = int(self.seats_of(np.array([load]))[0])
        return found

    def seats_of(self, loads: Column) -> Any:
        """[load]: the same of many."""
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


def empty_board(ground: Ground, servers: int) -> Board:
    """These servers, a mask of the layout's nodes, with nobody on them and used up to the full."""
    board = Board(ground, 1.0)
    for server, i in enumerate(ground.servers):
        if servers >> i & 1:
            board.left[server] = ground.has[server, 1:]
            board.free[slice(*ground.begins[server : server + 2])] = True
    return board


class Held(Struct, frozen=True):
    """The board, and who has a place on it."""

    board: Board
    places: dict[str, dict[str, int]]  # job → task → GPU; the inner ones are not to be changed
    shapes: dict[str, str]  # of these jobs
    lacking: dict[str, Missing]  # of these jobs, those of which a task has no GPU
    wanted: dict[Needs, Line]  # the tasks that they lack, by what they need beside a GPU


def board_of(snapshot: Snapshot, limit: float) -> Held:
    """The servers as the present plan uses them."""
    import numpy as np

    capacity = snapshot.capacity
    ground = ground_of(capacity.layout)
    board = Board(ground, limit)
    if ground.names:
        bits = len(capacity.layout.nodes) * capacity.layout.width
        mask = capacity.free_mask.to_bytes(bits // 8 + 1, "little")
        board.free[:] = np.unpackbits(np.frombuffer(mask, dtype=np.uint8), bitorder="little")[ground.bit_of]
    with on_gpus(capacity.layout) as kept:
        kept.follow(snapshot)
        board.left[:] = kept.left
        plain = kept.others()
        for partition in plain:
            _take(partition, board)
        board.open[:] = kept.tenants > 0
        board.room[:] = kept.room
        board.gpu_tenants[:] = kept.tenants
        board.gpu_load += kept.amounts[:, 0]
        # By the order of the GPUs, whatever that of the partitions: sums of floats depend on it.
        if plain:
            np.add.at(board.load, ground.server_of, kept.amounts)
        else:  # The same, faster.
            for n, column in enumerate(kept.amounts.T):
                board.load[:, n] = np.bincount(ground.server_of, column, len(ground.names))
        board.tenants += np.bincount(ground.server_of, kept.tenants, len(ground.names)).astype(int)
        np.divide(board.load, board._divisor, out=board.use)
        if kept.last is not None:
            board.follow(kept.last)
        return Held(board, dict(kept.places), dict(kept.shapes), dict(kept.lacking), dict(kept.wanted))


def remember(board: Board) -> None:
    """A decision is over: what is known of its board may be true of the next one."""
    with on_gpus(board.ground.layout) as kept:
        kept.last = board


def _all(columns: Any) -> Any:
    """[row]: is each of its three true? NumPy's own takes ten times as long where rows are short."""
    return columns[:, 0] & columns[:, 1] & columns[:, 2]


def _any(columns: Any) -> Any:
    return columns[:, 0] | columns[:, 1] | columns[:, 2]


def _covers(has: list[float], needs: list[float]) -> bool:
    return has[0] >= needs[0] - _TOLERANCE and has[1] >= needs[1] - _TOLERANCE and has[2] >= needs[2] - _TOLERANCE


def _take(partition: Partition, board: Board) -> None:
    """A job that is not partitioned has this for itself."""
    for part in partition.slices:
        server = board.ground.index.get(part.node)
        if server is not None:
            board.load[server] += (len(part.gpus), part.cores, part.mem_mib, part.net_mbps)
            board.tenants[server] += 1
            board.gpu_load[[board.ground.begins[server] + g for g in part.gpus]] = 1.0
