"""A policy in one file of at most 50 lines is found, and keeps the laws, with no other change."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

POLICY = '''
"""Smallest first."""

from typing import Annotated

from msgspec import Meta

from hocket.model import Plan, Snapshot, Wake
from hocket.policies import Draft, Params, policy


class Smallest(Params, frozen=True):
    fewest: Annotated[int, Meta(ge=0, description="jobs that wait before anything starts")] = 0


def rank(view, _now_s, _params):
    """By the GPUs it needs."""
    return (view.job.sizes[0] * view.job.demand.gpus,)


@policy("{name}", params=Smallest, order=rank)
def decide(snapshot: Snapshot, _params: Smallest) -> Plan:
    """The job that needs least goes first."""
    draft = Draft(snapshot)
    for view in draft.candidates():
        draft.start(view, "starts: no job needs less")
    return draft.plan(Wake(epoch=False))
'''

PROBE = """
import sys
from hocket.policies import find, policies

name, examples = sys.argv[1], int(sys.argv[2])
assert {"fifo", "las", name} <= policies().keys(), sorted(policies())
found = find(name)
assert found.summary == "The job that needs least goes first.", found
assert found.bound({"fewest": "2"}).settings == {"fewest": 2}
bound = found.bound()

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hocket.testing import laws
from hocket.testing import strategies as some

@settings(max_examples=examples, deadline=None, database=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def keeps_the_laws(data):
    for snapshot in data.draw(some.snapshots(bound)):
        laws.hold(bound, snapshot)
    cluster = data.draw(some.nodes())
    laws.hold_in_a_run(bound, data.draw(some.workloads(cluster, 6)), cluster)

keeps_the_laws()
"""


def probe(name: str, examples: int = 1, **env: str) -> subprocess.CompletedProcess[str]:
    """Look for a policy, and hold it to the laws in so many examples, in a process of its own."""
    return subprocess.run(
        [sys.executable, "-c", PROBE, name, str(examples)],
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


def test_a_policy_file_in_a_folder_is_found_and_keeps_the_laws(tmp_path: Path):
    text = POLICY.replace("{name}", "smallest")
    assert len(text.splitlines()) <= 50
    (tmp_path / "smallest.py").write_text(text)
    ran = probe("smallest", 50, HOCKET_POLICIES=str(tmp_path))
    assert ran.returncode == 0, ran.stderr


def test_a_policy_in_a_package_is_found_through_its_entry_point(tmp_path: Path):
    (tmp_path / "their_policies.py").write_text(POLICY.replace("{name}", "theirs"))
    info = tmp_path / "their_policies-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: their-policies\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[hocket.policies]\ntheirs = their_policies:decide\n")
    ran = probe("theirs", PYTHONPATH=str(tmp_path))
    assert ran.returncode == 0, ran.stderr


@pytest.mark.parametrize(
    ("files", "env", "said"),
    [
        ({"bad.py": "import nothing_of_this_name"}, "HOCKET_POLICIES", "bad.py' does not load: ModuleNotFoundError"),
        ({}, "HOCKET_POLICIES", "which is not a folder"),
        ({"fifo.py": POLICY.replace("{name}", "fifo")}, "HOCKET_POLICIES", "policy 'fifo' is defined in"),
    ],
)
def test_a_policy_that_does_not_load_is_named(tmp_path: Path, files, env, said):
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    ran = probe("x", **{env: str(tmp_path if files else tmp_path / "nowhere")})
    assert ran.returncode != 0
    assert said in ran.stderr
