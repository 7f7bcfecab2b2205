"""How busy a machine is: how long it takes to start a small process and to write a line, again and again."""

import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import TracebackType

BUSY_S = 0.2  # for a beat, which takes some 0.03 s; then the times of a run say little
_EVERY_S = 0.25


class Pulse:
    """Within, it is felt all the while; `slowest_s` is what the slowest beat took."""

    def __init__(self, folder: Path) -> None:
        self.slowest_s = 0.0
        self._path = folder / "pulse"
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._feel, daemon=True)

    def __enter__(self) -> "Pulse":
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._over.set()
        self._thread.join()

    def _feel(self) -> None:
        while not self._over.wait(_EVERY_S):
            began_s = time.monotonic()
            subprocess.run([sys.executable, "-I", "-S", "-c", "pass"], check=True)
            with self._path.open("w") as file:
                file.write("a line\n")
                file.flush()
                os.fsync(file.fileno())
            self.slowest_s = max(self.slowest_s, time.monotonic() - began_s)
