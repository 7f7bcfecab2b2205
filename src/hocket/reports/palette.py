"""Colours that the colour-blind can tell apart, and the look that all figures share."""

from __future__ import annotations

from typing import Any

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
    "font.family": "DejaVu Sans",  # ships with matplotlib: the same picture everywhere
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
