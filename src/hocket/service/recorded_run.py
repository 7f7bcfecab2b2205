"""A whole run as data for the page without a controller: jobs, nodes, owners, and all decisions that changed something.

It is folded once, from the cycles of a journal. A decision is kept as what it changed, so that the data grow with what
happened and not with how many jobs there are; texts stand in one table (`page/recording.js` reads it).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, Protocol

from msgspec.structs import asdict

from hocket import __version__
from hocket.control.diff import changes
from hocket.control.ports import Beginning, Cycle, Header
from hocket.model.snapshot import Snapshot
from hocket.model.view import JobView
from hocket.policies.registry import bind
from hocket.service import rows
from hocket.service.history_fold import HistoryFold
from hocket.service.kept_jobs import decode_block
from hocket.service.owners import owner_rows
from hocket.service.past_state_rows import event_row
from hocket.service.record import Record

MOST_DECISIONS = 50_000  # that are kept: of more, the last ones
_QUEUE = 20  # jobs that are kept of it
_EVENTS = 20  # of a cycle
_BUCKETS = 300  # in which cycles are counted over time
LIVE = "live"  # the workload of journals whose times are real


class ReadableJournal(Protocol):
    """What is read of a journal."""

    header: Header

    @property
    def name(self) -> str:
        """How messages call it."""

    def __len__(self) -> int:
        """The number of its last cycle."""

    def after(self, number: int) -> Iterator[Cycle]:
        """The cycles that follow the first `number`."""

    def beginning(self) -> Beginning | None:
        """Where it begins, if its first cycles were removed."""

    def ended(self) -> Iterator[bytes]:
        """What is kept of jobs that ended before that."""


def recorded_run(journal: ReadableJournal, seen: Callable[[int], None] = lambda _number: None) -> dict[str, Any]:
    """All that the page shows of a run; `seen` is told the number of each cycle. Raises JournalError."""
    begun = journal.beginning()
    fold = HistoryFold(journal.header, journal.name, begun)
    before = [r for block in journal.ended() for r in decode_block(journal.name, block)] if begun is not None else []
    past = _Past(fold)
    times: list[float] = []
    for number, cycle in enumerate(journal.after(fold.number), fold.number + 1):
        seen(number)
        times.append(cycle.at_s)
        # Before it is folded: to read a state that has become an older one means to copy it.
        words = {} if cycle.plan is None or cycle.refused else changes(fold.controller.snapshot, cycle.plan)
        fold.fold(number, cycle)
        if words or cycle.refused or len(times) == 1:
            past.add(number, cycle, words)
    return _whole(journal, fold, before, past, times)


def _whole(
    journal: ReadableJournal, fold: HistoryFold, before: list[Record], past: _Past, times: list[float]
) -> dict[str, Any]:
    header, snapshot, queue_reason = journal.header, fold.controller.snapshot, fold.catalogue.queue_reason
    now_s = times[-1] if times else snapshot.now_s
    last = fold.controller.policy_set
    name, params = (header.policy, header.params) if last is None else (last.policy, last.params)
    by_number = {record.number: record for record in (*before, *fold.catalogue.records.values())}
    records = [by_number[number] for number in sorted(by_number)]  # Those that ended in an archive are in both.
    for record in records:
        past.job(record.job.id)
    by_id = {record.job.id: record for record in records}
    live, policy = snapshot.jobs.data(), bind(name, params)
    jobs = []
    for job_id in past.jobs:
        record, view = by_id[job_id], live.get(job_id)
        why = rows.why(record, view, snapshot, now_s, queue_reason)
        shown = rows.shown(record, view, snapshot, None, now_s, queue_reason, policy, why["waits_for"])
        shown["job"] = {key: value for key, value in shown["job"].items() if value not in ("", [], {}, None)}
        if view is None:
            shown["observations"] = []  # The curve has the course of all its time.
        jobs.append(shown | {"why": {key: why[key] for key in ("now", "waits_for", "expected_s", "past")}})
    return {
        "title": header.workload if header.workload != LIVE else journal.name,
        "is_simulated": header.workload != LIVE,
        "version": __version__,
        "status": {
            "policy": name,
            "params": params,
            "now_s": now_s,
            "jobs": rows.live_counts(snapshot) + fold.catalogue.over,
            "decisions": fold.controller.state.decision,
            "trouble": "",
        },
        "nodes": rows.nodes(snapshot, now_s),
        "owners": [asdict(row) for row in owner_rows(snapshot)],
        "jobs": jobs,
        "past": past.told(times),
    }


class _Past:
    """Decisions, each as what is other than at the one before."""

    def __init__(self, fold: HistoryFold) -> None:
        self._fold = fold
        self._seen: Snapshot | None = None
        self._shown: dict[str, tuple[str, str, list[str]]] = {}  # live job → state, reason, GPUs
        self._nodes: dict[str, tuple[str, bool, int] | None] = {}
        self._texts: dict[str, int] = {}
        self.jobs: dict[str, int] = {}
        self.steps: list[dict[str, Any]] = []

    def job(self, job_id: str) -> int:
        """The number of a job."""
        return self.jobs.setdefault(job_id, len(self.jobs))

    def _text(self, text: str) -> int:
        return self._texts.setdefault(text, len(self._texts))

    def add(self, number: int, cycle: Cycle, words: dict[str, str]) -> None:
        """What stands after a cycle, and what its decision changed."""
        snapshot, text = self._fold.controller.snapshot, self._text
        plan = cycle.plan
        reasons = {} if plan is None else {job: why for job, why in plan.reasons.items() if why and job in words}
        step: dict[str, Any] = {
            "n": number,
            "at_s": round(cycle.at_s, 3),
            "rows": self._changed_rows(snapshot),
            "queue": [self.job(job_id) for _rank, _number, job_id in islice(snapshot.waiting, _QUEUE)],
            "more": max(0, len(snapshot.waiting) - _QUEUE),
            "why": text(self._fold.catalogue.queue_reason),
            "changes": [[text(job), text(change)] for job, change in words.items()],
            "reasons": [[text(job), text(why)] for job, why in reasons.items()],
            "events": [[text(e["kind"]), text(e["subject"])] for e in map(event_row, cycle.events[:_EVENTS])],
        }
        if cycle.refused:
            step["refused"] = list(cycle.refused)
        if len(cycle.events) > _EVENTS:
            step["more_events"] = len(cycle.events) - _EVENTS
        changed = None if self._seen is None else snapshot.nodes.changed_since(self._seen.nodes)
        ids = self._nodes.keys() | snapshot.nodes.data().keys() if changed is None else changed
        if any(self._nodes.get(node_id) != _node(snapshot, node_id) for node_id in ids):
            self._nodes = {node_id: _node(snapshot, node_id) for node_id in snapshot.nodes.data()}
            step["nodes"] = list(self._nodes.values())
        if (policy := self._fold.controller.policy_set) is not None:
            step["policy"] = text(policy.policy)
        self.steps.append(step)
        self._seen = snapshot

    def _changed_rows(self, snapshot: Snapshot) -> list[list[Any]]:
        """Job, state, reason and GPUs of each that stands otherwise than before; of one that is over, its verdict."""
        changed = None if self._seen is None else snapshot.jobs.changed_since(self._seen.jobs)
        ids = {**self._shown, **snapshot.jobs.data()} if changed is None else changed
        found = []
        for job_id in ids:
            view = snapshot.jobs.get(job_id)
            now = None if view is None else _standing(view)
            if now == self._shown.get(job_id) and (now is not None or job_id not in self._fold.catalogue.records):
                continue
            if view is None or now is None:
                self._shown.pop(job_id, None)
                record = self._fold.catalogue.records.get(job_id)
                found.append([self.job(job_id), self._text(rows.state_of(record, None) if record else "over")])
                continue
            self._shown[job_id] = now
            state, reason, gpus = now
            entry: list[Any] = [self.job(job_id), self._text(state), self._text(reason)]
            if gpus:
                entry.append([self._text(gpu) for gpu in gpus])
            found.append(entry)
        return found

    def told(self, times: list[float]) -> dict[str, Any]:
        """All decisions as data, and how many cycles and decisions there were over time."""
        self._forget()
        return {
            "policy": self._text(self._fold.policy_name),
            "texts": list(self._texts),
            "steps": self.steps,
            "buckets": _buckets(times, [step["at_s"] for step in self.steps]),
        }

    def _forget(self) -> None:
        """Keep the last decisions only; the first of them then has all that those before it changed."""
        many = len(self.steps) - MOST_DECISIONS
        if many <= 0:
            return
        first = self.steps[many]
        before = self.steps[:many]
        by_job = {row[0]: row for step in (*before, first) for row in step["rows"]}
        first["rows"] = list(by_job.values())
        if nodes := [step["nodes"] for step in (*before, first) if "nodes" in step]:
            first["nodes"] = nodes[-1]
        del self.steps[:many]


def _standing(view: JobView) -> tuple[str, str, list[str]]:
    return rows.live_state(view), view.reason, rows.held_gpus(view) if view.tenancies else []


def _node(snapshot: Snapshot, node_id: str) -> tuple[str, bool, int] | None:
    view = snapshot.nodes.get(node_id)
    return None if view is None else (view.node.id, view.up, view.node.gpus)


def _buckets(times: list[float], decided: list[float]) -> list[dict[str, float]]:
    """Cycles and decisions in spans of equal length; both lists ascend."""
    if not times:
        return []
    from_s, until_s = times[0], times[-1]
    width_s = max((until_s - from_s) / _BUCKETS, 1e-3)
    edges = [from_s + width_s * n for n in range(1, _BUCKETS)]

    def counted(moments: list[float]) -> list[int]:
        ends = [*(bisect_right(moments, edge) for edge in edges), len(moments)]
        return [end - begin for begin, end in zip([0, *ends[:-1]], ends, strict=True)]

    counts = zip(counted(times), counted(decided), strict=True)
    return [
        {"from_s": from_s + width_s * n, "cycles": cycles, "decisions": decisions}
        for n, (cycles, decisions) in enumerate(counts)
    ]
