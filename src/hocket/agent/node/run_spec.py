"""From an order to what its sidecar reads: `spec.json`, with this agent's own folders, devices and mark."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

from hocket.agent.node.known_run import learnt
from hocket.agent.node.state_folder import StateFolder
from hocket.agent.protocol import PrepareRun, StartRun


def sidecar_spec(
    order: PrepareRun | StartRun,
    env: dict[str, str],
    state: StateFolder,
    devices: Callable[[dict[str, str]], dict[str, str]],
) -> dict[str, Any]:
    """The spec for a run that is to be prepared or started, with variables that `devices` may change."""
    job, spec = order.run.job, dict(order.spec)
    spec["job"], spec["attempt"], spec["mark"] = job, order.run.number, uuid.uuid4().hex
    spec["warm"] = isinstance(order, PrepareRun)
    spec["cwd"] = spec.get("cwd") or state.work(job)
    spec["checkpoint_dir"] = spec.get("checkpoint_dir") or state.checkpoints(job)
    if isinstance(spec.get("progress"), dict):
        spec["progress"] = learnt(spec["progress"], state.job(job), order.run.number)
    if isinstance(spec.get("env", {}), dict):
        spec["env"] = {**spec.get("env", {}), **(devices(env) if isinstance(order, StartRun) else env)}
    return spec
