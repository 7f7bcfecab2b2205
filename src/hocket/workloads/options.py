"""Options after a path or a name: `PATH?first=100&elastic=yes`."""

from __future__ import annotations

from hocket.workloads.errors import WorkloadError, shown
from hocket.workloads.fields import Fields


def split_options(text: str, where: str) -> tuple[str, Fields]:
    """What stands before the last `?`, and the options after it. A bare name is a flag that is set."""
    before, mark, after = text.rpartition("?")
    if not mark:
        return text, Fields({}, lambda _name: where, from_text=True, noun="option")
    values: dict[str, object] = {}
    for part in filter(None, after.split("&")):
        name, _, value = part.partition("=")
        if name in values:
            raise WorkloadError(f"{where}: the option {shown(name)} must stand only once")
        values[name] = value
    return before, Fields(values, lambda _name: where, from_text=True, noun="option")
