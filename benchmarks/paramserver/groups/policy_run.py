"""One run: the jobs on real hosts under one policy, and what the hosts used of their CPU and their links meanwhile."""

from __future__ import annotations

import random
import shutil
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from benchmarks.paramserver.groups.job_mix import HOSTS, MEM_MIB, HostShape, MixedJob, RunFailed
from hocket.control.journal.open import open_to_read
from hocket.control.ports import Cycle
from hocket.model.event import EpochEnded, JobEnded, JobStarted, JobSubmitted, ProgressReported
from hocket.testing.hosts.launcher import Hosts

# By the name of a column: options of `hocket up`. Jobs need two hosts at least, so they are profiled on two; they last
# a minute or two, so what a regrouping costs has to be gained within a minute.
POLICIES = {
    "isolated": ("--policy", "isolated"),
    "naive": ("--policy", "naive", "--param", "machines=2"),
    "harmony": ("--policy", "harmony", "--param", "profile_machines=2", "--param", "horizon_s=60"),
}
_SAMPLE_S = 0.5
_LOOK_S = 0.5
_LONGEST_S = 1800.0


class UseSample(Struct, frozen=True):
    """Shares of what all hosts have, since the sample before."""

    at_s: float  # since the jobs were submitted
    cpu: float
    net: float  # of what links can send


class JobTimes(Struct, frozen=True):
    """Of one job, in seconds since all were submitted."""

    name: str
    started_s: float
    ended_s: float
    first_iteration_s: float  # when its first iteration had ended
    starts: int  # runs, the first one included
    state: str


class PolicyRun(Struct, frozen=True):
    """One run."""

    policy: str
    share: float  # of the jobs' epochs
    mbit: float  # of each host's link, each way
    jobs: list[JobTimes]
    use: list[UseSample]
    journal: str  # a copy of its journal, beside this
    shape: HostShape = HostShape()

    @property
    def mean_jct_s(self) -> float:
        """All jobs are submitted at once, at 0 s."""
        return sum(job.ended_s for job in self.jobs) / len(self.jobs)

    @property
    def makespan_s(self) -> float:
        """When the last job ended."""
        return max(job.ended_s for job in self.jobs)

    @property
    def repetition(self) -> str:
        """Which one it is: runs with the same one had the same order of submission."""
        return Path(self.journal).stem.rpartition("-")[2]

    def used_s(self) -> tuple[float, float]:
        """For how long CPU and network would have been busy if all hosts had been fully used."""
        ends = [(a.at_s if a else 0.0, b) for a, b in zip((None, *self.use), self.use, strict=False)]
        return sum(s.cpu * (s.at_s - at_s) for at_s, s in ends), sum(s.net * (s.at_s - at_s) for at_s, s in ends)

    def mean_use(self) -> tuple[float, float]:
        """CPU and network until the last job ended."""
        seen = [sample for sample in self.use if sample.at_s <= self.makespan_s + _SAMPLE_S]
        return sum(s.cpu for s in seen) / len(seen), sum(s.net for s in seen) / len(seen)


def run_policy(
    policy: str, jobs: Sequence[MixedJob], share: float, mbit: float, shape: HostShape, data: Path, out: Path,
    seed: int, tell: Callable[[str], None],
) -> PolicyRun:  # fmt: skip
    """Submit all jobs at once, in an order that the seed decides, and wait until they have ended."""
    jobs = random.Random(seed).sample(jobs, len(jobs))
    with Hosts(HOSTS, mbit=mbit, cores=shape.cores, mem_mib=MEM_MIB, gpus=0) as hosts:
        if hosts.plain:
            raise RunFailed(f"hosts with links of their own cannot be made: {hosts.plain}")
        hosts.start_controller(*POLICIES[policy], "--lease", "120")
        sampler = _Sampler(hosts, mbit, shape.cores)
        # Of this run: each run reads all input once.
        specs = [job.spec(data, share, shape, hosts.home / "input") for job in jobs]
        said = hosts.call("POST", "/v1/jobs", {"jobs": specs})
        if refused := [job for job in said["jobs"] if job["refused"]]:
            raise RunFailed(f"policy {policy}: {refused}")
        try:
            _await_end(hosts, sampler, tell)
        finally:
            sampler.stop()
            copy = out / f"{policy}-{seed}.journal"
            shutil.copy(hosts.home / "journal.db", copy)
            for suffix in ("-wal", "-shm"):
                if (beside := hosts.home / f"journal.db{suffix}").exists():
                    shutil.copy(beside, out / f"{copy.name}{suffix}")
        cycles = list(open_to_read(copy))
    times = job_times(cycles)
    if failed := [f"{job.name} is {job.state}" for job in times if job.state != "finished"]:
        raise RunFailed(f"policy {policy}: {', '.join(failed)}")
    if again := began_again(cycles):
        raise RunFailed(
            f"policy {policy}: {', '.join(sorted(again))} began again instead of going on from a checkpoint"
        )
    return PolicyRun(policy, share, mbit, times, sampler.samples, copy.name, shape)


