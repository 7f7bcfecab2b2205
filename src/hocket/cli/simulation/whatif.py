"""`hocket whatif JOURNAL --policy P`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hocket.cli.options import AsJson, Everything, Params, Plots, policy_names

if TYPE_CHECKING:
    from hocket.reports.account import Account
    from hocket.reports.comparison import ComparedRun
    from hocket.reports.whatif import Band, Rebuilt, WhatIf


def whatif(
    journal: Annotated[
        Path, typer.Argument(help="A journal, as `hocket simulate --journal` or a controller keeps it, or an archive.")
    ],
    policy: Annotated[
        list[str],
        typer.Option(
            "--policy",
            "-p",
            help="Under which policy, or NAME:PARAMETER=VALUE,…; may be repeated.",
            autocompletion=policy_names,
        ),
    ],
    param: Params = None,
    everything: Everything = False,
    plots: Plots = None,
    as_json: AsJson = False,
) -> None:
    """Run recorded arrivals again under another policy.

    The recorded policy is run again too: how far that is from what was recorded is the band to read the rest with.
    """
    from hocket.cli.policy_text import bound_policy
    from hocket.cli.simulation.policy_fault import blaming
    from hocket.cli.terminal.errors import InputError, refusing
    from hocket.cli.terminal.output_files import must_be_writable
    from hocket.cli.terminal.progress import bars
    from hocket.control.journal.history import describe_beginning, first_cycle, open_history
    from hocket.policies.registry import bind
    from hocket.reports.account import account
    from hocket.reports.opening_cycles import begun_controller, opening_cycles
    from hocket.reports.simulation import rare_garbage_collection
    from hocket.reports.sound_journal import sound_cycles
    from hocket.reports.summary import summarise
    from hocket.reports.whatif import band, rebuild, run_again

    with refusing():
        if plots is not None:
            must_be_writable(plots, "--plots", is_folder=True)
        policies = {name: bound_policy(name, param or ()) for name in policy}  # by their settings, each once
        kept = open_history(journal, everything=everything)
        header = kept.header
        same = bind(header.policy, header.params)
        begun = begun_controller(kept)
        opening = opening_cycles(begun) if begun is not None else []
        there = len(begun.state.jobs.live) if begun is not None else 0
        cycles = list(sound_cycles(str(journal), kept, first_cycle(kept)))
        recorded = account(header, [*opening, *cycles])
        if not recorded.jobs:
            raise InputError(f"journal '{journal}' records no job: there is nothing to run again")
        rebuilt = rebuild(recorded, cycles, begun)
    with rare_garbage_collection(), bars() as progress:
        task = progress.add_task("running again", total=1 + len(policies))
        with blaming(same):
            again = run_again(rebuilt, same, header.seed, as_set=True)
        progress.advance(task)
        others: dict[str, WhatIf] = {}
        for name, other in policies.items():
            with blaming(other):
                others[name] = run_again(rebuilt, other, header.seed)
            progress.advance(task)
    kept.close()
    compared = band(recorded, again.account)
    rows = _rows(recorded, again, others, rebuilt)
    drawn: list[Path] = []
    if plots is not None:
        from hocket.reports.plots import plot_comparison

        drawn = plot_comparison(rows, plots)
    if as_json:
        import msgspec

        found = {
            "recorded": summarise(recorded),
            "again": again.summary,
            "band": compared,
            "whatif": [o.summary for o in others.values()],
            "extrapolated": [o.extrapolated for o in others.values()],
            "unfinished": rebuilt.unfinished,
            "shared": rebuilt.shared,
            "speed_law": {"loss": rebuilt.loss, "fitted": rebuilt.loss_fitted},
            "first_cycle": first_cycle(kept),
            "live_at_first_cycle": there,
        }
        print(msgspec.json.encode(found).decode())
        return
    _print(rows, recorded, again, others, rebuilt, compared)
    if begins := describe_beginning(kept):
        print(begins + (f"; {there:,} jobs were there then: they count from that moment" if there else ""))
    if drawn:
        print(f"plots in {drawn[0].parent}")


def _rows(recorded: Account, again: WhatIf, others: dict[str, WhatIf], rebuilt: Rebuilt) -> list[ComparedRun]:
    """The recorded run, the same again, and the others."""
    from hocket.reports.comparison import compared_run
    from hocket.reports.summary import summarise

    policy = rebuilt.ruled(recorded.header.policy)
    return [
        compared_run(f"{policy}, recorded", recorded, summarise(recorded)),
        compared_run(f"{policy}, run again", again.account, again.summary),
        *(compared_run(f"{name}, what if", o.account, o.summary) for name, o in others.items()),
    ]


def _print(
    rows: list[ComparedRun],
    recorded: Account,
    again: WhatIf,
    others: dict[str, WhatIf],
    rebuilt: Rebuilt,
    compared: Band,
) -> None:
    from hocket.cli.terminal.console import console
    from hocket.reports.table import comparison_table
    from hocket.reports.whatif import band, names

    page = console()
    accounts = [recorded, again.account, *(o.account for o in others.values())]
    relative = {row.label: band(recorded, other).times for row, other in zip(rows, accounts, strict=True)}
    differ = any(r.ended_s is None for other in accounts for r in other.jobs)
    page.print(comparison_table(rows, page.width, relative if differ else None))

    def say(line: str) -> None:
        page.print(line, markup=False, highlight=False, soft_wrap=True)

    if compared.share is not None:
        say(
            f"band: run again, the recorded policy's mean JCT differs by {compared.share:.2%}; "
            f"95 % of the jobs differ by at most {compared.jobs_p95_share or 0.0:.2%} of their own"
        )
    law = f"speeds at sizes never run: n / (1 + c·(n − 1)) with c = {rebuilt.loss:.3f}"
    say(law + (", fitted to jobs that ran at several sizes" if rebuilt.loss_fitted else ", assumed"))
    for name, other in others.items():
        if other.extrapolated:
            say(f"{name} rests on extrapolation for {names(other.extrapolated)}")
    if rebuilt.shared:
        say(f"worked beside others, or over a network; alone by the simulator's model: {names(rebuilt.shared)}")
    if rebuilt.unfinished:
        say(f"not finished when recorded, or missed: {names(rebuilt.unfinished)}")
