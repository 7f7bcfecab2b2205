"""A user's script: a file with a function `training(config)` and, if it wants, `evaluate` and `space`."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from msgspec import Struct

from hocket.tune.definition import StudyError
from hocket.tune.space import Space


class Script(Struct, frozen=True):
    """What a script has to offer."""

    training: Callable[[Any], Any]
    evaluate: Callable[..., Any] | None
    space: Space | None


def load(path: Path) -> Script:
    """Run a script, as if it were imported, and take its functions."""
    if not path.is_file():
        raise StudyError(f"script '{path}' must be a file that exists")
    name = f"hocket_tune_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise StudyError(f"script '{path}' must be a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # Data sets and modules that are pickled name it.
    sys.path.insert(0, str(path.resolve().parent))  # It imports its neighbours, as when it is run.
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise StudyError(f"script '{path}' cannot be imported: {type(error).__name__}: {_first_line(error)}") from error
    training = getattr(module, "training", None)
    if not callable(training):
        raise StudyError(f"script '{path}' must have a function training(config), and has none")
    evaluate = getattr(module, "evaluate", None)
    if evaluate is not None and not callable(evaluate):
        raise StudyError(f"script '{path}': evaluate must be a function, not a {type(evaluate).__name__}")
    return Script(training, evaluate, getattr(module, "space", None))


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [""])[0]
