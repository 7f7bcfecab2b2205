"""The commands by name, with what `hocket --help` says of each; a command's file is imported when it is called.

To add a command: a file in one of the folders here, and a line below.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from importlib import import_module
from types import MappingProxyType
from typing import Any, NamedTuple

import typer
from typer.core import TyperCommand
from typer.main import get_command

from hocket.cli.light_commands import LightCommand, LightGroup


class Listed(NamedTuple):
    """Where a command is, and the first paragraph of its help text."""

    module: str  # in hocket.cli; it has a function of the command's name, or a typer.Typer with commands of its own
    help: str
    command_class: str = "light_commands.LightCommand"
    settings: Mapping[str, Any] = MappingProxyType({})


_ANY_OPTIONS = {
    "context_settings": {"allow_extra_args": True, "ignore_unknown_options": True},
    "add_help_option": False,
}
# In the order of `hocket --help`.
COMMANDS = {
    "simulate": Listed("simulation.simulate", "Run a workload under a policy, in simulated time."),
    "compare": Listed(
        "simulation.compare",
        "Run a workload under several policies, in parallel processes, and set them side by side.",
    ),
    "policies": Listed("simulation.policies", "List the policies, or show one with its parameters."),
    "workloads": Listed("simulation.workloads", "List where workloads come from, and how each is written."),
    "demo": Listed(
        "live.demo",
        "Run eight real training jobs on four virtual devices, kill one, and ask what fifo would have done.",
    ),
    "reproduce": Listed(
        "simulation.reproduce",
        "Run a paper's evaluation again: its figures, ours beside them, and what was assumed.",
    ),
    "learn": Listed(
        "simulation.learn", "Train a learned policy in the simulator; a training that was cut off goes on."
    ),
    "tune": Listed(
        "tune",
        "Search for good hyperparameters: any command as jobs, or many models in one training step.",
        command_class="tune.TuneCommand",
    ),
    "query": Listed(
        "query",
        "Answer an aggregate query from part of its data, with intervals, and refine it until it is exact.",
        command_class="query.QueryCommand",
    ),
    "paramserver": Listed("paramserver", "Train a model on parameter servers, or generate data for it."),
    "whatif": Listed("simulation.whatif", "Run recorded arrivals again under another policy."),
    "replay": Listed("simulation.replay", "Decide again what was decided, and report the first difference."),
    "decide": Listed("simulation.decide", "Ask a policy for one decision: the plan with its reasons, as JSON."),
    "up": Listed("live.up", "Start a controller and share this machine's devices among the jobs you submit."),
    "down": Listed(
        "live.down",
        "Stop every job, which keeps its checkpoint, and then the controller. `hocket up` goes on from there.",
    ),
    "doctor": Listed(
        "live.doctor",
        "Examine a controller's home: permissions, journal, catalogue, controller, agent, processes.",
    ),
    "journal": Listed("live.journal", "Say how large a controller's journal is and where it begins; make it smaller."),
    "agent": Listed(
        "live.agent",
        "Lend this machine's devices to a controller on another one; `hocket up` lends those of its own.",
        settings=_ANY_OPTIONS,
    ),
    "submit": Listed("live.submit", "Submit jobs; prints their names.", command_class="live.job_options.JobCommand"),
    "run": Listed(
        "live.run",
        "Submit a job, print its output, and end with its exit code.",
        command_class="live.job_options.JobCommand",
    ),
    "jobs": Listed(
        "live.jobs", "List jobs: those that run first, then the queue, then (with --all) those that are over."
    ),
    "show": Listed(
        "live.show", "Show a job: where it stands, as what it was submitted, what it reported, what went wrong."
    ),
    "why": Listed("live.why", "Say why a job stands where it stands, and when that may change."),
    "answer": Listed(
        "live.answer",
        "Print the present answer of a query, with the intervals of its estimates; with -f, each new one.",
    ),
    "logs": Listed("live.logs", "Print what a job printed: all its attempts, one after the other, or one of them."),
    "top": Listed(
        "live.top", "Watch devices, jobs and queue; q or Ctrl-C leaves. Prints once where there is no terminal."
    ),
    "open": Listed(
        "live.open",
        "Open the controller's page in a browser, signed in; where there is none, print a link that signs in once.",
    ),
    "pause": Listed(
        "live.pause_resume_stop", "Let jobs save their state and leave their devices, until they are resumed."
    ),
    "resume": Listed("live.pause_resume_stop", "Let paused jobs go on as soon as there is room."),
    "stop": Listed("live.pause_resume_stop", "End jobs for good; they may save their state first."),
    "nodes": Listed(
        "live.node",
        "List nodes: state, reservations, GPUs in use, cores, memory, what contains jobs, and the jobs that hold GPUs.",
    ),
    "version": Listed("version", "Print the version."),
    "owners": Listed(
        "live.owners",
        "List owners: weight, what they use of their quotas, how many of their jobs wait; or set weight and quotas.",
    ),
    "node": Listed("live.node", "Close a node for new jobs, or reserve it for owners; list nodes."),
    "token": Listed("live.token", "Make, list and revoke tokens: what users, agents and dashboards call with."),
}


class LazyCommands(MutableMapping[str, Any]):
    """The commands as typer makes them from their functions, each when it is asked for."""

    def __init__(self, listed: dict[str, Listed]) -> None:
        self._listed = listed
        self._made: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._made:
            self._made[name] = _made(name, self._listed[name])
        return self._made[name]

    def __setitem__(self, name: str, command: Any) -> None:
        self._made[name] = command

    def __delitem__(self, name: str) -> None:
        raise TypeError(f"command '{name}' cannot be removed")

    def __contains__(self, name: object) -> bool:
        return name in self._listed or name in self._made

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys([*self._listed, *self._made]))

    def __len__(self) -> int:
        return len({*self._listed, *self._made})

    def summary(self, name: str) -> Any:
        """What a list of commands shows of one: its name and the first paragraph of its help."""
        if name in self._made or name not in self._listed:
            return self.get(name)
        return TyperCommand(name=name, help=self._listed[name].help)


def _made(name: str, listed: Listed) -> Any:
    function = _imported(f"{listed.module}.{name}")
    around = typer.Typer(add_completion=False, rich_markup_mode="rich")
    around.callback()(_nothing)  # Without it, typer would make one command of its only one.
    if isinstance(function, typer.Typer):
        for inner in function.registered_commands:
            inner.cls = LightCommand
        around.add_typer(function, cls=LightGroup)
    else:
        around.command(name, cls=_imported(listed.command_class), **listed.settings)(function)
    return get_command(around).commands[name]  # type: ignore[attr-defined]


def _imported(name: str) -> Any:
    module, _, member = name.rpartition(".")
    return getattr(import_module(f"hocket.cli.{module}"), member)


def _nothing() -> None:
    pass
