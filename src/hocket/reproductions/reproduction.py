"""What a paper's evaluation is made of: cases to run, what they showed, and what had to be assumed.

A reproduction says beforehand what it assumes, runs its cases, each in a process of its own, and sets the paper's
figures beside ours. Nothing in it is tuned towards the paper: assumptions come from the paper or from measurements.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from hocket.reports.spread import Spread
from hocket.reproductions.digests import digest_of_file


class Request(Struct, frozen=True):
    """What a user asked for. Paths that a paper does not use are refused before anything runs."""

    seeds: tuple[int, ...]
    profiles: str | None = None  # measured throughputs
    trace: str | None = None  # arrivals and run times


class Case(Struct, frozen=True):
    """One run of an evaluation: plain data, for it goes to another process and into a file."""

    label: str  # the approach, as the tables name it: "dorm-1", "swarm"
    seed: int = 0
    settings: dict[str, Any] = {}  # plain JSON data: workload, parameters; paths as `profiles` and `trace`
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
    ours: Spread | None
    unit: str = ""  # "×", "%", "s", "ms"; of `ours`
    remark: str = ""  # why it differs, or how it was measured
    group: str = ""  # figures under one heading stand together: "Figure 6, utilisation"


class Findings(Struct, frozen=True):
    """All that an evaluation showed."""

    findings: tuple[Finding, ...]
    remarks: tuple[str, ...] = ()  # plain sentences: where we fall short, what differs and why


Results = Sequence[tuple[Case, Any]]  # every case with what its run gave
Told = Callable[[int], None]


class Reproduction(Struct, frozen=True):
    """A paper's evaluation."""

    name: str
    paper: str
    summary: str
    assumptions: Callable[[Request], Sequence[Assumption]]
    cases: Callable[[Request], Sequence[Case]]  # in the order in which they are run; raises ValueError on bad input
    play: Callable[[Case, Told, Told], Any]  # in a worker: told how many steps there are, and how many are done
    result: Any  # the type of what `play` gives, which msgspec writes to a file and reads back
    find: Callable[[Request, Results], Findings]
    draw: Callable[[Request, Results, Path], list[Path]]  # figures like the paper's, into a folder
    seeds: int = 10  # by default
    one_at_a_time: bool = False  # its cases are measured by the clock, and disturb each other
    takes: Mapping[str, str] = {}  # of `profiles` and `trace` those it can use, and what for


def cases_of(chosen: Reproduction, request: Request) -> list[Case]:
    """The cases of an evaluation, with what is in the files that they read. Raises ValueError on bad input."""
    cases = chosen.cases(request)
    paths = {name: path for name in chosen.takes if (path := getattr(request, name)) is not None}
    digests = {name: digest_of_file(path) for name, path in paths.items()}
    return [_with_digests(case, digests) for case in cases]


def _with_digests(case: Case, digests: Mapping[str, str]) -> Case:
    read = {f"{name}_sha256": digest for name, digest in digests.items() if case.settings.get(name) is not None}
    return replace(case, rests_on=case.rests_on | read)
