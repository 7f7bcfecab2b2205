"""What this machine has to give: GPUs found or declared, cores, memory; and how a job is shown its GPUs."""

from __future__ import annotations

import os
from typing import NamedTuple

from hocket.agent.node.cgroup_hierarchies import hierarchies
from hocket.agent.node.gpus import Gpu, nvidia_gpus
from hocket.model.resources import Node

VISIBLE, ORDER = "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"


class Declared(NamedTuple):
    """What the user says; None where nothing is said."""

    gpus: int | None = None
    gpu_kind: str | None = None
    cores: float | None = None
    mem_mib: float | None = None


class Devices(NamedTuple):
    """The node, and its GPUs; none of these when its GPUs are virtual, that is only counted."""

    node: Node
    gpus: tuple[Gpu, ...]

    def shown(self, env: dict[str, str]) -> dict[str, str]:
        """A job's environment, where the controller counts the GPUs of this node from 0.

        They may be a part of the machine's, and CUDA would number them by their speed.
        """
        visible = env.get(VISIBLE, "").split(",")
        if not self.gpus or not all(v.isdecimal() and int(v) < len(self.gpus) for v in visible):
            return env
        return {ORDER: "PCI_BUS_ID", **env, VISIBLE: ",".join(str(self.gpus[int(v)].index) for v in visible)}


def discover(name: str, declared: Declared = Declared(), visible: str | None = None) -> Devices:
    """Look at the machine. `visible` is the agent's own CUDA_VISIBLE_DEVICES: others are not ours to give.

    Fewer GPUs may be declared than there are, and the first ones are taken. If more are declared, all are virtual.
    """
    gpus = _allowed(nvidia_gpus(), visible)
    count = len(gpus) if declared.gpus is None else declared.gpus
    gpus = gpus[:count] if count <= len(gpus) else []
    kind = declared.gpu_kind if declared.gpu_kind is not None else gpus[0].name if gpus else ""
    node = Node(
        id=name,
        gpus=count,
        gpu_kind=kind if count else "",
        gpu_mem_mib=min((gpu.mem_mib for gpu in gpus), default=0.0),
        cores=declared.cores if declared.cores is not None else _cores(),
        mem_mib=declared.mem_mib if declared.mem_mib is not None else _mem_mib(),
    )
    return Devices(node, tuple(gpus))


def _allowed(gpus: list[Gpu], visible: str | None) -> list[Gpu]:
    """As CUDA reads it: by index or by the beginning of a UUID, up to the first that is neither."""
    if visible is None:
        return gpus
    allowed: list[Gpu] = []
    for wanted in (part.strip() for part in visible.split(",")):
        found = [g for g in gpus if wanted == str(g.index) or (wanted.startswith("GPU-") and g.uuid.startswith(wanted))]
        if len(found) != 1 or found[0] in allowed:
            break
        allowed += found
    return allowed


def _cores() -> float:
    """Those that this process may run on, or less if its cgroup may use less time."""
    cores = float(len(os.sched_getaffinity(0)))
    for folder in _cgroup_folders("cpu"):
        quota, _, period = _text(os.path.join(folder, "cpu.max")).partition(" ")
        if not quota:
            quota, period = (_text(os.path.join(folder, f"cpu.cfs_{name}_us")) for name in ("quota", "period"))
        if quota.isdecimal() and period.isdecimal() and int(period):
            cores = min(cores, int(quota) / int(period))
    return round(cores, 2)


def _mem_mib() -> float:
    """The machine's, or less if our cgroup, or one above it, may use less."""
    lines = [line.split() for line in _text("/proc/meminfo").splitlines() if line.startswith("MemTotal:")]
    mem_mib = int(lines[0][1]) / 1024 if lines else 0.0
    for folder in _cgroup_folders("memory"):
        for name in ("memory.max", "memory.limit_in_bytes"):
            limit = _text(os.path.join(folder, name))
            if limit.isdecimal():
                mem_mib = min(mem_mib, int(limit) / (1 << 20))
    return float(int(mem_mib))


def _cgroup_folders(controller: str) -> list[str]:
    """The folders of our cgroup and of those above it: version 2, and version 1 of this controller."""
    found = [there for there in hierarchies() if there.is_v2 or controller in there.controllers]
    return [folder for there in found for folder in there.upward()]


def _text(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read().strip()
    except OSError:
        return ""
