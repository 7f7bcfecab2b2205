"""The rules for a submission: the controller, the service and the command line all use these."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator
from functools import lru_cache
from itertools import pairwise
from math import inf
from signal import Signals
from typing import Any

from msgspec.structs import replace

from hocket.agent.job_environment import OWN, is_one_of
from hocket.agent.progress import check_config
from hocket.model.capacity import Capacity, shape_of
from hocket.model.criterion import Convergence, Epochs, Goal
from hocket.model.job import ONE_GPU, QUERY_COMMAND, Job, Kind, Launch, Owner, Stop, Task, TaskGraph
from hocket.model.job_spec import SpecError, SubmittedSpec, read_spec
from hocket.model.metric_name import is_share
from hocket.model.notify_target import target_problem
from hocket.model.resources import RESOURCES, UNITS, Demand

_TOLERANCE = 1e-9
_FIXED = Stop.FIXED  # An enum member costs a look-up each time, and every job is checked.
_UNHAPPY = (
    "failed",
    "stopped",
    "overran",
    "missed",
)  # verdicts of a job after which jobs that name it in `after` do not run


def read_submitted_spec(given: Any) -> SubmittedSpec:
    """The job that a spec means, with its signals by their full names. Raises SpecError."""
    spec = read_spec(given)
    if spec.job.kind is Kind.MODEL:  # These come from `hocket tune`.
        raise SpecError(f"kind must be training, query or parameter-server, not '{spec.job.kind}'")
    if spec.job.kind is Kind.QUERY and spec.job.command[:2] != QUERY_COMMAND:
        command = " ".join(spec.job.command)[:80]
        raise SpecError(f"command must begin with '{' '.join(QUERY_COMMAND)}' where kind is 'query', not '{command}'")
    for problem in _criterion_faults(spec.job):
        raise SpecError(problem)
    launch = spec.job.launch or Launch()
    if problem := check_config(launch.progress):
        raise SpecError(problem)
    for target in launch.notify:
        if problem := target_problem(target):
            raise SpecError(f"notify {problem}")
    for name in launch.secrets:
        if name in launch.env or is_one_of(name, OWN):
            why = "is in env too" if name in launch.env else "is set for each run"
            raise SpecError(f"secrets must be variables of their own, and '{name}' {why}")
    names = {field: _signal(field, getattr(launch, field)) for field in ("stop_signal", "checkpoint_signal")}
    return replace(spec, job=replace(spec.job, launch=replace(launch, **names)))


def _signal(field: str, name: str) -> str:
    full = name if name.startswith("SIG") or not name else f"SIG{name}"
    if full and (full not in Signals.__members__ or full in ("SIGKILL", "SIGSTOP")):
        raise SpecError(f"{field} must be a signal that can be caught, not '{name}'")
    return full


def refusal(
    live: Container[str],
    job: Job,
    whole: Capacity | None,
    owner: Owner | None = None,
    verdict_of: Callable[[str], str | None] | None = None,
    grows: bool = False,
) -> str:
    """Why a job may not be submitted: field, rule and value; empty when it may.

    `whole` is the empty cluster, None if it is not known; `owner` is the job's if a weight or quota was
    set for it; `verdict_of` gives the verdict of a job: None if there is no such job, empty while it is live.
    If the cluster `grows`, a job need not fit it yet.
    """
    if job.id in live:
        return f"job '{job.id}': id must be unique, and a live job has it already"
    if verdict_of is not None:
        if verdict_of(job.id) is not None:
            return f"job '{job.id}': id must be unique, and an ended job has it"
        if problem := _dependency_problem(job, verdict_of):
            return f"job '{job.id}': {problem}"
    for problem in faults(job):
        return f"job '{job.id}': {problem}"
    if whole is None:
        return ""
    if owner is not None and (why := beyond_quota(job, owner)):
        return why
    shape, fitting = shape_of(job), whole.layout.fitting
    if grows or shape in fitting:
        return ""
    if why := _no_gpu(job, whole):
        return f"job '{job.id}': {why}"
    if job.tasks is not None:
        return _tasks_fit(job, whole)
    if whole.place(job, job.sizes[0]) is None:
        most = _most(job, whole)
        if not most and (why := _no_machine(job, whole)):
            return f"job '{job.id}': {why}"
        unit = "GPUs" if job.demand.gpus else "replicas"
        wanted = job.sizes[0] * max(job.demand.gpus, 1)
        largest = most * max(job.demand.gpus, 1)
        return (
            f"job '{job.id}': sizes must fit the cluster; its smallest needs {wanted} {unit}, "
            f"the largest that fits is {largest}"
        )
    fitting.add(shape)
    return ""


def _dependency_problem(job: Job, verdict_of: Callable[[str], str | None]) -> str:
    for name in job.after:
        verdict = verdict_of(name)
        if verdict is None:
            return f"after must name jobs, and there is no '{name}'"
        if verdict in _UNHAPPY:
            return f"after names '{name}', which has ended: {verdict} (after_any starts it however that ended)"
    for name in job.after_any:
        if verdict_of(name) is None:
            return f"after_any must name jobs, and there is no '{name}'"
    return ""


def beyond_quota(job: Job, owner: Owner) -> str:
    """Why a job can never run, whatever else its owner has; empty if it can."""
    limit = owner.beyond(*job.least)
    if not limit:
        return ""
    rule = "sizes must fit its owner's quota; its smallest needs"
    if job.tasks is not None:
        rule = "tasks must fit its owner's quota; all need"
    return f"job '{job.id}': {rule} more than owner '{owner.id}' may have, {limit}"


def faults(job: Job) -> Iterator[str]:
    """What is wrong with a job on any cluster: one sentence for each field."""
    if not job.id or "/" in job.id or not job.id.isprintable() or len(job.id) > 200:
        yield f"id must be 1 to 200 printable characters without '/', not {job.id[:40]!r}"
    if not job.sizes:
        yield "sizes must name at least one size"
    elif job.sizes[0] < 1 or (len(job.sizes) > 1 and any(b <= a for a, b in pairwise(job.sizes))):
        yield f"sizes must be positive and ascending, not {list(job.sizes)}"
    if job.demand is not ONE_GPU:
        yield from _demand_faults(job.demand, job.tasks is None)
    if not 0 <= job.gpu_mem_mib < inf:
        yield f"gpu_mem_mib must be a finite number from 0 up, not {job.gpu_mem_mib}"
    if job.max_nodes < 0:
        yield f"max_nodes must be from 0 up, not {job.max_nodes}"
    if not 0 < job.weight < inf:
        yield f"weight must be a finite number above 0, not {job.weight}"
    if not 0 <= job.urgency <= 10:
        yield f"urgency must be from 1 to 10, or 0 for none, not {job.urgency}"
    if job.deadline_s is not None and not 0 < job.deadline_s < inf:
        yield f"deadline_s must be a finite number above 0, not {job.deadline_s}"
    if job.limit_s is not None and not 0 < job.limit_s < inf:
        yield f"limit_s must be a finite number above 0, not {job.limit_s}"
    if not 0 <= job.backoff_s < inf:
        yield f"backoff_s must be a finite number from 0 up, not {job.backoff_s}"
    if job.retries is not None and job.retries < 0:
        yield f"retries must be from 0 up, not {job.retries}"
    for name, trait in job.traits.items():
        if not isinstance(trait, str) and not -inf < trait < inf:
            yield f"traits must be finite numbers or texts, and '{name}' is {trait}"
    if job.id in job.after:
        yield "after must name other jobs, not itself"
    if job.id in job.after_any:
        yield "after_any must name other jobs, not itself"
    if (job.stop is not _FIXED or job.may_lower is not _FIXED) and job.goal is None:
        for name, stop in (("stop", job.stop), ("may_lower", job.may_lower)):
            if stop is not _FIXED:
                yield f"{name} must be fixed for a job without a goal (its criterion or target), not {stop}"
    if job.tasks is not None:
        yield from _graph_faults(job.tasks)


def _criterion_faults(job: Job) -> Iterator[str]:
    """Criteria that cannot be met, whatever the job does. Workloads may have them: Table 3.2 of Rotary does."""
    for name, wanted in (("until", job.criterion), ("target", job.target)):
        if isinstance(wanted, Goal) and wanted.relation == ">=" and wanted.target > 1:
            # Without a sign, 95 may be 95 % in the job's own words; a query's are known.
            if job.kind is Kind.QUERY and wanted.metric == "acc":
                yield f"{name} must be a share that can be reached, at most 1 or 100%, not '{wanted}'"
            elif wanted.percent and is_share(wanted.metric):
                yield f"{name} must be a share that can be reached, at most 100%, not '{wanted}'"
        elif isinstance(wanted, Convergence) and isinstance(wanted.deadline, Epochs) and wanted.deadline.count == 1:
            yield f"{name} must allow 2 epochs, for a change takes two, not '{wanted}'"


@lru_cache(maxsize=1024)  # The jobs of a call mostly ask for the same.
def _demand_faults(demand: Demand, must_ask: bool) -> tuple[str, ...]:
    found = [
        f"demand.{name} must be a finite number from 0 up, not {value}"
        for name, value in zip(RESOURCES, demand.vector, strict=True)
        if not 0 <= value < inf
    ]
    if must_ask and not any(demand.vector):
        found.append("demand must be above 0 of a resource (gpus, cores, mem_mib or net_mbps), not 0 of each")
    if not 0 < demand.gpu_share <= 1:
        found.append(f"demand.gpu_share must be above 0 and at most 1, not {demand.gpu_share}")
    return tuple(found)


def _graph_faults(graph: TaskGraph) -> Iterator[str]:
    names = [t.id for t in graph.tasks]
    if not names:
        yield "tasks must name at least one task"
    for name in names:
        if not name or "#" in name or "/" in name:
            yield f"tasks: a task's id must be non-empty and without '#' and '/', not {name!r}"
    for task in graph.tasks:
        yield from _task_faults(task)
    if len(set(names)) < len(names):
        yield f"tasks: ids must be distinct, and {next(n for n in names if names.count(n) > 1)!r} is there twice"
    for edge in graph.edges:
        for end in (edge.source, edge.target):
            if end not in names:
                yield f"tasks: an edge names task {end!r}, which does not exist"
        if not 0 <= edge.mib < inf:
            yield f"tasks: an edge's mib must be a finite number from 0 up, not {edge.mib}"
    ends = [(e.source, e.target) for e in graph.edges]
    if len(set(ends)) < len(ends):
        source, target = next(pair for pair in ends if ends.count(pair) > 1)
        yield f"tasks: edges must be distinct, and the one from {source!r} to {target!r} is there twice"
    left = {n: {e.source for e in graph.edges if e.target == n} for n in names}
    while ready := [n for n, sources in left.items() if not sources & left.keys()]:
        for name in ready:
            del left[name]
    if left:
        yield f"tasks: the graph must have no cycle, and {sorted(left)} are in one"


def _task_faults(task: Task) -> Iterator[str]:
    demand = task.demand
    for name, value in (("share", task.share), *zip(RESOURCES[1:], demand.vector[1:], strict=True)):
        if not 0 <= value < inf:
            yield f"tasks: {name} of task '{task.id}' must be a finite number from 0 up, not {value}"
    if task.share > 1:
        yield f"tasks: share of task '{task.id}' is that of the model's parameters, at most 1, not {task.share}"
    if not (0 <= demand.gpus <= 1 and 0 < demand.gpu_share <= 1):
        yield f"tasks: task '{task.id}' must fit one GPU, not {demand.gpus} GPUs at a share of {demand.gpu_share}"


def _tasks_fit(job: Job, whole: Capacity) -> str:
    assert job.tasks is not None
    may = whole.layout.eligible(job)
    for task in job.tasks.tasks:
        if all(free.room(task.demand) < 1 for i, (_node, free) in enumerate(whole) if may >> i & 1):
            return f"job '{job.id}': task '{task.id}' must fit a node, and none has room for {task.demand}"
    if len(job.tasks.tasks) < 2:
        return ""
    if why := _too_many(job.tasks, whole.layout.total(may)):
        return f"job '{job.id}': {why}"
    return ""


def _too_many(graph: TaskGraph, total: Demand) -> str:
    """Why all tasks together cannot run where there is so much, GPUs shared up to all their time; empty if they may."""
    demands = [task.demand for task in graph.tasks]
    for field, unit in ((field, UNITS[field]) for field in ("mem_mib", "cores", "net_mbps")):
        needs, has = sum(getattr(d, field) for d in demands), getattr(total, field)
        if needs > has + _TOLERANCE:
            return f"its {len(demands)} tasks must fit the cluster; they need {needs:g} {unit}, it has {has:g}"
    gpus, loads = total.gpus, [d.gpu_load for d in demands]
    if sum(loads) > gpus + _TOLERANCE:
        return f"its {len(demands)} tasks must fit the cluster; they need {sum(loads):g} GPUs, it has {gpus}"
    for each in range(1, len(loads) // max(gpus, 1) + 1):  # A GPU holds k tasks that need more than 1/(k + 1) of it.
        large = sum(load > 1 / (each + 1) + _TOLERANCE for load in loads)
        if large > each * gpus:
            return (
                f"its tasks must fit the cluster; {large} of them need more than 1/{each + 1} of a GPU, and "
                f"{gpus} GPUs hold {each * gpus}"
            )
    return ""


def _no_gpu(job: Job, whole: Capacity) -> str:
    """Why the job accepts none of the cluster's GPUs; empty if it does accept one."""
    if whole.layout.eligible(job) or not whole.layout.nodes:
        return ""
    nodes = [node for node in whole.layout.nodes if not job.gpu_kinds or node.gpu_kind in job.gpu_kinds]
    wanted = " or ".join(f"'{kind}'" for kind in job.gpu_kinds)
    if not nodes:
        kinds = ", ".join(sorted({node.gpu_kind for node in whole.layout.nodes if node.gpu_kind})) or "none is named"
        return f"gpu_kinds must name one of the cluster's ({kinds}), not {wanted}"
    most, of = max(node.gpu_mem_mib for node in nodes), f"of kind {wanted}" if wanted else "of the cluster"
    return f"gpu_mem_mib must be that of a GPU {of}, at most {most:g} MiB, not {job.gpu_mem_mib:g}"


def _no_machine(job: Job, whole: Capacity) -> str:
    """Which resource of one replica no machine has enough of, with the sizes; empty if none of them alone is it."""
    for field, unit in ((field, UNITS[field]) for field in ("mem_mib", "cores", "net_mbps")):
        needs, largest = getattr(job.demand, field), max((getattr(n, field) for n, _free in whole), default=0.0)
        if needs > largest:
            has = f"the largest has {_plain(largest)}" if largest else "and no machine of the cluster has any"
            return f"{field} must fit a machine; a replica needs {_plain(needs)} {unit}, {has}"
    return ""


def _plain(amount: float) -> str:
    return f"{amount:,.3f}".rstrip("0").rstrip(".")


def _most(job: Job, whole: Capacity) -> int:
    low, high = 0, job.sizes[0]
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if whole.place(job, middle) is not None else (low, middle)
    return low
