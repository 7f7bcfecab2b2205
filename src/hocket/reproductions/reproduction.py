"""The parts of a paper's evaluation: cases to run, findings and assumptions.

A reproduction states its assumptions in advance, runs its cases, each in a process of its own, and shows the paper's
figures beside ours. Nothing in it is tuned towards the paper: assumptions come from the paper or from measurements.
Papers are found through the entry-point group `hocket.reproductions`.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

from msgspec import Struct

from hocket.reports.mean_interval import MeanInterval

_NUMBER = re.compile(r"\d+(\.\d+)?")


class Request(Struct, frozen=True):
    """What a user asked for. Paths that a paper does not use are refused before anything runs."""

    seeds: tuple[int, ...]
    profiles: str | None = None  # measured throughputs
    trace: str | None = None  # arrivals and run times
    curves: str | None = None  # measured learning curves


class Case(Struct, frozen=True):
    """One run of an evaluation: plain data, for it goes to another process and into a file."""

    label: str  # the approach, as the tables name it: "dorm-1", "swarm"
    seed: int = 0
    settings: dict[str, Any] = {}  # plain JSON data: workload, parameters; paths as `profiles`, `trace`, `curves`
    rests_on: dict[str, Any] = {}  # what else its result depends on: what is in those files, how its policy is set

    @property
    def title(self) -> str:
        """As a progress bar shows it."""
        return f"{self.label} seed {self.seed}"


class Assumption(Struct, frozen=True):
    """What the paper leaves open, what we took, and where that comes from."""

    what: str
    taken: str
    source: str


class Finding(Struct, frozen=True):
    """One figure of the paper, and ours."""

    what: str
    paper: str  # as the paper says it: "2.55×", "≤ 1.5", "–" where it gives none
    ours: MeanInterval | None
    unit: str = ""  # "×", "%", "s", "ms"; of `ours`
    remark: str = ""  # why it differs, or how it was measured
    group: str = ""  # heading of a group of figures: "Figure 6, utilisation"
    bound: MeanInterval | None = None  # the most that any scheduler could reach here, where more is better

    @property
    def gap(self) -> Gap | None:
        """Why it is below the paper's figure; None if it is not, or has no bound."""
        number = self.paper.removesuffix(self.unit).strip()
        if not _NUMBER.fullmatch(number) or self.ours is None or self.bound is None:
            return None
        paper, ours = float(number), self.ours.mean
        if ours >= paper:
            return None
        reachable = max(ours, min(paper, self.bound.mean))
        return Gap(paper - reachable, reachable - ours)


class Gap(Struct, frozen=True):
    """How far we are below a figure of the paper, in its unit."""

    set_up: float  # out of reach for any scheduler, as the evaluation is set up here
    policy: float  # the rest: at most that much is the policy's, for the bound may be out of reach as well


class Findings(Struct, frozen=True):
    """All that an evaluation showed."""

    findings: tuple[Finding, ...]
    remarks: tuple[str, ...] = ()  # plain sentences: where we fall short, what differs and why


Results = Sequence[tuple[Case, Any]]  # every case with what its run gave
Progress = Callable[[int], None]


class Reproduction(Struct, frozen=True):
    """A paper's evaluation."""

    name: str
    paper: str
    summary: str
    assumptions: Callable[[Request], Sequence[Assumption]]
    cases: Callable[[Request], Sequence[Case]]  # in the order in which they are run; raises ValueError on bad input
    run: Callable[
        [Case, Progress, Progress], Any
    ]  # in a worker; reports how many steps there are, and how many are done
    result: Any  # the type of what `run` returns, which msgspec writes to a file and reads back
    findings: Callable[[Request, Results], Findings]
    draw: Callable[[Request, Results, Path], list[Path]]  # figures like the paper's, into a folder
    seeds: int = 10  # by default
    one_at_a_time: bool = False  # its cases measure time, and would disturb each other
    takes: Mapping[str, str] = {}  # of `profiles`, `trace` and `curves` those it can use, and what for


# -- which papers there are ---------------------------------------------------------------------------------

GROUP = "hocket.reproductions"
PACKAGE = "hocket_reproductions"  # the papers of this project, a distribution of their own
INSTALL = "`pip install 'hocket[reproduce]'` installs them"


class UnknownReproduction(ValueError):
    """There is no paper of that name, or no paper at all."""


def reproductions() -> dict[str, Reproduction]:
    """All papers that are installed, by name."""
    found = [_loaded(entry) for entry in entry_points(group=GROUP)] or _importable()
    return {r.name: r for r in sorted(found, key=lambda r: r.name)}


def _loaded(entry: EntryPoint) -> Reproduction:
    try:
        paper: Reproduction = entry.load()
    except Exception as error:
        raise UnknownReproduction(f"paper '{entry.name}' ({entry.value}) does not load: {error}") from error
    return paper


def _importable() -> list[Reproduction]:
    """Those of a checkout that is on the path, but not installed."""
    try:
        package = importlib.import_module(PACKAGE)
    except ModuleNotFoundError:
        return []
    names = (f"{PACKAGE}.{module.name}" for module in pkgutil.iter_modules(package.__path__))
    return [importlib.import_module(name).REPRODUCTION for name in names]


def find(name: str) -> Reproduction:
    """The paper of that name."""
    known = reproductions()
    if not known:
        raise UnknownReproduction(f"paper '{name}': no papers are installed; {INSTALL}")
    if name not in known:
        close = get_close_matches(name, known, n=1, cutoff=0.5)
        hint = f"; did you mean '{close[0]}'?" if close else f"; there are {', '.join(known)}"
        raise UnknownReproduction(f"paper '{name}' is unknown{hint}")
    return known[name]
