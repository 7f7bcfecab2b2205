"""One decision of Harmony, in the order in which it is made; the rules themselves are in the files beside."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice

from msgspec.structs import replace

from hocket.model.job import Kind
from hocket.model.phases import Profile, profile_of, unsound
from hocket.model.plan import Plan, Wake
from hocket.model.snapshot import Snapshot
from hocket.model.view import JobView
from hocket.policies.harmony import members, regroup
from hocket.policies.harmony.columns import Weights
from hocket.policies.harmony.hall import Hall, fitting, groupable
from hocket.policies.harmony.knobs import Harmony
from hocket.policies.harmony.members import TURNED_DOWN, Group
from hocket.policies.harmony.oracle import MOST_JOBS, MOST_MACHINES, exhaustive
from hocket.policies.harmony.paper import as_printed
from hocket.policies.harmony.schedule import Grouping, Terms, schedule

_WORTH = 1e-6  # of a machine: less is no gain
_COMPARED = 512  # jobs that wait, with one that left
_SAMPLED = 64  # jobs that run, and that wait, whose phases set what a link is worth
_MUCH = 2.0  # times what there is: a regrouping that is worth so much need not be saved up for
_TRIES = 4  # groups that a job is offered, the best first


class Turn:
    """The groups as they become, and who waits."""

    def __init__(self, snapshot: Snapshot, params: Harmony) -> None:
        self.snapshot, self.params = snapshot, params
        self.hall = Hall(snapshot)
        self.terms = Terms(params.weights, params.fewer)
        self.budget_s = self._had_s = regroup.budget_s(snapshot, params.migrating)  # machine time for migrations
        self.groups: dict[str, Group] = {g.id: g for g in members.read(snapshot)}
        self.views: dict[str, list[JobView]] = {}  # tenants of groups that the draft changed
        self._profiles: dict[str, Profile | None] = {}
        self._fits: dict[tuple[object, ...], bool] = {}
        jobs = snapshot.jobs.data()
        self.new: list[JobView] = []  # they wait for a group, and nobody has decided on them
        self.turned_down: list[JobView] = []  # they wait, profiled
        self.others = False  # jobs that are not for groups wait
        for entry in snapshot.waiting:
            kind, view = entry[0][0], jobs[entry[-1]]
            if kind > 1:
                self.others = True
                break
            if view.verdict:
                continue
            if kind == 1:
                self.turned_down.append(view)
            elif self._groupable(view):
                self.new.append(view)
            else:
                self.others = True
        self.profiling: list[JobView] = []  # in a group, and not settled
        for entry in snapshot.placed:
            if entry[0][0] > 0:
                break
            view = jobs[entry[-1]]
            if view.partitions and view.partitions[0] in self.groups:
                self.profiling.append(view)
        if params.variant != "paper" and params.objective == "work":
            self.terms = replace(self.terms, weights=self._weights())

    # -- what is known ---------------------------------------------------------------------------------------

    def profile(self, view: JobView) -> Profile | None:
        """The job's phases, once they are known."""
        found = self._profiles.get(view.job.id, self)
        if found is self:
            found = self._profiles[view.job.id] = profile_of(view.beliefs, self.params.profile_iterations)
        assert not isinstance(found, Turn)
        return found

    def _weights(self) -> Weights:
        """What counts for how much, and how rounds differ from equation 1, by the jobs that are there.

        A link is worth as many machines as make COMP and COMM of all jobs balance: so COMM that gets done is worth
        the same wherever it is, and two jobs that only communicate are better off apart.
        """
        jobs, found = self.snapshot.jobs.data(), []
        for queue in (self.snapshot.placed, self.snapshot.waiting):
            views = (jobs[entry[-1]] for entry in islice(queue, _SAMPLED))
            found += [p for v in views if v.job.kind is Kind.PARAMETER_SERVER and (p := self.profile(v)) is not None]
        comp, comm = sum(p.comp_machine_s for p in found), sum(p.comm_s for p in found)
        price = min(max(comp / comm, 1.0), max(1.0, float(len(self.snapshot.nodes)))) if comm > 0 else 1.0
        link = sum(p.link for p in found) / len(found) if found else 1.0
        barrier = sum(p.barrier for p in found) / len(found) if found else 0.0
        return self.params.weights._replace(price=price, link=link, barrier=barrier)

    def _groupable(self, view: JobView) -> bool:
        job = view.job
        key = (job.kind, job.sizes[0], job.demand, job.max_nodes, job.gpu_kinds, job.gpu_mem_mib, job.tasks is None)
        if key not in self._fits:
            self._fits[key] = groupable(job, (v.node for v in self.snapshot.nodes.values() if v.up))
        return self._fits[key]

    def _awaited(self) -> bool:
        """Is a job in a group yet to be profiled? One whose profile is unsound is not waited for."""
        return any(self.profile(v) is None and not unsound(v.beliefs) for v in self.profiling)

    def _tenants(self, pid: str) -> list[JobView]:
        partition = self.hall.group(pid)
        return [self.snapshot.jobs[t.job] for t in partition.tenants] if partition is not None else []

    def _nodes(self, pid: str) -> list[str]:
        partition = self.hall.group(pid)
        return [s.node for s in partition.slices] if partition is not None else []

    # -- the steps -------------------------------------------------------------------------------------------

    def start_others(self) -> None:
        """Jobs that are not for groups run alone, first come first served, where there is room."""
        for view in self.hall.candidates(self.hall.free_gpus) if self.others else ():
            if not self._groupable(view) and not self.hall.start(view, "starts: alone, for it takes no turns"):
                self.hall.pass_over(view)

    def settle(self) -> None:
        """Jobs whose profiles are known now go where they raise utilisation most, or wait."""
        settled = any(g.had for g in self.groups.values())
        new = [v for v in self.profiling if self.profile(v) is not None]
        if not settled:
            if (new or self._ready()) and not self._awaited():
                self._regroup(list(self.groups.values()), self.hall.free_machines())
            return
        before = len(self.turned_down)
        for view in new:
            if not self.turned_down or not self.groups[view.partitions[0]].had:
                self._join(view)
            else:
                self._turn_down(view, "waits: others who wait would do as well")
        for view in [v for v in self.new if self.profile(v) is not None]:
            if self.turned_down:
                self._turn_down(view, "waits: the groups that run need nobody else")
            else:
                self._join(view)
        if self.params.variant != "paper" and len(self.turned_down) > before and self._half_idle():
            self._widen([])  # Who wait would do as well as who run, but not where most processors idle.

    def _half_idle(self) -> bool:
        busy = sum(g.use()[0] * g.machines for g in self.groups.values() if g.had)
        return busy < len(self.snapshot.nodes) / 2

    def repair(self) -> None:
        """Groups that somebody left get another like him, or are regrouped; machines of no group are handed out."""
        for group in [g for g in self.groups.values() if g.broken]:
            if group.id not in self.groups:
                continue  # An earlier repair has changed it.
            partition = self.hall.group(group.id)
            assert partition is not None
            comp, comm = members.left_behind(partition, self.snapshot)
            if comp + comm > _WORTH and not (self._seat_overdue(group) or self._replace(group, comp, comm)):
                self._widen([group])
            if group.id in self.groups and self.groups[group.id].broken:
                self._form(group.id, self._nodes(group.id), self._tenants(group.id), "goes on: its group stays")
        settled = any(g.had for g in self.groups.values())
        if (settled or self._ready()) and not (self._awaited() and not settled) and self.hall.free_machines():
            self._widen([])

    def take_in(self) -> None:
        """Newcomers are profiled: in groups of their own where machines are free, else in the smallest group."""
        new = [v for v in self.new if self.profile(v) is None and not self._has(v)]
        if not new:
            return
        free = self.hall.free_machines()
        while free and new:
            wanted = max(min(len(free), self.params.profile_machines), new[0].job.sizes[0])
            nodes, rest = free[:wanted], free[wanted:]
            if len(rest) < wanted:
                nodes, rest = free, []
            seated = self._form(
                self.hall.new_id(), nodes, new[: self.params.profile_at_once], "starts: to be profiled in a new group"
            )
            if not seated:
                break
            new = [v for v in new if v not in seated]
            free = rest
        if any(g.had for g in self.groups.values()) or not self._awaited():
            for view in new:
                self._profile_in_a_group(view)

    def _profile_in_a_group(self, view: JobView) -> None:
        """Beside a newcomer that is profiled already, else in the group with the fewest machines."""
        new: dict[str, int] = {}
        for pid in self.groups:
            new[pid] = sum(1 for v in self._tenants(pid) if self.profile(v) is None) if self._may_have_new(pid) else 0
        profiling = [g for g in self.groups.values() if new[g.id] and g.had]
        open_ones = [g for g in profiling or self.groups.values() if new[g.id] < self.params.profile_at_once]
        open_ones.sort(key=lambda g: (g.machines, g.number))
        for group in open_ones[:_TRIES]:
            others = self._tenants(group.id)
            if view in self._form(
                group.id, self._nodes(group.id), [*others, view], f"joins {group.id}: to be profiled there"
            ):
                return
            self._form(group.id, self._nodes(group.id), others, "goes on: its group stays")

    def _may_have_new(self, pid: str) -> bool:
        return pid in self.views or any(v.partitions[0] == pid for v in self.profiling)

    # -- changes ---------------------------------------------------------------------------------------------

    def _has(self, view: JobView) -> bool:
        return any(view in views for views in self.views.values())

    def _form(self, pid: str, nodes: Sequence[str], views: Sequence[JobView], why: str) -> tuple[JobView, ...]:
        """Make a group what it shall be, with reasons and memos; who is seated."""
        hall, before = self.hall, self.groups.pop(pid, None)
        told = {v.job.id for v in self._tenants(pid) if v.job.id in hall.reasons}  # for an earlier change of this plan
        if hall.group(pid) is not None:
            hall.dissolve(pid)
        seated = hall.form(pid, nodes, views if self.params.reloading else fitting(views, len(nodes)))
        self.views.pop(pid, None)
        if not seated:
            return ()
        memos = members.memos_of(len(nodes), seated, [self.profile(v) for v in seated])
        hall.memos.update({job: memo for job, memo in memos.items() if self.snapshot.jobs[job].memo != memo})
        for job in [j for j in hall.memos if j in memos and memos[j] == self.snapshot.jobs[j].memo]:
            del hall.memos[job]
        profiles = [p for v in seated if (p := self.profile(v)) is not None]
        number = min(v.number for v in seated)
        now = Group(
            pid, number, len(nodes), len(seated), sum(p.comp_machine_s for p in profiles),
            sum(p.comm_s for p in profiles), max((p.iteration_s(len(nodes)) for p in profiles), default=0.0),
            len(seated) if profiles else 0,
        )  # fmt: skip
        self.groups[pid] = now
        self.views[pid] = list(seated)
        self._say(pid, why, before, now, told)
        return seated

    def _say(self, pid: str, why: str, before: Group | None, now: Group, told: set[str]) -> None:
        """A reason for each job whose standing changes."""
        new, old = self.hall.group(pid), self.snapshot.partitions.get(pid)
        assert new is not None
        kept = set(old.tenants) if old is not None and old.slices == new.slices else set()
        cpu, net = now.use()
        was = f"{before.use()[0]:.0%} → " if before is not None and before.had else ""
        was_net = f"{before.use()[1]:.0%} → " if before is not None and before.had else ""
        use = f": CPU {was}{cpu:.0%}, network {was_net}{net:.0%}" if now.had and why.startswith("joins") else ""
        for tenant in new.tenants:
            if tenant not in kept:
                if tenant.job not in told:
                    self.hall.reasons[tenant.job] = why + use
            elif tenant.job not in self.hall.memos:
                self.hall.reasons.pop(tenant.job, None)

    def _turn_down(self, view: JobView, why: str) -> None:
        """The job waits; if it is in a group, it leaves it."""
        for pid in view.partitions:
            if pid in self.groups and view in self._tenants(pid):
                self._form(pid, self._nodes(pid), [v for v in self._tenants(pid) if v is not view], "goes on")
        self._let_wait(view, why)

    def _let_wait(self, view: JobView, why: str) -> None:
        self.hall.reasons[view.job.id] = why
        self.hall.memos[view.job.id] = TURNED_DOWN
        self._settled(view)
        self.turned_down.append(view)

    def _join(self, view: JobView) -> bool:
        """To the group whose utilisation it raises most; it waits if it raises none."""
        profile, weights = self.profile(view), self.terms.weights
        assert profile is not None
        gains = [
            (g.with_job(profile).value(weights) - g.value(weights) - self._move_costs(view, g), -g.number, g)
            for g in self.groups.values()
            if g.machines >= view.job.sizes[0]
        ]
        gains.sort(key=lambda x: x[:2], reverse=True)
        for gain, _number, group in gains[:_TRIES]:
            if gain <= _WORTH:
                break
            if group.had and gain < self.params.join_gain * group.machines:
                continue  # It would slow the others down for next to nothing.
            tenants, nodes = self._tenants(group.id), self._nodes(group.id)
            if view in tenants:
                self._form(group.id, nodes, tenants, f"joins {group.id}")
                self._settled(view)
                return True
            if view in self._form(group.id, nodes, [*tenants, view], f"joins {group.id}"):
                if view.partitions:
                    self.budget_s -= self._stands_still_s(view, group.machines, group.jobs + 1)
                self._leave(view, group.id)
                self._settled(view)
                return True
            self._form(group.id, nodes, tenants, "goes on: its group stays")
        self._turn_down(view, "waits: it would raise the utilisation of no group")
        return False

    def _move_costs(self, view: JobView, to: Group) -> float:
        """What a move takes off a gain, in machines; nothing where the job is already, or if it holds nothing."""
        if not view.partitions or to.id in view.partitions:
            return 0.0
        return self._stands_still_s(view, to.machines, to.jobs + 1) / self.params.horizon_s

    def _stands_still_s(self, view: JobView, machines: float, jobs: int) -> float:
        """Machine time that a migration takes: the job's part of the group's machines idles."""
        return view.costs.restart_s(warm=False) * machines / jobs

    def _settled(self, view: JobView) -> None:
        self.new = [v for v in self.new if v is not view]
        self.turned_down = [v for v in self.turned_down if v is not view]

    def _ready(self) -> list[JobView]:
        """All who wait and are profiled, in order; while somebody's patience is over, only such."""
        if first := [v for v in self.turned_down if self._overdue(v)]:
            return first
        new = [v for v in self.new if self.profile(v) is not None]
        return sorted([*new, *self.turned_down], key=lambda v: v.number) if new else self.turned_down

    def _overdue(self, view: JobView) -> bool:
        return regroup.overdue(view, self.snapshot.now_s, self.params.patience_s)

    def _seat_overdue(self, group: Group) -> bool:
        """Whose patience is over takes the place of whoever left, whatever that does to the group."""
        tenants, nodes = self._tenants(group.id), self._nodes(group.id)
        for view in [v for v in self.turned_down if self._overdue(v) and v.job.sizes[0] <= group.machines][:_TRIES]:
            if view in self._form(group.id, nodes, [*tenants, view], f"joins {group.id}, for it has waited long"):
                self._settled(view)
                return True
            self._form(group.id, nodes, tenants, "goes on: its group stays")
        return False

    def _sends_away(self, old: Mapping[str, Sequence[JobView]], new: Sequence[Sequence[JobView]]) -> bool:
        """Would somebody who runs, and has waited long enough before, have to wait again?"""
        stay = {v.job.id for views in new for v in views}
        running = [v for views in old.values() for v in views if self.profile(v) is not None]
        return any(self._overdue(v) for v in running if v.job.id not in stay)

    def _leave(self, view: JobView, keep: str) -> None:
        """Take the job out of the group it was in, now that it is in another."""
        for pid in view.partitions:
            if pid != keep and pid in self.groups:
                rest = [v for v in self._tenants(pid) if v is not view]
                reason = self.hall.reasons.get(view.job.id)
                self._form(pid, self._nodes(pid), rest, "goes on: its group stays")
                if reason:
                    self.hall.reasons[view.job.id] = reason

    def _replace(self, group: Group, comp: float, comm: float) -> bool:
        """Fill the place of whoever left by one like him, or a bundle."""
        line = [v for v in self._ready()[:_COMPARED] if v.job.sizes[0] <= group.machines and self.profile(v)]
        profiles = [p for v in line if (p := self.profile(v)) is not None]
        chosen = regroup.substitutes(comp, comm, group.machines, profiles, self.params.similar)
        if not chosen:
            return False
        tenants, nodes = self._tenants(group.id), self._nodes(group.id)
        new = [line[i] for i in chosen]
        like = "like" if len(new) == 1 else "together like"
        seated = self._form(group.id, nodes, [*tenants, *new], f"joins {group.id}, {like} the job that left it")
        for view in new:
            if view in seated:
                self._settled(view)
        return any(v in seated for v in new)

    # -- regrouping ------------------------------------------------------------------------------------------

    def _search(
        self, profiles: Sequence[Profile], machines: int, least: Sequence[int], wanted: float = 0.0
    ) -> Grouping:
        variant = self.params.variant
        if variant == "paper":
            return as_printed(profiles, machines, self.terms, least)
        if variant == "oracle" and len(profiles) <= MOST_JOBS and machines <= MOST_MACHINES:
            return exhaustive(profiles, machines, self.terms, least)
        return schedule(profiles, machines, self.terms, least, wanted)

    def _widen(self, start: list[Group]) -> None:
        """Regroup these and ever more groups; a wider one must win over a narrower, and any over what there is."""
        free = self.hall.free_machines()
        others = sorted(
            (g for g in self.groups.values() if g.id not in {s.id for s in start} and g.had),
            key=lambda g: (g.jobs, g.number),
        )
        best: tuple[list[Group], list[JobView], Grouping] | None = None
        best_worth = best_moves_s = 0.0  # of the best so far, on its own machines
        reach: list[Group] = []
        few = len(self.groups) <= self.params.widest
        most = 10**9 if few else self.params.widest

        def involved(width: int) -> int:
            return sum(g.jobs for g in (*start, *others[:width]))

        for width in regroup.widths(len(others), involved, most):
            reach = [*start, *others[:width]]
            line = self._line(reach)
            machines = sum(g.machines for g in reach) + len(free)
            if not line or not machines:
                continue
            profiles = [p for v in line if (p := self.profile(v)) is not None]
            kept = best[0] if best is not None else []
            before = sum((g.value(self.terms.weights) for g in reach if g not in kept), best_worth)
            wanted = (1 + self.params.regroup_gain) * before
            found = self._search(profiles, machines, [v.job.sizes[0] for v in line], wanted / machines)
            now = found.use * machines
            tenants = {g.id: self._tenants(g.id) for g in reach}
            new = [[line[i] for i in group] for group in found.groups]
            moves_s = regroup.standing_still_s(tenants, {g.id: g.machines for g in reach}, new, found.machines)
            saved = moves_s <= self.budget_s or now >= _MUCH * before
            pays = saved and moves_s <= (now - before) * self.params.horizon_s
            if pays and now > 0 and now >= wanted and not self._sends_away(tenants, new):
                best, best_worth, best_moves_s = (reach, line, found), now, moves_s
        if best is not None:
            self.budget_s -= best_moves_s
            self._apply(best[0], free, best[1], best[2])

    def _line(self, groups: Iterable[Group]) -> list[JobView]:
        """Those who run first, by submission, then those who wait: the list that Algorithm 1 takes a prefix of."""
        running = [v for g in groups for v in self._tenants(g.id) if self.profile(v) is not None]
        running.sort(key=lambda v: v.number)
        many = len(self.groups) > self.params.widest
        ready = self._ready()[: self.params.looked_at // 4 if many else self.params.looked_at]
        return [*running, *(v for v in ready if self.profile(v) is not None)]

    def _regroup(self, groups: list[Group], free: list[str]) -> None:
        """Group all of these anew, with all who wait, whatever it gains."""
        running = [v for g in groups for v in self._tenants(g.id) if self.profile(v) is not None]
        running.sort(key=lambda v: v.number)
        line = [*running, *(v for v in self._ready() if self.profile(v))]
        machines = sum(g.machines for g in groups) + len(free)
        profiles = [p for v in line if (p := self.profile(v)) is not None]
        if line and machines:
            found = self._search(profiles, machines, [v.job.sizes[0] for v in line])
            if found.groups:
                self._apply(groups, free, line, found)

    def _apply(self, old: list[Group], free: list[str], line: Sequence[JobView], found: Grouping) -> None:
        """Write a grouping down, so that few jobs and machines move."""
        nodes = {g.id: self._nodes(g.id) for g in old}
        tenants = {g.id: self._tenants(g.id) for g in old}
        uses = {g.id: g for g in old}
        new = [[line[i] for i in group] for group in found.groups]
        names = regroup.names_for(new, tenants)
        pool = [*free, *(n for g in old if g.id not in names for n in nodes[g.id])]
        passengers = {pid: [v for v in views if self.profile(v) is None] for pid, views in tenants.items()}
        for group in old:
            if self.hall.group(group.id) is not None:
                self.hall.dissolve(group.id)
            self.groups.pop(group.id, None)
            self.views.pop(group.id, None)
        placed: set[str] = set()
        # Groups that shrink come first: what they give up is for those that grow.
        plan = sorted(zip(new, found.machines, names, strict=True), key=lambda x: x[1] - len(nodes.get(x[2] or "", ())))
        stray = [v for pid, views in passengers.items() if pid not in names for v in views]
        for views, machines, name in plan:
            mine = nodes.get(name or "", [])
            pool += mine[machines:]
            mine = mine[:machines]
            take = machines - len(mine)
            mine, pool = [*mine, *pool[:take]], pool[take:]
            pid = name or self.hall.new_id()
            if name in uses:
                self.groups[pid] = uses[name]
            guests = [*passengers.get(name or "", []), *stray]
            seated = self._form(pid, mine, [*views, *guests], f"joins {pid}")
            stray = [v for v in stray if v not in seated]
            placed.update(v.job.id for v in seated)
            if not seated:
                pool += mine
        for view in line:
            if view.job.id in placed:
                self._settled(view)
            else:
                self._let_wait(view, "waits: the groups are in balance without it")
        for view in [v for views in passengers.values() for v in views if v.job.id not in placed]:
            self.hall.reasons[view.job.id] = "waits: it is to be profiled, and no group has room for it"

    # -- the end ---------------------------------------------------------------------------------------------

    def plan(self) -> Plan:
        """What was decided. Whoever waits though something is free is told why."""
        hall, snapshot = self.hall, self.snapshot
        for job in [j for j, memo in hall.memos.items() if snapshot.jobs[j].memo == memo]:
            del hall.memos[job]
        for entries in snapshot.waiting.buckets().values() if not hall.full else ():
            first = snapshot.jobs[entries[0][-1]].job
            if hall.capacity.place(first, first.sizes[0]) is None:
                continue
            for entry in entries:
                view = snapshot.jobs[entry[-1]]
                if entry[0][0] < 2 and not self._has(view):
                    flaw = unsound(view.beliefs)
                    why = "the groups are in balance without it" if self.profile(view) else "it is to be profiled"
                    hall.reasons.setdefault(view.job.id, f"waits: {flaw or why}")
        # What a group gave up may be what somebody else waits for.
        at_s = snapshot.now_s if hall.freed and hall.free_machines() and snapshot.waiting.count else None
        if at_s is None:
            at_s = regroup.next_overdue_s(self.turned_down, snapshot.now_s, self.params.patience_s)
        # Only what is spent is noted, so that it does not matter how often somebody asks.
        noted = snapshot.memo is not None and self.budget_s == self._had_s
        memo = snapshot.memo if noted else [snapshot.now_s, self.budget_s]
        return hall.plan(Wake(freed_gpus=1, epoch=False, at_s=at_s), memo)
