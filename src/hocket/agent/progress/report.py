"""`hocket.report(epoch=3, acc=0.91)`, `hocket.report(step=200, loss=0.3)`: a training script says how far it is.

Outside Hocket the call does nothing, so the script runs the same everywhere.
"""

from __future__ import annotations

import os

from hocket.agent.progress.metrics import STEP, metric_name

TYPE_CHECKING = False  # `typing` would be loaded into every training script that imports hocket.
if TYPE_CHECKING:
    from typing import SupportsFloat

_LONGEST = 4096  # bytes that the kernel never mixes with another process's
_complained = False


def report(epoch: SupportsFloat | None = None, *, step: SupportsFloat | None = None, **metrics: SupportsFloat) -> None:
    """Say that an epoch is over, and its metrics; of a fraction such as 1.5, that it is half-way.

    A program without epochs says so many steps are done instead, with the metrics at that step.
    Count from 0 or from 1, as you like. Numbers of any kind will do, those of NumPy and one-element tensors too; what
    is none is left out. Where several processes train together, call it in one of them. It never waits and never
    raises: if nothing listens, or nothing has for long, the report is lost.
    """
    path = os.environ.get("HOCKET_REPORT")
    if not path:
        return
    try:
        texts = {name: _text(name, value) for name, value in metrics.items()}
        lines = _lines(
            "" if epoch is None else _text("epoch", epoch), "" if step is None else _text("step", step), texts
        )
        # Opened each time, because the script may close or fork what it likes in between; for reading too, so that
        # there is always a reader, and no SIGPIPE.
        channel = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_APPEND | os.O_CLOEXEC)
        try:
            for line in lines:
                os.write(channel, line)
        finally:
            os.close(channel)
    except (OSError, ValueError):
        return


def _lines(epoch: str, step: str, texts: dict[str, str]) -> list[bytes]:
    """As many lines as are needed: all of one epoch, or step, are one report."""
    if not epoch and not step:
        return []
    count = (f"{epoch or '-'}\t{STEP}={step}" if step else epoch).encode()
    lines = [count]
    for name, text in texts.items():
        known_as = metric_name(name)
        pair = f"\t{known_as}={text}".encode() if known_as and text else b""
        if len(lines[-1]) + len(pair) + 1 > _LONGEST:
            lines.append(count)
        lines[-1] += pair
    return [line + b"\n" for line in lines]


def _text(name: str, value: SupportsFloat) -> str:
    """The number, exactly; empty if it is none."""
    try:
        detach = getattr(value, "detach", None)  # Torch warns of tensors that are still part of a graph.
        return repr(float(value if detach is None else detach()))
    except Exception as error:  # A tensor may raise anything; training must not end for it.
        global _complained
        if not _complained:
            _complained = True
            os.write(2, f"hocket.report: {name} must be a number, not {type(value).__name__} ({error})\n".encode())
        return ""
