"""A command with placeholders: `python train.py --lr {lr}` becomes one command for each trial."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from hocket.tune.definition import StudyError

UNITS = "units"  # the placeholder for the epochs or steps that a trial gets at most
# `{{name}}` is the text `{name}`. Other braces, as of JSON, are left alone.
_PLACEHOLDER = re.compile(r"\{\{([A-Za-z_]\w*)\}\}|\{([A-Za-z_]\w*)\}")


def placeholders(command: Sequence[str]) -> list[str]:
    """The names that the command asks for, each once."""
    return list(dict.fromkeys(found[2] for word in command for found in _PLACEHOLDER.finditer(word) if found[2]))


def check_command(command: Sequence[str], names: Iterable[str], *, reads_environment: bool = False) -> None:
    """Refuse a placeholder that stands for no hyperparameter, and a hyperparameter that has no effect."""
    known = list(names)
    if not command:
        raise StudyError("there is no command behind --: hocket tune --space lr=uniform:0,1 -- python train.py {lr}")
    if UNITS in known:
        raise StudyError(f"hyperparameter '{UNITS}': {{{UNITS}}} is what a trial gets at most; give it another name")
    asked = placeholders(command)
    for name in asked:
        if name not in known and name != UNITS:
            near = get_close_matches(name, known, n=1)
            hint = f"did you mean {{{near[0]}}}?" if near else f"there are {', '.join(known)}"
            raise StudyError(f"placeholder {{{name}}} is no hyperparameter of the space; {hint}")
    for name in known:
        if name not in asked and not reads_environment:
            variable = variable_of(name)
            raise StudyError(
                f"hyperparameter '{name}' has no placeholder {{{name}}} in the command; "
                f"say --from-env if the program reads {variable} or HOCKET_TUNE_CONFIG"
            )


def filled(command: Sequence[str], config: Mapping[str, Any], most: int) -> list[str]:
    """The command of one trial, which gets `most` epochs or steps at most."""
    values = {UNITS: most, **config}

    def value(found: re.Match[str]) -> str:
        return f"{{{found[1]}}}" if found[1] else written(values[found[2]])

    return [_PLACEHOLDER.sub(value, word) for word in command]


def environment(config: Mapping[str, Any]) -> dict[str, str]:
    """The same values as variables: HOCKET_TUNE_LR, and all of them as JSON."""
    return {"HOCKET_TUNE_CONFIG": json.dumps(dict(config))} | {
        variable_of(name): written(value) for name, value in config.items()
    }


def variable_of(name: str) -> str:
    """The variable of a hyperparameter."""
    return f"HOCKET_TUNE_{re.sub(r'[^A-Za-z0-9]', '_', name).upper()}"


def written(value: Any) -> str:
    """Text as it is; numbers, true, false and null as in JSON."""
    return value if isinstance(value, str) else json.dumps(value)
