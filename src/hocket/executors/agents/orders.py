"""From what is to be done with a job to orders for the agents of its nodes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from hocket.agent.protocol import Order, Report, RunKey, SaveRun, StartRun, StopRun, SuspendRun
from hocket.control.ports import SecretsLost, SecretsOf
from hocket.executors.agents.broken_parts import BrokenParts
from hocket.executors.agents.launching import continue_order, prepare_order, resize_orders, run_orders
from hocket.executors.agents.local_effects import resizes_in_place
from hocket.executors.agents.multi_node_exits import nodes_of_attempt
from hocket.executors.agents.reports_to_events import is_finish
from hocket.executors.agents.run_numbers import changes_place, coming, going, nodes_of, present, tenancy_of
from hocket.executors.agents.sessions import Sessions
from hocket.executors.agents.standby_runs import StandbyRuns, keeps_standby, was_let_go
from hocket.model.event import Event, JobFailed, JobPrepared
from hocket.model.job import Job, Kind
from hocket.model.partition import Holding, Sharing
from hocket.model.snapshot import Snapshot
from hocket.model.suspension import can_be_suspended
from hocket.model.view import Doing, JobView, Tenancy, Tier

_SUSPEND_S = 10.0  # for a query to stop itself: after its batch, or after half of that


def _no_secrets(_job: Job) -> Mapping[str, str]:
    raise SecretsLost("its secrets are not kept here")


def grace_of(view: JobView) -> float:
    """Seconds that the job has to save its state and leave."""
    return view.job.launch.grace_s if view.job.launch is not None else 30.0


class Orders:
    """Tells agents to run, prepare, save, stop and forget. One that is not there is told when it says hello."""

    def __init__(self, snapshot: Snapshot, sessions: Sessions, prepares: bool) -> None:
        self.snapshot = snapshot  # the newest
        self.prepares = prepares  # next runs before the present ones leave
        self.secrets_of: SecretsOf = _no_secrets
        self._sessions = sessions
        self._standby = StandbyRuns()
        self.broken = BrokenParts()
        self._failed: list[tuple[str, str]] = []  # jobs that cannot be started, and why

    def run(self, view: JobView, to: Holding) -> None:
        """Start the next run, or let its suspended process go on.

        One that can be prepared is, if need be at this moment: its workers become of one.
        """
        if view.suspended is not None:
            self._tell([view.suspended.node], continue_order(view.job, present(view), to))
            return
        if self.broken.must_wait(view.job):
            return
        orders = self._start_orders(view, coming(view), to)
        if orders and self.prepares and view.job.warm and not self._is_ready(view):
            self.prepare(view)
        for node, order in orders.items():
            self._sessions.tell(node, [order])

    def _start_orders(self, view: JobView, run: RunKey, to: Holding) -> dict[str, StartRun]:
        """The orders by node; none if the job cannot be started, for its secrets cannot be had."""
        secrets: Mapping[str, str] = {}
        if view.job.launch is not None and view.job.launch.secrets:
            try:
                secrets = self.secrets_of(view.job)
            except SecretsLost as error:
                self._failed.append((view.job.id, str(error)))
                return {}
        partition = self.snapshot.partitions.get(to.partition)
        sharing = Sharing.ALONE if partition is None else partition.sharing
        return run_orders(view.job, run, to, self._sessions.addresses(), secrets, sharing)

    def run_released(self) -> None:
        """Start the runs that had to wait until nothing was left of the one before."""
        for job_id in self.broken.released():
            view = self.snapshot.jobs.get(job_id)
            tenancy = None if view is None else tenancy_of(view)
            if view is None or tenancy is None:
                continue
            if tenancy.doing is Doing.NOTHING:
                # A part of it runs since before this controller, and says so; others may not have had the order.
                self.run_parts(view, nodes_of(view))
            elif tenancy.coming is not None and self._awaits_next_run(view, tenancy):
                self.run(view, tenancy.coming)

    def run_parts(self, view: JobView, nodes: Iterable[str]) -> None:
        """Start the present run on some of its nodes, where it may stand prepared. What runs there already goes on."""
        tenancy = tenancy_of(view)
        if tenancy is None or tenancy.holding is None:
            return
        orders = self._start_orders(view, present(view), tenancy.holding)
        for node in nodes:
            if node in orders:
                self._sessions.tell(node, [orders[node]])

    def _awaits_next_run(self, view: JobView, tenancy: Tenancy) -> bool:
        """Whether nothing runs of the job until its next run has started."""
        return tenancy.doing is Doing.STARTING or (changes_place(tenancy) and self.has_left(view))

    def failures(self, now_s: float) -> list[Event]:
        """Jobs that could not be started since this was last asked: their secrets cannot be had. They are over."""
        failed, self._failed = self._failed, []
        return [JobFailed(now_s, job_id, why, final=True) for job_id, why in failed if job_id in self.snapshot.jobs]

    def save(self, view: JobView) -> None:
        """Have the job write a checkpoint while it runs."""
        self._tell(nodes_of(view), SaveRun(present(view)))

    def stop(self, view: JobView) -> None:
        """Stop what of the job has processes; of one that changes its place, the old run."""
        self._standby.awaited.discard(view.job.id)
        grace_s = grace_of(view)
        tenancy = tenancy_of(view)
        keep = str(view.keep) if view.keep in (Tier.DISK, Tier.NONE) and not view.verdict else ""
        runs = going(view)
        if tenancy is not None and changes_place(tenancy):
            runs = [present(view)]
        for run in runs:
            self._tell(nodes_of_attempt(view, run), StopRun(run, grace_s, keep))

    # -- a pause in memory ------------------------------------------------------------------------------------

    def pause_or_end(self, view: JobView) -> None:
        """Have the job leave what it holds: its process is suspended if its state is to be kept in memory."""
        tenancy = tenancy_of(view)
        held = tenancy.holding if tenancy is not None else None
        stays = view.storing is Tier.MEMORY and not view.verdict
        if stays and held is not None and can_be_suspended(view.job, held):
            self._suspend(view)
        else:
            self.stop(view)

    def _suspend(self, view: JobView) -> None:
        """Stop the job's process, which keeps its memory. A query may finish its batch before."""
        self._standby.awaited.discard(view.job.id)
        grace_s = _SUSPEND_S if view.job.kind is Kind.QUERY else 0.0
        self._tell(nodes_of_attempt(view, present(view)), SuspendRun(present(view), grace_s))

    def store(self, view: JobView) -> bool:
        """Have a suspended process write its state and end; or only end, if its state is not wanted.

        False if there is nothing to do: it is to stay, or there is no process that could be told.
        """
        if view.suspended is None or view.storing not in (Tier.DISK, Tier.NONE):
            return False
        grace_s = 0.0 if view.storing is Tier.NONE else grace_of(view)
        self._tell([view.suspended.node], StopRun(present(view), grace_s, str(view.storing)))
        return True

    def start_after_store(self, job_id: str) -> None:
        """A suspended process has ended. If its job was told to go on in it, a new run begins."""
        view = self.snapshot.jobs.get(job_id)
        tenancy = None if view is None else tenancy_of(view)
        if view is not None and tenancy is not None and tenancy.doing is Doing.STARTING and view.suspended is None:
            assert tenancy.coming is not None
            self.run(view, tenancy.coming)

    def forget(self, job_id: str) -> None:
        """The job is over: nothing of it is needed any more."""
        self._standby.forget(job_id)
        self.broken.forget(job_id)
        self._sessions.tell_forget(job_id)

    def _tell(self, nodes: Iterable[str], order: Order) -> None:
        for node in nodes:
            self._sessions.tell(node, [order])

    # -- a change of place: the next run, beside the present one ----------------------------------------------

    def resize(self, view: JobView) -> None:
        """A job is to go on elsewhere, or with other resources: in its process if it can, else in its next run."""
        tenancy = tenancy_of(view)
        if not resizes_in_place(view) or tenancy is None or tenancy.coming is None:
            self._leave(view)
            return
        for node, order in resize_orders(view.job, present(view), tenancy.coming).items():
            self._sessions.tell(node, [order])

    def _leave(self, view: JobView) -> None:
        """It leaves when its next run stands ready."""
        if not (self.prepares and view.job.warm) or self._is_ready(view):
            self.stop(view)
            return
        self._standby.awaited.add(view.job.id)
        self.prepare(view)

    def left(self, view: JobView, report: Report) -> None:
        """A run is gone. If it was to change its place, the next one begins in the new one."""
        tenancy = tenancy_of(view)
        if tenancy is None or not changes_place(tenancy) or report.run != present(view):
            return
        if is_finish(report):
            self._standby.awaited.discard(view.job.id)
            self._standby.left(report.run)
        else:
            self.begin_in_new_place(view)

    def begin_in_new_place(self, view: JobView) -> None:
        """Nothing is left of the present run of a job that changes its place: the next one begins."""
        self._standby.awaited.discard(view.job.id)
        self._standby.left(present(view))
        tenancy = tenancy_of(view)
        if tenancy is not None and tenancy.coming is not None:
            self.run(view, tenancy.coming)

    def prepare(self, view: JobView) -> None:
        """Stand the next run ready where it will be; beside the present one, if nothing else is known."""
        for place in self._places(view):
            for part, replicas in zip(place.slices, place.replicas, strict=True):
                self._sessions.tell(part.node, [prepare_order(view.job, coming(view), replicas)])

    def prepare_again(self) -> list[Event]:
        """A node was lost, and maybe what was prepared there for a plan that has changed since: no agent will say so.

        Those that have no place any more start cold, which is true at once.
        """
        cold: list[Event] = []
        for view in self.snapshot.jobs.values() if self.prepares else ():
            if view.preparing and view.partitions:
                self.prepare(view)
            elif view.preparing:
                cold.append(JobPrepared(self.snapshot.now_s, view.job.id))
        return cold

    def prepared(self, view: JobView, report: Report, node: str) -> None:
        """A node's agent has a run ready: a run that waits for it leaves.

        If the run is over by now, or was started on another node, it is stopped here.
        """
        latest = present(view)
        if report.run.number < latest.number or (report.run == latest and node not in nodes_of(view)):
            self._tell([node], StopRun(report.run, 0.0))
            return
        self._standby.prepared(report.run, node)
        if view.job.id in self._standby.awaited and self._is_ready(view):
            self.stop(view)

    def has_left(self, view: JobView) -> bool:
        """Whether nothing is left of the present run of a job that changes its place, as far as is known here."""
        return self._standby.has_left(present(view))

    def is_only_standby(self, view: JobView, gone: Report) -> bool:
        """Is what is gone the next run, while the present one holds what the job has? That one goes on, or leaves."""
        tenancy = tenancy_of(view)
        if tenancy is None or gone.run != coming(view):
            return False
        if tenancy.coming is not None and self._awaits_next_run(view, tenancy) and was_let_go(gone):
            self.run(view, tenancy.coming)  # It stood by when its agent was told to leave, and begins again.
            return True
        if tenancy.holding is None or self.has_left(view):
            return False
        if view.job.id in self._standby.awaited:
            self.stop(view)
        return True

    def renew_standby(self, job_id: str, broke: bool) -> None:
        """A run goes on: prepare the one after it. Or it broke, and what stands by has a number that is passed over.

        Where the run stood ready on nodes that it was not started on, it is stopped.
        """
        view = self.snapshot.jobs.get(job_id)
        spare = keeps_standby(view) and self.prepares if view is not None else False
        if view is not None:
            used = () if broke and spare else nodes_of(view)
            unused = [node for node in self._standby.nodes(present(view)) if node not in used]
            self._tell(unused, StopRun(present(view), 0.0))
        if job_id in self._standby.awaited and not broke:
            return  # The cycle in which it went on also moves it: what stands by is what it leaves for.
        self._standby.forget(job_id)
        if view is not None and spare and not broke:
            self.prepare(view)

    def _is_ready(self, view: JobView) -> bool:
        return self._standby.is_ready(coming(view), (part.node for p in self._places(view) for part in p.slices))

    def _places(self, view: JobView) -> list[Holding]:
        if (tenancy := tenancy_of(view)) is not None:
            there = tenancy.coming or tenancy.holding
            return [there] if there is not None else []
        planned = [self.snapshot.partitions[pid] for pid in view.partitions]
        return [Holding(p.id, p.slices, p.tenants[0].replicas) for p in planned]
