"""The environment of each worker: the sidecar's own, the job's, Hocket's, and torchrun's variables where due."""

from __future__ import annotations

import os

from hocket.agent.leftovers import MARK

TYPE_CHECKING = False
if TYPE_CHECKING:
    from hocket.agent.command_line import Command
    from hocket.agent.spec import Spec


def environments(
    spec: Spec, command: Command, workers: int, given: dict[str, str], to_run: bool = True
) -> list[dict[str, str]]:
    """One for each process to start. `given` comes with the order to start; without it, it is `to_run` later.

    What is given may say how many workers the job has elsewhere: RANK (of the first one here), WORLD_SIZE, MASTER_ADDR,
    MASTER_PORT. A job of one process that was not started by torchrun knows nothing of ranks, unless they are given.
    """
    said = {**spec.env, **given}
    env = {**os.environ, **said, MARK: spec.mark, "HOCKET_JOB": spec.job, "HOCKET_ATTEMPT": str(spec.attempt)}
    if spec.checkpoint_dir is not None:
        env["HOCKET_CHECKPOINT_DIR"] = spec.checkpoint_dir
    if command.launched:
        return [env]
    most = max(workers, spec.most_workers)
    if not command.ranked and most == 1 and "WORLD_SIZE" not in said:
        return [env]
    if command.ranked and most > 1:
        env.setdefault("OMP_NUM_THREADS", "1")  # As torchrun does, lest the workers fight for cores.
    if to_run:
        env["MASTER_PORT"] = said.get("MASTER_PORT") or _free_port()
    return [{**env, **_rank_variables(n, workers, said, spec.mark)} for n in range(workers)]


def _rank_variables(local: int, workers: int, said: dict[str, str], run_id: str) -> dict[str, str]:
    first = said.get("RANK", "0")
    if not first.isdigit():
        raise ValueError(f"RANK must be the rank of the first worker on this machine, not '{first}'")
    rank = str(int(first) + local)
    world = said.get("WORLD_SIZE", str(workers))
    return {
        "RANK": rank,
        "LOCAL_RANK": str(local),
        "WORLD_SIZE": world,
        "LOCAL_WORLD_SIZE": str(workers),
        "GROUP_RANK": said.get("GROUP_RANK", "0"),
        "GROUP_WORLD_SIZE": said.get("GROUP_WORLD_SIZE", "1"),
        "ROLE_NAME": "default",
        "ROLE_RANK": rank,
        "ROLE_WORLD_SIZE": world,
        "MASTER_ADDR": said.get("MASTER_ADDR", "127.0.0.1"),
        "TORCHELASTIC_RUN_ID": run_id,
        "TORCHELASTIC_RESTART_COUNT": "0",
        "TORCHELASTIC_MAX_RESTARTS": "0",
        "TORCHELASTIC_USE_AGENT_STORE": "False",  # The worker of rank 0 keeps the store, for there is no launcher.
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1",
    }


def _free_port() -> str:
    """A port that nobody listens on, for the worker of rank 0."""
    import _socket  # `socket` costs a megabyte, and few jobs need it.

    holder = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM)
    try:
        holder.bind(("127.0.0.1", 0))
        return str(holder.getsockname()[1])
    finally:
        holder.close()
