"""Hosts on one machine, each with a real agent, and a controller that they join."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from http.client import HTTPException
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

from hocket.agent.address import connection as connection_to
from hocket.agent.cgroup import CPU, Cgroup
from hocket.agent.node.containment import Containment, Wanted
from hocket.agent.protocol import RunKey, RunLimits
from hocket.testing.hosts import network
from hocket.testing.hosts.host_cleanup import abandoned, folder_of, one_at_a_time, take_down
from hocket.testing.hosts.owner_tag import own_tag

TAG = "HOCKET_HOSTS"  # in the environment of all that a launcher starts
# In which a host's CPU time is counted. A host that has used up its time stands still, and with it what it sends: for
# long enough to be noticed if this was longer.
_PERIOD_US = 10_000


class Host(NamedTuple):
    """One host."""

    name: str
    address: str
    namespace: str  # empty where hosts are plain processes
    cgroup: Cgroup | None
    cores: frozenset[int]  # to which it is pinned where there is no cgroup for CPU time; empty: to none
    link: str = ""  # of this machine, to its namespace


class HostUse(NamedTuple):
    """What a host has used since it was made; 0 where that is not counted."""

    cpu_s: float
    sent_bytes: int
    received_bytes: int


class Hosts:
    """Within `with`: whatever happens there, all of it is taken down. One launcher of a process at a time.

    Where namespaces cannot be made, hosts are plain processes at 127.0.0.1, without a limit of bandwidth; `plain` says
    why. What launchers left that were killed is removed first.
    """

    def __init__(
        self,
        count: int,
        mbit: float = 1000.0,
        cores: float = 1.0,
        mem_mib: float = 1024.0,
        gpus: int = 1,
        plain: str = "",
    ) -> None:
        """So many hosts, each with:

        - `mbit`: bandwidth of its link in Mbit/s, each way; 0: no limit
        - `cores`: of CPU time, and `mem_mib` of memory
        - `gpus`: virtual GPUs, for jobs that ask for some
        - `plain`: the reason why it shall be a plain process even where it could be more
        """
        if not 1 <= count <= network.MOST_HOSTS:
            raise ValueError(f"hosts must be from 1 to {network.MOST_HOSTS}, not {count}")
        for name, value in (("mbit", mbit), ("cores", cores), ("mem_mib", mem_mib), ("gpus", gpus)):
            least = 0 if name in ("mbit", "gpus") else 1e-3
            if not least <= value < math.inf:
                raise ValueError(f"{name} must be a number from {least:g}, not {value}")
        self._count, self._mbit, self._cores, self._mem_mib, self._gpus = count, mbit, cores, mem_mib, gpus
        self.plain = plain or network.why_no_namespaces()
        self._tag = own_tag()
        self.folder = Path(folder_of(self._tag))
        self.home = self.folder / "home"  # of the controller
        self.address = "127.0.0.1"  # of this machine, as hosts see it
        self.limits = ""  # by what cores and memory are limited, as `Containment.kind` says it
        self._hosts: list[Host] = []
        self._children: list[subprocess.Popen[Any]] = []

    def __enter__(self) -> Self:
        try:
            with one_at_a_time():
                for tag in abandoned():
                    take_down(tag)
                self.folder.mkdir(mode=0o700)
                (self.folder / "tmp").mkdir()
                self._make()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Take all down; signals wait until that is done."""
        with _undisturbed():
            take_down(self._tag)
            for child in self._children:
                child.wait()
                for pipe in (child.stdin, child.stdout, child.stderr):
                    if pipe is not None:
                        pipe.close()

    def __iter__(self) -> Iterator[Host]:
        return iter(self._hosts)

    def __len__(self) -> int:
        return len(self._hosts)

    def __getitem__(self, number: int) -> Host:
        return self._hosts[number]

    def _make(self) -> None:
        bridge = None if self.plain else network.Network(self._tag, self._mbit)
        self.address = self.address if bridge is None else bridge.address
        contained = Containment(Wanted.AUTO, str(self._tag), hard_cpus=True)
        self.limits = contained.kind
        all_cores = sorted(os.sched_getaffinity(0))
        for number in range(self._count):
            space, address = ("", self.address) if bridge is None else bridge.add(number)
            cgroup = contained.create(RunKey(f"n{number}", 0), "host", RunLimits(self._mem_mib, self._cores))
            pinned: frozenset[int] = frozenset()
            if cgroup is None or CPU not in cgroup.folders:
                wanted = min(len(all_cores), math.ceil(self._cores))
                pinned = frozenset(all_cores[(number * wanted + i) % len(all_cores)] for i in range(wanted))
            elif self._cores * _PERIOD_US >= 1000:  # the least that can be given in a period
                cgroup.limit(self._mem_mib, self._cores, hard_cpus=True, period_us=_PERIOD_US)
            link = network.link_of(self._tag, number) if space else ""
            self._hosts.append(Host(f"n{number}", address, space, cgroup, pinned, link))

    def used(self, host: Host) -> HostUse:
        """CPU time and traffic of a host up to now, its agent included.

        Without a cgroup for CPU time it is that of the cores to which the host is pinned, whatever ran there.
        """
        cpu_s = host.cgroup.cpu_s() if host.cgroup is not None else None
        if not cpu_s and host.cores:
            cpu_s = busy_s(Path("/proc/stat").read_text(encoding="ascii"), host.cores)
        return HostUse(cpu_s or 0.0, *(network.traffic(host.link) if host.link else (0, 0)))

    # -- processes ----------------------------------------------------------------------------------------------

    def start(self, host: Host | None, command: Sequence[str], **options: Any) -> subprocess.Popen[Any]:
        """A process on a host, or beside all hosts for None, with `options` of `Popen`; it ends with the launcher."""
        env = {**options.pop("env", os.environ), TAG: self._tag.name, "TMPDIR": str(self.folder / "tmp")}
        words = [*(network.within(host.namespace) if host is not None else []), *command]
        enter = None if host is None else partial(_enter, host)
        child = subprocess.Popen(words, env=env, preexec_fn=enter, **options)
        self._children.append(child)
        return child

    def start_controller(self, *options: str) -> None:
        """A controller with these options of `hocket up`, and an agent on each host; returns when all have joined."""
        command = [sys.executable, "-m", "hocket", "up", "--home", str(self.home), "--no-agent"]
        listen = [] if self.plain else ["--listen", self.address, "--insecure-listen"]
        self._start_logged(None, "controller", [*command, *listen, *options])
        self._await(lambda: self.call("GET", "/v1/health"), "the controller answers")
        for host in self:
            self.start_agent(host)
        self._await(self._have_joined, "all hosts have joined")

    def start_agent(self, host: Host, *options: str) -> subprocess.Popen[Any]:
        """The agent of a host, with more `options` of `hocket agent`; returns at once."""
        command = [sys.executable, "-m", "hocket.agent.node", "--url", self.url, "--name", host.name]
        command += ["--token-file", str(self.home / "token"), "--state", str(self.folder / host.name)]
        command += ["--checkpoints", str(self.folder / "checkpoints")]  # shared: a job that moves finds its state
        command += ["--address", host.address, "--gpus", str(self._gpus)]
        command += ["--cores", f"{self._cores:g}", "--mem-mib", f"{self._mem_mib:g}", *options]
        return self._start_logged(host, host.name, command)

    @property
    def url(self) -> str:
        """Where the controller listens."""
        return (self.home / "url").read_text().strip()

    def call(self, method: str, path: str, body: Any = None) -> Any:
        """The controller's answer; OSError if there is none, ValueError if it refuses."""
        headers = {"Authorization": f"Bearer {(self.home / 'token').read_text().strip()}"}
        try:
            with closing(connection_to(self.url, 60.0)) as connection:
                connection.request(method, path, None if body is None else json.dumps(body), headers)
                answer = connection.getresponse()
                said = json.loads(answer.read())
        except HTTPException as error:
            raise OSError(f"{method} {path}: {error!r}") from error
        if answer.status >= 400:
            raise ValueError(f"{method} {path}: {answer.status} {said}")
        return said

    def log(self, name: str) -> str:
        """What the controller, or the agent of a host, has logged."""
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def _start_logged(self, host: Host | None, name: str, command: Sequence[str]) -> subprocess.Popen[Any]:
        with (self.folder / f"{name}.log").open("ab") as log:
            return self.start(host, command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def _have_joined(self) -> bool:
        nodes = self.call("GET", "/v1/nodes")["nodes"]
        return {host.name for host in self} <= {node["id"] for node in nodes if node["up"]}

    def _await(self, holds: Callable[[], Any], what: str, within_s: float = 300.0) -> None:
        until_s = time.monotonic() + within_s
        while True:
            try:
                if holds():
                    return
            except OSError:
                pass
            ended = next((child for child in self._children if child.poll() is not None), None)
            if ended is not None or time.monotonic() > until_s:
                logs = "".join(f"\n{path.name}: {path.read_text()[-2000:]}" for path in self.folder.glob("*.log"))
                raise RuntimeError(f"not {what}, after {within_s:g} s or since a process ended{logs}")
            time.sleep(0.05)


def busy_s(stat: str, cores: Collection[int]) -> float:
    """For how long these cores were busy since the machine started, added up; as `/proc/stat` says it."""
    lines = [line.split() for line in stat.splitlines() if line.startswith("cpu")]
    rows = {name: [int(ticks) for ticks in of] for name, *of in lines}
    # Columns 4 and 5 are idle time, and those from 9 on are in the others already.
    busy = [row[:3] + row[5:8] for core in cores if (row := rows.get(f"cpu{core}")) is not None]
    return sum(map(sum, busy)) / os.sysconf("SC_CLK_TCK")


def _enter(host: Host) -> None:
    """In the new process, before its command."""
    if host.cgroup is not None:
        host.cgroup.enter()
    if host.cores:
        os.sched_setaffinity(0, host.cores)


@contextmanager
def _undisturbed() -> Iterator[None]:
    """SIGINT and SIGTERM are ignored: what they would end is being taken down already."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
