"""What a function's arguments read of a call, and how the API describes them."""

from __future__ import annotations

import asyncio
import json
from typing import Annotated

import pytest
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from hocket.service.http_app import HttpApp

Few = Annotated[int, Meta(ge=-5, le=9)]


@pytest.fixture
def app() -> HttpApp:
    made = HttpApp("Tests", "1")

    @made.get("/sync/{part}/{number}")
    def in_a_thread(
        request: Request, part: str, number: Few, flag: bool = False, at_s: float | None = None
    ) -> Response:
        """Say what was read."""
        return Response(json.dumps([request.method, part, number, flag, at_s]))

    @made.post("/async", openapi_extra=lambda: {"requestBody": {"content": {}}})
    async def in_the_loop(name: str, count: Few = 3) -> Response:
        """The same without a thread."""
        return Response(json.dumps([name, count]))

    @made.put("/async", include_in_schema=False)
    async def hidden() -> Response:
        return Response(b"[]")

    return made


def call(app: HttpApp, method: str, path: str, query: str = "") -> tuple[int, str]:
    sent: list[dict[str, object]] = []

    async def receive() -> dict[str, object]:
        return {"type": "http.request", "body": b""}

    async def send(message: dict[str, object]) -> None:
        sent.append(message)

    scope = {"type": "http", "method": method, "path": path, "query_string": query.encode(), "headers": []}
    asyncio.run(app(scope, receive, send))  # type: ignore[arg-type]
    return sent[0]["status"], b"".join(m.get("body", b"") for m in sent).decode()  # type: ignore[misc, return-value]


def test_values_come_from_the_path_and_the_query(app: HttpApp) -> None:
    assert call(app, "GET", "/sync/a b/7") == (200, '["GET", "a b", 7, false, null]')
    assert call(app, "GET", "/sync/x/-5", "flag=true&at_s=1.5&more=1") == (200, '["GET", "x", -5, true, 1.5]')
    assert call(app, "GET", "/sync/x/1", "flag=1&flag=0") == (200, '["GET", "x", 1, false, null]')
    assert call(app, "POST", "/async", "name=5") == (200, '["5", 3]')


@pytest.mark.parametrize(
    ("path", "query", "words"),
    [
        ("/sync/x/y", "", "number must be an integer, not 'y'"),
        ("/sync/x/1e0", "", "number must be an integer, not '1e0'"),
        ("/sync/x/1.0", "", "number must be an integer, not '1.0'"),
        ("/sync/x/10", "", "number must be an integer <= 9, not '10'"),
        ("/sync/x/-6", "", "number must be an integer >= -5, not '-6'"),
        (f"/sync/x/{'9' * 5000}", "", f"number must be a number of fewer digits, not '{'9' * 100}'"),
        ("/sync/x/1", "flag=perhaps", "flag must be true or false, not 'perhaps'"),
        ("/sync/x/1", "at_s=", "at_s must be a number, not ''"),
    ],
)
def test_what_breaks_a_rule_is_refused_in_one_sentence(app: HttpApp, path: str, query: str, words: str) -> None:
    assert call(app, "GET", path, query) == (422, words)


def test_what_has_no_default_must_be_said(app: HttpApp) -> None:
    assert call(app, "POST", "/async") == (422, "name must be said, in the query")


def test_no_other_method_is_answered(app: HttpApp) -> None:
    assert call(app, "HEAD", "/sync/x/1")[0] == 405
    assert call(app, "POST", "/sync/x/1")[0] == 405
    assert call(app, "GET", "/nowhere")[0] == 404


def test_the_description_names_every_value_with_its_bounds(app: HttpApp) -> None:
    said = json.loads(call(app, "GET", "/openapi.json")[1])
    assert set(said["paths"]) == {"/sync/{part}/{number}", "/async"}
    read = said["paths"]["/sync/{part}/{number}"]["get"]
    assert (read["summary"], read["description"]) == ("In a thread", "Say what was read.")
    assert [(p["name"], p["in"], p["required"]) for p in read["parameters"]] == [
        ("part", "path", True), ("number", "path", True), ("flag", "query", False), ("at_s", "query", False),
    ]  # fmt: skip
    assert read["parameters"][1]["schema"] == {"type": "integer", "minimum": -5, "maximum": 9}
    assert read["parameters"][2]["schema"] == {"type": "boolean", "default": False}
    assert set(said["paths"]["/async"]) == {"post"}
    assert said["paths"]["/async"]["post"]["requestBody"] == {"content": {}}
