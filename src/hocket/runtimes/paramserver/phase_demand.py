"""What counts of the time of a phase: what it would have taken without work that was in its way for a moment."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median

_clock_s = time.perf_counter
_LAST = 20  # phases that are compared
_COMP_SHARE = 4  # of the last COMPs, the fastest in so many counts
_COMM_AT_MOST = 2.0  # times the median of the last


class CommDemand:
    """What it took all hosts, but for single COMMs that took much longer than those of about as many bytes.

    What else runs on the hosts makes COMMs longer too, and does so for as long as a group lasts: the fastest of the
    last would take a quarter less than most do.
    """

    def __init__(self) -> None:
        self._s_per_byte: dict[int, deque[float]] = {}  # by the bytes' number of bits: small ones mostly wait

    def needed_s(self, moved_bytes: int, took_s: float) -> float:
        """What counts of the time of one that moved so many bytes."""
        if not moved_bytes:
            return took_s
        seen = self._s_per_byte.setdefault(moved_bytes.bit_length(), deque(maxlen=_LAST))
        seen.append(took_s / moved_bytes)
        return min(took_s, moved_bytes * _COMM_AT_MOST * median(seen))


@dataclass
class MeasuredComp:
    """One COMP, in seconds."""

    took_s: float = 0.0
    needed_s: float = 0.0  # what it would have taken alone


class CompDemand:
    """By the processor time of a COMP, and by how much longer the faster ones of the last took.

    The token keeps other COMPs away, but not what else runs on a host: jobs that start, COMMs. A fixed share of
    processors, or waiting for the disk, makes all COMPs longer than their processor time.
    """

    def __init__(self) -> None:
        self._s_per_cpu_s: deque[float] = deque(maxlen=_LAST)

    @contextmanager
    def measure(self) -> Iterator[MeasuredComp]:
        """The COMP that is done in this context; no other thread of the process has much to do meanwhile."""
        measured, began_s, cpu_began_s = MeasuredComp(), _clock_s(), time.process_time()
        yield measured
        measured.took_s = _clock_s() - began_s
        measured.needed_s = self.needed_s(time.process_time() - cpu_began_s, measured.took_s)

    def needed_s(self, cpu_s: float, took_s: float) -> float:
        """The time that one which used so much processor time and took so long would take alone."""
        if cpu_s <= 0.0:
            return took_s
        self._s_per_cpu_s.append(took_s / cpu_s)
        return min(took_s, cpu_s * sorted(self._s_per_cpu_s)[len(self._s_per_cpu_s) // _COMP_SHARE])
