"""`hocket.ray.submit`: commands and functions from a Python program, which need no Ray cluster."""

import os
import subprocess
import sys

from tests.live.controller import running

PROGRAM = """
import os
import sys
from hocket.ray import SubmissionError, submit

factor = 7

def multiplied(number):
    import helper
    assert "HOCKET_CHECKPOINT_DIR" in os.environ
    return f"answer {helper.doubled(number) * factor}"

def broken():
    raise RuntimeError("on purpose")

jobs = [
    submit(multiplied, 3, name="function", gpus=1, working_dir="."),
    submit([sys.executable, "-c", "print('a command')"], name="command", gpus=1),
    submit(broken, name="broken", gpus=0, retries=0),
]
print([job.wait() for job in jobs], jobs[0].state)
for wrong in ({"gpus": 9}, {"gpu": 1}, {"working_dir": "nowhere"}):
    try:
        submit("true", **wrong)
    except SubmissionError as error:
        print("refused:", error)
"""


def test_functions_and_commands_are_submitted_from_a_program(tmp_path):
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "helper.py").write_text("def doubled(x):\n    return 2 * x\n")
    with running(tmp_path / "root", "--gpus", "2", "--policy", "fifo") as controller:
        env = {**os.environ, "HOCKET_HOME": str(controller.home)}
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM], cwd=tmp_path / "here", env=env, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        lines = done.stdout.splitlines()
        assert lines[0] == "['finished', 'finished', 'failed'] finished"
        assert lines[1].startswith("refused: job ")
        assert lines[2] == "refused: gpu is no option of a job"
        assert lines[3].startswith("refused: working_dir must be a folder, and ")
        assert "answer 42" in controller.types("logs", "function").stdout
        assert "on purpose" in controller.types("logs", "broken").stdout
