"""What another policy would have done with the journal's past: one run of a token at a time, each in its process."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from threading import Lock, Thread, Timer
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from hocket.service.tokens import Token

# By name: what makes reports is not for the service to import, and runs elsewhere anyway.
_COMMAND = (sys.executable, "-P", "-m", "hocket.reports.whatif_worker")
_LINE_LIMIT = 64 << 20  # bytes of a result
AT_ONCE = 2  # runs of all tokens together: each takes a core
MOST_KEPT = 20  # runs whose result is kept: of more tokens, the oldest go
LIMIT_S = 900.0  # that a run may take
LIMIT_MIB = 4096  # and its memory


class WhatIfSpec(Struct, frozen=True, forbid_unknown_fields=True):
    """What to run: a policy with its parameters, over how much of the past."""

    policy: Annotated[str, Meta(min_length=1, max_length=200, description="its name")]
    params: Annotated[dict[str, Any], Meta(max_length=100, description="its parameters; texts are read as such")] = {}
    days: Annotated[float, Meta(gt=0, le=3650, description="how far back; null for all that is kept")] | None = None


class Busy(RuntimeError):
    """Another run is under way, or too many."""


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
    """The last run of each token. For any thread."""

    def __init__(
        self, store: str, archives: str = "", command: Sequence[str] = _COMMAND, limit_s: float = LIMIT_S
    ) -> None:
        """`archives` is the folder of cycles that were removed from the journal, if there is one."""
        self._store, self._archives, self._command, self._limit_s = store, archives, command, limit_s
        self._lock = Lock()
        self._runs: dict[str, WhatIfRun] = {}  # by token, the last that was begun last
        self._processes: dict[str, subprocess.Popen[bytes]] = {}  # of runs that are under way

    def run_of(self, token: Token) -> WhatIfRun | None:
        """The last one of a token; of one that has none, the last of all."""
        with self._lock:
            return self._runs.get(token.name) or next(reversed(self._runs.values()), None)

    def begin(self, spec: WhatIfSpec, now_s: float, token: Token) -> WhatIfRun:
        """Begin a run, in the place of the token's last one. Raises Busy, OSError."""
        with self._lock:
            under_way = [run for run in self._runs.values() if run.state == "running"]
            for run in under_way:
                if run.by == token.name:
                    raise Busy(f"a run under {run.policy} is under way, of token '{run.by}'; cancel it first")
            if len(under_way) >= AT_ONCE:
                by = " and ".join(f"'{run.by}'" for run in under_way)
                raise Busy(f"{len(under_way)} runs are under way, of tokens {by}, and no more are run at once")
            since_s = None if spec.days is None else now_s - spec.days * 86_400.0
            asked = {
                "store": self._store, "archives": self._archives, "policy": spec.policy, "params": spec.params,
                "since_s": since_s, "limit_mib": LIMIT_MIB,
            }  # fmt: skip
            process = subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            assert process.stdin is not None
            with suppress(BrokenPipeError):  # Then it has ended, and that is told.
                process.stdin.write(msgspec.json.encode(asked) + b"\n")
                process.stdin.close()
            run = WhatIfRun("running", spec.policy, spec.params, spec.days, token.name)
            self._runs.pop(token.name, None)
            self._runs[token.name] = run
            self._processes[token.name] = process
            over = [name for name, other in self._runs.items() if other.state != "running"]
            for name in over[: max(0, len(self._runs) - MOST_KEPT)]:
                del self._runs[name]
            Thread(target=self._follow, args=(run, process), name="whatif", daemon=True).start()
            return run

    def cancel(self, run: WhatIfRun) -> None:
        """End a run, if it is under way."""
        with self._lock:
            self._end(run, "cancelled", "")

    def close(self) -> None:
        """End all."""
        with self._lock:
            for run in self._runs.values():
                self._end(run, "cancelled", "")

    def _end(self, run: WhatIfRun, state: str, error: str) -> None:
        if run.state == "running":
            run.state, run.error = state, error
            self._processes[run.by].kill()

    def _follow(self, run: WhatIfRun, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        timer = Timer(self._limit_s, self._stop_late, [run])
        timer.daemon = True
        timer.start()
        with process.stdout as lines:
            while line := lines.readline(_LINE_LIMIT):
                try:
                    told = msgspec.json.decode(line, type=dict[str, msgspec.Raw])
                except msgspec.DecodeError:  # It is cut off.
                    with self._lock:
                        self._end(
                            run, "failed", f"its result is longer than {_LINE_LIMIT >> 20} MiB: choose fewer days"
                        )
                    break
                with self._lock:
                    self._take(run, told)
        code = process.wait()
        timer.cancel()
        with self._lock:
            if run.state == "running":
                run.state, run.error = "failed", f"its process ended with code {code}"
            if self._processes.get(run.by) is process:
                del self._processes[run.by]

    def _stop_late(self, run: WhatIfRun) -> None:
        with self._lock:
            self._end(run, "failed", f"it took longer than {self._limit_s:g} s: choose fewer days, or another policy")

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
