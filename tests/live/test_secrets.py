"""A secret on its way from the submitter's shell to the job, and nowhere else."""

import json
from pathlib import Path

import pytest
from tests.live.controller import LiveController, awaited

from hocket.control.journal import open_to_read
from hocket.service.secret_store import KIND

VALUE, IN_FILE = "s3cr3t-of-the-shell", "s3cr3t-of-a-file"


def files_with(folder: Path) -> list[str]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    return [str(path) for path in files if any(v.encode() in path.read_bytes() for v in (VALUE, IN_FILE))]


@pytest.mark.slow
def test_a_job_has_its_secrets_and_the_home_has_none(tmp_path: Path) -> None:
    (outside := tmp_path / "outside").mkdir()
    (outside / "key").write_text(IN_FILE + "\n")
    script = f"echo ${{#SHELLS}} ${{#FILES}}; while ! [ -e {outside / 'end'} ]; do sleep 0.02; done"
    with LiveController(tmp_path / "controller", "--gpus", "1") as controller:
        controller.begin()
        command = ["submit", "-n", "a", "--retries", "1", "--secret", "SHELLS", "--secret", f"FILES=@{outside / 'key'}"]
        controller.types(*command, "--", "sh", "-c", script, SHELLS=VALUE)
        lengths = f"{len(VALUE)} {len(IN_FILE)}"
        awaited(lambda: lengths in controller.types("logs", "a").stdout, "the job has both")
        controller.kill()
        controller.begin()
        shown = json.loads(controller.types("show", "a", "--json").stdout)
        assert shown["job"]["secrets"] == ["FILES", "SHELLS"]
        assert files_with(tmp_path / "controller") == []
        controller.types("pause", "a")
        awaited(lambda: controller.jobs()["a"]["state"] == "held", "it is paused")
        controller.types("resume", "a")
        awaited(lambda: controller.types("logs", "a").stdout.count(lengths) == 2, "it has them again")
        (outside / "end").touch()
        awaited(lambda: controller.jobs()["a"]["state"] == "finished", "it is over")
        controller.down(grace_s=0.0)
        assert files_with(tmp_path / "controller") == []
        journal = open_to_read(str(controller.home / "journal.db"))
        assert journal.kept(KIND) == {}
        journal.close()
