"""Plays the phases of jobs that share machines: the truth that Harmony's performance model is measured against.

`interleaved`: on each machine one COMP runs at a time, in the order in which they come, and one primary COMM; a
secondary COMM uses what the primary leaves of the link, and becomes primary when that one ends. A job pulls, computes
and pushes; it goes on when all its workers have ended a phase. Since nobody who comes later delays one who came
before, the end of each phase is known when it begins.

`stacked`: nobody coordinates. All that compute share the processor equally, all that communicate the link.
"""

from __future__ import annotations

from functools import lru_cache
from heapq import heapify, heapreplace
from math import exp
from random import Random

from msgspec import Struct

LINK_BUSY = 0.9  # share of a COMM's time in which it keeps the link busy; the rest is what a secondary can use
STRAGGLERS = 0.005  # share of phases, on one machine, that take longer for no reason of their own …
STRAGGLING = 2.0  # … by this factor; none straggle in a world without noise
OBSERVED_ITERATIONS = 3  # of a job in a new place, before what was measured is reported
WARM_UP = 4  # iterations of each job before anything is measured
MEASURED = 24  # iterations of each job that are played; more change the rates by less than 1 % …
MEASURED_IN_NOISE = 160  # … or by less than 1 % on average, where phases vary
_SHORTER = 8  # times as many iterations as it should: a job a thousand times shorter than others would go on for ever
_FACTORS = 4096  # of noise, thrown once for each play


class Phases(Struct, frozen=True, gc=False):
    """One tenant's iteration without companions, on the machines that it has."""

    comp_s: float
    comm_s: float
    machines: tuple[int, ...]  # by their place in the partition
    reload_s: float = 0.0  # reading what is kept on disk, while the rest is computed on


class Played(Struct, frozen=True, gc=False):
    """What happened, by tenant and in all."""

    iteration_s: tuple[float, ...]  # mean, from one iteration's end to the next
    comp_s: tuple[float, ...]  # as the workers measured them: without waiting for their turn
    comm_s: tuple[float, ...]
    cpu: float  # shares of the machines' time
    net: float

    @property
    def round_s(self) -> float:
        """The time in which every job iterates at least once."""
        return max(self.iteration_s)


@lru_cache(maxsize=4096)
def interleave(
    tenants: tuple[Phases, ...], noise: float = 0.0, seed: int = 0, iterations: int = 0, busy: float = LINK_BUSY
) -> Played:
    """Play tenants that take turns until each has done so many iterations."""
    play = _Interleaved(tenants, noise, seed, busy)
    return play.run(iterations or (MEASURED_IN_NOISE if noise else MEASURED))


class _Interleaved:
    """Machines as queues: when the processor is free, when the disk is, and when the last two COMMs end."""

    def __init__(self, tenants: tuple[Phases, ...], noise: float, seed: int, busy: float) -> None:
        self.tenants = _alike_dropped(tenants) if not noise else tenants
        count = 1 + max(i for t in self.tenants for i in t.machines)
        self.cpu_free = [0.0] * count
        self.disk_free = [0.0] * count
        self.last = [0.0] * count  # when the link's last COMM ends, and the one before
        self.last_but_one = [0.0] * count
        self.rest = min(1.0, (1 - busy) / busy)  # speed of a secondary COMM
        self.busy = busy
        self.factors = _factors(noise, seed)
        self.thrown = 0
        self.loaded = [[0.0] * count for _ in self.tenants]  # when what a tenant needs from disk is there

    def run(self, iterations: int) -> Played:
        tenants = self.tenants
        n = len(tenants)
        done, began, ended = [0] * n, [0.0] * n, [0.0] * n
        comp, comm, comps, comms = [0.0] * n, [0.0] * n, [0] * n, [0] * n  # sums, and of how many phases
        line = [(0.0, i, 0) for i in range(n)]  # (when, tenant, its next phase)
        heapify(line)
        missing, left = n, 3 * n * _SHORTER * (WARM_UP + iterations)
        while missing and left:
            left -= 1
            at_s, i, phase = line[0]
            if phase == 1:
                end_s, took_s = self._compute(i, at_s)
                comp[i] += took_s
                comps[i] += 1
                heapreplace(line, (end_s, i, 2))
                continue
            end_s, took_s = self._communicate(i, at_s)
            comm[i] += took_s
            comms[i] += 1
            if phase == 0:
                heapreplace(line, (end_s, i, 1))
                continue
            heapreplace(line, (end_s, i, 0))
            done[i] += 1
            if done[i] == WARM_UP:
                began[i], comp[i], comm[i], comps[i], comms[i] = end_s, 0.0, 0.0, 0, 0
            elif done[i] == WARM_UP + iterations:
                missing -= 1
            ended[i] = end_s
        now_s = line[0][0]
        rounds = [
            (ended[i] - began[i]) / (done[i] - WARM_UP) if done[i] > WARM_UP else now_s / max(1, done[i])
            for i in range(n)
        ]
        comp_s = tuple(comp[i] / comps[i] if comps[i] else tenants[i].comp_s for i in range(n))
        comm_s = tuple(2 * comm[i] / comms[i] if comms[i] else tenants[i].comm_s for i in range(n))
        machines = len(self.cpu_free)
        cpu = sum(c * len(t.machines) / r for c, t, r in zip(comp_s, tenants, rounds, strict=True)) / machines
        net = sum(c * len(t.machines) / r for c, t, r in zip(comm_s, tenants, rounds, strict=True)) / machines
        return Played(tuple(rounds), comp_s, comm_s, min(1.0, cpu), min(1.0, net * self.busy))

    def _factor(self) -> float:
        if not self.factors:
            return 1.0
        self.thrown += 1
        return self.factors[self.thrown % _FACTORS]

    def _compute(self, i: int, at_s: float) -> tuple[float, float]:
        """COMP on every machine, each when its processor is free and what is on disk was read; the last end counts."""
        tenant, free = self.tenants[i], self.cpu_free
        loaded = self.loaded[i]
        end_s = took = 0.0
        for m in tenant.machines:
            takes_s = tenant.comp_s * self._factor()
            start_s = free[m] if free[m] > at_s else at_s
            done_s = start_s + takes_s
            if tenant.reload_s:
                if loaded[m] > done_s:
                    done_s = loaded[m]
                # What was used is dropped, and read again for the next time while others compute.
                self.disk_free[m] = loaded[m] = max(self.disk_free[m], done_s) + tenant.reload_s
            free[m] = done_s
            took += done_s - start_s
            if done_s > end_s:
                end_s = done_s
        return end_s, took / len(tenant.machines)

    def _communicate(self, i: int, at_s: float) -> tuple[float, float]:
        """Half a COMM on every machine: nothing while two are before it, the rest of the link beside one, then all."""
        tenant = self.tenants[i]
        end_s = took = 0.0
        for m in tenant.machines:
            work_s = tenant.comm_s / 2 * self._factor()
            last, before = self.last[m], self.last_but_one[m]
            start_s = before if before > at_s else at_s
            if last <= start_s:
                done_s = start_s + work_s
            else:
                beside_s = (last - start_s) * self.rest
                done_s = start_s + work_s / self.rest if beside_s >= work_s > 0 else last + work_s - beside_s
            if done_s >= last:
                self.last[m], self.last_but_one[m] = done_s, last
            elif done_s > before:
                self.last_but_one[m] = done_s
            took += work_s
            if done_s > end_s:
                end_s = done_s
        return end_s, took / len(tenant.machines)


