"""By which names a controller may be called. A web page that gave its own name this address would call it by that name.

A browser lets a page talk to the host that the page came from. If that name is made to mean another address (DNS
rebinding), the page reaches services there, and the only sign of it is the name in the header `Host`. An address in
that header cannot be the result of it.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable
from ipaddress import ip_address

_ALWAYS = ("localhost", "")


class HostNames:
    """Names beside addresses: that of this machine, `localhost`, and those that the admin adds."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._names = {name.lower().rstrip(".") for name in (*_ALWAYS, socket.gethostname(), *names)}
        self._known: set[bytes] = set()  # headers that were right before

    def problem(self, header: bytes) -> str:
        """What is wrong with the header of a request; empty if nothing is."""
        if header in self._known:
            return ""
        name = host_of(header.decode("latin-1"))
        if name.lower().rstrip(".") not in self._names and not _is_address(name):
            shown = "".join(c for c in name[:100] if c.isprintable())
            return f"host '{shown}' is no name of this controller; `hocket up --host-name NAME` adds one"
        if len(self._known) < 100:
            self._known.add(header)
        return ""


def host_of(header: str) -> str:
    """The host without its port: of `[::1]:80`, `::1`."""
    if header.startswith("["):
        return header[1:].partition("]")[0]
    return header.rpartition(":")[0] if header.rpartition(":")[2].isdecimal() and ":" in header else header


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
