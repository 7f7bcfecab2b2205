"""A job that was prepared does what it would have done cold, to the last byte of its output."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import hocket.agent.sidecar
from hocket.agent.process_tree import process

PYTHONS = {
    path.resolve(): path.name
    for version in ("3.8", "3.9", "3.10", "3.12", "3.13", "3.14")
    for path in [
        *Path.home().glob(f".pyenv/versions/{version}.*/bin/python{version}"),
        *Path("/usr/bin").glob(f"python{version}"),
    ]
}

SITUATION = """
import os, sys
print(__name__, __file__, __doc__, __package__, getattr(__spec__, "origin", None))
print(type(__loader__).__name__, getattr(__loader__, "path", None))
print(sorted(k for k in globals()), __builtins__ is sys.modules["builtins"])
print(sys.argv, sys.path, getattr(sys, "orig_argv", None), sys.flags)
print(sys.modules["__main__"].__dict__ is globals(), os.getcwd(), type(os.environ), repr(sys.stdin.read()))
print(sys.stdout.line_buffering, sys.stdout.write_through, sys.stdout.encoding, sys.excepthook is sys.__excepthook__)
print(os.environ.get("CUDA_VISIBLE_DEVICES"), os.environ.get("GIVEN"))
"""

SCRIPTS = {
    "situation": SITUATION,
    "docstring": '"""What it does."""\nimport json\nprint(__doc__, globals().get("__annotations__"))',
    "exit code": "import sys\nprint('x')\nsys.exit(7)",
    "exit message": "import sys\nsys.exit('went wrong')",
    "exit none": "raise SystemExit",
    "exception": "import json\ndef f():\n    return json.loads('{')\nf()",
    "chained exception": "try:\n    1 / 0\nexcept ZeroDivisionError as e:\n    raise KeyError('k') from e",
    "exception group": "raise Exception('a\\nb')",
    "interrupted": "raise KeyboardInterrupt",
    "excepthook": (
        "import sys, traceback\n"
        "def hook(kind, error, trace):\n"
        "    print(kind, error, traceback.extract_tb(trace), error.__traceback__ is trace)\n"
        "sys.excepthook = hook\n1 / 0"
    ),
    "syntax error": "import json\nprint('never')\ndef f(:\n",
    "two streams": "import sys\nprint('a', file=sys.stderr)\nprint('b')\nprint('c', file=sys.stderr)",
    "atexit": "import atexit\natexit.register(print, 'last')\nprint('first')\n1 / 0",
    "thread": (
        "import threading\nearly = threading.Event()\n"
        "threading.Thread(target=lambda: (early.wait(), print('late'))).start()\nprint('early')\nearly.set()"
    ),
    "pickle": (
        "import pickle\nclass Here:\n    x = 1\n"
        "print(pickle.loads(pickle.dumps(Here())).x, Here.__module__, Here, pickle.dumps(Here, 0))"
    ),
    "spawn": (
        "import multiprocessing as mp, os\n"
        "class Task:\n    def __init__(self, n): self.n = n\n"
        "def work(task): return task.n * 2, __name__, os.environ.get('GIVEN')\n"
        "if __name__ == '__main__':\n"
        "    with mp.get_context('spawn').Pool(1) as pool:\n"
        "        print(pool.map(work, [Task(1), Task(2)]))\n"
    ),
    "fork": "import os\nprint('x', flush=True)\nif os.fork():\n    os.wait()\nprint(os.getpid() == os.getsid(0))",
    "killed": "import os, signal\nprint('x', flush=True)\nos.kill(os.getpid(), signal.SIGSEGV)",
    "missing import": "import json\nimport no_such_module\nprint('never')",
    "missing name": "from json import no_such_name",
    "failing import": "import json\nimport broken\nprint('never')",
    "optional import": "try:\n    import gone\nexcept ImportError:\n    import helper as gone\nprint(gone)",
    "own modules": "import helper\nfrom pkg import sub\nprint(helper.NAME, sub.NAME)",
    "path changed": "import sys\nsys.path.insert(0, 'elsewhere')\nimport only_there\nprint(only_there.__file__)",
    "environment changed": "import os\nos.environ['LATER'] = 'set'\nimport looks\nprint(looks.LATER)",
    "frame": "import sys\nprint(sys._getframe().f_code.co_filename, sys._getframe().f_code.co_name)",
    "source": "import inspect\ndef f():\n    return 1\nprint(inspect.getsource(f))",
    "warnings": "import warnings\nwarnings.warn('careful')\nprint(1)",
    "main imported": "import looks_at_main\nprint(looks_at_main.FILE, looks_at_main.MAIN is __import__('__main__'))",
    "latin": "# -*- coding: latin-1 -*-\nprint('caf\xe9'.encode('latin-1'))",
    "printing import": "import prints\nprint('then')",
    "empty": "",
}  # fmt: skip


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder with modules that scripts import."""
    (tmp_path / "pkg").mkdir()
    (tmp_path / "elsewhere").mkdir()
    for name, text in {
        "helper.py": "NAME = __name__",
        "broken.py": "print('half way')\nraise RuntimeError('broken')",
        "looks.py": "import os\nLATER = os.environ.get('LATER')",
        "looks_at_main.py": "import __main__ as MAIN\nFILE = getattr(MAIN, '__file__', None)",
        "prints.py": "print('imported')",
        "elsewhere/only_there.py": "",
        "pkg/__init__.py": "",
        "pkg/sub.py": "NAME = __name__",
        "pkg/program.py": "from . import sub\nfrom .sub import NAME\nimport helper\nprint(NAME, helper.NAME)\n"
        + SITUATION,
        "pkg/__main__.py": "import json\n" + SITUATION + "raise SystemExit(4)",
    }.items():
        (tmp_path / name).write_text(text, encoding="latin-1")
    return tmp_path


