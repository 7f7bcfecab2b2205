"""What is said of a node beside whether it is up: that it is drained, and for which owners it is reserved."""

from __future__ import annotations

from typing import Any


def node_notes(node: dict[str, Any]) -> list[str]:
    """What is shown beside a node's state, from its row in the API."""
    drained = f"drained{' (being cleared)' if node.get('cleared') else ''}"
    return [*([drained] if node.get("drained") else []), *map(reserved_text, node.get("reservations", ()))]


def reserved_text(reservation: dict[str, Any]) -> str:
    """`reserved for alice, bob from 12:00:00 until 2026-11-20 18:00:00`."""
    from hocket.cli.terminal.console import clock

    said = f"reserved for {', '.join(reservation['owners'])}"
    if not reservation["holds"]:
        said += f" from {clock(reservation['from_s'])}"
    return said + (f" until {clock(reservation['until_s'])}" if reservation["until_s"] is not None else "")
