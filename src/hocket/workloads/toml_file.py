"""A workload as TOML: cluster, owners with quotas, costs, jobs with their truth, faults.

    name = "two teams"
    cluster = "2x4:v100"              # or [[nodes]] with count, gpus, gpu_kind, cores, mem_mib, net_mbps

    [costs]                           # of every job that names none
    prepare_s = 20

    [[owners]]
    id = "vision"
    max_gpus = 6

    [[jobs]]
    id = "resnet"
    owner = "vision"
    submit_s = 0
    run_s = "2h"                      # at 2 GPUs, alone
    gpus = 2
    sizes = [1, 2, 4]
    speed = "law:0.05"                # or a number for each size
    epochs = 30
    quality = { start = 0.1, final = 0.93, half_epochs = 4 }
    criterion = "acc >= 90% within 3h"

    [[faults]]
    node = "n001"
    at_s = 600
    back_s = 1200

Times are in seconds, or texts with a unit; `submission.py` says what the fields of a job mean.
"""

from __future__ import annotations

from collections.abc import Sequence

from hocket.model.job import Owner
from hocket.model.resources import Node
from hocket.model.view import NO_COSTS
from hocket.workloads.cluster import nodes_of
from hocket.workloads.errors import WorkloadError, did_you_mean, plain, shown
from hocket.workloads.fields import NAME, TEXT, Fields, Number, Seconds, Whole
from hocket.workloads.submission import read_costs, read_submission
from hocket.workloads.toml_document import TomlDocument, read_toml
from hocket.workloads.truth import Fault, Submission, Workload


def read_workload_toml(path: str) -> Workload:
    """The workload of the file."""
    document = read_toml(path)
    name = document.root.read("name", TEXT, "toml")
    nodes = nodes_of(document)
    owners = _owners(document)
    submissions = _submissions(document)
    faults: list[Fault] = []
    for fields in document.tables("faults", "fault"):
        faults.append(_fault(fields, nodes, faults))
    document.root.finish()
    if not submissions:
        raise WorkloadError(f"{plain(path)}: the file must have a job in [[jobs]], and has none")
    return Workload(
        name,
        tuple(sorted(submissions, key=lambda s: s.at_s)),
        nodes,
        owners,
        tuple(sorted(faults, key=lambda f: f.at_s)),
    )


def check_faults(workload: Workload, nodes: Sequence[Node]) -> None:
    """Refuse a cluster without a node for which the workload has a fault."""
    known = {n.id for n in nodes}
    for fault in workload.faults:
        if fault.node not in known:
            raise WorkloadError(
                f"workload {workload.name!r}: a fault must be of a node of the cluster, "
                f"not {shown(fault.node)}{did_you_mean(fault.node, sorted(known)[:50])}"
            )


def _owners(document: TomlDocument) -> tuple[Owner, ...]:
    owners: dict[str, Owner] = {}
    for fields in document.tables("owners", "owner"):
        owner = Owner(
            id=fields.read("id", TEXT),
            weight=fields.read("weight", Number(above=True), 1.0),
            max_gpus=fields.read("max_gpus", Whole(), 0),
            max_cores=fields.read("max_cores", Number(), 0.0),
            max_mem_mib=fields.read("max_mem_mib", Number(), 0.0),
            max_jobs=fields.read("max_jobs", Whole(), 0),
        )
        if owner.id in owners:
            fields.fail("id", f"must be unique, and another owner has {shown(owner.id)} too")
        fields.finish()
        owners[owner.id] = owner
    return tuple(owners.values())


def _submissions(document: TomlDocument) -> list[Submission]:
    costs = read_costs(document.table("costs"), NO_COSTS)
    submissions: list[Submission] = []
    ids: set[str] = set()
    for fields in document.tables("jobs", "job"):
        submission = read_submission(fields, costs)
        if submission.job.id in ids:
            fields.fail("id", f"must be unique, and another job has {shown(submission.job.id)} too")
        ids.add(submission.job.id)
        submissions.append(submission)
    return submissions


def _fault(fields: Fields, nodes: Sequence[Node], others: Sequence[Fault]) -> Fault:
    fault = Fault(
        at_s=fields.read("at_s", Seconds()),
        node=fields.read("node", NAME),
        back_s=fields.maybe("back_s", Seconds()),
    )
    fields.finish()
    if fault.back_s is not None and fault.back_s <= fault.at_s:
        fields.fail("back_s", f"must be after at_s, which is {fault.at_s:g}, not {fault.back_s:g}")
    if nodes and all(node.id != fault.node for node in nodes):
        known = did_you_mean(fault.node, [n.id for n in nodes[:50]])
        fields.fail("node", f"must be a node of the file's cluster, not {shown(fault.node)}{known}")
    for other in others:
        if other.node == fault.node and _overlap(fault, other):
            until = "on" if other.back_s is None else f"until {other.back_s:g}"
            away = f"{shown(fault.node)} is, by another fault, from {other.at_s:g} {until}"
            fields.fail("node", f"must not be lost while it is away: {away}")
    return fault


def _overlap(a: Fault, b: Fault) -> bool:
    first, second = (a, b) if a.at_s <= b.at_s else (b, a)
    return first.at_s == second.at_s or first.back_s is None or second.at_s < first.back_s
