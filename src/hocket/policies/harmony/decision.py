"""One decision of Harmony: the groups as the plan changes them, the jobs that wait, and how changes are written down.

The rules that decide are in `policy.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING

from msgspec.structs import replace

from hocket.model.job import Kind
from hocket.model.partition import Sharing
from hocket.model.phases import Profile, unsound
from hocket.model.plan import Plan, Wake
from hocket.model.snapshot import Snapshot
from hocket.model.view import JobView
from hocket.policies.harmony import regroup
from hocket.policies.harmony.groups import DECLINED, JobGroup, groups_of, load_that_left, profile_in
from hocket.policies.harmony.schedule import Grouping, Terms
from hocket.policies.harmony.search_kernel import ResourceWeights
from hocket.policies.kit.group_draft import GroupDraft, fitting
from hocket.policies.kit.protected_jobs import without_protected

if TYPE_CHECKING:
    from hocket.policies.harmony.policy import Harmony

CONTINUES = "goes on: its group stays"
_SAVES_WITHIN = 10  # times the iterations of a profile, a job has saved something
_SAMPLED = 64  # running jobs, and waiting jobs, whose profiles set what a link is worth


class Decision:
    """The groups and the waiting jobs as the plan stands, and the draft of it."""

    def __init__(self, everything: Snapshot, params: Harmony) -> None:
        self.snapshot = snapshot = without_protected(everything)
        self.params = params
        self.draft = GroupDraft(snapshot)
        self.budget_s = self._budget_before_s = regroup.budget_s(snapshot, params.migrating)  # for migrations
        self.groups: dict[str, JobGroup] = {g.id: g for g in groups_of(snapshot)}
        self.new: list[JobView] = []  # wait for a group; nothing was decided about them yet
        self.declined: list[JobView] = []  # wait, profiled: no group gained by them
        self.others = False  # jobs that cannot share a group wait
        self.profiling: list[JobView] = []  # in a group, and not settled
        self.outdated: list[JobView] = []  # settled by a profile that was too high
        self._formed: dict[str, tuple[JobView, ...]] = {}  # tenants of the groups that this decision formed
        self._profiles: dict[str, Profile | None] = {}
        # Groups that have to stay as they are for now are not seen: was each of them formed by profiles?
        self.knows_all_groups = snapshot is everything or not self._are_unsettled_hidden(everything)
        self._read_queues()
        self.terms = Terms(params.weights, params.fewer)
        if params.variant != "paper" and params.objective == "work":
            self.terms = replace(self.terms, weights=self._weights())

    def _read_queues(self) -> None:
        jobs = self.snapshot.jobs.data()
        for entry in self.snapshot.waiting:  # by the policy's rank
            kind, view = entry[0][0], jobs[entry[-1]]
            if kind > 1:
                self.others = True
                break
            if view.verdict:
                continue
            if self.draft.start_on_reserved(view):
                continue
            if kind == 1:
                self.declined.append(view)
            elif self.is_groupable(view):
                self.new.append(view)
            else:
                self.others = True
        for entry in self.snapshot.placed:
            if entry[0][0] > 0:
                break
            view = jobs[entry[-1]]
            if view.partitions and view.partitions[0] in self.groups:
                (self.outdated if view.memo else self.profiling).append(view)

    def _weights(self) -> ResourceWeights:
        """What each resource counts, and how iterations differ from equation 1, by the jobs that are there.

        A link is worth as many machines as make COMP and COMM of all jobs balance. So COMM counts the same in every
        group, and two jobs that only communicate are better off apart.
        """
        jobs, found = self.snapshot.jobs.data(), []
        for queue in (self.snapshot.placed, self.snapshot.waiting):
            views = (jobs[entry[-1]] for entry in islice(queue, _SAMPLED))
            found += self.with_profiles(v for v in views if v.job.kind is Kind.PARAMETER_SERVER)[1]
        comp, comm = sum(p.comp_machine_s for p in found), sum(p.comm_s for p in found)
        price = min(max(comp / comm, 1.0), max(1.0, float(len(self.snapshot.nodes)))) if comm > 0 else 1.0
        link = sum(p.link for p in found) / len(found) if found else 1.0
        barrier = sum(p.barrier for p in found) / len(found) if found else 0.0
        own_part = sum(p.own_part for p in found) / len(found) if found else 0.0
        return self.params.weights._replace(price=price, link=link, barrier=barrier, own_part=own_part)

    # -- what is known ---------------------------------------------------------------------------------------

    def profile(self, view: JobView) -> Profile | None:
        """The times of the job's COMP and COMM, once they are known."""
        job_id = view.job.id
        if job_id not in self._profiles:
            params = self.params
            self._profiles[job_id] = profile_in(view, params.profile_iterations, params.knows_own_part)
        return self._profiles[job_id]

    def with_profiles(self, views: Iterable[JobView]) -> tuple[list[JobView], list[Profile]]:
        """Those of these jobs that are profiled, and their profiles."""
        found = [(view, profile) for view in views if (profile := self.profile(view)) is not None]
        return [view for view, _profile in found], [profile for _view, profile in found]

    def is_groupable(self, view: JobView) -> bool:
        """Can the job share a group, on the machines that are up?"""
        return self.draft.is_groupable(view.job)

    def is_profiling(self) -> bool:
        """Is a job in a group yet to be profiled? One whose profile is unsound is not waited for."""
        return not self.knows_all_groups or any(self._is_unprofiled(v) for v in self.profiling)

    def _is_unprofiled(self, view: JobView) -> bool:
        return self.profile(view) is None and not unsound(view.beliefs)

    def _are_unsettled_hidden(self, everything: Snapshot) -> bool:
        """Is a job that was never settled in a group that has to stay, as some state there is not saved yet?"""
        hidden = [p for pid, p in everything.partitions.items() if pid not in self.snapshot.partitions]
        tenants = (everything.jobs[t.job] for p in hidden if p.sharing is Sharing.INTERLEAVED for t in p.tenants)
        return any(self._is_to_be_settled(view) for view in tenants)

    def _is_to_be_settled(self, view: JobView) -> bool:
        """Is the job to be profiled yet, or to save its state? One that does not save is not waited for without end."""
        if view.memo is not None:
            return False
        comp = view.beliefs.comp_s
        seen = sum(p.seen for p in comp.points) if comp is not None and self.profile(view) is not None else 0
        return seen < _SAVES_WITHIN * self.params.profile_iterations and not unsound(view.beliefs)

    def is_overdue(self, view: JobView) -> bool:
        """Has the job waited for `patience_s`?"""
        return regroup.overdue(view, self.snapshot.now_s, self.params.patience_s)

    def is_placed(self, view: JobView) -> bool:
        """Did this decision put the job into a group?"""
        return any(view in views for views in self._formed.values())

    @property
    def has_settled_groups(self) -> bool:
        """Is there a group that was formed by profiles, and not only to profile?"""
        return any(g.settled_jobs for g in self.groups.values())

    @property
    def half_idle(self) -> bool:
        """Do the processors of more than half of the machines idle?"""
        busy = sum(g.use()[0] * g.machines for g in self.groups.values() if g.settled_jobs)
        return busy < len(self.snapshot.nodes) / 2

    def profiled_and_waiting(self) -> list[JobView]:
        """Profiled jobs that wait, by submission; while some are overdue, only those."""
        if overdue := [v for v in self.declined if self.is_overdue(v)]:
            return overdue
        new, _profiles = self.with_profiles(self.new)
        return sorted([*new, *self.declined], key=lambda v: v.number) if new else self.declined

    def running_in(self, groups: Iterable[JobGroup]) -> list[JobView]:
        """The profiled jobs of these groups, by submission."""
        running, _profiles = self.with_profiles(v for g in groups for v in self.tenants(g.id))
        return sorted(running, key=lambda v: v.number)

    def tenants(self, pid: str) -> list[JobView]:
        """The jobs of a group as the plan stands."""
        partition = self.draft.group(pid)
        return [self.snapshot.jobs[t.job] for t in partition.tenants] if partition is not None else []

    def nodes(self, pid: str) -> list[str]:
        """The machines of a group as the plan stands."""
        partition = self.draft.group(pid)
        return [s.node for s in partition.slices] if partition is not None else []

    def unprofiled_in(self, pid: str) -> int:
        """How many jobs of a group have no profile yet."""
        if pid not in self._formed and all(v.partitions[0] != pid for v in self.profiling):
            return 0
        return sum(1 for v in self.tenants(pid) if self.profile(v) is None)

    def load_that_left(self, group: JobGroup) -> tuple[float, float]:
        """COMP on one machine and COMM of the jobs that left a group."""
        partition = self.draft.group(group.id)
        assert partition is not None
        return load_that_left(partition, self.snapshot)

    def move_costs(self, view: JobView, to: JobGroup) -> float:
        """What a migration takes off a gain, in machines; nothing for a job that is there already, or waits."""
        if not view.partitions or to.id in view.partitions:
            return 0.0
        return self._migration_s(view, to) / self.params.horizon_s

    def _migration_s(self, view: JobView, to: JobGroup) -> float:
        """Machine time that a migration takes: the job's part of the group's machines idles."""
        return view.costs.restart_s(warm=False) * to.machines / (to.jobs + 1)

    def would_pause_overdue(self, old: Mapping[str, Sequence[JobView]], new: Sequence[Sequence[JobView]]) -> bool:
        """Would a running job that had waited for `patience_s` have to wait again?"""
        stay = {v.job.id for views in new for v in views}
        running, _profiles = self.with_profiles(v for views in old.values() for v in views)
        return any(self.is_overdue(v) for v in running if v.job.id not in stay)

    # -- changes ---------------------------------------------------------------------------------------------

    def form(self, pid: str, nodes: Sequence[str], views: Sequence[JobView], reason: str) -> tuple[JobView, ...]:
        """Make a group of these jobs on these machines, in the place of what it was; the jobs that fit are in it."""
        draft, before = self.draft, self.groups.pop(pid, None)
        explained = {v.job.id for v in self.tenants(pid) if v.job.id in draft.reasons}  # by an earlier change
        self._formed.pop(pid, None)
        if draft.group(pid) is not None:
            draft.dissolve(pid)
        placed = draft.form(pid, nodes, views if self.params.reloading else fitting(views, len(nodes)))
        if not placed:
            return ()
        group = self.groups[pid] = JobGroup.settled(pid, len(nodes), placed, self.with_profiles(placed)[1])
        self._formed[pid] = placed
        for view in placed:
            self._remember(view, group.memo_of(self.profile(view)))
        self._explain(group, before, reason, explained)
        return placed

    def _remember(self, view: JobView, memo: list[float] | None) -> None:
        """The job's memo, if it changes."""
        if view.memo != memo:
            self.draft.memos[view.job.id] = memo
        else:
            self.draft.memos.pop(view.job.id, None)

    def _explain(self, group: JobGroup, before: JobGroup | None, reason: str, explained: set[str]) -> None:
        """A reason for each job of the group that starts, moves or is settled by this change."""
        reasons, memos = self.draft.reasons, self.draft.memos
        new, old = self.draft.group(group.id), self.snapshot.partitions.get(group.id)
        assert new is not None
        unchanged = set(old.tenants) if old is not None and old.slices == new.slices else set()
        if group.settled_jobs and reason.startswith("joins"):
            was_cpu = was_network = ""
            if before is not None and before.settled_jobs:
                was_cpu, was_network = (f"{share:.0%} → " for share in before.use())
            cpu, network = group.use()
            reason += f": CPU {was_cpu}{cpu:.0%}, network {was_network}{network:.0%}"
        for tenant in new.tenants:
            if tenant not in unchanged:
                if tenant.job not in explained:
                    reasons[tenant.job] = reason
            elif tenant.job not in memos:
                reasons.pop(tenant.job, None)

    def add_to(self, group: JobGroup, views: Sequence[JobView], reason: str) -> bool:
        """Move these jobs into a group, as far as they fit; False, and nothing has changed, if none does."""
        nodes, tenants = self.nodes(group.id), self.tenants(group.id)
        new = [v for v in views if v not in tenants]
        placed = self.form(group.id, nodes, [*tenants, *new], reason)
        joined = [v for v in views if v in placed or v not in new]
        if not joined:
            self.form(group.id, nodes, tenants, CONTINUES)
            return False
        for view in joined:
            if view in new and view.partitions:
                self.budget_s -= self._migration_s(view, group)
                self._leave(view, group.id)
            self._dequeue(view)
        return True

    def _leave(self, view: JobView, keep: str) -> None:
        """Take the job out of the group that it was in, now that it is in another."""
        for pid in view.partitions:
            if pid != keep and pid in self.groups:
                reason = self.draft.reasons.get(view.job.id)
                self.form(pid, self.nodes(pid), [v for v in self.tenants(pid) if v is not view], CONTINUES)
                if reason:
                    self.draft.reasons[view.job.id] = reason

    def decline(self, view: JobView, reason: str) -> None:
        """The job waits, as no group needs it; if it is in a group, it leaves it."""
        for pid in view.partitions:
            if pid in self.groups and view in (tenants := self.tenants(pid)):
                self.form(pid, self.nodes(pid), [v for v in tenants if v is not view], CONTINUES)
        self._wait(view, reason)

    def _wait(self, view: JobView, reason: str) -> None:
        self.draft.reasons[view.job.id] = reason
        self._remember(view, DECLINED)
        self._dequeue(view)
        self.declined.append(view)

    def _dequeue(self, view: JobView) -> None:
        self.new = [v for v in self.new if v is not view]
        self.declined = [v for v in self.declined if v is not view]

    def apply(self, old: list[JobGroup], jobs: Sequence[JobView], found: Grouping, free: list[str]) -> None:
        """Form the groups that were found for these jobs in the place of old groups; few jobs and machines move."""
        nodes = {g.id: self.nodes(g.id) for g in old}
        tenants = {g.id: self.tenants(g.id) for g in old}
        new = [[jobs[i] for i in group] for group in found.groups]
        names = regroup.names_for(new, tenants)
        pool = [*free, *(n for g in old if g.id not in names for n in nodes[g.id])]
        unprofiled = {pid: [v for v in views if self.profile(v) is None] for pid, views in tenants.items()}
        for group in old:
            if self.draft.group(group.id) is not None:
                self.draft.dissolve(group.id)
            self.groups.pop(group.id, None)
            self._formed.pop(group.id, None)
        before = {g.id: g for g in old}
        placed: set[str] = set()
        homeless = [v for pid, views in unprofiled.items() if pid not in names for v in views]
        # Groups that shrink come first: what they give up is for those that grow.
        in_turn = sorted(
            zip(new, found.machines, names, strict=True), key=lambda x: x[1] - len(nodes.get(x[2] or "", ()))
        )
        for views, machines, name in in_turn:
            had = nodes.get(name or "", [])
            pool += had[machines:]
            missing = max(0, machines - len(had))
            mine, pool = [*had[:machines], *pool[:missing]], pool[missing:]
            pid = name or self.draft.new_id()
            if name in before:
                self.groups[pid] = before[name]
            guests = [*unprofiled.get(name or "", []), *homeless]
            seated = self.form(pid, mine, [*views, *guests], f"joins {pid}")
            homeless = [v for v in homeless if v not in seated]
            placed.update(v.job.id for v in seated)
            if not seated:
                pool += mine
        for view in jobs:
            if view.job.id in placed:
                self._dequeue(view)
            else:
                self._wait(view, "waits: the groups are in balance without it")
        for view in [v for views in unprofiled.values() for v in views if v.job.id not in placed]:
            self.draft.reasons[view.job.id] = "waits: it is to be profiled, and no group has room for it"

    # -- the plan --------------------------------------------------------------------------------------------

    def plan(self) -> Plan:
        """What was decided, with reasons for jobs that wait although they would fit what is free."""
        draft, snapshot = self.draft, self.snapshot
        for entries in snapshot.waiting.buckets().values() if not draft.full else ():
            first = snapshot.jobs[entries[0][-1]].job
            if draft.capacity.place(first, first.sizes[0]) is None:
                continue
            for entry in entries:
                view = snapshot.jobs[entry[-1]]
                if entry[0][0] < 2 and not self.is_placed(view):
                    flaw = unsound(view.beliefs)
                    why = "the groups are in balance without it" if self.profile(view) else "it is to be profiled"
                    draft.reasons.setdefault(view.job.id, f"waits: {flaw or why}")
        # Another job may wait for machines that a group gave up.
        at_s = snapshot.now_s if draft.freed and draft.free_machines() and snapshot.waiting.count else None
        if at_s is None:
            at_s = regroup.next_overdue_s(self.declined, snapshot.now_s, self.params.patience_s)
        # The budget is noted only when some is spent, so that the number of decisions does not matter.
        is_noted = snapshot.memo is not None and self.budget_s == self._budget_before_s
        memo = snapshot.memo if is_noted else [snapshot.now_s, self.budget_s]
        return draft.plan(Wake(freed_gpus=1, epoch=False, at_s=at_s), memo)
