"""Which environment variables reach a job: those that find programs and libraries and set languages and caches.

The rest may be secrets of the user that started a shell, a controller or an agent. A job gets these variables of the
shell it was submitted from; of the agent's own, those, and some that are about the node.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

SHELL = (
    "PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "LC_*", "TZ", "TMPDIR",
    "VIRTUAL_ENV", "CONDA_*", "MAMBA_*", "PYENV_*", "PYTHONPATH", "PYTHONUNBUFFERED", "LD_LIBRARY_PATH", "LIBRARY_PATH",
    "CUDA_HOME", "CUDA_PATH", "OMP_*", "MKL_*", "OPENBLAS_*", "XDG_*_HOME", "HF_HOME", "TORCH_HOME", "MPLBACKEND",
)  # fmt: skip
NODE = (
    *SHELL, "CUDA_*", "NVIDIA_*", "NCCL_*", "GLOO_*", "UCX_*", "FI_*", "*_proxy", "*_PROXY", "SSL_CERT_*",
    "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "PYTHONDONTWRITEBYTECODE",
)  # fmt: skip
# Set for each run; those of a job that submits other jobs, or starts an agent, would be wrong.
OWN = ("HOCKET_*", "CUDA_VISIBLE_DEVICES", "RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_*")
PASSED = "HOCKET_PASS"  # names and patterns, apart by blanks, that an administrator lets an agent pass on beside these


def is_one_of(name: str, patterns: Iterable[str]) -> bool:
    """Does a name match one of these patterns, in which one `*` may stand for anything?"""
    for pattern in patterns:
        begin, star, end = pattern.partition("*")
        if name == pattern or (
            star and len(name) >= len(begin) + len(end) and name.startswith(begin) and name.endswith(end)
        ):
            return True
    return False


def of_the_node(environ: Mapping[str, str]) -> dict[str, str]:
    """The part of an agent's environment that its jobs get."""
    patterns = (*NODE, *environ.get(PASSED, "").split())
    return {n: v for n, v in environ.items() if is_one_of(n, patterns) and not is_one_of(n, OWN)}
