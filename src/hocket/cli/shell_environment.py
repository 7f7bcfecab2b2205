"""What of the shell's environment goes with a job.

Not all of it: shells hold secrets that nobody meant to hand over, and a job should run the same from another terminal.
What finds programs and libraries and sets language and caches goes along; the rest by `--env` or `--export-all`.
"""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase

TAKEN = (
    "PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "LC_*", "TZ", "TMPDIR",
    "VIRTUAL_ENV", "CONDA_*", "MAMBA_*", "PYENV_*", "PYTHONPATH", "PYTHONUNBUFFERED", "LD_LIBRARY_PATH", "LIBRARY_PATH",
    "CUDA_HOME", "CUDA_PATH", "OMP_*", "MKL_*", "OPENBLAS_*", "XDG_*_HOME", "HF_HOME", "TORCH_HOME", "MPLBACKEND",
)  # fmt: skip
# Each run gets its own; those of the job that submits, if it is one, would be wrong.
OWN = ("HOCKET_*", "CUDA_VISIBLE_DEVICES", "RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_*")


def carried(shell: Mapping[str, str], everything: bool = False) -> dict[str, str]:
    """The part of an environment that goes with a job."""
    return {
        name: value
        for name, value in shell.items()
        if (everything or _is_one_of(name, TAKEN)) and not _is_one_of(name, OWN) and _is_passable(name, value)
    }


def _is_one_of(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _is_passable(name: str, value: str) -> bool:
    # Bytes that are no text cannot travel as JSON, and exported shell functions are for shells alone.
    return not name.startswith("BASH_FUNC_") and not any("\ud800" <= c <= "\udfff" for c in value)
