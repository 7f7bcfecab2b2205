"""The hot part of playing phases that take turns: one flat function over arrays, turned into machine code by numba.

Machines are queues: when the processor is free, when the disk is, and when the last two COMMs end. None that comes
later delays one that came before, so the end of each phase is known when it begins. There are two exceptions, for
tenants under an agent's rules (`Tenants.short`): a short COMM does not give way, and what the primary's tenant does
next is then put off, which nothing else has waited for yet; and a short COMP may overtake long ones that wait too.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

Array = Any  # of numbers; NumPy's stubs do not reach into compiled code
_LEAST_FACTOR = 0.3  # of a phase that varies
_LEAST_S = 1e-6
_LAST_COMMS = 9  # of which the median is what is usual


class Tenants(NamedTuple):
    """The tenants that take turns, as columns; the machines of tenant i are `where[first[i]:first[i + 1]]`."""

    comp_s: Array
    comm_s: Array
    reload_s: Array
    meeting_s: Array  # in an iteration
    short: Array  # share of the primary COMM's time up to which its own need not give way; 0: first come, first served
    comp_varies: Array  # deviations of a phase, as shares of it
    comm_varies: Array
    first: Array
    where: Array


class Machines(NamedTuple):
    """When each is free for what comes next."""

    cpu_free_s: Array
    disk_free_s: Array
    last_s: Array  # when the link's last COMM ends …
    before_s: Array  # … and the one before
    last_of: Array  # the tenant of the last
    loaded_s: Array  # by tenant and machine, as in `where`: when what it needs from disk is there


class Noise(NamedTuple):
    """What single phases on single machines draw, one after the other."""

    factors: Array  # of all tenants
    normals: Array  # deviations, for tenants that vary


class Tally(NamedTuple):
    """What is counted while they do, by tenant."""

    done: Array  # iterations
    began_s: Array  # when the warm-up was over
    ended_s: Array  # when the last iteration ended
    comp_s: Array  # sums of what workers measured after the warm-up, and of how many phases
    comm_s: Array
    comps: Array
    comms: Array
    slowest_s: Array  # sums of what the slowest machine of each phase took, waiting apart


@lru_cache(maxsize=1)
def compiled() -> Any:
    """The functions below as machine code, as attributes of this module; kept on disk."""
    import sys

    from numba import njit

    module = sys.modules[__name__]
    for name in ("_varied", "_median", "_first_comp", "_compute", "_communicate", "take_turns"):  # Callees first.
        setattr(module, name, njit(cache=True, nogil=True)(getattr(module, name)))
    return module


def _varied(mean_s: float, varies: float, noise: Noise, thrown: int) -> float:
    factor: float = max(_LEAST_FACTOR, 1.0 + varies * noise.normals[thrown % len(noise.normals)])
    lasts_s: float = factor * mean_s * noise.factors[thrown % len(noise.factors)]
    return lasts_s


def _median(values: Array) -> float:
    """Of an odd number."""
    for value in values:
        below = at_most = 0
        for other in values:
            below += other < value
            at_most += other <= value
        if below <= len(values) // 2 < at_most:
            return float(value)
    return 0.0


def _first_comp(i: int, t: Tenants, phase: Array, next_s: Array, asked_s: Array) -> int:
    """Of the COMPs that wait for the same processor as tenant i's: as `PhaseTokenRules` has it."""
    first, most = i, -1.0
    for j in range(len(phase)):
        if phase[j] == 1 and next_s[j] <= next_s[i] and t.where[t.first[j]] == t.where[t.first[i]]:
            waited_s = next_s[i] - asked_s[j] if asked_s[j] >= 0 else 0.0
            urgency = waited_s / max(_LEAST_S, t.comp_s[j])
            if urgency > most:
                first, most = j, urgency
    return first


def _compute(
    i: int, at_s: float, t: Tenants, on: Machines, noise: Noise, thrown: int
) -> tuple[float, float, float, int]:
    """COMP on every machine, each when its processor is free and what is on disk was read; the last end counts."""
    end_s = took_s = slowest_s = 0.0
    low, high = t.first[i], t.first[i + 1]
    for place in range(low, high):
        m = t.where[place]
        thrown += 1
        start_s = max(on.cpu_free_s[m], at_s)
        done_s = start_s + _varied(t.comp_s[i], t.comp_varies[i], noise, thrown)
        if t.reload_s[i] > 0:
            done_s = max(done_s, on.loaded_s[place])
            # What was used is dropped, and read again for the next time while others compute.
            on.disk_free_s[m] = max(on.disk_free_s[m], done_s) + t.reload_s[i]
            on.loaded_s[place] = on.disk_free_s[m]
        on.cpu_free_s[m] = done_s
        took_s += done_s - start_s
        slowest_s = max(slowest_s, done_s - start_s)
        end_s = max(end_s, done_s)
    return end_s, took_s / (high - low), slowest_s, thrown


