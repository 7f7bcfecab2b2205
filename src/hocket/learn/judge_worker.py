"""The process in which a controller has a learned policy judged: what it and MLF-H would have made of the same past.

It reads one request from its standard input and writes one line of JSON: what was found, or an error. The past is run
again as `hocket whatif` does it, under both. The goals are those of MLFS (equation 1) that such a run measures:
completion times, deadlines and required accuracies, weighted by the paper's β; what is sent and mean accuracies are
left out. Only jobs count that ended in the record too, for of others the work is not known.
"""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from hocket.control.journal import JournalError
from hocket.learn.reward import BETAS
from hocket.model.plan import Verdict
from hocket.policies.mlfs.weights_file import SHIPPED, WeightsError, read_weights
from hocket.policies.registry import PolicyError, UnknownPolicy, bind
from hocket.reports.account import Account, JobRecord
from hocket.reports.memory_errors import is_out_of_memory
from hocket.reports.recorded_past import recorded_past
from hocket.reports.simulation import rare_garbage_collection
from hocket.reports.whatif import run_again


class JudgeRequest(Struct, frozen=True):
    """Which policies are to be judged, by which past."""

    store: str
    usual: str
    learned: str
    usual_params: dict[str, Any] = {}
    learned_params: dict[str, Any] = {}
    since_s: float | None = None  # from when on; None: from the first cycle that is kept
    archives: str = ""  # folder of cycles that were removed from the journal; empty: there is none
    least_jobs: int = 1  # with fewer, nothing is run
    limit_mib: int = 0  # of memory; 0: any


def judged(request: JudgeRequest) -> dict[str, Any]:
    """How many jobs there are to judge by, and both rewards. Raises JournalError, PolicyError, ValueError."""
    path = request.learned_params.get("weights_file")
    if request.learned in SHIPPED:  # With unsound weights it does as MLF-H, and would be as good as that.
        read_weights(Path(path) if path else SHIPPED[request.learned], request.learned)
    usual, learned = bind(request.usual, request.usual_params), bind(request.learned, request.learned_params)
    past = recorded_past(request.store, request.archives, request.since_s)
    known = {r.job.id for r in past.recorded.jobs if _is_done(r)}
    if len(known) < max(request.least_jobs, 1):
        return {"jobs": len(known), "undone": 0, "usual": 0.0, "learned": 0.0}
    rebuilt = past.rebuilt()
    alone_s = {s.job.id: s.truth.run_s for s in rebuilt.workload.submissions}
    with rare_garbage_collection():
        first, second = (run_again(rebuilt, p, past.header.seed).account for p in (usual, learned))
    ended = {r.job.id for r in first.jobs if _is_done(r) and r.job.id in known}
    ended_too = {r.job.id for r in second.jobs if _is_done(r) and r.job.id in ended}
    return {
        "jobs": len(ended),
        "undone": len(ended) - len(ended_too),
        "usual": reward(first, ended_too, alone_s),
        "learned": reward(second, ended_too, alone_s),
    }


def _is_done(record: JobRecord) -> bool:
    return record.jct_s is not None and record.verdict != str(Verdict.FAILED)


def reward(account: Account, jobs: set[str], alone_s: Mapping[str, float]) -> float:
    """Equation 7 over these jobs; goals that none of them has count nothing."""
    of = [r for r in account.jobs if r.job.id in jobs]
    jct_s = sum(r.jct_s or 0.0 for r in of)
    found = BETAS[0] * sum(alone_s[r.job.id] for r in of) / jct_s if jct_s else 0.0
    deadlines = [r.deadline_met for r in of if r.deadline_met is not None]
    accuracies = [r.goal_met for r in of if r.goal_met is not None]
    for beta, met in ((BETAS[1], deadlines), (BETAS[3], accuracies)):
        found += beta * sum(met) / len(met) if met else 0.0
    return found


def main() -> None:
    """Serve one request."""
    with suppress(OSError):
        os.nice(10)  # Live jobs and their controller go first.
    with suppress(BrokenPipeError, KeyboardInterrupt):
        request = msgspec.json.decode(sys.stdin.buffer.readline(), type=JudgeRequest)
        if request.limit_mib:
            resource.setrlimit(resource.RLIMIT_AS, (request.limit_mib << 20, request.limit_mib << 20))
        found: dict[str, Any]
        try:
            found = {"result": judged(request)}
        except Exception as error:  # A policy may raise anything.
            if is_out_of_memory(error):
                found = {"error": f"it needs more than {request.limit_mib:,} MiB of memory: judge fewer days"}
            elif isinstance(error, JournalError | PolicyError | UnknownPolicy | WeightsError | ValueError):
                found = {"error": str(error)}
            else:
                found = {"error": f"a policy failed: {type(error).__name__}: {error}"}
        sys.stdout.buffer.write(msgspec.json.encode(found) + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
