"""Several workers prepared as one process, which becomes them at the hand-over; and how a handed-over program ends."""

from __future__ import annotations

import gzip
import os
import signal
import socket
import sys
import threading
import time
import zipfile
from pathlib import Path
from typing import Any

import pytest

from hocket.agent.process_tree import process
from hocket.agent.sidecar import warm

SHOWS = (
    "import os, sys, heavy\n"
    "names = ('RANK', 'LOCAL_RANK', 'WORLD_SIZE', 'LOCAL_WORLD_SIZE', 'CUDA_VISIBLE_DEVICES')\n"
    "leads = os.getsid(0) == os.getpgid(0) == os.getpid()\n"
    "print(*(os.environ.get(n, '-') for n in names), leads, flush=True)\n"
)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A script, and a module whose import leaves a trace."""
    (tmp_path / "heavy.py").write_text("print(end='x', file=open('imported', 'a'))")
    (tmp_path / "train.py").write_text(SHOWS)
    return tmp_path


def prepared(run: Any, *, workers: int = 2, most: int = 4, **fields: Any) -> Any:
    job = run(sys.executable, "-u", "train.py", workers=workers, most_workers=most, warm=True, **fields)
    assert job.wait_for("prepared")["warm"]
    return job


def lines(job: Any) -> list[list[str]]:
    return sorted(line.split() for line in job.log().splitlines())


@pytest.mark.parametrize("count", [1, 2, 4])
def test_what_is_prepared_once_becomes_as_many_workers_as_there_shall_be(run: Any, project: Path, count: int) -> None:
    job = prepared(run)
    assert len(job.events("prepared")[0]["pids"]) == 1
    job.send("start", env={"CUDA_VISIBLE_DEVICES": "2,3"}, workers=count)
    assert job.finish()["code"] == 0
    (started,) = job.events("started")
    assert started["warm"]
    assert len(set(started["pids"])) == count
    size = str(count)
    assert lines(job) == [[str(n), str(n), size, size, "2,3", "True"] for n in range(count)]
    assert (project / "imported").read_text() == "x", "the imports were done once"


@pytest.mark.usefixtures("project")
def test_more_workers_than_were_prepared_for_start_cold(run: Any) -> None:
    job = prepared(run, most=2)
    job.send("start", workers=3)
    assert job.finish()["code"] == 0
    assert not job.events("started")[0]["warm"]
    assert "at most 2 workers, and gets 3" in job.events("warning")[0]["about"]
    assert len(lines(job)) == 3


@pytest.mark.parametrize(
    "trouble",
    [
        "import threading, time; threading.Thread(target=time.sleep, args=(60,), daemon=True).start()",
        "import os; print('rank', os.environ['RANK'])",
    ],
    ids=["threads", "ranks"],
)
def test_where_one_cannot_become_all_each_worker_stands_for_itself(run: Any, project: Path, trouble: str) -> None:
    (project / "heavy.py").write_text(trouble)
    job = prepared(run)
    assert len(job.events("prepared")[0]["pids"]) == 2
    job.send("start", workers=2)
    assert job.finish()["code"] == 0
    assert job.events("started")[0]["warm"]
    assert job.events("started")[0]["pids"] == job.events("prepared")[0]["pids"]


def test_workers_that_each_stand_for_themselves_cannot_become_others(run: Any, project: Path) -> None:
    (project / "heavy.py").write_text("import os; os.environ['RANK']")
    job = prepared(run)
    job.send("start", workers=3)
    assert job.finish()["code"] == 0
    assert "stands ready with 2 workers, and gets 3" in job.events("warning")[0]["about"]
    assert len(lines(job)) == 3


def test_forked_workers_draw_different_lots(run: Any, project: Path) -> None:
    pytest.importorskip("numpy")
    (project / "train.py").write_text("import random\nimport numpy.random\nprint(random.random(), numpy.random.rand())")
    job = prepared(run, workers=3, env={"OPENBLAS_NUM_THREADS": "1"})
    job.send("start", workers=3)
    assert job.finish()["code"] == 0
    assert len(job.events("prepared")[0]["pids"]) == 1
    assert len({first for first, _ in lines(job)}) == len({second for _, second in lines(job)}) == 3


def test_the_exit_of_a_forked_worker_is_the_jobs_and_its_colleagues_are_stopped(run: Any, project: Path) -> None:
    (project / "train.py").write_text(
        "import os, sys, time\nif os.environ['RANK'] == '1':\n    sys.exit(42)\ntime.sleep(600)\n"
    )
    job = prepared(run, workers=3)
    job.send("start", workers=3)
    end = job.finish()
    assert (end["code"], end["worker"]) == (42, 1)


def test_forked_workers_die_with_their_sidecar(run: Any, project: Path, until: Any) -> None:
    (project / "train.py").write_text("import time\nprint('up', flush=True)\ntime.sleep(600)")
    job = prepared(run, workers=3)
    job.send("start", workers=3)
    until(lambda: job.log().count("up") == 3, "three workers")
    pids = job.wait_for("started")["pids"]
    os.kill(job.pid, signal.SIGKILL)
    job.sidecar.wait()
    until(lambda: not any(process(pid) for pid in pids), "the end of the workers")


def test_what_will_go_on_from_a_checkpoint_is_prepared_before_there_is_one(run: Any, project: Path) -> None:
    (project / "resume.py").write_text("import heavy\nprint('resumed')")
    fields = {"resume_argv": [sys.executable, "resume.py"], "checkpoint_dir": str(project / "saved"), "attempt": 2}
    for has_saved, told in ((True, "resumed\n"), (False, "from the start\n")):
        (project / "train.py").write_text("print('from the start')")
        job = prepared(run, workers=1, most=1, **fields)
        if has_saved:
            (project / "saved" / "it").touch()
        job.send("start")
        assert job.finish()["code"] == 0
        assert (job.log(), job.events("started")[0]["warm"]) == (told, has_saved)
        for path in (project / "saved").iterdir():
            path.unlink()


# -- how it ends ----------------------------------------------------------------------------------------------

TAKEN_APART = """
import os
class Big:
    def __del__(self, mkdir=os.mkdir):
        mkdir('taken-apart')