def both(run: Any, *argv: str, **fields: Any) -> tuple[Any, Any]:
    """The same job, cold and prepared."""
    given = {"CUDA_VISIBLE_DEVICES": "3", "GIVEN": "yes"}
    cold = run(*argv, **{**fields, "env": {**fields.get("env", {}), **given}})
    warm = run(*argv, **fields, warm=True)
    warm.wait_for("prepared")
    warm.send("start", env=given)
    return cold, warm


def assert_equal(cold: Any, warm: Any) -> None:
    one, other = cold.finish(), warm.finish()
    assert warm.log() == cold.log()
    assert {k: other[k] for k in ("code", "signal", "asked", "worker")} == {
        k: one[k] for k in ("code", "signal", "asked", "worker")
    }


STAYS_COLD = {"syntax error", "failing import"}


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_does_the_same(run: Any, project: Path, name: str) -> None:
    (project / "train.py").write_text(SCRIPTS[name], encoding="latin-1")
    cold, warm = both(run, sys.executable, "train.py", "--lr", "0.1")
    assert_equal(cold, warm)
    assert cold.log() or name in ("empty", "exit none")
    assert warm.events("started")[0]["warm"] is (name not in STAYS_COLD)
    assert not warm.events("warning")


@pytest.mark.parametrize(
    "options", [["-u"], ["-O", "-B"], ["-I"], ["-E", "-s"], ["-P"], ["-W", "error", "-X", "utf8"], ["-S"]], ids=" ".join
)
def test_options_of_python_hold(run: Any, project: Path, options: list[str]) -> None:
    (project / "train.py").write_text(SITUATION + "assert False")
    cold, warm = both(run, sys.executable, *options, "train.py")
    assert_equal(cold, warm)
    assert warm.events("started")[0]["warm"]


@pytest.mark.parametrize("module", ["pkg.program", "pkg", "helper", "no_such_module", "pkg.none"])
@pytest.mark.usefixtures("project")
def test_a_module_does_the_same(run: Any, module: str) -> None:
    cold, warm = both(run, sys.executable, "-u", "-m", module, "x")
    assert_equal(cold, warm)
    assert warm.events("started")[0]["warm"] is (not module.endswith(("no_such_module", "none")))


@pytest.mark.parametrize("python", [str(p) for p in PYTHONS], ids=list(PYTHONS.values()))
def test_other_pythons_do_the_same(run: Any, project: Path, python: str) -> None:
    (project / "train.py").write_text(SCRIPTS["own modules"] + SITUATION + "import broken")
    cold, warm = both(run, python, "train.py")
    assert_equal(cold, warm)
    assert warm.events("started")[0]["warm"]


def test_a_script_reached_by_a_link_has_its_real_folder(run: Any, project: Path) -> None:
    (project / "elsewhere" / "real.py").write_text("import only_there\n" + SITUATION)
    (project / "link.py").symlink_to("elsewhere/real.py")
    assert_equal(*both(run, sys.executable, "link.py"))


