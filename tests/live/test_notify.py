"""Users are told when their jobs end, fail and are paused: a real controller, a real receiver, real commands."""

import json
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from tests.live.controller import LiveController, awaited

# Fails at first, and then says how well it did.
TWICE = """
import os, sys
if not os.path.exists("tried"):
    open("tried", "w")
    sys.exit(3)
print("epoch 1 acc=0.5", flush=True)
"""
# Leaves on SIGTERM, ends when `go` is there.
WAITS = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
while not os.path.exists("go"):
    time.sleep(0.02)
"""


class Receiver:
    """Keeps what is posted to it; answers 503 while it is `closed`."""

    def __init__(self) -> None:
        self.got: list[dict[str, Any]] = []
        self.refused: list[dict[str, Any]] = []
        self.closed = False
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                (outer.refused if outer.closed else outer.got).append(body)
                self.send_response(503 if outer.closed else 204)
                self.end_headers()

            def log_message(self, *_args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/secret-path"
        Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    found = Receiver()
    yield found
    found.close()


def hocket(controller: LiveController, *args: str, code: int = 0) -> str:
    done = controller.types(*args, code=code, folder=controller.root)
    return str(done.stdout + done.stderr)


def submit(controller: LiveController, name: str, script: str, *options: str) -> None:
    (controller.root / f"{name}.py").write_text(script)
    hocket(controller, "submit", "-n", name, "--owner", "ann", *options, "--", sys.executable, f"{name}.py")


@pytest.mark.slow
def test_a_url_is_told_of_a_failed_attempt_and_of_the_end(tmp_path: Path, receiver: Receiver) -> None:
    with LiveController(tmp_path, "--gpus", "1") as controller:
        controller.begin()
        submit(controller, "twice", TWICE, "--notify", receiver.url, "--retries", "1", "--backoff", "0")
        awaited(lambda: len(receiver.got) == 2, f"both came: {receiver.got}")
        retry, end = receiver.got
        known = {
            key: retry[key] for key in ("job", "name", "owner", "event", "state", "reason", "exit_code", "attempt")
        }
        assert known == {
            "job": "twice", "name": "twice", "owner": "ann", "event": "retry", "state": "waiting",
            "reason": "exit code 3", "exit_code": 3, "attempt": 1,
        }  # fmt: skip
        assert retry["text"] == "job 'twice' of ann: failed and is tried again (exit code 3)"
        assert (end["event"], end["state"], end["exit_code"], end["attempt"]) == ("end", "finished", 0, 2)
        assert end["metrics"] == {"acc": 0.5}
        assert end["submitted_s"] <= retry["started_s"] <= retry["at_s"] <= end["at_s"] == end["ended_s"]
        assert retry["id"] != end["id"]
        wrong = hocket(controller, "submit", "--notify", "ftp://example.org/x", "--", "true", code=2)
        assert "notify must be an http or https URL with a host and no user, not 'ftp://example.org/x'" in wrong
        controller.down(grace_s=0.0)


@pytest.mark.slow
def test_a_command_is_told_of_a_pause_by_the_policy_and_not_of_one_by_the_user(tmp_path: Path) -> None:
    note = tmp_path / "note.sh"
    note.write_text(
        'cat >> bodies\necho "$HOCKET_JOB $HOCKET_EVENT $HOCKET_STATE $HOCKET_OWNER: $HOCKET_REASON" >> told\n'
    )
    told = tmp_path / "told"
    las = ("--policy", "las", "--param", "levels_gpu_s=[1]")
    with LiveController(tmp_path, "--gpus", "1", *las, "--notify", f"sh {note}") as controller:
        controller.begin()
        submit(controller, "first", WAITS, "--preempt", "always")
        awaited(lambda: controller.jobs()["first"]["ran_s"] > 2, "it is on the lower level")
        hocket(controller, "pause", "first")
        awaited(lambda: controller.jobs()["first"]["state"] == "held", "its user paused it")
        hocket(controller, "resume", "first")
        awaited(lambda: controller.jobs()["first"]["state"] == "running", "it runs again")
        submit(controller, "second", WAITS, "--preempt", "always")
        awaited(told.exists, "it is told")
        hocket(controller, "stop", "second")
        awaited(lambda: len(told.read_text().splitlines()) == 2, "the end is told")
        paused, stopped = told.read_text().splitlines()
        assert paused.startswith("first pause paused ann: paused: "), paused
        assert "second" in paused
        assert stopped.startswith("second end stopped ann: "), stopped
        bodies = [json.loads(body) for body in (tmp_path / "bodies").read_text().replace("}{", "}\n{").splitlines()]
        assert [body["event"] for body in bodies] == ["pause", "end"]
        awaited(lambda: controller.jobs()["first"]["state"] == "running", "the first goes on")
        controller.down(grace_s=5.0)
        assert len(told.read_text().splitlines()) == 2  # That the controller goes down is no decision of the policy.
        controller.begin()
        awaited(lambda: controller.jobs()["first"]["state"] == "running", "it runs again")
        (tmp_path / "go").touch()
        awaited(lambda: controller.jobs()["first"]["state"] == "finished", "it ends")
        awaited(lambda: len(told.read_text().splitlines()) == 3, "that is told, and nothing else")
        assert told.read_text().splitlines()[2].startswith("first end finished ann")
        controller.down(grace_s=0.0)


@pytest.mark.slow
def test_what_was_not_delivered_when_the_controller_was_killed_is_delivered_later(
    tmp_path: Path, receiver: Receiver
) -> None:
    told = tmp_path / "told"
    with LiveController(
        tmp_path, "--gpus", "1", "--notify", f"sh -c 'echo $HOCKET_NOTIFICATION >> {told}'"
    ) as controller:
        controller.begin()
        receiver.closed = True
        submit(controller, "short", "print('epoch 1 acc=0.9')", "--notify", receiver.url)
        awaited(lambda: bool(receiver.refused) and told.exists(), "the receiver has refused it, the command ran")
        # Once the file says that the command ran, that is not repeated.
        awaited(lambda: str(told) in (controller.home / "notified.json").read_text(), "that is written down")
        controller.kill()
        assert "/secret-path" not in controller.log.read_text()
        receiver.closed = False
        controller.begin()
        awaited(lambda: bool(receiver.got), "it comes after the kill")
        first = receiver.refused[0]
        assert receiver.got[0] == first
        assert (first["event"], first["state"], first["metrics"]) == ("end", "finished", {"acc": 0.9})
        assert told.read_text() == f"{first['id']}\n"

        controller.kill()  # Nothing is left to be told: a third controller tells nothing.
        controller.begin()
        submit(controller, "last", "", "--notify", receiver.url)
        awaited(lambda: any(body["job"] == "last" for body in receiver.got), "another job is told of")
        assert [body["job"] for body in receiver.got] == ["short", "last"]
        controller.down(grace_s=0.0)


@pytest.mark.slow
def test_commands_are_refused_where_other_machines_may_submit_unless_they_are_allowed(tmp_path: Path) -> None:
    with LiveController(tmp_path, "--gpus", "1", "--listen", "0.0.0.0", "--insecure-listen") as controller:
        controller.begin()
        said = hocket(controller, "submit", "-n", "mine", "--notify", "touch /x", "--", "true", code=2)
        assert "notify must be a URL, not the command 'touch /x'" in said
        assert "hocket up --notify-commands" in said
        controller.down(grace_s=0.0)
    with LiveController(tmp_path, "--listen", "0.0.0.0", "--insecure-listen", "--notify-commands") as controller:
        controller.begin()
        submit(controller, "mine", "", "--notify", "touch told")
        awaited((tmp_path / "told").exists, "the command ran in the job's folder")
        controller.down(grace_s=0.0)
