"""What is simulated: the real Philly table where it is at hand, else a generated trace that resembles it."""

from __future__ import annotations

import os
from pathlib import Path

from msgspec import Struct

from benchmarks.machine import ROOT

PHILLY = Path("philly") / "philly_jobs.csv.gz"
# Arrivals 5 s apart load 160x8 to about 91 % and 309x8 to about 47 %, as the real table does.
GENERATED = "poisson?jobs={jobs}&gap=5.05&owners=15"


class Trace(Struct, frozen=True):
    """A trace that can be taken whole or in part."""

    spec: str  # with {jobs} for a number of jobs, or the whole
    part: str
    jobs: int
    shown: str  # as a reader can type it
    is_real: bool = True

    def first(self, jobs: int) -> str:
        """The spec of its first jobs."""
        return self.part.format(jobs=jobs)


def trace(quick: bool) -> Trace:
    """The trace to measure on."""
    path = Path(os.environ.get("HOCKET_DATA") or ROOT.parent / "shared" / "data") / PHILLY
    if path.is_file():
        spec, shown = f"philly:{path}", f"philly:$HOCKET_DATA/{PHILLY.as_posix()}"
        part = "?first={jobs}"
        if quick:
            return Trace(f"{spec}?first=2000", spec + part, 2000, f"{shown}?first=2000")
        return Trace(spec, spec + part, 111_549, shown)
    jobs = 2000 if quick else 100_000
    spec = GENERATED.format(jobs=jobs)
    return Trace(spec, GENERATED, jobs, spec, is_real=False)
