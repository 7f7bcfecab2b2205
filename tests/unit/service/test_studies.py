"""Studies that are told of are kept beside the journal, and shown to their owner and to readers."""

import msgspec
import pytest

from hocket.executors.agents.executor import agents
from hocket.model.study_summary import Hyperparameter, StudySummary, TrialSummary
from hocket.policies import find
from hocket.service import studies as module
from hocket.service.engine import Engine
from hocket.service.studies import Studies

TRIALS = [
    TrialSummary(0, "net-0", {"rate": 0.1, "kind": "<b>a"}, [(1, 0.5), (3, 0.7)], 3),
    TrialSummary(1, "net-1", {"rate": 0.2, "kind": None}, [(1, 0.6)], 1),
    TrialSummary(2, "net-2", {"rate": 0.3, "kind": True}, [], 1, "it broke"),
]
SUMMARY = StudySummary(
    "net", "running", "halving", "acc", "max", "1 epoch", 3, 4.0, 9, 12.5,
    [Hyperparameter("rate", "uniform", 0.0, 1.0), Hyperparameter("kind", "choice", values=["<b>a", None, True])],
    TRIALS, best=0,
)  # fmt: skip


def told(**changed):
    return msgspec.json.decode(msgspec.json.encode(msgspec.structs.replace(SUMMARY, **changed)))


def test_a_study_is_shown_as_it_was_told_of_last(client):
    assert client.get("/v1/studies/net").status == 404
    assert client.put("/v1/studies/net", told(state="running", owner="ana")).status == 200
    assert client.put("/v1/studies/net", told(state="done", owner="ana")).status == 200
    (head,) = client.get("/v1/studies").json()["studies"]
    assert (head["id"], head["owner"], head["state"], head["trials"], head["failed"]) == ("net", "ana", "done", 3, 1)
    assert (head["best"], head["best_trial"]) == (0.7, 0)
    assert client.get("/v1/studies/net").json()["summary"] == told(state="done", owner="ana")
    assert client.call("DELETE", "/v1/studies/net").status == 200
    assert client.get("/v1/studies").json() == {"studies": []}


def test_a_study_is_its_owners_and_readers_may_look(client, with_token):
    ana, bob, wall = with_token("user", "a", owner="ana"), with_token("user", "b", owner="bob"), with_token("read")
    assert ana.put("/v1/studies/net", told(owner="bob")).status == 200, "the owner of a user is its own"
    assert client.get("/v1/studies/net").json()["owner"] == "ana"
    for caller, sees in ((client, 200), (ana, 200), (wall, 200), (bob, 403)):
        assert caller.get("/v1/studies/net").status == sees
        assert len(caller.get("/v1/studies").json()["studies"]) == (sees == 200)
    assert bob.put("/v1/studies/net", told()).status == 403
    assert bob.call("DELETE", "/v1/studies/net").status == 403
    assert client.get("/v1/studies/net").json()["owner"] == "ana"


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"state": "odd"}, "$.state"),
        ({"trials": [{"number": -1, "job": "", "config": {}}]}, "$.trials[0].number"),
        ({"trials": [told()["trials"][0]] * 2001}, "$.trials"),
        ({"more": 1}, "unknown field"),
    ],
)
def test_what_is_no_study_is_refused(client, changed, said):
    refused = client.put("/v1/studies/net", told() | changed)
    assert refused.status == 422
    assert said in refused.json()["error"]
    assert client.put("/v1/studies/" + "x" * 201, told()).status == 400
    assert client.put("/v1/studies/a%0Ab", told()).status == 400
    assert client.get("/v1/studies").json() == {"studies": []}


def test_studies_are_there_after_a_restart_and_the_oldest_of_an_owner_give_way(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "MOST_OF_OWNER", 2)
    clock = iter(range(100))
    for turn in range(2):
        engine = Engine(str(tmp_path / "journal.db"), agents(), find("fifo").bound({}))
        engine.start()
        try:
            found = Studies(engine.journal, engine.executor, lambda: float(next(clock)))
            if turn == 0:
                for study, owner in (("a", "ana"), ("x", "bob"), ("b", "ana"), ("c", "ana")):
                    found.tell(study, msgspec.structs.replace(SUMMARY, owner=owner)).result(60)
            assert [head.id for head in found.listed()] == ["c", "b", "x"]
            kept = found.find("x")
            assert kept is not None
            assert kept.summary()["owner"] == "bob"
        finally:
            engine.close()