def _await_end(hosts: Hosts, sampler: _Sampler, tell: Callable[[str], None]) -> None:
    until_s = time.monotonic() + _LONGEST_S
    while True:
        rows: list[dict[str, Any]] = hosts.call("GET", "/v1/jobs?all=true")["jobs"]
        over = [row["id"] for row in rows if row["state"] in ("finished", "failed", "stopped")]
        running = sorted(f"{row['id']} on {row['size']}" for row in rows if row["state"] == "running")
        tell(f"{sampler.now_s():4.0f} s  {len(over)} of {len(rows)} jobs over; running: {', '.join(running) or '–'}")
        if len(over) == len(rows):
            return
        if time.monotonic() > until_s:
            raise RunFailed(f"after {_LONGEST_S:g} s only {over} are over")
        time.sleep(_LOOK_S)


def began_again(cycles: Sequence[Cycle]) -> set[str]:
    """The jobs that did an epoch twice."""
    last: dict[str, int] = {}
    found = set()
    for cycle in cycles:
        for event in cycle.events:
            if isinstance(event, EpochEnded):
                last[event.job] = event.epoch
            elif isinstance(event, ProgressReported) and 0 < event.epoch < last.get(event.job, 0):
                found.add(event.job)
    return found


def job_times(cycles: Sequence[Cycle]) -> list[JobTimes]:
    """From the journal."""
    began_s: dict[str, float] = {}
    found: dict[str, dict[str, Any]] = {}
    for cycle in cycles:
        for event in cycle.events:
            if isinstance(event, JobSubmitted):
                began_s[event.job.id] = event.at_s
                found[event.job.id] = {"started_s": -1.0, "ended_s": -1.0, "first_iteration_s": -1.0}
                found[event.job.id] |= {"starts": 0, "state": "unfinished"}
                continue
            if not isinstance(event, JobStarted | JobEnded | EpochEnded):
                continue
            of, at_s = found[event.job], event.at_s - min(began_s.values())
            if isinstance(event, JobStarted):
                of["started_s"] = at_s if of["started_s"] < 0 else of["started_s"]
                of["starts"] += 1
            elif isinstance(event, EpochEnded):
                of["first_iteration_s"] = at_s if of["first_iteration_s"] < 0 else of["first_iteration_s"]
            else:
                of["ended_s"], of["state"] = at_s, event.verdict
    return [JobTimes(name, **of) for name, of in found.items()]


class _Sampler:
    """A thread that looks at all hosts."""

    def __init__(self, hosts: Hosts, mbit: float, cores: float) -> None:
        self._hosts, self._mbit, self._cores, self._over = hosts, mbit, cores, threading.Event()
        self._began_s = time.monotonic()
        self.samples: list[UseSample] = []
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def now_s(self) -> float:
        """Since the beginning."""
        return time.monotonic() - self._began_s

    def stop(self) -> None:
        """Look no more."""
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        last_s, last_cpu_s, last_bytes = self._look()
        while not self._over.wait(_SAMPLE_S):
            now_s, cpu_s, sent_bytes = self._look()
            took_s = now_s - last_s
            self.samples.append(
                UseSample(
                    now_s,
                    (cpu_s - last_cpu_s) / took_s / (self._cores * len(self._hosts)),
                    (sent_bytes - last_bytes) * 8 / took_s / (self._mbit * 1e6 * len(self._hosts)),
                )
            )
            last_s, last_cpu_s, last_bytes = now_s, cpu_s, sent_bytes

    def _look(self) -> tuple[float, float, int]:
        used = [self._hosts.used(host) for host in self._hosts]
        return self.now_s(), sum(u.cpu_s for u in used), sum(u.sent_bytes for u in used)
