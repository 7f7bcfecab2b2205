"""Assignments are carried out in processes of their own."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest
from msgspec import Struct

from hocket.cli.simulation.worker_pool import Done, Progressed, run_all


class Prints(Struct, frozen=True):
    """An assignment whose libraries print what no user asked for."""

    label: str

    def carry_out(self, began: Callable[[int], None], progressed: Callable[[int], None]) -> str:
        began(1)
        os.write(1, b"a line of a solver\n")
        progressed(1)
        return self.label.upper()


def test_what_a_worker_prints_does_not_stand_between_results(capfd: pytest.CaptureFixture[str]) -> None:
    reports = []
    assert run_all([Prints("a"), Prints("b")], 2, lambda n, report: reports.append((n, report))) == ["A", "B"]
    assert {(0, Done("A")), (1, Done("B")), (0, Progressed(1))} <= set(reports)
    printed = capfd.readouterr()
    assert (printed.out, printed.err.count("a line of a solver")) == ("", 2)
