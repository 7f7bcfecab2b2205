"""Every number that the API reads, as small, as large and as long as it can be said: never a 500, and all goes on."""

from itertools import count
from urllib.parse import quote

import pytest

from hocket.service.openapi_schema import submission_schema

# As JSON and as a query say them.
NUMBERS = [
    "0", "-0", "-0.0", "-1", "1e-320", "5e-324", "-5e-324", "1e-300", "1e-9", "0.1", "1e15", "1e300", "1e308", "1e309",
    "-1e308", str(2**31), str(2**53 + 1), str(2**63), str(-(2**63) - 1), str(2**64), "9" * 4300, "9" * 5000,
]  # fmt: skip
IN_QUERIES = [*NUMBERS, "nan", "inf", "-inf", "", "1_000", "0x10", "٣"]
JOB = '"command": ["true"], "cwd": "/"'


def numeric(schema, path=()):
    """The paths of all numbers in a schema, through objects, lists and alternatives."""
    kinds = schema.get("type")
    if kinds in ("integer", "number"):
        yield path
    for choice in schema.get("anyOf", ()):
        yield from numeric(choice, path)
    if kinds == "array":
        yield from numeric(schema.get("items", {}), (*path, "[]"))
    for name, part in schema.get("properties", {}).items():
        yield from numeric(part, (*path, name))
    if isinstance(more := schema.get("additionalProperties"), dict):
        yield from numeric(more, (*path, "x"))


def placed(path, number):
    """JSON with a number at that place."""
    for step in reversed(path):
        number = f"[{number}]" if step == "[]" else f'"{step}": {number}'
        number = number if step == "[]" else "{" + number + "}"
    return number


JOB_NUMBERS = [path[2:] for path in numeric(submission_schema())]  # without jobs and []


def test_the_numbers_of_a_job_are_found():
    assert {("sizes", "[]"), ("cores",), ("mem_mib",), ("weight",), ("priority",), ("deadline_s",)} <= set(JOB_NUMBERS)


@pytest.mark.parametrize("path", JOB_NUMBERS, ids=".".join)
def test_a_job_with_any_number_is_taken_or_refused_in_one_sentence(client, path):
    names = count()
    for number in NUMBERS:
        job = placed(path, number)[1:-1]
        body = f'{{"jobs": [{{"id": "j{next(names)}", {JOB}, {job}}}]}}'.encode()
        answer = client.post("/v1/jobs", body)
        assert answer.status in (200, 400, 413, 422), (path, number[:40], answer.text[:300])
        if answer.status != 200:
            assert len(answer.json()["error"]) < 1000
        assert "NaN" not in answer.text
        assert "Infinity" not in answer.text
    for shown in ("/v1/jobs?all=true", "/v1/status", "/v1/nodes", "/v1/owners"):
        assert client.get(shown).status == 200, shown


def test_a_query_with_any_number_is_answered(app, client):
    client.post("/v1/jobs", f'{{"jobs": [{{"id": "j", {JOB}}}]}}'.encode())
    tried = 0
    for route, operations in app.openapi()["paths"].items():
        for method, operation in operations.items():
            asked = [p["name"] for p in operation.get("parameters", ()) if p["in"] == "query"]
            if route in ("/v1/events", "/v1/down") or method != "get":
                continue
            path = route
            for parameter in operation.get("parameters", ()):
                if parameter["in"] == "path":
                    path = path.replace("{" + parameter["name"] + "}", "j")
            for name in asked:
                for number in IN_QUERIES:
                    answer = client.get(f"{path}?{name}={quote(number)}")
                    tried += 1
                    assert answer.status < 500, (path, name, number[:40], answer.text[:300])
    assert tried > 50


HELLO = '{"node": {"id": "n", "gpus": 1}, "address": "127.0.0.1"}'


@pytest.mark.parametrize("field", ["gpus", "cores", "mem_mib", "net_mbps", "gpu_mem_mib"])
def test_a_node_with_any_number_joins_or_is_refused(client, field):
    for number in NUMBERS:
        node = f'{{"id": "n", "{field}": {number}}}'
        answer = client.post("/v1/agents/hello", f'{{"node": {node}, "address": "127.0.0.1"}}'.encode())
        assert answer.status in (200, 400, 422), (field, number[:40], answer.text[:300])
        assert client.get("/v1/nodes").status == 200
    client.post("/v1/jobs", f'{{"jobs": [{{"id": "j", {JOB}}}]}}'.encode())
    assert client.get("/v1/jobs/j/why").status == 200


@pytest.mark.parametrize("field", ["n", "at_s", "run.number", "fields.epoch", "fields.step", "fields.metrics.acc"])
def test_a_report_with_any_number_is_taken_or_refused(client, field):
    client.post("/v1/jobs", f'{{"jobs": [{{"id": "j", {JOB}}}]}}'.encode())
    session = client.post("/v1/agents/hello", HELLO.encode()).json()["session"]
    for number in NUMBERS:
        said = {"n": "1", "at_s": "1", "run.number": "1", "fields.epoch": "1", "fields.step": "1"}
        said |= {"fields.metrics.acc": "0.5", field: number}
        metrics = f'{{"acc": {said["fields.metrics.acc"]}}}'
        fields = f'{{"epoch": {said["fields.epoch"]}, "step": {said["fields.step"]}, "metrics": {metrics}}}'
        run = f'{{"job": "j", "number": {said["run.number"]}}}'
        body = f'[{{"run": {run}, "n": {said["n"]}, "at_s": {said["at_s"]}, "event": "progress", "fields": {fields}}}]'
        answer = client.post(f"/v1/agents/{session}/reports", body.encode())
        assert answer.status in (200, 400, 422), (field, number[:40], answer.text[:300])
        assert client.get("/v1/jobs/j").status == 200
