"""All jobs there ever were, by the journal's cycles: what became of each, and why, in words.

Those that are over go to a table in a file beside the journal (`ended_jobs.py`), so that neither memory nor a start
grows with them. The table is made of the journal and can be removed: without it, all cycles are folded once.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace

from hocket.control.fold import observation
from hocket.control.held_time import HeldTime, held_at_submission
from hocket.control.ports import Beginning, Cycle, DurableJournal
from hocket.model.criterion import Convergence, Goal, RunTime, Steps
from hocket.model.event import (
    EpochEnded,
    Event,
    JobAsked,
    JobEnded,
    JobFailed,
    JobMoved,
    JobPaused,
    JobRequest,
    JobResized,
    JobSaved,
    JobStarted,
    JobSubmitted,
    JobWarned,
    MetricUnseen,
    NodeLost,
    ProgressReported,
    StateStored,
    WorkLost,
)
from hocket.model.job import Job
from hocket.model.plan import Plan
from hocket.model.view import RECENT_OBSERVATIONS, JobView, Tier
from hocket.service.ended_jobs import EndedJobs, EndedJobsError, Mark, checksum
from hocket.service.kept_jobs import KeptJobs, decode_block, decode_jobs
from hocket.service.names import Names
from hocket.service.record import GOES_ON, Record

_log = logging.getLogger("hocket.service")
JobReport = EpochEnded | ProgressReported
_RECORDS = 500  # that changed, after which all of them are written to the table: no cycle has many to write
_RETRY = 100  # cycles after which to try again what failed
_CYCLES = 10_000  # after which they do so in any case: so many at most are folded at a start


class Catalogue:
    """The records by id: in memory those of live jobs, and ended ones that are not in the table yet."""

    def __init__(self, ended_jobs: EndedJobs | None = None) -> None:
        self.records: dict[str, Record] = {}  # in the order of submission
        self.queue_reason = ""  # what was last said of all that wait
        self.over: Counter[str] = Counter()  # verdict → how many ended with it
        self.names = Names()
        self._ended = ended_jobs
        self._submitted = 0
        self._cycles = 0  # since the table was brought up to date
        self._not_before = 0  # the number of the cycle after which to try again
        self._changed: set[str] = set()
        self._followers: dict[str, list[str]] = {}  # live job → those that start after it
        self._last: Cycle | None = None

    @classmethod
    def of(cls, journal: DurableJournal, ended_jobs: EndedJobs | None) -> Catalogue:
        """The catalogue after the last cycle of a journal."""
        catalogue = cls(ended_jobs)
        begun = catalogue._restore(journal)
        for number, cycle in enumerate(journal.after(begun), begun + 1):
            catalogue.add_cycle(cycle)
            catalogue.store_ended(number)
        return catalogue

    # -- for callers --------------------------------------------------------------------------------------------

    def get(self, job_id: str) -> Record | None:
        """A job's record. For any thread. Raises EndedJobsError."""
        record = self.records.get(job_id)
        return record if record is not None or self._ended is None else self._ended.get(job_id)

    def known(self, job_id: str) -> Record | None:
        """The same, faster, and for the controller's thread alone."""
        record = self.records.get(job_id)
        return record if record is not None or self._ended is None else self._ended.find(job_id)

    def known_among(self, ids: Sequence[str]) -> dict[str, Record]:
        """Id → record, of those of these jobs that there are; much faster than one by one."""
        found = {job_id: record for job_id in ids if (record := self.records.get(job_id)) is not None}
        if self._ended is not None and len(found) < len(ids):
            found |= self._ended.among([job_id for job_id in ids if job_id not in found])
        return found

    def listed(self, *, over: bool = False, owner: str = "", limit: int | None = None) -> list[Record]:
        """The last `limit` live jobs, with `over` ended ones too, in the order of submission. Raises EndedJobsError."""
        found = [
            r for r in list(self.records.values()) if over or r.ended_s is None
        ]  # First: they may go to the table.
        if owner:
            found = [r for r in found if r.job.owner == owner]
        if over and self._ended is not None:
            here = {r.number for r in found}
            found += [r for r in self._ended.over(owner, limit) if r.number not in here]
            found.sort(key=lambda r: r.number)
        return found if limit is None else found[max(0, len(found) - limit) :]

    # -- what happens -------------------------------------------------------------------------------------------

    def add_cycle(self, cycle: Cycle) -> list[str]:
        """Take in a cycle; gives the jobs that it changed."""
        changed: dict[str, None] = {}
        for event in cycle.events:
            self._fold(event, cycle.at_s, changed)
        if cycle.refused:
            self.queue_reason = f"waits: what the policy decided last was refused: {cycle.refused[0]}"
        elif cycle.plan is not None:
            self.queue_reason = cycle.plan.reasons.get("*", "")
            placed: set[str] = set()
            for partition in cycle.plan.put:
                for tenant in partition.tenants:
                    placed.add(tenant.job)
                    if (record := self.records.get(tenant.job)) is not None:
                        record.nodes = [part.node for part in partition.slices]
                        record.gpus = [f"{part.node}:{gpu}" for part in partition.slices for gpu in part.gpus]
                        record.size = sum(tenant.replicas)
                        changed[tenant.job] = None
            for job_id, reason in cycle.plan.reasons.items():
                record = self.records.get(job_id)
                if record is not None and record.reason != reason:
                    record.reason = reason
                    record.note(cycle.at_s, _decided(job_id, reason, placed, cycle.plan), reason)
                    changed[job_id] = None
        self._changed.update(changed)
        self._cycles += 1
        self._last = cycle
        return list(changed)

    def set_reason(self, job_id: str, reason: str) -> None:
        """Take over what the state says of a live job, such as why it is being ended."""
        record = self.records.get(job_id)
        if record is not None and reason:
            record.reason = reason

    def update_from_state(
        self, cycle: Cycle, changed: Iterable[str], live: Mapping[str, JobView], before: Mapping[str, JobView]
    ) -> None:
        """Take over what the state says of the jobs that a cycle changed; `before` has those that it ended."""
        reports: dict[str, list[JobReport]] | None = None
        for job_id in changed:
            if (view := live.get(job_id)) is not None:
                self.set_reason(job_id, view.reason)
            elif job_id in before:
                reports = reports_by_job(cycle) if reports is None else reports
                self.keep_observations(job_id, before[job_id], reports.get(job_id, ()))

    def keep_observations(self, job_id: str, before: JobView, reports: Iterable[JobReport]) -> None:
        """Keep the last reports of a job that a cycle ended: those of its view `before` it, and what came with it."""
        record = self.records.get(job_id)
        if record is None or record.ended_s is None:
            return
        for event in reports:
            before = replace(before, observations=(*before.observations, observation(before, event)))
        record.observations = before.observations[-RECENT_OBSERVATIONS:]

    def _fold(self, event: Event, at_s: float, changed: dict[str, None]) -> None:
        if isinstance(event, JobSubmitted):
            self._submitted += 1
            self.names.add(event.job.id)
            new = Record(self._submitted, event.job, at_s)
            if event.job.after or event.job.after_any:
                new.held = held_at_submission(event.job, self._awaited(event.job), at_s)
            self.records[event.job.id] = new
            self._follow(new)
            new.note(at_s, "submitted")
            changed[event.job.id] = None
            return
        job_id = getattr(event, "job", None)
        record = self.records.get(job_id) if isinstance(job_id, str) else None
        if record is None:
            if isinstance(event, NodeLost):
                self._lose(event.node, at_s, changed)
            return
        changed[record.job.id] = None
        match event:
            case JobStarted(in_place=True):
                record.continued(at_s)
                record.note(at_s, "continued", "in its process, which was kept in memory")
            case JobStarted() | JobResized() | JobMoved():
                record.started(at_s, event.attempt)
                record.note(at_s, type(event).__name__.removeprefix("Job").lower())
            case JobPaused():
                if event.node:
                    record.suspended(at_s)
                else:
                    record.stopped(at_s, "paused")
                kept = f"in memory: its process is suspended, with {event.mem_mib:,.0f} MiB" if event.node else ""
                record.note(at_s, "paused", kept)
            case StateStored():
                if record.is_suspended and event.tier is not Tier.MEMORY:
                    record.stopped(at_s, "paused")
                where = {Tier.DISK: "on disk", Tier.MEMORY: "in memory", Tier.NONE: "dropped: it will be done again"}
                record.note(at_s, "state stored", where[event.tier])
            case JobFailed(_, _, reason, final):
                record.failed(at_s, f"failed: {reason}", event.code)
                record.reason = reason
                record.note(at_s, "failed for good" if final else "failed", reason)
                if final:
                    self._end(record, at_s, "failed")
            case JobEnded(_, _, verdict, reason):
                record.stopped(at_s, verdict)
                record.reason = reason or (record.reason if verdict != "finished" else "finished by itself")
                record.note(at_s, verdict, reason)
                self._end(record, at_s, verdict)
            case JobAsked(_, _, request, by):
                record.note(at_s, f"asked to {request}", f"by {by}" if by else "")
                if request is not JobRequest.STOP:
                    record.held = record.held or HeldTime()
                    record.held.is_paused = request is JobRequest.PAUSE
                    record.hold_changed(at_s)
            case JobSaved():
                record.saved_s = at_s
            case WorkLost():
                record.lost_s += event.lost_s
                record.lost_epochs += event.epochs
                record.lost_steps += event.steps
                record.warn(f"{event.in_words}: {event.why}")
                record.note(at_s, "lost work", f"{event.in_words}: {event.why}")
            case JobWarned(_, _, about):
                record.warn(about)
                record.note(at_s, "warning", about)
            case MetricUnseen():
                record.unseen = event.in_words
                record.note(at_s, "warning", event.in_words)
            case EpochEnded(_, _, epoch, metrics) | ProgressReported(_, _, epoch, metrics):
                record.epoch = max(record.epoch, epoch)
                record.metrics = {**record.metrics, **metrics}
                step = event.step if isinstance(event, ProgressReported) else 0
                record.step = max(record.step, step)
                record.reported(event.at_s, epoch, step, metrics)
                if record.unseen and _is_seen(record):
                    record.unseen = ""
                    record.note(at_s, "seen", "what its criterion is about is reported now")

    def _end(self, record: Record, at_s: float, verdict: str) -> None:
        record.ended_s, record.verdict = at_s, verdict
        self.over[verdict] += 1
        for follower in self._followers.pop(record.job.id, ()):
            held = self.records[follower].held if follower in self.records else None
            if held is not None:
                held.awaits = [first for first in held.awaits if first != record.job.id]
                self.records[follower].hold_changed(at_s)

    def _awaited(self, job: Job) -> list[str]:
        """The jobs that it starts after and that have not ended."""
        there = (self.records.get(first) for first in job.predecessors)
        return [record.job.id for record in there if record is not None and record.ended_s is None]

    def _follow(self, record: Record) -> None:
        for first in record.held.awaits if record.held is not None else ():
            self._followers.setdefault(first, []).append(record.job.id)

    def _lose(self, node: str, at_s: float, changed: dict[str, None]) -> None:
        """Jobs that ran there run no more."""
        for record in self.records.values():
            if (record.runs_since_s is not None or record.is_suspended) and node in record.nodes:
                record.stopped(at_s, f"lost its node '{node}'")
                record.note(at_s, "lost its node", f"'{node}'")
                changed[record.job.id] = None

    # -- the table of ended jobs ---------------------------------------------------------------------------------

    def store_ended(self, number: int, *, everything: bool = False) -> None:
        """Bring the table up to date with the cycle of this number, the last that was seen, if it is time."""
        due = len(self._changed) >= _RECORDS or self._cycles >= _CYCLES
        due = (due and number >= self._not_before) or (everything and self._cycles > 0)
        if self._ended is None or self._last is None or not due:
            return
        records = [self.records[job_id] for job_id in self._changed if job_id in self.records]
        newest = dict(self.names.newest)
        mark = Mark(number, checksum(self._last), self._submitted, dict(self.over), self.queue_reason, newest)
        try:
            self._ended.put(records, mark)
        except EndedJobsError as error:
            _log.warning("%s; jobs that are over are kept in memory meanwhile", error)
            self._not_before = number + _RETRY
            return
        self._changed.clear()
        self._cycles = 0
        for record in records:
            if record.ended_s is not None:
                del self.records[record.job.id]

    def kept(self) -> KeptJobs:
        """All that later cycles need of it; of jobs that are over, the counts."""
        live = [record for record in self.records.values() if record.ended_s is None]
        return KeptJobs(self._submitted, dict(self.over), self.queue_reason, dict(self.names.newest), live)

    def take_ended(self) -> list[Record]:
        """The jobs that are over and in memory, which are not there from now on."""
        found = [record for record in self.records.values() if record.ended_s is not None]
        for record in found:
            del self.records[record.job.id]
        return found

    @classmethod
    def begun_at(cls, beginning: Beginning, journal: str) -> Catalogue:
        """The catalogue at the beginning of a journal of this name, without jobs that had ended."""
        catalogue = cls()
        catalogue._begin(decode_jobs(journal, beginning.jobs))
        return catalogue

    def _begin(self, kept: KeptJobs) -> None:
        self.records |= {record.job.id: record for record in kept.live}
        self.names.newest = dict(kept.newest)
        self._submitted, self.over, self.queue_reason = kept.submitted, Counter(kept.over), kept.queue_reason

    def close(self, number: int) -> None:
        """Bring the table up to date, and close it."""
        self.store_ended(number, everything=True)
        if self._ended is not None:
            self._ended.close()

    def _restore(self, journal: DurableJournal) -> int:
        """Begin with what the table has, if it is of this journal; gives the number of the cycle it is at.

        Else begin with the journal, which keeps what is needed of jobs whose cycles were removed.
        """
        mark = None if self._ended is None else self._ended.mark()
        begun = journal.beginning()
        if self._ended is None or mark is None or not _is_of(mark, journal, begun):
            if self._ended is not None:
                self._ended.clear()
            return 0 if begun is None else self._restore_ended(journal, begun)
        self.records = {record.job.id: record for record in self._ended.live()}
        for record in self.records.values():
            self._follow(record)
        self.names.newest = dict(mark.newest)
        self._submitted, self.over, self.queue_reason = mark.submitted, Counter(mark.over), mark.queue_reason
        return mark.cycle

    def _restore_ended(self, journal: DurableJournal, begun: Beginning) -> int:
        for block in journal.ended():
            records = decode_block(journal.name, block)
            if self._ended is None:
                self.records |= {record.job.id: record for record in records}
            else:
                self._ended.fill(records)
        self._begin(decode_jobs(journal.name, begun.jobs))
        self.records = dict(sorted(self.records.items(), key=lambda item: item[1].number))
        self._changed.update(self.records)
        return begun.number


