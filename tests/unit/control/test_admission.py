"""A job that breaks a rule is refused with field, rule and value; the others go on."""

from __future__ import annotations

from math import inf, nan
from typing import Any

import pytest

from hocket.control.admission import faults, read_submitted_spec, refusal
from hocket.control.controller import Controller
from hocket.control.journal import MemoryJournal
from hocket.control.ports import Header
from hocket.model.capacity import Capacity
from hocket.model.criterion import parse
from hocket.model.event import JobRefused, JobSubmitted, NodeJoined
from hocket.model.job import Edge, Job, Task, TaskGraph
from hocket.model.job_spec import SpecError
from hocket.model.plan import Plan
from hocket.model.resources import Demand, Node
from hocket.model.snapshot import empty_snapshot
from hocket.model.versioned import versioned
from hocket.model.view import JobView

WHOLE = Capacity.of([Node("n0", 8, "v100", 16_000.0, 16.0, 64_000.0), Node("n1", 4, "p100", 8_000.0, 16.0, 64_000.0)])
NO_JOBS = versioned()

BAD: list[tuple[dict[str, Any], str]] = [
    ({"id": ""}, "id must be 1 to 200 printable characters without '/', not ''"),
    ({"id": "a/b"}, "id must be 1 to 200 printable characters without '/', not 'a/b'"),
    ({"id": "a\n"}, "id must be 1 to 200 printable characters without '/', not 'a\\n'"),
    ({"demand": Demand()}, "demand must be above 0 of a resource (gpus, cores, mem_mib or net_mbps), not 0 of each"),
    ({"sizes": ()}, "sizes must name at least one size"),
    ({"sizes": (0,)}, "sizes must be positive and ascending, not [0]"),
    ({"sizes": (2, 2)}, "sizes must be positive and ascending, not [2, 2]"),
    ({"sizes": (2, 1)}, "sizes must be positive and ascending, not [2, 1]"),
    ({"demand": Demand(-1)}, "demand.gpus must be a finite number from 0 up, not -1"),
    ({"demand": Demand(1, nan)}, "demand.cores must be a finite number from 0 up, not nan"),
    ({"demand": Demand(1, 0, inf)}, "demand.mem_mib must be a finite number from 0 up, not inf"),
    ({"demand": Demand(1, 0, 0, -5)}, "demand.net_mbps must be a finite number from 0 up, not -5"),
    ({"demand": Demand(1, gpu_share=0)}, "demand.gpu_share must be above 0 and at most 1, not 0"),
    ({"demand": Demand(1, gpu_share=1.5)}, "demand.gpu_share must be above 0 and at most 1, not 1.5"),
    ({"gpu_mem_mib": -1.0}, "gpu_mem_mib must be a finite number from 0 up, not -1.0"),
    ({"max_nodes": -1}, "max_nodes must be from 0 up, not -1"),
    ({"weight": 0.0}, "weight must be a finite number above 0, not 0.0"),
    ({"weight": nan}, "weight must be a finite number above 0, not nan"),
    ({"urgency": 11}, "urgency must be from 1 to 10, or 0 for none, not 11"),
    ({"deadline_s": 0.0}, "deadline_s must be a finite number above 0, not 0.0"),
    ({"tasks": TaskGraph(())}, "tasks must name at least one task"),
    (
        {"tasks": TaskGraph((Task("a#2", Demand(1)),))},
        "tasks: a task's id must be non-empty and without '#' and '/', not 'a#2'",
    ),
    (
        {"tasks": TaskGraph((Task("t", Demand(2)),))},
        "tasks: task 't' must fit one GPU, not 2 GPUs at a share of 1.0",
    ),
    (
        {"tasks": TaskGraph((Task("t", Demand(1, gpu_share=1.5)),))},
        "tasks: task 't' must fit one GPU, not 1 GPUs at a share of 1.5",
    ),
    (
        {"tasks": TaskGraph((Task("t", Demand(1), float("nan")),))},
        "tasks: share of task 't' must be a finite number from 0 up, not nan",
    ),
    (
        {"tasks": TaskGraph((Task("t", Demand(1), 60.0),))},
        "tasks: share of task 't' is that of the model's parameters, at most 1, not 60.0",
    ),
    (
        {"tasks": TaskGraph((Task("t", Demand(1)), Task("u", Demand(1))), (Edge("t", "u"), Edge("t", "u", 9.0)))},
        "tasks: edges must be distinct, and the one from 't' to 'u' is there twice",
    ),
    (
        {"tasks": TaskGraph((Task("t", Demand(1)), Task("t", Demand(1))))},
        "tasks: ids must be distinct, and 't' is there twice",
    ),
    (
        {"tasks": TaskGraph((Task("t", Demand(1)),), (Edge("t", "u"),))},
        "tasks: an edge names task 'u', which does not exist",
    ),
    (
        {"tasks": TaskGraph((Task("t", Demand(1)), Task("u", Demand(1))), (Edge("t", "u", -1.0),))},
        "tasks: an edge's mib must be a finite number from 0 up, not -1.0",
    ),
    (
        {"tasks": TaskGraph((Task("t", Demand(1)), Task("u", Demand(1))), (Edge("t", "u"), Edge("u", "t")))},
        "tasks: the graph must have no cycle, and ['t', 'u'] are in one",
    ),
]


