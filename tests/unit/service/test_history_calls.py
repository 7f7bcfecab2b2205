"""Looking back over the API: what was, when, and for whom; and the process that answers."""

import os
import re
import signal
import subprocess
import sys
import time

import msgspec
import pytest

from hocket.service import history_worker
from hocket.service.history_process import HistoryProcess, HistoryUnavailable
from hocket.service.history_worker import HistoryRequest, HistorySource
from hocket.service.tokens import Role, Token

JOB = {"command": ["true"], "cwd": "/"}
ADMIN = Token("home", Role.ADMIN, "")


def submit(client, **job):
    answer = client.post("/v1/jobs", {"jobs": [JOB | job]})
    assert answer.status == 200, answer.text


def at(client, cycle, **query):
    said = "&".join(f"{name}={value}" for name, value in query.items())
    answer = client.get(f"/v1/at/{cycle}?{said}" if cycle else f"/v1/at?{said}")
    assert answer.status == 200, answer.text
    return answer.json()


def ids(found):
    return [row["id"] for row in found["jobs"]]


def test_each_cycle_shows_the_jobs_of_that_time(client, engine):
    submit(client, id="a", owner="ana", gpus=2)
    with_a = engine.cycles
    submit(client, id="b", owner="bo", gpus=2)
    with_b = engine.cycles
    client.post("/v1/jobs/b/stop")
    client.await_state("b", "stopped")
    assert ids(at(client, with_a)) == ["a"]
    found = at(client, with_b)
    assert ids(found) == ["a", "b"]
    assert found["queue"] == ["b"]
    assert (found["cycle"], found["first"], found["policy"]) == (with_b, 1, "las")
    assert found["last"] >= with_b
    waits = found["jobs"][1]
    assert (waits["state"], waits["owner"]) == ("waiting", "bo")
    assert "waits" in waits["reason"]
    assert ids(at(client, 0)) == ["a"]  # the last one
    everything = at(client, 0, all="true")
    assert [(row["id"], row["state"]) for row in everything["jobs"]][1] == ("b", "stopped")
    assert everything["counts"]["stopped"] == 1
    assert ids(at(client, with_b, all="true", owner="ana")) == ["a"]
    assert ids(at(client, with_b, limit=1)) == ["b"]
    assert ids(at(client, 1)) == []


def test_a_cycle_shows_what_happened_what_was_decided_and_where_decisions_are(client, engine):
    submit(client, id="a", gpus=2)
    found = at(client, engine.cycles)
    while not found["decision"] or not found["decision"]["changes"]:
        found = at(client, found["previous_decision"])
    assert found["decision"]["changes"] == {"a": "gets 1 on here (GPU 0,1)"}
    assert found["decision"]["reasons"]["a"]
    assert found["events"] == [{"kind": "JobSubmitted", "subject": "a"}]
    assert found["nodes"][0]["gpus"] == [{"index": 0, "job": "a"}, {"index": 1, "job": "a"}]
    before = at(client, found["cycle"] - 1)
    assert before["next_decision"] == found["cycle"]
    assert before["nodes"][0]["gpus"][0]["job"] == ""
    assert {"kind": "NodeJoined", "subject": "here"} in [e for n in (1, 2) for e in at(client, n)["events"]]


def test_a_time_finds_its_cycle_and_parts_are_what_is_asked_for(client, engine):
    submit(client, id="a")
    found = at(client, engine.cycles)
    assert at(client, 0, time=found["at_s"])["cycle"] >= found["cycle"]
    date = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(found["at_s"] + 3600))
    assert at(client, 0, time=date)["cycle"] == at(client, 0)["last"]
    assert at(client, 0, time=f"{date}+00:00")["cycle"] == at(client, 0)["last"]  # The + becomes a space.
    early = client.get("/v1/at?time=2001-01-01T00:00")
    assert early.status == 404
    assert re.search(r"nothing is kept of 2001-01-01 00:00 UTC: the history has cycles 1 to", early.json()["error"])
    assert set(at(client, 1)) - set(at(client, 1, parts="jobs")) == {
        "queue", "nodes", "owners", "events", "more_events", "decision",
    }  # fmt: skip
    wrong = client.get("/v1/at/1?parts=jobs,cats")
    assert (wrong.status, "'cats'" in wrong.json()["error"]) == (422, True)


def test_cycles_are_counted_for_a_slider(client, engine):
    for n in range(5):
        submit(client, id=f"j{n}")
    answer = client.get("/v1/cycles?buckets=10").json()
    assert answer["cycles"] == sum(bucket["cycles"] for bucket in answer["buckets"]) == engine.cycles
    assert answer["decisions"] >= 1
    assert len(answer["buckets"]) == 10
    assert answer["buckets"][-1]["last"] == answer["last"] == answer["indexed"] == engine.cycles
    assert client.get("/v1/cycles?since=2100-01-01").json()["buckets"] == []


WRONG = [
    "/v1/at/0", "/v1/at/-1", "/v1/at/x", f"/v1/at/{'9' * 5000}", f"/v1/at/{2**64}", "/v1/at/1e3", "/v1/at/%D9%A3",
    "/v1/at?time=soon", "/v1/at?time=nan", "/v1/at?time=inf", "/v1/at?time=-1e300", "/v1/at?time=9999999999999",
    "/v1/at?time=2026-13-01", "/v1/at?time=0001-01-01T00:00%2B23:59", f"/v1/at?time={'9' * 5000}",
    "/v1/at/1?limit=-1", "/v1/at/1?limit=1e9", "/v1/at/1?all=perhaps", "/v1/cycles?buckets=0",
    "/v1/cycles?buckets=1001", "/v1/cycles?since=x", f"/v1/at/{2**53}", "/v1/at/99999",
]  # fmt: skip


