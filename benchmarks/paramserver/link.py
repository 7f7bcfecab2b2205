"""PULL and PUSH between hosts whose links are limited, as a share of what the limit allows. Needs root."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

from benchmarks.machine import ROOT, table
from hocket.testing.hosts import network
from hocket.testing.hosts.launcher import Hosts

_LINKS = ((2, 1000.0), (2, 200.0), (4, 200.0))  # hosts, Mbit/s
_GOAL = 0.8
_PORT = 7100


def measured(quick: bool) -> dict[str, Any]:
    """For some numbers of hosts and limits."""
    if why := network.why_no_namespaces():
        return {"not_measured": why}
    size, iterations = (20_000_000, 3) if quick else (100_000_000, 8)
    return {"bytes": size, "links": [_measured(hosts, mbit, size, iterations) for hosts, mbit in _LINKS]}


def text(found: dict[str, Any]) -> list[str]:
    """As a table."""
    title = f"PULL AND PUSH between hosts with limited links (goal: {_GOAL:.0%} of the limit)"
    if "not_measured" in found:
        return [title, f"  not measured: {found['not_measured']}"]
    rows = [
        (
            f"{of['hosts']} hosts, {of['mbit']:g} Mbit/s", f"{of['pull_ms']:.0f}", f"{of['push_ms']:.0f}",
            f"{of['limit_ms']:.0f}", f"{of['share']:.0%}",
            f"{of['cpu_ms_per_mb']:.1f}",
        )
        for of in found["links"]
    ]  # fmt: skip
    titles = (
        f"{found['bytes'] / 1e6:g} MB of model",
        "PULL ms",
        "PUSH ms",
        "each at the limit",
        "both, of the limit",
        "CPU ms a MB",
    )
    return [title, *table(titles, rows)]


def _measured(count: int, mbit: float, size: int, iterations: int) -> dict[str, Any]:
    code = f"from benchmarks.paramserver.pull_push import tell; tell({size}, {iterations}, {count})"
    with Hosts(count, mbit=mbit, cores=2.0, mem_mib=4096.0, gpus=0) as hosts:
        env = {**os.environ, "NNODES": str(count), "MASTER_ADDR": hosts[0].address, "MASTER_PORT": str(_PORT)}
        children = [
            hosts.start(
                host, [sys.executable, "-c", code], cwd=ROOT, env={**env, "NODE_RANK": str(rank)},
                stdout=subprocess.PIPE, text=True,
            )
            for rank, host in enumerate(hosts)
        ]  # fmt: skip
        said = [child.communicate()[0] for child in children]
        if any(child.returncode for child in children):
            raise SystemExit("benchmarks: a host has failed")
    # Each host receives the others' shards in PULL, and sends as much in PUSH.
    limit_ms = size * (count - 1) / count * 8 / mbit / 1e3
    took: dict[str, float] = json.loads(said[0])
    share = 2 * limit_ms / (took["pull_ms"] + took["push_ms"])
    return {"hosts": count, "mbit": mbit, "limit_ms": limit_ms, "share": share, **took}
