"""The inner loop of Algorithm 1: deal jobs to groups, allot machines, and improve both by local search.

Jobs and groups are flat arrays. numba compiles these functions when they are first needed, and caches that on disk.

A group's value is its machines times its utilisation (equations 1 and 3), so the cluster's utilisation is the sum of
values over machines; where links have a price of their own, it is the work that gets done in a second.
"""

from __future__ import annotations

from functools import lru_cache
from math import log
from typing import Any, NamedTuple

from hocket.model.phases import LEAST_COMM

_KEEP, _SWAP, _OVER, _BACK, _DROP_A, _DROP_B = 0, 1, 2, 3, 4, 5  # what may happen to a pair of groups
_ALL_SPLITS = 12  # machines of a pair up to which every split is tried
_PAIRS = 96  # of jobs that are tried for a swap between two groups
_BAND = 16  # groups among which jobs of similar iterations are dealt
_SATISFIED = 0.99999  # utilisation at which a group looks for no partner
_CLOSE = 0.999  # share of what two groups are worth at most; where there are many, those are left as they are
_BETTER = 1e-9  # less is rounding
_CALLEES_FIRST = (
    "_slowed", "_sent", "_worth", "value_of", "_link", "_unlink", "_longest_two", "_group_value", "_largest", "_side",
    "_most", "_leaving", "_swapping", "_pair", "_apply", "_allot", "_deal", "_transfer", "_exchange", "climb",
    "_give_up", "group_jobs",
)  # fmt: skip
_INLINED = ("_side", "_leaving", "_swapping")  # A call would cost more than what they do.

Array = Any  # of numbers; NumPy's stubs do not reach into compiled code


class Jobs(NamedTuple):
    """The jobs to be grouped."""

    comp: Array  # COMP of an iteration, in machine-seconds
    comm: Array  # COMM of an iteration on very many machines, in seconds
    least: Array  # machines it needs at least


class ResourceWeights(NamedTuple):
    """What the use of each resource counts, and how much longer rounds are than equation 1 has them."""

    cpu: float
    net: float
    link: float = 1.0  # share of a COMM in which it keeps the link busy: others use the rest
    price: float = 0.0  # machines that a busy link counts for; 0: as many as its group has (equation 4)
    barrier: float = 0.0  # a job waits for its slowest machine: so much longer, for each e-fold of machines
    own_part: float = 0.0  # on m machines COMM takes 1 − own_part/m of what it would on very many


class Groups(NamedTuple):
    """The groups, as doubly linked lists of jobs; -1 stands for none."""

    group: Array  # by job; -1: it waits
    after: Array
    before: Array
    head: Array  # by group, from here on
    count: Array
    machines: Array
    changed: Array  # how many changes there were in all when it last changed …
    asked: Array  # … and when no waiting job was of use to it
    comp: Array  # sums over its jobs
    comm: Array
    value: Array
    looked_at: Array  # by pairs of groups, where these are few: changes when nothing helped them


class PairSide(NamedTuple):
    """One group of a pair, as it would be on so many machines."""

    group: int
    machines: int
    longest: float  # iteration, the job that has it, and the longest of the others
    longest_job: int
    next_longest: float
    fits: bool
    value: float
    slow: float  # what barriers on so many machines slow it down by
    sent: float  # what COMM takes on so many, as a share of what it would on very many


class PairChange(NamedTuple):
    """What may happen to a pair of groups, a and b."""

    gain: float
    kind: int  # -1: nothing
    i: int  # the job that leaves a, or -1
    k: int  # the job that leaves b, or -1
    machines: int  # of a, then


@lru_cache(maxsize=1)
def compiled() -> Any:
    """The functions below as machine code, as attributes of this module."""
    import sys

    from numba import njit

    module = sys.modules[__name__]
    for name in _CALLEES_FIRST:  # Each finds the compiled ones under their own names.
        compiles = njit(cache=True, nogil=True, error_model="numpy", inline="always" if name in _INLINED else "never")
        setattr(module, name, compiles(getattr(module, name)))
    return module


def value_of(sc: float, sn: float, longest: float, m: float, w: ResourceWeights) -> float:
    """Machines times utilisation of a group with these sums of COMP and COMM and this longest iteration."""
    return _worth(sc, sn, longest, m, _slowed(m, w), _sent(m, w), w)


