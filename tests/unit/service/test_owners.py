"""Owners over the API: what is set and shown, what is refused and in which words, and that the journal keeps it."""

import time
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import quote

import pytest
from tests.unit.service.conftest import busy

from hocket.control.journal import JournalError
from hocket.control.replay import replay
from hocket.executors.agents.executor import agents
from hocket.model.event import OwnerSet
from hocket.model.job import Owner
from hocket.policies import find
from hocket.service.engine import Engine

JOB = {"command": ["python", "train.py"], "cwd": "/", "owner": "ana"}
NOTHING = {"gpus": 0, "cores": 0.0, "mem_mib": 0.0, "jobs": 0}
ANA = {
    "id": "ana", "weight": 1.0, "max_gpus": 0, "max_cores": 0.0, "max_mem_mib": 0.0, "max_jobs": 0, "uses": NOTHING,
    "waiting": 0,
}  # fmt: skip


def owners(client):
    return client.get("/v1/owners").json()["owners"]


def put(client, owner, **fields):
    answer = client.put(f"/v1/owners/{quote(owner, safe='')}", fields)
    assert answer.status == 200, answer.text
    return answer.json()


def submit(client, *jobs):
    answer = client.post("/v1/jobs", {"jobs": [{**JOB, **job} for job in jobs]})
    assert answer.status == 200, answer.text
    return [job["refused"] for job in answer.json()["jobs"]]


def kept(engine):
    """All that the journal says of owners."""
    return [event.owner for cycle in engine.journal for event in cycle.events if isinstance(event, OwnerSet)]


def test_what_is_set_is_told_and_listed_and_what_is_left_out_stays(client):
    assert owners(client) == []
    assert put(client, "ana", weight=2, max_gpus=8) == {**ANA, "weight": 2.0, "max_gpus": 8}
    whole = {"weight": 0.5, "max_gpus": 8, "max_cores": 2.5, "max_mem_mib": 1024.0, "max_jobs": 3}
    assert put(client, "ana", **whole) == {**ANA, **whole}
    assert put(client, "ana", max_cores=0) == {**ANA, **whole, "max_cores": 0.0}
    put(client, "bo", max_jobs=1)
    assert [(row["id"], row["max_jobs"]) for row in owners(client)] == [("ana", 3), ("bo", 1)]


def test_owners_are_listed_with_what_their_jobs_use_by_plan_and_how_many_wait(client):
    demanding = {"cores": 0.5, "mem_mib": 0.0}
    jobs = [{"id": name, **demanding} for name in ("a", "b", "c", "held")]
    assert submit(client, *jobs, {"id": "anybodys", "owner": ""}) == [""] * 5
    client.post("/v1/jobs/held/pause")
    uses = {"gpus": 2, "cores": 1.0, "mem_mib": 0.0, "jobs": 2}
    unnamed = {**ANA, "id": "", "waiting": 1}
    assert owners(client) == [unnamed, {**ANA, "uses": uses, "waiting": 1}]
    put(client, "ana", max_gpus=1)
    assert owners(client) == [unnamed, {**ANA, "max_gpus": 1, "uses": uses, "waiting": 1}]


def test_an_owner_without_jobs_and_with_defaults_is_not_listed(client):
    put(client, "ana", max_gpus=1)
    assert put(client, "ana", max_gpus=0) == ANA
    assert owners(client) == []
    assert put(client, "bo") == {**ANA, "id": "bo"}
    assert owners(client) == []


@pytest.mark.parametrize("name", ["vision/night", "..", "a b?c#d%", "ü\n", "a\nb", "set", "o" * 200])
def test_an_owner_may_have_any_name_that_a_jobs_owner_may_have(client, name):
    assert put(client, name, max_gpus=1)["id"] == name
    assert submit(client, {"id": "a", "owner": name}) == [""]
    (row,) = owners(client)
    assert (row["id"], row["uses"]["gpus"]) == (name, 1)


@pytest.mark.parametrize("name", ["", "o" * 201])
def test_a_name_that_no_owner_can_have_is_refused(client, name):
    answer = client.put(f"/v1/owners/{name}", {"weight": 2})
    said = f"an owner's name must be 1 to 200 characters, not {len(name)}"
    assert (answer.status, answer.json()["error"]) == (400, said)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b'{"weight": 0}', "weight: expected a number above 0, not 0"),
        (b'{"weight": -1}', "weight: expected a number above 0, not -1"),
        (b'{"weight": null}', "weight: expected a number, not null"),
        (b'{"weight": "2"}', 'weight: expected a number, not "2"'),
        (b'{"weight": true}', "weight: expected a number, not true"),
        (b'{"weight": NaN}', "weight must be a finite number, not nan"),
        (b'{"weight": 1e7}', "weight: expected a number up to 1,000,000, not 10000000.0"),
        (b'{"max_cores": -Infinity}', "max_cores must be a finite number, not -inf"),
        (b'{"max_mem_mib": 1e999}', "max_mem_mib must be a finite number, not inf"),
        (b'{"max_mem_mib": -0.5}', "max_mem_mib: expected a number from 0 up, not -0.5"),
        (b'{"max_gpus": 1.5}', "max_gpus: expected a whole number, not 1.5"),
        (b'{"max_gpus": -1}', "max_gpus: expected a whole number from 0 up, not -1"),
        (b'{"max_jobs": [1]}', "max_jobs: expected a whole number, not [1]"),
        (
            b'{"max_jobs": 99999999999999999999}',
            "max_jobs: expected a whole number up to 1,000,000,000, not 99999999999999999999",
        ),
        (b'{"max_gpu": 1}', "unknown field 'max_gpu'; did you mean 'max_gpus'?"),
        (b'{"id": "bo"}', "unknown field 'id'"),
        (b"[]", "the body must be an object with weight, max_gpus, max_cores, max_mem_mib, max_jobs"),
    ],
)
def test_what_breaks_a_rule_is_refused_with_field_rule_and_value_and_changes_nothing(client, engine, body, said):
    answer = client.put("/v1/owners/ana", body)
    assert (answer.status, answer.json()["error"]) == (400, f"owner 'ana': {said}")
    assert kept(engine) == []


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b"[" * 10_000, b'{"weight": 1e999, ', b'{"\\ud800": NaN}'])
def test_what_is_no_json_is_refused(client, body):
    answer = client.put("/v1/owners/ana", body)
    assert answer.status == 400
    assert answer.json()["error"].startswith("owner 'ana': the body must be JSON: ")


