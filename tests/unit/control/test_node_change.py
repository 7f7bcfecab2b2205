"""A node comes back with other devices: jobs that still fit where they are stay there, the others wait again."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from hocket.model.event import NodeJoined
from hocket.model.resources import Node
from hocket.model.view import JobState
from hocket.policies import find
from hocket.testing.builders import job, submitted
from hocket.testing.harness import Harness

BOX = Node("box", 4, "v100", 16_000.0, 8.0, 1000.0)


def running(*jobs: Any) -> Harness:
    harness = Harness.of(find("fifo").bound(), [BOX])
    harness.tell(*(submitted(j) for j in jobs), at_s=0.0)
    harness.answer()
    assert all(v.state is JobState.RUNNING for v in harness.snapshot.jobs.values())
    return harness


def back(harness: Harness, **changed: Any) -> dict[str, tuple[int, ...]]:
    """The node comes back changed; the GPUs of the jobs that were not interrupted."""
    before = {job_id: view.starts for job_id, view in harness.snapshot.jobs.items()}
    harness.tell(NodeJoined(100.0, replace(BOX, **changed)))
    views = harness.snapshot.jobs.values()
    stayed = [v for v in views if v.failures == 0 and v.starts == before[v.job.id] and v.size]
    return {v.job.id: v.tenancies[0].holding.slices[0].gpus for v in stayed}


def test_a_larger_node_keeps_all_and_has_room_for_more() -> None:
    harness = running(job("a", 2), job("b", 2))
    harness.tell(submitted(job("c", 2), 50.0))
    assert back(harness, gpus=6, cores=16.0) == {"a": (0, 1), "b": (2, 3)}
    assert harness.snapshot.jobs["c"].partitions


def test_a_smaller_node_keeps_jobs_on_gpus_that_are_still_there() -> None:
    harness = running(job("a", 2), job("b", 2))
    assert back(harness, gpus=3) == {"a": (0, 1)}
    assert harness.snapshot.jobs["b"].failures == 1
    assert harness.snapshot.capacity.gpus == 1


def test_the_reason_says_what_has_changed() -> None:
    harness = running(job("a", 4))
    back(harness, gpus=3, cores=4.0)
    assert (
        harness.snapshot.jobs["a"].reason
        == "failed: node 'box' came back with 3 instead of 4 GPUs, 4 instead of 8 cores"
    )


@pytest.mark.parametrize(("field", "amount"), [("cores", 5.0), ("mem_mib", 500.0)])
def test_where_another_resource_is_short_the_job_submitted_last_leaves(field: str, amount: float) -> None:
    harness = running(job("a", cores=3.0, mem_mib=300.0), job("b", cores=3.0, mem_mib=300.0))
    assert list(back(harness, **{field: amount})) == ["a"]


def test_gpus_of_another_kind_keep_no_job() -> None:
    assert back(running(job("a")), gpu_kind="a100") == {}
    assert back(running(job("a")), gpu_mem_mib=8_000.0) == {}


def test_the_same_node_keeps_all() -> None:
    assert back(running(job("a", 4))) == {"a": (0, 1, 2, 3)}
