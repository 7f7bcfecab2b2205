"""One submission from its fields: a row of a plain CSV and a job of a TOML file mean the same.

A job of `gpus` GPUs is that many replicas of one GPU each, unless `replica_gpus` says otherwise; `cores`,
`mem_mib` and `net_mbps` are of one replica. `run_s` is the time it takes at `gpus`.
"""

from __future__ import annotations

from functools import cache
from itertools import pairwise

from hocket.model.criterion import Criterion, CriterionError, Goal, parse
from hocket.model.curve import Curve, Point
from hocket.model.job import Edge, Job, Kind, Stop, Task, TaskGraph
from hocket.model.resources import Demand
from hocket.model.view import NO_COSTS, Costs
from hocket.workloads.errors import WorkloadError, shown
from hocket.workloads.fields import NAME, TEXT, Fields, Number, Seconds, Whole
from hocket.workloads.learning_curves import MAX_EPOCHS, by_epoch, saturating
from hocket.workloads.speed import parse_law
from hocket.workloads.truth import Submission, Truth

_AMOUNT = Number()
_ABOVE = Number(above=True)
_METRIC_VALUE = Number(low=-1e15)
_SECONDS = Seconds()
_SECONDS_ABOVE = Seconds(above=True)
_WHOLE = Whole()
_REPLICA_GPUS = Whole(high=1024)
_EPOCHS = Whole(high=MAX_EPOCHS)
_PRIORITY = Whole(low=-1_000_000)
_URGENCY = Whole(high=10)
_GPU_SHARE = Number(above=True, high=1.0)
_KINDS = {kind.value: kind for kind in Kind}
_STOPS = {stop.value: stop for stop in Stop}
_ENTRIES = 1000  # of a list of crashes or GPU kinds


def read_submission(fields: Fields, costs: Costs = NO_COSTS) -> Submission:
    """A job, its time and its true behaviour; `costs` are the default costs. Calls `finish`."""
    job_id = fields.read("id", NAME)
    at_s = fields.read("submit_s", _SECONDS)
    demand, sizes, reference = _scale(fields)
    epochs = fields.read("epochs", _EPOCHS, 0)
    metric = fields.read("metric", TEXT, "acc" if epochs else "")
    truth = Truth(
        run_s=fields.read("run_s", _SECONDS),
        reference_size=reference,
        speed=_speed(fields, sizes, reference),
        kinds=_kinds(fields),
        spread=fields.read("spread", _ABOVE, 1.0),
        comp_s=fields.read("comp_s", _ABOVE, 1.0),
        comm_s=fields.read("comm_s", _AMOUNT, 0.0),
        epochs=epochs,
        metric=metric,
        quality=_quality(fields, epochs),
        costs=read_costs(fields.table("costs"), costs),
        crashes_s=_crashes(fields),
    )
    job = Job(
        id=job_id,
        owner=fields.read("owner", TEXT, ""),
        kind=_KINDS[fields.choice("kind", _KINDS, "training")],
        demand=demand,
        sizes=sizes,
        max_nodes=fields.read("max_nodes", _WHOLE, 0),
        gpu_kinds=fields.many("gpu_kinds", TEXT, _ENTRIES),
        gpu_mem_mib=fields.read("gpu_mem_mib", _AMOUNT, 0.0),
        weight=fields.read("weight", _ABOVE, 1.0),
        priority=fields.read("priority", _PRIORITY, 0),
        urgency=fields.read("urgency", _URGENCY, 0),
        deadline_s=fields.maybe("deadline_s", _SECONDS_ABOVE),
        criterion=_criterion(fields),
        tasks=_tasks(fields),
        warm=fields.flag("warm"),
        model=fields.read("model", TEXT, ""),
        target=_target(fields),
        stop=_STOPS[fields.choice("stop", _STOPS, "fixed")],
        may_lower=_STOPS[fields.choice("may_lower", _STOPS, "fixed")],
    )
    fields.finish()
    return Submission(at_s, job, truth)


def read_costs(fields: Fields | None, otherwise: Costs) -> Costs:
    """Switching costs from a table; missing ones have their defaults."""
    if fields is None:
        return otherwise
    costs = Costs(
        prepare_s=fields.read("prepare_s", _SECONDS, otherwise.prepare_s),
        start_s=fields.read("start_s", _SECONDS, otherwise.start_s),
        checkpoint_s=fields.read("checkpoint_s", _SECONDS, otherwise.checkpoint_s),
        stop_s=fields.read("stop_s", _SECONDS, otherwise.stop_s),
    )
    fields.finish()
    return costs


@cache
def only(size: int) -> tuple[int, ...]:
    """The sizes of a rigid job. Equal ones share one tuple."""
    return (size,)