def _communicate(
    i: int,
    at_s: float,
    t: Tenants,
    on: Machines,
    rest: float,
    noise: Noise,
    thrown: int,
    next_s: Array,
    lasted_s: Array,
) -> tuple[float, float, float, int]:
    """PULL or PUSH on every machine: at most two at a time, the later one with what the earlier leaves.

    One that is short shares the link with the earlier one alike, whose tenant's next phase begins so much later.
    """
    fair = min(1.0, (1.0 + rest) / 2.0)
    end_s = took_s = slowest_s = held_s = 0.0
    low, high = t.first[i], t.first[i + 1]
    for place in range(low, high):
        m = t.where[place]
        thrown += 1
        work_s = _varied(t.comm_s[i] / 2, t.comm_varies[i], noise, thrown)
        last_s, before_s = on.last_s[m], on.before_s[m]
        start_s = max(before_s, at_s)
        primary = on.last_of[m]
        since_s = start_s  # It gives no way from then on.
        if last_s <= start_s:
            done_s = start_s + work_s
        elif t.short[i] > 0 and _median(lasted_s[i]) <= t.short[i] * _median(lasted_s[primary]):
            both_s = min(work_s, last_s - start_s)
            done_s = start_s + both_s / fair + work_s - both_s
            last_s += both_s / fair - both_s
            on.last_s[m] = last_s
            next_s[primary] = max(next_s[primary], last_s + t.meeting_s[primary] / 3)
            lasted_s[primary, -1] += both_s / fair - both_s
        else:
            since_s = last_s
            beside_s = (last_s - start_s) * rest
            done_s = start_s + work_s / rest if beside_s >= work_s > 0 else last_s + work_s - beside_s
        if done_s >= last_s:
            on.last_s[m], on.before_s[m], on.last_of[m] = done_s, last_s, i
        elif done_s > before_s:
            on.before_s[m] = done_s
        took_s += work_s
        slowest_s = max(slowest_s, work_s)
        end_s, held_s = max(end_s, done_s), max(held_s, done_s - since_s)
    if t.short[i] > 0:
        lasted_s[i, :-1] = lasted_s[i, 1:].copy()
        lasted_s[i, -1] = held_s
    return end_s, took_s / (high - low), slowest_s, thrown


def take_turns(
    t: Tenants, on: Machines, noise: Noise, rest: float, warm_up: int, iterations: int, phases: int, tally: Tally
) -> float:
    """Play until each has done so many iterations after the warm-up, or so many phases in all; when that is."""
    n = len(t.comp_s)
    next_s, phase = t.comp_s * 0.0, tally.done * 0  # of each tenant, its next phase and when it may begin
    asked_s = t.comp_s * 0.0 - 1.0  # since when its COMP waits
    lasted_s = (t.comm_s / 2).repeat(_LAST_COMMS).reshape(n, _LAST_COMMS)  # its last COMMs, from when they gave no way
    missing, thrown = n, 0
    for _ in range(phases):
        i = next_s.argmin()
        if phase[i] == 1 and t.short[i] > 0:
            free_s = on.cpu_free_s[t.where[t.first[i]]]
            if free_s > next_s[i]:  # It waits, and is compared with others then.
                if asked_s[i] < 0:
                    asked_s[i] = next_s[i]
                next_s[i] = free_s
                continue
            i = _first_comp(i, t, phase, next_s, asked_s)
            asked_s[i] = -1.0
        if phase[i] == 1:
            end_s, took_s, slowest_s, thrown = _compute(i, next_s[i], t, on, noise, thrown)
            tally.comp_s[i] += took_s
            tally.comps[i] += 1
        else:
            end_s, took_s, slowest_s, thrown = _communicate(i, next_s[i], t, on, rest, noise, thrown, next_s, lasted_s)
            tally.comm_s[i] += took_s
            tally.comms[i] += 1
        tally.slowest_s[i] += slowest_s
        if phase[i] == 2:
            tally.done[i] += 1
            tally.ended_s[i] = end_s
            if tally.done[i] == warm_up:
                tally.began_s[i] = end_s
                tally.comp_s[i] = tally.comm_s[i] = tally.slowest_s[i] = 0.0
                tally.comps[i] = tally.comms[i] = 0
            elif tally.done[i] == warm_up + iterations:
                missing -= 1
        phase[i] = (phase[i] + 1) % 3
        next_s[i] = end_s + t.meeting_s[i] / 3
        if missing == 0:
            break
    first_s: float = next_s.min()
    return first_s
