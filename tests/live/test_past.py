"""A real controller, with real jobs, through a restart: its past by `--at`, and its metrics on a port of their own."""

import socket
from pathlib import Path
from urllib.request import urlopen

import pytest
from tests.live.controller import LiveController


@pytest.mark.slow
def test_the_past_outlives_a_kill_and_metrics_are_on_their_port(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with LiveController(tmp_path, "--gpus", "1", "--metrics-listen", str(port)) as controller:
        controller.begin()
        controller.types("submit", "--wait", "--name", "first", "--", "true")
        running = controller.call("GET", "/v1/at")["last"]
        found = controller.call("GET", "/v1/at/2")
        assert found["last"] >= running
        controller.kill()
        controller.begin()
        controller.types("submit", "--wait", "--name", "second", "--", "true")
        then = controller.types("jobs", "--at", str(running), "--all", "--json").stdout
        assert '"id":"first"' in then
        assert '"id":"second"' not in then
        now = str(controller.call("GET", "/v1/at")["last"])
        assert '"id":"second"' in controller.types("jobs", "--at", now, "--all", "--json").stdout
        with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=120) as answer:
            text = answer.read().decode()
        assert 'hocket_jobs_ended_total{verdict="finished"} 2.0' in text
        assert 'hocket_events_total{kind="JobSubmitted"} 1.0' in text  # since its start
