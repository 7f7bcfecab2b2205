"""Whether a job counts its epochs from 0, as its earlier attempts on this machine have shown.

A job that resumes in the middle does not show it any more (`progress/epochs.py`).
"""

from __future__ import annotations

import json
import os
from typing import Any

from hocket.agent import run_folder
from hocket.agent.known_run import CLOSED
from hocket.agent.state_folder import numbers
from hocket.agent.tail import facts


def learnt(progress: dict[str, Any], job_folder: str, number: int) -> dict[str, Any]:
    """How to read the progress of this attempt: as was asked, and with what the attempts before it have shown."""
    if "first_epoch" in progress:
        return progress
    for earlier in reversed([n for n in numbers(job_folder) if n < number]):
        first = _shown(os.path.join(job_folder, str(earlier)))
        if first is not None:
            return {**progress, "first_epoch": first}
    return progress


def _shown(folder: str) -> int | None:
    for name in (run_folder.SPEC, CLOSED):
        try:
            with open(os.path.join(folder, name), encoding="utf-8") as file:
                known = json.load(file)["progress"]["first_epoch"]
        except (OSError, ValueError, TypeError, KeyError):
            continue
        return known if known in (0, 1) else None
    for fact, _ in facts(os.path.join(folder, run_folder.EVENTS), 0):
        if fact["event"] == "progress":  # The first one suffices: who begins with 0 begins with it.
            return 0 if fact.get("first_epoch") == 0 else None
    return None
