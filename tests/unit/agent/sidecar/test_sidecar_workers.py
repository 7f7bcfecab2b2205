"""Jobs of several workers: a sidecar plays torchrun's part where it understands the command."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from hocket.agent.sidecar.command import understood

NAMES = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "CUDA_VISIBLE_DEVICES")
SHOWS = f"import os, sys\nprint(*sys.argv[1:], *(os.environ.get(n, '-') for n in {NAMES}), os.environ['MASTER_PORT'])"


@pytest.fixture
def torchrun(tmp_path: Path) -> dict[str, str]:
    """Its executable as pip writes it, for a Python that finds no torch: it would fail if it were run."""
    path = tmp_path / "bin" / "torchrun"
    path.parent.mkdir()
    path.write_text(f"#!{sys.executable}\nimport sys\nfrom torch.distributed.run import main\nsys.exit(main())\n")
    path.chmod(0o755)
    (tmp_path / "none" / "torch").mkdir(parents=True)
    (tmp_path / "none" / "torch" / "__init__.py").write_text("raise ModuleNotFoundError('No module named ' + __name__)")
    return {"PATH": f"{path.parent}:{os.environ['PATH']}", "PYTHONPATH": str(tmp_path / "none")}


def lines(job: Any) -> list[list[str]]:
    return sorted(line.split() for line in job.log().splitlines())


def test_each_worker_of_a_plain_command_has_its_rank(run: Any) -> None:
    job = run(sys.executable, "-c", SHOWS, workers=3, env={"CUDA_VISIBLE_DEVICES": "0,2,5"})
    assert job.finish()["code"] == 0
    port = lines(job)[0][-1]
    assert lines(job) == [[str(n), str(n), "3", "3", "127.0.0.1", "0,2,5", port] for n in range(3)]
    assert 1024 < int(port) < 65536
    assert len(job.events("started")[0]["pids"]) == 3


def test_workers_of_a_job_on_several_machines_are_ranked_from_the_first_here(run: Any) -> None:
    env = {"RANK": "4", "WORLD_SIZE": "8", "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "29500"}
    job = run(sys.executable, "-c", SHOWS, workers=2, env=env)
    job.finish()
    assert lines(job) == [
        ["4", "0", "8", "2", "10.0.0.1", "-", "29500"],
        ["5", "1", "8", "2", "10.0.0.1", "-", "29500"],
    ]


def test_one_worker_is_ranked_if_that_is_asked_for(run: Any) -> None:
    job = run(sys.executable, "-c", SHOWS, env={"WORLD_SIZE": "1"})
    job.finish()
    assert lines(job)[0][:4] == ["0", "0", "1", "1"]


def test_a_rank_that_is_no_number_is_named(run: Any) -> None:
    reason = run("true", workers=2, env={"RANK": "first"}).wait_for("cannot-start")["reason"]
    assert reason == "RANK must be the rank of the first worker on this machine, not 'first'"


@pytest.mark.parametrize("warm", [False, True])
@pytest.mark.parametrize(
    "launcher", [["torchrun"], [sys.executable, "-m", "torch.distributed.run"]], ids=["script", "-m"]
)
def test_the_sidecar_plays_torchruns_part(
    run: Any, torchrun: dict[str, str], tmp_path: Path, launcher: list[str], warm: bool
) -> None:
    (tmp_path / "train.py").write_text(SHOWS)
    job = run(
        *launcher, "--standalone", "--nproc-per-node=8", "train.py", "--lr", "1", workers=2, warm=warm, env=torchrun
    )
    if warm:
        assert job.wait_for("prepared")["warm"]
        job.send("start", env={"CUDA_VISIBLE_DEVICES": "1,3"})
    assert job.finish()["code"] == 0
    assert job.events("started")[0]["warm"] is warm
    devices = "1,3" if warm else "-"
    assert [line[:-1] for line in lines(job)] == [
        ["--lr", "1", str(n), str(n), "2", "2", "127.0.0.1", devices] for n in range(2)
    ]


def test_torchrun_with_an_option_that_is_not_understood_runs_itself_once(run: Any, torchrun: dict[str, str]) -> None:
    job = run("torchrun", "--redirects", "3", "train.py", workers=2, warm=True, env=torchrun)
    assert job.wait_for("prepared").items() >= {"warm": False, "pids": []}.items()
    job.send("start")
    assert job.finish()["code"] == 1
    assert job.log().count("No module named torch") == 1, "the launcher itself ran, and once"


def test_when_one_worker_fails_the_others_are_stopped_and_its_exit_is_the_jobs(run: Any, tmp_path: Path) -> None:
    program = (
        "import os, signal, sys, time\n"
        "rank = int(os.environ['RANK'])\n"
        "signal.signal(signal.SIGTERM, lambda *_: (print('stopped', rank, flush=True), sys.exit(0)))\n"
        "open(f'up{rank}', 'w')\n"
        "while rank != 1 or not os.path.exists('go'): time.sleep(0.01)\n"
        "sys.exit(42)"
    )
    job = run(sys.executable, "-c", program, workers=3)
    for n in range(3):
        job.wait_for_file(f"up{n}")
    (tmp_path / "go").touch()
    end = job.finish()
    assert (end["code"], end["worker"], end["asked"], end["after_s"]) == (42, 1, False, None)
    assert sorted(job.log().splitlines()) == ["stopped 0", "stopped 2"]


def test_a_worker_that_ends_well_leaves_the_others_alone(run: Any) -> None:
    program = "import os, time\nif os.environ['RANK'] == '1': time.sleep(0.3); print('done')"
    job = run(sys.executable, "-c", program, workers=2)
    assert job.finish()["code"] == 0
    assert job.log() == "done\n"


PY = ["/usr/bin/python3"]


@pytest.mark.parametrize(
    ("argv", "interpreter", "program"),
    [
        ([*PY, "train.py", "-m", "x"], PY, ["train.py", "-m", "x"]),
        ([*PY, "-u", "-OO", "-uB", "train.py"], [*PY, "-u", "-OO", "-uB"], ["train.py"]),
        ([*PY, "-W", "error", "-Xdev", "t.py"], [*PY, "-W", "error", "-Xdev"], ["t.py"]),
        ([*PY, "-m", "pkg.train", "--x"], PY, ["-m", "pkg.train", "--x"]),
        ([*PY, "-um", "pkg.train"], [*PY, "-u"], ["-m", "pkg.train"]),
        (["python3.12", "-I", "t.py"], ["python3.12", "-I"], ["t.py"]),
    ],
)
def test_python_programs_are_understood(argv: list[str], interpreter: list[str], program: list[str]) -> None:
    command = understood(argv, None, "/")
    assert command.argv == argv
    assert command.python is not None
    assert (command.python.interpreter, command.python.program) == (interpreter, program)
    assert not command.ranked


@pytest.mark.parametrize(
    "argv",
    [
        ["bash", "train.sh"], ["pythonic", "x.py"], PY, [*PY, "-c", "pass"], [*PY, "-"], [*PY, "-i", "x.py"],
        [*PY, "-m"], [*PY, "--version"], [*PY, "-x", "t.py"], ["uv", "run", "python", "t.py"],
    ],
)  # fmt: skip
def test_anything_else_is_left_as_it_is(argv: list[str]) -> None:
    command = understood(argv, None, "/")
    assert (command.argv, command.python, command.launched) == (argv, None, False)


LAUNCH = [*PY, "-m", "torch.distributed.run"]


@pytest.mark.parametrize(
    ("options", "program"),
    [
        (["--nproc_per_node", "4", "--nnodes=1", "t.py", "--nproc"], ["t.py", "--nproc"]),
        (["--max-restarts=0", "--rdzv_backend", "c10d", "-m", "pkg.t"], ["-m", "pkg.t"]),
        (["--start-method=spawn", "--master-port=1", "--module", "t"], ["-m", "t"]),
        (["--max-restarts=3", "t.py"], None),
        (["--no-python", "./t"], None),
        (["--nproc=2", "t.py"], None),
        (["--tee", "3", "t.py"], None),
        (["--nnodes"], None),
        (["--standalone"], None),
    ],
)
def test_options_of_torchrun(options: list[str], program: list[str] | None) -> None:
    command = understood([*LAUNCH, *options], None, "/")
    if program is None:
        assert (command.argv, command.python, command.launched) == ([*LAUNCH, *options], None, True)
    else:
        assert command.argv == [*PY, "-u", *program]
        assert (command.ranked, command.launched) == (True, False)
