"""A policy that knows whole jobs only leaves jobs with tasks waiting, and that is said."""

import pytest
from tests.unit.cli.typed import hocket

WORK = """
cluster = "1x2"
[[jobs]]
id = "whole"
submit_s = 0
run_s = 60
[[jobs]]
id = "cut"
submit_s = 0
run_s = 60
tasks = [{ id = "a" }, { id = "b" }]
"""


@pytest.mark.parametrize("policy", ["fifo", "slaq", "tiresias"])
def test_why_a_job_with_tasks_never_starts_is_said(tmp_path, policy):
    path = tmp_path / "work.toml"
    path.write_text(WORK)
    found = hocket("simulate", str(path), "--policy", policy)
    assert found.exit_code == 3
    assert "unfinished: 'cut' is waiting: it consists of tasks" in found.stderr


def test_a_policy_that_places_tasks_finishes_them(tmp_path):
    path = tmp_path / "work.toml"
    path.write_text(WORK)
    assert hocket("simulate", str(path), "--policy", "graphene").exit_code == 0
