"""Everything is killed at random while jobs run, and nothing comes of it (`make chaos` does that for longer)."""

from pathlib import Path

import pytest
from tests.live import chaos

_SECONDS = 40.0


@pytest.mark.slow
def test_jobs_survive_whatever_is_killed(tmp_path: Path) -> None:
    seed = int(tmp_path.stat().st_mtime_ns % 10_000)
    survived = chaos.run(tmp_path, _SECONDS, seed, program=chaos.COUNT)
    assert set(survived.kills) >= {"controller", "agent", "sidecar", "training"}
