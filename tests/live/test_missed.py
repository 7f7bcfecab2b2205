"""A program that ends before its criterion is met has missed it: with a real controller, agent and script."""

import sys
from collections.abc import Iterator
from typing import Any

import pytest
from tests.live.controller import LiveController, awaited, running

TRAIN = """
import os, sys, time
go, *values = sys.argv[1:]
while go and not os.path.exists(go):
    time.sleep(0.02)
for epoch, value in enumerate(values, 1):
    print(f"epoch {epoch}/{len(values)} val_acc={value}", flush=True)
"""
REASON = "val_acc >= 99.99% was not met when its process ended after epoch 3: val_acc was 0.998"


@pytest.fixture(scope="module")
def controller(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveController]:
    root = tmp_path_factory.mktemp("missed")
    (root / "train.py").write_text(TRAIN)
    with running(root, "--gpus", "2", "--policy", "fifo") as found:
        yield found


def hocket(controller: LiveController, *args: str, code: int = 0) -> Any:
    return controller.types(*args, code=code)


def train(controller: LiveController, name: str, *values: str, go: str = "", code: int = 0, **options: str) -> Any:
    """Submit a script that reports these values, once the file `go` is there; with `code`, wait for its end."""
    said = [word for option, value in options.items() for word in (f"--{option.replace('_', '-')}", value)]
    wait = ["--wait"] if code else []
    script = (sys.executable, str(controller.root / "train.py"), go, *values)
    return hocket(controller, "submit", "-n", name, "--gpus", "1", *said, *wait, "--", *script, code=code)


def over(controller: LiveController, *names: str) -> dict[str, str]:
    """Their states, once all are over."""
    awaited(lambda: all(controller.jobs()[name]["ended_s"] is not None for name in names), f"{names} over")
    there = controller.jobs()
    return {name: there[name]["state"] for name in names}


@pytest.mark.slow
def test_a_program_that_ends_before_its_criterion_is_met_has_missed_it(controller: LiveController) -> None:
    go = controller.root / "go"
    train(controller, "net", "0.5", "0.8", "0.998", until="val_acc >= 99.99%", go=str(go))
    train(controller, "report", after="net")
    train(controller, "clean-up", after_any="net")
    go.touch()
    ends = over(controller, "net", "report", "clean-up")
    assert ends == {"net": "missed", "report": "stopped", "clean-up": "finished"}

    listed = {line.split()[0]: line for line in hocket(controller, "jobs", "--all").stdout.splitlines()}
    assert listed["net"].split()[2] == "missed"
    assert REASON in listed["net"]
    assert "which missed its criterion" in listed["report"]
    shown = hocket(controller, "show", "net").stdout
    assert "missed" in shown.splitlines()[0]
    assert REASON in shown
    assert "100%" not in shown
    assert REASON in hocket(controller, "why", "net").stdout
    assert "it was to start after 'net', which missed its criterion" in hocket(controller, "why", "report").stdout

    refused = train(controller, "late", "1", after="net", code=2)
    assert "after names 'net', which has ended: missed" in refused.stderr
    train(controller, "later", after_any="net")
    assert over(controller, "later") == {"later": "finished"}

    # What the journal says survives: the states and reasons are the same after a kill.
    before = controller.jobs()
    controller.kill()
    controller.begin()
    assert {n: (r["state"], r["reason"]) for n, r in controller.jobs().items()} == {
        n: (r["state"], r["reason"]) for n, r in before.items()
    }


@pytest.mark.slow
def test_waiting_for_a_missed_criterion_has_an_exit_code_of_its_own(controller: LiveController) -> None:
    waited = train(controller, "waited", "0.5", "0.8", "0.998", until="val_acc >= 99.99%", code=5)
    assert waited.stderr == f"waited missed: {REASON}\n"
    never = train(controller, "typo", "0.5", until="acuracy >= 50%", code=5)
    assert never.stderr.endswith("ended after epoch 1: acuracy was never reported\n")
    train(controller, "met", "0.5", "1.0", until="val_acc >= 99.99%")
    train(controller, "still", "0.5", "0.501", until="val_acc changes < 0.01")
    train(controller, "moves", "0.5", "0.8", until="val_acc changes < 0.01")
    train(controller, "timed", "0.5", until="for 2h")
    assert over(controller, "met", "still", "moves", "timed") == {
        "met": "attained",
        "still": "attained",
        "moves": "missed",
        "timed": "finished",
    }
