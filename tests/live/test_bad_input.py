"""What users do wrong and what programs do to their surroundings, with a real controller, agent and processes."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.live.controller import LiveController, NoAnswer, awaited
from tests.live.processes import below

LOUD = 128 << 20  # bytes: 64 times what a log may take that is limited to 2 MiB
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="a small file system of its own needs root")


@pytest.fixture(scope="module")
def controller(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveController]:
    with LiveController(tmp_path_factory.mktemp("live"), "--gpus", "4", "--policy", "fifo") as found:
        found.begin()
        yield found
        found.down(grace_s=0.0)


def hocket(controller: LiveController, *args: str, code: int = 0) -> Any:
    return controller.types(*args, code=code)


def submit(controller: LiveController, name: str, script: str, **fields: Any) -> None:
    """A Python program as a job."""
    submit_command(controller, name, [sys.executable, "-c", script], **fields)


def submit_command(controller: LiveController, name: str, command: list[str], **fields: Any) -> None:
    job = {"id": name, "command": command, "cwd": "/", "retries": 0, **fields}
    (said,) = controller.call("POST", "/v1/jobs", {"jobs": [job]})["jobs"]
    assert said["refused"] == ""


def show(controller: LiveController, name: str) -> dict[str, Any]:
    found: dict[str, Any] = controller.call("GET", f"/v1/jobs/{name}")
    return found


def over(controller: LiveController, name: str, within_s: float = 300.0) -> dict[str, Any]:
    """The job once it is over."""
    awaited(lambda: show(controller, name)["ended_s"] is not None, f"'{name}' over", within_s)
    return show(controller, name)


def has(controller: LiveController, name: str, holds: Callable[[dict[str, Any]], bool]) -> None:
    awaited(lambda: holds(show(controller, name)), f"'{name}' as it should be")


# -- what users write -------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_an_unknown_key_is_refused_with_the_one_that_was_meant(controller: LiveController, tmp_path: Path) -> None:
    path = tmp_path / "job.toml"
    path.write_text('name = "typo"\ncomand = "true"\n')
    assert "did you mean 'command'?" in hocket(controller, "submit", str(path), code=2).stderr
    with pytest.raises(ValueError, match="did you mean 'priority'"):
        controller.call("POST", "/v1/jobs", {"jobs": [{"id": "typo", "command": ["true"], "priorty": 1}]})
    assert "typo" not in controller.jobs()


@pytest.mark.slow
def test_sizes_that_no_machine_has_are_refused_with_the_largest_there_is(controller: LiveController) -> None:
    said = hocket(controller, "submit", "-n", "huge", "--gpus", "8,16", "--", "true", code=2).stderr
    assert "8" in said
    assert "4" in said
    job = {"id": "huge", "command": ["true"], "sizes": [8, 16]}
    (answer,) = controller.call("POST", "/v1/jobs", {"jobs": [job]})["jobs"]
    assert "the largest that fits is 4" in answer["refused"]
    assert "huge" not in controller.jobs()


@pytest.mark.slow
def test_a_criterion_on_a_metric_that_never_appears_is_warned_of_after_one_epoch(controller: LiveController) -> None:
    script = "import sys, time; print('epoch 1/2 loss=0.5', flush=True); time.sleep(600)"
    submit(controller, "no-metric", script, until="acc >= 90%")
    warning = "its criterion is about 'acc', and it has reported loss so far"
    has(controller, "no-metric", lambda job: job["warnings"] == [warning])
    assert warning in hocket(controller, "show", "no-metric").stdout
    controller.call("POST", "/v1/jobs/no-metric/stop")
    assert over(controller, "no-metric")["warnings"] == [warning]


@pytest.mark.slow
def test_a_command_that_does_not_exist_is_named_and_not_tried_again(controller: LiveController) -> None:
    submit_command(controller, "nonesuch", ["/no/such/program"], retries=5)
    job = over(controller, "nonesuch")
    assert job["state"] == "failed"
    assert "/no/such/program" in job["reason"]
    assert len(job["attempt_list"]) == 1


# -- what programs do -------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_program_that_ignores_signals_is_killed_when_its_grace_is_over(controller: LiveController) -> None:
    script = (
        "import signal, time\n"
        "for n in set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP}: signal.signal(n, signal.SIG_IGN)\n"
        "print('epoch 1 loss=1', flush=True)\n"
        "while True: time.sleep(1)"
    )
    submit(controller, "deaf", script, grace_s=0.5)
    has(controller, "deaf", lambda job: job["epoch"] == 1)
    controller.call("POST", "/v1/jobs/deaf/pause")
    has(controller, "deaf", lambda job: job["state"] in ("held", "paused") and not job["gpus"])
    controller.call("POST", "/v1/jobs/deaf/resume")
    has(controller, "deaf", lambda job: job["attempts"] == 2 and job["state"] == "running")
    controller.call("POST", "/v1/jobs/deaf/stop")
    job = over(controller, "deaf")
    assert job["state"] == "stopped"
    assert [attempt["how"] for attempt in job["attempt_list"]] == ["paused", "stopped"]


@pytest.mark.slow
def test_much_output_takes_no_more_than_was_said_and_delays_no_job(controller: LiveController) -> None:
    line = "x" * 99
    submit_command(controller, "loud", ["/bin/sh", "-c", f"yes {line} | head -c {LOUD}; echo the end"], log_mib=2.0)
    submit_command(controller, "neighbour", ["true"])
    assert over(controller, "neighbour")["state"] == "finished"
    job = over(controller, "loud", 1200)
    assert (job["state"], job["attempts"]) == ("finished", 1)
    folder = controller.home / "agent" / "runs" / "loud" / "1"
    awaited(lambda: all(path.name.startswith("log") for path in folder.iterdir()), "only logs are kept")
    kept = sum(path.stat().st_size for path in folder.glob("log*"))
    assert 1 << 20 <= kept <= (2 << 20) + 4096
    assert hocket(controller, "logs", "loud", "--tail", "1").stdout.endswith("xthe end\n")


@pytest.mark.slow
def test_children_that_a_program_leaves_behind_are_ended_with_it(controller: LiveController) -> None:
    script = (
        "import os, subprocess, sys, time\n"
        "for _ in range(5): subprocess.Popen(['sleep', '600'])\n"
        "for _ in range(5): subprocess.Popen(['sleep', '600'], start_new_session=True, stdout=subprocess.DEVNULL)\n"
        "if os.fork() == 0:\n"
        "    os.setsid()\n"
        "    if os.fork() == 0: time.sleep(600)\n"
        "    os._exit(0)\n"
    )
    submit(controller, "forks", script)
    assert over(controller, "forks")["state"] == "finished"
    awaited(lambda: not [p for p in below(controller.root) if p.job == "forks"], "nothing of it is left")


@pytest.mark.slow
def test_a_program_that_closes_its_output_runs_on(controller: LiveController, tmp_path: Path) -> None:
    told = tmp_path / "told"
    script = (
        "import os, sys, time, hocket\n"
        "print('first words', flush=True)\n"
        "for fd in (0, 1, 2): os.close(fd)\n"
        "time.sleep(1.0)\n"
        "hocket.report(epoch=1, acc=0.5)\n"
        f"open({str(told)!r}, 'w').write(os.environ['HOCKET_JOB'])\n"
    )
    submit(controller, "mute", script)
    job = over(controller, "mute")
    assert (job["state"], job["attempts"], job["metrics"]) == ("finished", 1, {"acc": 0.5})
    assert told.read_text() == "mute"
    assert hocket(controller, "logs", "mute").stdout == "first words\n"


# -- where there is no space ------------------------------------------------------------------------------------


@contextmanager
def small_disk(path: Path, mib: int) -> Iterator[Path]:
    path.mkdir(parents=True, exist_ok=True)
    try:
        subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={mib}m", "tmpfs", str(path)], check=True, capture_output=True
        )
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no small file system can be made here: {error}")
    try:
        yield path
    finally:
        subprocess.run(["umount", "-l", str(path)], check=False)


@pytest.mark.slow
@needs_root
def test_a_checkpoint_folder_without_space_is_said_and_harms_no_other_job(controller: LiveController) -> None:
    script = (
        "import os\n"
        "with open(os.path.join(os.environ['HOCKET_CHECKPOINT_DIR'], 'state'), 'wb') as file:\n"
        "    file.write(bytes(64 << 20))\n"
        "print('epoch 1 acc=1', flush=True)\n"
    )
    with small_disk(controller.home / "agent" / "checkpoints" / "no-space", 1):
        submit(controller, "no-space", script, retries=1, backoff_s=0.01)
        submit(controller, "has-space", script)
        job = over(controller, "no-space")
        assert job["state"] == "failed"
        assert len(job["attempt_list"]) == 2
        (warning,) = job["warnings"]
        assert "there is no space to save in" in warning
        assert "0 KiB left" in warning
        assert "No space left on device" in hocket(controller, "logs", "no-space").stdout
        assert over(controller, "has-space")["state"] == "finished"


@pytest.mark.slow
@needs_root
def test_on_a_full_disk_a_controller_accepts_nothing_loses_nothing_and_goes_on_when_there_is_room(
    tmp_path: Path,
) -> None:
    with small_disk(tmp_path / "disk", 2) as disk:
        store = ("--store", str(disk / "journal.db"))
        with LiveController(tmp_path, "--gpus", "2", "--policy", "fifo", *store) as controller:
            controller.begin()
            script = f"import os, time\nwhile not os.path.exists({str(tmp_path / 'go')!r}): time.sleep(0.05)\n"
            submit(controller, "runs", script + "print('epoch 1 acc=0.5')")  # And nothing happens meanwhile.
            submit(controller, "before", "pass", sizes=[2])
            awaited(lambda: show(controller, "runs")["state"] == "running", "the first one runs")
            filler = disk / "filler"
            with filler.open("wb", buffering=0) as file:
                try:
                    while file.write(bytes(4096)):
                        pass
                except OSError:
                    pass
            answers: list[str] = []

            def is_refused() -> bool:
                # A page may be left: until nothing fits any more, what is acknowledged must be kept.
                name = f"during-{len(answers)}"
                try:
                    submit(controller, name, "pass", sizes=[2], env={"PADDING": "x" * 100_000})
                except NoAnswer as error:
                    refused = str(error)
                    assert "journal.db" in refused
                    assert "full" in refused
                    return True
                answers.append(name)
                return False

            awaited(is_refused, "a submission is refused")
            assert "full" in controller.call("GET", "/v1/status")["trouble"]
            assert "full" in hocket(controller, "submit", "--", "true", code=2).stderr
            (tmp_path / "go").touch()
            filler.unlink()
            awaited(lambda: not _is_troubled(controller), "the trouble is over")
            submit(controller, "after", "pass", sizes=[2])
            for name in ("runs", "before", *answers, "after"):
                job = over(controller, name)
                assert (job["state"], job["attempts"]) == ("finished", 1), job
            assert show(controller, "runs")["metrics"] == {"acc": 0.5}
            controller.kill()
            controller.begin()
            jobs = controller.jobs()
            assert {"runs", "before", *answers, "after"} <= jobs.keys()
            assert {row["state"] for row in jobs.values()} == {"finished"}
            controller.down(grace_s=0.0)


def _is_troubled(controller: LiveController) -> bool:
    """It tries again when something is to be written; a submission is."""
    try:
        submit(controller, f"probe-{os.urandom(4).hex()}", "pass", sizes=[2])
    except NoAnswer:
        return True
    return controller.call("GET", "/v1/status")["trouble"] != ""


# -- programs that count from 0 ---------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_program_that_counts_from_0_is_understood_after_it_was_paused(controller: LiveController) -> None:
    script = (
        "import os, time\n"
        "path = os.path.join(os.environ['HOCKET_CHECKPOINT_DIR'], 'next')\n"
        "first = int(open(path).read()) if os.path.exists(path) else 0\n"
        "for epoch in range(first, first + 2):\n"
        "    open(path, 'w').write(str(epoch + 1))\n"  # Once it is told, it may be paused at any time.
        "    print(f'epoch {epoch} acc={epoch / 10}', flush=True)\n"
        "if not first: time.sleep(600)\n"
    )
    submit(controller, "from-0", script)
    has(controller, "from-0", lambda job: job["epoch"] == 2)
    controller.call("POST", "/v1/jobs/from-0/pause")
    has(controller, "from-0", lambda job: job["state"] in ("held", "paused"))
    controller.call("POST", "/v1/jobs/from-0/resume")
    assert over(controller, "from-0")["epoch"] == 4
