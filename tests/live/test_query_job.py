"""A query as a job of a real controller: resized in its process, paused, resumed, and asked for its answer."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.live.controller import LiveController, awaited
from tests.live.paced_data import PACED, SOLD, write_paced_data
from tests.live.processes import Found, below, stands_still

pytest.importorskip("duckdb", reason="DuckDB is not installed: pip install 'hocket[query]'")

QUICK = "SELECT shop, count(*) AS n FROM sold GROUP BY shop ORDER BY shop"


@pytest.fixture
def controller(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LiveController]:
    write_paced_data(tmp_path)
    monkeypatch.setenv("HOCKET_POLICIES", str(Path(__file__).parent / "policies"))
    with LiveController(
        tmp_path, "--policy", "seesaw", "--param", "every_s=0.5", "--param", "grows_once=true"
    ) as found:
        found.begin()
        yield found
        found.down(grace_s=0.0)


def shown(controller: LiveController, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(controller.types("show", name, "--json").stdout)
    return found


def printed(controller: LiveController, name: str) -> str:
    return str(controller.types("logs", name).stdout)


def process(controller: LiveController, kind: str) -> Found:
    (found,) = [f for f in below(controller.root) if f.kind == kind]
    return found


@pytest.mark.slow
def test_a_query_is_resized_in_place_paused_resumed_and_asked_for_its_answer(controller: LiveController) -> None:
    data = str(controller.root / "data.duckdb")
    controller.types("submit", "--query", PACED, "--data", data, "--threads", "1,2", "--mem", "500M", "-n", "slow")
    awaited(lambda: "batch 1:" in printed(controller, "slow"), "the first batch")
    awaited(lambda: "goes on with 2 threads" in printed(controller, "slow"), "another size")
    assert shown(controller, "slow")["attempts"] == 1
    assert "resized" in str(controller.types("why", "slow").stdout)
    assert "thread" in str(controller.types("jobs").stdout)

    before = json.loads(controller.types("answer", "slow", "--json").stdout)
    assert 0 < before["fraction"] < 1
    controller.types("pause", "slow")
    awaited(lambda: shown(controller, "slow")["kept"].startswith("in memory"), "its process is suspended")
    assert "held, in memory (" in str(controller.types("jobs").stdout)
    assert "held, in memory (" in str(controller.types("show", "slow").stdout)
    assert "its process is suspended, with" in str(controller.types("why", "slow").stdout)
    suspended = process(controller, "training")
    assert stands_still(suspended.pid)
    controller.kill()
    process(controller, "agent").kill()
    controller.begin()
    assert shown(controller, "slow")["kept"].startswith("in memory")
    controller.types("resume", "slow")
    awaited(lambda: shown(controller, "slow")["state"] == "running", "it goes on")
    assert process(controller, "training") == suspended
    assert not stands_still(suspended.pid)
    assert shown(controller, "slow")["attempts"] == 1

    controller.types("pause", "slow")
    awaited(lambda: shown(controller, "slow")["kept"].startswith("in memory"), "its process is suspended again")
    (node,) = controller.call("GET", "/v1/nodes")["nodes"]
    large = f"{int(node['mem_mib']) - 20}M"  # Less than the state of the suspended query is left.
    controller.types("submit", "--query", QUICK, "--data", data, "--mem", large, "-n", "large", "--wait")
    assert shown(controller, "slow")["kept"] == "on disk"  # It made room.
    assert "leaves: its state is on disk" in printed(controller, "slow")
    told = re.findall("batch [0-9]+:", printed(controller, "slow"))
    assert len(set(told)) == len(told)  # No batch is done twice.
    controller.types("resume", "slow")
    awaited(lambda: shown(controller, "slow")["attempts"] > 1, "it goes on from there")
    awaited(lambda: printed(controller, "slow").count(told[-1]) == 2, "what was known is said again")
    assert printed(controller, "slow").count(told[0]) == 1 + (len(told) == 1)
    controller.types("stop", "slow")
    awaited(lambda: shown(controller, "slow")["state"] == "stopped", "it is over")
    after = json.loads(controller.types("answer", "slow", "--json").stdout)
    assert after["fraction"] >= before["fraction"]

    controller.types("submit", "--query", QUICK, "--data", data, "-n", "quick", "--wait")
    (quick,) = controller.types("answer", "-f", "quick", "--json").stdout.splitlines()
    assert json.loads(quick)["rows"] == [[shop, SOLD] for shop in range(3)]
    refused = controller.types("submit", "--query", QUICK, "--data", "/no/such/folder", "-n", "lost", "--wait", code=1)
    assert "refused" in refused.stdout + refused.stderr
    assert "no such file or folder" in printed(controller, "lost")
    assert shown(controller, "lost")["attempts"] == 1
    said = controller.types("answer", "lost", code=2).stderr
    assert "job 'lost' has no answer yet; it is failed" in said
