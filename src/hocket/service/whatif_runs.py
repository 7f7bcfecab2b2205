"""What another policy would have done with the journal's past: one run at a time, in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from threading import Lock, Thread
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from hocket.service.tokens import Token

# By name: what makes reports is not for the service to import, and runs elsewhere anyway.
_COMMAND = (sys.executable, "-P", "-m", "hocket.reports.whatif_worker")
_LINE_LIMIT = 256 << 20  # bytes of a result


class WhatIfSpec(Struct, frozen=True, forbid_unknown_fields=True):
    """What is asked."""

    policy: Annotated[str, Meta(min_length=1, max_length=200, description="its name")]
    params: Annotated[dict[str, Any], Meta(max_length=100, description="its parameters; texts are read as such")] = {}
    days: Annotated[float, Meta(gt=0, le=3650, description="how far back; null for all that is kept")] | None = None


class Busy(RuntimeError):
    """Another run is under way."""


class WhatIfRun(Struct):
    """How far a run is, and what came of it."""

    state: str  # running, done, failed, cancelled
    policy: str
    params: dict[str, Any]
    days: float | None
    by: str  # the name of the token that asked
    done: int = 0  # steps
    of: int = 0
    what: str = ""  # it does
    error: str = ""
    result: msgspec.Raw | None = None


class WhatIfRuns:
    """For any thread."""

    def __init__(self, store: str, command: Sequence[str] = _COMMAND) -> None:
        self._store, self._command = store, command
        self._lock = Lock()
        self._run: WhatIfRun | None = None
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def run(self) -> WhatIfRun | None:
        """The last one."""
        return self._run

    def begin(self, spec: WhatIfSpec, now_s: float, token: Token) -> WhatIfRun:
        """Begin a run, in the place of the last one. Raises Busy, OSError."""
        with self._lock:
            if self._run is not None and self._run.state == "running":
                raise Busy(f"a run under {self._run.policy} is under way, of token '{self._run.by}'; cancel it first")
            since_s = None if spec.days is None else now_s - spec.days * 86_400.0
            asked = {"store": self._store, "policy": spec.policy, "params": spec.params, "since_s": since_s}
            process = subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            assert process.stdin is not None
            with suppress(BrokenPipeError):  # Then it has ended, and that is told.
                process.stdin.write(msgspec.json.encode(asked) + b"\n")
                process.stdin.close()
            run = self._run = WhatIfRun("running", spec.policy, spec.params, spec.days, token.name)
            self._process = process
            Thread(target=self._follow, args=(run, process), name="whatif", daemon=True).start()
            return run

    def cancel(self) -> None:
        """End the run, if one is under way."""
        with self._lock:
            if self._run is not None and self._run.state == "running":
                self._run.state = "cancelled"
            if self._process is not None:
                self._process.kill()

    close = cancel

    def _follow(self, run: WhatIfRun, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        with process.stdout as lines:
            while line := lines.readline(_LINE_LIMIT):
                told = msgspec.json.decode(line, type=dict[str, msgspec.Raw])
                with self._lock:
                    self._take(run, told)
        code = process.wait()
        with self._lock:
            if run.state == "running":
                run.state, run.error = "failed", f"its process ended with code {code}"

    def _take(self, run: WhatIfRun, told: dict[str, msgspec.Raw]) -> None:
        if run.state != "running":
            return
        if "result" in told:
            run.state, run.done, run.result = "done", run.of, told["result"]
        elif "error" in told:
            run.state, run.error = "failed", msgspec.json.decode(told["error"], type=str)
        else:
            run.done, run.of = (msgspec.json.decode(told[name], type=int) for name in ("done", "of"))
            run.what = msgspec.json.decode(told["what"], type=str)
