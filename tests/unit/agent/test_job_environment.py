"""What of an agent's environment its jobs get: nothing that could be a secret."""

from __future__ import annotations

from typing import Any

import pytest

from hocket.agent.job_environment import is_one_of, of_the_node


def test_secrets_of_the_agent_do_not_reach_jobs() -> None:
    environ = {
        "PATH": "/bin", "LC_ALL": "C", "XDG_CACHE_HOME": "/c", "NCCL_DEBUG": "INFO", "https_proxy": "p",
        "HF_HOME": "/h",
        "AWS_SECRET_ACCESS_KEY": "s", "WANDB_API_KEY": "s", "XDG_SESSION_ID": "3", "SITE_A": "a", "LICENSE": "l",
        "HOCKET_HOME": "/x", "CUDA_VISIBLE_DEVICES": "3", "RANK": "7", "MASTER_ADDR": "m",
    }  # fmt: skip
    kept = {"PATH", "LC_ALL", "XDG_CACHE_HOME", "NCCL_DEBUG", "https_proxy", "HF_HOME"}
    assert of_the_node(environ).keys() == kept
    passed = of_the_node({**environ, "HOCKET_PASS": "SITE_* LICENSE RANK"})
    assert passed.keys() == kept | {"SITE_A", "LICENSE"}, "and never what is set for each run"


@pytest.mark.parametrize(
    ("name", "pattern", "matches"),
    [
        ("PATH", "PATH", True),
        ("PATHS", "PATH", False),
        ("LC_ALL", "LC_*", True),
        ("LC", "LC_*", False),
        ("XDG_HOME", "XDG_*_HOME", False),
        ("XDG__HOME", "XDG_*_HOME", True),
        ("XDG_CACHE_HOMES", "XDG_*_HOME", False),
    ],
)
def test_a_star_stands_for_anything(name: str, pattern: str, matches: bool) -> None:
    assert is_one_of(name, [pattern]) is matches


def test_a_job_sees_only_what_is_its_own(run_python: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("NCCL_DEBUG", "INFO")
    job = run_python("import os\nfor name in os.environ: print(name)", env={"MINE": "1"})
    job.finish()
    names = set(job.log().split())
    assert {"PATH", "NCCL_DEBUG", "MINE", "HOCKET_JOB"} <= names
    assert "AWS_SECRET_ACCESS_KEY" not in names
