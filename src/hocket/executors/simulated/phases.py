"""Plays the phases of jobs that share machines: the truth that Harmony's performance model is measured against.

`interleaved`: on each machine one COMP runs at a time, in the order in which they come, and one primary COMM; a
secondary COMM uses what the primary leaves of the link, and becomes primary when that one ends. A job pulls, computes
and pushes; it goes on when all its workers have ended a phase. None that comes later delays one that came before: so it
is in Harmony's paper. Agents let short COMPs go before long ones that wait too, and COMMs that are short beside the
primary one need not give way (`Phases.short`).

`stacked`: nothing coordinates. All that compute share the processor equally, all that communicate the link.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import log, sqrt
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from hocket.executors.simulated import turns
from hocket.model.phases import Profile

LINK_BUSY = 0.9  # share of a COMM's time in which it keeps the link busy; the rest is what a secondary can use
STRAGGLERS = 0.005  # share of phases, on one machine, that take longer for no reason of their own …
STRAGGLING = 2.0  # … by this factor; none straggle in a world without noise
OBSERVED_ITERATIONS = 3  # of a job in a new place, before what was measured is reported
WARM_UP = 4  # iterations of each job before anything is measured
MEASURED = 24  # iterations of each job that are played; more change the rates by less than 1 % …
MEASURED_IN_NOISE = 160  # … or by less than 1 % on average, where phases vary
_SHORTER = 8  # times as many iterations as it should: a job a thousand times shorter than others would go on for ever
_FACTORS = 4096  # of noise, thrown once for each play
_STREAM = 0x70686173  # sets these apart from what others draw with the same seed
_OBSERVED = 3  # iterations of which an observation is the mean, at least: a single one varies more
_MOST_VARIATION = 0.4  # deviations of a phase as a share of it: what is above is a change


class Phases(Struct, frozen=True, gc=False):
    """One tenant's iteration without companions, on the machines that it has."""

    comp_s: float
    comm_s: float
    machines: tuple[int, ...]  # by their place in the partition
    reload_s: float = 0.0  # reading what is kept on disk, while the rest is computed on
    meeting_s: float = 0.0  # in an iteration: its machines go on together after each phase, with nothing held
    # Above 0: it goes by an agent's rules; its COMM gives way to no primary one of which it takes at most this share.
    short: float = 0.0
    comp_varies: float = 0.0  # deviations of a phase, as shares of it
    comm_varies: float = 0.0


class Played(Struct, frozen=True, gc=False):
    """What happened, by tenant and in all."""

    iteration_s: tuple[float, ...]  # mean, from one iteration's end to the next
    comp_s: tuple[float, ...]  # as the workers measured them: without waiting for their turn
    comm_s: tuple[float, ...]
    cpu: float  # shares of the machines' time
    net: float
    slowest: tuple[float, ...] = ()  # time of a phase on its slowest machine, over the mean

    @property
    def round_s(self) -> float:
        """The time in which every job iterates at least once."""
        return max(self.iteration_s)


@lru_cache(maxsize=4096)
def interleave(
    tenants: tuple[Phases, ...], noise: float = 0.0, seed: int = 0, iterations: int = 0, busy: float = LINK_BUSY
) -> Played:
    """Play tenants that take turns until each has done so many iterations."""
    import numpy as np

    varies = any(t.comp_varies or t.comm_varies for t in tenants)
    if not noise and not varies:
        tenants = _alike_dropped(tenants)
    iterations = iterations or (MEASURED_IN_NOISE if noise or varies else MEASURED)
    n, machines = len(tenants), 1 + max(i for t in tenants for i in t.machines)
    where = np.array([m for t in tenants for m in t.machines])
    first = np.cumsum([0, *(len(t.machines) for t in tenants)])
    comp, comm, reload, meeting, short, comp_varies, comm_varies = (
        np.array([getattr(t, of) for t in tenants], dtype=np.float64)
        for of in ("comp_s", "comm_s", "reload_s", "meeting_s", "short", "comp_varies", "comm_varies")
    )
    cpu_free, disk_free, last, before = np.zeros((4, machines))
    began, ended, comp_sum, comm_sum, slowest_sum = np.zeros((5, n))
    done, comps, comms = np.zeros((3, n), dtype=np.int64)
    now_s = turns.compiled().take_turns(
        turns.Tenants(comp, comm, reload, meeting, short, comp_varies, comm_varies, first, where),
        turns.Machines(cpu_free, disk_free, last, before, np.zeros(machines, np.int64), np.zeros(len(where))),
        turns.Noise(_factors(noise, seed), _normals(varies, seed)), min(1.0, (1 - busy) / busy), WARM_UP, iterations,
        3 * n * _SHORTER * (WARM_UP + iterations),
        turns.Tally(done, began, ended, comp_sum, comm_sum, comps, comms, slowest_sum),
    )  # fmt: skip
    rounds = np.where(done > WARM_UP, (ended - began) / np.maximum(1, done - WARM_UP), now_s / np.maximum(1, done))
    comp_s = np.where(comps > 0, comp_sum / np.maximum(1, comps), comp)
    comm_s = np.where(comms > 0, 2 * comm_sum / np.maximum(1, comms), comm)
    slowest = np.maximum(1.0, slowest_sum / np.maximum(comp_sum + comm_sum, 1e-300))
    held = np.diff(first) / machines / rounds
    cpu, net = float((comp_s * held).sum()), float((comm_s * held).sum()) * busy
    return Played(
        tuple(rounds.tolist()), tuple(comp_s.tolist()), tuple(comm_s.tolist()), min(1.0, cpu), min(1.0, net),
        tuple(slowest.tolist()),
    )  # fmt: skip


