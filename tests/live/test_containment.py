"""What users see of jobs that are contained: a memory limit that is kept, and a node that says what contains them."""

import json
import sys
import uuid
from pathlib import Path

import pytest
from tests.live.controller import running

from hocket.agent.node.containment import Containment, Wanted

ALLOCATES = "import sys; x = bytearray(int(sys.argv[1]) << 20); x[::4096] = b'x' * len(x[::4096])"


@pytest.mark.slow
def test_a_job_over_its_memory_fails_with_the_reason_and_one_within_it_finishes(tmp_path: Path) -> None:
    found = Containment(Wanted.AUTO, uuid.uuid4().hex)
    found.close()
    if not found.limits_all:
        pytest.skip(f"no cgroups can be made here: {found.text}")
    script = tmp_path / "allocates.py"
    script.write_text(ALLOCATES)
    with running(tmp_path, "--gpus", "1", "--policy", "fifo", "--containment", "cgroup") as controller:
        (node,) = json.loads(controller.types("nodes", "--json").stdout)["nodes"]
        assert node["containment"] == found.kind
        assert found.kind in controller.types("nodes").stdout
        submit = ("submit", "--wait", "--mem", "96M", "--retries", "3")
        controller.types(*submit, "-n", "large", "--", sys.executable, str(script), "256", code=1)
        controller.types(*submit, "-n", "small", "--", sys.executable, str(script), "16")
        why = "killed by the kernel: it used more than the 96 MiB that it asked for (--mem)"
        for command in (("show", "large"), ("jobs", "--all"), ("why", "large")):
            assert why in controller.types(*command).stdout, command
        jobs = controller.jobs()
        assert (jobs["large"]["state"], jobs["large"]["attempts"]) == ("failed", 1), "it would fail again"
        assert jobs["small"]["state"] == "finished"
        doctor = json.loads(controller.types("doctor", "--json").stdout)["findings"]
        (row,) = [row for row in doctor if row["about"] == "containment"]
        assert (row["health"], row["text"].startswith("each job runs in a cgroup")) == ("ok", True)
