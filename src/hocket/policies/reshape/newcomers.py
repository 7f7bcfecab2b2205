"""Algorithm 1: for a newcomer every size, and for every size every running job that can give up what is missing."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from msgspec.structs import replace

from hocket.model.capacity import shape_of
from hocket.model.partition import Partition
from hocket.model.resources import Slice
from hocket.model.view import JobView
from hocket.policies.kit.draft import Draft
from hocket.policies.kit.remaining_time import (
    Key,
    PredictedEnds,
    begin_s,
    nodes_of,
    only_on,
    shrunk_s,
    speed,
    speed_ratio,
    work_s,
)
from hocket.policies.reshape.several import together


class Donor(NamedTuple):
    """A running job, the size it shrinks to, and when it ends then."""

    view: JobView
    size: int
    ends_s: float


class Option(NamedTuple):
    """A size for a newcomer, on which kind of GPU, and the jobs that make room."""

    size: int
    kind: str | None  # None: whichever is there
    donors: tuple[Donor, ...] = ()

    @property
    def name(self) -> tuple[object, ...]:
        """Tells it from the others."""
        return self.size, self.kind, tuple((d.view.number, d.size) for d in self.donors)


def serve(draft: Draft, ends: PredictedEnds, donors: int, unknown_s: float) -> bool:
    """Start waiting jobs in the order of submission, as far as a size of theirs can be met; True if some wait."""
    hopeless: set[object] = set()
    waits = False
    for view in draft.candidates():
        job = view.job
        alike = (shape_of(job), job.sizes, job.owner)
        if alike in hopeless or not _Newcomer(view, draft, ends, donors, unknown_s).start():
            waits = True
            hopeless.add(alike)
            if not ends.elastic and draft.capacity.place(job, job.sizes[0]) is None:
                draft.pass_over(view)  # With donors, others of its shape may have sizes that can be met.
    return waits


class _Newcomer:
    """One waiting job, and the options for it."""

    def __init__(self, view: JobView, draft: Draft, ends: PredictedEnds, donors: int, unknown_s: float) -> None:
        self.view, self.draft, self.ends, self.most_donors = view, draft, ends, donors
        self.now_s = draft.snapshot.now_s
        self.work_s = work_s(view, self.now_s, unknown_s)
        # Donors train on while a newcomer that can be warmed up is prepared.
        self.wait_s = view.costs.prepare_s if view.job.warm and not view.prepared else 0.0
        self.best: tuple[Key, Option] | None = None
        self.failed: set[tuple[object, ...]] = set()  # options that could not be carried out

    def start(self) -> bool:
        """Carry out the best option; the next best if that cannot be."""
        while True:
            self.best = None
            self._try_idle_gpus()
            self._try_one_donor()
            if self.most_donors > 1:
                self._try_several_donors()
            if self.best is None:
                return False
            option = self.best[1]
            if self._carry_out(option):
                return True
            self.failed.add(option.name)

    def _consider(self, key: Key, option: Option) -> None:
        if (self.best is None or key < self.best[0]) and option.name not in self.failed:
            self.best = key, option

    def ends_s(self, size: int, kind: str, nodes: int, delay_s: float = 0.0) -> float:
        """When it ends at a size, on GPUs of a kind."""
        return self.now_s + delay_s + begin_s(self.view) + self.work_s / speed(self.view, size, kind, nodes)

    def _try_idle_gpus(self) -> None:
        """On GPUs that are free, of each kind."""
        job, capacity = self.view.job, self.draft.capacity
        last_s = self.ends.last_two()[1]
        for kind in self.ends.kinds(job):
            restricted = only_on(job, kind)
            for size in job.sizes:
                if (places := capacity.place(restricted, size)) is not None:
                    ends_s = self.ends_s(size, capacity.layout.nodes[places[0][0]].gpu_kind, len(places))
                    self._consider(self.ends.key(max(last_s, ends_s), ends_s, 0), Option(size, kind))

    def _try_one_donor(self) -> None:
        """With GPUs that one running job gives up, exactly as many as are missing."""
        job = self.view.job
        each_new, one_node, now_s, wait_s = job.demand.gpus, job.max_nodes == 1, self.now_s, self.wait_s
        if not each_new or not self.ends.elastic:
            return
        eligible, free, kind_of = self._nodes()
        idle = sum(free[node] for node in eligible)
        last, last_s, other_s = self.ends.last_two()
        earliest_s = self._earliest_ends(kind_of[node] for node in eligible)
        key_of = self.ends.key
        landed: dict[tuple[str, int, int], tuple[str, int] | None] = {}
        slower: dict[tuple[int, int, int, int], float] = {}  # Jobs of one kind share their curve: it is asked once.
        for donor, partition, donor_ends_s in self.ends.settled():
            each, slices, node = donor.job.demand.gpus, partition.slices, partition.slices[0].node
            if one_node:
                if len(slices) > 1 or node not in eligible:
                    continue  # A job that spans nodes gives up GPUs of several.
                idle = free[node]
            if not each:
                continue
            size_now, sizes = donor.size, donor.job.sizes
            for size in job.sizes:
                missing = size * each_new - idle
                if missing <= 0 or missing % each or (less := size_now - missing // each) not in sizes:
                    continue
                pair = (id(donor.beliefs.speed), donor.beliefs.reference_size, size_now, less)
                if (times := slower.get(pair)) is None:
                    times = slower[pair] = speed_ratio(donor, size_now, less)
                stop_s = donor.costs.restart_s(donor.job.warm)
                shrunk_ends_s = shrunk_s(donor_ends_s, times, now_s, wait_s, stop_s)
                others_s = max(other_s if donor.job.id == last else last_s, shrunk_ends_s)
                if self.best is not None:  # If not even the fastest place is better, where it lands does not matter.
                    ends_s = earliest_s[size] + stop_s
                    if key_of(max(others_s, ends_s), ends_s + shrunk_ends_s - donor_ends_s, missing) >= self.best[0]:
                        continue
                place: tuple[str, int] | None
                if one_node:
                    place = (kind_of[node], 1)
                elif len(slices) > 1:
                    place = self._landing(size, donor, partition, less)
                elif (where := (node, missing, size)) in landed:
                    place = landed[where]
                else:
                    place = landed[where] = self._landing(size, donor, partition, less)
                if place is not None:
                    ends_s = self.ends_s(size, *place) + stop_s
                    option = Option(size, place[0] if one_node else None, (Donor(donor, less, shrunk_ends_s),))
                    self._consider(
                        key_of(max(others_s, ends_s), ends_s + shrunk_ends_s - donor_ends_s, missing), option
                    )

    def _nodes(self) -> tuple[set[str], dict[str, int], dict[str, str]]:
        """The nodes whose GPUs the job accepts; free GPUs, and their kind, by node."""
        capacity = self.draft.capacity
        mask = capacity.layout.eligible(self.view.job)
        free, kind_of, eligible = {}, {}, set()
        for i, (node, left) in enumerate(capacity):
            free[node.id], kind_of[node.id] = left.gpus.bit_count(), node.gpu_kind
            if mask >> i & 1:
                eligible.add(node.id)
        return eligible, free, kind_of

    def _earliest_ends(self, kinds: Iterable[str]) -> dict[int, float]:
        """By size, the earliest end of the newcomer on GPUs of these kinds."""
        found = set(kinds)
        return {
            size: min((self.ends_s(size, kind, nodes) for kind in found for nodes in (1, 2)), default=self.now_s)
            for size in self.view.job.sizes
        }

    def _landing(self, size: int, donor: JobView, partition: Partition, less: int) -> tuple[str, int] | None:
        """On which kind of GPU, and how many nodes, it lands if it may span nodes; None: it does not fit."""
        draft, demand = self.draft, donor.job.demand
        if len(partition.slices) == 1:
            part, gone = partition.slices[0], demand.times(donor.size - less)
            capacity = draft.capacity.give((Slice(part.node, part.gpus[-gone.gpus :], *gone.vector[1:]),))
        else:
            saved = draft.saved()
            draft.resize(donor, less, "")
            capacity = draft.capacity
            draft.restore(saved)
        places = capacity.place(self.view.job, size)
        return None if places is None else (capacity.layout.nodes[places[0][0]].gpu_kind, len(places))

    def _try_several_donors(self) -> None:
        """Beyond the paper: with GPUs that several running jobs give up."""
        job = self.view.job
        eligible, free, kind_of = self._nodes()
        groups: dict[str, list[tuple[JobView, float]]] = {}  # where a newcomer needs one node, by node
        for donor, partition, ends_s in self.ends.settled():
            node = partition.slices[0].node
            if donor.job.demand.gpus and len(partition.slices) == 1 and node in eligible:
                groups.setdefault(node if job.max_nodes == 1 else "", []).append((donor, ends_s))
        for node, donors in groups.items():
            idle = free[node] if node else sum(free[n] for n in eligible)
            for size in job.sizes:
                missing = size * job.demand.gpus - idle
                found = together(donors, missing, self.most_donors, self.now_s, self.wait_s) if missing > 0 else None
                if not found:
                    continue
                stop_s = max(d.costs.restart_s(d.job.warm) for d, _less, _gone, _was in found)
                new_s = self.ends_s(size, kind_of.get(node, ""), 1 if node else 2, stop_s)
                others_s = self.ends.latest({d.job.id for d, *_ in found})
                last_s = max([others_s, new_s, *(gone for *_, gone, _was in found)])
                sum_s = new_s + sum(gone - was for *_, gone, was in found)
                moved = sum((d.size - less) * d.job.demand.gpus for d, less, *_ in found)
                donated = tuple(Donor(d, less, gone) for d, less, gone, _was in found)
                self._consider(self.ends.key(last_s, sum_s, moved), Option(size, kind_of.get(node), donated))

    def _carry_out(self, option: Option) -> bool:
        """Write the option into the draft; False, and nothing changed, if that cannot be."""
        draft, view = self.draft, self.view
        saved = draft.saved() if option.donors else None
        done = True
        for donor in option.donors:
            gpus = (donor.view.size - donor.size) * donor.view.job.demand.gpus
            done = done and draft.resize(donor.view, donor.size, f"shrinks: '{view.job.id}' gets {gpus} of its GPUs")
        soonest = "jobs end soonest on average" if self.ends.by_mean else "the last job ends soonest"
        why = f"starts: with this size {soonest}"
        if not (done and draft.start(replace(view, job=only_on(view.job, option.kind)), why, option.size)):
            if saved is not None:
                draft.restore(saved)
            return False
        nodes = nodes_of(draft, view)
        stop_s = max((d.view.costs.restart_s(d.view.job.warm) for d in option.donors), default=0.0)
        self.ends.change(view, self.ends_s(option.size, nodes[0].gpu_kind, len(nodes), stop_s))
        for donor in option.donors:
            self.ends.change(donor.view, donor.ends_s)
        return True
