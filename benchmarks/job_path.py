"""Which source files a job passes through: `python -m benchmarks.job_path [--against FOLDER] [--list]`.

A server with a node of its own is started, and `hocket submit` hands a job to it. Counted are the files of Hocket whose
functions are called, in any process, between that command and the first line of the job's own program. To import a
module does not count, and the job's sidecar is not seen: it runs isolated (`python -I -S`).
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.machine import ROOT

_PATIENCE_S = 120.0
# Runs in every process at its start. A process notes each file once, from the moment at which the note exists.
_WATCH = """
import os, sys, threading
noted, source, note = set(), os.environ["WATCHED_SOURCE"], os.environ["WATCHED_NOTE"]
def watch(frame, event, _argument):
    code = frame.f_code
    name = code.co_filename
    if event == "call" and name not in noted and name.startswith(source) and code.co_name[0] != "<":
        if noted or os.path.exists(note):
            noted.add(name)
            with open(note, "a") as file:
                file.write(name[len(source) + 1:] + chr(10))
sys.setprofile(watch)
threading.setprofile(watch)
"""
_JOB = "import os, shutil\nshutil.copy(os.environ['WATCHED_NOTE'], os.environ['WATCHED_NOTE'] + '.at_start')\n"


def files_of_a_job(tree: Path) -> list[str]:
    """The files, relative to the tree's `src`. The tree must be installed in its `.venv`."""
    with TemporaryDirectory() as folder:
        where = Path(folder)
        note, copy, program = where / "note", where / "note.at_start", where / "job.py"
        (where / "sitecustomize.py").write_text(_WATCH)
        program.write_text(_JOB)
        environment = {
            **os.environ, "HOCKET_HOME": str(where / "home"), "PYTHONPATH": str(where), "WATCHED_NOTE": str(note),
            "WATCHED_SOURCE": str(tree / "src"),
        }  # fmt: skip

        def hocket(*words: str) -> None:
            command = [str(tree / ".venv" / "bin" / "hocket"), *words]
            subprocess.run(command, env=environment, cwd=where, check=True, stdout=subprocess.DEVNULL)

        hocket("up", "--gpus", "1", "--detach")
        try:
            note.touch()
            hocket("submit", "--", sys.executable, str(program))
            until = time.monotonic() + _PATIENCE_S
            while not copy.exists():
                if time.monotonic() > until:
                    raise TimeoutError(f"the job did not start within {_PATIENCE_S:g} s")
                time.sleep(0.05)
            return sorted(set(copy.read_text().split()))
        finally:
            hocket("down")


def main(arguments: list[str]) -> None:
    """Count for one tree or two."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.job_path", description=(__doc__ or "").split("\n\n")[1])
    parser.add_argument("--against", type=Path, metavar="FOLDER", help="another installed tree of this project")
    parser.add_argument("--list", action="store_true", help="name the files")
    chosen = parser.parse_args(arguments)
    for tree in (ROOT, chosen.against):
        if tree is not None:
            files = files_of_a_job(tree.resolve())
            print(f"{'this tree' if tree is ROOT else tree}: {len(files)} files from submission to the job's process")
            if chosen.list:
                print(*(f"  {name}" for name in files), sep="\n")


if __name__ == "__main__":
    main(sys.argv[1:])
