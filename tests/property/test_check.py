"""The check of a plan that only starts jobs finds what all the rules, one by one, find."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.laws.drawing import drawn

from hocket.control import check
from hocket.control.commit import end_job
from hocket.model.event import JobSubmitted
from hocket.model.job import Job
from hocket.model.partition import EPOCH, Boundary, Partition, Sharing, Tenant
from hocket.model.plan import Plan
from hocket.model.resources import Demand, Node, Slice
from hocket.model.snapshot import Snapshot
from hocket.policies import find
from hocket.testing.harness import Harness

JOBS = [Job(f"j{i}", sizes=(size,), max_nodes=most) for i, (size, most) in enumerate([(1, 0), (2, 0), (2, 1), (4, 0)])]
CLUSTER = [Node("n0", 4), Node("n1", 4), Node("n2", 1), Node("n3", 1, "a100", 40_960.0)]


def standing() -> Snapshot:
    """Five jobs run, four like them wait, one is held, one is being ended, and three want something else."""
    harness = Harness.of(find("fifo").bound(), CLUSTER)
    jobs = [Job("fills", gpu_kinds=("a100",)), *JOBS, *(replace(job, id=f"w{job.id}") for job in JOBS)]
    jobs += [Job("held", after=("j0",)), Job("pairs", demand=Demand(2), sizes=(1, 2, 4))]
    jobs += [Job("ended", sizes=(1, 2, 4)), Job("picky", sizes=(1, 2, 4), gpu_kinds=("a100",))]
    jobs += [Job("large", sizes=(1, 2, 4), gpu_mem_mib=40_960.0)]
    harness.tell(*(JobSubmitted(0.0, job) for job in jobs))
    harness.settle()
    end_job(harness.controller.state, "ended", "stopped", "so")
    return harness.snapshot


SNAPSHOT = standing()
REASONS = dict.fromkeys([*SNAPSHOT.jobs, "nobody"], "so")


@st.composite
def sound(draw: st.DrawFn) -> Plan:
    """A plan that starts some waiting jobs, each on as many GPUs as it needs, in place of some running ones."""
    put = []
    for name in draw(st.lists(st.sampled_from(["wj0", "wj1", "wj2", "wj3"]), min_size=1, max_size=2, unique=True)):
        size = SNAPSHOT.jobs[name].job.sizes[0]
        first = draw(st.integers(1, size))
        counts = [n for n in (first, size - first) if n]
        nodes = draw(st.permutations(["n0", "n1", "n2"]))
        parts = tuple(Slice(node, tuple(range(n))) for node, n in zip(nodes, counts, strict=False))
        put.append(Partition(name, parts, (Tenant(name, tuple(counts)),)))
    drop = draw(
        st.just(("j0", "j1", "j2", "j3")) | st.lists(st.sampled_from(["j0", "j1", "j3"]), unique=True).map(tuple)
    )
    return Plan(tuple(put), drop, reasons=REASONS)


def with_tenant(plan: Plan, **changes: Any) -> Plan:
    first, *others = plan.put
    return replace(plan, put=(replace(first, tenants=(replace(first.tenants[0], **changes),)), *others))


def again(plan: Plan) -> Plan:
    """The first of those put has other GPUs as well, by a second partition of its name."""
    first = plan.put[0]
    others = tuple(Slice(part.node, tuple(3 - g for g in part.gpus)) for part in first.slices)
    return replace(plan, put=(first, replace(first, slices=others)), drop=("j0", "j1", "j2", "j3"))


def of_two(replicas: tuple[int, ...], *slices: Slice) -> Callable[[Plan], Plan]:
    """A job that needs two GPUs, on a cluster that is made empty."""
    put = Partition("wj1", slices, (Tenant("wj1", replicas),))
    return lambda plan: replace(plan, put=(put,), drop=("j0", "j1", "j2", "j3"))


def for_job(plan: Plan, name: str) -> Plan:
    return with_tenant(replace(plan, put=(replace(plan.put[0], id=name), *plan.put[1:])), job=name)


SOUND = sound()
# What may be wrong with it; some of these are no fault, and must not be taken for one either.
TURNS: list[Callable[[Plan], Plan]] = [
    lambda plan: plan,
    lambda plan: replace(plan, ends={plan.put[0].id: "finished"}),
    lambda plan: replace(plan, put=(*plan.put, plan.put[0])),
    lambda plan: replace(plan, drop=(*plan.drop, *plan.drop[:1])),
    lambda plan: replace(plan, drop=(*plan.drop, "nobody")),
    lambda plan: replace(plan, drop=(*plan.drop, plan.put[0].id)),
    lambda plan: replace(plan, reasons={k: v for k, v in REASONS.items() if k != plan.put[0].id}),
    lambda plan: replace(plan, reasons={k: v for k, v in REASONS.items() if k != "j0"}),
    lambda plan: replace(plan, reasons={"*": "so"}),
    lambda plan: with_tenant(plan, boundary=Boundary("soon")),
    lambda plan: with_tenant(plan, boundary=EPOCH),
    lambda plan: with_tenant(plan, task="t"),
    lambda plan: with_tenant(plan, job="wj3"),
    lambda plan: with_tenant(plan, replicas=(*plan.put[0].tenants[0].replicas, 0)),
    lambda plan: with_tenant(plan, replicas=(plan.put[0].tenants[0].replicas[0] + 1,)),
    lambda plan: with_tenant(plan, replicas=tuple(-n for n in plan.put[0].tenants[0].replicas)),
    lambda plan: for_job(plan, "held"),
    lambda plan: for_job(plan, "ended"),
    lambda plan: for_job(plan, "nobody"),
    lambda plan: for_job(plan, "j1"),
    lambda plan: for_job(plan, "picky"),
    lambda plan: for_job(plan, "large"),
    lambda plan: for_job(plan, "pairs"),
    again,
    of_two((2,), Slice("n0", (0, 1))),
    of_two((1,), Slice("n0", (0, 1))),
    of_two((2,), Slice("n0", (0,))),
    of_two((1, 1), Slice("n0", (0,)), Slice("n0", (1,))),
    of_two((2, 0), Slice("n0", (0, 1)), Slice("n1", (0,))),
    of_two((2,), Slice("n0", (0, 1), cores=1.0)),
    lambda plan: replace(plan, put=(replace(plan.put[0], sharing=Sharing.STACKED), *plan.put[1:])),
    lambda plan: replace(plan, put=(replace(plan.put[0], tenants=()), *plan.put[1:])),
    lambda plan: replace(plan, put=(replace(plan.put[0], slices=plan.put[0].slices * 2), *plan.put[1:])),
    lambda plan: replace(plan, put=(replace(plan.put[0], slices=(Slice("n0", (0,), cores=1.0),)), *plan.put[1:])),
    lambda plan: replace(plan, put=(replace(plan.put[0], slices=(Slice("n9", (0, 1, 2, 3)),)), *plan.put[1:])),
]


@pytest.mark.parametrize("turn", range(len(TURNS)))
def test_the_common_case_is_judged_like_any_other(turn, monkeypatch):
    plans = [TURNS[turn](plan) for plan in drawn(SOUND)]
    judged = [check.examine(SNAPSHOT, plan) for plan in plans]
    monkeypatch.setattr(check, "_only_starts", lambda *_: None)
    for plan, (found, capacity) in zip(plans, judged, strict=True):
        long_found, long_capacity = check.examine(SNAPSHOT, plan)
        assert found == long_found
        assert found or capacity == long_capacity


def test_a_plan_that_preempts_a_job_is_a_common_case():
    taken = SNAPSHOT.partitions["j0"].slices
    put = Partition("wj0", taken, (Tenant("wj0", (1,)),))
    plan = Plan((put,), ("j0",), reasons={"wj0": "starts", "j0": "makes way"})
    assert check._only_starts(SNAPSHOT, plan) == (list(taken), list(taken))
    assert not check.violations(SNAPSHOT, plan)
    assert check._only_starts(SNAPSHOT, replace(plan, reasons={"wj0": "starts"})) is None
