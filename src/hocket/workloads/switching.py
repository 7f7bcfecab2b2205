"""Switching costs for jobs without recorded ones: `prepare=20,start=10s,checkpoint=5,stop=2`."""

from __future__ import annotations

from msgspec.structs import replace

from hocket.model.view import Costs
from hocket.workloads.errors import WorkloadError, shown
from hocket.workloads.fields import Fields, Seconds
from hocket.workloads.truth import Workload


def parse_switching(text: str) -> Costs:
    """The costs that a text names; those that it leaves out are 0."""
    values: dict[str, object] = {}
    for part in text.split(","):
        name, equals, value = part.partition("=")
        if not equals:
            raise WorkloadError(
                f"switching {shown(text)}: every cost must be written as name=seconds, not {shown(part)}"
            )
        if name.strip() in values:
            raise WorkloadError(f"switching {shown(text)}: {shown(name.strip())} must be given only once")
        values[name.strip()] = value
    fields = Fields(values, lambda _name: f"switching {shown(text)}", from_text=True, noun="cost")
    rule = Seconds()
    costs = Costs(
        prepare_s=fields.read("prepare", rule, 0.0),
        start_s=fields.read("start", rule, 0.0),
        checkpoint_s=fields.read("checkpoint", rule, 0.0),
        stop_s=fields.read("stop", rule, 0.0),
    )
    fields.finish()
    return costs


def with_switching(workload: Workload, costs: Costs) -> Workload:
    """The same workload with these switching costs for all jobs."""
    return replace(
        workload,
        submissions=tuple(replace(s, truth=replace(s.truth, costs=costs)) for s in workload.submissions),
    )