def _slowed(m: float, w: ResourceWeights) -> float:
    """How much longer the slowest of so many machines takes than one."""
    return 1.0 + w.barrier * log(m) if w.barrier > 0.0 else 1.0


def _sent(m: float, w: ResourceWeights) -> float:
    """`sent_share` of `model/phases.py`, compiled."""
    return max(LEAST_COMM, 1.0 - w.own_part / m)


def _worth(sc: float, sn: float, longest: float, m: float, slow: float, sent: float, w: ResourceWeights) -> float:
    """The value of a group on so many machines, where what these change is known already.

    Work is counted as on very many machines: COMM that fewer do not need is as good as done.
    """
    t = sc / m
    if w.link * sn * sent > t:
        t = w.link * sn * sent
    longest *= slow
    if longest > t:
        t = longest
    if t <= 0.0:
        return 0.0
    return (w.cpu * sc + w.net * (w.price if w.price > 0.0 else m) * w.link * sn) / t


def _link(j: int, g: int, jobs: Jobs, s: Groups) -> None:
    first = s.head[g]
    s.after[j] = first
    s.before[j] = -1
    if first >= 0:
        s.before[first] = j
    s.head[g] = j
    s.group[j] = g
    s.count[g] += 1
    s.comp[g] += jobs.comp[j]
    s.comm[g] += jobs.comm[j]


def _unlink(j: int, jobs: Jobs, s: Groups) -> None:
    g = s.group[j]
    if s.before[j] >= 0:
        s.after[s.before[j]] = s.after[j]
    else:
        s.head[g] = s.after[j]
    if s.after[j] >= 0:
        s.before[s.after[j]] = s.before[j]
    s.group[j] = -1
    s.count[g] -= 1
    s.comp[g] -= jobs.comp[j]
    s.comm[g] -= jobs.comm[j]


def _longest_two(g: int, m: float, sent: float, jobs: Jobs, s: Groups) -> tuple[float, int, float]:
    """The longest iteration in a group, the job that has it, and the longest of the others."""
    one, longest_job, two = 0.0, -1, 0.0
    j = s.head[g]
    while j >= 0:
        t = jobs.comp[j] / m + jobs.comm[j] * sent
        if t > one:
            two = one
            one = t
            longest_job = j
        elif t > two:
            two = t
        j = s.after[j]
    return one, longest_job, two


def _group_value(g: int, m: int, jobs: Jobs, s: Groups, w: ResourceWeights) -> float:
    sc, sn, longest, sent = 0.0, 0.0, 0.0, _sent(m, w)
    j = s.head[g]
    while j >= 0:
        if jobs.least[j] > m:
            return 0.0
        sc += jobs.comp[j]
        sn += jobs.comm[j]
        t = jobs.comp[j] / m + jobs.comm[j] * sent
        if t > longest:
            longest = t
        j = s.after[j]
    return value_of(sc, sn, longest, m, w)


def _side(g: int, m: int, need: int, jobs: Jobs, s: Groups, w: ResourceWeights) -> PairSide:
    """A group as it would be on so many machines."""
    slow, sent = _slowed(m, w), _sent(m, w)
    longest, longest_job, next_longest = _longest_two(g, m, sent, jobs, s)
    fits = need <= m  # careful: a leaver with the largest need would loosen it
    value = _worth(s.comp[g], s.comm[g], longest, m, slow, sent, w) if fits else 0.0
    return PairSide(g, m, longest, longest_job, next_longest, fits, value, slow, sent)


def _largest(g: int, jobs: Jobs, s: Groups) -> tuple[float, float, int]:
    """The most COMP, COMM and machines that any job of a group needs."""
    comp, comm, least = 0.0, 0.0, 1
    j = s.head[g]
    while j >= 0:
        comp, comm, least = max(comp, jobs.comp[j]), max(comm, jobs.comm[j]), max(least, jobs.least[j])
        j = s.after[j]
    return comp, comm, least


