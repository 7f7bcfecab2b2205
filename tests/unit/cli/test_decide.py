"""`hocket decide` as users type it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest
from tests.unit.cli.typed import hocket, refused

from hocket.policies import policies

BAD_POLICY = '''
"""Gives every job a GPU that does not exist."""
from hocket.model.partition import Partition, Tenant
from hocket.model.plan import Plan
from hocket.model.resources import Slice
from hocket.policies.registry import policy


@policy("greedy")
def decide(snapshot, params):
    """Takes what is not there."""
    first = snapshot.waiting.first()[-1]
    part = Partition("p", (Slice("n0", (9,)),), (Tenant(first, (1,)),))
    return Plan((part,), reasons={first: "greed"})
'''


def example(*args: str) -> str:
    result = hocket("decide", "--example", *args)
    assert result.exit_code == 0, result.output
    return str(result.stdout)


@pytest.mark.parametrize("name", sorted(policies()))
def test_every_policy_decides_on_its_example(name: str) -> None:
    result = hocket("decide", "--policy", name, "-", text=example(name))
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert found["changes"]
    assert found["actions"]
    assert found["violations"] == []
    jobs = {tenant.partition("/")[0] for tenant in found["changes"]}
    assert jobs <= found["reasons"].keys() or "*" in found["reasons"]
    assert {p["id"] for p in found["partitions"]} >= set(found["put"])


def test_the_plan_of_a_file_is_told_whole(tmp_path: Path) -> None:
    path = tmp_path / "snapshot.json"
    path.write_text(example())
    found = json.loads(hocket("decide", "--policy", "fifo", "--param", "lend=false", str(path)).stdout)
    assert [p["id"] for p in found["partitions"]] == ["detector", "resnet", "tagger"]
    assert found["put"] == ["detector"]
    assert found["drop"] == []
    assert found["changes"] == {"detector": "gets 2 on n1 (GPU 2,3)"}
    assert found["reasons"]["detector"]
    assert [(a["action"], a["job"]) for a in found["actions"]] == [("Start", "detector")]
    assert found.keys() >= {"reviews", "wake", "memo", "policy", "params", "ends", "now_s", "format"}


def test_the_schema_holds_for_the_examples() -> None:
    schema = json.loads(hocket("decide", "--schema").stdout)
    for name in (None, *policies()):
        jsonschema.Draft202012Validator(schema).validate(json.loads(example(*([name] if name else []))))


def test_a_plan_that_breaks_a_rule_is_shown_with_exit_code_4(tmp_path: Path) -> None:
    (tmp_path / "greedy.py").write_text(BAD_POLICY)
    # In a process of its own: a policy that is registered stays registered.
    result = subprocess.run(
        [sys.executable, "-m", "hocket.cli.main", "decide", "--policy", "greedy", "-"],
        input=example(),
        env={**os.environ, "HOCKET_POLICIES": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 4, result.stderr
    found = json.loads(result.stdout)
    assert found["violations"] == [
        "job 'detector' runs at sizes 2, the plan gives it 1",
        "partition 'p': node 'n0' has 4 GPUs, the plan names GPU 9",
    ]
    assert found["actions"] == []


def test_parameters_are_taken() -> None:
    result = hocket("decide", "--policy", "las", "--param", "promote=2", "-", text=example())
    assert json.loads(result.stdout)["params"]["promote"] == 2.0


def noted(memo: object, policy: str = "") -> str:
    given = json.loads(example())
    jobs = [{**job, "memo": memo} for job in given["jobs"]]
    return json.dumps({**given, "policy": policy, "memo": memo, "jobs": jobs})


@pytest.mark.parametrize("name", sorted(policies()))
def test_what_another_policy_noted_is_not_read(name: str) -> None:
    bare = hocket("decide", "-", "--policy", name, text=noted(None))
    assert bare.exit_code == 0, bare.output
    for memo in ([3, 1, 1], 5.0, {"asked_s": "soon"}):
        assert hocket("decide", "-", "--policy", name, text=noted(memo, policy="its_own")).stdout == bare.stdout


def test_memos_that_the_policy_cannot_read_are_refused() -> None:
    for policy, memo in (("las", {"x": 1}), ("mlf_h", [1]), ("harmony", 5.0)):
        said = refused("decide", "-", "--policy", policy, text=noted(memo))
        assert f"standard input: policy '{policy}' cannot read the memos of this snapshot: " in said


def test_what_is_missing_is_asked_for() -> None:
    assert "decide needs --policy" in refused("decide", "-")
    assert "decide needs a snapshot" in refused("decide", "--policy", "fifo")
    assert "give one" in refused("decide", "--example", "--schema")


def test_bad_input_is_one_line_that_names_the_source(tmp_path: Path) -> None:
    path = tmp_path / "s.json"
    assert f"{path}: No such file" in refused("decide", "--policy", "fifo", str(path))
    path.write_text('{"format": 1, "now_s": 0, "nodes": [{"id": "n", "gpus": -1}]}')
    words = f"{path}: snapshot: nodes[0].gpus: expected a whole number from 0 up, not -1"
    assert words in refused("decide", "--policy", "fifo", str(path))
    assert "did you mean 'fifo'?" in refused("decide", "--policy", "fifi", str(path))
    assert "standard input: snapshot: line 1, column 2" in refused("decide", "--policy", "fifo", "-", text="{x")
    assert "format must be 1" in refused("decide", "--policy", "fifo", "-", text='{"format": 9}')
    assert "malformed" in refused("decide", "--policy", "fifo", "-", text=b"\xff\xfe\x00")
    assert str(tmp_path) in refused("decide", "--policy", "fifo", str(tmp_path))


def test_a_job_that_no_cluster_would_admit_is_refused() -> None:
    raw = json.loads(example())
    raw["jobs"][3]["job"]["deadline_s"] = -5
    words = "job 'notebook': deadline_s must be a finite number above 0, not -5.0"
    assert words in refused("decide", "--policy", "fifo", "-", text=json.dumps(raw))


@pytest.mark.parametrize("policy", ["mlf_h", "mlfs_c", "graphene", "las"])
def test_a_task_graph_that_no_cluster_would_admit_is_refused_before_the_policy_sees_it(policy: str) -> None:
    raw = json.loads(example())
    edges = [{"source": "a", "target": "z"}]
    raw["jobs"][3]["job"]["tasks"] = {"tasks": [{"id": "a", "demand": {"gpus": 1}}], "edges": edges}
    assert "job 'notebook'" in refused("decide", "--policy", policy, "-", text=json.dumps(raw))
