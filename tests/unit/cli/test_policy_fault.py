"""A policy that raises, as its author is told of it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.unit.cli.typed import hocket

from hocket.executors.simulated import simulate
from hocket.model.plan import Plan
from hocket.model.snapshot import Snapshot
from hocket.policies.registry import _REGISTRY, Params, policy
from hocket.workloads import load, parse_cluster

POLICY = '''
from hocket.model import Plan
from hocket.policies import Draft, Params, policy


def pick(view):
    return {}[view.id]


def rank(view, now_s, params):
    return RANK


@policy("mine", order=rank)
def decide(snapshot, params: Params):
    """Mine."""
    for view in Draft(snapshot).candidates():
        if snapshot.now_s > 0:
            BODY
    return Draft(snapshot).plan()
'''
SIMULATE = ("simulate", "poisson?jobs=3", "--cluster", "1x2", "--policy", "mine")
COMPARE = ("compare", "poisson?jobs=3", "fifo", "mine", "--cluster", "1x2")
DECIDE = ("decide", "-", "--policy", "mine")


def blamed(tmp_path: Path, command: tuple[str, ...], body: str, rank: str = "()") -> str:
    """The one line that a command says of such a policy. In a process of its own: what is registered stays so."""
    (tmp_path / "mine.py").write_text(POLICY.replace("BODY", body).replace("RANK", rank))
    result = subprocess.run(
        [sys.executable, "-m", "hocket.cli.main", *command],
        input=hocket("decide", "--example").stdout,
        env={**os.environ, "HOCKET_POLICIES": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 2, (result.returncode, result.stderr)
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1, result.stderr
    return result.stderr


@pytest.mark.parametrize("command", [SIMULATE, COMPARE, DECIDE])
def test_what_a_policy_raises_is_told_with_its_name_the_time_and_its_own_lines(
    tmp_path: Path, command: tuple[str, ...]
) -> None:
    said = blamed(tmp_path, command, "pick(view)")
    assert said.startswith("hocket: policy 'mine' raised KeyError: '")
    assert f" s of simulated time ({tmp_path}/" in said or f" at 7,200 s ({tmp_path}/" in said
    assert said.endswith(f"mine.py:19 in decide → {tmp_path}/mine.py:7 in pick)\n")


@pytest.mark.parametrize("command", [SIMULATE, DECIDE])
def test_a_rank_that_raises_is_told_alike(tmp_path: Path, command: tuple[str, ...]) -> None:
    said = blamed(tmp_path, command, "pass", rank="(1 / 0,)")
    assert "policy 'mine' raised ZeroDivisionError: division by zero at " in said
    assert "mine.py:11 in rank)" in said


def test_what_it_calls_wrongly_is_named_after_its_own_line(tmp_path: Path) -> None:
    said = blamed(tmp_path, SIMULATE, "Draft(snapshot).start(7, 'starts')")
    assert "mine.py:19 in decide; out of " in said
    assert "draft.py:" in said


@pytest.mark.parametrize("command", [SIMULATE, COMPARE, DECIDE])
def test_what_is_no_plan_is_named_so(tmp_path: Path, command: tuple[str, ...]) -> None:
    said = blamed(tmp_path, command, "return None")
    assert "policy 'mine' returned None, which is not a Plan, at " in said
    assert "mine.py:14)" in said


def test_a_library_call_raises_what_the_policy_raised() -> None:
    @policy("raises_in_a_test")
    def decide(_snapshot: Snapshot, _params: Params) -> Plan:
        raise LookupError("mine")

    bound = _REGISTRY.pop("raises_in_a_test").bound()
    with pytest.raises(LookupError, match="mine") as found:
        simulate(load("poisson?jobs=3", seed=0), parse_cluster("1x2"), bound)
    assert found.value.__notes__[-1].endswith(" s of simulated time")
