"""`benchmarks.pack` on a GPU that is there for minutes: rows are kept, none is measured twice, and time is kept to."""

import json
import time
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from benchmarks import pack_tasks  # noqa: E402
from benchmarks.pack import main  # noqa: E402
from benchmarks.pack_tasks import Kept, Task, Wanted, measured  # noqa: E402

LATER = 1e9  # seconds from now


def run(tasks: list[Task], kept: Kept, left_s: float = LATER) -> list[object]:
    said: list[object] = []
    measured(iter(tasks), kept, time.monotonic() + left_s, said.append)
    return said


def test_a_row_that_is_kept_is_not_measured_again(tmp_path: Path) -> None:
    made: list[float] = []

    def measure(until: float) -> dict[str, float]:
        made.append(until)
        return {"ms": 1.23456}

    tasks = [Task({"part": "steps", "n": n}, 1.0, measure) for n in (2, 4)]
    run(tasks, Kept(tmp_path / "a" / "rows"))
    run(tasks, Kept(tmp_path / "a" / "rows"))
    assert len(made) == 2
    rows = [json.loads(line) for line in (tmp_path / "a" / "rows").read_text().splitlines()]
    assert [(row["n"], row["ms"]) for row in rows] == [(2, 1.235), (4, 1.235)]


def test_what_breaks_or_is_cut_off_is_said_and_not_kept(tmp_path: Path) -> None:
    def breaks(_until: float) -> dict[str, float]:
        raise RuntimeError("out of everything\nand more")

    def cut(_until: float) -> dict[str, float]:
        return {"cut_off": True}

    kept = Kept(tmp_path / "rows")
    said = run([Task({"part": "a"}, 1.0, breaks), Task({"part": "b"}, 1.0, cut)], kept)
    assert said[0] == {"part": "a", "error": "RuntimeError: out of everything"}
    assert kept.rows == []
    assert len(said) == 2


def test_nothing_begins_that_would_not_end_in_time_but_what_can_go_on_later() -> None:
    kept = Kept(None)
    tasks = [
        Task({"part": "long"}, 500.0, lambda _until: {}),
        Task({"part": "short"}, 50.0, lambda _until: {}),
        Task({"part": "goes on"}, 500.0, lambda _until: {}, resumes=True),
    ]
    run(tasks, kept, left_s=100.0)
    assert [row["part"] for row in kept.rows] == ["short", "goes on"]


@pytest.mark.long
def test_a_sweep_that_is_cut_off_goes_on_from_its_journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pack_tasks, "SAVE_S", 0.0)
    wanted = Wanted("cpu", ["mlp-3"], [2], 0.01, 1, 9, tmp_path, tiny=True)
    first = pack_tasks._swept(wanted, "mlp-3", "pack_none", time.monotonic())
    assert first["cut_off"]
    assert first["steps"] < first["steps_in_all"]
    whole = pack_tasks._swept(wanted, "mlp-3", "pack_none", time.monotonic() + LATER)
    assert whole["steps"] == first["steps_in_all"]
    assert whole["seconds"] > first["seconds"]
    at_once = Wanted("cpu", ["mlp-3"], [2], 0.01, 1, 9, None, tiny=True)
    assert pack_tasks._swept(at_once, "mlp-3", "pack_none", time.monotonic() + LATER)["digest"] == whole["digest"]


@pytest.mark.long
def test_every_part_runs_to_its_end_on_whatever_is_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    threads = torch.get_num_threads()
    try:
        main([
            "--quick", "--json", "--only", *pack_tasks.PARTS, "--models", "mlp-3", "--counts", "2", "--budget", "0.01",
            "--unit", "1", "--resource", "3", "--minutes", "60", "--kept", str(tmp_path / "rows"),
        ])  # fmt: skip
    finally:
        torch.set_num_threads(threads)
    found = json.loads(capsys.readouterr().out)
    assert found["command"].startswith("python -m benchmarks.pack --quick")
    assert {row["policy"]: row["winner"] for row in found["sweeps"]}.keys() == {"pack_gain", "pack_none"}
    assert found["exact"][0]["same"], "an exact sweep is not the same, packed or not"
    assert found["agreement"][0]["again_agrees"], "a CPU repeats itself"
    assert found["steps"][0]["pack_ms"] > 0
    assert found["processes"][0]["processes_ms"] > 0
    assert [row["batch"] for row in found["memory"]] == [50, 64, 100]
