"""A controller that is started in any folder: what lies there is neither run nor taken for a part of Python."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.live.processes import end_all

TRAP = "from pathlib import Path\nPath(__file__).with_suffix('.was-run').touch()\nraise SystemExit('the wrong one')\n"


@pytest.mark.slow
def test_what_lies_where_it_is_started_is_not_run(tmp_path: Path) -> None:
    folder = tmp_path / "here"
    folder.mkdir()
    for name in ("random", "queue", "hocket", "uvicorn"):
        (folder / f"{name}.py").write_text(TRAP)
    env = {**os.environ, "HOCKET_HOME": str(tmp_path / "home")}

    def hocket(*words: str) -> None:
        command = [sys.executable, "-P", "-m", "hocket", *words]  # -P: as the command `hocket` is.
        done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, done.stderr

    try:
        hocket("up", "--detach", "--gpus", "1")
        hocket("submit", "--wait", "--", "true")
        hocket("down", "--grace", "1s")
    finally:
        end_all(tmp_path)
    assert [path.name for path in folder.glob("*.was-run")] == []
