"""A snapshot as a document: round trips, rules in words, and nothing but DocumentError for what is no snapshot."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import jsonschema
import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from hocket.control.controller import Controller
from hocket.control.drive import drive
from hocket.control.journal import MemoryJournal
from hocket.control.ports import Header
from hocket.executors.simulated import SimulatedExecutor
from hocket.model.document import DocumentError, decode, encode, from_document, schema, to_document
from hocket.model.example import example, queries, training
from hocket.model.plan import Plan
from hocket.model.snapshot import Snapshot, empty_snapshot
from hocket.policies import policies
from hocket.testing.invariants import broken_invariants
from hocket.workloads.cluster import parse_cluster
from hocket.workloads.demo import demo
from hocket.workloads.truth import Fault, Workload

POLICIES = sorted(policies())


@cache
def asked(name: str) -> list[tuple[Snapshot, Plan]]:
    """Some of the decisions of a run with costs, quotas, criteria and a lost node."""
    bound = policies()[name].bound()
    nodes = parse_cluster("4x4")
    whole = demo(3)
    workload = Workload("demo", whole.submissions, owners=whole.owners, faults=(Fault(3000.0, "n001", 5000.0),))
    found: list[tuple[Snapshot, Plan]] = []

    def decide(snapshot: Snapshot) -> Plan:
        plan = bound.decide(snapshot)
        found.append((snapshot, plan))
        return plan

    controller = Controller(empty_snapshot(nodes), decide, bound.order, MemoryJournal(Header(name)))
    drive(controller, SimulatedExecutor(workload, nodes, until_s=7000.0))
    return found[:: max(1, len(found) // 7)]


@pytest.mark.parametrize("name", POLICIES)
def test_a_snapshot_comes_back_and_gets_the_same_plan(name: str) -> None:
    bound = policies()[name].bound()
    assert len(asked(name)) > 5
    for snapshot, plan in asked(name):
        text = encode(to_document(snapshot, name))
        again = decode(text)
        assert encode(again) == text
        back = from_document(again)
        assert broken_invariants(back) == []
        for field in ("nodes", "owners", "jobs", "waiting", "placed", "partitions", "leaving", "capacity", "history"):
            assert getattr(back, field) == getattr(snapshot, field), field
        # What a policy notes comes back as JSON has it, so its next notes are compared as JSON has them.
        assert msgspec.json.encode(bound.decide(back)) == msgspec.json.encode(plan)


def test_a_job_may_diverge_and_a_belief_be_unsure() -> None:
    snapshot = from_document(training())
    view = snapshot.jobs["resnet"]
    diverged = replace(view.observations[0], metrics={"loss": float("nan")})
    unsure = replace(view.beliefs, run_s=replace(view.beliefs.run_s, sd=float("inf")))
    odd = replace(view, observations=(diverged,), beliefs=unsure)
    back = from_document(decode(encode(to_document(replace(snapshot, jobs=snapshot.jobs.set("resnet", odd))))))
    (seen,) = back.jobs["resnet"].observations
    assert seen.metrics["loss"] != seen.metrics["loss"]
    assert back.jobs["resnet"].beliefs.run_s.sd > 1e300


@pytest.mark.parametrize("text", ["acc >= 95% within 1h", "acc changes < 0.001 within 30 epochs", "for 2h"])
def test_a_criterion_is_text(text: str) -> None:
    raw = small()
    raw["jobs"][0]["job"]["criterion"] = text
    snapshot = from_document(decode(json.dumps(raw)))
    assert str(snapshot.jobs["a"].job.criterion) == text
    assert json.loads(encode(to_document(snapshot)))["jobs"][0]["job"]["criterion"] == text


def test_a_criterion_may_be_a_template_of_the_papers() -> None:
    raw = small()
    raw["jobs"][0]["job"]["criterion"] = "ACC MIN 95% WITHIN 3600 SECONDS"
    assert str(from_document(decode(json.dumps(raw))).jobs["a"].job.criterion) == "acc >= 95% within 1h"


def test_a_job_may_have_a_plan_and_hold_nothing_yet() -> None:
    view = from_document(decode(json.dumps(edited("jobs[0].state = 'paused'; jobs[0].tier = 'disk'")))).jobs["a"]
    assert (view.state, view.tenancies, view.size, view.partitions) == ("paused", (), 0, ("p",))


def test_what_is_left_out_follows_from_the_rest() -> None:
    snapshot = from_document(decode(json.dumps(small())))
    runs, waits = snapshot.jobs["a"], snapshot.jobs["b"]
    assert (runs.state, runs.size, runs.gpus, runs.partitions) == ("running", 2, 2, ("p",))
    assert (waits.state, waits.waited_at(10.0), snapshot.arrived) == ("waiting", 10.0, ("b",))
    assert snapshot.capacity.gpus == 2
    assert snapshot.usage["ana"].gpus == 2
    assert broken_invariants(snapshot) == []


def small() -> dict[str, Any]:
    """Two jobs on a node; one runs."""
    return {
        "format": 1,
        "now_s": 10,
        "nodes": [{"id": "n", "gpus": 4, "cores": 8}],
        "jobs": [{"job": {"id": "a", "owner": "ana", "sizes": [1, 2]}}, {"job": {"id": "b"}}],
        "partitions": [
            {"id": "p", "slices": [{"node": "n", "gpus": [0, 1]}], "tenants": [{"job": "a", "replicas": [2]}]}
        ],
    }


# Each edit of the small document, and what is said about it.
BAD = {
    "format = 2": "format must be 1, which is what this hocket reads, and is 2",
    "del format": "format must be 1, which is what this hocket reads, and is missing",
    "format = True": "format must be 1, which is what this hocket reads, and is true",
    "now_s = -1": "now_s: expected a number from 0 up, not -1",
    "now_s = 'noon'": 'now_s: expected a number, not "noon"',
    "del nodes": "field 'nodes' is missing",
    "later_s = 3": "later_s is no field that a snapshot has",
    "nodes[0].gpus = 4.5": "nodes[0].gpus: expected a whole number, not 4.5",
    "nodes[0].gpus = 10**9": "nodes[0].gpus: expected a whole number up to 1,024, not 1000000000",
    "nodes[0].gpu = 3": "nodes[0].gpu is no field that a snapshot has",
    "nodes[0].id = 'm'": "partition 'p': slices[0].node must be one of the nodes, not 'n'",
    "nodes[0].up = False": "partition 'p': node 'n' is lost",
    "nodes += [{'id': 'n'}]": 'nodes: ids must be distinct, and "n" is there twice',
    "jobs[0].job.sizes = []": "jobs[0].job.sizes: expected a list of at least 1 entry, not []",
    "jobs[0].job.sizes = [2, 1]": "job 'a': sizes must be ascending, not [2,1]",
    "jobs[0].job.sizes = [0]": "jobs[0].job.sizes[0]: expected a whole number from 1 up, not 0",
    "jobs[0].job.kind = 'game'": "jobs[0].job.kind: invalid enum value 'game'",
    "jobs[0].job.criterion = 'acc > 3'": "at column 5 expected '>=', '<=' or 'changes <', found '> 3'",
    "jobs[0].job.demand = {'gpus': -1}": "job 'a': demand.gpus must be from 0 up, not -1",
    "jobs[0].job.id = 'a/b'": "jobs[0].job.id: expected a text that matches '",
    "jobs[1].job.id = 'a'": 'jobs: ids must be distinct, and "a" is there twice',
    "jobs[1].number = 0": "jobs: numbers must be distinct, and 0 is there twice",
    "jobs[0].submitted_s = 11": "job 'a': submitted_s must not be after now_s = 10, not 11.0",
    "jobs[1].state = 'running'": "job 'b': state must be waiting or paused where it holds nothing, not running",
    "jobs[0].partitions = ['q']": "job 'a': partitions must be those that name it (p), not [\"q\"]",
    "jobs[0].verdict = 'missed'": "job 'a': a job with a verdict must be in no partition, not 'p'",
    "jobs[0].beliefs = {'speed': {'points': []}}": "beliefs.speed.points must be at least one, by ascending x, not []",
    "partitions[0].slices[0].gpus = [4]": "partition 'p': slices[0].gpus must be from 0 to 3 on node 'n', not 4",
    "partitions[0].slices[0].cores = 9": "partition 'p': node 'n' has 8 free cores, it takes 9",
    "partitions[0].slices[0].core = 9": "partitions[0].slices[0].core is no field that a snapshot has",
    "partitions[0].tenants[0].job = 'c'": "partition 'p': a tenant must be one of the jobs, not 'c'",
    "partitions[0].tenants[0].task = 't'": "partition 'p': job 'a' has no task 't'",
    "partitions[0].tenants[0].replicas = [1, 1]": "replicas must be 1 numbers, one a slice, not [1,1]",
    "partitions[0].tenants[0].replicas = [-1]": "replicas must be from 0 up, not [-1]",
    "partitions[0].tenants = []": "partition 'p' must have a tenant, not []",
    "partitions[0].tenants += [{'job': 'b', 'replicas': [1]}]": 'is for one tenant alone, not ["a","b"]',
    "partitions += [{'id': 'q', 'slices': [{'node': 'n', 'gpus': [1]}], 'tenants': [{'job': 'b', 'replicas': [1]}]}]": (
        "partition 'q': node 'n' has no free GPU 1: another partition holds it"
    ),
    "partitions += [{'id': 'q', 'slices': [{'node': 'n', 'gpus': [2]}], 'tenants': [{'job': 'a', 'replicas': [1]}]}]": (
        "partition 'q': tenant 'a' is in partition 'p' already"
    ),
    "partitions += partitions[:1]": 'partitions: ids must be distinct, and "p" is there twice',
    "owners = [{'id': 'ana', 'max_gpus': -1}]": "owners[0].max_gpus: expected a whole number from 0 up, not -1",
    "arrived = ['z']": 'arrived must name jobs of the snapshot, not "z"',
    "unsettled = [['z', '']]": 'unsettled must name jobs of the snapshot, not "z"',
    "leaving = {'z/': []}": 'leaving must name jobs of the snapshot, not "z"',
}


class Fields(dict):  # type: ignore[type-arg]
    """A dict whose keys are attributes too, so that an edit reads like a path."""

    def __getattr__(self, name: str) -> Any:
        return self[name]

    __setattr__ = dict.__setitem__


def edited(edit: str) -> dict[str, Any]:
    raw = json.loads(json.dumps(small()), object_hook=Fields)
    exec(edit, {}, raw)
    return json.loads(json.dumps(raw))


@pytest.mark.parametrize("edit", BAD)
def test_a_broken_rule_is_named_with_its_field_and_value(edit: str) -> None:
    with pytest.raises(DocumentError) as error:
        from_document(decode(json.dumps(edited(edit))))
    assert BAD[edit] in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b'{"format": 1,\n "now_s" 3}', "line 2, column 10: JSON is malformed"),
        (b'{"format": 1', "truncated"),
        (b"", "must be a JSON object, and is empty"),
        (b"[1]", "must be a JSON object, not [1]"),
        (b'{"format": 1, "now_s": 1e999, "nodes": []}', "out of range"),
        (b'{"format": 1, "now_s": NaN}', "malformed"),
        (b'\xff{"format": 1}', "malformed"),
        (b'{"a":' * 100_000, "nested"),
    ],
)
def test_what_is_no_json_is_refused(text: bytes, words: str) -> None:
    with pytest.raises(DocumentError, match="snapshot: ") as error:
        decode(text)
    assert words in str(error.value)


@st.composite
def spoilt(draw: st.DrawFn) -> dict[str, Any]:
    """An example in which something was replaced, removed or added."""
    raw: dict[str, Any] = json.loads(encode(draw(st.sampled_from([training(), queries()]))))
    value: Any = raw
    while True:
        keys = list(value) if isinstance(value, dict) else list(range(len(value)))
        key = draw(st.sampled_from(keys))
        if not isinstance(value[key], dict | list) or not value[key] or draw(st.integers(0, 3)) == 0:
            break
        value = value[key]
    if draw(st.booleans()):
        value[key] = draw(
            st.one_of(
                st.none(),
                st.booleans(),
                st.integers(-(10**12), 10**12),
                st.floats(allow_nan=False),
                st.text(max_size=5),
                st.lists(st.integers(-2, 9), max_size=3),
                st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
            )
        )
    elif isinstance(value, dict):
        del value[key]
    else:
        value.append(value[key])
    return raw


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(spoilt())
def test_whatever_is_in_it_it_is_a_snapshot_or_refused(raw: dict[str, Any]) -> None:
    try:
        snapshot = from_document(decode(json.dumps(raw)))
    except DocumentError:
        return
    again = from_document(decode(encode(to_document(snapshot))))
    plan = policies()["fifo"].bound().decide
    assert plan(again) == plan(snapshot)


@pytest.mark.parametrize("name", POLICIES)
def test_every_policy_does_something_visible_on_its_example(name: str) -> None:
    bound = policies()[name].bound()
    plan = bound.decide(from_document(example(bound), bound.order))
    assert plan.put or plan.drop or plan.ends


@pytest.mark.parametrize("document", [training(), queries()])
def test_an_example_is_documented_and_sound(document: Any) -> None:
    assert document.about
    assert all(entry.about for entry in document.jobs)
    assert broken_invariants(from_document(document)) == []


def test_the_schema_takes_what_we_write_and_refuses_what_we_refuse() -> None:
    check = jsonschema.Draft202012Validator(schema())
    for document in (training(), queries(), to_document(asked("fifo")[-1][0])):
        check.validate(json.loads(encode(document)))
    for edit in ("now_s = -1", "nodes[0].gpu = 3", "jobs[0].job.sizes = []", "format = 2", "del nodes"):
        assert not check.is_valid(edited(edit)), edit


def test_every_field_of_a_document_says_what_it_is() -> None:
    defs = schema()["$defs"]
    said = {"id", "jobs", "nodes", "owners", "history", "seed", "job", "kind", "command"}
    plain = [
        f"{name}.{field}"
        for name in ("Document", "JobEntry", "JobSpec")
        for field, rule in defs[name]["properties"].items()
        if "description" not in rule and field not in said and not field.endswith(("_s", "s", "weight", "use"))
    ]
    assert plain == ["JobEntry.prepared", "JobEntry.preparing", "JobEntry.epoch"]