IMPOSSIBLE = [
    ("acc >= 120%", {}, "until must be a share that can be reached, at most 100%, not 'acc >= 120%'"),
    ("val_acc >= 101% within 5 epochs", {},
     "until must be a share that can be reached, at most 100%, not 'val_acc >= 101% within 5 epochs'"),
    ("acc >= 95", {"kind": "query", "command": ["hocket", "query", "SELECT 1"]},
     "until must be a share that can be reached, at most 1 or 100%, not 'acc >= 95'"),
    ("acc changes < 0.01 within 1 epoch", {},
     "until must allow 2 epochs, for a change takes two, not 'acc changes < 0.01 within 1 epoch'"),
]  # fmt: skip


def submitted(until: str, **fields: Any) -> Job:
    return read_submitted_spec({"command": ["true"], "until": until, **fields}).job


@pytest.mark.parametrize(("until", "fields", "words"), IMPOSSIBLE, ids=[until for until, _f, _w in IMPOSSIBLE])
def test_a_criterion_that_cannot_be_met_is_refused(until: str, fields: dict[str, Any], words: str) -> None:
    with pytest.raises(SpecError) as found:
        submitted(until, **fields)
    assert str(found.value) == words


@pytest.mark.parametrize("until", ["acc >= 100%", "acc >= 95", "speedup >= 150%", "reward >= 300%", "loss <= 120%"])
def test_a_criterion_that_some_job_can_meet_is_not_refused(until: str) -> None:
    assert submitted(until).criterion == parse(until)


def test_traits_must_be_finite() -> None:
    words = "traits must be finite numbers or texts, and 'lr' is inf"
    assert refusal(NO_JOBS, Job("j", traits={"lr": inf}), WHOLE) == f"job 'j': {words}"


@pytest.mark.parametrize(("fields", "words"), BAD, ids=[w[:40] for _f, w in BAD])
def test_a_fault_is_named_with_field_rule_and_value(fields: dict[str, Any], words: str) -> None:
    job = Job(**{"id": "j", **fields})
    assert words in list(faults(job))
    assert refusal(NO_JOBS, job, WHOLE).endswith(words)


