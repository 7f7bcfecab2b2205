"""How many processes a job's command asks a launcher for: `torchrun --nproc_per_node=2`, `accelerate launch …`.

Hocket runs torchrun's workers itself, one for each replica, so that it can change their number; the launcher's own
number is not used then. Other launchers run as they are: one process that starts others on the GPUs it is given.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from hocket.agent.sidecar.command import understood

_TORCH = ("--nproc-per-node",)
_ACCELERATE = ("--num-processes",)
_MODULES = {
    "torch.distributed.run": _TORCH,
    "torch.distributed.launch": _TORCH,
    "accelerate.commands.launch": _ACCELERATE,
}


class Launcher(NamedTuple):
    """What a command says of its processes."""

    option: str  # as it was written: `--nproc_per_node`
    processes: int  # on each node
    nodes: int
    is_replaced: bool  # Hocket starts the processes instead


def launcher_of(command: Sequence[str], cwd: str, path: str | None, *, is_here: bool = True) -> Launcher | None:
    """The launcher of a command that says how many processes it starts; None for any other.

    Which Python a `torchrun` is of stands in its file. If that is not here, it is taken to be one that agents know.
    """
    options, arguments = _launcher(command)
    written, processes = _number(arguments, options)
    nodes = _number(arguments, ("--nnodes", "--num-machines"))[1] or 1
    if not processes:
        return None
    words = list(command)
    if not is_here and os.path.basename(words[0]) == "torchrun":
        words = ["python", "-m", "torch.distributed.run", *words[1:]]
    run = understood(words, path, cwd)
    return Launcher(written, processes, nodes, run.ranked and not run.launched)


def requested_by_launcher(command: object, cwd: str, path: str | None, *, is_here: bool = True) -> dict[str, Any]:
    """The options of a job whose user leaves the number of GPUs to the launcher; empty if it says none."""
    if not isinstance(command, list) or not command:
        return {}
    found = launcher_of(command, cwd, path, is_here=is_here)
    if found is None:
        return {}
    if found.is_replaced:
        return {"gpus": found.processes * found.nodes, "max_nodes": found.nodes}
    return {"gpus": found.processes, "replica_gpus": found.processes} if found.nodes == 1 else {}


def launcher_warning(spec: dict[str, Any], *, is_here: bool = True) -> str:
    """That a job gets other numbers than its launcher is told; empty if they agree."""
    found = launcher_of(spec["command"], spec["cwd"], spec["env"].get("PATH"), is_here=is_here)
    if found is None:
        return ""
    sizes, each = spec["sizes"], spec["gpus"]
    said = f"{found.option} {found.processes}"
    if found.is_replaced:
        if sizes == [found.processes * found.nodes]:
            return ""
        numbers = " or ".join(map(str, sizes))
        return f"{said} is not used: Hocket starts one process for each replica, and the job has {numbers}"
    gpus = [size * each for size in sizes]
    if gpus == [found.processes] or not each:
        return ""
    return f"{said} starts {found.processes} processes whatever the job gets, and it asks for {_listed(gpus)}"


def program_of(command: Sequence[str]) -> str:
    """What a command runs, whatever starts it: its script `train.py`, its module, or its first word."""
    for word, following in pairwise([*command, ""]):
        if word.endswith(".py"):
            return os.path.basename(word)
        if word in ("-m", "--module") and following and following not in _MODULES:
            return following
    return os.path.basename(command[0])


def _listed(gpus: list[int]) -> str:
    return f"{' or '.join(map(str, gpus))} GPU{'' if gpus == [1] else 's'}"


def _launcher(command: Sequence[str]) -> tuple[tuple[str, ...], Sequence[str]]:
    """The options that say a launcher's number of processes, and its arguments up to the script."""
    name = os.path.basename(command[0])
    if name == "torchrun":
        return _TORCH, _before_script(command[1:])
    if name == "accelerate" and command[1:2] == ["launch"]:
        return _ACCELERATE, _before_script(command[2:])
    for n, word in enumerate(command[:6]):
        if word == "-m" and n and (options := _MODULES.get("".join(command[n + 1 : n + 2]))):
            return options, _before_script(command[n + 2 :])
    return (), ()


def _before_script(words: Sequence[str]) -> Sequence[str]:
    end = next((n for n, word in enumerate(words) if word.endswith(".py") or word in ("-m", "--module")), len(words))
    return words[:end]


def _number(arguments: Sequence[str], options: tuple[str, ...]) -> tuple[str, int]:
    """The option as it was written and its number; 0 if it is not there, or is `auto`, `gpu` or a range."""
    for n, word in enumerate(arguments):
        name, is_given, value = word.partition("=")
        if name.replace("_", "-") in options:
            text = value if is_given else "".join(arguments[n + 1 : n + 2])
            return name, int(text) if text.isdecimal() and text.isascii() else 0
    return "", 0