@lru_cache(maxsize=256)
def _factors(noise: float, seed: int) -> Any:
    """What noise does to one phase on one machine; on average nothing, but for stragglers."""
    import numpy as np

    if not noise:
        return np.ones(1)
    rng = np.random.default_rng([seed, _STREAM])
    straggles = np.where(rng.random(_FACTORS) < STRAGGLERS, STRAGGLING, 1.0)
    return np.exp(rng.normal(-noise * noise / 2, noise, _FACTORS)) * straggles


@lru_cache(maxsize=256)
def _normals(varies: bool, seed: int) -> Any:
    import numpy as np

    return np.random.default_rng([seed, _STREAM, 1]).normal(size=_FACTORS) if varies else np.zeros(1)


def foresee(jobs: Sequence[Profile], machines: float, short: float = 0.0) -> Played:
    """What a group of jobs is believed to do on so many machines: `predict` leaves out which phases wait for which.

    They are played on one machine. Each phase lasts as long as on the slowest, and varies as it did when it was
    observed: jobs whose phases would fit into each other's gaps wait for each other if they vary.
    """
    link = min(1.0, sum(job.link for job in jobs) / len(jobs))
    return interleave(tuple(_phases_of(job, machines, short) for job in jobs), busy=link)


def _phases_of(job: Profile, machines: float, short: float) -> Phases:
    slow = 1 + job.barrier * log(machines) if machines > 1 else 1.0
    comp_s, comm_s = job.comp_s(machines) * slow, job.comm_on(machines) * slow
    comp_varies = sqrt(_OBSERVED) * job.comp_sd / job.comp_machine_s if job.comp_machine_s > 0 else 0.0
    comm_varies = sqrt(2 * _OBSERVED) * job.comm_sd / job.comm_s if job.comm_s > 0 else 0.0  # It is two phases.
    return Phases(
        comp_s, comm_s, (0,), meeting_s=job.meeting_s, short=short,
        comp_varies=min(_MOST_VARIATION, comp_varies), comm_varies=min(_MOST_VARIATION, comm_varies),
    )  # fmt: skip


def _slowest(tenant: Phases, noise: float, seed: int) -> Phases:
    factors, m = _factors(noise, seed), len(tenant.machines)
    rows = len(factors) // m
    slow = float(factors[: rows * m].reshape(rows, m).max(axis=1).mean()) if rows else float(factors.max())
    return replace(tenant, comp_s=tenant.comp_s * slow, comm_s=tenant.comm_s * slow)


def _alike_dropped(tenants: tuple[Phases, ...]) -> tuple[Phases, ...]:
    """Without noise, machines with the same tenants do the same: one of each sort is enough."""
    if all(t.machines == tenants[0].machines for t in tenants):
        return tuple(replace(t, machines=(0,)) for t in tenants)
    sorts: dict[tuple[int, ...], int] = {}
    for machine in sorted({i for t in tenants for i in t.machines}):
        sorts.setdefault(tuple(n for n, t in enumerate(tenants) if machine in t.machines), machine)
    kept = {machine: at for at, machine in enumerate(sorts.values())}
    return tuple(replace(t, machines=tuple(kept[i] for i in t.machines if i in kept)) for t in tenants)


@lru_cache(maxsize=4096)
def stack(
    tenants: tuple[Phases, ...], noise: float = 0.0, seed: int = 0, iterations: int = MEASURED, busy: float = LINK_BUSY
) -> Played:
    """Play tenants that are not coordinated, on machines that are alike: processor and link are shared equally.

    Of what noise does, only that a phase waits for its slowest machine is played, as if that was always so slow.
    """
    n, alone = len(tenants), tenants
    tenants = tuple(_slowest(t, noise, seed) for t in tenants) if noise else tenants
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
    cpu = sum(t.comp_s / r for t, r in zip(alone, rounds, strict=True))
    net = sum(t.comm_s / r for t, r in zip(alone, rounds, strict=True)) * busy
    comps, comms = tuple(t.comp_s for t in alone), tuple(t.comm_s for t in alone)
    return Played(tuple(rounds), comps, comms, min(1.0, cpu), min(1.0, net))