def test_saying_it_again_changes_nothing(client, engine):
    first = put(client, "ana", max_gpus=1)
    assert put(client, "ana", max_gpus=1) == first
    assert kept(engine) == [Owner("ana", max_gpus=1)]


def test_two_clients_that_set_different_fields_at_once_both_succeed(client, engine):
    with ThreadPoolExecutor(2) as pool:
        with busy(engine, waiting=2):
            calls = [pool.submit(put, client, "ana", **said) for said in ({"weight": 3}, {"max_gpus": 2})]
        for call in calls:
            call.result(120)
    assert owners(client) == [{**ANA, "weight": 3.0, "max_gpus": 2}]


def test_a_job_after_one_that_a_quota_of_the_same_time_refuses_is_refused(client, engine):
    jobs = [{"id": "lead", "sizes": [2]}, {"id": "follow", "after": ["lead"]}]
    with ThreadPoolExecutor(2) as pool:
        with busy(engine, waiting=2):
            setting = pool.submit(put, client, "ana", max_gpus=1)
            while not engine.executor._inbox:  # The quota is said first.
                time.sleep(0.005)
            submitting = pool.submit(submit, client, *jobs)
        setting.result(120)
        lead, follow = submitting.result(120)
    assert "may have, 1 GPUs" in lead
    assert "there is no 'lead'" in follow


def test_what_the_journal_could_not_take_is_not_set(client, engine, monkeypatch):
    def full(_cycle):
        raise JournalError("the disk is full")

    put(client, "ana", max_jobs=1)
    monkeypatch.setattr(engine._last, "append", full)  # It goes on with another one.
    answer = client.put("/v1/owners/ana", {"max_gpus": 1})
    assert (answer.status, answer.json()["error"]) == (503, "the disk is full")
    assert put(client, "ana", weight=2) == {**ANA, "weight": 2.0, "max_jobs": 1}
    assert kept(engine) == [Owner("ana", max_jobs=1), Owner("ana", 2.0, max_jobs=1)]


def test_a_client_that_times_out_is_told_where_to_look(client, engine, monkeypatch):
    with monkeypatch.context() as hasty, busy(engine, waiting=1):
        hasty.setattr("hocket.service.api._PATIENCE_S", 0.05)
        answer = client.put("/v1/owners/ana", {"max_gpus": 1})
        assert answer.status == 503
        assert answer.json()["error"].endswith("it may still be accepted (`hocket owners` shows it)")
    assert put(client, "ana") == {**ANA, "max_gpus": 1}


def test_a_quota_keeps_a_job_waiting_until_it_is_lifted(client, engine):
    put(client, "ana", max_gpus=1)
    assert submit(client, {"id": "a"}, {"id": "b"}) == ["", ""]
    why = client.get("/v1/jobs/b/why").json()
    assert why["now"] == "waits: owner 'ana' has a quota of 1 GPUs, and others of its jobs use it"
    assert put(client, "ana", max_gpus=0)["uses"]["gpus"] == 2
    assert client.get("/v1/jobs/b").json()["state"] == "starting"
    assert replay(engine.journal.header, engine.journal, find("las").bound()).difference is None


def test_a_quota_below_what_runs_stops_no_job(client):
    submit(client, {"id": "a"}, {"id": "b"})
    row = put(client, "ana", max_gpus=1)
    assert (row["uses"]["gpus"], row["waiting"]) == (2, 0)
    assert client.get("/v1/jobs/b").json()["state"] == "starting"


def test_after_a_restart_owners_have_what_was_set(client, engine, tmp_path):
    put(client, "ana", weight=2, max_gpus=1)
    put(client, "ana", max_gpus=3)
    put(client, "bo", max_mem_mib=512)
    engine.close()
    again = Engine(str(tmp_path / "journal.db"), agents(), find("las").bound())
    try:
        assert dict(again.snapshot.owners.items()) == {
            "ana": Owner("ana", 2.0, max_gpus=3),
            "bo": Owner("bo", max_mem_mib=512.0),
        }
    finally:
        again.close()


def test_the_description_has_every_field_of_an_owner(app):
    call = app.openapi()["paths"]["/v1/owners/{owner_id}"]["put"]
    schema = call["requestBody"]["content"]["application/json"]["schema"]
    assert list(schema["properties"]) == ["weight", "max_gpus", "max_cores", "max_mem_mib", "max_jobs"]
    assert schema["properties"]["max_jobs"] == {
        "type": "integer", "minimum": 0, "maximum": 1_000_000_000, "description": "placed at once; 0 for no limit",
    }  # fmt: skip
    assert not schema["required"]
    assert not schema["additionalProperties"]
