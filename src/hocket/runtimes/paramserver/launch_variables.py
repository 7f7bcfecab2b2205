"""Where a process stands among the hosts of its job, as torchrun's variables and Hocket's say it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from hocket.runtimes.paramserver.algorithm import TrainingError


@dataclass(frozen=True)
class LaunchVariables:
    """Which host this is, of how many, where host 0 is found, and where checkpoints are."""

    host: int = 0
    hosts: int = 1
    master: tuple[str, int] = ("127.0.0.1", 0)
    job: str = ""  # the attempt of the job, so that hosts of different ones do not talk to each other
    checkpoint: Path | None = None
    memory_bytes: int | None = None  # that this host's part of the job asked for; None: it did not say

    @classmethod
    def of(cls, env: Mapping[str, str]) -> LaunchVariables:
        """From an environment: `GROUP_RANK` and `GROUP_WORLD_SIZE`, as Hocket has it, or `NODE_RANK` and `NNODES`."""
        host, hosts = _number(env, "GROUP_RANK", "NODE_RANK", 0), _number(env, "GROUP_WORLD_SIZE", "NNODES", 1)
        if not 0 <= host < hosts:
            raise TrainingError(f"the rank of this host is {host}, which must be within 0 and {hosts - 1}")
        port = _number(env, "MASTER_PORT", "MASTER_PORT", 0)
        if hosts > 1 and ("MASTER_ADDR" not in env or not 0 < port < 65536):
            raise TrainingError(f"{hosts} hosts need MASTER_ADDR and MASTER_PORT, where host 0 listens")
        folder = env.get("HOCKET_CHECKPOINT_DIR")
        job = f"{env.get('HOCKET_JOB', '')}/{env.get('HOCKET_ATTEMPT', '')}"
        master = env.get("MASTER_ADDR", "127.0.0.1"), port
        mem_mib = _number(env, "HOCKET_MEM_MIB", "HOCKET_MEM_MIB", 0)
        return cls(host, hosts, master, job, Path(folder) if folder else None, mem_mib << 20 if mem_mib else None)


def default_workers(env: Mapping[str, str], hosts: int, cores: int) -> int:
    """Workers of a host: its cores, or those that a job asked for (`--cpus`), which Hocket says to OpenMP, too."""
    threads, size = env.get("OMP_NUM_THREADS", ""), env.get("HOCKET_SIZE", "")
    if not (threads.isdecimal() and size.isdecimal()):
        return max(1, cores)
    return max(1, int(threads) * int(size) // hosts)


def _number(env: Mapping[str, str], name: str, other: str, default: int) -> int:
    name = name if name in env else other
    text = env.get(name, str(default))
    if not text.isdecimal():
        raise TrainingError(f"variable {name} must be a whole number, not '{text}'")
    return int(text)
