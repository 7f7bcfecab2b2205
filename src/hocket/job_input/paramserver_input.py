"""Training on parameter servers among what a user says of a job: its size is machines, by `--hosts`, without GPUs."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from hocket.model.job import PARAMETER_SERVER_COMMAND, Kind


class HostsProblem(ValueError):
    """What is wrong with `hosts`."""


def with_hosts(said: Mapping[str, object], words: list[str]) -> dict[str, Any]:
    """What was said of a job whose command has these words, with what training on parameter servers means.

    Raises HostsProblem.
    """
    found = dict(said)
    first, second = PARAMETER_SERVER_COMMAND
    if words and os.path.basename(words[0]) == first and words[1:2] == [second]:
        found = {"kind": str(Kind.PARAMETER_SERVER), **found, "command": [first, second, *words[2:]]}
    elif "hosts" in found:
        found = {"kind": str(Kind.PARAMETER_SERVER), **found}
    if "hosts" in found and found["kind"] != Kind.PARAMETER_SERVER:
        raise HostsProblem(f"must be said of a job of kind '{Kind.PARAMETER_SERVER}' only, not '{found['kind']}'")
    if "hosts" in found and ("gpus" in found or "replica_gpus" in found):
        raise HostsProblem("must stand without gpus: the size of a job is one or the other")
    return found