def test_a_script_that_is_edited_meanwhile_runs_as_it_is_then(run: Any, project: Path) -> None:
    (project / "train.py").write_text("import json\nprint('old')")
    job = run(sys.executable, "train.py", warm=True)
    job.wait_for("prepared")
    (project / "train.py").write_text("import json\nprint('new, and longer')")
    job.send("start")
    job.finish()
    assert job.log() == "new, and longer\n"


# -- standing before main -----------------------------------------------------------------------------------


def test_imports_are_done_beforehand_and_nothing_of_the_script_itself(run: Any, project: Path) -> None:
    (project / "stamps.py").write_text("open('imported', 'w')")
    (project / "train.py").write_text("import stamps\nopen('ran', 'w')\nprint('ran')")
    job = run(sys.executable, "train.py", warm=True)
    event = job.wait_for("prepared")
    assert event.items() >= {"warm": True, "reason": None, "left_from_line": None}.items()
    assert event["mem_mib"] > 5
    assert (project / "imported").exists()
    assert not (project / "ran").exists()
    assert not job.events("started")
    job.send("start")
    job.finish()
    assert job.events("started")[0]["pids"] == event["pids"]
    assert (project / "ran").exists()


@pytest.mark.parametrize(
    ("script", "done", "left"),
    [
        ("import a\nfrom b import x\nfrom pkg import c, nothing\n", "abc", None),
        ('"""Doc."""\nfrom __future__ import annotations\nN = 3\nX: int = 4\ndef f(): import b\nimport a\n', "a", None),
        ("try:\n    import a\nexcept ImportError:\n    a = None\nimport b\n", "ab", None),
        ("try:\n    import gone\nexcept ImportError:\n    import a\nelse:\n    import b\n", "a", None),
        ("if __name__ == '__main__':\n    import a\n", "a", None),
        ("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import a\nelse:\n    import b\n", "b", None),
        ("import sys\nif sys.version_info >= (3, 8):\n    import a\nelse:\n    import b\n", "a", None),
        ("import os\nif os.environ.get('BIG'):\n    import a\n", "", 3),
        ("import logging, os.path\nlog = logging.getLogger()\nHERE = os.path.dirname(__file__)\nimport a\n", "a", None),
        ("import os\nimport a\nos.environ['X'] = '1'\nimport b\n", "a", 4),
        ("import sys\nsys.path.append('x')\nimport a\n", "", 3),
        ("import a\nprint('x')\nif 1:\n    import b\n", "a", 4),
        ("import a\nwith open('x') as f: pass\nimport b\n", "a", 3),
        ("import a\nimport gone\nimport b\n", "a", 2),
    ],
)  # fmt: skip
def test_which_imports_are_done(run: Any, project: Path, script: str, done: str, left: int | None) -> None:
    for name in ("a", "b", "pkg/c"):
        (project / f"{name}.py").write_text("x = open(__name__[-1] + '.done', 'w')")
    (project / "train.py").write_text(script)
    job = run(sys.executable, "train.py", warm=True, env={"PYTHONWARNINGS": "ignore"})
    event = job.wait_for("prepared")
    assert event["warm"], event
    assert "".join(sorted(p.name[0] for p in project.glob("*.done"))) == done
    assert event["left_from_line"] == left
    job.send("stop")
    job.finish()


def test_a_start_that_comes_too_early_waits_for_the_imports(run: Any, project: Path) -> None:
    (project / "slow.py").write_text("import os, time\nwhile not os.path.exists('go'): time.sleep(0.01)")
    (project / "train.py").write_text("import slow\nprint('ran')")
    job = run(sys.executable, "train.py", warm=True)
    job.send_when_up("start")
    (project / "go").touch()
    assert job.finish()["code"] == 0
    assert job.story() == ["prepared", "started", "exited"]
    assert job.events("started")[0]["warm"]


def test_devices_cannot_be_seen_before_the_hand_over_and_can_after(run: Any, project: Path) -> None:
    (project / "c_code.py").write_text(
        "SEEN = dict(e.split('=', 1) for e in open('/proc/self/environ').read().split('\\0')[:-1])"
    )
    (project / "train.py").write_text(
        "import os\nimport c_code\nprint(repr(c_code.SEEN['CUDA_VISIBLE_DEVICES']), os.environ['CUDA_VISIBLE_DEVICES'])"
    )
    job = run(sys.executable, "train.py", warm=True, env={"CUDA_VISIBLE_DEVICES": "7"})
    job.wait_for("prepared")
    job.send("start", env={"CUDA_VISIBLE_DEVICES": "0,1"})
    job.finish()
    assert job.log() == "'' 0,1\n"