def test_what_makes_no_sense_is_refused_in_one_sentence(client):
    for path in WRONG:
        answer = client.get(path)
        assert answer.status in (404, 422), (path, answer.text)
        assert 10 < len(answer.json()["error"]) < 500


def test_the_smallest_and_largest_that_may_be_asked(client):
    assert client.get("/v1/at/1?limit=0").json()["jobs"] == []
    assert client.get(f"/v1/at/1?limit={2**31 - 1}&all=true").status == 200
    assert client.get("/v1/cycles?buckets=1000&since=-1e11&until=1e11").status == 200


def test_a_user_sees_of_others_what_it_sees_today(client, engine, with_token):
    submit(client, id="a", owner="ana", gpus=2)
    cycle = engine.cycles
    submit(client, id="b", owner="bo", gpus=2)
    later = engine.cycles
    bo, reader = with_token("user", owner="bo"), with_token("read")
    assert {"kind": "JobSubmitted", "subject": "a"} in at(client, cycle)["events"]
    assert {"kind": "JobSubmitted", "subject": "a"} in at(reader, cycle)["events"]
    hidden = at(bo, cycle)
    assert hidden["events"] == []
    assert (hidden["jobs"][0]["id"], hidden["jobs"][0]["attempts"]) == ("a", 0)
    assert hidden["jobs"][0]["reason"] == ""
    assert at(reader, cycle)["jobs"][0]["reason"] != ""
    assert "a" not in hidden["decision"]["reasons"]
    assert "a" in at(client, cycle)["decision"]["reasons"]
    assert {"kind": "JobSubmitted", "subject": "b"} in at(bo, later)["events"]


# -- the process ----------------------------------------------------------------------------------------------


def test_a_process_that_was_killed_is_started_again(client, history, engine):
    assert at(client, 1)["cycle"] == 1
    os.kill(history._process.pid, signal.SIGKILL)
    history._process.wait()
    submit(client, id="a")
    assert ids(at(client, engine.cycles)) == ["a"]


def test_it_ends_when_the_controller_is_gone_or_asks_nothing(engine):
    source = msgspec.json.encode(HistorySource(engine.journal.name))
    command = [sys.executable, "-m", "hocket.service.history_worker"]
    done = subprocess.run(command, input=source + b"\n", capture_output=True, timeout=300, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")  # Its input ended.
    asked = []

    def lines(wait_s):
        asked.append(wait_s)
        return source if len(asked) == 1 else None

    history_worker.serve(lines, asked.append, idle_s=0.0)
    assert asked[1] == 0.0  # Between two looks it folds.


def test_a_journal_that_cannot_be_read_is_said(tmp_path):
    history = HistoryProcess(HistorySource(str(tmp_path / "missing.db")))
    status, body = history.ask(HistoryRequest(ADMIN, cycle=1))
    assert status == 503
    assert b"does not exist" in body
    history.close()
    with pytest.raises(HistoryUnavailable, match="going down"):
        history.ask(HistoryRequest(ADMIN, cycle=1))


def test_cycles_that_are_not_indexed_yet_are_answered_later(engine, monkeypatch):
    for _ in range(3):
        engine.executor.post(lambda _state, _now_s: []).result(60)
    monkeypatch.setattr(history_worker, "_READY_S", 0.0)
    monkeypatch.setattr(history_worker, "_SLICE", 1)
    worker = history_worker.HistoryWorker(HistorySource(engine.journal.name))
    head, body = worker.answer(HistoryRequest(ADMIN, cycle=3))
    assert (head.status, head.indexed) == (503, 1)
    assert b"up to cycle 1 of" in body
    assert worker.answer(HistoryRequest(ADMIN, at_s=2e9))[0].status == 503
    while worker.index_further():
        pass
    assert worker.answer(HistoryRequest(ADMIN, cycle=3))[0].status == 200
    worker.close()


def test_a_damaged_index_is_said_once_and_made_anew(engine, monkeypatch):
    for _ in range(8):
        engine.executor.post(lambda _state, _now_s: []).result(60)
    worker = history_worker.HistoryWorker(HistorySource(engine.journal.name))
    monkeypatch.setattr("hocket.service.past_states._SEGMENT", 4)
    assert worker.answer(HistoryRequest(ADMIN, cycle=2))[0].status == 200
    worker._states._index._db.execute("UPDATE segment SET changes = x'00'")
    head, body = worker.answer(HistoryRequest(ADMIN, buckets=1000))
    assert (head.status, b"made anew" in body) == (503, True)
    assert worker.answer(HistoryRequest(ADMIN, cycle=2))[0].status == 200
    worker.close()


class TestWithoutTheProcess:
    @pytest.fixture
    def history(self):
        return

    def test_the_past_is_not_shown(self, client):
        answer = client.get("/v1/at/1")
        assert (answer.status, "does not show" in answer.text) == (404, True)


def test_while_a_page_is_open_the_process_is_ready_before_it_is_asked(client, engine, tmp_path):
    submit(client, id="a")
    history = HistoryProcess(HistorySource(engine.journal.name, index=str(tmp_path / "ready.db")), lambda: 0)
    history.start()
    try:
        assert history._process is None, "nothing is open, and few cycles are not indexed"
        history.expect()
        patience_s = time.monotonic() + 60
        while not history._indexed:
            assert time.monotonic() < patience_s
            time.sleep(0.02)
    finally:
        history.close()
    assert history._process is None
