"""How fast each job goes where it is, beside those that are there too."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

from hocket.executors.simulated.phases import Played
from hocket.executors.simulated.simulated_job import SimulatedJob
from hocket.executors.simulated.speed import (
    Companion,
    overflows,
    own_speed,
    play,
    rate_of,
    shared_speed,
    takes_turns,
)
from hocket.executors.simulated.task_graph import Iteration, Seat, link_mbps
from hocket.model.partition import Partition
from hocket.model.resources import Node
from hocket.model.snapshot import demand_of


class Rates:
    """Which jobs share a partition, and what that makes of their speed."""

    def __init__(self, nodes: Iterable[Node], seed: int, noise: float) -> None:
        self.sharers: dict[str, dict[str, SimulatedJob]] = {}  # partition shared by several → "job/task" → its job
        self._nodes = {n.id: n for n in nodes}
        self._kinds = {n.id: n.gpu_kind for n in nodes}
        self._seed = seed
        self._noise = noise

    def of(self, run: SimulatedJob, now_s: float, changed: str = "") -> float:
        """How fast it goes. Of a job of several tasks, those in a partition that changed are looked at anew."""
        if run.job.tasks is None:
            stands_still = run.pending or run.saving is not None or not run.tenancies
            return 0.0 if stands_still else self._of_tenant(run, "")
        if run.iteration is None:
            run.iteration = Iteration.of(run.job.tasks, run.truth, now_s, run.done_s)
        seats: dict[str, Seat] = {}
        for task, (holding, partition) in run.tenancies.items():
            if task not in run.pending and run.saving is None:
                known = run.iteration.known(task, holding) if partition.id != changed else None
                seats[task] = known or self._seat(run, task)
        rate, run.done_s = run.iteration.change(now_s, run.done_s, seats)
        return rate

    def played(self, run: SimulatedJob, partition: Partition) -> tuple[list[SimulatedJob], Played]:
        """Which jobs share the partition, and how their phases go."""
        sharers = self.sharers.get(partition.id) or {"": run}
        jobs = [other for other in sharers.values() if "" in other.tenancies]
        seed = Random(f"{self._seed}/{partition.id}").randrange(1 << 30) if self._noise else 0
        return jobs, play([other.companion(self._kinds) for other in jobs], partition.sharing, self._noise, seed)

    def overflows(self, partition: Partition) -> bool:
        """Do those that share it need more memory than their machines have?"""
        return overflows([r.companion(self._kinds) for r in self.sharers[partition.id].values()], partition.sharing)

    def _seat(self, run: SimulatedJob, task: str) -> Seat:
        holding, partition = run.tenancies[task]
        part, sharers = holding.slices[0], self.sharers.get(partition.id, {})
        asked = sum(demand_of(other.job, name.partition("/")[2]).net_mbps for name, other in sharers.items())
        mbps = link_mbps(demand_of(run.job, task), part, self._nodes[part.node], asked)
        return Seat(part.node, self._of_tenant(run, task), mbps, holding)

    def _of_tenant(self, run: SimulatedJob, task: str) -> float:
        holding, partition = run.tenancies[task]
        if not task and takes_turns(partition.sharing, run.truth):
            players, played = self.played(run, partition)
            return rate_of(run.truth, played.iteration_s[players.index(run)])
        own = run.noise * (1.0 if task else own_speed(run.truth, holding, self._kinds[holding.slices[0].node]))
        sharers = self.sharers.get(partition.id) if self.sharers else None
        if sharers is None or len(sharers) < 2:
            return own
        tenants: list[tuple[Companion, float]] = []
        me = 0
        for name, other in sharers.items():
            if name == f"{run.job.id}/{task}":
                me = len(tenants)
            one = other.companion(self._kinds, name.partition("/")[2])
            tenants.append((one, own_speed(one.truth, one.holding, one.kind) if other.job.tasks is None else 1.0))
        return own * shared_speed(me, tenants, partition.sharing, len(holding.slices[0].gpus))
