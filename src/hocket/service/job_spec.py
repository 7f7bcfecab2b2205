"""A job as it comes over the API: the fields of `Job` and its `launch` in one flat object, checked one by one."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from difflib import get_close_matches
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from hocket.agent.progress import check_config
from hocket.model.criterion import Criterion, CriterionError, Goal, parse
from hocket.model.job import Job, Launch, Stop
from hocket.model.resources import Demand
from hocket.model.validation import explained

MOST_JOBS = 1000  # in one call
MOST_OF_AN_ARRAY = 10_000
LONGEST_OWNER = 200  # characters

Name = Annotated[str, Meta(min_length=1, max_length=200)]
Word = Annotated[str, Meta(max_length=131_072, pattern=r"^[^\x00]*\Z")]
Words = Annotated[tuple[Word, ...], Meta(max_length=10_000)]
Seconds = Annotated[float, Meta(ge=0, le=1e9)]
Signal = Annotated[str, Meta(pattern=r"^(SIG)?[A-Z0-9]{2,10}\Z")]
Variable = Annotated[str, Meta(pattern=r"^[^=\x00]+\Z", max_length=1000)]


class JobSpec(Struct, frozen=True, forbid_unknown_fields=True):
    """What a user submits."""

    command: Annotated[tuple[Word, ...], Meta(min_length=1, max_length=10_000, description="never a shell line")]
    id: Annotated[str, Meta(max_length=200, description="made up when empty")] = ""
    owner: Annotated[str, Meta(max_length=LONGEST_OWNER)] = ""
    sizes: Annotated[tuple[Annotated[int, Meta(ge=1, le=100_000)], ...], Meta(min_length=1, max_length=1000)] = (1,)
    gpus: Annotated[int, Meta(ge=0, le=1024, description="of one replica")] = 1
    cores: Annotated[float, Meta(ge=0, le=1e6, description="of one replica")] = 0.0
    mem_mib: Annotated[float, Meta(ge=0, le=1e9, description="of one replica")] = 0.0
    gpu_kinds: Annotated[tuple[Name, ...], Meta(max_length=100)] = ()
    gpu_mem_mib: Annotated[float, Meta(ge=0, le=1e9)] = 0.0
    max_nodes: Annotated[int, Meta(ge=0, le=100_000)] = 0
    weight: Annotated[float, Meta(gt=0, le=1e6)] = 1.0
    priority: Annotated[int, Meta(ge=-1_000_000, le=1_000_000)] = 0
    urgency: Annotated[int, Meta(ge=0, le=10)] = 0
    deadline_s: Annotated[float | None, Meta(description="counted from submission")] = None
    until: Annotated[str, Meta(max_length=1000, description="a criterion; empty: until its process ends")] = ""
    target: Annotated[str, Meta(max_length=1000, description="a goal that is measured, and ends nothing")] = ""
    stop: Annotated[Stop, Meta(description="what may end it before, where load is controlled")] = Stop.FIXED
    may_lower: Annotated[Stop, Meta(description="likewise, once the cluster is overloaded")] = Stop.FIXED
    after: Annotated[tuple[Name, ...], Meta(max_length=1000)] = ()
    retries: Annotated[int, Meta(ge=0, le=1_000_000)] = 3
    backoff_s: Seconds = 1.0
    limit_s: Annotated[float | None, Meta(description="how long it may run")] = None
    warm: bool = False
    model: Annotated[str, Meta(max_length=200)] = ""
    cwd: Annotated[str, Meta(max_length=4096, pattern=r"^(/[^\x00]*)?\Z", description="absolute")] = ""
    env: Annotated[dict[Variable, Word], Meta(max_length=10_000)] = {}
    resume: Words = ()
    stop_signal: Signal = "SIGTERM"
    checkpoint_signal: Annotated[str, Meta(pattern=r"^((SIG)?[A-Z0-9]{2,10})?\Z")] = ""
    grace_s: Seconds = 30.0
    hang_s: Seconds = 0.0
    progress: dict[str, Any] = {}
    log_mib: Annotated[float, Meta(gt=0, le=1e6)] = 64.0
    array: Annotated[int | None, Meta(description="how many: ID-0, ID-1, …, each with HOCKET_ARRAY_INDEX")] = None


_FIELDS = frozenset(JobSpec.__struct_fields__)


class SpecError(ValueError):
    """A spec that breaks a rule: field, rule and value."""


def read_specs(body: bytes) -> list[JobSpec]:
    """The specs of a call, `{"jobs": [...]}`. Raises SpecError."""
    try:
        raw = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise SpecError(f"the body must be JSON: {error}") from error
    if not isinstance(raw, dict) or not isinstance(raw.get("jobs"), list) or set(raw) != {"jobs"}:
        raise SpecError('the body must be {"jobs": [...]}')
    if not 1 <= len(raw["jobs"]) <= MOST_JOBS:
        raise SpecError(f"jobs must be 1 to {MOST_JOBS:,}, not {len(raw['jobs']):,}")
    return [_spec(n, given) for n, given in enumerate(raw["jobs"])]


def _spec(n: int, given: Any) -> JobSpec:
    where = f"jobs[{n}]"
    if not isinstance(given, dict):
        raise SpecError(f"{where} must be an object")
    for key in given:
        if key not in _FIELDS:
            close = get_close_matches(str(key), _FIELDS, n=1, cutoff=0.6)
            raise SpecError(f"{where}: unknown field '{key}'" + (f"; did you mean '{close[0]}'?" if close else ""))
    try:
        return msgspec.convert(given, JobSpec)
    except msgspec.ValidationError as error:
        raise SpecError(f"{where}: {explained(error, given)}") from error


def jobs_of(spec: JobSpec, name: str) -> Iterator[Job]:
    """The jobs that a spec means, which was checked, under this name."""
    if spec.array is None:
        yield _job(spec, name, spec.env)
        return
    for index in range(spec.array):
        yield _job(spec, f"{name}-{index}", {**spec.env, "HOCKET_ARRAY_INDEX": str(index)})


def checked(spec: JobSpec) -> None:
    """Look at what needs more than its type. Raises SpecError."""
    if spec.array is not None and not 1 <= spec.array <= MOST_OF_AN_ARRAY:
        raise SpecError(f"array must be 1 to {MOST_OF_AN_ARRAY:,}, not {spec.array}")
    _job(spec, spec.id or "job", spec.env)


def _job(spec: JobSpec, name: str, env: dict[str, str]) -> Job:
    criterion, target = _criterion("until", spec.until), _criterion("target", spec.target)
    if target is not None and not isinstance(target, Goal):
        raise SpecError(f"target must be a goal such as 'acc >= 90%', not '{target}'")
    if wrong := check_config(spec.progress):
        raise SpecError(wrong)
    launch = Launch(
        cwd=spec.cwd,
        env=env,
        resume=spec.resume,
        stop_signal=_signal("stop_signal", spec.stop_signal),
        checkpoint_signal=_signal("checkpoint_signal", spec.checkpoint_signal) if spec.checkpoint_signal else "",
        grace_s=spec.grace_s,
        hang_s=spec.hang_s,
        progress=spec.progress,
        log_mib=spec.log_mib,
    )
    return Job(
        name,
        spec.owner,
        command=spec.command,
        demand=Demand(spec.gpus, spec.cores, spec.mem_mib),
        sizes=spec.sizes,
        max_nodes=spec.max_nodes,
        gpu_kinds=spec.gpu_kinds,
        gpu_mem_mib=spec.gpu_mem_mib,
        weight=spec.weight,
        priority=spec.priority,
        urgency=spec.urgency,
        deadline_s=spec.deadline_s,
        criterion=criterion,
        warm=spec.warm,
        model=spec.model,
        after=spec.after,
        retries=spec.retries,
        backoff_s=spec.backoff_s,
        limit_s=spec.limit_s,
        launch=launch,
        target=target,
        stop=spec.stop,
        may_lower=spec.may_lower,
    )


def _criterion(field: str, text: str) -> Criterion | None:
    try:
        return parse(text) if text else None
    except CriterionError as error:
        raise SpecError(f"{field}: {error}") from error


def _signal(field: str, name: str) -> str:
    full = name if name.startswith("SIG") else f"SIG{name}"
    if full not in signal.Signals.__members__ or full in ("SIGKILL", "SIGSTOP"):
        raise SpecError(f"{field} must be a signal that can be caught, not '{name}'")
    return full
