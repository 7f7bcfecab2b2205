"""What is free on which node, as a value, and where a job of some size fits.

Nodes are kept as one bit mask for each number of free GPUs: the best-fitting node is the lowest bit of the first
mask that has one, whether there are ten nodes or ten thousand. Which GPUs are free is one long number, some bits for
each node: a value that is cheap to change, for most jobs ask for nothing but GPUs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct

from hocket.model.job import ONE_GPU, Job
from hocket.model.resources import UNITS, Demand, Node, Slice, Vector, gpu_ids, gpu_mask
from hocket.model.versioned import VersionedMap, versioned

_TOLERANCE = 1e-9  # cores and memory are sums of floats

Places = tuple[tuple[int, int], ...]  # (node's index, replicas there)
Shape = int | tuple[object, ...]  # what decides where a job fits; equal shapes fit or fail together


def shape_of(job: Job) -> Shape:
    """What a job of its smallest size needs. Jobs of one shape fit, or do not, alike."""
    demand = job.demand
    if (demand is ONE_GPU or (demand.gpus == 1 and demand.gpus_only)) and not (
        job.gpu_kinds or job.gpu_mem_mib or job.max_nodes or job.tasks or job.excluded_nodes
    ):
        return job.sizes[0]
    shape = (demand, job.sizes[0], job.gpu_kinds, job.gpu_mem_mib, job.max_nodes, job.tasks is not None)
    return (*shape, job.excluded_nodes) if job.excluded_nodes else shape


class Free(Struct, frozen=True, gc=False):
    """What is left of one node."""

    gpus: int  # free GPUs as a bit mask
    cores: float  # free CPU cores
    mem_mib: float  # free memory in MiB
    net_mbps: float  # free network in megabit per second

    @property
    def vector(self) -> Vector:
        """The amounts of all resources."""
        return self.gpus.bit_count(), self.cores, self.mem_mib, self.net_mbps

    def slice_of(self, node: str) -> Slice:
        """All of it, as a slice of the node that it is left of."""
        return Slice(node, gpu_ids(self.gpus), self.cores, self.mem_mib, self.net_mbps)

    def room(self, demand: Demand) -> int:
        """How many replicas of a demand fit in here."""
        room = self.room_beside(demand)
        return min(room, self.gpus.bit_count() // demand.gpus) if demand.gpus else room

    def room_beside(self, demand: Demand) -> int:
        """How many would, with GPUs enough."""
        room = 1 << 30
        if demand.cores:
            room = min(room, int((self.cores + _TOLERANCE) / demand.cores))
        if demand.mem_mib:
            room = min(room, int((self.mem_mib + _TOLERANCE) / demand.mem_mib))
        if demand.net_mbps:
            room = min(room, int((self.net_mbps + _TOLERANCE) / demand.net_mbps))
        return room


Amounts = tuple[float, float, float]  # cores, memory in MiB, network in Mbps
_NOTHING: Amounts = (0.0, 0.0, 0.0)
_NOWHERE = (-1, 0, 0)  # index, first GPU and bit of a node that is not there


class Layout:
    """The nodes there are, lost ones included. Shared by all capacities over them."""

    __slots__ = (
        "_eligible", "_totals", "all", "bits", "fitting", "gpus_only", "nodes", "ones", "width", "without_gpus"
    )  # fmt: skip

    def __init__(self, nodes: Iterable[Node]) -> None:
        self.nodes = tuple(nodes)
        self.all = (1 << len(self.nodes)) - 1
        self.width = max((n.gpus for n in self.nodes), default=0)  # bits for the GPUs of one node
        self.ones = (1 << self.width) - 1
        # node → (its index, where its GPUs begin, its bit in masks of nodes)
        self.bits = {node.id: (i, i * self.width, 1 << i) for i, node in enumerate(self.nodes)}
        self.without_gpus = sum(1 << i for i, node in enumerate(self.nodes) if not node.gpus)
        self.gpus_only = not any(n.cores or n.mem_mib or n.net_mbps for n in self.nodes)
        self.fitting: set[Shape] = set()  # what was found to fit these nodes with nothing on them
        self._eligible: dict[tuple[tuple[str, ...], float, tuple[str, ...]], int] = {((), 0.0, ()): self.all}
        self._totals: dict[int, Demand] = {}

    def index_of(self, node: str) -> int:
        """The node's place in `nodes`."""
        return self.bits[node][0]

    def eligible(self, job: Job) -> int:
        """The mask of the nodes whose GPUs the job accepts, and that are not reserved for other owners."""
        key = (job.gpu_kinds, job.gpu_mem_mib, job.excluded_nodes)
        mask = self._eligible.get(key)
        if mask is None:
            mask = 0
            for i, node in enumerate(self.nodes):
                kind_fits = not job.gpu_kinds or node.gpu_kind in job.gpu_kinds
                if kind_fits and node.gpu_mem_mib >= job.gpu_mem_mib and node.id not in job.excluded_nodes:
                    mask |= 1 << i
            self._eligible[key] = mask
        return mask

    def total(self, mask: int) -> Demand:
        """What the nodes of a mask have together."""
        found = self._totals.get(mask)
        if found is None:
            nodes = [node for i, node in enumerate(self.nodes) if mask >> i & 1]
            found = self._totals[mask] = Demand(
                gpus=sum(n.gpus for n in nodes),
                cores=sum(n.cores for n in nodes),
                mem_mib=sum(n.mem_mib for n in nodes),
                net_mbps=sum(n.net_mbps for n in nodes),
            )
        return found