def test_without_devices_given_the_variable_is_unset_again(run: Any, project: Path) -> None:
    (project / "train.py").write_text("import os\nprint(os.environ.get('CUDA_VISIBLE_DEVICES'))")
    job = run(sys.executable, "train.py", warm=True)
    job.wait_for("prepared")
    job.send("start")
    job.finish()
    assert job.log() == "None\n"


# -- what cannot be prepared starts cold --------------------------------------------------------------------


def ended_cold(job: Any, **env: str) -> str:
    """Start it; why it started cold."""
    event = job.wait_for("prepared")
    job.send("start", env=env)
    assert job.finish()["code"] == 0
    assert not job.events("started")[0]["warm"]
    reason = event["reason"] or job.events("warning")[0]["about"]
    assert isinstance(reason, str)
    return reason


def test_what_is_no_python_starts_cold(run: Any) -> None:
    job = run("echo", "hello", warm=True)
    assert ended_cold(job).startswith("it is not a Python program")
    assert job.log() == "hello\n"


def test_an_import_that_ran_in_part_does_not_run_twice_in_one_process(run: Any, project: Path) -> None:
    (project / "needs_rank.py").write_text("import os\nprint('half')\nRANK = os.environ['GIVEN']\nprint('whole')")
    (project / "train.py").write_text("import needs_rank")
    job = run(sys.executable, "train.py", warm=True)
    assert ended_cold(job, GIVEN="1") == "import of 'needs_rank' raised KeyError('GIVEN')"
    assert job.log() == "half\nwhole\n"


def test_imports_that_looked_at_what_changes_are_done_again(run: Any, project: Path) -> None:
    (project / "world.py").write_text("import os\nSIZE = os.environ.get('WORLD', '1')")
    (project / "train.py").write_text("import world\nprint(world.SIZE)")
    same = run(sys.executable, "train.py", warm=True, env={"WORLD": "4"})
    other = run(sys.executable, "train.py", warm=True, env={"WORLD": "4"})
    same.wait_for("prepared")
    same.send("start", env={"WORLD": "4"})
    same.finish()
    assert (same.log(), same.events("started")[0]["warm"]) == ("4\n", True)
    assert (
        ended_cold(other, WORLD="8")
        == "what was prepared starts cold: its imports looked at WORLD, which is another now"
    )
    assert other.log() == "8\n"


def test_going_through_the_whole_environment_is_no_interest_in_one_variable(run: Any, project: Path) -> None:
    (project / "sweeps.py").write_text(
        "import os\n"
        "MINE = {k: v for k, v in os.environ.items() if k.startswith('SWEEPS_')}\n"
        "COPY, OTHER, NAMES = dict(os.environ), os.environ.copy(), list(os.environ)\n"
        "import subprocess\n"
        "subprocess.run(['true'])\n"  # which looks for PATH as bytes, too
    )
    (project / "train.py").write_text("import sweeps\nimport os\nprint(os.environ['GIVEN'], type(os.environ).__name__)")
    job = run(sys.executable, "train.py", warm=True, env={"GIVEN": "before"})
    job.wait_for("prepared")
    job.send("start", env={"GIVEN": "after"})
    job.finish()
    assert (job.log(), job.events("started")[0]["warm"]) == ("after _Environ\n", True)


def test_variables_that_c_libraries_read_when_loaded_must_not_change(run: Any, project: Path) -> None:
    (project / "train.py").write_text("import os\nprint(os.environ['OMP_NUM_THREADS'])")
    job = run(sys.executable, "train.py", warm=True, env={"OMP_NUM_THREADS": "2"})
    assert "OMP_NUM_THREADS counts from the start" in ended_cold(job, OMP_NUM_THREADS="4")
    assert job.log() == "4\n"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("import os\nif os.environ.get('GIVEN') is None: os._exit(9)", "exit code 9"),
        ("import os\nif os.environ.get('GIVEN') is None: os.kill(os.getpid(), 11)", "SIGSEGV"),
        ("import os, sys\nif os.environ.get('GIVEN') is None: sys.exit(9)", "raised SystemExit(9)"),
        ("import os\nif os.environ.get('GIVEN') is None: os.closerange(3, 100)", "exit code 1"),
    ],
)
def test_a_job_whose_preparation_dies_starts_cold(run: Any, project: Path, text: str, why: str) -> None:
    (project / "deadly.py").write_text(f"{text}\nprint('imported')\n")
    (project / "train.py").write_text("import deadly\nprint('ran')")
    job = run(sys.executable, "train.py", warm=True)
    assert why in ended_cold(job, GIVEN="1")
    assert job.log() == "imported\nran\n", "what preparing printed is dropped with it"


