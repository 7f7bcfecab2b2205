"""A run as data for the page: what it shows is what the journal says."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from itertools import pairwise
from typing import Any

import pytest

from hocket.cli.simulation.scenario import Scenario, staged
from hocket.control.journal import MemoryJournal
from hocket.reports.simulation import run_simulation
from hocket.service import recorded_run as module
from hocket.service.history_fold import HistoryFold
from hocket.service.page_export import one_script, page_with
from hocket.service.page_files import page_files
from hocket.service.recorded_run import recorded_run


@pytest.fixture(scope="module")
def journal() -> MemoryJournal:
    setup = staged(Scenario("demo", "las"))
    found = MemoryJournal(setup.header)
    run_simulation(setup, found)
    return found


@pytest.fixture(scope="module")
def run(journal: MemoryJournal) -> dict[str, Any]:
    return json.loads(json.dumps(recorded_run(journal), default=str))


def states(run: dict[str, Any]) -> Any:
    """What recording.js makes of each decision: its number, live jobs with state and GPUs, and what is over."""
    texts, live, over = run["past"]["texts"], {}, defaultdict(int)
    for step in run["past"]["steps"]:
        for job, state, *more in step["rows"]:
            name = run["jobs"][job]["id"]
            if more:
                live[name] = texts[state], [texts[gpu] for gpu in (more[1] if len(more) > 1 else [])]
            else:
                live.pop(name, None)
                over[texts[state]] += 1
        yield step, dict(live), dict(over)


def test_every_decision_is_as_the_past_of_a_controller_shows_it(run: dict[str, Any], journal: MemoryJournal) -> None:
    fold = HistoryFold(journal.header, "demo")
    reached = 0
    for step, live, over in states(run):
        for number, cycle in enumerate(journal.cycles[reached : step["n"]], reached + 1):
            fold.fold(number, cycle)
        reached = step["n"]
        snapshot = fold.controller.snapshot
        assert live == {
            view.id: (module.rows.live_state(view), module.rows.held_gpus(view)) for view in snapshot.jobs.values()
        }
        assert over == dict(fold.catalogue.over)
        waiting = [job_id for _rank, _number, job_id in snapshot.waiting]
        assert [run["jobs"][job]["id"] for job in step["queue"]] == waiting[:20]
        assert step["more"] == max(0, len(waiting) - 20)
    assert len(run["past"]["steps"]) > 80
    assert sum(bucket["decisions"] for bucket in run["past"]["buckets"]) == len(run["past"]["steps"])
    assert sum(bucket["cycles"] for bucket in run["past"]["buckets"]) == len(journal.cycles)


def test_only_what_changed_is_told(run: dict[str, Any]) -> None:
    last: dict[int, list[Any]] = {}
    for n, step in enumerate(run["past"]["steps"]):
        assert n == 0 or step["changes"] or step.get("refused"), "a decision that changes nothing is none"
        for job, *standing in step["rows"]:
            assert last.get(job) != standing
            last[job] = standing


def test_no_gpu_is_held_by_two_jobs_that_run_alone(run: dict[str, Any]) -> None:
    held = defaultdict(list)
    for job in run["jobs"]:
        for attempt in job["attempt_list"]:
            for gpu in attempt["gpus"]:
                held[gpu].append((attempt["started_s"], attempt["ended_s"], job["id"]))
    for gpu, spans in held.items():
        spans.sort()
        for (_from_s, until_s, first), (from_s, _until_s, second) in pairwise(spans):
            assert until_s <= from_s, f"{gpu}: {first} and {second}"


def test_of_many_decisions_the_last_are_kept_and_lead_to_the_same(
    run: dict[str, Any], journal: MemoryJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_DECISIONS", 10)
    few = recorded_run(journal)
    assert len(few["past"]["steps"]) == 10
    whole = list(states(run))
    short = [(step["n"], live) for step, live, _over in states(few)]
    assert short == [(step["n"], live) for step, live, _over in whole[-10:]]


def test_the_page_is_one_file_and_fetches_nothing(run: dict[str, Any]) -> None:
    page = page_with(run | {"title": "</script><script>alert(1)</script>"})
    assert page.count("</script>") == 3, "theme, data and page"
    assert not re.search(r"\b(?:src|href)=\"(?!data:|#)", page)
    assert "alert(1)" not in page
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)[1]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy


def test_modules_that_a_script_cannot_have_are_refused() -> None:
    files = {name: file.body.decode() for name, file in page_files().items()}
    modules = {name for name in files if name.endswith(".js")} - {"theme.js"}
    assert {f"{name}.js" for name in re.findall(r"^const from_(\w+) = \(\(\)", one_script(files), re.M)} == modules
    for wrong in ('import * as x from "./dom.js";', "export default 3;", '"</script>"'):
        with pytest.raises(ValueError, match=r"text\.js must have no"):
            one_script(files | {"text.js": f"{files['text.js']}\n{wrong}\n"})
    with pytest.raises(ValueError, match="must not import itself"):
        one_script(files | {"text.js": f'import {{ h }} from "./dom.js";\n{files["text.js"]}'})
