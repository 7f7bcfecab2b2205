"""What is loaded when: each sidecar, and each training script that reports, pays for it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SRC = str(Path(__file__).parents[4] / "src")
HEAVY = {
    "typing",
    "dataclasses",
    "asyncio",
    "inspect",
    "numpy",
    "msgspec",
    "subprocess",
    "tempfile",
    "socket",
    "logging",
    "threading",
}


def loaded_by(program: str) -> set[str]:
    """The modules of an interpreter that loads nothing else, not even `site`."""
    begin, end = f"import sys; sys.path.insert(0, {SRC!r})\n", "\nprint('\\n'.join(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", begin + program + end],
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    return set(done.stdout.split())


def test_importing_hocket_loads_nothing() -> None:
    assert {name for name in loaded_by("import hocket") if name.startswith("hocket")} == {"hocket"}


def test_reporting_loads_little() -> None:
    loaded = loaded_by("import hocket; hocket.report(epoch=1, acc=0.5)")
    assert {name for name in loaded if name.startswith("hocket.agent.")} == {
        "hocket.agent.progress",
        "hocket.agent.progress.metrics",
        "hocket.agent.progress.report",
    }
    assert not loaded & (HEAVY | {"re", "json"})


CONFIGS: tuple[dict[str, Any], ...] = (
    {},
    {"patterns": [r"(?P<epoch>\d+)"]},
    {"kind": "json"},
    {"kind": "csv", "file": "x"},
    {"kind": "tensorboard", "folder": "x"},
    {"kind": "report"},
)


@pytest.mark.parametrize("config", CONFIGS)
def test_a_reader_loads_nothing_heavy(config: dict[str, Any]) -> None:
    loaded = loaded_by(
        "from hocket.agent.progress import open_reader\n"
        f"reader = open_reader({config!r}, '/', '')\n"
        "reader.feed(b'epoch 1 acc=0.5\\n'); reader.poll(); reader.close()"
    )
    assert not loaded & HEAVY
    assert ("json" in loaded) == (config.get("kind") == "json")
    assert ("csv" in loaded) == (config.get("kind") == "csv")
    assert "hocket.agent.progress.config" not in loaded


def test_phrases_are_loaded_once_an_epoch_is_named() -> None:
    opening = "from hocket.agent.progress import open_reader; reader = open_reader({}, '/', '')\n"
    program = opening + "reader.feed(b'%s'); reader.close()"
    assert "hocket.agent.progress.phrases" not in loaded_by(program % "hello: 3\\n\\r 5%|\\r\\n")
    assert "hocket.agent.progress.phrases" in loaded_by(program % "EPOCH 1\\n")


def test_the_name_of_the_function_is_not_the_name_of_a_package() -> None:
    """`import hocket.reports` (tables and plots) must not take the place of `hocket.report`."""
    program = (
        "import hocket, hocket.reports, json\nprint(json.dumps([callable(hocket.report), hasattr(hocket, 'nothing')]))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=300)
    assert json.loads(done.stdout) == [True, False]
