"""A case of a paper's evaluation as a worker plays it: what `reproduce` sends to other processes."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from hocket.reproductions import Case, find
from hocket.reproductions.results_file import CaseResult, own_sources


class CaseRun(Struct, frozen=True):
    """One case of one reproduction."""

    reproduction: str
    case: Case

    @property
    def label(self) -> str:
        """As a failure names it."""
        return f"case '{self.case.title}'"

    def carry_out(self, began: Callable[[int], None], progressed: Callable[[int], None]) -> CaseResult:
        """Play it. The sources may have changed since the command began: this process says which it runs."""
        from hocket.cli.terminal.errors import refusing

        with refusing():
            chosen = find(self.reproduction)
        sources = own_sources(chosen)
        return CaseResult(chosen.run(self.case, began, progressed), sources)
