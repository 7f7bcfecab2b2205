"""Jobs whose code is sent along: a working directory and packages of pip, on a node that has neither."""

from pathlib import Path
from zipfile import ZipFile

import pytest
from tests.live.agent import LiveAgent
from tests.live.controller import LiveController, awaited
from tests.live.processes import below

from hocket.agent import bundle


@pytest.fixture(scope="module")
def controller(tmp_path_factory):
    """A controller with one agent, which is not on its machine as far as files go."""
    root = tmp_path_factory.mktemp("code")
    with (
        LiveController(root, "--no-agent", "--policy", "fifo") as controller,
        LiveAgent(controller, "far", "--gpus", "2") as agent,
    ):
        controller.begin()
        agent.begin()
        controller.agent = agent
        yield controller
        controller.down(grace_s=0.0)


def ended(controller, name: str) -> dict:
    awaited(lambda: controller.jobs()[name]["state"] in ("finished", "failed"), f"job '{name}' is over")
    return controller.jobs()[name]


def wheel(path: Path, name: str, value: int) -> None:
    """A package as pip installs it, without an index."""
    info = f"{name}-1.0.dist-info"
    with ZipFile(path / f"{name}-1.0-py3-none-any.whl", "w") as file:
        file.writestr(f"{name}.py", f"VALUE = {value}\n")
        file.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        file.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        file.writestr(f"{info}/RECORD", "")


def made(controller) -> set[str]:
    """What the agent has made of working directories and packages."""
    folder = controller.agent.state / "code"
    return {path.name for path in folder.iterdir()} if folder.exists() else set()


def test_a_job_runs_in_its_folder_and_with_its_packages_where_neither_was(controller, tmp_path):
    before, here = made(controller), tmp_path / "project"
    (here / "lib").mkdir(parents=True)
    (here / "lib" / "mine.py").write_text("NAME = 'first'\n")
    (here / "data.tmp").write_text("stays here")
    (here / ".hocketignore").write_text("*.tmp\n")
    wheel(here, "hocket_probe", 42)
    (here / "requirements.txt").write_text("# ours\n./hocket_probe-1.0-py3-none-any.whl\n")
    program = "import os, hocket_probe, msgspec; from lib import mine; print(mine.NAME, hocket_probe.VALUE)"
    program += "; print(*sorted(os.listdir()))"
    (here / "train.py").write_text(program)
    options = ("--working-dir", ".", "--pip", "requirements.txt", "--gpus", "0")
    words = ("submit", "--name", "first", *options, "--", "python", "train.py")
    controller.types(*words, folder=here)
    (here / "lib" / "mine.py").write_text("NAME = 'changed later'\n")
    assert ended(controller, "first")["state"] == "finished", controller.types("logs", "first").stdout
    expected = "first 42\n.hocketignore hocket_probe-1.0-py3-none-any.whl lib requirements.txt train.py"
    assert expected in controller.types("logs", "first").stdout
    # What changed is another bundle; what did not is not built again.
    wheel_free = ("submit", "--name", "second", "--working-dir", str(here), "--gpus", "0", "--", "python", "-c")
    controller.types(*wheel_free, "from lib import mine; print(mine.NAME)")
    assert ended(controller, "second")["state"] == "finished"
    assert "changed later" in controller.types("logs", "second").stdout
    assert len(made(controller) - before) == 2


def test_a_pip_environment_that_does_not_build_fails_the_job_with_pips_own_words(controller, tmp_path):
    (tmp_path / "torn-1.0-py3-none-any.whl").write_bytes(b"no wheel")
    options = ("--gpus", "0", "--retries", "0", "--working-dir", ".", "--pip", "./torn-1.0-py3-none-any.whl")
    words = ("submit", "--name", "unbuilt", *options)
    controller.types(*words, "--", "true", folder=tmp_path)
    job = ended(controller, "unbuilt")
    assert job["state"] == "failed"
    assert "its pip environment cannot be built: ERROR: " in job["reason"]
    assert "torn-1.0-py3-none-any.whl" in job["reason"]


def test_a_job_that_is_stopped_while_its_code_is_made_never_starts(controller, tmp_path):
    (tmp_path / "setup.py").write_text("import time; time.sleep(600)")
    words = ("submit", "--name", "stopped", "--gpus", "0", "--working-dir", str(tmp_path), "--pip", "./", "--", "true")
    controller.types(*words)
    log = controller.agent.log
    awaited(lambda: "waits for its working directory or packages" in log.read_text(), "its code is made")
    controller.types("stop", "stopped")
    awaited(lambda: controller.jobs()["stopped"]["state"] == "stopped", "it is stopped")
    awaited(lambda: not [p for p in below(controller.agent.state) if "pip install" in p.command], "pip is ended")


def test_a_folder_that_is_too_large_is_refused_and_nothing_is_sent(controller, tmp_path):
    large = tmp_path / "data"
    large.mkdir()
    with (large / "weights.bin").open("wb") as file:
        file.truncate(bundle.MOST_BYTES + (1 << 20))
    said = controller.types("submit", "--working-dir", str(tmp_path), "--", "true", code=2).stderr
    assert said.count("\n") == 1
    assert "must have at most 512 MiB" in said
    assert "most of it is 'data/', with 513 MiB" in said
    assert ".hocketignore" in said


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (("--working-dir", "nowhere"), "must be a folder"),
        (("--working-dir", ".", "--cwd", "/"), "must not be given with working_dir"),
        (("--pip", "missing.txt"), "cannot: No such file or directory"),
        (("--pip", "./mine"), "must name no file without working_dir"),
    ],
)
def test_what_cannot_be_sent_along_is_refused_in_one_line(controller, tmp_path, options, expected):
    said = controller.types("submit", *options, "--", "true", code=2, folder=tmp_path).stderr
    assert said.count("\n") == 1
    assert expected in said


def test_a_bundle_that_was_not_uploaded_or_is_damaged_is_refused(controller):
    digest = "0" * 64
    jobs = {"jobs": [{"id": "lacking", "command": ["true"], "working_dir": digest}]}
    (answer,) = controller.call("POST", "/v1/jobs", jobs)["jobs"]
    lacks = f"working_dir must be a bundle that was uploaded, and {digest[:12]} was not"
    assert answer["refused"] == f"job 'lacking': {lacks}"
    with pytest.raises(ValueError, match="are not those that its name says"):
        controller.call("PUT", f"/v1/bundles/{digest}/0?size=4", 1234)
    assert not list((controller.home / "bundles").glob("*.part"))
