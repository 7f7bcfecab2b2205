"""The spec of a job: what can be said of one, by which names, and the job that it means.

All of it follows from the fields of `Job` and `Launch` as `job.py` describes them. A field has three names: its own
(`gpu_mem_mib`), the API's (mostly the same) and the user's (`--gpu-mem`, `gpu_mem`).
"""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches
from enum import StrEnum
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import NODEFAULT, UNSET, Meta, Struct
from msgspec.structs import fields, replace

from hocket.model.criterion import Criterion, CriterionError, Goal, parse
from hocket.model.job import Job, JobField, Launch, Panel
from hocket.model.resources import Demand
from hocket.model.validation import explained, shown, too_small

ARRAY_LIMIT = 10_000  # jobs in an array


class SpecField(Struct, frozen=True):
    """One field of the spec."""

    part: str  # where its value belongs: "job", "demand", "launch", or "submission" if it is no field of a job
    field: str  # its name there
    type: Any
    default: Any
    about: JobField

    @property
    def name(self) -> str:
        """As users call it in files; as an option with dashes."""
        return self.about.name or self.field

    @property
    def api(self) -> str:
        """As the API calls it."""
        return self.about.api or self.field

    @property
    def plain_type(self) -> Any:
        """Its type, without None."""
        if get_origin(self.type) in (Union, UnionType):
            first, *more = [t for t in get_args(self.type) if t is not type(None)]
            return Criterion if more else first
        return self.type

    @property
    def reads(self) -> str:
        """How a text or a TOML value is read, and shown."""
        kind = self.plain_type
        if self.about.reads:
            return self.about.reads
        if kind in (Criterion, Goal):
            return "criterion"
        if isinstance(kind, type) and issubclass(kind, StrEnum):
            return "choice"
        if kind is float:
            return "seconds" if self.field.endswith("_s") else "memory" if self.field.endswith("_mib") else "number"
        return {bool: "flag", int: "whole", str: "text"}.get(kind, "names")

    @property
    def given_type(self) -> Any:
        """The type in the API, with its rule and its description."""
        about = self.about
        return described(about.given or ruled(self.type, about.rule), about.api_help or about.help)

    @property
    def given_default(self) -> Any:
        """What holds if a submission does not say it; NODEFAULT if it must."""
        return self.default if self.about.submitted is UNSET else self.about.submitted


def described(kind: Any, help_text: str) -> Any:
    """A type with a description for its schema."""
    return Annotated[kind, Meta(description=help_text)]


def ruled(kind: Any, rule: Meta | None) -> Any:
    """A type with a rule; of one that may be None the rule is for the rest."""
    if rule is None:
        return kind
    if get_origin(kind) in (Union, UnionType):
        return Annotated[get_args(kind)[0], rule] | None
    return Annotated[kind, rule]


def described_fields(kind: type[Struct]) -> Iterator[tuple[str, Any, Any, JobField]]:
    """Name, type, default and description of the fields of `Job` or `Launch`, or of a struct like them."""
    hints = get_type_hints(kind, include_extras=True)
    for field in fields(kind):
        default = field.default if field.default_factory is NODEFAULT else field.default_factory()
        annotated = hints[field.name]
        about = next((m for m in getattr(annotated, "__metadata__", ()) if isinstance(m, JobField)), None)
        if about is None:
            raise TypeError(f"{kind.__name__}.{field.name} must be described by a JobField")
        yield field.name, annotated.__origin__, default, about


# Said with a submission, and no field of its jobs.
_OF_SUBMISSIONS = (
    SpecField(
        "submission", "array", int | None, None,
        JobField(
            "Submit this many jobs, NAME-0, NAME-1, …, each with its HOCKET_ARRAY_INDEX.", Panel.JOB, metavar="N|0-M",
            reads="array", default="one job", more="`10` and `0-9` mean the same ten jobs.",
        ),
    ),
    SpecField(
        "shell", "export_all", bool, False,
        JobField("Pass the shell's whole environment to the job.", Panel.EXECUTION, reads="flag", default="off"),
    ),
    SpecField(
        "shell", "hosts", str, "",
        JobField(
            "Numbers of machines that a parameter-server job can run on: 2, 1,2,4 or 1-4.", Panel.RESOURCES,
            metavar="1-4", reads="gpus", default="1", more="Without GPUs; `--cpus` and `--mem` are of each machine.",
        ),
    ),
    SpecField(
        "shell", "query", str, "",
        JobField(
            "One SELECT, to be answered progressively instead of a command.", Panel.QUERY, metavar="SQL", reads="sql",
            default="none", more="Stands for the command `hocket query SQL --data DATA`.",
        ),
    ),
    SpecField(
        "shell", "data", str, "",
        JobField(
            "Its tables: a folder of Parquet or CSV files, a DuckDB file, or tpch:SCALE.", Panel.QUERY,
            metavar="DIR|FILE", reads="sql", default="none", more="On the node where it runs.",
        ),
    ),
    SpecField(
        "shell", "threads", str, "",
        JobField(
            "Numbers of threads it can run on: 2, 1,2,4 or 1-4.", Panel.QUERY, metavar="1-4", reads="gpus",
            default="1", more="The size of a query; it changes between two batches, without a restart.",
        ),
    ),
    SpecField(
        "shell", "engine", str, "",
        JobField(
            "What computes its batches: duckdb or spark.", Panel.QUERY, metavar="ENGINE", reads="sql",
            default="duckdb", more="The job merges what the workers of Spark compute.",
        ),
    ),
    SpecField(
        "shell", "master", str, "",
        JobField(
            "Master of Spark: spark://HOST:PORT, local[N] or yarn.", Panel.QUERY, metavar="URL", reads="sql",
            default="none",
        ),
    ),
)  # fmt: skip


