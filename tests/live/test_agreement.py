"""The simulated and the live executor do the same: five scenarios with real processes, each simulated again."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pytest
from msgspec.structs import replace
from tests.live.agreement import TIE_S, Agreement, Entry, Figures, Story, compared, report, simulated, told
from tests.live.agreement_scenarios import SCENARIOS, run_live
from tests.live.pulse import BUSY_S, Pulse

from hocket.control.journal import open_to_read
from hocket.model.event import JobSubmitted
from hocket.model.job import Job

_LARGEST_S, _MEDIAN_S = 1.5, 0.5  # the band; between two events of one run there are some 2 s
_ATTEMPTS = 3
_HAPPENS = {"preemption": "pause", "resize": "resize", "crash": "crash", "node loss": "lost", "long queue": "end"}


class Ran(NamedTuple):
    """A live run."""

    journal: Path
    slowest_s: float  # beat of the machine's pulse meanwhile


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Ran]:
    """All at the same time, each in a folder of its own: their jobs mostly sleep."""
    roots = {name: tmp_path_factory.mktemp(name.replace(" ", "-")) for name in SCENARIOS}
    with Pulse(tmp_path_factory.mktemp("pulse")) as pulse, ThreadPoolExecutor(len(SCENARIOS)) as pool:
        found = list(pool.map(run_live, SCENARIOS.values(), roots.values()))
    return {name: Ran(journal, pulse.slowest_s) for name, journal in zip(SCENARIOS, found, strict=True)}


@pytest.fixture
def journals(runs: dict[str, Ran]) -> dict[str, Path]:
    return {name: ran.journal for name, ran in runs.items()}


def attempts(name: str, first: Ran, folders: pytest.TempPathFactory) -> Iterator[Ran]:
    """The run that was made together with others, and more of it alone."""
    yield first
    for _ in range(_ATTEMPTS - 1):
        root = folders.mktemp(name.replace(" ", "-"))
        with Pulse(root) as pulse:
            journal = run_live(SCENARIOS[name], root)
        yield Ran(journal, pulse.slowest_s)


def wrongs_in(name: str, journal_path: Path) -> list[str]:
    """What is wrong between a live run and the same one simulated; with a page to read if anything is."""
    journal = open_to_read(journal_path)
    header, live = journal.header, told(journal.header, journal)
    journal.close()
    assert len(live.submitted) >= 8
    assert sum(entry.what == "end" for entry in live.entries) == len(live.submitted)
    figures = Figures.of(live)
    works = {arrival.job: arrival.work for arrival in SCENARIOS[name].arrivals}
    found = compared(live, simulated(header, live, figures, works))
    said = report(name, header, live, figures, found)
    print(f"\n{said}\n")
    wrongs = list(found.wrongs)
    if not any(entry.what == _HAPPENS[name] for entry in live.entries):
        wrongs.append(f"there is no {_HAPPENS[name]}")
    if found.largest_s > _LARGEST_S or found.median_s > _MEDIAN_S:
        wrongs.append(f"times differ by {found.largest_s:.2f} s, the median is {found.median_s:.2f} s")
    return [*wrongs, said] if wrongs else []


@pytest.mark.slow
@pytest.mark.parametrize("name", SCENARIOS)
def test_the_simulator_does_what_the_live_run_did(
    name: str, runs: dict[str, Ran], tmp_path_factory: pytest.TempPathFactory
) -> None:
    for ran in attempts(name, runs[name], tmp_path_factory):
        wrongs = wrongs_in(name, ran.journal)
        if not wrongs:
            return
        assert ran.slowest_s > BUSY_S, "\n".join(wrongs)
    pytest.skip(f"the machine is too busy for its times to say anything: a small process took {ran.slowest_s:.2f} s")


@pytest.mark.slow
def test_another_parameter_would_be_noticed(journals: dict[str, Path]) -> None:
    journal = open_to_read(journals["preemption"])
    header, live = journal.header, told(journal.header, journal)
    journal.close()
    works = {arrival.job: arrival.work for arrival in SCENARIOS["preemption"].arrivals}
    other = replace(header, params={"levels_gpu_s": [9.0]})
    assert compared(live, simulated(other, live, Figures.of(live), works)).wrongs


@pytest.mark.slow
def test_jobs_that_lose_more_in_a_crash_would_be_noticed(journals: dict[str, Path]) -> None:
    journal = open_to_read(journals["crash"])
    header, live = journal.header, told(journal.header, journal)
    journal.close()
    works = {arrival.job: arrival.work._replace(saves=False) for arrival in SCENARIOS["crash"].arrivals}
    assert compared(live, simulated(header, live, Figures.of(live), works)).wrongs


def _agreement(live: list[Entry], again: list[Entry]) -> Agreement:
    submitted = [JobSubmitted(0.0, Job(job)) for job in sorted({e.job for e in live})]
    return compared(*(Story(entries, submitted, {}, {}, [], [], []) for entries in (live, again)))


def test_a_tie_may_come_in_either_order_and_nothing_else() -> None:
    live = [Entry(0.0, "a", "start", 1), Entry(TIE_S / 2, "b", "start", 1), Entry(5.0, "a", "end", 1)]
    swapped = [Entry(TIE_S / 2, "a", "start", 1), Entry(0.0, "b", "start", 1), Entry(5.0, "a", "end", 1)]
    assert not _agreement(live, swapped).wrongs
    late = [Entry(0.0, "a", "start", 1), Entry(6.0, "b", "start", 1), Entry(5.0, "a", "end", 1)]
    (wrong,) = _agreement(live, late).wrongs
    assert "'b start at size 1'" in wrong
    assert _agreement(live, late).largest_s == 6.0 - TIE_S / 2


def test_another_size_and_what_is_missing_are_seen() -> None:
    live = [Entry(0.0, "a", "start", 1), Entry(5.0, "a", "end", 1)]
    assert _agreement(live, [Entry(0.0, "a", "start", 2), Entry(5.0, "a", "end", 2)]).wrongs
    assert _agreement(live, live[:1]).wrongs
    assert _agreement(live[:1], live).wrongs
