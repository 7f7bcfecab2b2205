"""`hocket reproduce`: evaluations of papers, which come from other packages."""

from hocket.reproductions.reproduction import (
    Assumption,
    Case,
    Finding,
    Findings,
    Gap,
    Reproduction,
    Request,
    Results,
    UnknownReproduction,
    find,
    reproductions,
)

__all__ = [
    "Assumption",
    "Case",
    "Finding",
    "Findings",
    "Gap",
    "Reproduction",
    "Request",
    "Results",
    "UnknownReproduction",
    "find",
    "reproductions",
]
