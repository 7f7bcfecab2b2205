"""The simulated and the live executor do the same: five scenarios with real processes, each simulated again."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.live.agreement import TIE_S, Agreement, Entry, Figures, Story, compared, report, simulated, told
from tests.live.agreement_scenarios import SCENARIOS, run_live

from hocket.control.journal import open_to_read
from hocket.model.event import JobSubmitted
from hocket.model.job import Job

_LARGEST_S, _MEDIAN_S = 1.5, 0.5  # the band; between two events of one run there are some 2 s
_HAPPENS = {"preemption": "pause", "resize": "resize", "crash": "crash", "node loss": "lost", "long queue": "end"}


@pytest.fixture(scope="module")
def journals(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """All at the same time, each in a folder of its own: their jobs mostly sleep."""
    roots = {name: tmp_path_factory.mktemp(name.replace(" ", "-")) for name in SCENARIOS}
    with ThreadPoolExecutor(len(SCENARIOS)) as pool:
        return dict(zip(SCENARIOS, pool.map(run_live, SCENARIOS.values(), roots.values()), strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("name", SCENARIOS)
def test_the_simulator_does_what_the_live_run_did(name: str, journals: dict[str, Path]) -> None:
    journal = open_to_read(journals[name])
    header, live = journal.header, told(journal.header, journal)
    journal.close()
    figures = Figures.of(live)
    works = {arrival.job: arrival.work for arrival in SCENARIOS[name].arrivals}
    found = compared(live, simulated(header, live, figures, works))
    said = report(name, header, live, figures, found)
    print(f"\n{said}\n")
    assert len(live.submitted) >= 8
    assert any(entry.what == _HAPPENS[name] for entry in live.entries)
    assert sum(entry.what == "end" for entry in live.entries) == len(live.submitted)
    assert not found.wrongs, said
    assert found.largest_s <= _LARGEST_S, said
    assert found.median_s <= _MEDIAN_S, said


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