def _most(
    one: PairSide, out: tuple[float, float, int], new: tuple[float, float, int], s: Groups, w: ResourceWeights
) -> float:
    """What a group on so many machines is worth at most, when one leaves it or one comes, or both."""
    m, comp, comm = one.machines, s.comp[one.group], s.comm[one.group]
    links = w.price / one.sent if w.price > 0.0 else m  # of work as on very many machines, a busy one does more
    t = max((comp - out[0]) / m, w.link * (comm - out[1]) * one.sent, one.next_longest * one.slow)
    if t <= 0.0:
        return w.cpu * m + w.net * links
    use = min(1.0, w.link * (comm + new[1]) * one.sent / t)
    most: float = w.cpu * min(m, (comp + new[0]) / t) + w.net * links * use
    return most


def _leaving(
    one: PairSide, other: PairSide, drop: int, over: int, now: float, best: PairChange, jobs: Jobs, s: Groups,
    w: ResourceWeights, drops: bool,
) -> PairChange:  # fmt: skip
    """The best of the changes in which one job leaves a group, for nowhere or for the other group."""
    g, h, m = one.group, other.group, one.machines
    if s.count[g] < 2:
        return best
    ma = m if drop == _DROP_A else other.machines
    i = s.head[g]
    while i >= 0:
        rest = one.next_longest if i == one.longest_job else one.longest
        left = 0.0
        if one.fits:
            left = _worth(s.comp[g] - jobs.comp[i], s.comm[g] - jobs.comm[i], rest, m, one.slow, one.sent, w)
        a, b = (i, -1) if drop == _DROP_A else (-1, i)
        if drops and left + other.value - now > best.gain - _BETTER / 2:  # as good with fewer jobs is better
            best = PairChange(left + other.value - now + _BETTER, drop, a, b, ma)
        if other.fits and jobs.least[i] <= other.machines:
            longest = max(other.longest, jobs.comp[i] / other.machines + jobs.comm[i] * other.sent)
            comp, comm = s.comp[h] + jobs.comp[i], s.comm[h] + jobs.comm[i]
            joined = _worth(comp, comm, longest, other.machines, other.slow, other.sent, w)
            if left + joined - now > best.gain:
                best = PairChange(left + joined - now, over, a, b, ma)
        i = s.after[i]
    return best


def _swapping(
    one: PairSide,
    other: PairSide,
    stride: int,
    now: float,
    best: PairChange,
    jobs: Jobs,
    s: Groups,
    w: ResourceWeights,
) -> PairChange:
    """The best swap of two jobs; of large groups only every so manieth is looked at."""
    if not (one.fits and other.fits):
        return best
    a, b, ma, mb = one.group, other.group, one.machines, other.machines
    # Nothing is busier than all the time.
    most_b = w.cpu * mb + w.net * (w.price / other.sent if w.price > 0.0 else mb) + _BETTER
    i = s.head[a]
    at = 0
    while i >= 0:
        if at % stride == 0 and jobs.least[i] <= mb:
            rest_a = one.next_longest if i == one.longest_job else one.longest
            there = jobs.comp[i] / mb + jobs.comm[i] * other.sent
            k = s.head[b]
            bt = 0
            while k >= 0:
                if bt % stride == 0 and jobs.least[k] <= ma:
                    rest_b = other.next_longest if k == other.longest_job else other.longest
                    comp, comm = jobs.comp[k] - jobs.comp[i], jobs.comm[k] - jobs.comm[i]
                    longest = max(rest_a, jobs.comp[k] / ma + jobs.comm[k] * one.sent)
                    gain = _worth(s.comp[a] + comp, s.comm[a] + comm, longest, ma, one.slow, one.sent, w) - now
                    if gain + most_b > best.gain:
                        longest = max(rest_b, there)
                        gain += _worth(s.comp[b] - comp, s.comm[b] - comm, longest, mb, other.slow, other.sent, w)
                        if gain > best.gain:
                            best = PairChange(gain, _SWAP, i, k, ma)
                bt += 1
                k = s.after[k]
        at += 1
        i = s.after[i]
    return best


