"""From a job and what it is given to the orders that run it: pure."""

from __future__ import annotations

import os
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any
from zlib import crc32

from hocket.agent.protocol import ContinueRun, PrepareRun, ResizeRun, RunKey, RunLimits, StartRun
from hocket.model.criterion import Epochs, Limit, RunTime, Steps, limit_of
from hocket.model.job import Job, Kind, Launch
from hocket.model.partition import Boundary, Holding, Sharing
from hocket.model.phase_tokens import VARIABLE as TOKENS_VARIABLE

_LOG_FILES = 4  # that the output of an attempt is kept in, the present one among them
_MOST_WORKERS = 64  # that one process is prepared to become
_PLAIN = Launch()
_NO_SECRETS: Mapping[str, str] = MappingProxyType({})


def run_orders(
    job: Job,
    run: RunKey,
    to: Holding,
    addresses: dict[str, str],
    secrets: Mapping[str, str] = _NO_SECRETS,
    sharing: Sharing = Sharing.ALONE,
) -> dict[str, StartRun]:
    """Node → the order that runs the job's part there. Jobs that are stacked take no turns, by whatever phases."""
    size = sum(to.replicas)
    orders: dict[str, StartRun] = {}
    first = 0
    for index, (part, replicas) in enumerate(zip(to.slices, to.replicas, strict=True)):
        env = {
            "CUDA_VISIBLE_DEVICES": ",".join(map(str, part.gpus)),
            "HOCKET_SIZE": str(size),
            "HOCKET_GPUS": str(sum(len(s.gpus) for s in to.slices)),
            "HOCKET_NODE": part.node,
            **_memory(limits_of(job, replicas)),
            **_running_epoch(to.boundary),
        }
        if len(to.slices) > 1:
            env |= {
                "RANK": str(first),
                "WORLD_SIZE": str(size),
                "GROUP_RANK": str(index),
                "GROUP_WORLD_SIZE": str(len(to.slices)),
                "MASTER_ADDR": addresses.get(to.slices[0].node, "127.0.0.1"),
                "MASTER_PORT": str(20_000 + crc32(f"{run.job}/{run.number}".encode()) % 10_000),
            }
        # Only the first part is watched for the criterion's metric: the others often print nothing.
        spec = spec_of(job, replicas) | ({"awaited": ""} if index else {})
        if spec.get("phase_tokens") and sharing is Sharing.STACKED:
            spec["phase_tokens"] = False
            env[TOKENS_VARIABLE] = ""  # It may stand prepared with them.
        orders[part.node] = StartRun(run, spec, env, dict(secrets), limits_of(job, replicas))
        first += replicas
    return orders


def prepare_order(job: Job, run: RunKey, replicas: int) -> PrepareRun:
    """The order that stands it ready."""
    return PrepareRun(run, spec_of(job, replicas) | {"warm": True}, limits_of(job, replicas))


def resize_orders(job: Job, run: RunKey, to: Holding) -> dict[str, ResizeRun]:
    """Node → the order by which a run goes on there with other resources, in the same process."""
    orders = {}
    for part, replicas in zip(to.slices, to.replicas, strict=True):
        env = {"HOCKET_SIZE": str(sum(to.replicas)), **_running_epoch(to.boundary)}
        orders[part.node] = ResizeRun(run, env, limits_of(job, replicas))
    return orders


def continue_order(job: Job, run: RunKey, to: Holding) -> ContinueRun:
    """The order by which a suspended run goes on, on its one node."""
    order = next(iter(resize_orders(job, run, to).values()))
    return ContinueRun(run, order.env, order.limits)


def _running_epoch(boundary: Boundary) -> dict[str, str]:
    """How long a running epoch is, where the plan says so."""
    found = {"HOCKET_EPOCH_BATCHES": boundary.batches, "HOCKET_EPOCH_S": boundary.seconds}
    return {name: str(length) for name, length in found.items() if boundary.at == "after" and length}


def _memory(limits: RunLimits) -> dict[str, str]:
    """What a process on this node may hold in memory, where the job says so."""
    return {"HOCKET_MEM_MIB": str(int(limits.mem_mib))} if limits.mem_mib >= 1 else {}


def limits_of(job: Job, replicas: int) -> RunLimits:
    """What so many replicas on one node may use. What a job did not ask for is not limited."""
    demand = job.demand.times(replicas)
    return RunLimits(demand.mem_mib, demand.cores)


def spec_of(job: Job, replicas: int) -> dict[str, Any]:
    """A sidecar's spec, without what is the agent's own."""
    launch = job.launch or _PLAIN
    # The same at every size, for what stands prepared cannot change it.
    threads = {"OMP_NUM_THREADS": str(max(1, int(job.demand.cores)))} if job.demand.cores else {}
    a_process_a_replica = _starts_one_process_a_replica(job.command)
    log_bytes = max(4096, int(launch.log_mib * (1 << 20) / _LOG_FILES))
    return {
        "argv": list(job.command),
        "resume_argv": list(launch.resume) or None,
        "cwd": launch.cwd,
        **({"working_dir": launch.working_dir} if launch.working_dir else {}),
        **({"pip": list(launch.pip)} if launch.pip else {}),
        # A line that is not written says nothing of progress.
        "env": {"PYTHONUNBUFFERED": "1", **threads, **launch.env},
        "checkpoint": launch.checkpoint,
        **({"continues": launch.continues} if launch.continues else {}),
        "stop_signal": launch.stop_signal,
        "checkpoint_signal": launch.checkpoint_signal or None,
        "grace_s": launch.grace_s,
        "log_bytes": log_bytes,
        "log_kept": _LOG_FILES - 1,
        "progress": launch.progress,
        "awaited": _awaited(job),
        "counts_steps": job.kind is Kind.QUERY or any(isinstance(limit, Steps) for limit in _limits(job)),
        "hang_limit_s": launch.hang_s,
        **({"phase_tokens": True} if job.kind is Kind.PARAMETER_SERVER else {}),
        "workers": replicas if a_process_a_replica else 1,
        "most_workers": min(job.sizes[-1], _MOST_WORKERS) if a_process_a_replica else 1,
    }


def _limits(job: Job) -> list[Limit | None]:
    return [limit_of(wanted) for wanted in (job.criterion, job.target) if wanted is not None]


def _awaited(job: Job) -> str:
    """What must be seen of the job for its criterion to be judged: a metric, or that it counts epochs or steps."""
    criterion = job.criterion
    if criterion is None:
        return ""
    if not isinstance(criterion, RunTime):
        return criterion.metric
    return "epochs" if isinstance(criterion.limit, Epochs) else "steps" if isinstance(criterion.limit, Steps) else ""


def _starts_one_process_a_replica(command: tuple[str, ...]) -> bool:
    return os.path.basename(command[0]) == "torchrun" or "torch.distributed.run" in command[:6]
