"""What the kernel works on: jobs and groups as columns, and what may happen to them."""

from __future__ import annotations

from typing import Any, NamedTuple

Array = Any  # of numbers; NumPy's stubs do not reach into compiled code


class Jobs(NamedTuple):
    """What is to be grouped."""

    comp: Array  # COMP of an iteration, in machine-seconds
    comm: Array  # COMM of an iteration, in seconds
    least: Array  # machines it needs at least


class Weights(NamedTuple):
    """What the use of each resource counts, and how much longer rounds are than equation 1 has them."""

    cpu: float
    net: float
    link: float = 1.0  # share of a COMM in which it keeps the link busy: others use the rest
    price: float = 0.0  # machines that a busy link counts for; 0: as many as its group has (equation 4)
    barrier: float = 0.0  # a job waits for its slowest machine: so much longer, for each e-fold of machines


class Groups(NamedTuple):
    """Who is with whom. Groups are doubly linked lists; -1 stands for none."""

    group: Array  # by job; -1: it waits
    after: Array
    before: Array
    head: Array  # by group, from here on
    count: Array
    machines: Array
    changed: Array  # how many changes there were in all when it last changed …
    asked: Array  # … and when nobody who waits was of any use to it
    comp: Array  # sums over its jobs
    comm: Array
    value: Array
    looked_at: Array  # by pairs of groups, where these are few: changes when nothing helped them


class Side(NamedTuple):
    """One group of a pair, as it would be on so many machines."""

    group: int
    machines: int
    longest: float  # iteration, whose it is, and the longest of the others
    who: int
    next_longest: float
    fits: bool
    value: float
    slow: float  # what barriers on so many machines slow it down by


class Change(NamedTuple):
    """What may happen to a pair of groups, a and b."""

    gain: float
    kind: int  # -1: nothing
    i: int  # who leaves a, or -1
    k: int  # who leaves b, or -1
    machines: int  # of a, then
