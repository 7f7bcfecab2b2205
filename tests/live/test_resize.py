"""Jobs that change their size while they run: real controllers, agents and processes, and steps that go wrong."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from tests.live.at_rest import complaints, orphans
from tests.live.controller import LiveController, awaited
from tests.whole_lines import json_lines

from hocket.agent.node.events_reader import facts

HERE = Path(__file__).parent
TRAIN = HERE.parents[1] / "examples" / "train_torch.py"
EXAMPLES, BATCH = 4000, 80  # of an epoch of that script, and of a batch


@pytest.fixture(params=["early", "terminate"])
def resize(request: pytest.FixtureRequest) -> str:
    """Both ways."""
    return str(request.param)


class Cluster(LiveController):
    """Four virtual devices, and the ledger of its jobs."""

    def submit(self, name: str, *command: str, **fields: Any) -> None:
        """A job that may be prepared, with an owner of its own."""
        env = {"PATH": os.environ["PATH"], "OMP_NUM_THREADS": "1"}
        spec = {"id": name, "owner": name, "command": command, "cwd": str(self.root), "warm": True, "env": env}
        spec["preempt"] = "always"  # It saves when told to.
        spec["grace_s"] = 120.0  # A job that saves when told to has enough time, even on a slow machine.
        (said,) = self.call("POST", "/v1/jobs", {"jobs": [{**spec, **fields}]})["jobs"]
        assert not said["refused"], said

    def elastic(self, name: str, count: int, *flags: str, **fields: Any) -> None:
        """A job that counts."""
        self.submit(name, sys.executable, str(HERE / "elastic_job.py"), str(self.root), str(count), *flags, **fields)

    def noted(self, job: str = "", event: str = "") -> list[dict[str, Any]]:
        """The lines of the jobs' common ledger."""
        lines = json_lines(self.root / "ledger")
        return [line for line in lines if job in ("", line["job"]) and event in ("", line["event"])]

    def await_line(self, job: str, event: str, count: int = 1, **facts: Any) -> dict[str, Any]:
        """The so-many-th line of this kind, once it is there."""

        def found() -> list[dict[str, Any]]:
            return [line for line in self.noted(job, event) if facts.items() <= line.items()]

        awaited(lambda: len(found()) >= count, f"{count} × {event} {facts} of '{job}': {self.noted()}")
        return found()[count - 1]

    def devices(self, job: str, run: int) -> int:
        """How many a run had."""
        return next(len(line["devices"]) for line in self.noted(job, "start") if line["run"] == run)

    def end_well(self) -> None:
        """No process is left, and no error was printed."""
        self.down()
        assert orphans(self.root) == []
        assert complaints(self) == []
        assert not [line for line in self.noted() if "twice" in line["event"]]


@pytest.fixture
def cluster(tmp_path: Path, resize: str) -> Iterator[Cluster]:
    with Cluster(
        tmp_path, "--gpus", "4", "--policy", "fair", "--param", "quantum_s=0", "--resize", resize, "--name", "n0"
    ) as found:
        found.begin()
        yield found
        found.end_well()


def test_a_job_shrinks_for_a_newcomer_and_grows_when_that_has_ended(cluster: Cluster, resize: str) -> None:
    cluster.elastic("first", 100_000, sizes=[2, 4])
    assert len(cluster.await_line("first", "start")["devices"]) == 4
    cluster.elastic("second", 50, sizes=[2])
    newcomer = cluster.await_line("second", "start")
    assert len(newcomer["devices"]) == 2
    donor = cluster.await_line("first", "start", 2)
    assert sorted([*donor["devices"], *newcomer["devices"]]) == ["0", "1", "2", "3"]
    cluster.await_line("second", "end")
    again = cluster.await_line("first", "start", 3)
    assert len(again["devices"]) == 4
    stops = [line["count"] for line in cluster.noted("first", "stop")]
    assert [line["count"] for line in cluster.noted("first", "start")] == [0, *stops]
    # It may say that it has begun before its sidecar does.
    awaited(lambda: len(told(cluster, "first", 3, "started")) == 1, "the last run told")
    warm = [event["warm"] for run in (1, 2, 3) for event in told(cluster, "first", run, "started")]
    assert warm == [resize == "early"] * 3


def told(cluster: Cluster, job: str, run: int, kind: str) -> list[dict[str, Any]]:
    """What the sidecar of a run says."""
    path = cluster.home / "agent" / "runs" / job / str(run) / "events.jsonl"
    return [event for event, _ in facts(str(path), 0) if event["event"] == kind]


@pytest.mark.parametrize("resize", ["early"], indirect=True)
def test_a_newcomer_that_dies_while_it_is_prepared_starts_cold_and_the_donor_goes_on(cluster: Cluster) -> None:
    cluster.elastic("first", 100_000, sizes=[2, 4])
    cluster.await_line("first", "start")
    cluster.elastic("second", 50, "--dies", sizes=[2])
    cluster.await_line("second", "end")
    cluster.await_line("first", "start", 2)
    assert cluster.devices("first", 2) == 2
    cluster.await_line("first", "start", 3)
    first = cluster.call("GET", "/v1/jobs/first")
    assert first["failures"] == 0, first


@pytest.mark.parametrize("resize", ["early"], indirect=True)
def test_a_resized_process_that_dies_while_it_is_prepared_is_started_cold(cluster: Cluster) -> None:
    cluster.elastic("first", 100_000, "--dies", sizes=[2, 4])
    cluster.await_line("first", "start")
    cluster.elastic("second", 50, sizes=[2])
    cluster.await_line("second", "end")
    grown = cluster.await_line("first", "start", 3)
    assert len(grown["devices"]) == 4
    first = cluster.call("GET", "/v1/jobs/first")
    assert first["failures"] == 0, first


