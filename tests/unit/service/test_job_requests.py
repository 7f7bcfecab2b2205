"""A request for many jobs: in parts that no other call waits for long, and that come to the same as all at once."""

import pytest

from hocket.model.event import JobAsked, JobRequest
from hocket.model.job import Job
from hocket.model.view import JobView
from hocket.service import job_requests
from hocket.service.job_requests import in_parts

JOB = {"command": ["true"], "cwd": "/"}


def view(job_id: str, number: int, *partitions: str, rank: tuple[int, ...] = ()) -> JobView:
    return JobView(job=Job(job_id), number=number, submitted_s=0.0, partitions=partitions, rank=rank)


@pytest.mark.parametrize("job_request", [JobRequest.STOP, JobRequest.PAUSE])
def test_jobs_with_a_place_are_stopped_last_and_before_them_the_newest_first(
    job_request: JobRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_requests, "PART", 2)
    views = [view("a", 0, "p"), view("b", 1), view("c", 2), view("d", 3, "q"), view("e", 4)]
    live = {v.job.id: v for v in views}
    assert in_parts(job_request, ["a", "b", "gone", "c", "d", "e"], live) == [["e", "c"], ["b", "d"], ["a"]]


def test_jobs_are_resumed_in_the_order_of_the_policy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_requests, "PART", 2)
    views = [view("a", 0, rank=(2,)), view("b", 1, rank=(1,)), view("c", 2, rank=(1,))]
    assert in_parts(JobRequest.RESUME, ["a", "b", "c"], {v.job.id: v for v in views}) == [["b", "c"], ["a"]]


def test_a_request_for_many_jobs_takes_cycles_of_bounded_size_and_starts_none_of_them(
    client, engine, monkeypatch
) -> None:
    monkeypatch.setattr(job_requests, "PART", 3)
    jobs = [{**JOB, "id": f"j{n}"} for n in range(8)] + [{**JOB, "id": "later", "after": ["j7"]}]
    assert client.post("/v1/jobs", {"jobs": jobs}).status == 200
    running = {row["id"] for row in client.get("/v1/jobs").json()["jobs"] if row["state"] == "starting"}
    assert len(running) == 2, "the node has two GPUs"
    before = len(engine.journal)
    told = client.post("/v1/job-requests", {"request": "stop", "all": True, "by": "ann"}).json()["jobs"]
    assert [row["id"] for row in told] == [job["id"] for job in jobs]
    assert all(row["state"] in ("ending", "stopped") for row in told)
    client.await_state("later", "stopped")
    client.await_state("j2", "stopped")
    cycles = list(engine.journal.after(before))
    asked = [[e.job for e in cycle.events if isinstance(e, JobAsked)] for cycle in cycles]
    assert [len(part) for part in asked if part] == [3, 3, 3]
    assert {job for part in asked for job in part} == {job["id"] for job in jobs}
    assert not any(cycle.plan.put for cycle in cycles if cycle.plan is not None), "none started in place of another"
    assert client.get("/v1/jobs/later").json()["reason"] == "stopped by ann", "not since the job before it was stopped"
