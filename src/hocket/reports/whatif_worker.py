"""The process in which a controller's page asks what another policy would have done.

It reads one request from its standard input and writes lines of JSON to its standard output: how far it is, and at last
the result or an error. So neither a policy nor a long simulation holds up a controller, and to cancel it is to kill it.
"""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import msgspec
from msgspec import Struct

from hocket.control.journal import JournalError
from hocket.model.resources import Node
from hocket.policies.registry import PolicyError, UnknownPolicy, bind, find
from hocket.reports.account import Account
from hocket.reports.memory_errors import is_out_of_memory
from hocket.reports.recorded_past import Past, recorded_past
from hocket.reports.simulation import rare_garbage_collection
from hocket.reports.summary import Summary, summarise
from hocket.reports.whatif import Rebuilt, band, names, run_again

MOST_SPANS = 20_000  # of a schedule that is drawn: of more, the last ones
MOST_JOBS = 50  # in the table of differences
STEPS = 3  # reading, the recorded policy again, the other policy


class WhatIfRequest(Struct, frozen=True):
    """What is asked."""

    store: str
    policy: str
    params: dict[str, Any] = {}
    since_s: float | None = None  # from when on; None: from the first cycle that is kept
    archives: str = ""  # folder of cycles that were removed from the journal; empty: there is none
    limit_mib: int = 0  # of memory; 0: any


Say = Callable[[int, str], None]  # how many steps are done, and what comes next


def what_if(request: WhatIfRequest, say: Say) -> dict[str, Any]:
    """Both schedules and their differences. Raises JournalError, PolicyError, UnknownPolicy and ValueError."""
    other = find(request.policy).bound(request.params)
    say(0, "reads the journal")
    past = recorded_past(request.store, request.archives, request.since_s)
    header, recorded, rebuilt = past.header, past.recorded, past.rebuilt()
    zero_s = recorded.began_s if not header.nodes else 0.0
    with rare_garbage_collection():
        say(1, f"runs {rebuilt.ruled(header.policy)} again")
        same = run_again(rebuilt, bind(header.policy, header.params), header.seed, as_set=True)
        say(2, f"runs {request.policy}")
        changed = run_again(rebuilt, other, header.seed)
    labels = (f"{rebuilt.ruled(header.policy)}, recorded", f"{rebuilt.ruled(header.policy)}, run again")
    new = f"{request.policy}, what if"
    return {
        "policy": request.policy,
        "params": other.settings,
        "recorded_policy": rebuilt.ruled(header.policy),
        "rows": [
            _row(labels[0], summarise(recorded)),
            _row(labels[1], same.summary),
            _row(new, changed.summary),
        ],
        "band": band(recorded, same.account),
        "in_both": _in_both(recorded, changed.account),
        "notes": [*_beginning(past), *_notes(rebuilt, request.policy, changed.extrapolated)],
        "nodes": [_node(node) for node in rebuilt.workload.nodes],
        "range_s": [
            recorded.began_s,
            max(recorded.until_s, changed.account.until_s + zero_s),
        ],
        "schedules": [
            {"label": labels[0], "held": _held(recorded, 0.0)},
            {"label": new, "held": _held(changed.account, zero_s)},
        ],
        "jobs": _differences(recorded, changed.account),
    }


def _node(node: Node) -> dict[str, Any]:
    gpus = [{"index": index} for index in range(node.gpus)]
    return {"id": node.id, "up": True, "drained": False, "reservations": [], "gpus": gpus}


def _row(label: str, found: Summary) -> dict[str, Any]:
    return {
        "label": label,
        "jobs": found.jobs,
        "finished": found.finished,
        "jct_mean_s": found.jct_mean_s,
        "jct_p99_s": found.jct_p99_s,
        "wait_mean_s": found.wait_mean_s,
        "utilisation": found.utilisation.get("gpus"),
        "preemptions": found.preemptions,
        "deadlines_met": found.deadlines_met,
        "accuracies_met": found.accuracies_met,
    }