@pytest.mark.parametrize("resize", ["early"], indirect=True)
def test_what_stood_by_when_the_controller_went_down_is_no_failure_when_it_comes_back(cluster: Cluster) -> None:
    cluster.elastic("first", 100_000, sizes=[2, 4])
    cluster.await_line("first", "start")
    awaited(lambda: bool(told(cluster, "first", 2, "prepared")), "a next run that stands by")
    cluster.down(grace_s=120.0)
    cluster.begin()
    again = cluster.await_line("first", "start", 2)
    assert again["count"] == cluster.noted("first", "stop")[0]["count"]
    assert again["run"] == 2
    first = cluster.call("GET", "/v1/jobs/first")
    assert first["failures"] == 0, first


def test_a_donor_that_does_not_save_is_killed_and_goes_on_from_what_it_saved_before(cluster: Cluster) -> None:
    cluster.elastic("first", 100_000, "--deaf", sizes=[2, 4], grace_s=0.5)
    awaited(lambda: (checkpoints(cluster, "first") / "count").exists(), "a checkpoint")
    cluster.elastic("second", 50, sizes=[2])
    cluster.await_line("second", "end")
    second = cluster.await_line("first", "start", 2)
    assert second["count"] >= 10
    assert second["count"] % 10 == 0
    assert cluster.noted("first", "stop") == []
    cluster.await_line("first", "start", 3)
    first = cluster.call("GET", "/v1/jobs/first")
    assert first["failures"] == 0, first


def checkpoints(cluster: Cluster, job: str) -> Path:
    return cluster.home / "agent" / "checkpoints" / job


def test_a_checkpoint_that_cannot_be_read_is_tried_as_often_as_the_job_may_and_nothing_is_removed(
    cluster: Cluster,
) -> None:
    cluster.elastic("first", 100_000, "--spoils", sizes=[2, 4], retries=1, backoff_s=0.2)
    awaited(lambda: (checkpoints(cluster, "first") / "count").exists(), "a checkpoint")
    cluster.elastic("second", 200, sizes=[2])
    awaited(lambda: cluster.jobs()["first"]["state"] == "failed", "given up")
    assert "exit code 1" in cluster.jobs()["first"]["reason"]
    assert (checkpoints(cluster, "first") / "count").read_text() == "nonsense"
    assert int((checkpoints(cluster, "first") / "count.previous").read_text()) >= 10
    starts = len(cluster.noted("first", "start"))
    assert starts == 1, "the others broke before they had begun"
    cluster.await_line("second", "end")
    assert [line["run"] for line in cluster.noted("second", "start")] == [1], "the neighbour was left alone"


@pytest.mark.long
def test_weights_go_on_bit_by_bit_and_each_example_is_trained_once_an_epoch_at_every_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOCKET_POLICIES", str(HERE / "policies"))
    ledger = tmp_path / "steps"
    torchrun = str(Path(sys.executable).parent / "torchrun")
    training = (torchrun, str(TRAIN), "--epochs", "100000", "--pace", "1", "--steps", "--ledger", str(ledger))

    def lines(*events: str) -> list[dict[str, Any]]:
        return [line for line in json_lines(ledger) if line["event"] in events]

    with Cluster(tmp_path, "--gpus", "4", "--policy", "seesaw", "--param", "every_s=3", "--name", "n0") as cluster:
        cluster.begin()
        cluster.submit("job", *training, "--checkpoint-every", "3", sizes=[1, 3])
        awaited(lambda: len(lines("start")) >= 3, "resized twice", within_s=900)
        begun = lines("start")[2]["epoch"]
        awaited(lambda: any(line["epoch"] > begun for line in lines("epoch")), "an epoch after that")
        cluster.call("POST", "/v1/jobs/job/stop")
        awaited(lambda: cluster.jobs()["job"]["state"] == "stopped", "stopped")
        cluster.end_well()

    assert [line["processes"] for line in lines("start")][:3] == [1, 3, 1]
    story = lines("start", "checkpoint")
    for before, line in pairwise(story):
        if line["event"] == "start":
            assert before["event"] == "checkpoint"
            assert (before["epoch"], before["batch"]) == (line["epoch"], line["batch"])
            assert before["state"] == line["state"], "weights and momenta are those of the checkpoint"
    epochs: dict[int, Counter[int]] = {}
    for step in lines("step"):
        epochs.setdefault(step["epoch"], Counter()).update(step["examples"])
    last = max(epochs)
    assert last >= 2
    assert all(epochs[epoch] == Counter(range(EXAMPLES)) for epoch in range(last)), "each example once in each epoch"
    assert set(epochs[last].values()) == {1}
    assert epochs[last].total() % BATCH == 0


def test_the_example_goes_on_from_the_checkpoint_before_one_that_cannot_be_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = importlib.util.spec_from_file_location("train_torch", TRAIN)
    assert spec is not None
    assert spec.loader is not None
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    assert example.load(tmp_path) is None
    for epoch in (1, 2):
        example.save(tmp_path, {"epoch": epoch})
    assert example.load(tmp_path) == {"epoch": 2}
    last, previous = (tmp_path / name for name in example.CHECKPOINTS)
    for spoilt in (last.read_bytes()[:100], b"", b"nonsense"):
        last.write_bytes(spoilt)
        assert example.load(tmp_path) == {"epoch": 1}
        assert "'checkpoint.pt' cannot be read" in capsys.readouterr().err
    previous.write_bytes(b"")
    with pytest.raises(EOFError):  # It does not begin anew where something was saved.
        example.load(tmp_path)
