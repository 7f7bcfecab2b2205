"""Windows of a home's own history: the jobs of its journal as they came, with the work that they turned out to have.

What a job's work was is rebuilt as `hocket whatif` does it. The last quarter of the jobs is kept for validation.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from random import Random

from msgspec.structs import replace

from hocket.control.journal.history import first_cycle, open_history
from hocket.learn.windows import Window
from hocket.reports.account import account
from hocket.reports.opening_cycles import begun_controller, opening_cycles
from hocket.reports.sound_journal import sound_cycles
from hocket.reports.whatif import rebuild
from hocket.workloads.errors import WorkloadError
from hocket.workloads.truth import Workload

JOURNAL = "journal"  # the kind of such a window
WINDOW_JOBS = 60
LEAST_JOBS = 20  # of a journal
_VALIDATION = 0.25
_TRAINS, _VALIDATES = 0, 1  # as a window's `week`


@lru_cache(maxsize=2)
def recorded_workload(path: str) -> Workload:
    """The jobs of a journal, to be run again, with its nodes."""
    kept = open_history(Path(path))
    try:
        begun = begun_controller(kept)
        opening = opening_cycles(begun) if begun is not None else []
        cycles = list(sound_cycles(path, kept, first_cycle(kept)))
        found = rebuild(account(kept.header, [*opening, *cycles]), cycles, begun).workload
    finally:
        kept.close()
    if len(found.submissions) < LEAST_JOBS:
        few = len(found.submissions)
        raise WorkloadError(f"journal '{Path(path).name}': must have {LEAST_JOBS} jobs to learn from, and has {few}")
    # Owners' quotas hold; what was set later, and nodes that were lost, belong to a moment that a window may not have.
    return replace(found, faults=(), changes=())


def history_windows(path: str, seed: int, generation: int, count: int, validate: bool = False) -> list[Window]:
    """Windows of one generation, or of the part that is kept for validation."""
    of = _VALIDATES if validate else _TRAINS
    drawn = [Random(f"learn/history/{seed}/{generation}/{n}").randrange(1 << 30) for n in range(count)]
    return [
        Window(f"{generation}/{n}", own, WINDOW_JOBS, 0, 1.0, path, JOURNAL, week=of, beliefs="learned")
        for n, own in enumerate(drawn)
    ]


def history_workload(window: Window) -> Workload:
    """As many jobs in a row as the window has, from a random moment."""
    whole = recorded_workload(window.trace)
    cut = round(len(whole.submissions) * (1 - _VALIDATION))
    part = whole.submissions[cut:] if window.week == _VALIDATES else whole.submissions[:cut]
    first = Random(f"{window.seed}/window").randrange(max(1, len(part) - window.jobs + 1))
    chosen = part[first : first + window.jobs]
    begin_s = chosen[0].at_s
    return replace(whole, submissions=tuple(replace(s, at_s=round(s.at_s - begin_s, 3)) for s in chosen))
