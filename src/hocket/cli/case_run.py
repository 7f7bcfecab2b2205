"""A case of a paper's evaluation as a worker plays it: what `reproduce` sends to other processes."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from hocket.reproductions import Case, find
from hocket.reproductions.digests import our_sources
from hocket.reproductions.kept import Made


class CaseRun(Struct, frozen=True):
    """One case of one reproduction."""

    reproduction: str
    case: Case

    @property
    def label(self) -> str:
        """As a failure names it."""
        return f"case '{self.case.title}'"

    def carry_out(self, began: Callable[[int], None], progressed: Callable[[int], None]) -> Made:
        """Play it. The sources may have changed since the command began: this process says which it runs."""
        from hocket.cli.refusal import refusing

        with refusing():
            chosen = find(self.reproduction)
        sources = our_sources()
        return Made(chosen.play(self.case, began, progressed), sources)
