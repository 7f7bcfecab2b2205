"""Requests that no client would send, to every route of the API, signed in and not: no 500, nothing without a token.

    python -m tests.unit.service.route_fuzz --requests 1000

starts a controller and sends so many to each route in both ways; the same seed sends the same requests. Routes come
from the table of permissions, which a test holds to those of the app, so that a new one is fuzzed at once. Bodies and
queries are drawn from the API's own description, mostly near to what it wants, so that they get past the first check.
"""

import argparse
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import quote, urlencode

from hocket.service.permissions import PERMISSIONS

MARK = "mark7c1f"  # in the name of all that is there: a caller without a token must never see it
HIDDEN = "hidden5d2e"  # in the command of a job: for its owner and admins
OWNER = f"owner-{MARK}"
OPEN = ("GET /", "GET /page/{name:path}", "GET /v1/health", "POST /v1/page/session")  # answer without a token
ENDLESS = "GET /v1/events"
LAST = "POST /v1/down"  # ends a real controller, if an admin asks for it
TEXTS = (
    "", "a", "0", "-1", "1e999", "nan", "null", "true", "[]", "{}", "*", "[", "a-*", "../../etc/passwd", "a/b", "%00",
    "%2F", "\x00", "\n", "\x7f", "<script>alert(1)</script>", "\u202eevil", "é" * 300, "x" * 5000, "😀", "9" * 40,
    "2026-11-17T10:00", "2026-99-99", "now", "1h", "for 2 epochs", "acc >= 95% within 1h", "jobs,queue", "main.js",
    "home", "las", "fair", "pause",
)  # fmt: skip
NUMBERS = (0, 1, -1, 2, 0.5, 1e300, -1e300, 2**31, 2**53, 2**63, -(2**63), 10**40, 1e-300)
HEADERS = {
    "Accept": ("*/*", "text/plain;version=0.0.4", "application/openmetrics-text", "\xff", ";;;q=x"),
    "Accept-Encoding": ("gzip", "br", "", "gzip;q=0"),
    "Content-Type": ("application/json", "text/plain", "multipart/form-data; boundary=x", "\xff"),
    "Cookie": ("a=b", "hocket_x=1.2.3.4", "=;=;", "x" * 9000, "\xe9=\xff"),
    "Host": ("evil.example", "127.0.0.1", "localhost:1", "[::1", "\xff"),
    "If-None-Match": ('"0123456789abcdef"', "*"),
    "Origin": ("http://evil.example", "null", "http://127.0.0.1"),
    "Range": ("bytes=0-1", "bytes=-"),
    "X-Hocket-Proof": ("00", "\xff", "x" * 5000),
}


class Broken(AssertionError):
    """An answer that must not be: says the request, and what is wrong with it."""