@pytest.mark.parametrize(
    ("job", "wanted", "largest"),
    [
        (Job("j", sizes=(13,)), "13 GPUs", 12),
        (Job("j", sizes=(9,), max_nodes=1), "9 GPUs", 8),
        (Job("j", sizes=(5,), gpu_kinds=("p100",)), "5 GPUs", 4),
        (Job("j", sizes=(9,), gpu_mem_mib=12_000.0), "9 GPUs", 8),
        (Job("j", sizes=(3,), demand=Demand(gpus=4, cores=9.0)), "12 GPUs", 8),
        (Job("j", sizes=(5,), demand=Demand(cores=8.0)), "5 replicas", 4),
    ],
)
def test_a_job_larger_than_the_cluster_is_told_the_largest_that_fits(job: Job, wanted: str, largest: int) -> None:
    words = f"its smallest needs {wanted}, the largest that fits is {largest}"
    assert refusal(NO_JOBS, job, WHOLE) == f"job 'j': sizes must fit the cluster; {words}"


@pytest.mark.parametrize("graph", [None, TaskGraph((Task("t", Demand(1)),))])
@pytest.mark.parametrize(
    ("wants", "why"),
    [
        (
            {"gpu_kinds": ("a100", "h100")},
            "gpu_kinds must name one of the cluster's (p100, v100), not 'a100' or 'h100'",
        ),
        ({"gpu_mem_mib": 90_000.0}, "gpu_mem_mib must be that of a GPU of the cluster, at most 16000 MiB, not 90000"),
        (
            {"gpu_kinds": ("p100",), "gpu_mem_mib": 16_000.0},
            "gpu_mem_mib must be that of a GPU of kind 'p100', at most 8000 MiB, not 16000",
        ),
    ],
)
def test_a_job_that_accepts_none_of_the_gpus_is_told_which_there_are(
    graph: TaskGraph | None, wants: dict[str, Any], why: str
) -> None:
    assert refusal(NO_JOBS, Job("j", tasks=graph, **wants), WHOLE) == f"job 'j': {why}"


@pytest.mark.parametrize(
    ("demand", "nodes", "why"),
    [
        (Demand(1, mem_mib=10_240_000.0), [Node("n", 8, mem_mib=24_065.5)],
         "mem_mib must fit a machine; a replica needs 10,240,000 MiB of memory, the largest has 24,065.5"),
        (Demand(0, cores=1.0), [Node("n", 8)],
         "cores must fit a machine; a replica needs 1 cores, and no machine of the cluster has any"),
    ],
)  # fmt: skip
def test_a_replica_larger_than_every_machine_is_told_by_the_names_that_files_have(
    demand: Demand, nodes: list[Node], why: str
) -> None:
    assert refusal(NO_JOBS, Job("j", demand=demand), Capacity.of(nodes)) == f"job 'j': {why}"


def test_without_a_node_nothing_fits() -> None:
    words = "its smallest needs 1 GPUs, the largest that fits is 0"
    for job in (Job("j"), Job("j", gpu_kinds=("v100",))):
        assert refusal(NO_JOBS, job, Capacity.of([])) == f"job 'j': sizes must fit the cluster; {words}"


def test_a_task_must_fit_a_node() -> None:
    job = Job("j", tasks=TaskGraph((Task("t", Demand(1)), Task("huge", Demand(1, mem_mib=1e9)))))
    assert "task 'huge' must fit a node" in refusal(NO_JOBS, job, WHOLE)


def tasks(*demands: Demand) -> TaskGraph:
    return TaskGraph(tuple(Task(f"t{i}", demand) for i, demand in enumerate(demands)))


SMALL = Capacity.of([Node("a", 2, "v100", cores=8.0), Node("b", 2, "p100", cores=8.0)])


