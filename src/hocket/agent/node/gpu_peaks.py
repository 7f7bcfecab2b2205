"""The most memory that runs were seen to have on one of their GPUs, for those that plan with it when such jobs come."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from msgspec import Struct

from hocket.agent.protocol import RunKey

_MOST_ENDED = 256  # whose peak is kept: what was not delivered is asked for again


class _Seen(Struct):
    devices: set[int] = set()
    peak_mib: float = 0.0
    has_shared: bool = False  # a device with another run: the driver says what is taken on a device, not by whom
    has_ended: bool = False


class GpuPeaks:
    """By run. What was seen before this agent began is not known.

    `is_kept` says whether there still is anything of a run: one whose job is forgotten is ended without a report.
    """

    def __init__(self, is_kept: Callable[[RunKey], bool]) -> None:
        self._is_kept = is_kept
        self._runs: dict[RunKey, _Seen] = {}

    def note(self, run: RunKey, mib_by_device: Mapping[int, float]) -> None:
        """So much is taken on the devices of a run."""
        if not mib_by_device:
            return
        seen = self._runs.setdefault(run, _Seen())
        if seen.has_ended:
            return
        seen.devices |= set(mib_by_device)
        seen.peak_mib = max(seen.peak_mib, *mib_by_device.values())
        for other, its in list(self._runs.items()):
            if other == run or its.has_ended or seen.devices.isdisjoint(its.devices):
                continue
            if self._is_kept(other):
                seen.has_shared = its.has_shared = True
            else:
                del self._runs[other]

    def of_ended(self, run: RunKey) -> float:
        """The peak of a run that has ended; 0 if it is not known, or was not its own."""
        seen = self._runs.pop(run, None)
        if seen is None:
            return 0.0
        seen.has_ended = True
        self._runs[run] = seen  # behind those that ended before
        ended = [key for key, its in self._runs.items() if its.has_ended]
        for key in ended[:-_MOST_ENDED]:
            del self._runs[key]
        return 0.0 if seen.has_shared else seen.peak_mib
