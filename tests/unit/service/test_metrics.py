"""Metrics for Prometheus: their names and units, what they count, and that labels cannot grow without end."""

import asyncio
import json
import re
import socket
import time
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from hocket.agent.protocol import Hello
from hocket.model.resources import Node
from hocket.service.host_names import HostNames
from hocket.service.metrics import MOST_OWNERS, OTHER_OWNERS, Metrics, metrics_app
from hocket.service.up import metrics_listening

DASHBOARD = Path(__file__).parents[3] / "docs" / "grafana_dashboard.json"
JOB = {"command": ["true"], "cwd": "/"}


@pytest.fixture
def metrics(client):
    """Reads all metrics: value by name and labels."""

    def read():
        answer = client.get("/metrics")
        assert answer.status == 200, answer.text
        return values(answer.text)

    return read


def values(text):
    return {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def submit(client, **job):
    answer = client.post("/v1/jobs", {"jobs": [JOB | job]})
    assert answer.status == 200, answer.text
    assert not answer.json()["jobs"][0]["refused"]


def job_metric(state, owner):
    return ("hocket_jobs", ("owner", owner), ("state", state))


# -- conventions ----------------------------------------------------------------------------------------------


def problems(text):
    """What `promtool check metrics` would say, and a little more."""
    found = []
    described, typed, names = set(), {}, []
    for line in text.splitlines():
        if line.startswith("# HELP "):
            described.add(line.split(" ")[2])
        elif line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            typed[name] = kind
        else:
            names.append(re.match(r"[a-zA-Z_:][a-zA-Z0-9_:]*", line)[0])
    for name in dict.fromkeys(names):
        family = next((n for n in (name, re.sub(r"_(bucket|sum|count|created)$", "", name)) if n in typed), "")
        if not family:
            found.append(f"{name} has no TYPE")
            continue
        if family not in described:
            found.append(f"{name} has no HELP")
        if (typed[family] == "counter") != family.endswith("_total"):
            found.append(f"{name} is a {typed[family]}: exactly counters end with _total")
        if not re.fullmatch(r"(hocket|process)_[a-z_]+", family):
            found.append(f"{name} is not in lower case, or has another prefix")
        if re.search(r"_(ms|milliseconds|minutes|hours|s|sec|mib|mb|kib|kilobytes|percent)(_total)?$", family):
            found.append(f"{name} has a unit that is no base unit")
        if re.search(r"duration|lag|lease|time", family) and not re.search(r"_seconds(_total)?$", family):
            found.append(f"{name} is a time, and does not end with _seconds")
        if typed[family] in ("gauge", "counter") and re.search(r"_(count|sum|bucket)$", family):
            found.append(f"{name} ends as a part of a histogram does")
    return found


def test_names_and_units_follow_the_conventions(client):
    submit(client, id="a", owner="ana")
    text = client.get("/metrics").text
    assert problems(text) == []
    samples = [line.rpartition(" ")[0] for line in text.splitlines() if not line.startswith("#")]
    assert len(samples) == len(set(samples)), "a series is there twice"


@pytest.mark.parametrize(
    "bad",
    [
        "hocket_lag_seconds 1",
        "# HELP hocket_lag x\n# TYPE hocket_lag gauge\nhocket_lag 1",
        "# HELP hocket_x_ms x\n# TYPE hocket_x_ms gauge\nhocket_x_ms 1",
        "# TYPE hocket_jobs gauge\nhocket_jobs 1",
        "# HELP hocket_events x\n# TYPE hocket_events counter\nhocket_events 1",
        "# HELP hocket_events_total x\n# TYPE hocket_events_total gauge\nhocket_events_total 1",
        "# HELP jobs x\n# TYPE jobs gauge\njobs 1",
    ],
)
def test_the_check_of_conventions_finds_what_is_wrong(bad):
    assert problems(bad)


def test_the_format_follows_the_header_accept(client):
    assert client.get("/metrics", Accept="text/plain").text.rstrip().endswith("# EOF") is False
    opened = client.get("/metrics", Accept="application/openmetrics-text; version=1.0.0")
    assert opened.text.endswith("# EOF\n")


# -- what is counted ------------------------------------------------------------------------------------------


def test_jobs_are_counted_by_state_and_owner_and_a_state_that_nothing_is_in_any_more_is_0(client, metrics):
    submit(client, id="a", owner="ana")
    submit(client, id="b", owner="bo", gpus=2)
    submit(client, id="c", owner="bo", gpus=2)
    client.post("/v1/jobs/c/pause")
    found = metrics()
    states = {key: value for key, value in found.items() if key[0] == "hocket_jobs" and value}
    assert sum(states.values()) == 3
    assert found[job_metric("held", "bo")] == 1
    client.post("/v1/jobs/c/stop")
    client.await_state("c", "stopped")
    found = metrics()
    assert found[job_metric("held", "bo")] == 0
    assert found["hocket_jobs_ended_total", ("verdict", "stopped")] == 1


def test_devices_are_counted_by_state(client, engine, metrics):
    hello = Hello(Node("there", 4, gpu_kind="A100"), "127.0.0.1")
    engine.executor.post(engine.executor.hello(hello)).result(60)
    here, there = (("kind", ""),), (("kind", "A100"),)
    assert metrics()["hocket_devices", *here, ("state", "idle")] == 2
    submit(client, id="a", owner="ana", gpus=2, gpu_kinds=["A100"])
    found = metrics()
    assert found["hocket_devices", *there, ("state", "busy")] == 2
    assert found["hocket_devices", *there, ("state", "idle")] == 2
    assert found["hocket_owner_devices", ("owner", "ana")] == 2
    client.post("/v1/nodes/there/drain", {"now": False})
    found = metrics()
    assert found["hocket_devices", *there, ("state", "drained")] == 2
    assert found["hocket_devices", *there, ("state", "busy")] == 2
    assert found["hocket_nodes", ("state", "drained")] == 1
    assert sum(value for key, value in found.items() if key[0] == "hocket_devices") == 6


def test_cycles_decisions_events_and_requests_are_counted_and_timed(client, engine, metrics):
    before = metrics()
    submit(client, id="a")
    client.get("/v1/jobs/a")
    client.get("/v1/no/such/path")
    found = metrics()

    def more(*key):
        return found[key] - before.get(key, 0)

    assert more("hocket_events_total", ("kind", "JobSubmitted")) == 1
    assert more("hocket_cycles_total") >= 1
    assert found["hocket_cycles_total",] == engine.cycles
    assert more("hocket_decisions_total") >= 1
    for name in ("cycle", "decision", "journal_append"):
        assert more(f"hocket_{name}_duration_seconds_count") >= 1
        assert more(f"hocket_{name}_duration_seconds_sum") > 0
    assert more("hocket_decision_duration_seconds_sum") < more("hocket_cycle_duration_seconds_sum")
    requests = "hocket_http_requests_total"
    assert more(requests, ("code", "200"), ("method", "POST"), ("route", "/v1/jobs")) == 1
    assert more(requests, ("code", "200"), ("method", "GET"), ("route", "/v1/jobs/{job_id}")) == 1
    assert more(requests, ("code", "404"), ("method", "GET"), ("route", "(none)")) == 1
    assert more("hocket_http_request_duration_seconds_count", ("method", "POST")) == 1


def test_a_refused_plan_is_counted(engine, metrics):
    engine._controller.refused_plans += 1
    assert metrics()["hocket_plans_refused_total",] == 1


def test_agents_say_whether_they_are_connected_and_when_they_last_called(engine, metrics):
    found = metrics()
    assert found["hocket_agent_connected", ("node", "here")] == 1
    assert abs(found["hocket_agent_last_heard_timestamp_seconds", ("node", "here")] - time.time()) < 300
    engine.sessions.end("here")
    found = metrics()
    assert found["hocket_agent_connected", ("node", "here")] == 0
    assert ("hocket_agent_last_heard_timestamp_seconds", ("node", "here")) not in found


def test_the_journals_lag_is_the_age_of_what_waits_to_be_written(engine, metrics):
    assert metrics()["hocket_journal_lag_seconds",] == 0
    assert metrics()["hocket_journal_writable",] == 1
    assert metrics()["hocket_journal_size_bytes",] > 0
    during = []

    def make(_state, _now_s):
        while engine.executor.unwritten_s() < 0.05:
            time.sleep(0.005)
        during.append(metrics()["hocket_journal_lag_seconds",])
        return []

    engine.executor.post(make).result(120)
    assert during[0] >= 0.05
    assert metrics()["hocket_journal_lag_seconds",] == 0


# -- who may read, and what users can do to it ----------------------------------------------------------------


def test_a_read_token_suffices_and_without_one_nothing_is_told(with_token, stranger):
    assert with_token("read").get("/metrics").status == 200
    assert stranger.get("/metrics").status == 401
    assert with_token("agent", node="here").get("/metrics").status == 403


def test_many_owners_make_a_bounded_number_of_series(client, metrics):
    owners = MOST_OWNERS + 30
    client.post("/v1/jobs", {"jobs": [JOB | {"owner": f"owner-{n:03}"} for n in range(owners)]})
    found = metrics()
    named = {owner for name, *labels in found if name == "hocket_jobs" for label, owner in labels if label == "owner"}
    assert len(named) == MOST_OWNERS + 1
    assert OTHER_OWNERS in named
    assert sum(value for key, value in found.items() if key[0] == "hocket_jobs") == owners


def test_names_with_any_characters_are_read_back_as_they_are(client, metrics):
    odd = 'a"b\\c\nd{}=, \u202e é'
    submit(client, id="a", owner=odd)
    assert sum(value for (_, *labels), value in metrics().items() if ("owner", odd) in labels) >= 1


def test_paths_and_methods_that_nothing_serves_make_no_series_of_their_own(engine):
    metrics = Metrics(engine)
    for n in range(100):
        metrics.count_request(f"GET /{n}", 404, 0.001)
        metrics.count_request(f"M{n} /v1/jobs", 405, 0.001)
    assert len(metrics._requests) == 2
    assert len(metrics._routes) == 0


def test_calls_that_wait_for_something_are_counted_and_not_timed(engine):
    metrics = Metrics(engine)
    for call in ("GET /v1/events", "GET /v1/agents/{session}/orders", "GET /v1/jobs"):
        metrics.count_request(call, 200, 5.0)
    found = values(metrics.answer().body.decode())
    assert found["hocket_http_request_duration_seconds_count", ("method", "GET")] == 1
    assert sum(value for key, value in found.items() if key[0] == "hocket_http_requests_total") == 3


# -- the dashboard --------------------------------------------------------------------------------------------


def test_every_metric_of_the_dashboard_exists_with_the_labels_it_uses(client, metrics):
    submit(client, id="a", owner="ana")
    client.post("/v1/jobs/a/stop")
    found = metrics()
    labels = {}
    for name, *pairs in found:
        labels.setdefault(name, set()).update(label for label, _ in pairs)
    dashboard = json.loads(DASHBOARD.read_text())
    queries = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())]
    assert len(queries) >= 10
    used = {name for query in queries for name in re.findall(r"\b(?:hocket|process)_\w+", query)}
    assert used <= set(labels), used - set(labels)
    known = {label for each in labels.values() for label in each} | {"job", "instance"}
    for query in queries:
        for inside in re.findall(r"\bby \(([^)]*)\)", query):
            assert {label.strip() for label in inside.split(",")} <= known, query
        for name, inside in re.findall(r"(hocket_\w+)\{([^}]*)\}", query):
            assert set(re.findall(r"(\w+)\s*[=!]~?", inside)) <= labels[name] | {"job", "instance"}, query
    families = {re.sub(r"_(bucket|sum|count|created)$", "", name) for name in labels if name.startswith("hocket_")}
    shown = {re.sub(r"_(bucket|sum|count)$", "", name) for name in used}
    assert families - shown <= {"hocket_build_info", "hocket_agent_lease_seconds"}, "a metric that no panel shows"


