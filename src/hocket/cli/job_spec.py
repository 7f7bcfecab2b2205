"""What a user says about a job, on the command line or in a file, and the JobSpec of docs/api.md that it means.

The names are the same in both: `--gpu-mem 40G` and `gpu_mem = "40G"`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from hocket.cli import quantities
from hocket.cli.quantities import BadValue


class FieldProblem(ValueError):
    """What is wrong with one field; where the text of a criterion goes wrong, its position too."""

    def __init__(self, field: str, problem: str, text: str = "", position: int = -1) -> None:
        super().__init__(f"{field} {problem}" if field else problem)
        self.field = field
        self.problem = problem
        self.text = text
        self.position = position


def job_spec(said: Mapping[str, object], folder: str, shell: Mapping[str, str]) -> dict[str, Any]:
    """The JobSpec of what was said; `folder` is where relative paths begin, `shell` the environment at hand.

    Raises FieldProblem. Nothing is left for the controller to find but what depends on its cluster and its other jobs.
    """
    spec: dict[str, Any] = {}
    for name, (field, read) in _READ.items():
        if name in said:
            spec[field] = _read(name, read, said[name])
    spec |= _sizes(said)
    spec["cwd"] = _folder(said.get("cwd", ""), folder)
    spec["env"] = _environment(said, shell)
    if not spec.get("command"):
        raise FieldProblem("command", "must say what to run, and is missing")
    _check_as_the_controller_does(spec)
    return spec


def _read(name: str, read: Callable[[Any], Any], value: object) -> Any:
    try:
        return read(value)
    except BadValue as error:
        raise FieldProblem(name, str(error)) from None


def _sizes(said: Mapping[str, object]) -> dict[str, Any]:
    """GPUs are what users count; replicas, of so many GPUs each, are what a job is made of."""
    per_replica = _read("replica_gpus", quantities.whole, said.get("replica_gpus", 1))
    if per_replica < 1:
        raise FieldProblem("replica_gpus", f"must be a count from 1 up, not {per_replica}")
    counts = _read("gpus", quantities.gpu_counts, said.get("gpus", per_replica))
    if counts == [0]:
        # One core unless it says otherwise: a job that asks for nothing could not be counted.
        return {"sizes": [1], "gpus": 0, **({} if "cpus" in said else {"cores": 1.0})}
    odd = next((n for n in counts if n % per_replica), None)
    if odd is not None:
        raise FieldProblem("gpus", f"must be multiples of replica_gpus ({per_replica}), not {odd}")
    return {"sizes": [n // per_replica for n in counts], "gpus": per_replica}


def _folder(value: object, folder: str) -> str:
    if not isinstance(value, str) or "\0" in value:
        raise FieldProblem("cwd", str(BadValue("a path", value)))
    return os.path.normpath(os.path.join(folder, os.path.expanduser(value)))


def _environment(said: Mapping[str, object], shell: Mapping[str, str]) -> dict[str, str]:
    from hocket.cli.shell_environment import carried

    found = carried(shell, _read("export_all", _flag, said.get("export_all", False)))
    given = said.get("env", [])
    if isinstance(given, dict):
        if wrong := [name for name, value in given.items() if not isinstance(value, str)]:
            raise FieldProblem("env", f"must be texts by name, and '{wrong[0]}' is none")
        return found | given
    for word in _read("env", _texts, given):
        name, is_set, value = word.partition("=")
        if not name:
            raise FieldProblem("env", "must be NAME=VALUE or NAME, and the name is missing")
        if not is_set and name not in shell:
            raise FieldProblem("env", f"must be NAME=VALUE or the name of a variable that is set, and '{name}' is not")
        found[name] = value if is_set else shell[name]
    return found


def _check_as_the_controller_does(spec: dict[str, Any]) -> None:
    import msgspec

    from hocket.control.admission import faults
    from hocket.service.job_spec import SpecError, jobs_of, read_specs

    try:
        (read,) = read_specs(msgspec.json.encode({"jobs": [spec]}))
        job = next(iter(jobs_of(read, read.id or "job")))
    except SpecError as error:
        raise _as_said(str(error).removeprefix("jobs[0]: ")) from error
    for fault in faults(job):
        raise _as_said(fault)


def _as_said(problem: str) -> FieldProblem:
    """What the controller says of a field of the JobSpec, under the name that users know it by."""
    found = re.match(r"(?P<field>\w+)(?P<colon>:?) (?P<rule>.*)", problem, re.DOTALL)
    name = found and _SAID_AS.get(found["field"])
    if not found or not name:
        return FieldProblem("", problem)
    rule = found["rule"]
    return FieldProblem(name, f"must be {rule.removeprefix('expected ')}" if found["colon"] else rule)


def said_as(field: str) -> str:
    """What users call a field of the JobSpec."""
    return _SAID_AS.get(field, field)


# -- fields -------------------------------------------------------------------------------------------------


def _text(value: object) -> str:
    if not isinstance(value, str) or not value or not value.isprintable():
        raise BadValue("a text without control characters", value)
    return value


def _texts(value: object) -> list[str]:
    words = [value] if isinstance(value, str) else value
    if not isinstance(words, list | tuple) or not all(isinstance(w, str) and w for w in words):
        raise BadValue("a text or a list of texts", value)
    return list(words)


def _kinds(value: object) -> list[str]:
    return [kind for text in _texts(value) for kind in text.split(",") if kind]


def _words(value: object) -> list[str]:
    """A list, or one line parted at its blanks, with quotes as in a shell; but no shell ever sees it."""
    import shlex

    if isinstance(value, str):
        try:
            return shlex.split(value)
        except ValueError:
            raise BadValue("a line whose quotes are closed, or a list of words", value) from None
    if not isinstance(value, list) or not all(isinstance(word, str) for word in value):
        raise BadValue("a list of words, or one line of them", value)
    return value


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise BadValue("true or false", value)
    return value


def _signal(value: object) -> str:
    text = _text(value).upper()
    return text if text.startswith("SIG") else f"SIG{text}"


def _criterion(value: object, field: str = "until") -> str:
    from hocket.model.criterion import CriterionError, parse

    text = _text(value)
    try:
        return str(parse(text))
    except CriterionError as error:
        found = text[error.position :].strip()
        problem = (
            f"at column {error.position + 1} expected {error.expected}, found {found!r}"
            if found
            else (f"at the end expected {error.expected}")
        )
        raise FieldProblem(f"{field}:", problem, text, error.position) from error


def _level(value: object) -> str:
    from hocket.model.job import Stop

    text = _text(value)
    if text not in list(Stop):
        raise BadValue("fixed, optstop or required", value)
    return text


def progress_config(value: object) -> dict[str, Any]:
    """`json:FILE`, `csv:FILE`, `tensorboard:FOLDER`, `pattern:REGEX`, `json`, `stdout`, `none`, or a table."""
    from hocket.agent.progress import check_config

    if isinstance(value, dict):
        config = value
    else:
        kind, _colon, rest = _text(value).partition(":")
        match kind:
            case "pattern":
                config = {"kind": "stdout", "patterns": [rest]}
            case "none":
                config = {"kind": "report"}
            case "json" | "csv":
                config = {"kind": kind, "file": rest}
            case "tensorboard":
                config = {"kind": kind, "folder": rest}
            case "stdout" | "report":
                config = {"kind": kind}
            case _:
                raise BadValue("json:FILE, csv:FILE, tensorboard:DIR, pattern:REGEX, stdout or none", value)
        if not rest:
            config = {"kind": config["kind"]}
        elif config.keys() == {"kind"}:
            raise BadValue(f"'{kind}' alone, or json:, csv:, tensorboard: or pattern: with what belongs to it", value)
    if problem := check_config(config):
        raise FieldProblem("", problem)
    return config


_READ: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "name": ("id", _text),
    "command": ("command", _words),
    "owner": ("owner", _text),
    "cpus": ("cores", quantities.number),
    "mem": ("mem_mib", quantities.mebibytes),
    "gpu_kind": ("gpu_kinds", _kinds),
    "gpu_mem": ("gpu_mem_mib", quantities.mebibytes),
    "max_nodes": ("max_nodes", quantities.whole),
    "priority": ("priority", quantities.whole),
    "weight": ("weight", quantities.number),
    "urgency": ("urgency", quantities.whole),
    "until": ("until", _criterion),
    "target": ("target", partial(_criterion, field="target")),
    "stop": ("stop", _level),
    "may_lower": ("may_lower", _level),
    "deadline": ("deadline_s", quantities.seconds),
    "time": ("limit_s", quantities.seconds),
    "after": ("after", _texts),
    "array": ("array", quantities.array_count),
    "retries": ("retries", quantities.whole),
    "backoff": ("backoff_s", partial(quantities.seconds, zero=True)),
    "resume": ("resume", _words),
    "signal": ("stop_signal", _signal),
    "checkpoint_signal": ("checkpoint_signal", _signal),
    "grace": ("grace_s", partial(quantities.seconds, zero=True)),
    "warm": ("warm", _flag),
    "progress": ("progress", progress_config),
    "hang": ("hang_s", partial(quantities.seconds, zero=True)),
    "log_size": ("log_mib", quantities.mebibytes),
    "model": ("model", _text),
}
_SAID_AS = {field: name for name, (field, _read) in _READ.items()}
FIELDS = (*_READ, "gpus", "replica_gpus", "cwd", "env", "export_all")
