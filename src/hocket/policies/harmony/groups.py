"""Groups, and what was true when they were last settled: read from partitions and from the memos of their jobs.

A settled job's memo is [COMP on one machine, COMM, and of its group: COMP, COMM, longest iteration, jobs, own part],
the last only if it is not 0. So a group that a job has left since is recognised, and the load that left it is known.
The memo of a declined job is empty.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from hocket.model.partition import Partition, Sharing
from hocket.model.phases import Profile, needs_less, profile_of, sent_share
from hocket.model.snapshot import Snapshot
from hocket.model.view import JobView
from hocket.policies.harmony.search_kernel import ResourceWeights, value_of

DECLINED: list[float] = []


def profile_in(view: JobView, least: int, knows_own_part: bool) -> Profile | None:
    """A job's profile, as a policy wants it that knows that COMM depends on the number of machines, or does not."""
    beliefs = view.beliefs if knows_own_part else replace(view.beliefs, own_part=0.0)
    return profile_of(beliefs, least)


def is_outdated(view: JobView, knows_own_part: bool) -> bool:
    """Does a settled job need much less than when it was settled?"""
    profile = profile_in(view, 1, knows_own_part)
    return profile is not None and needs_less(profile, Profile(view.memo[0], view.memo[1]))


class JobGroup(Struct, frozen=True):
    """Jobs that share machines; COMP and COMM are sums over its profiled jobs."""

    id: str
    number: int  # of its eldest job; orders groups, as their names say nothing
    machines: int
    jobs: int
    comp: float = 0.0
    comm: float = 0.0
    longest_s: float = 0.0  # iteration
    settled_jobs: int = 0  # jobs when it was settled; 0: it never was
    own_part: float = 0.0  # on m machines COMM takes 1 − own_part/m of what it would on very many

    @classmethod
    def settled(cls, pid: str, machines: int, views: Sequence[JobView], profiles: Sequence[Profile]) -> JobGroup:
        """A group that is formed now; without any profile it is not settled."""
        return cls(
            pid,
            min(v.number for v in views),
            machines,
            len(views),
            sum(p.comp_machine_s for p in profiles),
            sum(p.comm_s for p in profiles),
            max((p.iteration_s(machines) for p in profiles), default=0.0),
            len(views) if profiles else 0,
            sum(p.own_part for p in profiles) / len(profiles) if profiles else 0.0,
        )

    @property
    def is_changed(self) -> bool:
        """Has a job left, or come, since it was settled?"""
        return self.settled_jobs > 0 and self.settled_jobs != self.jobs

    def value(self, weights: ResourceWeights) -> float:
        """Machines times utilisation."""
        if not self.settled_jobs:
            return 0.0
        return value_of(self.comp, self.comm, self.longest_s, float(self.machines), weights)

    def with_job(self, profile: Profile) -> JobGroup:
        """As it would be with one more."""
        longest_s = max(self.longest_s, profile.iteration_s(self.machines))
        return JobGroup(
            self.id, self.number, self.machines, self.jobs + 1, self.comp + profile.comp_machine_s,
            self.comm + profile.comm_s, longest_s, self.settled_jobs + 1, self.own_part or profile.own_part,
        )  # fmt: skip

    def use(self) -> tuple[float, float]:
        """Shares of CPU and network (equation 3)."""
        cpu_s, net_s = self.comp / self.machines, self.comm * sent_share(self.own_part, self.machines)
        round_s = max(cpu_s, net_s, self.longest_s)
        return (cpu_s / round_s, net_s / round_s) if round_s > 0 else (0.0, 0.0)

    def memo_of(self, profile: Profile | None) -> list[float] | None:
        """The memo of one of its jobs; a job without a profile is settled later."""
        if profile is None:
            return None
        memo = [profile.comp_machine_s, profile.comm_s, self.comp, self.comm, self.longest_s, float(self.jobs)]
        return [*memo, self.own_part] if self.own_part else memo


def groups_of(snapshot: Snapshot) -> list[JobGroup]:
    """All groups, the one with the eldest job first."""
    jobs = snapshot.jobs.data()
    partitions = [p for p in snapshot.partitions.data().values() if p.sharing is Sharing.INTERLEAVED]
    return sorted((_group(p, [jobs[t.job] for t in p.tenants]) for p in partitions), key=lambda g: g.number)


def _group(partition: Partition, views: Sequence[JobView]) -> JobGroup:
    machines, count = len(partition.slices), len(views)
    number = min(v.number for v in views)
    memos = [v.memo for v in views if v.memo]
    if not memos:
        return JobGroup(partition.id, number, machines, count)
    settled_jobs, own_part = int(memos[0][5]), memos[0][6] if len(memos[0]) > 6 else 0.0
    if settled_jobs == count:
        comp, comm, longest_s = memos[0][2:5]
    else:
        comp, comm = sum(m[0] for m in memos), sum(m[1] for m in memos)
        sent = sent_share(own_part, machines)
        longest_s = max(m[0] / machines + m[1] * sent for m in memos)
    return JobGroup(partition.id, number, machines, count, comp, comm, longest_s, settled_jobs, own_part)


def load_that_left(partition: Partition, snapshot: Snapshot) -> tuple[float, float]:
    """COMP on one machine and COMM of the jobs that left a group since it was settled."""
    memos = [m for t in partition.tenants if (m := snapshot.jobs[t.job].memo)]
    if not memos:
        return 0.0, 0.0
    return memos[0][2] - sum(m[0] for m in memos), memos[0][3] - sum(m[1] for m in memos)