def _beginning(past: Past) -> list[str]:
    """Whether less is kept than was asked for."""
    if not past.begins_late:
        return []
    return [f"begins with cycle {past.begins_late:,}: earlier ones are kept neither in the journal nor in an archive"]


def _notes(rebuilt: Rebuilt, policy: str, extrapolated: dict[str, Any]) -> list[str]:
    found = []
    if extrapolated:
        found.append(f"{policy} rests on extrapolation for {names(extrapolated)}")
    if rebuilt.shared:
        found.append(
            f"worked beside others, or over a network; alone by the simulator's model: {names(rebuilt.shared)}"
        )
    if rebuilt.unfinished:
        found.append(f"not finished when recorded, or missed: {names(rebuilt.unfinished)}")
    return found


def _held(found: Account, zero_s: float) -> list[dict[str, Any]]:
    """Which job held which GPUs from when to when; what is parted by a boundary only is one span."""
    spans: list[dict[str, Any]] = []
    open_: dict[tuple[int, tuple[str, ...]], dict[str, Any]] = {}
    for span in sorted(found.spans, key=lambda span: span.since_s):
        gpus = tuple(f"{part.node}:{gpu}" for part in span.partition.slices for gpu in part.gpus)
        if not gpus:
            continue
        from_s, until_s = span.since_s + zero_s, span.until_s + zero_s
        before = open_.get((span.job, gpus))
        if before is not None and abs(before["until_s"] - from_s) < 1e-6:
            before["until_s"] = until_s
            continue
        job = found.jobs[span.job].job
        spans.append(
            {
                "job": job.id,
                "owner": job.owner,
                "attempt": len(spans) + 1,
                "size": len(gpus),
                "gpus": list(gpus),
                "from_s": from_s,
                "until_s": until_s,
                "how": "",
            }
        )
        open_[span.job, gpus] = spans[-1]
    return spans[-MOST_SPANS:]


def _in_both(recorded: Account, changed: Account) -> dict[str, Any]:
    """Mean completion times over the jobs that ended in both runs: of jobs that did not, one run has no time."""
    then = {r.job.id for r in recorded.jobs if r.jct_s is not None}
    compared = band(recorded, changed)
    return {
        "jobs": sum(1 for r in changed.jobs if r.jct_s is not None and r.job.id in then),
        "recorded_s": compared.jct_mean_recorded_s,
        "whatif_s": compared.jct_mean_again_s,
    }


def _differences(recorded: Account, changed: Account) -> list[dict[str, Any]]:
    """The jobs whose completion time differs most."""
    then = {r.job.id: r.jct_s for r in recorded.jobs}
    found: list[dict[str, Any]] = [
        {"id": r.job.id, "owner": r.job.owner, "recorded_s": was_s, "whatif_s": r.jct_s}
        for r in changed.jobs
        if r.jct_s is not None and (was_s := then.get(r.job.id)) is not None
    ]
    found.sort(key=lambda each: -abs(each["whatif_s"] - each["recorded_s"]))
    return found[:MOST_JOBS]


def main() -> None:
    """Serve one request."""
    with suppress(OSError):
        os.nice(10)  # Live jobs and their controller go first.

    def write(told: dict[str, Any]) -> None:
        sys.stdout.buffer.write(msgspec.json.encode(told) + b"\n")
        sys.stdout.buffer.flush()

    with suppress(BrokenPipeError, KeyboardInterrupt):
        request = msgspec.json.decode(sys.stdin.buffer.readline(), type=WhatIfRequest)
        if request.limit_mib:
            resource.setrlimit(resource.RLIMIT_AS, (request.limit_mib << 20, request.limit_mib << 20))
        try:
            write({"result": what_if(request, lambda done, what: write({"done": done, "of": STEPS, "what": what}))})
        except Exception as error:  # A policy may raise anything.
            if is_out_of_memory(error):
                write({"error": f"it needs more than {request.limit_mib:,} MiB of memory: choose fewer days"})
            elif isinstance(error, JournalError | PolicyError | UnknownPolicy | ValueError):
                write({"error": str(error)})
            else:
                write({"error": f"policy '{request.policy}' broke: {type(error).__name__}: {error}"})


if __name__ == "__main__":
    main()