def _pair(a: int, b: int, jobs: Jobs, s: Groups, w: ResourceWeights, drops: bool) -> PairChange:
    """The best change to two groups and their machines."""
    total = s.machines[a] + s.machines[b]
    now = s.value[a] + s.value[b]
    best = PairChange(_BETTER, -1, -1, -1, s.machines[a])
    if not drops and w.price > 0.0 and now >= _CLOSE * (w.cpu * total + 2.0 * w.net * w.price / _sent(1.0, w)):
        return best
    if total <= _ALL_SPLITS:
        low, high = 1, total - 1
    else:
        low, high = max(1, s.machines[a] - 1), min(total - 1, s.machines[a] + 1)
    stride = 1
    while (s.count[a] // stride + 1) * (s.count[b] // stride + 1) > 2 * _PAIRS:
        stride += 1
    in_a, in_b = _largest(a, jobs, s), _largest(b, jobs, s)
    for split in range(low - 1, high + 1):  # first as it is, for that is often best, and what is worse need no look
        ma = split if split >= low else s.machines[a]
        if split == s.machines[a]:
            continue
        one, other = _side(a, ma, in_a[2], jobs, s, w), _side(b, total - ma, in_b[2], jobs, s, w)
        if _most(one, in_a, in_b, s, w) + _most(other, in_b, in_a, s, w) + _BETTER <= now + best.gain:
            continue  # No change can make this split better than the best so far.
        if ma != s.machines[a] and one.value + other.value - now > best.gain:
            best = PairChange(one.value + other.value - now, _KEEP, -1, -1, ma)
        best = _leaving(one, other, _DROP_A, _OVER, now, best, jobs, s, w, drops)
        best = _swapping(one, other, stride, now, best, jobs, s, w)
        best = _leaving(other, one, _DROP_B, _BACK, now, best, jobs, s, w, drops)
    if s.count[a] == 1:  # Its only job may join the other, which then has the machines of both.
        i = s.head[a]
        sent = _sent(total, w)
        longest, _job, _two = _longest_two(b, total, sent, jobs, s)
        longest = max(longest, jobs.comp[i] / total + jobs.comm[i] * sent)
        gain = value_of(s.comp[b] + jobs.comp[i], s.comm[b] + jobs.comm[i], longest, total, w) - now
        if max(jobs.least[i], in_b[2]) <= total and gain > best.gain:
            best = PairChange(gain, _OVER, i, -1, 0)
    return best


def _apply(a: int, b: int, change: PairChange, jobs: Jobs, s: Groups, w: ResourceWeights) -> None:
    total = s.machines[a] + s.machines[b]
    i, k, kind = change.i, change.k, change.kind
    if i >= 0:
        _unlink(i, jobs, s)
    if k >= 0:
        _unlink(k, jobs, s)
    if i >= 0 and kind != _DROP_A:
        _link(i, b, jobs, s)
    if k >= 0 and kind != _DROP_B:
        _link(k, a, jobs, s)
    s.machines[a] = change.machines
    s.machines[b] = total - change.machines
    s.value[a] = _group_value(a, s.machines[a], jobs, s, w) if s.machines[a] else 0.0
    s.value[b] = _group_value(b, s.machines[b], jobs, s, w)


def _deal(jobs: Jobs, order: Array, groups: int, machines: int, band: int, s: Groups) -> None:
    """Jobs of similar iterations stand together (`order` sorts them); in each band, those that need most of one
    resource go to groups that have most of the other."""
    n = len(order)
    share = machines / groups
    lean = jobs.comp[order] / share - jobs.comm[order]
    at = 0
    for first in range(0, groups, band):
        last = min(groups, first + band)
        end = n * last // groups
        inside = order[at:end]
        # The most one-sided first: they are hardest to balance.
        turn = (lean[at:end] ** 2).argsort()[::-1]
        most = (end - at + (last - first) - 1) // (last - first)
        for position in turn:
            j = inside[position]
            d = lean[at + position]
            best, best_at = 0.0, -1
            for g in range(first, last):
                if s.count[g] >= most:
                    continue
                here = s.comp[g] / share - s.comm[g]
                # What it leaves unbalanced, and an empty group before a balanced one.
                cost = abs(here + d) - abs(here) + 1e-6 * s.count[g] * abs(d)
                if best_at < 0 or cost < best:
                    best, best_at = cost, g
            _link(j, best_at, jobs, s)
        at = end


def _allot(groups: int, machines: int, jobs: Jobs, s: Groups, w: ResourceWeights) -> bool:
    """Machines by where COMP and COMM balance, as whole numbers; False if the groups need more than there are."""
    need = 0
    ideal = s.comp[:groups] * 0.0
    all_comp = max(s.comp[:groups].sum(), 1e-300)
    for g in range(groups):
        s.machines[g] = _largest(g, jobs, s)[2]
        need += s.machines[g]
        # A group with next to no COMM would take all; it is capped at twice its share of all COMP.
        ideal[g] = 2.0 * machines * s.comp[g] / all_comp
        if s.comm[g] > 0 and s.comp[g] / s.comm[g] + w.own_part < ideal[g]:
            ideal[g] = s.comp[g] / s.comm[g] + w.own_part
    if need > machines:
        return False
    left = machines - need
    # What is missing to the ideal is filled in proportion; what is then left over goes round.
    missing = 0.0
    for g in range(groups):
        missing += max(0.0, ideal[g] - s.machines[g])
    scale = min(1.0, left / missing) if missing > 0 else 0.0
    rest = ideal * 0.0
    for g in range(groups):
        more = max(0.0, ideal[g] - s.machines[g]) * scale
        whole = int(more)
        s.machines[g] += whole
        left -= whole
        rest[g] = more - whole
    turn = rest.argsort()[::-1]
    at = 0
    while left > 0:
        s.machines[turn[at % groups]] += 1
        at += 1
        left -= 1
    return True


def _transfer(groups: int, sweeps: int, jobs: Jobs, s: Groups, w: ResourceWeights) -> None:
    """Single machines go from where they are missed least to where they help most; all pairs of one sweep at once."""
    loss = s.value[:groups] * 0.0
    gain = s.value[:groups] * 0.0
    for _ in range(sweeps):
        for g in range(groups):
            loss[g] = 1e30
            if s.machines[g] > 1:
                loss[g] = s.value[g] - _group_value(g, s.machines[g] - 1, jobs, s, w)
            gain[g] = _group_value(g, s.machines[g] + 1, jobs, s, w) - s.value[g]
        givers, takers = loss.argsort(), gain.argsort()[::-1]
        moved = False
        g = t = 0
        while g < groups and t < groups:
            giver, taker = givers[g], takers[t]
            if gain[taker] - loss[giver] <= _BETTER:
                break
            if giver == taker:
                g += 1
                continue
            s.machines[giver] -= 1
            s.machines[taker] += 1
            loss[taker] = 1e30  # It changed: its numbers hold no more in this sweep.
            gain[giver] = -1e30
            for x in (giver, taker):
                s.value[x] = _group_value(x, s.machines[x], jobs, s, w)
            moved = True
            g += 1
            t += 1
            while g < groups and loss[givers[g]] >= 1e29:
                g += 1
            while t < groups and gain[takers[t]] <= -1e29:
                t += 1
        if not moved:
            return


def _exchange(g: int, jobs: Jobs, s: Groups, w: ResourceWeights) -> bool:
    """Make the best change of a group with waiting jobs: one leaves, one joins, or both; False if none helps."""
    m = s.machines[g]
    slow, sent = _slowed(m, w), _sent(m, w)
    one, longest_job, two = _longest_two(g, m, sent, jobs, s)
    best, goes, comes = _BETTER, -1, -1
    cramped = 0  # jobs that need more machines than the group has
    i = s.head[g]
    while i >= 0:
        cramped += jobs.least[i] > m
        i = s.after[i]
    i = s.head[g]
    leaver = -1  # first none, then each job in turn
    while True:
        comp, comm, rest = s.comp[g], s.comm[g], one
        if cramped - (leaver >= 0 and jobs.least[leaver] > m) > 0:
            if i < 0:
                break
            leaver = i
            i = s.after[i]
            continue
        if leaver >= 0:
            comp, comm, rest = comp - jobs.comp[leaver], comm - jobs.comm[leaver], two if leaver == longest_job else one
            if s.count[g] > 1:
                gain = _worth(comp, comm, rest, m, slow, sent, w) - s.value[g]
                if gain > best - _BETTER * 1.5:  # as good with fewer jobs is better
                    best, goes, comes = gain + _BETTER, leaver, -1
        for j in range(len(jobs.comp)):
            if s.group[j] < 0 and jobs.least[j] <= m:
                longest = max(rest, jobs.comp[j] / m + jobs.comm[j] * sent)
                gain = _worth(comp + jobs.comp[j], comm + jobs.comm[j], longest, m, slow, sent, w) - s.value[g]
                if gain > best:
                    best, goes, comes = gain, leaver, j
        if i < 0:
            break
        leaver = i
        i = s.after[i]
    if goes < 0 and comes < 0:
        return False
    if goes >= 0:
        _unlink(goes, jobs, s)
    if comes >= 0:
        _link(comes, g, jobs, s)
    s.value[g] = _group_value(g, m, jobs, s, w)
    return True


def climb(
    groups: int,
    rounds: int,
    near: int,
    enough: float,
    jobs: Jobs,
    s: Groups,
    w: ResourceWeights,
    drops: bool,
) -> None:
    """Change pairs of groups for the better: each with `near` others, for so many rounds, or until it is enough.

    Changes are counted, so that nothing is looked at again where nothing has changed since.
    """
    drawn = 12345  # by a linear congruential generator
    total = s.value[:groups].sum()
    changes = 0
    queue_changed = 0  # the number of changes when a job last joined or left those that wait
    thorough = near >= groups - 1
    for r in range(rounds):
        changed = False
        for a in range(groups):
            if total >= enough:
                return
            if not s.machines[a] or (w.price == 0.0 and s.value[a] > _SATISFIED * s.machines[a]):
                continue
            for step in range(1, min(near, groups - 1) + 1):
                if thorough:
                    b = (a + step) % groups
                else:  # Some beside it, whose iterations are alike, and some anywhere.
                    drawn = (drawn * 1103515245 + 12345) % 2147483648
                    if step % 2:
                        b = (a + 1 + (r * near + step) // 2) % groups
                    else:
                        b = (a + 1 + drawn % (groups - 1)) % groups
                if b == a or not s.machines[b] or not s.machines[a]:
                    continue
                if thorough and s.looked_at[a * groups + b] >= max(s.changed[a], s.changed[b]):
                    continue
                found = _pair(a, b, jobs, s, w, drops)
                if found.kind >= 0:
                    _apply(a, b, found, jobs, s, w)
                    total += found.gain
                    changed = True
                    changes += 1
                    s.changed[a] = s.changed[b] = changes
                    if found.kind == _DROP_A or found.kind == _DROP_B:
                        queue_changed = changes
                elif thorough:
                    s.looked_at[a * groups + b] = changes
                    if s.count[b] > 1:  # Unless one has a single job, (a, b) and (b, a) are alike.
                        s.looked_at[b * groups + a] = changes
        if drops:
            for g in range(groups):
                if s.asked[g] >= max(s.changed[g], queue_changed):
                    continue
                for _ in range(len(jobs.comp)):
                    if not s.machines[g] or not _exchange(g, jobs, s, w):
                        s.asked[g] = changes
                        break
                    changed = True
                    changes += 1
                    s.changed[g] = queue_changed = changes
        if not changed:
            return


def _give_up(groups: int, jobs: Jobs, s: Groups, w: ResourceWeights) -> None:
    """Groups give up machines without which they get as much done: then there is less to send."""
    for g in range(groups):
        while s.machines[g] > 1:
            value = _group_value(g, s.machines[g] - 1, jobs, s, w)
            if value < s.value[g]:
                break
            s.machines[g] -= 1
            s.value[g] = value


def group_jobs(
    jobs: Jobs, order: Array, groups: int, machines: int, rounds: int, near: int, enough: float, drops: bool,
    s: Groups, w: ResourceWeights,
) -> float:  # fmt: skip
    """Group the jobs of `order` into so many groups on so many machines; the sum of values, or -1 if they cannot."""
    s.group[:] = -1
    s.head[:] = -1
    s.count[:] = 0
    s.machines[:] = 0
    s.comp[:] = 0.0
    s.comm[:] = 0.0
    s.value[:] = 0.0
    s.changed[:] = 0
    s.asked[:] = -1
    s.looked_at[:] = -1
    _deal(jobs, order, groups, machines, _BAND, s)
    if not _allot(groups, machines, jobs, s, w):
        return -1.0
    for g in range(groups):
        s.value[g] = _group_value(g, s.machines[g], jobs, s, w)
    _transfer(groups, 4, jobs, s, w)
    climb(groups, rounds, near, enough, jobs, s, w, drops)
    if w.own_part > 0.0:
        _give_up(groups, jobs, s, w)
    total: float = s.value[:groups].sum()
    return total
