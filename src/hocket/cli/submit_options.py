"""The options of `hocket submit`: what can be said of a job, as `job_spec.py` understands it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hocket.cli.live_options import job_names, owner_names

_WHAT, _WHERE, _WHEN, _HOW = "The job", "What it needs", "When it runs", "How it runs"

Files = Annotated[
    list[Path] | None,
    typer.Argument(metavar="[FILE.toml… | -- COMMAND…]", help="Files of jobs, or a command behind two dashes."),
]

# -- the job ----------------------------------------------------------------------------------------------------

Name = Annotated[str | None, typer.Option("--name", "-n", help="Made up if not given.", rich_help_panel=_WHAT)]
Owner = Annotated[
    str | None,
    typer.Option(help="User or team; the login name by default.", rich_help_panel=_WHAT, autocompletion=owner_names),
]
Until = Annotated[
    str | None, typer.Option(metavar="CRITERION", help="Done when: 'acc >= 92% within 2h'.", rich_help_panel=_WHAT)
]
Target = Annotated[
    str | None,
    typer.Option(
        metavar="GOAL", help="Measured, and ends nothing: 'acc >= 91% within 80 epochs'.", rich_help_panel=_WHAT
    ),
]
StopAt = Annotated[
    str | None,
    typer.Option(
        "--stop", metavar="LEVEL", help="What load control may end it for: fixed, optstop, required.",
        rich_help_panel=_WHAT,
    ),
]  # fmt: skip
MayLower = Annotated[
    str | None,
    typer.Option(metavar="LEVEL", help="The same for times of overload, if that is more.", rich_help_panel=_WHAT),
]
Array = Annotated[
    str | None,
    typer.Option(
        metavar="N|0-M", help="So many jobs NAME-0, NAME-1 …, each with HOCKET_ARRAY_INDEX.", rich_help_panel=_WHAT
    ),
]
Model = Annotated[
    str | None, typer.Option(help="Under which its history is kept for estimates.", rich_help_panel=_WHAT)
]

# -- what it needs ----------------------------------------------------------------------------------------------

Gpus = Annotated[
    str | None,
    typer.Option(metavar="1,2,4", help="How many it may run on: 2, 1,2,4 or 1-4; 0 for none.", rich_help_panel=_WHERE),
]
ReplicaGpus = Annotated[
    str | None, typer.Option(metavar="N", help="GPUs that one process uses; 1.", rich_help_panel=_WHERE)
]
Cpus = Annotated[str | None, typer.Option(metavar="N", help="Cores of each replica.", rich_help_panel=_WHERE)]
Mem = Annotated[str | None, typer.Option(metavar="8G", help="Memory of each replica.", rich_help_panel=_WHERE)]
GpuKind = Annotated[
    list[str] | None, typer.Option(metavar="KIND", help="Accepted kinds; repeatable.", rich_help_panel=_WHERE)
]
GpuMem = Annotated[
    str | None, typer.Option(metavar="40G", help="What each GPU must have at least.", rich_help_panel=_WHERE)
]
MaxNodes = Annotated[
    str | None, typer.Option(metavar="N", help="Machines it may span; 0 for any number.", rich_help_panel=_WHERE)
]

# -- when it runs -----------------------------------------------------------------------------------------------

Priority = Annotated[str | None, typer.Option(metavar="N", help="Larger goes first.", rich_help_panel=_WHEN)]
Weight = Annotated[str | None, typer.Option(metavar="X", help="Its part in shares.", rich_help_panel=_WHEN)]
Urgency = Annotated[str | None, typer.Option(metavar="1-10", help="For policies with one.", rich_help_panel=_WHEN)]
Deadline = Annotated[str | None, typer.Option(metavar="6h", help="Wanted by then, from now on.", rich_help_panel=_WHEN)]
Time = Annotated[str | None, typer.Option(metavar="2h30m", help="How long it may run, in all.", rich_help_panel=_WHEN)]
After = Annotated[
    list[str] | None,
    typer.Option(
        metavar="JOB",
        help="Not before this one is over; a name or 'sweep-*'; repeatable.",
        autocompletion=job_names,
        rich_help_panel=_WHEN,
    ),
]
Retries = Annotated[str | None, typer.Option(metavar="N", help="Restarts after a crash; 3.", rich_help_panel=_WHEN)]
Backoff = Annotated[
    str | None, typer.Option(metavar="1s", help="Rest after a crash, doubled each time.", rich_help_panel=_WHEN)
]

# -- how it runs ------------------------------------------------------------------------------------------------

Cwd = Annotated[str | None, typer.Option(metavar="DIR", help="Where; here.", rich_help_panel=_HOW)]
Env = Annotated[
    list[str] | None,
    typer.Option(metavar="K[=V]", help="A variable, or one of the shell's; repeatable.", rich_help_panel=_HOW),
]
ExportAll = Annotated[bool, typer.Option("--export-all", help="The shell's whole environment.", rich_help_panel=_HOW)]
Resume = Annotated[
    str | None,
    typer.Option(metavar="COMMAND", help="Goes on from a checkpoint; the same command.", rich_help_panel=_HOW),
]
Signal = Annotated[
    str | None, typer.Option(metavar="USR1", help="Asks it to save and leave; TERM.", rich_help_panel=_HOW)
]
CheckpointSignal = Annotated[
    str | None, typer.Option(metavar="USR2", help="Asks it to save and go on.", rich_help_panel=_HOW)
]
Grace = Annotated[str | None, typer.Option(metavar="30s", help="How long leaving may take.", rich_help_panel=_HOW)]
Warm = Annotated[
    bool | None,
    typer.Option("--warm/--no-warm", help="Whether it may be prepared beforehand.", rich_help_panel=_HOW),
]
Progress = Annotated[
    str | None,
    typer.Option(
        metavar="KIND[:WHERE]",
        help="How progress is read: json:FILE, csv:FILE, tensorboard:DIR, pattern:REGEX, none.",
        rich_help_panel=_HOW,
    ),
]
Hang = Annotated[
    str | None, typer.Option(metavar="10m", help="Hung when without progress so long.", rich_help_panel=_HOW)
]
LogSize = Annotated[
    str | None, typer.Option(metavar="64M", help="Kept of the output of each attempt.", rich_help_panel=_HOW)
]

# -- submitting -------------------------------------------------------------------------------------------------

Wait = Annotated[bool, typer.Option("--wait", help="Wait for the end; Ctrl-C ends the waiting only.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print what would be sent, and send nothing.")]
