"""Who is in which group, and what was so when the group was last settled: read off partitions and memos.

A settled job's memo is [COMP on one machine, COMM, and of its group: COMP, COMM, longest iteration, jobs]. So a group
that somebody left is told from one look, and so is what he left behind. A job that was turned down has an empty memo.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from hocket.model.partition import Partition, Sharing
from hocket.model.phases import Profile
from hocket.model.snapshot import Snapshot
from hocket.model.view import JobView
from hocket.policies.harmony.columns import Weights
from hocket.policies.harmony.kernel import value_of

TURNED_DOWN: list[float] = []


class Group(Struct, frozen=True):
    """A group as its memos have it."""

    id: str
    number: int  # of its eldest job: groups are told apart by that, not by name
    machines: int
    jobs: int  # tenants it has
    comp: float = 0.0  # sums over its settled jobs
    comm: float = 0.0
    longest_s: float = 0.0
    had: int = 0  # tenants when it was settled; 0: never was

    @property
    def broken(self) -> bool:
        """Has somebody left, or come, since?"""
        return self.had > 0 and self.had != self.jobs

    def value(self, weights: Weights) -> float:
        """Machines times utilisation."""
        return value_of(self.comp, self.comm, self.longest_s, float(self.machines), weights) if self.had else 0.0

    def with_job(self, profile: Profile) -> Group:
        """As it would be with one more."""
        longest_s = max(self.longest_s, profile.iteration_s(self.machines))
        return Group(
            self.id, self.number, self.machines, self.jobs + 1, self.comp + profile.comp_machine_s,
            self.comm + profile.comm_s, longest_s, self.had + 1,
        )  # fmt: skip

    def use(self) -> tuple[float, float]:
        """Shares of CPU and network (equation 3)."""
        round_s = max(self.comp / self.machines, self.comm, self.longest_s)
        return (self.comp / self.machines / round_s, self.comm / round_s) if round_s > 0 else (0.0, 0.0)


def read(snapshot: Snapshot) -> list[Group]:
    """All groups, the one with the eldest job first."""
    jobs = snapshot.jobs.data()
    found = []
    for partition in snapshot.partitions.data().values():
        if partition.sharing is Sharing.INTERLEAVED:
            found.append(_read(partition, [jobs[t.job] for t in partition.tenants]))
    found.sort(key=lambda g: g.number)
    return found


def _read(partition: Partition, views: Sequence[JobView]) -> Group:
    machines, count = len(partition.slices), len(views)
    number = views[0].number if count == 1 else min(v.number for v in views)
    memo = next((v.memo for v in views if v.memo), None)
    if memo is None:
        return Group(partition.id, number, machines, count)
    had = int(memo[5])
    if had == count:
        return Group(partition.id, number, machines, count, memo[2], memo[3], memo[4], had)
    settled = [v.memo for v in views if v.memo]
    longest_s = max(m[0] / machines + m[1] for m in settled)
    return Group(
        partition.id, number, machines, count, sum(m[0] for m in settled), sum(m[1] for m in settled), longest_s, had
    )


def left_behind(partition: Partition, snapshot: Snapshot) -> tuple[float, float]:
    """COMP on one machine and COMM of those who left a group since it was settled."""
    memos = [m for t in partition.tenants if (m := snapshot.jobs[t.job].memo)]
    if not memos:
        return 0.0, 0.0
    return memos[0][2] - sum(m[0] for m in memos), memos[0][3] - sum(m[1] for m in memos)


def memos_of(
    machines: int, views: Sequence[JobView], profiles: Sequence[Profile | None]
) -> dict[str, list[float] | None]:
    """What to remember of a group that is settled now; jobs without a profile are settled later."""
    known = [p for p in profiles if p is not None]
    comp, comm = sum(p.comp_machine_s for p in known), sum(p.comm_s for p in known)
    longest_s = max((p.iteration_s(machines) for p in known), default=0.0)
    return {
        v.job.id: [p.comp_machine_s, p.comm_s, comp, comm, longest_s, float(len(views))] if p is not None else None
        for v, p in zip(views, profiles, strict=True)
    }
