"""Looks at several jobs as the controller will, before the first of them is sent: all are accepted, or none.

The names must be free, those to wait for must be there, and each must fit the cluster. What changes in between may
still be refused; the submission is taken back then.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf
from typing import TYPE_CHECKING, Any

from hocket.cli.dependencies import has_patterns, names_of, with_names

if TYPE_CHECKING:
    from hocket.cli.client import Client


def ready_to_send(client: Client, specs: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The specs as they will be sent. Raises InputError if one of several would be refused; one alone may just be."""
    is_one = len(specs) == 1 and "array" not in specs[0]
    if is_one and not has_patterns(specs):
        return list(specs)
    from hocket.cli.job_rows import rows
    from hocket.cli.refusal import InputError

    there = rows(client, everything=True)
    found = with_names(specs, [row.id for row in there if not row.is_over])
    problem = name_problem(found, {row.id: row.state for row in there})
    problem = problem or size_problem(found, client.get("/v1/nodes").json()["nodes"])
    if problem and not is_one:
        raise InputError(f"{problem}; nothing was submitted")
    return found


def name_problem(specs: Sequence[dict[str, Any]], states: Mapping[str, str]) -> str:
    """What is wrong with their names, or with those they wait for; empty if nothing is."""
    from hocket.cli.job_rows import unknown

    own: set[str] = set()
    for spec in specs:
        for first in spec.get("after", ()):
            if first not in states and first not in own:
                return f"job '{spec.get('id', '(unnamed)')}': after: {unknown(first, [*states, *own])}"
        for name in names_of(spec):
            if name in states or name in own:
                return f"job '{name}': name must be new, and there is one ({states.get(name, 'submitted with it')})"
            own.add(name)
    return ""


def size_problem(specs: Sequence[dict[str, Any]], nodes: Sequence[dict[str, Any]]) -> str:
    """Which of them no partition of the cluster could hold, even an empty one; empty if there is none."""
    import msgspec

    from hocket.control.admission import refusal
    from hocket.model.capacity import Capacity
    from hocket.model.resources import Node
    from hocket.service.job_spec import JobSpec, jobs_of

    # The list of nodes does not say how much memory their GPUs have: that is left to the controller.
    whole = Capacity.of(
        Node(n["id"], len(n["gpus"]), n.get("gpu_kind", ""), inf, n["cores"], n["mem_mib"]) for n in nodes
    )
    for spec in specs:
        read = msgspec.convert(spec, JobSpec)
        if reason := refusal((), next(iter(jobs_of(read, read.id or "(unnamed)"))), whole):
            return reason
    return ""