@pytest.mark.parametrize(
    ("job", "why"),
    [
        (Job("j", tasks=tasks(*[Demand(1)] * 5)), "its 5 tasks must fit the cluster; they need 5 GPUs, it has 4"),
        (
            Job("j", tasks=tasks(*[Demand(1, gpu_share=0.6)] * 5)),
            "its tasks must fit the cluster; 5 of them need more than 1/2 of a GPU, and 4 GPUs hold 4",
        ),
        (
            Job("j", tasks=tasks(*[Demand(1, gpu_share=0.35)] * 9)),
            "its tasks must fit the cluster; 9 of them need more than 1/3 of a GPU, and 4 GPUs hold 8",
        ),
        (
            Job("j", tasks=tasks(*[Demand(1, 6.0, gpu_share=0.1)] * 3)),
            "its 3 tasks must fit the cluster; they need 18 cores, it has 16",
        ),
        (
            Job("j", tasks=tasks(*[Demand(1)] * 3), gpu_kinds=("v100",)),
            "its 3 tasks must fit the cluster; they need 3 GPUs, it has 2",
        ),
    ],
)
def test_a_job_with_more_tasks_than_the_cluster_can_hold_is_refused_with_sizes(job: Job, why: str) -> None:
    assert refusal(NO_JOBS, job, SMALL) == f"job 'j': {why}"


@pytest.mark.parametrize("share", [1.0, 0.5, 0.25, 0.1])
def test_tasks_that_fill_the_gpus_are_admitted(share: float) -> None:
    most = round(4 / share)
    assert refusal(NO_JOBS, Job("j", tasks=tasks(*[Demand(1, gpu_share=share)] * most)), SMALL) == ""
    assert refusal(NO_JOBS, Job("j", tasks=tasks(*[Demand(1, gpu_share=share)] * (most + 1))), SMALL) != ""


def test_an_id_is_taken_while_its_job_lives() -> None:
    live = versioned([("j", JobView(Job("j"), 0, 0.0))])
    assert refusal(live, Job("j"), WHOLE) == "job 'j': id must be unique, and a live job has it already"
    assert refusal(NO_JOBS, Job("j"), WHOLE) == ""


def controller() -> Controller:
    nodes = [Node("n0", 2)]
    return Controller(empty_snapshot(nodes), lambda _s: Plan(), lambda _v, _t: (), MemoryJournal(Header("none")))


def test_a_refusal_is_a_fact_and_the_others_go_on() -> None:
    cycles = controller()
    cycles.cycle(
        0.0, [JobSubmitted(0.0, Job("big", sizes=(3,))), JobSubmitted(0.0, Job("a")), JobSubmitted(0.0, Job("a"))]
    )
    (cycle,) = cycles.journal
    assert [type(e) for e in cycle.events] == [JobRefused, JobSubmitted, JobRefused]
    assert list(cycles.snapshot.jobs) == ["a"]


@pytest.mark.parametrize(("fields", "words"), BAD, ids=[w[:40] for _f, w in BAD])
def test_a_fault_is_found_after_a_good_job_like_it(fields: dict[str, Any], words: str) -> None:
    cycles = controller()
    job = Job(**{"id": "j", **fields})
    cycles.cycle(0.0, [JobSubmitted(0.0, Job("good", sizes=job.sizes)), JobSubmitted(0.0, job)])
    (cycle,) = cycles.journal
    assert isinstance(cycle.events[1], JobRefused)
    assert cycle.events[1].reason.endswith(words)


def test_a_cluster_that_grows_takes_what_it_refused() -> None:
    cycles = controller()
    cycles.cycle(0.0, [JobSubmitted(0.0, Job("a", sizes=(3,)))])
    cycles.cycle(1.0, [NodeJoined(1.0, Node("n1", 2)), JobSubmitted(1.0, Job("a", sizes=(3,)))])
    assert list(cycles.snapshot.jobs) == ["a"]


def test_nodes_that_join_at_once_all_count() -> None:
    cycles = controller()
    cycles.cycle(0.0, [NodeJoined(0.0, Node(name, 2)) for name in ("n1", "n2")])
    cycles.cycle(1.0, [JobSubmitted(1.0, Job("a", sizes=(6,)))])
    assert list(cycles.snapshot.jobs) == ["a"]
