"""A scenario as a worker plays it: what `compare` sends to other processes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from msgspec import Struct

from hocket.cli.scenario import Scenario
from hocket.reports.comparison import ComparedRun

_EVERY_S = 0.25


class ScenarioRun(Struct, frozen=True):
    """One run, and perhaps its figures."""

    scenario: Scenario
    plots: str | None = None  # folder

    @property
    def label(self) -> str:
        """As a failure names it."""
        return f"policy '{self.scenario.policy}'"

    def carry_out(self, began: Callable[[int], None], progressed: Callable[[int], None]) -> ComparedRun:
        """Play it; a step is a job that is over."""
        from hocket.cli.policy_fault import blaming
        from hocket.cli.refusal import refusing
        from hocket.cli.scenario import staged
        from hocket.cli.watch import every
        from hocket.control.journal import MemoryJournal
        from hocket.reports.comparison import compared_run
        from hocket.reports.simulation import ended_in, run_simulation

        with refusing():
            setup = staged(self.scenario)
        began(len(setup.workload.submissions))
        journal = MemoryJournal(setup.header)
        counted = ended = 0

        def tell() -> None:
            nonlocal counted, ended
            now = len(journal.cycles)
            ended += ended_in(journal.cycles, counted, now)
            counted = now
            progressed(ended)

        with every(_EVERY_S, tell), blaming(setup.policy):
            run = run_simulation(setup, journal)
        if self.plots is not None:
            from hocket.reports.plots import plot_run

            plot_run(run.account, Path(self.plots))
        return compared_run(self.scenario.policy, run.account, run.summary, run.stuck)
