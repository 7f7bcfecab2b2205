"""The command line of a program that lets things fail at random for a while."""

import argparse
import random
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path


def chaos_command(module: str, about: str, run: Callable[[Path, float, int], object]) -> None:
    """Run it in a folder of its own, which is kept if something is wrong."""
    parser = argparse.ArgumentParser(prog=f"python -m tests.live.{module}", description=about.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=random.randrange(10_000))
    options = parser.parse_args()
    root = Path(tempfile.mkdtemp(prefix="hocket-chaos-"))
    print(f"seed {options.seed}, folder {root}", flush=True)
    try:
        run(root, options.seconds, options.seed)
    except AssertionError as error:
        sys.exit(f"{error}\nThe folder is kept: {root}")
    shutil.rmtree(root)
