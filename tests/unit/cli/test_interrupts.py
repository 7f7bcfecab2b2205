"""An interrupt that comes within a destructor, where Python ignores it, ends the command all the same."""

import subprocess
import sys

PROGRAM = """
import os, signal, time
from hocket.cli.terminal.interrupts import keep_interrupts

class Interrupted:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGINT)
        for _ in range(1000):  # The signal is handled in here.
            pass

if {kept}:
    keep_interrupts()
found = Interrupted()
del found
print("goes on", flush=True)
try:
    time.sleep({seconds})
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


def _printed(kept: bool, seconds: float) -> tuple[str, str]:
    program = PROGRAM.format(kept=kept, seconds=seconds)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=120)
    return done.stdout, done.stderr


def test_an_interrupt_within_a_destructor_comes_again() -> None:
    assert _printed(kept=True, seconds=100) == ("goes on\ninterrupted\n", "")


def test_python_ignores_it() -> None:
    out, err = _printed(kept=False, seconds=0.1)
    assert out == "goes on\n"
    assert "KeyboardInterrupt" in err
