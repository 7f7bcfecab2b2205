"""Scripts of Ray Train as elastic jobs: under `las`, shrunk for another job and grown again. Without a Ray cluster."""

import re
import sys
from pathlib import Path

import pytest
from tests.live.controller import LiveController, awaited, running

ROOT = Path(__file__).parents[2]
OURS = ROOT / "examples" / "ray_train.py"  # It resumes from what it reported.
RAYS_OWN = Path("examples", "pytorch", "torch_linear_example.py")  # In ray.train; it begins anew.
_REPORT = re.compile(r"report (\d+) of (\d) processes")


@pytest.fixture(scope="module")
def controller(tmp_path_factory):
    with running(tmp_path_factory.mktemp("train"), "--gpus", "2", "--policy", "las") as found:
        yield found


def reports(controller: LiveController, job: str) -> list[tuple[int, int]]:
    """(number, processes) of each report that a job has made, over all its attempts."""
    logs = sorted(controller.home.glob(f"agent/runs/{job}/*/log"), key=lambda path: int(path.parent.name))
    return [(int(n), int(size)) for log in logs for n, size in _REPORT.findall(log.read_text())]


@pytest.mark.ray
@pytest.mark.parametrize(
    ("job", "script", "options", "resumes"),
    [("ours", OURS, ("--epochs", "1000", "--pace", "0.2"), True), ("rays", RAYS_OWN, ("--epochs", "5000"), False)],
)
def test_a_script_of_ray_train_is_shrunk_and_grown_on_the_way(controller, job, script, options, resumes):
    ray_train = pytest.importorskip("ray.train", reason="Ray Train is not installed: `make test-ray` installs it")
    pytest.importorskip("torch", reason="PyTorch is not installed")
    script = Path(ray_train.__file__).parent / script
    command = [sys.executable, "-m", "torch.distributed.run", "-m", "hocket.ray.train", str(script), *options]
    spec = {"id": job, "command": command, "sizes": [1, 2], "cwd": str(ROOT), "env": {"OMP_NUM_THREADS": "1"}}
    controller.call("POST", "/v1/jobs", {"jobs": [spec]})
    awaited(lambda: len(reports(controller, job)) > 2, "it trains")
    wait = {"id": f"short-{job}", "command": ["sleep", "600"], "cwd": "/"}
    controller.call("POST", "/v1/jobs", {"jobs": [wait]})
    awaited(lambda: [size for _, size in reports(controller, job)[-2:]] == [1, 1], "it trains with one process")
    controller.call("POST", f"/v1/jobs/short-{job}/stop", {})
    awaited(lambda: [size for _, size in reports(controller, job)[-2:]] == [2, 2], "it trains with two again")
    controller.call("POST", f"/v1/jobs/{job}/stop", {})

    made = reports(controller, job)
    sizes = [size for n, (_, size) in enumerate(made) if n == 0 or made[n - 1][1] != size]
    assert sizes == [2, 1, 2]
    numbers = [number for number, _ in made]
    if resumes:  # A report may be made once more: its checkpoint was not kept when the process ended.
        assert sorted(set(numbers)) == list(range(1, max(numbers) + 1))
        assert len(numbers) - len(set(numbers)) <= 2
    else:
        assert numbers.count(1) == 3
    awaited(lambda: controller.jobs()[job]["state"] == "stopped", "it has stopped")
    assert controller.jobs()[job]["epoch"] >= 2
