"""Where the files of a job are, for users to read."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from hocket.agent.node.state_folder import checkpoints_folder, run_folder_of
from hocket.service.record import Record


def job_files(record: Record, folders: Mapping[str, str]) -> dict[str, Any]:
    """A job's checkpoint and the log of its last attempt, on each node of that; `folders` are those of the agents."""
    last = record.tries[-1] if record.tries else None
    if last is None:
        return {"checkpoint": [], "log": []}
    job, launch = record.job, record.job.launch
    known = {node: folders[node] for node in last.nodes if node in folders}
    if launch is not None and launch.checkpoint:
        own = os.path.join(launch.cwd, launch.checkpoint)
        checkpoints = dict.fromkeys(last.nodes, own)
    else:
        checkpoints = {node: checkpoints_folder(folder, job.id) for node, folder in known.items()}
    logs = {node: os.path.join(run_folder_of(folder, job.id, last.run), "log") for node, folder in known.items()}
    return {"checkpoint": _listed(checkpoints), "log": _listed(logs)}


def _listed(paths: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"node": node, "path": path} for node, path in paths.items()]