def reports_by_job(cycle: Cycle) -> dict[str, list[JobReport]]:
    """What the jobs reported in a cycle, in order."""
    found: dict[str, list[JobReport]] = {}
    for event in cycle.events:
        if isinstance(event, EpochEnded | ProgressReported):
            found.setdefault(event.job, []).append(event)
    return found


def _decided(job_id: str, reason: str, placed: set[str], plan: Plan) -> str:
    """What a decision with this reason means for the job."""
    if job_id in placed:
        return "given a place"
    return "decided" if job_id in plan.drop or reason.startswith(("waits", "paused")) else GOES_ON


def _is_seen(record: Record) -> bool:
    """Whether the job has reported what its criterion is about: a metric, or a count of epochs or steps."""
    criterion = record.job.criterion
    if isinstance(criterion, Goal | Convergence):
        return criterion.metric in record.metrics
    return bool(record.step if isinstance(criterion, RunTime) and isinstance(criterion.limit, Steps) else record.epoch)


def _is_of(mark: Mark, journal: DurableJournal, begun: Beginning | None) -> bool:
    """Has the journal the very cycle at which the table was brought up to date?"""
    if mark.cycle > len(journal) or (begun is not None and mark.cycle <= begun.number):
        return False
    return any(checksum(cycle) == mark.check for cycle in _first(journal, mark.cycle))


def _first(journal: DurableJournal, number: int) -> list[Cycle]:
    for cycle in journal.after(number - 1):
        return [cycle]
    return []