# -- a port of its own ----------------------------------------------------------------------------------------


def served(app, path="/metrics", method="GET", host=b"localhost:9100", kind="http"):
    """Status and body of a call of an app."""
    sent = []

    async def send(message):
        sent.append(message)

    async def call():
        headers = [(b"host", host), (b"accept", b"text/plain")]
        await app({"type": kind, "method": method, "path": path, "headers": headers}, None, send)

    asyncio.run(call())
    body = b"".join(message.get("body", b"") for message in sent)
    return (sent[0]["status"] if sent else 0), body.decode()


def test_a_port_of_its_own_has_metrics_without_a_token_and_nothing_else(engine):
    app = metrics_app(Metrics(engine), HostNames(["head.lab"]))
    status, text = served(app)
    assert (status, values(text)["hocket_nodes", ("state", "up")]) == (200, 1)
    assert served(app, host=b"head.lab:9100")[0] == 200
    assert served(app, host=b"evil.example")[0] == 421
    assert served(app, "/v1/jobs")[0] == 404
    assert served(app, method="POST")[0] == 405
    assert served(app, kind="websocket") == (0, "")


def test_a_port_that_other_machines_reach_needs_a_certificate_or_a_word():
    with pytest.raises(ValueError, match=r"--metrics-listen 0\.0\.0\.0 would send names of owners and nodes over"):
        metrics_listening(("0.0.0.0", free_port()), None, False)
    metrics_listening(("0.0.0.0", free_port()), None, True).close()
    found = metrics_listening(("127.0.0.1", free_port()), None, False)
    assert found.url.startswith("http://127.0.0.1:")
    found.close()


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as found:
        return found.getsockname()[1]
