"""Owners as the controller lists them, and as tables show them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from hocket.cli.live.job_table import one_line

if TYPE_CHECKING:
    from hocket.cli.live.client import Client

_GIB = 1024.0  # MiB


class _Uses(Struct, frozen=True):
    gpus: int = 0
    cores: float = 0.0
    mem_mib: float = 0.0
    jobs: int = 0


class ListedOwner(Struct, frozen=True):
    """A line about an owner (`OwnerRow` in docs/api.md)."""

    id: str
    weight: float = 1.0
    max_gpus: int = 0
    max_cores: float = 0.0
    max_mem_mib: float = 0.0
    max_jobs: int = 0
    uses: _Uses = _Uses()
    waiting: int = 0


class _Rows(Struct, frozen=True):
    owners: list[ListedOwner]


def owner_rows(client: Client) -> list[ListedOwner]:
    """The owners with live jobs, or with a weight or quotas of their own."""
    import msgspec

    return msgspec.json.decode(client.get("/v1/owners").body, type=_Rows).owners


def owner_path(name: str) -> str:
    """The address of an owner, whatever characters its name has. Raises InputError if those are none."""
    from urllib.parse import quote

    from hocket.cli.terminal.errors import InputError

    try:
        return f"/v1/owners/{quote(name, safe='')}"
    except UnicodeEncodeError:
        raise InputError(f"an owner's name must be text in UTF-8, not {name!r}") from None


def owner_table(found: Iterable[ListedOwner]) -> Any:
    """A table in which `2 of 8` is what an owner uses, and its limit if it has one."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("owner", overflow="fold")
    for title in ("weight", "gpus", "cores", "memory", "jobs", "waiting"):
        table.add_column(title, justify="right", no_wrap=True)
    for row in found:
        uses = row.uses
        cells = [
            one_line(row.id) or "–",
            f"{row.weight:g}",
            _of(str(uses.gpus), row.max_gpus and str(row.max_gpus)),
            _of(f"{uses.cores:g}", row.max_cores and f"{row.max_cores:g}"),
            _of(_memory(uses.mem_mib), row.max_mem_mib and _memory(row.max_mem_mib)),
            _of(str(uses.jobs), row.max_jobs and str(row.max_jobs)),
            str(row.waiting),
        ]
        table.add_row(*map(Text, cells))
    return table


def _of(used: str, limit: str | float) -> str:
    return f"{used} of {limit}" if limit else used


def _memory(mem_mib: float) -> str:
    """Memory as `--max-mem` takes it."""
    return f"{mem_mib:g}M" if mem_mib % _GIB else f"{mem_mib / _GIB:g}G" if mem_mib else "0"
