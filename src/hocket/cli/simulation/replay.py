"""`hocket replay JOURNAL`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hocket.cli.options import AsJson, Everything, Params, policy_names

if TYPE_CHECKING:
    from hocket.control.journal.history import CycleHistory
    from hocket.control.replay import DecisionSide, Replay
    from hocket.policies.registry import BoundPolicy

DIFFERENT = 1


def replay(
    journal: Annotated[
        Path, typer.Argument(help="A journal, as `hocket simulate --journal` or a controller keeps it, or an archive.")
    ],
    policy: Annotated[
        str | None,
        typer.Option("--policy", "-p", help="Decide by this one, not by the recorded.", autocompletion=policy_names),
    ] = None,
    param: Params = None,
    everything: Everything = False,
    as_json: AsJson = False,
) -> None:
    """Decide again what was decided, and report the first difference.

    Exit code 1 says that there is one.
    """
    import msgspec

    from hocket.cli.policy_text import bound_policy
    from hocket.cli.terminal.errors import refusing
    from hocket.control.journal import JournalError
    from hocket.control.journal.history import describe_beginning, open_history
    from hocket.control.replay import PolicyBrokeError
    from hocket.policies.registry import as_recorded

    with refusing():
        kept = open_history(journal, everything=everything)
        try:
            header = kept.header
            recorded = {} if policy else as_recorded(header.policy, header.params)
            own = [f"{name}={msgspec.json.encode(value).decode()}" for name, value in recorded.items()]
            bound = bound_policy(policy or header.policy, [*own, *(param or ())])
            found = _watched(kept, bound)
        except PolicyBrokeError as error:
            typer.echo(f"hocket: {error}", err=True)
            raise typer.Exit(DIFFERENT) from error
        except JournalError as error:
            named = str(journal) in str(error)
            raise JournalError(str(error) if named else f"journal '{journal}', {error}") from error
        finally:
            kept.close()
    if as_json:
        same = found.difference is None
        told = {"journal": str(journal), "policy": bound.policy.name, "params": bound.settings, "same": same}
        print(msgspec.json.encode(told | msgspec.to_builtins(found)).decode())
    else:
        print(_told(found))
        if begins := describe_beginning(kept):
            print(begins)
    if found.difference is not None:
        raise typer.Exit(DIFFERENT)


def _watched(kept: CycleHistory, bound: BoundPolicy) -> Replay:
    """Replay, with a bar on a terminal once it takes a while."""
    from time import monotonic

    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from hocket.control.replay import replay as decide_again

    console = Console(stderr=True)
    columns = (
        TextColumn("deciding again"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("cycles"),
        TimeRemainingColumn(),
    )
    bar = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
    task = bar.add_task("", total=len(kept))
    began = monotonic()

    def done(cycles: int) -> None:
        if monotonic() - began > 1.0:
            bar.start()
            bar.update(task, completed=cycles)

    try:
        return decide_again(kept.header, kept, bound, done, kept.beginning)
    finally:
        bar.stop()


def _told(found: Replay) -> str:
    name = " → ".join(found.policies)
    if found.difference is None:
        words = f"; {found.reworded:,} of them with reasons in other words" if found.reworded else ""
        return f"{_count(found.decisions, 'decision')}, all the same ({name}, {_count(found.cycles, 'cycle')}){words}"
    differs = found.difference
    return "\n".join(
        [
            f"cycle {differs.cycle:,} at {differs.at_s:,g} s: the plan differs in {', '.join(differs.fields)}, "
            f"after {_count(found.decisions, 'decision')} that are the same ({name})",
            "recorded:",
            *_lines(differs.recorded),
            "now:",
            *_lines(differs.now),
        ]
    )


def _lines(side: DecisionSide) -> list[str]:
    if not side.asked or side.plan is None:
        return ["  the policy was not asked"]
    changes = sorted(side.changes.items())  # by "job" or "job/task"
    found = [f"  {name}: {change}{_reason(side, name.partition('/')[0])}" for name, change in changes]
    jobs = {name.partition("/")[0] for name in side.changes}
    found += [f"  {job}: {why}" for job, why in sorted(side.reasons.items()) if job not in jobs]
    found += [f"  refused: {words}" for words in side.refused]
    found += [f"  {job} is looked at again at {at_s:,g} s" for job, at_s in sorted(side.plan.reviews.items())]
    found += [f"  wakes for {side.plan.wake}; memo {side.plan.memo!r}"]
    most = 40
    return found if len(found) <= most else [*found[:most], f"  … and {len(found) - most:,} more"]


def _reason(side: DecisionSide, job: str) -> str:
    return f" ({side.reasons[job]})" if job in side.reasons else ""


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
