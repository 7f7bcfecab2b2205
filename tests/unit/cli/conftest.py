"""A stand-in for a controller: speaks docs/api.md over real HTTP, and does what a test tells it."""

from __future__ import annotations

import json
import socketserver
import threading
import time
from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import pytest

TOKEN = "the-token"
LIVE = ("waiting", "starting", "running", "pausing", "paused", "held")


class Controller:
    """Jobs in memory. `seen` keeps every call, `refuse` names jobs that are not accepted, and why."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.jobs: dict[str, dict[str, Any]] = {}
        self.specs: dict[str, dict[str, Any]] = {}
        self.logs: dict[tuple[str, int], bytes] = {}
        self.gone: dict[tuple[str, int], int] = {}  # bytes of a log that are no longer kept
        self.refuse: dict[str, str] = {}
        self.seen: list[tuple[str, str, Any]] = []
        self.on: dict[str, Callable[[], None]] = {}  # path → what happens after it was answered
        gpus = [{"index": i, "job": ""} for i in range(4)]
        self.nodes = [{"id": "n0", "up": True, "gpus": gpus, "cores": 8.0, "mem_mib": 16384.0}]
        self.owners: dict[str, dict[str, Any]] = {}
        self.more: dict[str, Any] = {}  # that is told of every job
        self.why: dict[str, Any] = {}  # that is said of every job
        self.warnings: list[str] = []  # of every submission
        self.is_down = False

    def add(self, job_id: str, state: str = "waiting", **fields: Any) -> dict[str, Any]:
        """A job, as `GET /v1/jobs` tells of it."""
        row = {
            "id": job_id, "owner": "ann", "state": state, "size": 0, "gpus": [], "submitted_s": time.time(),
            "started_s": None, "ended_s": None if state in LIVE else time.time(), "waited_s": 1.0, "ran_s": 0.0,
            "epoch": 0, "metrics": {}, "until": "", "attempts": 0, "reason": "",
        }  # fmt: skip
        self.jobs[job_id] = row | fields
        return self.jobs[job_id]

    def calls(self, method: str, path: str) -> list[Any]:
        """The bodies of all calls of a kind."""
        return [body for m, p, body in self.seen if m == method and p == path]

    # -- answers ---------------------------------------------------------------------------------------------

    def answer(self, method: str, path: str, query: dict[str, str], body: Any) -> tuple[int, Any, dict[str, str]]:
        parts = [unquote(part) for part in path.split("/")[2:]]
        if parts == ["health"]:
            return 200, {"ok": True, "version": "0", "pid": 0}, {}
        if parts == ["jobs"] and method == "POST":
            told = [answer for spec in body["jobs"] for answer in self._submit(spec, body["owner"])]
            return 200, {"jobs": told, "warnings": self.warnings}, {}
        if parts == ["jobs"]:
            found = [j for j in self.jobs.values() if query.get("all") == "true" or j["state"] in LIVE]
            return 200, {"jobs": [j for j in found if query.get("owner") in (None, j["owner"])]}, {}
        if parts == ["nodes"]:
            return 200, {"nodes": self.nodes}, {}
        if parts == ["status"]:
            counts: dict[str, int] = {}
            for job in self.jobs.values():
                counts[job["state"]] = counts.get(job["state"], 0) + 1
            told = {"policy": "las", "params": {}, "now_s": time.time(), "jobs": counts, "decisions": 7, "trouble": ""}
            return 200, told, {}
        if parts[0] == "owners":
            return 200, self._set(parts[1], body) if method == "PUT" else {"owners": list(self.owners.values())}, {}
        if parts == ["job-requests"]:
            return self._request(body)
        if parts == ["down"]:
            self.is_down = True
            return 200, {"ok": True}, {}
        return self._of_job(parts, query)

    def _of_job(self, parts: list[str], query: dict[str, str]) -> tuple[int, Any, dict[str, str]]:
        job = self.jobs.get(parts[1])
        if job is None:
            return 404, {"error": f"there is no job '{parts[1]}'"}, {}
        match parts[2:]:
            case []:
                return (
                    200,
                    job | {"job": self.specs.get(job["id"], {}), "observations": [], "warnings": []} | self.more,
                    {},
                )
            case ["why"]:
                past = [{"at_s": time.time(), "what": "submitted", "reason": ""}]
                told = {"state": job["state"], "now": job["reason"], "waits_for": "2 GPUs", "expected_s": 90.0}
                return 200, told | {"past": past} | self.why, {}
            case ["log"]:
                return self._log(job["id"], int(query["offset"]), int(query["limit"]), int(query["attempt"]))
        return 404, {"error": "no such path"}, {}

    def _set(self, owner: str, body: Any) -> dict[str, Any]:
        nothing = {"id": owner, "weight": 1.0, "max_gpus": 0, "max_cores": 0.0, "max_mem_mib": 0.0, "max_jobs": 0}
        uses = {"gpus": 2, "cores": 1.5, "mem_mib": 512.0, "jobs": 1}
        self.owners[owner] = {"uses": uses, "waiting": 3, **nothing, **self.owners.get(owner, {}), **body}
        return self.owners[owner]

    def _request(self, body: Any) -> tuple[int, Any, dict[str, str]]:
        live = [j["id"] for j in self.jobs.values() if j["state"] in LIVE and body["owner"] in ("", j["owner"])]
        for name in body["jobs"]:
            if name not in self.jobs and not any(fnmatchcase(job_id, name) for job_id in live):
                return 404, {"error": f"there is no job '{name}'"}, {}
        told = []
        for job_id in live:
            if body["all"] or any(fnmatchcase(job_id, name) for name in body["jobs"]):
                state = {"pause": "pausing", "resume": "waiting", "stop": "stopped"}[body["request"]]
                self.jobs[job_id]["state"] = state
                told.append({"id": job_id, "state": state})
        over = [name for name in body["jobs"] if name in self.jobs and name not in live]
        return 200, {"jobs": told + [{"id": name, "refused": f"job '{name}' is over"} for name in over]}, {}

    def _submit(self, spec: dict[str, Any], owner: str) -> Iterator[dict[str, str]]:
        base = spec.get("id") or f"train-{len(self.jobs) + 1}"
        for name in [f"{base}-{n}" for n in range(spec["array"])] if "array" in spec else [base]:
            if name not in self.refuse:
                self.add(name, owner=spec.get("owner") or owner)
                self.specs[name] = spec
            yield {"id": name, "refused": self.refuse.get(name, "")}

    def _log(self, job_id: str, offset: int, limit: int, attempt: int) -> tuple[int, Any, dict[str, str]]:
        runs = [number for name, number in self.logs if name == job_id]
        number = attempt or max(runs, default=0)
        data = self.logs.get((job_id, number))
        if data is None:
            return 200, b"", {"X-Next-Offset": "0", "X-Attempt": "0"}
        start = max(offset if offset >= 0 else len(data) + offset, self.gone.get((job_id, number), 0))
        part = data[start : start + min(limit, 1 << 20)]
        return 200, part, {"X-Next-Offset": str(start + len(part)), "X-Attempt": str(number)}


class Handler(BaseHTTPRequestHandler):
    """One call."""

    protocol_version = "HTTP/1.1"
    controller: Controller

    def do_GET(self) -> None:
        self._answer("GET")

    def do_POST(self) -> None:
        self._answer("POST")

    def do_PUT(self) -> None:
        self._answer("PUT")

    def _answer(self, method: str) -> None:
        parts = urlsplit(self.path)
        query = {name: values[-1] for name, values in parse_qs(parts.query).items()}
        data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        body = json.loads(data) if data else None
        self.controller.seen.append((method, parts.path, body))
        if parts.path != "/v1/health" and self.headers.get("Authorization") != f"Bearer {TOKEN}":
            status, found, headers = 401, {"error": "the token is missing or wrong"}, {}
        else:
            status, found, headers = self.controller.answer(method, parts.path, query, body)  # type: ignore[assignment]
        raw = found if isinstance(found, bytes) else json.dumps(found).encode()
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.lower(), value)  # As servers do that tell ASGI's names.
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)
        if then := self.controller.on.get(parts.path):
            then()
        if self.controller.is_down:
            self.close_connection = True
            threading.Thread(target=self.server.server_close).start()

    def log_message(self, *_: object) -> None:
        pass


class UnixServer(ThreadingHTTPServer):
    """The same over a socket in a folder."""

    address_family = 1

    def server_bind(self) -> None:
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = "localhost", 0

    def get_request(self) -> Any:
        connection, _nobody = super().get_request()
        return connection, ("localhost", 0)


def serve(controller: Controller, server: ThreadingHTTPServer) -> Iterator[Controller]:
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield controller
    server.shutdown()
    thread.join()
    server.server_close()


def handler_of(controller: Controller) -> type[Handler]:
    return type("BoundHandler", (Handler,), {"controller": controller})


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home folder without a controller."""
    folder = tmp_path / "home"
    folder.mkdir()
    monkeypatch.setenv("HOCKET_HOME", str(folder))
    return folder


@pytest.fixture
def controller(home: Path) -> Iterator[Controller]:
    """A stand-in that answers on loopback."""
    found = Controller(home)
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler_of(found))
    server.daemon_threads = True
    (home / "url").write_text(f"http://127.0.0.1:{server.server_address[1]}\n")
    (home / "token").write_text(TOKEN)
    yield from serve(found, server)


@pytest.fixture
def unix_controller(home: Path) -> Iterator[Controller]:
    """A stand-in that answers on a Unix socket."""
    found = Controller(home)
    server = UnixServer(str(home / "s"), handler_of(found))  # type: ignore[arg-type]
    server.daemon_threads = True
    (home / "url").write_text(f"unix://{home / 's'}\n")
    (home / "token").write_text(TOKEN)
    yield from serve(found, server)