def _scale(fields: Fields) -> tuple[Demand, tuple[int, ...], int]:
    """The demand of a replica, the allowed sizes and the reference size."""
    sizes = fields.sizes("sizes")
    gpus = fields.maybe("gpus", _WHOLE)
    each = fields.read("replica_gpus", _REPLICA_GPUS, 0 if gpus == 0 else 1)
    if not gpus:
        reference = sizes[0] if sizes else 1
        if gpus == 0 and each:
            fields.fail("gpus", f"must not be 0 when replica_gpus is {each}")
    else:
        if not each or gpus % each:
            fields.fail("gpus", f"must be a multiple of replica_gpus, which is {each}, not {gpus}")
        reference = gpus // each
    if sizes and reference not in sizes:
        fields.fail("gpus", f"must be among the sizes {shown(list(sizes))} as replicas, not {reference}")
    demand = _demand(
        each,
        fields.read("cores", _AMOUNT, 0.0 if each else 1.0),  # A job without any demand could not be counted.
        fields.read("mem_mib", _AMOUNT, 0.0),
        fields.read("net_mbps", _AMOUNT, 0.0),
        fields.read("gpu_share", _GPU_SHARE, 1.0),
    )
    return demand, sizes or only(reference), reference


@cache
def _demand(gpus: int, cores: float, mem_mib: float, net_mbps: float, gpu_share: float) -> Demand:
    return Demand(gpus, cores, mem_mib, net_mbps, gpu_share)


def _speed(fields: Fields, sizes: tuple[int, ...], reference: int) -> Curve | None:
    """A law by its name, or one number for each size."""
    value = fields.raw("speed")
    if value is None:
        return None
    if isinstance(value, str) and value[:1].isalpha():
        try:
            return parse_law(value).curve(sizes, reference)
        except WorkloadError as error:
            fields.fail("speed", f"must be a law or a number for each size: {error}")
    speeds = fields.many("speed", _ABOVE)
    if len(speeds) != len(sizes):
        fields.fail("speed", f"must have {len(sizes)} numbers, one for each size, not {len(speeds)}")
    unit = speeds[sizes.index(reference)]
    return Curve(tuple(Point(float(n), s / unit) for n, s in zip(sizes, speeds, strict=True)))


def _kinds(fields: Fields) -> dict[str, float]:
    table = fields.table("kinds")
    return {} if table is None else {name: table.read(name, _ABOVE) for name in table.names()}


def _quality(fields: Fields, epochs: int) -> Curve | None:
    """A value for each epoch, or where the metric starts, ends, and how fast it gets there."""
    value = fields.raw("quality")
    if value is None:
        return None
    if not epochs:
        fields.fail("quality", f"must come with epochs from 1 up, not {shown(value)}")
    if not isinstance(value, dict):
        values = fields.many("quality", _METRIC_VALUE, MAX_EPOCHS)
        if not values:
            fields.fail("quality", "must have a value for epoch 1 at least, not []")
        return by_epoch(values)
    shape = fields.table("quality")
    assert shape is not None
    curve = saturating(
        epochs,
        shape.read("start", _METRIC_VALUE, 0.0),
        shape.read("final", _METRIC_VALUE),
        shape.read("half_epochs", Number(low=0.001, high=1e6), max(epochs / 5, 0.2)),
    )
    shape.finish()
    return curve


def _criterion(fields: Fields, name: str = "criterion") -> Criterion | None:
    value = fields.raw(name)
    if value is None:
        return None
    if not isinstance(value, str):
        fields.fail(name, f"must be a text such as 'acc >= 90% within 2h', not {shown(value)}")
    try:
        return parse(value)
    except CriterionError as error:
        fields.fail(name, f"must follow its grammar: {error}")


def _target(fields: Fields) -> Goal | None:
    found = _criterion(fields, "target")
    if found is not None and not isinstance(found, Goal):
        fields.fail("target", f"must be a goal such as 'acc >= 90% within 80 epochs', not {shown(str(found))}")
    return found


def _crashes(fields: Fields) -> tuple[float, ...]:
    crashes = fields.many("crashes_s", _SECONDS, _ENTRIES)
    if any(b < a for a, b in pairwise(crashes)):
        fields.fail("crashes_s", f"must ascend, not {shown(list(crashes))}")
    return crashes


def _tasks(fields: Fields) -> TaskGraph | None:
    """A task graph. Cycles and dangling edges are refused at admission, for all kinds of input."""
    tasks = tuple(_task(t) for t in fields.tables("tasks"))
    edges = tuple(_edge(e) for e in fields.tables("edges"))
    if edges and not tasks:
        fields.fail("edges", "must come with tasks, and there are none")
    return TaskGraph(tasks, edges) if tasks else None


def _task(fields: Fields) -> Task:
    task = Task(
        id=fields.read("id", NAME),
        demand=Demand(
            fields.read("gpus", _REPLICA_GPUS, 1),
            fields.read("cores", _AMOUNT, 0.0),
            fields.read("mem_mib", _AMOUNT, 0.0),
            fields.read("net_mbps", _AMOUNT, 0.0),
            fields.read("gpu_share", _GPU_SHARE, 1.0),
        ),
        share=fields.read("share", _AMOUNT, 1.0),
        is_parameter_server=fields.flag("is_parameter_server"),
    )
    fields.finish()
    return task


def _edge(fields: Fields) -> Edge:
    edge = Edge(fields.read("source", NAME), fields.read("target", NAME), fields.read("mib", _AMOUNT, 0.0))
    fields.finish()
    return edge