def test_a_job_whose_imports_asked_the_gpu_driver_starts_cold(run: Any, project: Path) -> None:
    # The driver cannot be here, but the thread that it keeps once it was asked can.
    (project / "asks.py").write_text(
        "import threading\n"
        "thread = threading.Thread(target=threading.Event().wait, daemon=True)\n"
        "thread.start()\n"
        "open(f'/proc/self/task/{thread.native_id}/comm', 'w').write('cuda00001400006')\n"
    )
    (project / "train.py").write_text("import asks\nprint('ran')")
    assert ended_cold(run(sys.executable, "train.py", warm=True)) == "its imports look for GPUs"


def test_a_job_that_takes_too_long_to_prepare_starts_cold(run: Any, project: Path) -> None:
    (project / "slow.py").write_text("import os, time\nwhile 'GIVEN' not in os.environ: time.sleep(0.01)")
    (project / "train.py").write_text("import slow\nprint('ran')")
    job = run(sys.executable, "train.py", warm=True, prepare_limit_s=0.3)
    assert ended_cold(job, GIVEN="1") == "it was not ready within 0.3 s"
    assert job.log() == "ran\n"


def test_a_job_that_holds_too_much_memory_prepared_starts_cold(run: Any, project: Path) -> None:
    (project / "big.py").write_text("HELD = bytearray(b'x' * (64 << 20))")
    (project / "train.py").write_text("import big\nprint('ran')")
    job = run(sys.executable, "train.py", warm=True, warm_limit_mib=40)
    reason = ended_cold(job)
    assert reason.startswith("prepared it holds ")
    assert reason.endswith(" MiB of memory, and may hold 40")
    job = run(sys.executable, "train.py", warm=True, warm_limit_mib=400)
    assert job.wait_for("prepared")["warm"]


def test_what_dies_while_it_stands_ready_starts_cold(run: Any, project: Path) -> None:
    (project / "train.py").write_text("import json\nprint('ran')")
    job = run(sys.executable, "train.py", warm=True)
    os.kill(job.wait_for("prepared")["pids"][0], 9)
    assert job.wait_for("warning")["about"] == "what was prepared starts cold: preparing it ended with SIGKILL"
    job.send("start")
    assert job.finish()["code"] == 0
    assert not job.events("started")[0]["warm"]


def test_a_python_that_does_not_exist_is_told_when_it_starts(run: Any) -> None:
    job = run("/no/such/python3", "train.py", warm=True)
    assert not job.wait_for("prepared")["warm"]
    job.send("start")
    assert job.wait_for("cannot-start")["reason"].startswith("command '/no/such/python3' cannot be started: ")


# -- ending what never started ------------------------------------------------------------------------------


@pytest.mark.parametrize("order", ["stop", "kill"])
def test_a_prepared_job_can_be_given_up(run: Any, project: Path, until: Any, order: str) -> None:
    (project / "train.py").write_text("import json\nopen('ran', 'w')")
    job = run(sys.executable, "train.py", warm=True)
    pids = job.wait_for("prepared")["pids"]
    job.send(order)
    end = job.finish()
    assert (end["code"], end["signal"], end["asked"], end["ran_s"]) == (None, None, True, 0)
    assert not (project / "ran").exists()
    until(lambda: process(pids[0]) is None)


def test_what_stands_ready_dies_with_its_sidecar(run: Any, project: Path, until: Any) -> None:
    (project / "train.py").write_text("import json\nopen('ran', 'w')")
    job = run(sys.executable, "train.py", warm=True)
    pids = job.wait_for("prepared")["pids"]
    job.sidecar.kill()
    until(lambda: process(pids[0]) is None)
    assert not (project / "ran").exists()


def test_files_of_ours_are_never_taken_for_pythons(project: Path) -> None:
    package = project / "copy" / "hocket" / "agent" / "sidecar"
    shutil.copytree(Path(hocket.agent.sidecar.__file__).parent, package)
    for name in ("ast", "json", "types", "token"):
        (package / f"{name}.py").write_text("raise ImportError('shadowed')")
    (project / "train.py").write_text("import tokenize\nprint('ran')")
    command = [sys.executable, str(package / "warm.py"), "0,2", "train.py"]
    go = b'[{"set": {}, "unset": []}]\n'
    done = subprocess.run(command, cwd=project, input=go, capture_output=True, timeout=120)
    assert done.stdout == b"ran\n", done.stderr
