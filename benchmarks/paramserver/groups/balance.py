"""How fast links must be for eight jobs to need CPU and network for as long, and how long the jobs then are alone.

So the comparison is the same on machines of any speed. It is found by two short runs of `isolated` that differ in
length: what the longer one took and used more is without start-up.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
from msgspec import Struct

from benchmarks.paramserver.groups.job_mix import JOBS, HostShape, RunFailed
from benchmarks.paramserver.groups.policy_run import PolicyRun, run_policy

_FILE = "balance"  # in the folder of results; without .json, as it is no run
_SHARES = (0.2, 0.8)  # of the jobs' epochs, on hosts of two cores or less; more where cores are
_MBIT_A_CORE = 125.0  # near what was found: a link far from it would make the short runs long
_STEP_MBIT = 5.0


class Balance(Struct, frozen=True):
    """What was found."""

    shape: HostShape
    mbit: float
    start_s: float  # of `isolated`, whatever the jobs' length
    epochs_s: float  # of `isolated`, with such links, for all epochs of all jobs

    def share(self, seconds: float) -> float:
        """Of their epochs, for which `isolated` takes so long; RunFailed if it takes longer to start."""
        if seconds <= self.start_s:
            raise RunFailed(f"`isolated` needs {self.start_s:.0f} s to start jobs alone: --seconds must be above that")
        return (seconds - self.start_s) / self.epochs_s

    def seconds(self, share: float) -> float:
        """What `isolated` takes for such a share."""
        return self.start_s + share * self.epochs_s


def balance(shape: HostShape, data: Path, out: Path, tell: Callable[[str], None]) -> Balance:
    """As it was found before for such hosts, or by two runs."""
    if (found := _found_before(out)) is not None and found.shape == shape:
        return found
    probed_mbit, times = _MBIT_A_CORE * shape.cores, max(1.0, shape.cores / 2)
    probes = out / "probes"
    probes.mkdir(exist_ok=True)
    runs = []
    for number, share in enumerate(_SHARES):
        runs.append(run_policy("isolated", JOBS, share * times, probed_mbit, shape, data, probes, number, tell))
        (probes / f"isolated-{number}.json").write_bytes(msgspec.json.encode(runs[-1]))
    found = balanced(*runs)
    (out / _FILE).write_bytes(msgspec.json.encode(found))
    return found


def balanced(short: PolicyRun, longer: PolicyRun) -> Balance:
    """By two runs of different length; RunFailed if the longer one took or used no more."""
    share = longer.share - short.share
    cpu_s, net_s = ((b - a) / share for a, b in zip(short.used_s(), longer.used_s(), strict=True))
    took_s = (longer.makespan_s - short.makespan_s) / share
    if min(cpu_s, net_s, took_s) <= 0:
        raise RunFailed(
            f"jobs {longer.share / short.share:g} times as long used {cpu_s * share:.2f} s more of all CPUs and "
            f"{net_s * share:.2f} s more of all links, in {took_s * share:.1f} s more: give --mbit and --length"
        )
    mbit = max(_STEP_MBIT, round(short.mbit * net_s / cpu_s / _STEP_MBIT) * _STEP_MBIT)
    # Jobs alone need CPU and network in turns, and with such links both for as long.
    epochs_s = took_s * 2 * cpu_s / (cpu_s + net_s)
    return Balance(short.shape, mbit, max(0.0, short.makespan_s - short.share * took_s), epochs_s)


def _found_before(out: Path) -> Balance | None:
    try:
        return msgspec.json.decode((out / _FILE).read_bytes(), type=Balance)
    except (OSError, msgspec.MsgspecError):
        return None
