"""Figures that no window ever shows, in our style, as PNG and SVG. The same input gives the same bytes.

matplotlib is imported when a figure is drawn: no command pays for it otherwise.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from hocket.reports.palette import STYLE

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@contextmanager
def drawing() -> Iterator[Callable[[tuple[float, float]], Figure]]:
    """Figures in our style that no window ever shows."""
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    def figure(size: tuple[float, float]) -> Figure:
        sheet = Figure(figsize=size)
        FigureCanvasAgg(sheet)
        return sheet

    with matplotlib.rc_context(STYLE):  # type: ignore[arg-type,unused-ignore]  # newer stubs list every key
        yield figure


def save(sheet: Figure, folder: Path, name: str) -> list[Path]:
    """Write a figure as PNG and SVG, each under another name first: nobody finds half of one."""
    files = []
    folder.mkdir(parents=True, exist_ok=True)
    for kind in ("png", "svg"):
        path = folder / f"{name}.{kind}"
        part = folder / f".{name}.{kind}.part"
        # Without dates and versions the same run gives the same bytes.
        metadata = {"Date": None, "Creator": "hocket"} if kind == "svg" else {"Software": None}
        try:
            sheet.savefig(part, format=kind, metadata=metadata)
            os.replace(part, path)
        finally:
            part.unlink(missing_ok=True)
        files.append(path)
    return files
