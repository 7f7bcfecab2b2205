"""The picture of `hocket top`: the policy, which job each device works for, what runs, what waits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from hocket.cli.live.job_rows import ListedJob
from hocket.cli.live.job_table import job_table, one_line
from hocket.cli.live.node_notes import node_notes

_COLOURS = (
    "green",
    "cyan",
    "magenta",
    "blue",
    "yellow",
    "bright_green",
    "bright_cyan",
    "bright_magenta",
    "bright_blue",
)
_MOST_NODES = 40
_MOST_JOBS = 100  # where there is no screen; `hocket jobs` lists all
_CELL = 10  # columns of a device


class Overview(Struct, frozen=True):
    """What the controller says at one moment."""

    status: dict[str, Any]
    nodes: list[dict[str, Any]]
    jobs: list[ListedJob]  # those that matter most first


def pictured(now: Overview, width: int, height: int | None) -> Any:
    """The whole picture, cut to the height of the screen if there is one."""
    from rich.console import Group

    colours = _coloured(now)
    parts: list[Any] = [_headline(now), *_devices(now, colours, width)]
    at_work = [row for row in now.jobs if row.state != "waiting"]
    queue = [row for row in now.jobs if row.state == "waiting"]
    room = _MOST_JOBS if height is None else max(height - _lines(parts) - 6, 2)
    shown = at_work[: room if not queue else max(room * 2 // 3, room - len(queue), 1)]
    parts += _section("jobs", shown, len(at_work) - len(shown))
    head = queue[: max(room - len(shown) - 2, 1)]
    parts += _section("queue", head, len(queue) - len(head))
    return Group(*parts)


def _headline(now: Overview) -> Any:
    from rich.text import Text

    from hocket.cli.terminal.console import clock

    status = now.status
    counts: dict[str, Any] = status.get("jobs") or {}
    line = Text(f"{status.get('policy', '?')}", style="bold")
    line += Text(f" decides · {clock(status.get('now_s'))} · {status.get('decisions', 0):,} decisions", style="dim")
    for state, count in counts.items():
        line += Text(f" · {count:,} {state}")
    if status.get("trouble"):
        line += Text(f"\ntrouble: {one_line(str(status['trouble']))}", style="bold red")
    return line


def _devices(now: Overview, colours: dict[str, str], width: int) -> list[Any]:
    """A line for each node, or several where it has many devices: a cell each, coloured by the job that has it."""
    from rich.text import Text

    names = [one_line(str(node.get("id", "?"))) for node in now.nodes[:_MOST_NODES]]
    margin = max([len(name) for name in names], default=0) + 2
    in_line = max((width - margin) // (_CELL + 1), 1)
    lines: list[Any] = []
    for name, node in zip(names, now.nodes, strict=False):
        gpus = node.get("gpus") or []
        text = Text(f"{name:{margin}}", style="" if node.get("up", True) else "red")
        if not node.get("up", True):
            text += Text("away", style="red")
        elif not gpus:
            text += Text("no GPUs", style="dim")
        for n, gpu in enumerate(gpus if node.get("up", True) else []):
            if n and n % in_line == 0:
                text += Text("\n" + " " * margin)
            text += _cell(gpu, colours) + Text(" ")
        if notes := one_line(", ".join(node_notes(node))):
            text += Text(f"\n{' ' * margin}{notes}", style="yellow")
        lines.append(text)
    if len(now.nodes) > _MOST_NODES:
        lines.append(Text(f"… and {len(now.nodes) - _MOST_NODES:,} more nodes", style="dim"))
    return lines


def _cell(gpu: dict[str, Any], colours: dict[str, str]) -> Any:
    from rich.text import Text

    job = str(gpu.get("job") or "")
    if not job:
        return Text(f"{gpu.get('index', '')} ·".ljust(_CELL), style="dim")
    label = f"{gpu.get('index', '')} {one_line(job)}"
    label = label if len(label) <= _CELL else f"{label[: _CELL - 1]}…"
    return Text(label.ljust(_CELL), style=f"black on {colours.get(job, 'white')}")


def _coloured(now: Overview) -> dict[str, str]:
    """A colour for each job with a device; the same as long as it lives, whichever jobs come and go."""
    from zlib import crc32

    return {row.id: _COLOURS[crc32(row.id.encode()) % len(_COLOURS)] for row in now.jobs if row.gpus}


def _section(title: str, shown: Sequence[ListedJob], more: int) -> list[Any]:
    from rich.text import Text

    if not shown:
        return []
    lines: list[Any] = [Text(f"\n{title}", style="bold"), job_table(shown)]
    return [*lines, Text(f"… and {more:,} more (`hocket jobs` lists all)", style="dim")] if more > 0 else lines


def _lines(parts: Sequence[Any]) -> int:
    return sum(str(part).count("\n") + 1 for part in parts)