class RouteFuzz:
    """Sends requests to a controller that listens at a port, whose home has this token."""

    def __init__(self, port: int, token: str, seed: int = 0) -> None:
        self._port, self._random = port, Random(seed)
        self._connection: HTTPConnection | None = None
        self._admin = {"Authorization": f"Bearer {token}"}
        self.statuses: Counter[int] = Counter()
        self._fill()
        self._described: dict[str, Any] = self._asked("GET", "/openapi.json", None, self._admin)["paths"]

    def _asked(self, method: str, path: str, body: Any, headers: dict[str, str]) -> Any:
        said = None if body is None else json.dumps(body).encode()
        status, answer, _headers = self._send(method, path, said, headers)
        if status != 200:
            raise Broken(f"{method} {path}: {status} {answer[:300]!r}")
        return json.loads(answer)

    def _fill(self) -> None:
        """Something of each kind, and callers of all kinds."""
        job = {"id": f"job-{MARK}", "owner": OWNER, "command": ["true", HIDDEN], "cwd": "/", "env": {HIDDEN: "1"}}
        self._asked("POST", "/v1/jobs", {"jobs": [job]}, self._admin)
        self._asked("PUT", f"/v1/owners/{OWNER}", {"weight": 2}, self._admin)
        study = {
            "name": f"study-{MARK}", "state": "running", "search": "x", "metric": "acc", "goal": "max",
            "unit": "1 epoch", "units": 1, "done": 0, "total": 1, "seconds": 1, "space": [], "trials": [],
            "owner": OWNER,
        }  # fmt: skip
        self._asked("PUT", f"/v1/studies/study-{MARK}", study, self._admin)
        made = {}
        for role, more in (("user", {"owner": "other"}), ("read", {}), ("agent", {"node": "*"}), ("admin", {})):
            spec = {"name": f"token-{MARK}-{role}", "role": role, **more}
            made[role] = self._asked("POST", "/v1/tokens", spec, self._admin)["token"]
        self._asked("POST", f"/v1/tokens/token-{MARK}-admin/revoke", {}, self._admin)
        link = self._asked("POST", "/v1/page/links", {}, self._admin)["path"].partition("=")[2]
        _status, body, headers = self._send("POST", "/v1/page/session", json.dumps({"link": link}).encode(), {})
        session = {"Cookie": headers["set-cookie"].partition(";")[0], "X-Hocket-Proof": json.loads(body)["proof"]}
        self.signed_in: dict[str, dict[str, str]] = {"admin": self._admin, "session": session} | {
            role: {"Authorization": f"Bearer {made[role]}"} for role in ("user", "read", "agent")
        }
        self.strangers: dict[str, dict[str, str]] = {
            "nothing": {}, "a wrong token": {"Authorization": "Bearer hkt_wrong"},
            "no token": {"Authorization": "Bearer "}, "another way": {"Authorization": "Basic YTpi"},
            "bytes": {"Authorization": "Bearer \xff\xfe"},
            "a revoked token": {"Authorization": f"Bearer {made['admin']}"},
            "only a cookie": {"Cookie": session["Cookie"]},
            "only a proof": {"X-Hocket-Proof": session["X-Hocket-Proof"]},
        }  # fmt: skip

    # -- one route ----------------------------------------------------------------------------------------------

    def fuzz(self, call: str, requests: int, callers: dict[str, dict[str, str]]) -> None:
        """Send so many requests to a route. Raises Broken."""
        is_signed_in = callers is self.signed_in
        names = list(callers)
        for n in range(requests):
            name = names[n % len(names)]
            if call == LAST and is_signed_in and name in ("admin", "session"):
                continue
            self._try(call, name, callers[name], is_signed_in)

    def _try(self, call: str, caller: str, shown: dict[str, str], is_signed_in: bool) -> None:
        draw = self._random
        method, route = call.split(" ")
        marks = (
            () if not is_signed_in and call in OPEN else (f"job-{MARK}", OWNER, f"study-{MARK}")
        )  # It may be echoed.
        path = self._path(route, marks)
        about = self._described.get(route.replace(":path", "").replace(":text", ""), {}).get(method.lower(), {})
        if draw.random() < 0.05:
            method = draw.choice(("GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "HEAD", "BREW"))
        headers = dict(shown)
        for name in draw.sample(sorted(HEADERS), draw.choice((0, 0, 1, 2))):
            if name not in headers:
                headers[name] = draw.choice(HEADERS[name])
        body = self._body(about) if method not in ("GET", "HEAD") or draw.random() < 0.05 else None
        query = self._query(about, marks)
        try:
            status, answer, _headers = self._send(method, path + query, body, headers, endless=call == ENDLESS)
        except (HTTPException, OSError) as error:
            raise Broken(f"{caller}: {method} {path}{query}: no answer: {error!r}") from error
        self.statuses[status] += 1
        if wrong := self._wrong(call, caller, method, status, answer, is_signed_in):
            sent = f"{method} {(path + query)[:300]} {headers} {(body or b'')[:500]!r}"
            raise Broken(f"{wrong}: {caller} sent {sent}; the answer is {status} {answer[:500]!r}")

    def _wrong(self, call: str, caller: str, method: str, status: int, answer: bytes, is_signed_in: bool) -> str:
        if status >= 500 and status != 503:
            return "an error of the server"
        if status >= 400 and method != "HEAD" and status != 400:  # 400 may be the server's own, of what is no HTTP.
            try:
                if not isinstance(json.loads(answer)["error"], str):
                    return "an error that is not said"
            except (ValueError, KeyError, TypeError):
                return "an error that is not said"
        if not is_signed_in:
            if MARK.encode() in answer:
                return "data without a token"
            if call not in OPEN and status < 400:
                return "an answer without a token"
        if caller in ("user", "read", "agent") and HIDDEN.encode() in answer:
            return "what only owners and admins may see"
        return ""

    # -- what is sent -------------------------------------------------------------------------------------------

    def _path(self, route: str, marks: tuple[str, ...]) -> str:
        parts = route.split("{")
        made = parts[0]
        for part in parts[1:]:
            made += quote(self._text(marks), safe="/" if self._random.random() < 0.3 else "") + part.partition("}")[2]
        return made or "/"

    def _text(self, marks: tuple[str, ...] = ()) -> str:
        draw = self._random
        if marks and draw.random() < 0.5:
            return draw.choice(marks)
        if draw.random() < 0.2:
            return "".join(
                chr(draw.choice((draw.randrange(128), draw.randrange(0xD800)))) for _ in range(draw.randrange(12))
            )
        return draw.choice(TEXTS)

    def _query(self, about: dict[str, Any], marks: tuple[str, ...]) -> str:
        draw = self._random
        known = [each for each in about.get("parameters", ()) if each["in"] == "query"]
        said = [(p["name"], self._asked_for(p["schema"], marks)) for p in known if draw.random() < 0.5]
        if draw.random() < 0.1:
            said.append((self._text(), self._text()))
        return "?" + urlencode(said, errors="replace") if said else ""

    def _asked_for(self, schema: dict[str, Any], marks: tuple[str, ...]) -> str:
        value = self._near(schema, 0)
        if not isinstance(value, str) or self._random.random() < 0.3:
            value = self._text(marks) if self._random.random() < 0.3 else value
        return value if isinstance(value, str) else json.dumps(value)

    def _body(self, about: dict[str, Any]) -> bytes | None:
        draw = self._random
        schema = about.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
        kind = draw.random()
        if kind < 0.05:
            return None
        if kind < 0.1:
            return draw.choice((b"", b"[" * 20_000, b'{"a":' * 5000, b"\xff\xfe", b'"\\ud800"', b"{} {}", b"NaN"))
        if kind < 0.15:
            return draw.randbytes(draw.randrange(200))
        said = json.dumps(self._near(schema, 0) if kind < 0.9 else self._any(0)).encode()
        return said[: draw.randrange(len(said) + 1)] if draw.random() < 0.05 else said

    def _any(self, depth: int) -> Any:
        draw = self._random
        kind = draw.randrange(7 if depth < 3 else 5)
        if kind == 5:
            return [self._any(depth + 1) for _ in range(draw.randrange(4))]
        if kind == 6:
            return {self._text(): self._any(depth + 1) for _ in range(draw.randrange(4))}
        return (None, draw.random() < 0.5, draw.choice(NUMBERS), draw.randrange(100), self._text((f"job-{MARK}",)))[
            kind
        ]

    def _near(self, schema: dict[str, Any], depth: int) -> Any:
        """What the description asks for, or nearly."""
        draw = self._random
        if draw.random() < 0.08 or depth > 8 or not schema:
            return self._any(depth)
        choices = schema.get("anyOf") or schema.get("oneOf")
        if choices and "properties" not in schema:
            return self._near(draw.choice(choices), depth)
        if "enum" in schema:
            return draw.choice(schema["enum"])
        if "const" in schema:
            return schema["const"]
        match schema.get("type"):
            case "object":
                fields, needed = schema.get("properties", {}), schema.get("required", ())
                drawn = {n: self._near(f, depth + 1) for n, f in fields.items() if n in needed or draw.random() < 0.3}
                more = schema.get("additionalProperties")
                if isinstance(more, dict):
                    drawn |= {self._text(): self._near(more, depth + 1) for _ in range(draw.randrange(3))}
                return drawn
            case "array":
                if "prefixItems" in schema:
                    return [self._near(each, depth + 1) for each in schema["prefixItems"]]
                items = schema.get("items")
                least = schema.get("minItems", 0)
                return [
                    self._near(items if isinstance(items, dict) else {}, depth + 1)
                    for _ in range(least + draw.randrange(3))
                ]
            case "integer":
                return draw.choice((schema.get("minimum", 0), schema.get("maximum", 5), draw.randrange(10)))
            case "number":
                return draw.choice((schema.get("minimum", 0.5), schema.get("maximum", 5.5), draw.random(), 1))
            case "boolean":
                return draw.random() < 0.5
            case "null":
                return None
            case "string":
                return self._text((f"job-{MARK}", OWNER))
        return self._any(depth)

    # -- the wire -----------------------------------------------------------------------------------------------

    def _send(
        self, method: str, path: str, body: bytes | None, headers: dict[str, str], endless: bool = False
    ) -> tuple[int, bytes, dict[str, str]]:
        for is_last in (False, True):  # The server may have closed a connection that was kept.
            if self._connection is None:
                self._connection = HTTPConnection("127.0.0.1", self._port, timeout=120)
                is_last = True
            connection = self._connection
            try:
                connection.putrequest(method, path, skip_host="Host" in headers, skip_accept_encoding=True)
                for name, value in headers.items():
                    connection.putheader(name, value.encode("latin-1"))
                if body is not None:
                    connection.putheader("Content-Length", str(len(body)))
                connection.endheaders(body)
                response = connection.getresponse()
                answer = b"" if endless and response.status == 200 else response.read()
                found = response.status, answer, {name.lower(): value for name, value in response.headers.items()}
                if response.will_close or (endless and response.status == 200):
                    self.close()
                return found
            except (HTTPException, OSError):
                self.close()
                if is_last:
                    raise
        raise AssertionError

    def close(self) -> None:
        """Let go of the connection."""
        if self._connection is not None:
            with suppress(OSError):
                self._connection.close()
            self._connection = None


def fuzz_all(
    fuzz: RouteFuzz, requests: int, calls: Iterable[str] = PERMISSIONS, step: Callable[[], Any] = lambda: None
) -> None:
    """Every route, signed in and not. Raises Broken."""
    for call in calls:
        for callers in (fuzz.signed_in, fuzz.strangers):
            fuzz.fuzz(call, requests, callers)
            step()


def main(arguments: list[str]) -> None:
    """Start a controller and fuzz it; exit code 1 with the request if something is wrong."""
    from tests.live.controller import running

    from hocket.cli.terminal.progress import bars

    parser = argparse.ArgumentParser(prog="python -m tests.unit.service.route_fuzz")
    parser.add_argument("--requests", type=int, default=1000, help="to each route, in each of both ways")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--route", action="append", help="only these, as 'GET /v1/jobs'")
    chosen = parser.parse_args(arguments)
    calls = chosen.route or list(PERMISSIONS)
    with (
        tempfile.TemporaryDirectory(prefix="hocket-fuzz-") as folder,
        # Without an agent no command is run; agents that are fuzzed are answered soon.
        running(Path(folder), "--no-agent", "--lease", "1") as controller,
        bars(unit="routes") as shown,
    ):
        task = shown.add_task("fuzz", total=2 * len(calls))
        port, token = int(controller.url.rpartition(":")[2]), (controller.home / "token").read_text().strip()
        fuzz = RouteFuzz(port, token, chosen.seed)
        try:
            fuzz_all(fuzz, chosen.requests, calls, lambda: shown.update(task, advance=1))
        except Broken as broken:
            print(f"seed {chosen.seed}: {broken}", file=sys.stderr)
            raise SystemExit(1) from broken
        finally:
            fuzz.close()
    said = ", ".join(f"{many:,} × {status}" for status, many in sorted(fuzz.statuses.items()))
    print(f"{len(calls)} routes, answers: {said}; no 500, and nothing without a token")


if __name__ == "__main__":
    main(sys.argv[1:])
