"""An example as it runs without interruption, in this process: PyTorch is loaded here already, which takes seconds."""

from __future__ import annotations

import io
import runpy
import signal
import sys
from contextlib import redirect_stdout, suppress
from pathlib import Path

import pytest


def printed_in_this_process(example: Path, *options: str) -> str:
    """What it prints; without a folder for checkpoints."""
    printed = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(printed):
        patch.setattr(sys, "argv", [str(example), *options])
        patch.setattr(signal, "signal", lambda *_: None)
        patch.delenv("HOCKET_CHECKPOINT_DIR", raising=False)
        patch.syspath_prepend(str(example.parent))
        with suppress(SystemExit):
            runpy.run_path(str(example), run_name="__main__")
    return printed.getvalue()
