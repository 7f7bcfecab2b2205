"""A real Slurm on this machine: a slurmctld, and a slurmd for each of several nodes, all at 127.0.0.1.

Debian: `apt-get install slurmctld slurmd slurm-client`. It uses ports and folders of its own, and no munge.
"""

import os
import shutil
import socket
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.live.controller import awaited

_PROGRAMS = ("slurmctld", "slurmd", "srun", "sbatch", "scancel", "sinfo")
_CONFIG = """
ClusterName=hocket
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
AuthType=auth/none
CredType=cred/none
SlurmUser=root
SlurmdUser=root
StateSaveLocation={root}/controller
SlurmdSpoolDir={root}/%n
SlurmctldPidFile={root}/controller/pid
SlurmdPidFile={root}/%n.pid
SlurmctldLogFile={root}/controller.log
SlurmdLogFile={root}/%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
MpiDefault=none
KillWait=20
NodeName={names} NodeHostname={host} NodeAddr=127.0.0.1 Port={ports} CPUs={cpus} RealMemory=100
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def why_no_slurm() -> str:
    """Why Slurm cannot be started here; empty if it can."""
    if missing := [name for name in _PROGRAMS if shutil.which(name) is None]:
        return f"Slurm is not installed: there is no {missing[0]} (Debian: slurmctld, slurmd, slurm-client)"
    return "" if os.geteuid() == 0 else "several nodes of Slurm on one machine need root"


class SlurmCluster:
    """Within `with`; nothing is left afterwards."""

    def __init__(self, root: Path, nodes: int) -> None:
        self._root, self._nodes = root, [f"s{n}" for n in range(1, nodes + 1)]
        first = _free_ports(nodes + 1)
        self.env = {**os.environ, "SLURM_CONF": str(root / "slurm.conf")}
        (root / "controller").mkdir(parents=True)
        for name in self._nodes:
            (root / name).mkdir()
        config = _CONFIG.format(
            host=socket.gethostname(), port=first, root=root, cpus=os.cpu_count(),
            names=f"s[1-{nodes}]", ports=f"[{first + 1}-{first + nodes}]",
        )  # fmt: skip
        (root / "slurm.conf").write_text(config)
        self._children: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        try:
            self._start("slurmctld", "-D")
            for name in self._nodes:
                self._start("slurmd", "-D", "-N", name)
            awaited(lambda: self.run("sinfo", "-h", "-o", "%D %t").split() == [str(len(self._nodes)), "idle"], "idle")
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for child in self._children:
            child.terminate()
        for child in self._children:
            child.wait(60)

    def run(self, *words: str) -> str:
        """What a command of Slurm prints."""
        done = subprocess.run(words, env=self.env, capture_output=True, text=True, timeout=120, check=False)
        return done.stdout

    def _start(self, *words: str) -> None:
        with (self._root / f"{words[0]}.out").open("ab") as log:
            self._children.append(subprocess.Popen(words, env=self.env, stdout=log, stderr=log))


def _free_ports(count: int) -> int:
    """The first of so many ports in a row that are free just now."""
    for first in range(41_000 + os.getpid() % 1000 * 10, 60_000, 100):
        try:
            for port in range(first, first + count):
                with socket.socket() as probe:
                    probe.bind(("127.0.0.1", port))
            return first
        except OSError:
            continue
    raise AssertionError("no ports are free")