def spec_fields(job: type[Struct] = Job, launch: type[Struct] = Launch) -> tuple[SpecField, ...]:
    """The fields of the spec, in the order of options and tables."""
    found: list[SpecField] = []
    demand: list[SpecField] = []
    for name, kind, default, about in described_fields(job):
        if name == "demand":
            for part, described_part in about.parts.items():
                part_kind = get_type_hints(Demand)[part]
                demand.append(SpecField("demand", part, part_kind, getattr(Demand(), part), described_part))
        elif name == "launch":
            found += [SpecField("launch", *each) for each in described_fields(launch)]
        elif about.panel is not None or name == "command":
            default = NODEFAULT if name == "command" else default
            found.append(SpecField("job", name, kind, default, about))
        if name == "sizes":  # `--gpus` comes before `--replica-gpus`.
            found += demand
    return (*found, *_OF_SUBMISSIONS)


def spec_struct(described: tuple[SpecField, ...]) -> type[Struct]:
    """The struct that the API reads: one flat object."""
    return msgspec.defstruct(
        "JobSpec",
        [(f.api, f.given_type, f.given_default) for f in described if f.part != "shell"],
        namespace={"__doc__": "What a user submits."}, kw_only=True, frozen=True, forbid_unknown_fields=True,
    )  # fmt: skip


FIELDS = spec_fields()
_OPTIONS = {field.field: f"--{field.name.replace('_', '-')}" for field in FIELDS if field.part == "job"}
JobSpec = spec_struct(FIELDS)
_API_NAMES = JobSpec.__struct_fields__
_HIDDEN = {"secrets": "…"}  # what an error says instead of such a value
_CRITERIA = [field for field in FIELDS if field.reads == "criterion"]
_PLACES = {
    part: [(field.field, field.api) for field in FIELDS if field.part == part] for part in ("job", "demand", "launch")
}


def option_of(field: str) -> str:
    """The option of `hocket submit` for a field of a job: `--deadline` for `deadline_s`."""
    return _OPTIONS[field]


class SpecError(ValueError):
    """A spec that breaks a rule: field, rule and value."""


class SubmittedSpec(Struct, frozen=True):
    """A submitted spec as a job, or as the pattern of an array's jobs."""

    job: Job  # its id is empty if the name is to be made up
    array: int | None = None
    secrets: dict[str, str] = {}  # values by name; the job has the names only
    first: int = 0  # index of the first job of a part of an array

    @property
    def count(self) -> int:
        """How many jobs it means."""
        return 1 if self.array is None else self.array

    @property
    def names(self) -> list[str]:
        """Those of its jobs, if it has a name."""
        name = self.job.id
        if self.array is None:
            return [name]
        return [f"{name}-{index}" for index in range(self.first, self.first + self.array)]

    def jobs(self, name: str) -> Iterator[Job]:
        """The jobs that it means, under this name."""
        if self.array is None:
            yield self.job if self.job.id == name else replace(self.job, id=name)
            return
        launch = self.job.launch or Launch()
        for index in range(self.first, self.first + self.array):
            env = {**launch.env, "HOCKET_ARRAY_INDEX": str(index)}
            yield replace(self.job, id=f"{name}-{index}", launch=replace(launch, env=env))


def read_spec(given: Any) -> SubmittedSpec:
    """The job that a spec means, as JSON has it. Raises SpecError."""
    if not isinstance(given, dict):
        raise SpecError("must be an object")
    for key in given:
        if key not in _API_NAMES:
            close = get_close_matches(str(key), _API_NAMES, n=1, cutoff=0.6)
            raise SpecError(f"unknown field '{key}'" + (f"; did you mean '{close[0]}'?" if close else ""))
    try:
        spec: Any = msgspec.convert(given, JobSpec)
    except msgspec.ValidationError as error:
        raise SpecError(explained(error, {name: _HIDDEN.get(name, given[name]) for name in given})) from error
    if wrong := too_small(given):
        raise SpecError(wrong)
    if spec.array is not None and not 1 <= spec.array <= ARRAY_LIMIT:
        raise SpecError(f"array must be 1 to {ARRAY_LIMIT:,}, not {shown(spec.array)}")
    return SubmittedSpec(_job(spec), spec.array, spec.secrets)


def _job(spec: Any) -> Job:
    job, demand, launch = (
        {name: getattr(spec, api) for name, api in _PLACES[part]} for part in ("job", "demand", "launch")
    )
    launch["secrets"] = tuple(sorted(spec.secrets))  # Their values are in no job, and so in no journal.
    job |= {field.field: _criterion(field, job[field.field]) for field in _CRITERIA}
    return Job(**job, demand=Demand(**demand), launch=Launch(**launch))


def _criterion(field: SpecField, text: str) -> Criterion | None:
    try:
        found = parse(text) if text else None
    except CriterionError as error:
        raise SpecError(f"{field.api}: {error}") from error
    if found is not None and field.plain_type is Goal and not isinstance(found, Goal):
        raise SpecError(f"{field.api} must be a goal such as 'acc >= 90%', not '{found}'")
    return found


def shown_spec(job: Job) -> dict[str, Any]:
    """A job by the names of the API, but for its id and owner; of what is secret the names only."""
    parts: dict[str, Any] = {"job": job, "demand": job.demand, "launch": job.launch}
    found: dict[str, Any] = {}
    for field in FIELDS:
        if (part := parts.get(field.part)) is None or field.field in ("id", "owner"):
            continue
        value = getattr(part, field.field)
        if field.reads == "criterion":
            value = "" if value is None else str(value)
        found[field.api] = sorted(value) if field.about.secret else value
    return found
