"""A case of a paper's evaluation as a worker plays it: what `reproduce` sends to other processes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import Struct

from hocket.reproductions import Case, find


class CaseRun(Struct, frozen=True):
    """One case of one reproduction."""

    reproduction: str
    case: Case

    @property
    def label(self) -> str:
        """As a failure names it."""
        return f"case '{self.case.title}'"

    def carry_out(self, began: Callable[[int], None], progressed: Callable[[int], None]) -> Any:
        """Play it."""
        from hocket.cli.refusal import refusing

        with refusing():
            chosen = find(self.reproduction)
        return chosen.play(self.case, began, progressed)
