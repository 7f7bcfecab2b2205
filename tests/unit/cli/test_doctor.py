"""`hocket doctor` as users type it."""

from __future__ import annotations

import json
import os
from pathlib import Path

from tests.unit.cli.typed import hocket

from hocket.service.home import Home


def test_a_home_is_examined_and_repaired(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    home.make()
    good = hocket("doctor", "--home", str(home.path))
    assert good.exit_code == 0, good.output
    assert "journal      there is none yet" in good.output
    os.chmod(home.token_file, 0o644)
    bad = hocket("doctor", "--home", str(home.path))
    assert bad.exit_code == 1
    assert "has mode 644" in bad.output
    assert "--repair puts it right" in bad.output
    repaired = hocket("doctor", "--home", str(home.path), "--repair", "--json")
    assert repaired.exit_code == 0, repaired.output
    (row,) = [row for row in json.loads(repaired.stdout)["findings"] if row["health"] == "problem"]
    assert (row["about"], row["repair"]) == ("permissions", "done")
    assert hocket("doctor", "--home", str(home.path)).exit_code == 0


def test_without_a_home_it_says_so(tmp_path: Path) -> None:
    done = hocket("doctor", "--home", str(tmp_path / "none"))
    assert done.exit_code == 1
    assert "`hocket up` makes it" in done.output


def test_it_says_what_contains_jobs(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    home.make()
    home.agent.mkdir()
    for text, health in {
        "each job runs in a cgroup of its own (cgroup v2), below '/x'": "ok",
        "each job runs in a cgroup of its own (cgroup v2, no CPU limits), below '/x': there is none": "warning",
        "jobs are not contained: there are no cgroups on this machine": "warning",
    }.items():
        (home.agent / "containment").write_text(f"{text}\n")
        done = json.loads(hocket("doctor", "--home", str(home.path), "--json").stdout)
        (row,) = [row for row in done["findings"] if row["about"] == "containment"]
        assert (row["text"], row["health"]) == (text, health)
