"""Words that other schedulers use for commands of ours, and what to say of a word that is no command."""

from __future__ import annotations

from collections.abc import Iterable

# These do the same here, and take our options.
ALIASES = {
    "cancel": "stop",
    "kill": "stop",
    "scancel": "stop",
    "ls": "jobs",
    "list": "jobs",
    "ps": "jobs",
    "queue": "jobs",
    "squeue": "jobs",
    "log": "logs",
}
# These have other options, or do more or less: their user should know.
_INSTEAD = {
    "sbatch": "hocket submit [options] -- COMMAND",
    "qsub": "hocket submit [options] -- COMMAND",
    "bsub": "hocket submit [options] -- COMMAND",
    "launch": "hocket submit [options] -- COMMAND",
    "srun": "hocket run [options] -- COMMAND",
    "exec": "hocket run [options] -- COMMAND",
    "qdel": "hocket stop JOB",
    "rm": "hocket stop JOB",
    "delete": "hocket stop JOB",
    "qstat": "hocket jobs",
    "status": "hocket jobs, hocket top or hocket show JOB",
    "sinfo": "hocket nodes or hocket top",
    "drain": "hocket node drain NODE",
    "undrain": "hocket node undrain NODE",
    "cordon": "hocket node drain NODE",
    "uncordon": "hocket node undrain NODE",
    "reserve": "hocket node reserve NODE --owner NAME",
    "unreserve": "hocket node unreserve NODE",
    "taint": "hocket node reserve NODE --owner NAME",
    "sacct": "hocket jobs --all",
    "scontrol": "hocket show JOB, hocket pause JOB or hocket resume JOB",
    "describe": "hocket show JOB",
    "info": "hocket show JOB",
    "hold": "hocket pause JOB",
    "suspend": "hocket pause JOB",
    "release": "hocket resume JOB",
    "tail": "hocket logs --tail N JOB",
    "attach": "hocket logs -f JOB",
    "follow": "hocket logs -f JOB",
    "start": "hocket up (the controller), hocket submit or hocket resume JOB",
    "explain": "hocket why JOB",
    "quota": "hocket owners",
    "quotas": "hocket owners",
}


def unknown_command(word: str, known: Iterable[str]) -> str:
    """That there is no such command, and which one may be meant."""
    from difflib import get_close_matches

    if instead := _INSTEAD.get(word):
        return f"there is no command '{word}' here; use {instead}"
    near = get_close_matches(word[:50], [*known, *ALIASES, *_INSTEAD], n=1, cutoff=0.6)
    if not near:
        return f"there is no command '{word}'; see `hocket --help`"
    meant = ALIASES.get(near[0], near[0])
    return f"there is no command '{word}'; " + (
        f"use {_INSTEAD[meant]}" if meant in _INSTEAD else f"did you mean 'hocket {meant}'?"
    )
