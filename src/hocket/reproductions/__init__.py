"""What `hocket reproduce` runs: evaluations of papers, which other packages bring along."""

from hocket.reproductions.reproduction import (
    Assumption,
    Case,
    Finding,
    Findings,
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
    "Reproduction",
    "Request",
    "Results",
    "UnknownReproduction",
    "find",
    "reproductions",
]
