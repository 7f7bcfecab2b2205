"""Network namespaces that are joined by one bridge, each by a link of limited bandwidth: `ip` and `tc`."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from contextlib import suppress
from ipaddress import IPv4Network, ip_network

from hocket.testing.hosts.owner_tag import OwnerTag, read_tag

_NAMESPACES = "/run/netns"
_LINKS = "/sys/class/net"
_COMMANDS = ("ip", "tc", "nsenter")
_LEAST_BURST_KB = 64  # one packet of the largest kind that a link between namespaces has
_QUEUE_MS = 50  # for how long a packet may wait at a link
MOST_HOSTS = 200


class NoNamespaces(RuntimeError):
    """Namespaces cannot be made here; the message says why."""


def why_no_namespaces() -> str:
    """Why hosts cannot have a network of their own here; empty if they can."""
    if os.geteuid() != 0:
        return "a network namespace needs root"
    lacking = [command for command in _COMMANDS if shutil.which(command) is None]
    return f"a network namespace needs the command `{lacking[0]}`" if lacking else ""


def run(*words: str) -> str:
    """What a command prints; NoNamespaces with what it complains about."""
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode:
        raise NoNamespaces(f"`{' '.join(words)}`: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


class Network:
    """One launcher's bridge and the namespaces on it. Whatever fails, `remove` takes away what there is."""

    def __init__(self, tag: OwnerTag, mbit: float) -> None:
        """For hosts whose links have `mbit` Mbit/s in each direction; 0: no limit."""
        self._tag, self._mbit = tag, mbit
        self._network = _free_network()
        self.address = str(self._network[1])  # of this machine, outside all namespaces
        bridge = f"{tag}br"
        run("ip", "link", "add", bridge, "type", "bridge")
        run("ip", "link", "set", bridge, "alias", tag.name)
        run("ip", "addr", "add", f"{self.address}/{self._network.prefixlen}", "dev", bridge)
        run("ip", "link", "set", bridge, "up")

    def add(self, number: int) -> tuple[str, str]:
        """A new host with this number, from 0; its namespace and address."""
        if not 0 <= number < MOST_HOSTS:
            raise ValueError(f"a bridge has at most {MOST_HOSTS} hosts, not {number + 1}")
        space, link = f"{self._tag.name}-n{number}", link_of(self._tag, number)
        address = str(self._network[2 + number])
        run("ip", "netns", "add", space)
        run("ip", "link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", space)
        run("ip", "link", "set", link, "master", f"{self._tag}br", "alias", self._tag.name, "up")
        run("ip", "-n", space, "addr", "add", f"{address}/{self._network.prefixlen}", "dev", "eth0")
        run("ip", "-n", space, "link", "set", "eth0", "up")
        run("ip", "-n", space, "link", "set", "lo", "up")
        if self._mbit:
            # The least burst that keeps the link busy when the kernel looks at it once in a millisecond or four.
            burst_kb = max(_LEAST_BURST_KB, int(self._mbit * 1000 / 8 * 0.002))
            rate = ("root", "tbf", "rate", f"{round(self._mbit * 1000)}kbit", "burst", f"{burst_kb}kb")
            limit = (*rate, "latency", f"{_QUEUE_MS}ms")
            run("tc", "qdisc", "add", "dev", link, *limit)  # what it receives
            run("tc", "-n", space, "qdisc", "add", "dev", "eth0", *limit)  # what it sends
        return space, address


def link_of(tag: OwnerTag, number: int) -> str:
    """This machine's end of the link to a host."""
    return f"{tag}{number:02x}"


def traffic(link: str) -> tuple[int, int]:
    """Bytes that the host behind a link has sent and received."""
    counted = []
    for way in ("rx", "tx"):  # What this end receives, the host has sent.
        with open(f"{_LINKS}/{link}/statistics/{way}_bytes", encoding="ascii") as file:
            counted.append(int(file.read()))
    return counted[0], counted[1]


def within(space: str) -> list[str]:
    """The words before a command that runs it in a namespace; unlike `ip netns exec`, they leave /sys as it is."""
    return ["nsenter", f"--net={_NAMESPACES}/{space}"] if space else []


def owners() -> set[OwnerTag]:
    """The launchers that have links or namespaces on this machine."""
    return {tag for name in (*_links().values(), *_namespaces()) if (tag := read_tag(name)) is not None}


def remove(tag: OwnerTag) -> None:
    """Take away the links and namespaces of a launcher; one that is gone already is no error."""
    for link, alias in _links().items():
        if read_tag(alias) == tag:
            subprocess.run(["ip", "link", "del", link], capture_output=True)
    for space in _namespaces():
        if read_tag(space) == tag:
            subprocess.run(["ip", "netns", "del", space], capture_output=True)


def _links() -> dict[str, str]:
    """Links of this machine by name, with their aliases."""
    found = {}
    for link in os.listdir(_LINKS) if os.path.isdir(_LINKS) else ():
        with suppress(OSError), open(f"{_LINKS}/{link}/ifalias", encoding="utf-8", errors="replace") as file:
            found[link] = file.read().strip()
    return found


def _namespaces() -> list[str]:
    return os.listdir(_NAMESPACES) if os.path.isdir(_NAMESPACES) else []


def _free_network() -> IPv4Network:
    """The first private network of 256 addresses that no link of this machine has, nor any route leads to."""
    taken = [ip_network(r["dst"]) for r in json.loads(run("ip", "-j", "-4", "route")) if r["dst"] != "default"]
    for third in range(256):
        network = IPv4Network(f"10.213.{third}.0/24")
        if not any(network.overlaps(other) for other in taken):
            return network
    raise NoNamespaces("all networks from 10.213.0.0 to 10.213.255.0 are in use")
