"""A study as a file: `study.toml` names a script and says how to search."""

from __future__ import annotations

import importlib.util
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from hocket.model.validation import explained
from hocket.tune.brackets import SEARCHES, Search
from hocket.tune.definition import StudyError, check_name
from hocket.tune.sampling import EARLIER, RANDOM, RandomSampler, Sampler
from hocket.tune.space import Space, space_of_table
from hocket.tune.study import Study


class StudyFile(Struct, kw_only=True, forbid_unknown_fields=True):
    """The fields of a study file; options of the command line are put into the same ones."""

    script: str
    name: str = ""
    space: dict[str, Any] = {}
    search: dict[str, Any] = {}  # kind = "hyperband", and what that takes
    metric: str = ""
    goal: str | None = None  # by the metric's name
    unit_steps: int = 100
    policy: str = "pack_gain"
    params: dict[str, Any] = {}
    mode: str | None = None
    exact: bool = False
    device: str = "cpu"
    memory_mib: float | None = None
    seed: int = 0
    sampler: str = "random"  # or the name of one of Optuna's
    folder: str = ""
    checkpoint_s: float = 60.0


def read_file(path: Path) -> StudyFile:
    """A study file; its script and folder lie relative to it."""
    try:
        given = tomllib.loads(path.read_text(encoding="utf-8"))
    except UnicodeDecodeError as error:
        raise StudyError(f"study '{path}' is not text in UTF-8: {error.reason} at byte {error.start}") from error
    except tomllib.TOMLDecodeError as error:
        raise StudyError(f"study '{path}' is not TOML: {error}") from error
    if "way" in given:  # an earlier name
        given.setdefault("mode", given.pop("way"))
    try:
        found = msgspec.convert(given, type=StudyFile)
    except msgspec.ValidationError as error:
        known = [f.name for f in msgspec.structs.fields(StudyFile)]
        raise StudyError(
            f"study '{path}': {explained(error, given, known)} (its fields: {', '.join(known)})"
        ) from error
    found.script = str(path.parent / found.script)
    found.folder = str(path.parent / found.folder) if found.folder else ""
    found.name = found.name or path.stem
    check_name(found.name)
    return found


def study_of(file: StudyFile, space: Space | None = None) -> Study:
    """The study that a file describes; a space that is given stands for the one in the file."""
    search = search_of(file.search)
    given = space if space is not None else space_of_table(file.space) if file.space else None
    script = load_script(Path(file.script))
    chosen = given if given is not None else script.space
    if chosen is None:
        raise StudyError(f"script '{file.script}' has no space, and none is given")
    return Study(
        script.training, chosen, evaluate=script.evaluate, metric=file.metric, goal=file.goal,  # type: ignore[arg-type]
        search=search, unit_steps=file.unit_steps, policy=file.policy, params=file.params, mode=file.mode,
        exact=file.exact, device=file.device, memory_mib=file.memory_mib, seed=file.seed,
        sampler=sampler_of(file.sampler, chosen, file.seed), name=file.name or Path(file.script).stem,
        folder=file.folder or None, checkpoint_s=file.checkpoint_s,
    )  # fmt: skip


def search_of(table: dict[str, Any]) -> Search:
    """The search that a table describes by its kind and its fields."""
    settings = dict(table)
    kind = settings.pop("kind", "hyperband")
    if not isinstance(kind, str) or kind not in SEARCHES:
        raise StudyError(f"search '{kind}' is not one of {', '.join(SEARCHES)}")
    try:
        return msgspec.convert(settings, type=SEARCHES[kind])
    except msgspec.ValidationError as error:
        known = [f.name for f in msgspec.structs.fields(SEARCHES[kind])]
        wrong = explained(error, settings, known)
        raise StudyError(f"search '{kind}': {wrong} (it takes {', '.join(known)})") from error


def sampler_of(name: str, space: Space, seed: int) -> Sampler:
    """The sampler of that name."""
    if name in (RANDOM, EARLIER):
        return RandomSampler(space, seed)
    from hocket.tune.optuna_support import OptunaSampler

    return OptunaSampler(space, name, seed)


class Script(Struct, frozen=True):
    """The functions of a script."""

    training: Callable[[Any], Any]
    evaluate: Callable[..., Any] | None
    space: Space | None


def load_script(path: Path) -> Script:
    """Run a script, as if it were imported, and take its functions."""
    if not path.is_file():
        raise StudyError(f"script '{path}' must be a file that exists")
    name = f"hocket_tune_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None:
        raise StudyError(f"script '{path}' must be a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # Data sets and modules that are pickled name it.
    sys.path.insert(0, str(path.resolve().parent))  # It can import its neighbours, as when it is run.
    try:
        # Not by its loader: that takes kept bytecode for the script if it was changed twice in one second.
        exec(compile(path.read_bytes(), str(path), "exec"), module.__dict__)
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
