"""What a job's command runs (a Python program, torchrun with one, or anything else), and each worker's environment."""

from __future__ import annotations

import os

from hocket.agent.job_environment import of_the_node
from hocket.agent.orphan_cleanup import MARK

TYPE_CHECKING = False
if TYPE_CHECKING:
    from hocket.agent.sidecar.spec import Spec


_FLAGS = frozenset("bBdEIOPqsSuv")  # options of Python that take nothing and only set how it runs
# Options of torchrun that say what the agent decides here anyway, or that change nothing of the workers.
_DECIDED = frozenset(
    {
        "nnodes", "nproc-per-node", "node-rank", "master-addr", "master-port", "local-addr", "monitor-interval",
        "rdzv-backend", "rdzv-endpoint", "rdzv-id", "rdzv-conf",
    }
)  # fmt: skip
_ONLY = {"max-restarts": "0", "start-method": "spawn"}  # which mean what we do


class PythonProgram:
    """`python [options] script …` or `python [options] -m module …`."""

    __slots__ = ("interpreter", "program")

    def __init__(self, interpreter: list[str], program: list[str]) -> None:
        self.interpreter = interpreter  # with its options
        self.program = program  # script or `-m` and module, then its arguments


class Command:
    """What each worker of a job runs."""

    __slots__ = ("argv", "launched", "python", "ranked")

    def __init__(self, argv: list[str], python: PythonProgram | None, ranked: bool, launched: bool) -> None:
        self.argv = argv
        self.python = python
        self.ranked = ranked  # torchrun's variables are expected
        self.launched = launched  # it starts its workers itself: one process, whatever the number of workers


def understood(argv: list[str], path: str | None, cwd: str) -> Command:
    """What to run for a command. Of torchrun, where we know all its options, the workers instead of the launcher."""
    python = _python(argv)
    if python is not None and python.program[:2] == ["-m", "torch.distributed.run"]:
        return _workers_of(argv, python.interpreter, python.program[2:])
    if os.path.basename(argv[0]) == "torchrun":
        return _workers_of(argv, _interpreter_of(argv[0], path, cwd), argv[1:])
    return Command(argv, python, ranked=False, launched=False)


def _workers_of(argv: list[str], interpreter: list[str] | None, arguments: list[str]) -> Command:
    program = _program_of(arguments)
    if interpreter is None or program is None:
        return Command(argv, None, ranked=False, launched=True)
    python = PythonProgram([*interpreter, "-u"], program)  # Unbuffered, as torchrun has it.
    return Command([*python.interpreter, *program], python, ranked=True, launched=False)


def _python(argv: list[str]) -> PythonProgram | None:
    name = os.path.basename(argv[0])
    if not name.startswith("python") or name[len("python") :].strip("0123456789.") != "":
        return None
    n = 1
    while n < len(argv):
        word = argv[n]
        if not word.startswith("-"):
            return PythonProgram(argv[:n], argv[n:])
        flags = word[1:].lstrip("".join(_FLAGS))
        if word == "-" or word.startswith("--"):
            return None
        if flags == "":
            n += 1
        elif flags[0] in "WX":
            n += 2 if len(flags) == 1 else 1
        elif flags == "m" and n + 1 < len(argv):
            before = [word[:-1]] if len(word) > 2 else []
            return PythonProgram([*argv[:n], *before], argv[n:] if not before else ["-m", *argv[n + 1 :]])
        else:
            return None
    return None


def _program_of(arguments: list[str]) -> list[str] | None:
    """The program among torchrun's arguments; None where there is an option that we do not know."""
    module = False
    rest = list(arguments)
    while rest and rest[0].startswith("-"):
        word = rest.pop(0)
        name, given, value = word.partition("=")
        name = name.replace("_", "-")
        if name in ("-m", "--module") and not given:
            module = True
        elif name == "--standalone" and not given:
            continue
        elif name.startswith("--") and (name[2:] in _DECIDED or name[2:] in _ONLY):
            if not given:
                if not rest:
                    return None
                value = rest.pop(0)
            if _ONLY.get(name[2:], value) != value:
                return None
        else:
            return None
    if not rest:
        return None
    return ["-m", *rest] if module else rest


def _interpreter_of(script: str, path: str | None, cwd: str) -> list[str] | None:
    """The Python that a script's first line names."""
    folders = [""] if "/" in script else (os.defpath if path is None else path).split(":")
    for folder in folders:
        try:
            with open(os.path.join(cwd, folder, script), "rb") as file:
                first = file.readline(1024)
        except OSError:
            continue
        words = os.fsdecode(first[2:]).split() if first.startswith(b"#!") and first.endswith(b"\n") else []
        if words and os.path.basename(words[0]) == "env":
            del words[0]
        return words if words and _python([*words, "script"]) is not None else None
    return None


def environments(
    spec: Spec, command: Command, workers: int, given: dict[str, str], to_run: bool = True
) -> list[dict[str, str]]:
    """One for each process to start. `given` comes with the order to start; without it, it is `to_run` later.

    What is given may say how many workers the job has elsewhere: RANK (of the first one here), WORLD_SIZE, MASTER_ADDR,
    MASTER_PORT. A job of one process that was not started by torchrun knows nothing of ranks, unless they are given.
    """
    said = {**spec.env, **given}
    env = {
        **of_the_node(os.environ),
        **said,
        MARK: spec.mark,
        "HOCKET_JOB": spec.job,
        "HOCKET_ATTEMPT": str(spec.attempt),
    }
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
    """A port that is free, for the worker of rank 0."""
    import _socket  # `socket` costs a megabyte, and few jobs need it.

    holder = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM)
    try:
        holder.bind(("127.0.0.1", 0))
        return str(holder.getsockname()[1])
    finally:
        holder.close()