big = Big()
"""
ENDING = """
import atexit, gzip, sys, threading, time, zipfile, torch
atexit.register(lambda: print('registered'))
kept = open('plain', 'w'); kept.write('written')
packed = gzip.open('packed', 'wt'); packed.write('packed')
archive = zipfile.ZipFile('archive', 'w'); archive.writestr('name', 'archived')
torch.file.write('by a module')
def later():
    time.sleep(0.1); print('waited for')
threading.Thread(target=later).start()
sys.exit(3)
"""


def test_a_program_that_ends_is_let_go_without_taking_its_modules_apart(run: Any, project: Path) -> None:
    (project / "torch.py").write_text("file = open('module', 'w')\n" + TAKEN_APART)
    (project / "train.py").write_text(ENDING)
    job = prepared(run, workers=1, most=1)
    job.send("start")
    assert job.finish()["code"] == 3
    assert job.log() == "waited for\nregistered\n"
    assert (project / "plain").read_text() == "written"
    assert (project / "module").read_text() == "by a module"
    assert gzip.decompress((project / "packed").read_bytes()) == b"packed"
    assert zipfile.ZipFile(project / "archive").read("name") == b"archived"
    assert not (project / "taken-apart").exists()


def test_where_a_library_finishes_its_files_in_c_python_has_its_way(run: Any, project: Path) -> None:
    (project / "h5py.py").write_text(TAKEN_APART)
    (project / "train.py").write_text("import h5py")
    job = prepared(run, workers=1, most=1)
    job.send("start")
    assert job.finish()["code"] == 0
    assert (project / "taken-apart").exists()


# -- what frameworks do late ----------------------------------------------------------------------------------


@pytest.mark.parametrize("minds", [False, True])
def test_what_torch_imports_late_is_imported_beforehand_unless_the_script_minds(
    run: Any, project: Path, minds: bool
) -> None:
    for name in ("torch/__init__.py", "torch/optim/__init__.py", "torch/_dynamo/__init__.py"):
        (project / name).parent.mkdir(exist_ok=True)
        (project / name).write_text("")
    (project / "torch" / "_dynamo" / "__init__.py").write_text("open('late', 'w')")
    minding = "os.environ['TORCHDYNAMO_DISABLE'] = '1'" if minds else ""
    (project / "train.py").write_text(f"import os\nimport torch.optim\ndef main():\n    pass\n    {minding}\nmain()")
    job = prepared(run, workers=1, most=1)
    assert (project / "late").exists() is not minds
    job.send("start")
    assert job.finish()["code"] == 0


def test_workers_of_torch_wait_for_the_port_that_the_first_one_opens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", object())
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        for name, value in (("MASTER_ADDR", "127.0.0.1"), ("RANK", "1"), ("MASTER_PORT", server.getsockname()[1])):
            monkeypatch.setenv(name, str(value))
        monkeypatch.setattr(warm, "MEETING_S", 60.0)
        waiting = threading.Thread(target=warm.await_first_worker)
        waiting.start()
        time.sleep(0.05)
        assert waiting.is_alive(), "nothing listens there yet"
        server.listen()
        waiting.join(60.0)
        assert not waiting.is_alive()
        monkeypatch.setenv("RANK", "0")
        server.close()
        warm.await_first_worker()  # The first does not wait.
