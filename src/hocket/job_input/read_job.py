"""What a user says about a job, on the command line, in a file or in the page, and the spec of the API that it means.

The names are the same in all: `--gpu-mem 40G` and `gpu_mem = "40G"`. `model/job.py` describes the fields.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from hocket.agent.job_environment import OWN, SHELL, is_one_of
from hocket.agent.requirements import names_files
from hocket.control.admission import read_submitted_spec, refusal
from hocket.job_input import units
from hocket.job_input.launchers import program_of, requested_by_launcher
from hocket.job_input.paramserver_input import HostsProblem, with_hosts
from hocket.job_input.query_input import QueryProblem, query_traits, with_query
from hocket.job_input.units import BadValue
from hocket.model.criterion import CriterionError, parse
from hocket.model.job import Job, Kind
from hocket.model.job_spec import FIELDS, SpecError, SpecField

SECRET_LIMIT = 1 << 16  # bytes
_REQUIREMENTS_LIMIT = 1 << 20  # bytes
_LINE_LIMIT = 32_768  # characters of a command that is said as one line
_BY_NAME = {field.name: field for field in FIELDS}
_BY_API_NAME = {field.api: field for field in FIELDS}
NAMES = tuple(_BY_NAME)
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NO_SHELL = "must be said where there is a shell: on the command line, or in a file that is submitted there"


class FieldProblem(ValueError):
    """What is wrong with one field; where the text of a criterion goes wrong, its position too."""

    def __init__(self, field: str, problem: str, text: str = "", position: int = -1) -> None:
        super().__init__(f"{field} {problem}" if field else problem)
        self.field = field
        self.problem = problem
        self.text = text
        self.position = position


class JobInput(NamedTuple):
    """What is sent for a job or an array of jobs, and the job, or the first of them, that it makes."""

    spec: dict[str, Any]
    job: Job


class _Here(NamedTuple):
    """Where a command line is typed, or a file is."""

    folder: str  # where relative paths begin
    shell: Mapping[str, str]  # the environment at hand
    bundle: Callable[[str], str]  # an absolute path of a folder → the digest of its bundle


def _no_bundle(_folder: str) -> str:
    raise FieldProblem("working_dir", "cannot be sent along by this command")


def read_job(
    said: Mapping[str, object], folder: str, shell: Mapping[str, str], bundle: Callable[[str], str] = _no_bundle
) -> JobInput:
    """The job that was described; `folder` is where relative paths begin, `shell` the environment at hand.

    `bundle` gives the digest of the bundle of a folder, and raises ValueError if it can be none.
    Raises FieldProblem. Only what depends on the cluster and on other jobs is left for the controller to refuse.
    """
    return _job_input(said, _Here(folder, shell, bundle))


def read_remote_job(said: Mapping[str, object]) -> JobInput:
    """The job that was described on another machine: no file here is read for it, and no variable is taken from here.

    Its folder is absolute, its variables come with their values, and `secret` has values by name. Raises FieldProblem.
    """
    return _job_input(said, None)


def remote_problems(said: Mapping[str, object]) -> dict[str, str]:
    """What is wrong with each field of a job that was described on another machine, without the name of the field."""
    found: dict[str, str] = {}
    for name, value in said.items():
        try:
            _check_field(name, value)
        except FieldProblem as problem:
            found[name] = problem.problem
    return found


def _check_field(name: str, value: object) -> None:
    """Raises FieldProblem if the field is wrong whatever the others say."""
    field = _BY_NAME.get(name)
    if field is None or name == "export_all":
        raise FieldProblem(name, "must be a field of a job" if field is None else _NO_SHELL)
    match field.reads:
        case "folder":
            read: Any = _absolute(value)
        case "env":
            read = _environment({"env": value}, {})
        case "secrets":
            read = _given_secrets(value)
        case _:
            read = _read(name, value)
    if field.part == "shell" or field.reads == "gpus":
        return  # These are no fields of the spec.
    try:
        read_submitted_spec({"command": ["true"], field.api: read})
    except SpecError as error:
        if (problem := _field_problem(str(error))).field == name:
            raise problem from None


def _job_input(said: Mapping[str, object], here: _Here | None) -> JobInput:
    said = _with_hosts(_with_query(said))
    spec: dict[str, Any] = {}
    for name in said:
        field = _BY_NAME[name]
        if field.part != "shell" and field.reads not in ("env", "folder", "gpus", "secrets", "bundle", "pip"):
            spec[field.api] = _read(name, said[name])
    spec["cwd"] = _absolute(said.get("cwd", "")) if here is None else _folder(said.get("cwd", ""), here.folder)
    spec |= _code(said, here)
    spec["env"] = _environment(said, {} if here is None else here.shell)
    if "secret" in said:
        given = said["secret"]
        spec["secrets"] = _given_secrets(given) if here is None else _secrets(given, here.folder, here.shell)
        spec["env"] = {name: value for name, value in spec["env"].items() if name not in spec["secrets"]}
    if "gpus" not in said and "replica_gpus" not in said:
        asked = requested_by_launcher(
            spec.get("command"), spec["cwd"], spec["env"].get("PATH"), is_here=here is not None
        )
        said = asked | dict(said)
        spec |= {"max_nodes": asked["max_nodes"]} if "max_nodes" in asked and "max_nodes" not in spec else {}
    spec |= _sizes(said)
    if not spec.get("command"):
        raise FieldProblem("command", "must say what to run, and is missing")
    spec |= _read_from_command(spec)
    return JobInput(spec, _admissible(spec))


def _read_from_command(spec: Mapping[str, Any]) -> dict[str, Any]:
    """By what past jobs are compared with it, if its user does not say it: its program, or its query and data."""
    command, traits = spec["command"], spec.get("traits", {})
    if spec.get("kind") == Kind.QUERY:
        return {"traits": query_traits(command) | traits}
    return {} if traits or spec.get("model") else {"traits": {"program": program_of(command)}}


def _with_query(said: Mapping[str, object]) -> Mapping[str, object]:
    try:
        checked = {name: _read(name, said[name]) for name in ("query", "data", "engine", "master") if name in said}
        return with_query({**said, **checked}, _read("command", said["command"]) if said.get("command") else [])
    except QueryProblem as problem:
        raise FieldProblem(problem.field, str(problem)) from None


def _with_hosts(said: Mapping[str, object]) -> Mapping[str, object]:
    try:
        return with_hosts(said, _read("command", said["command"]) if said.get("command") else [])
    except HostsProblem as problem:
        raise FieldProblem("hosts", str(problem)) from None


def _admissible(spec: dict[str, Any]) -> Job:
    """The job, or the first of an array, if a controller with room for it would accept it."""
    try:
        submitted = read_submitted_spec(spec)
    except SpecError as error:
        raise _field_problem(str(error)) from error
    job = next(submitted.jobs(submitted.job.id or "job"))
    if reason := refusal((), job, None):
        raise _field_problem(reason.removeprefix(f"job '{job.id}': "))
    return job


def as_field_problem(problem: str, job_id: str = "") -> FieldProblem:
    """A refusal of the controller, `job 'net': sizes must …`, under the name that users know the field by."""
    return _field_problem(problem.removeprefix(f"job '{job_id}': "))


def _field_problem(problem: str) -> FieldProblem:
    """What is wrong with a field of the spec, under the name that users know it by."""
    found = re.match(r"(?P<field>\w+)(?P<part>[^\s:]*)(?P<colon>:?) (?P<rule>.*)", problem, re.DOTALL)
    if not found or found["field"] not in _BY_API_NAME:
        return FieldProblem("", problem)
    if found["part"]:  # `after[0]: expected …`, `progress.file must …`
        of_part = FieldProblem("", problem)
        of_part.field = _BY_API_NAME[found["field"]].name
        return of_part
    name, rule = _BY_API_NAME[found["field"]].name, found["rule"]
    return FieldProblem(name, f"must be {rule.removeprefix('expected ')}" if found["colon"] else rule)


def option_name_of(api_name: str) -> str:
    """What users call a field of the API."""
    field = _BY_API_NAME.get(api_name)
    return field.name if field is not None else api_name


def _read(name: str, value: object) -> Any:
    try:
        return _reader(_BY_NAME[name])(value)
    except BadValue as error:
        raise FieldProblem(name, str(error)) from None


def _counts(name: str, value: object) -> Any:
    counts = _read(name, value)
    if counts == [0]:
        raise FieldProblem(name, "must be counts from 1 up, not 0")
    return counts


def _sizes(said: Mapping[str, object]) -> dict[str, Any]:
    """GPUs are what users count, of a query threads, of a parameter-server job machines, if it says nothing of GPUs.

    Replicas, of so many GPUs each, are what a job is made of.
    """
    if said.get("kind") == Kind.QUERY:
        return {"sizes": _counts("threads", said.get("gpus", 1)), "gpus": 0}
    if said.get("kind") == Kind.PARAMETER_SERVER and "gpus" not in said and "replica_gpus" not in said:
        of_each = {} if "cpus" in said else {"cores": 1.0}
        return {"sizes": _counts("hosts", said.get("hosts", 1)), "gpus": 0, **of_each}
    per_replica = _read("replica_gpus", said.get("replica_gpus", 1))
    if per_replica < 1:
        raise FieldProblem("replica_gpus", f"must be a count from 1 up, not {per_replica}")
    counts = _read("gpus", said.get("gpus", per_replica))
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


def _code(said: Mapping[str, object], here: _Here | None) -> dict[str, Any]:
    """What is sent along with a job: the digest of its working directory, and lines for pip."""
    found: dict[str, Any] = {}
    if said.get("working_dir"):
        if said.get("cwd"):
            raise FieldProblem("cwd", "must not be given with working_dir, which is where the job runs")
        given = _read("working_dir", said["working_dir"])
        found = {"cwd": "", "working_dir": given if here is None else _bundle(_folder(given, here.folder), here)}
    if "pip" in said:
        given = _read("pip", said["pip"])
        lines = given if here is None else [line for text in given for line in _requirements(text, here.folder)]
        if "working_dir" not in found and (named := next(filter(names_files, lines), "")):
            raise FieldProblem("pip", f"must name no file without working_dir, which is sent along, not '{named}'")
        found["pip"] = lines
    return found


def _bundle(folder: str, here: _Here) -> str:
    try:
        return here.bundle(folder)
    except FieldProblem:
        raise
    except (OSError, ValueError) as error:
        raise FieldProblem("working_dir", str(error)) from error


def _requirements(text: str, folder: str) -> list[str]:
    """The lines of a file of requirements, without comments; or the one that was said."""
    if not text.endswith(".txt"):
        return [text]
    path = os.path.join(folder, os.path.expanduser(text))
    try:
        if os.path.getsize(path) > _REQUIREMENTS_LIMIT:
            raise FieldProblem("pip", f"must have at most {_REQUIREMENTS_LIMIT} bytes, and '{path}' has more")
        lines = Path(path).read_text(encoding="utf-8").replace("\\\n", " ").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        why = (error.strerror if isinstance(error, OSError) else None) or "it is no text"
        raise FieldProblem("pip", f"must be a package or a file that can be read, and '{path}' cannot: {why}") from None
    return [line for raw in lines if (line := re.sub(r"(^|\s)#.*", "", raw).strip())]


def _absolute(value: object) -> str:
    if not isinstance(value, str) or "\0" in value or not (value.startswith("/") or not value):
        raise FieldProblem("cwd", str(BadValue("an absolute path on the node where it runs", value)))
    return os.path.normpath(value) if value else ""


def _environment(said: Mapping[str, object], shell: Mapping[str, str]) -> dict[str, str]:
    found = carried(shell, _read("export_all", said.get("export_all", False)))
    given = said.get("env", [])
    if isinstance(given, dict):
        if wrong := [name for name, value in given.items() if not isinstance(value, str)]:
            raise FieldProblem("env", f"must be texts by name, and '{wrong[0]}' is none")
        return found | given
    for word in _read("env", given):
        name, is_set, value = word.partition("=")
        if not name:
            raise FieldProblem("env", "must be NAME=VALUE or NAME, and the name is missing")
        if not is_set and name not in shell:
            raise FieldProblem("env", f"must be NAME=VALUE or the name of a variable that is set, and '{name}' is not")
        found[name] = value if is_set else shell[name]
    return found


def _secrets(given: object, folder: str, shell: Mapping[str, str]) -> dict[str, str]:
    """The values of secrets: of the shell, or of files, and never of the command line, which all users can read."""
    found: dict[str, str] = {}
    words = [given] if isinstance(given, str) else given
    if not isinstance(words, list | tuple) or not all(isinstance(word, str) and word for word in words):
        raise FieldProblem("secret", "must be a list of NAME or NAME=@FILE")  # without what it is
    for word in words:
        name, is_set, source = word.partition("=")
        if is_set and not source.startswith("@"):
            seen = "others can see what is on a command line"
            raise FieldProblem("secret", f"must be NAME or NAME=@FILE, and '{name}' has a value: {seen}")
        if not is_set and name not in shell:
            raise FieldProblem(
                "secret", f"must be NAME=@FILE or the name of a variable that is set, and '{name}' is not"
            )
        found[name] = _in_file(os.path.join(folder, os.path.expanduser(source[1:]))) if is_set else shell[name]
    return found


def _given_secrets(given: object) -> dict[str, str]:
    """The values of secrets that came with the job, over a connection that others cannot read."""
    if not isinstance(given, dict) or not all(isinstance(value, str) for value in given.values()):
        raise FieldProblem("secret", "must be texts by name")  # without what it is
    if odd := next((name for name in given if not _VARIABLE.fullmatch(name)), None):
        raise FieldProblem("secret", f"must have names of letters, digits and _, not {odd[:40]!r}")
    return dict(given)


def _in_file(path: str) -> str:
    try:
        if os.path.getsize(path) > SECRET_LIMIT:
            raise FieldProblem("secret", f"must have at most {SECRET_LIMIT} bytes, and '{path}' has more")
        return Path(path).read_text(encoding="utf-8").removesuffix("\n")
    except (OSError, UnicodeDecodeError) as error:
        why = (error.strerror if isinstance(error, OSError) else None) or "it is no text"
        raise FieldProblem("secret", f"must be in a file that can be read, and '{path}' cannot: {why}") from None


def carried(shell: Mapping[str, str], everything: bool = False) -> dict[str, str]:
    """The part of an environment that goes with a job."""
    return {
        name: value
        for name, value in shell.items()
        if (everything or is_one_of(name, SHELL)) and not is_one_of(name, OWN) and _is_passable(name, value)
    }


def _is_passable(name: str, value: str) -> bool:
    # Bytes that are no text cannot travel as JSON, and exported shell functions are for shells alone.
    return not name.startswith("BASH_FUNC_") and not any("\ud800" <= c <= "\udfff" for c in value)


# -- values, by `SpecField.reads` -----------------------------------------------------------------------------------


def _text(value: object) -> str:
    if not isinstance(value, str) or not value or not value.isprintable():
        raise BadValue("a text without control characters", value)
    return value


def _sql(value: object) -> str:
    """A text of several lines, perhaps."""
    if not isinstance(value, str) or not value.strip() or "\0" in value:
        raise BadValue("a text", value)
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
        if len(value) > _LINE_LIMIT:  # To part it takes time as the square of a word's length.
            raise BadValue(f"a line of at most {_LINE_LIMIT:,} characters, or a list of words", value)
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


def _choice(value: object, known: list[str]) -> str:
    if _text(value) not in known:
        raise BadValue(f"{', '.join(known[:-1])} or {known[-1]}", value)
    return str(value)


def _signal(value: object) -> str:
    text = _text(value).upper()
    return text if text.startswith("SIG") else f"SIG{text}"


def _criterion(value: object, name: str) -> str:
    text = _text(value)
    try:
        return str(parse(text))
    except CriterionError as error:
        found = text[error.position :].strip()
        where = f"at column {error.position + 1}" if found else "at the end"
        problem = f"{where} expected {error.expected}" + (f", found {found!r}" if found else "")
        raise FieldProblem(f"{name}:", problem, text, error.position) from error


def _progress(value: object) -> dict[str, Any]:
    """`json:FILE`, `csv:FILE`, `tensorboard:FOLDER`, `pattern:REGEX`, `json`, `stdout`, `none`, or a table."""
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
    return config


def _traits(value: object) -> dict[str, float | str]:
    """A table, or texts `NAME=VALUE`; what reads as a number is one."""
    rule = "NAME=VALUE, or a table of numbers and texts"
    if not isinstance(value, dict):
        parted = [word.partition("=") for word in _texts(value)]
        if any(not name or not text for name, _is, text in parted):
            raise BadValue(rule, value)
        value = {name: text for name, _is, text in parted}
    found: dict[str, float | str] = {}
    for name, given in value.items():
        if isinstance(given, bool) or not isinstance(given, str | int | float):
            raise BadValue(rule, value)
        try:
            found[name] = float(given)
        except ValueError:
            found[name] = _text(given)
        except OverflowError:
            raise BadValue("finite numbers or texts", value) from None
    return found


def _reader(field: SpecField) -> Callable[[Any], Any]:
    match field.reads:
        case "seconds":
            return partial(units.seconds, zero=field.about.rule is not None and field.about.rule.ge == 0)
        case "choice":
            return partial(_choice, known=[str(word) for word in field.plain_type])
        case "criterion":
            return partial(_criterion, name=field.name)
        case reads:
            return _READERS[reads]


_READERS: dict[str, Callable[[Any], Any]] = {
    "array": units.array_count, "env": _texts, "flag": _flag, "folder": _text, "gpus": units.gpu_counts,
    "kinds": _kinds, "memory": units.mebibytes, "moment": units.seconds_from_now, "names": _texts,
    "number": units.number, "progress": _progress, "signal": _signal, "text": _text, "whole": units.whole,
    "secrets": _texts, "bundle": _text, "pip": _texts, "sql": _sql, "traits": _traits, "words": _words,
}  # fmt: skip
