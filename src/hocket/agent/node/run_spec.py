"""From an order to what its sidecar reads: `spec.json`, with this agent's own folders, devices and mark."""

from __future__ import annotations

import os
import sys
import uuid
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from hocket.agent.node.containment import Containment
from hocket.agent.node.job_code import PIP, JobCode
from hocket.agent.node.known_run import learnt
from hocket.agent.node.phase_token_server import PhaseTokenServer
from hocket.agent.node.query_run import as_query, is_query
from hocket.agent.node.state_folder import StateFolder
from hocket.agent.protocol import PrepareRun, StartRun
from hocket.model import phase_tokens
from hocket.model.job import FUNCTION_COMMAND, PARAMETER_SERVER_COMMAND

PHASE_TOKENS = "phase_tokens"  # in the spec of an order: whether the run takes turns with others on its node
METRIC_WARNING = "HOCKET_METRIC_WARNING_S"  # seconds until a metric that is not seen is warned of; tests set it

ShowDevices = Callable[[dict[str, str]], dict[str, str]]  # a job's environment, with its GPUs as it is to see them


def sidecar_spec(
    order: PrepareRun | StartRun,
    env: dict[str, str],
    state: StateFolder,
    devices: ShowDevices,
    containment: Containment,
    tokens: PhaseTokenServer,
    code: JobCode | None = None,
) -> dict[str, Any]:
    """The spec for a run that is to be prepared or started, with variables that `devices` may change; its cgroup is
    made, and phase tokens can be had if it asks for them."""
    job, spec = order.run.job, dict(order.spec) if code is None else code.apply(order.spec)
    spec["job"], spec["attempt"], spec["mark"] = job, order.run.number, uuid.uuid4().hex
    spec["warm"] = isinstance(order, PrepareRun)
    spec["lease"] = state.lease
    if isinstance(order, StartRun) and order.secrets:
        spec["secrets"] = sorted(order.secrets)
    spec["cwd"] = spec.get("cwd") or state.work(job)
    saves_as = spec.pop("continues", "") or job
    if not spec.get("checkpoint_dir"):
        spec["checkpoint_dir"], spec["attempt_file"] = state.checkpoints(saves_as), state.attempt_file(saves_as)
    if isinstance(spec.get("progress"), dict):
        spec["progress"] = learnt(spec["progress"], state.job(job), order.run.number)
    if isinstance(spec.get("env", {}), dict):
        spec["env"] = {**spec.get("env", {}), **(devices(env) if isinstance(order, StartRun) else env)}
        if spec.pop(PHASE_TOKENS, False):
            with suppress(OSError):  # The server has logged it; the job runs without tokens.
                spec["env"][phase_tokens.VARIABLE] = tokens.listen()
    if is_query(spec):
        spec = as_query(spec, state.run(job, order.run.number))
    elif isinstance(spec.get("argv"), list) and tuple(spec["argv"][:2]) == PARAMETER_SERVER_COMMAND:
        spec["argv"] = [sys.executable, "-m", *spec["argv"]]  # `hocket` need not be in the job's PATH.
    elif isinstance(spec.get("argv"), list) and tuple(spec["argv"][:2]) == FUNCTION_COMMAND:
        python = "python" if order.spec.get(PIP) else sys.executable  # that with the job's packages, if it has some
        spec["argv"] = [python, "-m", "hocket.ray.function", *spec["argv"][2:]]
    if (limit_s := os.environ.get(METRIC_WARNING)) is not None:
        spec["unseen_limit_s"] = float(limit_s)
    cgroup = containment.create(order.run, spec["mark"], order.limits)  # Last: nothing fails after it.
    spec["cgroup"] = None if cgroup is None else cgroup.folders
    return spec