class OverCapacity(ValueError):
    """Something was taken that is not free; says what and where."""


class _Overlay(Struct, eq=False):
    """A few nodes as a draft has them, over all nodes as they are: trying things out copies nothing."""

    _under: VersionedMap[int, Amounts] | _Overlay
    _changed: VersionedMap[int, Amounts]

    def __getitem__(self, i: int) -> Amounts:
        return self._changed.get(i) or self._under[i]

    def update(self, changes: dict[int, Amounts]) -> _Overlay:
        return _Overlay(self._under, self._changed.update(changes))


class Capacity(Struct, eq=False):
    """What is free, by node. Immutable: taking and giving back return another one.

    Where `slices` are given, they are resources by node, as those of a partition.
    """

    layout: Layout  # the nodes, with indexes and bits by which they are found; shared, never copied
    _mask: int  # of the free GPUs of all nodes, `layout.width` bits each
    _amounts: VersionedMap[int, Amounts] | _Overlay  # what else is free, by the node's index
    _by_count: list[int]  # mask of nodes by their number of free GPUs; never edited
    gpus: int  # free GPUs of all nodes together
    up: int  # bit mask of the nodes that can be given away: those that are neither lost nor drained

    @staticmethod
    def of(nodes: Iterable[Node]) -> Capacity:
        """All of the nodes, free."""
        layout = Layout(nodes)
        amounts = versioned((i, _NOTHING) for i in range(len(layout.nodes)))
        none = Capacity(layout, 0, amounts, [layout.all, *[0] * layout.width], 0, 0)
        return none._with({i: _whole(node) for i, node in enumerate(layout.nodes)}, layout.all)

    def draft(self) -> Capacity:
        """The same capacity, to try things out on: what is taken of it does not change this one."""
        if self.layout.gpus_only:
            return self  # Numbers are values.
        amounts = _Overlay(self._amounts, VersionedMap({}))
        return Capacity(self.layout, self._mask, amounts, self._by_count, self.gpus, self.up)

    def __getitem__(self, node: str) -> Free:
        return self._at(self.layout.index_of(node))

    def __iter__(self) -> Iterator[tuple[Node, Free]]:
        for i, node in enumerate(self.layout.nodes):
            yield node, self._at(i)

    def amounts(self, since: Capacity | None = None) -> dict[int, Amounts]:
        """Free cores, memory and network, by the node's index: of all nodes, or of those changed `since` another."""
        now, changed = self._amounts, None
        if since is not None and isinstance(now, VersionedMap) and isinstance(since._amounts, VersionedMap):
            changed = now.changed_since(since._amounts)
        return {i: now[i] for i in (range(len(self.layout.nodes)) if changed is None else changed)}

    def changed_since(self, older: Capacity | None) -> Iterable[int]:
        """Indexes of the nodes where other resources are free than in `older`; all if it is None or has other nodes."""
        if older is None or older.layout is not self.layout:
            return range(len(self.layout.nodes))
        changed, width = set(self.amounts(since=older)), self.layout.width
        gpus = self._mask ^ older._mask
        while gpus:
            i = ((gpus & -gpus).bit_length() - 1) // width
            changed.add(i)
            gpus &= ~(self.layout.ones << i * width)
        return sorted(changed)

    @property
    def free_mask(self) -> int:
        """Free GPUs as bits, `layout.width` for each node."""
        return self._mask

    def _at(self, i: int) -> Free:
        return Free(self._gpus_at(i), *self._amounts[i])

    def _gpus_at(self, i: int) -> int:
        layout = self.layout
        return self._mask >> i * layout.width & layout.ones

    def _with(self, changes: dict[int, Free], up: int) -> Capacity:
        """This capacity with these nodes as given."""
        width, mask, gpus, counts = self.layout.width, self._mask, self.gpus, list(self._by_count)
        for i, now in changes.items():
            had = self._gpus_at(i)
            mask ^= (had ^ now.gpus) << i * width
            before, after = had.bit_count(), now.gpus.bit_count()
            counts[before] ^= 1 << i
            counts[after] ^= 1 << i
            gpus += after - before
        amounts = self._amounts.update({i: (now.cores, now.mem_mib, now.net_mbps) for i, now in changes.items()})
        return Capacity(self.layout, mask, amounts, counts, gpus, up)

    def take(self, slices: Sequence[Slice]) -> Capacity:
        """This capacity less these `slices`. Raises OverCapacity if they are not free."""
        found: list[str] = []
        taken = self.exchange((), slices, found)
        if found:
            raise OverCapacity(found[0])
        return taken

    def give(self, slices: Sequence[Slice]) -> Capacity:
        """This capacity with these `slices` free again; those of a lost node are ignored."""
        return self.exchange(slices, (), [])

    def exchange(self, back: Sequence[Slice], out: Sequence[Slice], found: list[str]) -> Capacity:
        """This capacity with the slices `back` given back and then those of `out` taken.

        A slice that cannot be taken is left out, and a sentence that says why is appended to `found`.
        """
        layout, up, free, counts = self.layout, self.up, self._mask, [*self._by_count]
        bits, ones, gpus_only = layout.bits, layout.ones, layout.gpus_only
        changes: dict[int, Amounts] = {}  # A tuple of three is true, so `or` below asks whether there is one.
        for part in back:
            i, shift, bit = bits.get(part.node) or _NOWHERE
            if not up & bit:
                continue
            if ids := part.gpus:
                had = free >> shift & ones
                has = had | gpu_mask(ids)
                free |= has << shift
                counts[had.bit_count()] ^= bit
                counts[has.bit_count()] ^= bit
            if not gpus_only and (part.cores or part.mem_mib or part.net_mbps):
                cores, mem_mib, net_mbps = changes.get(i) or self._amounts[i]
                changes[i] = (cores + part.cores, mem_mib + part.mem_mib, net_mbps + part.net_mbps)
        for part in out:
            i, shift, bit = bits.get(part.node) or _NOWHERE
            if not up & bit:
                found.append(f"node '{part.node}' is {'lost' if bit else 'not in the cluster'}")
                continue
            ids = part.gpus
            had, mask, taken = free >> shift & ones, gpu_mask(ids), len(ids)
            if mask & ~had or mask.bit_count() != taken:
                found.append(_conflict(layout.nodes[i], Free(had, *(changes.get(i) or self._amounts[i])), part))
                continue
            if part.cores or part.mem_mib or part.net_mbps:
                cores, mem_mib, net_mbps = has_now = changes.get(i) or self._amounts[i]
                left = (cores - part.cores, mem_mib - part.mem_mib, net_mbps - part.net_mbps)
                if min(left) < -_TOLERANCE:
                    found.append(_conflict(layout.nodes[i], Free(had, *has_now), part))
                    continue
                changes[i] = left
            if taken:
                free ^= mask << shift
                before = had.bit_count()
                counts[before] ^= bit
                counts[before - taken] ^= bit
        amounts = self._amounts.update(changes) if changes else self._amounts
        return Capacity(layout, free, amounts, counts, free.bit_count(), up)

    def lose(self, node: str) -> Capacity:
        """This capacity without a `node`. Its partitions must have given it back."""
        i = self.layout.index_of(node)
        return self._with({i: Free(0, *_NOTHING)}, self.up & ~(1 << i))

    def regain(self, node: str) -> Capacity:
        """This capacity with a lost `node` back, all of it free."""
        i = self.layout.index_of(node)
        return self._with({i: _whole(self.layout.nodes[i])}, self.up | 1 << i)

    def close(self, node: str) -> Capacity:
        """This capacity without what is free on a `node`, and without what its partitions give back from now on."""
        return self.lose(node)

    def reopen(self, node: str, taken: Sequence[Slice]) -> Capacity:
        """This capacity with a closed `node` again, of which its partitions have `taken` these slices."""
        return self.regain(node).take([part for part in taken if part.node == node])

    def place(self, job: Job, size: int, spare_gpus: bool = False) -> Places | None:
        """Where `size` replicas of the `job` fit: on the fullest node that holds all, else on as few as possible.

        With `spare_gpus` replicas that need no GPU go to nodes that have none before all others.
        """
        demand = job.demand
        eligible = self.up
        if job.gpu_kinds or job.gpu_mem_mib or job.excluded_nodes:
            eligible &= self.layout.eligible(job)
        if demand is ONE_GPU or (demand.gpus == 1 and demand.gpus_only):
            if size > self.gpus:
                return None
            by_count = self._by_count
            for count in range(size, len(by_count)):
                if mask := by_count[count] & eligible:
                    return (((mask & -mask).bit_length() - 1, size),)
            return None if job.max_nodes == 1 else self._spread_gpus(size, eligible, job.max_nodes)
        if spare_gpus and not demand.gpus:
            return self._beside_gpus_last(demand, size, eligible, job.max_nodes)
        return self._search(demand, size, eligible, job.max_nodes)

    def place_on(self, node: str, job: Job, size: int) -> Places | None:
        """That node, if `size` replicas of the `job` fit there and it may have it; None otherwise."""
        i = self.layout.index_of(node)
        may_have = self.up & self.layout.eligible(job) & (1 << i)
        return ((i, size),) if may_have and self._at(i).room(job.demand) >= size else None

    def _beside_gpus_last(self, demand: Demand, size: int, eligible: int, max_nodes: int) -> Places | None:
        """As many replicas as possible on nodes without GPUs, the rest beside GPUs."""
        without = eligible & self.layout.without_gpus
        if places := self._search(demand, size, without, max_nodes):
            return places
        rooms = [(i, room) for i in _bits(without) if (room := Free(0, *self._amounts[i]).room_beside(demand))]
        missing = size - sum(room for _i, room in rooms)
        rest = self._search(demand, missing, eligible & ~without, 0) if missing > 0 else None
        if rest is None or (max_nodes and len(rooms) + len(rest) > max_nodes):
            return self._search(demand, size, eligible, max_nodes)
        return (*rooms, *rest)

    def _spread_gpus(self, size: int, eligible: int, max_nodes: int) -> Places | None:
        places: list[tuple[int, int]] = []
        missing = size
        for count in range(len(self._by_count) - 1, 0, -1):
            mask = self._by_count[count] & eligible
            while mask and missing >= count:
                bit = mask & -mask
                places.append((bit.bit_length() - 1, count))
                missing -= count
                mask ^= bit
            if mask and 0 < missing < count:
                # The rest goes where it fits best, so that large gaps stay large.
                for small in range(missing, count + 1):
                    if left := self._by_count[small] & eligible & (mask if small == count else -1):
                        places.append(((left & -left).bit_length() - 1, missing))
                        missing = 0
                        break
            if not missing:
                break
        if missing or (max_nodes and len(places) > max_nodes):
            return None
        return tuple(places)

    def _search(self, demand: Demand, size: int, eligible: int, max_nodes: int) -> Places | None:
        rooms: list[tuple[int, int, int]] = []  # (room, free GPUs, index)
        best: tuple[int, int] | None = None
        total = 0
        beside: dict[Amounts, int] = {}  # how many replicas there is room for, GPUs aside; most nodes are alike
        for i, gpus in self._candidates(demand, eligible):
            amounts = self._amounts[i]
            room = beside.get(amounts, -1)
            if room < 0:
                room = beside[amounts] = Free(0, *amounts).room_beside(demand)
            if demand.gpus and gpus // demand.gpus < room:
                room = gpus // demand.gpus
            if room >= size:
                if best is None or (room, i) < best:
                    best = (room, i)
                    if room == size:
                        break
            elif room:
                rooms.append((room, -gpus, i))
                total += room
        if best is not None:
            return ((best[1], size),)
        if total < size or max_nodes == 1:
            return None
        rooms.sort(key=lambda r: (-r[0], r[1], r[2]))
        places: list[tuple[int, int]] = []
        missing = size
        for room, _gpus, i in rooms:
            places.append((i, min(room, missing)))
            missing -= places[-1][1]
            if not missing:
                break
        return None if max_nodes and len(places) > max_nodes else tuple(places)

    def _candidates(self, demand: Demand, eligible: int) -> Iterator[tuple[int, int]]:
        """(index, free GPUs) of the nodes that have GPUs enough for one, those with the fewest first."""
        if not demand.gpus:
            yield from ((i, self._gpus_at(i).bit_count()) for i in _bits(eligible))
            return
        for gpus in range(demand.gpus, len(self._by_count)):
            for i in _bits(self._by_count[gpus] & eligible):
                yield i, gpus

    def slices(self, job: Job, places: Places) -> tuple[Slice, ...]:
        """The slices of a partition that holds the `job` alone in these `places`, lowest free GPUs first."""
        demand = job.demand
        if len(places) == 1:
            i, replicas = places[0]
            return (self._slice(demand, i, replicas),)
        return tuple([self._slice(demand, i, replicas) for i, replicas in places])

    def _slice(self, demand: Demand, i: int, replicas: int) -> Slice:
        layout = self.layout
        node, gpus = layout.nodes[i].id, demand.gpus * replicas
        mask = self._mask >> i * layout.width & layout.ones
        if gpus == mask.bit_count():
            ids = gpu_ids(mask)
        elif gpus == 1:
            ids = gpu_ids(mask & -mask)
        else:
            ids = gpu_ids(mask)[:gpus]
        if demand is ONE_GPU or demand.gpus_only:
            return Slice(node, ids)
        return Slice(node, ids, demand.cores * replicas, demand.mem_mib * replicas, demand.net_mbps * replicas)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Capacity)
            and self.up == other.up
            and self.layout.nodes == other.layout.nodes
            and all(a == b for a, b in zip(self, other, strict=True))
        )

    def __ne__(self, other: object) -> bool:  # A struct's own would compare by identity.
        return not self == other

    __hash__ = None  # type: ignore[assignment]


def _bits(mask: int) -> Iterator[int]:
    while mask:
        bit = mask & -mask
        yield bit.bit_length() - 1
        mask ^= bit


def _whole(node: Node) -> Free:
    return Free((1 << node.gpus) - 1, node.cores, node.mem_mib, node.net_mbps)


def _conflict(node: Node, free: Free, part: Slice) -> str:
    beyond = [g for g in part.gpus if not 0 <= g < node.gpus]
    if beyond:
        return f"node '{node.id}' has {node.gpus} GPUs, the plan names GPU {beyond[0]}"
    if len(set(part.gpus)) != len(part.gpus):
        return f"node '{node.id}': the plan names a GPU twice in {list(part.gpus)}"
    if taken := gpu_mask(part.gpus) & ~free.gpus:
        names = ", ".join(map(str, gpu_ids(taken)))
        return f"node '{node.id}' has no free GPU {names}: another partition holds it"
    short = [k for k in ("cores", "mem_mib") if getattr(part, k) > getattr(free, k) + _TOLERANCE]
    name = short[0] if short else "net_mbps"
    return f"node '{node.id}' has {getattr(free, name):g} free {UNITS[name]}, the plan takes {getattr(part, name):g}"
