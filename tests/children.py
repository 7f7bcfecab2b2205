"""Processes that tests start, and that end with them: a test that fails leaves nothing behind, and fails alone."""

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any


@contextmanager
def child(command: Sequence[str], **options: Any) -> Iterator[subprocess.Popen[Any]]:
    """A process; when we are done with it, or something went wrong, it is killed if it lives, and waited for."""
    with subprocess.Popen(command, **options) as process:  # which closes its pipes, too
        try:
            yield process
        finally:
            process.kill()
