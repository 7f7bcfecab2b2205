"""The hosts of a job: how they find each other, wait for each other, and ask each other's servers.

Host 0 is the synchroniser: every host tells it when it has ended a subtask, and it lets all go on when the last has.
"""

from __future__ import annotations

import errno
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol

import msgspec

from hocket.runtimes.paramserver.algorithm import TrainingError
from hocket.runtimes.paramserver.launch_variables import LaunchVariables
from hocket.runtimes.paramserver.wire import Exchanged, HostAddresses, HostFailed, HostHello, HostLink, LinkClosed

_AGAIN_S = 0.1
DEFAULT_JOIN_S = 300.0  # that hosts wait for each other at the start
_PARTS_OF_MEMORY = 32  # one for row numbers that others have sent


class HostServer(Protocol):
    """What answers the requests of other hosts; see `host_server.py`."""

    def serve(self, link: HostLink, host: int) -> None:
        """Answer the requests of one host, until it closes the connection."""


class HostGroup:
    """This host among those of its job."""

    def __init__(
        self, launch: LaunchVariables, join_s: float = DEFAULT_JOIN_S, memory_bytes: int | None = None
    ) -> None:
        """`memory_bytes` is what each host may use; None: no limit."""
        self.host, self.hosts = launch.host, launch.hosts
        self.links: dict[int, HostLink] = {}  # to the servers of other hosts
        self.is_broken = threading.Event()  # a host is gone, or has reported that it fails
        self._launch, self._join_s, self._memory_bytes = launch, join_s, memory_bytes
        self._control: dict[int, HostLink] = {}  # of host 0: to all others; of the others: to host 0
        self._served: list[HostLink] = []
        self._threads: list[threading.Thread] = []
        self._listening: socket.socket | None = None
        self._arrived = threading.Condition()
        self._addresses: dict[int, tuple[str, int]] = {}
        self._closing = False
        self._failure = ""  # why another host was not answered
        self._waited_s = 0.0  # at the last point
        # On host 0: what points took that all had come to, in all. The host that comes last to one waits for no other.
        self.meeting_s = 0.0
        self._on_broken: Callable[[], None] = lambda: None

    def join(self, server: HostServer, on_broken: Callable[[], None]) -> None:
        """Find all other hosts, and let the server answer them. `on_broken` is called when one is gone."""
        self._on_broken = on_broken
        if self.hosts == 1:
            return
        deadline_s = time.monotonic() + self._join_s
        try:
            addresses = self._collect_addresses(server, deadline_s)
            for host, address in enumerate(addresses):
                if host != self.host:
                    self.links[host] = self._call(host, address, deadline_s, HostHello(self._launch.job, self.host))
        except LinkClosed as error:
            raise TrainingError(f"{error}, before all hosts had met") from error
        self.exchange("joined", None)

    def _collect_addresses(self, server: HostServer, deadline_s: float) -> list[tuple[str, int]]:
        """The address of every host's server."""
        if self.host == 0:
            self._listen(self._launch.master, server)
            with self._arrived:
                arrived = self._arrived.wait_for(
                    lambda: len(self._control) == self.hosts - 1, deadline_s - time.monotonic()
                )
                missing = sorted(set(range(1, self.hosts)) - self._control.keys())
            if not arrived:
                raise TrainingError(
                    f"of {self.hosts} hosts, these did not come: {', '.join(map(str, missing))}; waited at "
                    f"{self._launch.master[0]}:{self._launch.master[1]} for {self._join_s:g} s"
                )
            addresses = [self._launch.master, *(self._addresses[host] for host in range(1, self.hosts))]
            for link in self._control.values():
                link.send(HostAddresses(addresses))
            return addresses
        connected = _connected(self._launch.master, deadline_s, self._join_s)
        own = connected.getsockname()[0]
        port = self._listen((own, 0), server)
        control = self._control[0] = HostLink(connected, f"host 0 ({self._launch.master[0]})")
        control.send(HostHello(self._launch.job, self.host, is_control=True, port=port))
        match control.receive():
            case HostAddresses(addresses):
                return addresses
            case HostFailed(why):
                raise TrainingError(why)
            case other:
                raise LinkClosed(f"{control.name}: began with {type(other).__name__}")

    def _call(self, host: int, address: tuple[str, int], deadline_s: float, hello: HostHello) -> HostLink:
        link = HostLink(_connected(address, deadline_s, self._join_s), f"host {host} ({address[0]})")
        if self._memory_bytes is not None:
            each = self._memory_bytes // (_PARTS_OF_MEMORY * (self.hosts - 1))
            link.most_kept_bytes = min(link.most_kept_bytes, each)
        link.send(hello)
        return link

    # -- listening -----------------------------------------------------------------------------------------------

    def _listen(self, address: tuple[str, int], server: HostServer) -> int:
        try:
            self._listening = _bound(address)
        except OSError as error:
            raise TrainingError(f"cannot listen at {address[0]}:{address[1]}: {error.strerror or error}") from error
        self._listening.listen(self.hosts * 2)
        self._start(self._accept, server)
        return int(self._listening.getsockname()[1])

    def _start(self, function: Callable[..., None], *arguments: Any) -> None:
        thread = threading.Thread(target=function, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self, server: HostServer) -> None:
        assert self._listening is not None
        while not self._closing:
            try:
                connected, address = self._listening.accept()
            except OSError:
                return  # It was closed.
            self._start(self._accept_host, HostLink(connected, f"host at {address[0]}"), address[0], server)

    def _accept_host(self, link: HostLink, address: str, server: HostServer) -> None:
        """Find out which host has called, and for what; a caller that is no host of this attempt is refused."""
        try:
            hello = link.receive()
            if not isinstance(hello, HostHello) or hello.job != self._launch.job or not 0 <= hello.host < self.hosts:
                link.send(
                    HostFailed(f"this is attempt '{self._launch.job}' of a job of {self.hosts} hosts, and not yours")
                )
                link.close()
                return
            link.name = f"host {hello.host} ({address})"
            if not hello.is_control:
                self._served.append(link)
                server.serve(link, hello.host)
                return
            with self._arrived:
                if hello.host in self._control or hello.host == 0:
                    link.send(HostFailed(f"there is a host {hello.host} already"))
                    link.close()
                    return
                self._control[hello.host] = link
                self._addresses[hello.host] = (address, hello.port)
                self._arrived.notify_all()
        except LinkClosed:
            self._is_gone(link)
        except Exception as error:  # A bug, or no memory: the other host must not wait for ever.
            self._failure = f"host {self.host}: {type(error).__name__}: {error}"
            with suppress(LinkClosed):
                link.send(HostFailed(self._failure))
            self._is_gone(link)

    def _is_gone(self, link: HostLink) -> None:
        if link in self._served and not self._closing:
            self.is_broken.set()
            self._on_broken()
        link.close()

    # -- the synchroniser ----------------------------------------------------------------------------------------

    def exchange(self, point: str, said: Any, last: Callable[[], Any] | None = None) -> list[Any]:
        """Wait until all hosts have come to this point; what each of them says there, by host.

        With `last`, host 0 says what that gives when all others have come.
        """
        if self.hosts == 1:
            return [said if last is None else last()]
        if self._failure:
            raise TrainingError(self._failure)
        began_s = time.perf_counter()
        try:
            if self.host:
                control = self._control[0]
                control.send(Exchanged(point, [_encoded(said)], self._waited_s))
                answers = self._receive_point(control, point, self.hosts)
            else:
                answers = self._collect(point, said, last)
            self._waited_s = time.perf_counter() - began_s - answers.waited_s
            return _decoded(answers.said)
        except LinkClosed as error:
            self.is_broken.set()
            raise TrainingError(f"a host is gone: {error}") from error

    def _collect(self, point: str, said: Any, last: Callable[[], Any] | None) -> Exchanged:
        """On host 0: receive from all others, then send all of it to each."""
        by_host, waited_s = {}, [self._waited_s]
        for host, control in self._control.items():
            received = self._receive_point(control, point, 1)
            (by_host[host],) = received.said
            waited_s.append(received.waited_s)
        self.meeting_s += min(waited_s)
        began_s = time.perf_counter()
        by_host[0] = _encoded(said if last is None else last())
        last_s = time.perf_counter() - began_s
        answers = Exchanged(point, [by_host[host] for host in range(self.hosts)], last_s)
        for control in self._control.values():
            control.send(answers)
        return answers

    def _receive_point(self, control: HostLink, point: str, count: int) -> Exchanged:
        match control.receive():
            case Exchanged(there, said) as received if there == point and len(said) == count:
                return received
            case HostFailed(why):
                self.is_broken.set()
                raise TrainingError(why if why.startswith("host ") else f"{control.name}: {why}")
            case Exchanged(there):
                raise TrainingError(f"{control.name} is at '{there}', host {self.host} at '{point}'")
            case other:
                raise LinkClosed(f"{control.name}: sent {type(other).__name__}")

    def sending_s(self) -> float | None:
        """For how long connections of this host have had something on their way, in all; None if that is not known."""
        each = [link.sending_s() for link in [*self.links.values(), *self._served]]
        known = [seconds for seconds in each if seconds is not None]
        return sum(known) if len(known) == len(each) else None

    def fail(self, why: str) -> None:
        """Send the others the reason why this host ends."""
        for control in self._control.values():
            try:
                control.send(HostFailed(why))
            except LinkClosed:
                continue  # It has ended already.

    def close(self) -> None:
        """Leave the group."""
        self._closing = True
        if self._listening is not None:
            self._listening.close()
        for link in [*self.links.values(), *self._served, *self._control.values()]:
            link.close()


def _encoded(said: Any) -> msgspec.Raw:
    return msgspec.Raw(msgspec.msgpack.encode(said))


def _decoded(said: list[msgspec.Raw]) -> list[Any]:
    return [msgspec.msgpack.decode(raw) for raw in said]


def _bound(address: tuple[str, int]) -> socket.socket:
    """A socket at that address; at all addresses where it is another machine's name for this one."""
    for place in (address, ("", address[1])):
        found = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            found.bind(place)
            return found
        except OSError as error:
            found.close()
            if error.errno != errno.EADDRNOTAVAIL or place[0] == "":
                raise
    raise AssertionError("unreachable")


def _connected(address: tuple[str, int], deadline_s: float, join_s: float) -> socket.socket:
    """A connection, as soon as something listens there."""
    while True:
        try:
            return socket.create_connection(address, max(0.1, deadline_s - time.monotonic()))
        except OSError as error:
            if time.monotonic() > deadline_s:
                raise TrainingError(
                    f"nothing listens at {address[0]}:{address[1]} within {join_s:g} s: {error.strerror or error}"
                ) from error
            time.sleep(_AGAIN_S)
