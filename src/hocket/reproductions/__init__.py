"""Papers' evaluations, run again: one module a paper, each with a `REPRODUCTION`. `hocket reproduce` shows them."""

from hocket.reproductions.registry import UnknownReproduction, find, reproductions
from hocket.reproductions.reproduction import Assumption, Case, Finding, Findings, Reproduction, Request

__all__ = [
    "Assumption",
    "Case",
    "Finding",
    "Findings",
    "Reproduction",
    "Request",
    "UnknownReproduction",
    "find",
    "reproductions",
]
