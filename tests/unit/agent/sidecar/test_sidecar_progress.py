"""Progress comes through as events, at a bounded rate, and no reader can harm a job."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any


def told(job: Any) -> list[tuple[int, dict[str, float]]]:
    return [(e["epoch"], e["metrics"]) for e in job.events("progress")]


def test_what_a_job_prints_becomes_progress(run_python: Any) -> None:
    job = run_python("for n in (1, 2, 3): print(f'epoch {n} acc=0.{n}')", progress={})
    job.finish()
    assert told(job) == [(1, {"acc": 0.1}), (2, {"acc": 0.2}), (3, {"acc": 0.3})]
    assert job.story() == ["started", *["progress"] * 3, "exited"]


def test_what_a_job_reports_is_told_at_once(run_python: Any, tmp_path: Path) -> None:
    program = (
        "import hocket, os, time\nhocket.report(epoch=1, acc=0.5)\nwhile not os.path.exists('go'): time.sleep(0.01)"
    )
    job = run_python(program, progress={"kind": "report"})
    assert job.wait_for("progress").items() >= {"epoch": 1, "metrics": {"acc": 0.5}}.items()
    (tmp_path / "go").touch()
    job.finish()
    assert not (job.folder / "report").exists()


def test_what_a_job_writes_into_a_file_is_told(run_python: Any) -> None:
    program = (
        "import os, time\n"
        "with open('m.csv', 'w') as f: f.write('epoch,acc\\n1,0.25\\n')\n"
        "while not os.path.exists('go'): print('x'); time.sleep(0.01)\n"
        "with open('m.csv', 'a') as f: f.write('2,0.5\\n')"
    )
    job = run_python(program, progress={"kind": "csv", "file": "m.csv"})
    job.wait_for("progress")
    (job.folder.parent / "go").touch()
    job.finish()
    assert told(job) == [(1, {"acc": 0.25}), (2, {"acc": 0.5})]


def test_numbers_that_are_none_come_through(run_python: Any) -> None:
    job = run_python("print('epoch 1 loss=nan')\nprint('epoch 2 loss=inf')", progress={})
    job.finish()
    (_one, first), (_two, second) = told(job)
    assert first["loss"] != first["loss"]
    assert second["loss"] == float("inf")


def test_a_job_without_progress_configured_is_not_read(run_python: Any) -> None:
    job = run_python("print('epoch 1 acc=0.5')")
    job.finish()
    assert told(job) == []


def test_a_job_that_counts_epochs_madly_fills_no_disk(run_python: Any) -> None:
    job = run_python("for n in range(1, 50_001): print('epoch', n, f'acc={n}')", progress={})
    end = job.finish()
    assert told(job)[-1] == (50_000, {"acc": 50_000.0}), "the last one is told in any case"
    assert len(told(job)) <= 100 * (end["ran_s"] + 3)


def test_a_reader_that_cannot_be_opened_is_warned_of_and_the_job_runs(run_python: Any) -> None:
    job = run_python("print('epoch 1')", progress={"kind": "tea-leaves"})
    assert job.finish()["code"] == 0
    (warning,) = job.events("warning")
    assert warning["about"].startswith("progress is no longer read: ValueError: ")


def test_a_job_that_makes_progress_in_time_is_not_hung_and_one_that_only_prints_is(run_python: Any) -> None:
    steady = "import time\nfor n in range(55): print('epoch', n, 'acc=1'); time.sleep(0.2)"
    talks = "import time\nwhile True: print('still here'); time.sleep(0.05)"
    good = run_python(steady, progress={}, hang_limit_s=10)  # in which a busy machine comes to it, for certain
    bad = run_python(talks, progress={}, hang_limit_s=10)
    assert good.finish()["hung"] is False
    assert bad.finish()["hung"] is True
    assert bad.events("hung")[0]["silent_s"] == 10


def test_how_a_job_counts_is_told_for_the_next_attempt(run_python: Any) -> None:
    job = run_python("for n in (0, 1): print(f'epoch {n} acc=0.{n}')", progress={})
    assert job.finish()["first_epoch"] == 0


def test_lines_of_several_workers_do_not_mix(run: Any) -> None:
    program = (
        "import os, sys\n"
        "for n in range(1, 301):\n"
        "    for part in ('epoch ', str(n), ' acc=', '0.5', '\\n'): os.write(1, part.encode())"
    )
    job = run(sys.executable, "-c", program, workers=3, progress={})
    job.finish()
    assert set(job.log().splitlines()) == {f"epoch {n} acc=0.5" for n in range(1, 301)}
    assert len(job.log().splitlines()) == 900


def test_steps_come_one_by_one_at_first_and_the_last_always(run_python: Any) -> None:
    program = "for n in range(1, 5001): print(f'step {n} loss {1 / n}')\nprint('step 5001 acc 0.5')"
    job = run_python(program, progress={})
    job.finish()
    said = [(e["step"], e["metrics"]) for e in job.events("progress")]
    assert said[:3] == [(1, {"loss": 1.0}), (2, {"loss": 0.5}), (3, {"loss": 1 / 3})]
    assert len(said) < 100
    assert said[-1] == (5001, {"loss": 1 / 5000, "acc": 0.5}), "with what the steps before it had said"


SILENT = "import os, time\nwhile not os.path.exists('go'): time.sleep(0.01)"


def test_a_metric_that_is_not_seen_is_told_once_with_the_last_line(run_python: Any, tmp_path: Path) -> None:
    for limit_s in (0.5, 5.0, 50.0):  # until Python starts, which takes seconds on a busy machine
        job = run_python("print('epoch 1 loss=0.5')\n" + SILENT, progress={}, awaited="acc", unseen_limit_s=limit_s)
        told_of = job.wait_for("metric-unseen")
        (tmp_path / "go").touch()
        job.finish()
        (tmp_path / "go").unlink()
        assert job.story().count("metric-unseen") == 1
        if told_of["lines"]:
            break
    assert (told_of["metric"], told_of["after_s"], told_of["read"]) == ("acc", limit_s, ["loss"])
    assert told_of["lines"] == ["epoch 1 loss=0.5"]
