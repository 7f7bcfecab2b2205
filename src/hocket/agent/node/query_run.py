"""What is special about a run of `hocket query`: its process, what it is told of its resources, and its answer."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from hocket.agent import run_folder
from hocket.agent.node.state_folder import StateFolder, numbers
from hocket.agent.protocol import RunLimits
from hocket.model.job import QUERY_COMMAND


def is_query(spec: dict[str, Any]) -> bool:
    """Whether a sidecar's spec runs a query, by the command that users write."""
    argv = spec.get("argv")
    return isinstance(argv, list) and tuple(argv[:2]) == QUERY_COMMAND


def as_query(spec: dict[str, Any], folder: str) -> dict[str, Any]:
    """The spec with this agent's own Python, for `hocket` need not be in the job's PATH, and with the run's files."""
    argv = [sys.executable, "-m", *spec["argv"]]
    files = {
        "HOCKET_ANSWER": os.path.join(folder, run_folder.ANSWER),
        "HOCKET_RESOURCES": os.path.join(folder, run_folder.RESOURCES),
    }
    return spec | {"argv": argv, "env": {**spec.get("env", {}), **files}}


def write_resources(folder: str, env: dict[str, str], limits: RunLimits) -> None:
    """Tell a query what it has from its next batch on. Raises OSError."""
    said = {
        "size": int(env.get("HOCKET_SIZE", "1")), "mem_mib": limits.mem_mib,
        "epoch_batches": int(env.get("HOCKET_EPOCH_BATCHES", "0")), "epoch_s": float(env.get("HOCKET_EPOCH_S", "0")),
    }  # fmt: skip
    _replace(folder, said)


def has_resources(folder: str) -> bool:
    """Whether the run is that of a query, which was told what it has."""
    return os.path.exists(os.path.join(folder, run_folder.RESOURCES))


def write_keep(folder: str, keep: str) -> None:
    """Tell a query that is asked to leave where its state is to be kept. Raises OSError."""
    if has_resources(folder):
        with open(os.path.join(folder, run_folder.RESOURCES), encoding="utf-8") as file:
            said = json.load(file)
        _replace(folder, {**said, "keep": keep})


def _replace(folder: str, said: dict[str, Any]) -> None:
    path = os.path.join(folder, run_folder.RESOURCES)
    fd = os.open(f"{path}.part", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with open(fd, "w", encoding="utf-8") as file:
        json.dump(said, file)
    os.rename(f"{path}.part", path)


def last_answer(state: StateFolder, job: str) -> tuple[int, bytes]:
    """The answer of its last run that gave one, and the number of that run; 0 if none did."""
    for number in reversed(numbers(state.job(job))):
        try:
            with open(os.path.join(state.run(job, number), run_folder.ANSWER), "rb") as file:
                return number, file.read()
        except OSError:
            continue
    return 0, b""
