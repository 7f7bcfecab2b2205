"""Figures in one style, written as PNG and SVG. The same input gives the same bytes.

matplotlib is imported only when a figure is drawn, since it is slow to import.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@contextmanager
def drawing() -> Iterator[Callable[[tuple[float, float]], Figure]]:
    """A factory for figures in this style; no window is opened."""
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
    """Write a figure as PNG and SVG."""
    folder.mkdir(parents=True, exist_ok=True)
    return [save_as(sheet, folder / f"{name}.{kind}") for kind in KINDS]


def save_as(sheet: Figure, path: Path) -> Path:
    """Write a figure as what its file's name ends in, under a temporary name first, so that no file is half-written."""
    kind = path.suffix.removeprefix(".")
    part = path.with_name(f".{path.name}.part")
    # Without dates and versions the same run gives the same bytes.
    metadata = {"Date": None, "Creator": "hocket"} if kind == "svg" else {"Software": None}
    try:
        sheet.savefig(part, format=kind, metadata=metadata)
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)
    return path


KINDS = ("png", "svg")
# Okabe and Ito's, ordered so that neighbours differ in lightness too; black is left to axes and text.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#8C6BB1", "#B8A800")
DASHES = ("-", "--", "-.", ":")  # a second cue, for grey prints and beyond eight lines

STYLE: dict[str, Any] = {
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.labelcolor": "#333333",
    "axes.edgecolor": "#888888",
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "figure.constrained_layout.use": True,
    "figure.dpi": 150,
    "font.family": "DejaVu Sans",  # ships with matplotlib: the same figure on all machines
    "font.size": 9.5,
    "grid.color": "#DDDDDD",
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "lines.linewidth": 1.8,
    "svg.fonttype": "path",
    "svg.hashsalt": "hocket",  # or ids in SVG files differ from run to run
    "xtick.color": "#555555",
    "ytick.color": "#555555",
}


def colour(n: int) -> str:
    """The n-th colour; they repeat."""
    return COLOURS[n % len(COLOURS)]


def dash(n: int) -> str:
    """The n-th line style: it changes when the colours have all been used."""
    return DASHES[n // len(COLOURS) % len(DASHES)]


def ink_on(background: str) -> str:
    """White, or near black where that reads better."""
    red, green, blue = (int(background[i : i + 2], 16) / 255 for i in (1, 3, 5))
    return "white" if 0.299 * red + 0.587 * green + 0.114 * blue < 0.55 else "#222222"