def _factors(noise: float, seed: int) -> list[float]:
    """What noise does to one phase on one machine; on average nothing, but for stragglers."""
    if not noise:
        return []
    dice = Random(f"{seed}/phases")
    return [
        exp(dice.gauss(-noise * noise / 2, noise)) * (STRAGGLING if dice.random() < STRAGGLERS else 1.0)
        for _ in range(_FACTORS)
    ]


def _alike_dropped(tenants: tuple[Phases, ...]) -> tuple[Phases, ...]:
    """Without noise, machines with the same tenants do the same: one of each sort is enough."""
    sorts: dict[tuple[int, ...], int] = {}
    for machine in sorted({i for t in tenants for i in t.machines}):
        sorts.setdefault(tuple(n for n, t in enumerate(tenants) if machine in t.machines), machine)
    kept = {machine: at for at, machine in enumerate(sorts.values())}
    return tuple(
        Phases(t.comp_s, t.comm_s, tuple(kept[i] for i in t.machines if i in kept), t.reload_s) for t in tenants
    )


@lru_cache(maxsize=4096)
def stack(tenants: tuple[Phases, ...], iterations: int = MEASURED, busy: float = LINK_BUSY) -> Played:
    """Play tenants that nobody coordinates, on machines that are alike: processor and link are shared equally."""
    n = len(tenants)
    left = [t.comm_s / 2 for t in tenants]
    phase, done, began, ended = [0] * n, [0] * n, [0.0] * n, [0.0] * n
    now_s, missing = 0.0, n
    for _ in range(3 * n * _SHORTER * (WARM_UP + iterations)):
        computing = sum(1 for p in phase if p == 1)
        speeds = [1 / computing if p == 1 else min(1.0, 1 / (busy * (n - computing))) for p in phase]
        step_s = min(w / v for w, v in zip(left, speeds, strict=True))
        now_s += step_s
        for i in range(n):
            left[i] -= step_s * speeds[i]
            while left[i] <= 1e-12:
                phase[i] = (phase[i] + 1) % 3
                left[i] += tenants[i].comp_s if phase[i] == 1 else tenants[i].comm_s / 2
                if phase[i] == 0:
                    done[i] += 1
                    ended[i] = now_s
                    if done[i] == WARM_UP:
                        began[i] = now_s
                    missing -= done[i] == WARM_UP + iterations
        if not missing:
            break
    rounds = [(ended[i] - began[i]) / max(1, done[i] - WARM_UP) or 1.0 for i in range(n)]
    cpu = sum(t.comp_s / r for t, r in zip(tenants, rounds, strict=True))
    net = sum(t.comm_s / r for t, r in zip(tenants, rounds, strict=True)) * busy
    comps, comms = tuple(t.comp_s for t in tenants), tuple(t.comm_s for t in tenants)
    return Played(tuple(rounds), comps, comms, min(1.0, cpu), min(1.0, net))
