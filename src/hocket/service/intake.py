"""What is submitted: the jobs that a call makes, and why some are refused.

All that can be refused is refused here, so that a job that starts after a refused one is refused with it. Several
calls may come in one cycle, before the state knows of any of their jobs: their ids are kept until the cycle is over.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from fnmatch import fnmatchcase
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from hocket.control.admission import read_submitted_spec, refusal
from hocket.control.ports import Refused
from hocket.job_input.read_job import FieldProblem, read_remote_job, remote_problems
from hocket.model.capacity import Capacity
from hocket.model.event import Event, JobRefused, JobSubmitted
from hocket.model.job import Job, Kind
from hocket.model.job_spec import SpecError, SubmittedSpec
from hocket.model.notify_target import is_url
from hocket.model.resources import Node
from hocket.model.snapshot import Snapshot
from hocket.service.bundle_store import BundleStore
from hocket.service.engine import Engine
from hocket.service.names import is_numbered, name_and_number, next_id
from hocket.service.owners import Owners
from hocket.service.record import Record
from hocket.service.secret_store import SecretStore

CALL_LIMIT = 1000  # jobs or arrays in one call
_WHOLE = 500  # jobs of a call that are taken in by one cycle; more come in parts, or others would wait for all of them
_PART = 250  # jobs in such a part
_PATTERN = "*?["  # characters of a name that stands for several
_CHECKED = 100  # jobs of an array that are checked before they are submitted


class CallBody(Struct, frozen=True):
    """The jobs of a call, as they came: specs, or what users write by the names of options and of keys in files."""

    given: list[Any]
    has_options: bool


def read_body(body: bytes, owner: str = "") -> CallBody:
    """`{"jobs": [...], "owner": ...}`, or `options` instead of `jobs`. Raises SpecError.

    `owner` has those that name none; if that is empty, the owner that the call names.
    """
    try:
        given = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise SpecError(f"the body must be JSON: {error}") from error
    key = "options" if isinstance(given, dict) and "options" in given else "jobs"
    if not isinstance(given, dict) or not isinstance(given.get(key), list) or not set(given) <= {key, "owner"}:
        raise SpecError('the body must be {"jobs": [...]} or {"options": [...]}, with or without "owner"')
    if not 1 <= len(given[key]) <= CALL_LIMIT:
        raise SpecError(f"{key} must be 1 to {CALL_LIMIT:,}, not {len(given[key]):,}")
    owner = owner or given.get("owner", "")
    for each in given[key]:
        if owner and isinstance(each, dict) and not each.get("owner"):
            each["owner"] = owner
    return CallBody(given[key], key == "options")


def read_submitted_specs(body: bytes, owner: str = "") -> list[SubmittedSpec]:
    """The jobs of a call. Raises SpecError."""
    call = read_body(body, owner)
    found = []
    for n, given in enumerate(call.given):
        try:
            found.append(read_submitted_spec(read_options(given) if call.has_options else given))
        except (SpecError, FieldProblem) as error:
            raise SpecError(f"{'options' if call.has_options else 'jobs'}[{n}]: {error}") from error
    return found


def read_options(options: object) -> dict[str, Any]:
    """The spec that options mean, as a user gave them. Raises FieldProblem, or SpecError if they are no object."""
    if not isinstance(options, dict):
        raise SpecError("must be an object")
    if wrong := remote_problems(options):
        name = next(iter(wrong))
        raise FieldProblem(name, wrong[name])
    return read_remote_job(options).spec


def call_parts(specs: Sequence[SubmittedSpec], answers: Sequence[Mapping[str, str]]) -> Iterator[list[SubmittedSpec]]:
    """The parts in which a call is submitted, one after the other: one, unless it has many jobs.

    `answers` is what was answered so far: later parts of an array get the name from there that was made up for it.
    """
    if sum(spec.count for spec in specs) <= _WHOLE:
        yield list(specs)
        return
    part: list[SubmittedSpec] = []
    room = _PART
    for whole in specs:
        spec = whole
        while spec.count > room:
            yield [*part, replace(spec, array=room)]
            if not spec.job.id:
                name = name_and_number(answers[-1]["id"])[0].rpartition("-")[0]
                spec = replace(spec, job=replace(spec.job, id=name))
            spec = replace(spec, array=spec.count - room, first=spec.first + room)
            part, room = [], _PART
        part.append(spec)
        room -= spec.count
        if not room:
            yield part
            part, room = [], _PART
    if part:
        yield part


def _refused_name(job: Job) -> str:
    if not is_numbered(job.id):
        return ""
    return f"job '{job.id}': name must not end with '~' and a number: that tells jobs of one name apart"


def refused_command(job: Job, because: str = "and the controller listens to other machines") -> str:
    """Why a job's notifications are refused, if they name a command; empty if they do not."""
    command = next((t for t in (job.launch.notify if job.launch is not None else ()) if not is_url(t)), "")
    if not command:
        return ""
    return (
        f"job '{job.id}': notify must be a URL, not the command '{command[:80]}': it would run as the controller's "
        f"user, {because} (`hocket up --notify-commands` allows commands)"
    )


class Intake:
    """Hands submissions to the controller. Private attributes are used by the controller's thread only."""

    def __init__(
        self, engine: Engine, owners: Owners, secrets: SecretStore, protect_s: float = 0.0, *, commands: bool = False
    ) -> None:
        """`commands`: jobs may name commands as notifications, which run as the controller's user."""
        self._engine = engine
        self._secrets = secrets
        self._owners = owners
        self._protect_s = protect_s
        self._commands = commands
        self.bundles = BundleStore(None)  # the working directories that came before their jobs
        self.grows = False  # whether nodes may come for jobs that fit none
        self._coming: set[str] = set()  # ids of jobs in the present cycle
        self._renamed: dict[str, str] = {}  # name → id, of jobs in it whose name was used before
        self._find: Callable[[str], Record | None] = self._find_fast
        self._looked_up: dict[str, Record | None] = {}  # jobs that were looked for, for the present call
        self._nodes: tuple[Node, ...] = ()
        self._whole = Capacity.of(())

    def submit(self, specs: list[SubmittedSpec]) -> Future[Any]:
        """Done when they are in the journal: for each job, in order, its id and why it is refused, or nothing."""
        answers: list[tuple[str, str]] = []
        mine: list[str] = []

        def make(snapshot: Snapshot, now_s: float) -> list[Event]:
            self._forget(mine)  # It may be made anew, when what it was made of was not kept.
            answers.clear()
            mine.clear()
            events: list[Event] = []
            secrets: dict[str, dict[str, str]] = {}
            self._look_up(specs)
            for spec, job, reason in self._judged(specs, snapshot):
                answers.append((job.id, reason))
                if reason:
                    events.append(JobRefused(now_s, job.id, reason))
                    continue
                mine.append(job.id)
                if spec.secrets:
                    secrets[job.id] = spec.secrets
                bounded = replace(job, protect_s=self._protect_s) if self._protect_s else job
                events.append(JobSubmitted(now_s, bounded))
            self._secrets.keep(secrets)  # first: no job is in the journal without them
            return events

        def result(refused: Refused) -> list[dict[str, str]]:
            # The cycle may have refused another job of the same name: then ours is there.
            there = self._engine.catalogue.records
            return [{"id": i, "refused": why or ("" if i in there else refused.get(i, ""))} for i, why in answers]

        future = self._engine.executor.post(make, result)
        future.add_done_callback(lambda _: self._forget(mine))
        future.add_done_callback(lambda _: self._secrets.drop(i for i in mine if i not in self._engine.snapshot.jobs))
        return future

    def check(self, specs: Sequence[SubmittedSpec]) -> list[tuple[Job, str]]:
        """For each job, in order, what it would be if it were submitted now, and why it would be refused, or nothing.

        Nothing is submitted. Of an array the first 100 are looked at. For any thread. Raises EndedJobsError.
        """
        apart = Intake(self._engine, self._owners, self._secrets, commands=self._commands)
        apart._find = self._engine.catalogue.get
        few = [replace(each, array=min(each.array, _CHECKED)) if each.array else each for each in specs]
        return [(job, reason) for _spec, job, reason in apart._judged(few, self._engine.snapshot)]

    def _judged(self, specs: Sequence[SubmittedSpec], snapshot: Snapshot) -> Iterator[tuple[SubmittedSpec, Job, str]]:
        """Each job, with its id and after others by their ids, and why it is refused, or nothing."""
        whole = self._cluster(snapshot)
        number = snapshot.submissions
        for given in specs:
            spec = self._with_matches(given, snapshot)
            name = spec.job.id or self._made_up_name(spec.job, number)
            for asked in spec.jobs(name):
                job = self._with_ids(asked, snapshot)
                reason = _refused_name(asked) or self._refusal(job, snapshot, whole)
                number += 1
                if not reason:
                    self._coming.add(job.id)
                    if job.id != asked.id:
                        self._renamed[asked.id] = job.id
                yield spec, job, reason

    def _look_up(self, specs: Sequence[SubmittedSpec]) -> None:
        """Look for the jobs that have these names, all at once."""
        names: list[str] = []
        for spec in specs:
            names += spec.names if spec.job.id else ()
        ids = [self._id_of(name) for name in names]
        found = self._engine.catalogue.known_among(ids)
        self._looked_up = {job_id: found.get(job_id) for job_id in ids}

    def _known(self, job_id: str) -> Record | None:
        if job_id in self._looked_up:
            return self._looked_up[job_id]
        return self._find(job_id)

    def _find_fast(self, job_id: str) -> Record | None:
        return self._engine.catalogue.known(job_id)

    def _forget(self, ids: list[str]) -> None:
        self._coming.difference_update(ids)
        for job_id in ids:
            self._renamed.pop(name_and_number(job_id)[0], None)

    def _id_of(self, name: str) -> str:
        """The newest job with a name, among those of this cycle too."""
        return self._renamed.get(name) or self._engine.catalogue.names.id_of(name)

    def _with_matches(self, spec: SubmittedSpec, snapshot: Snapshot) -> SubmittedSpec:
        """After all live jobs, and those that came before it, whose name matches a pattern; as commands mean it.

        A pattern that nothing matches stays, and is refused as a name that no job has.
        """
        job = spec.job
        if not any(c in name for name in job.predecessors for c in _PATTERN):
            return spec
        known = [*snapshot.jobs, *sorted(self._coming)]

        def matching(names: tuple[str, ...]) -> tuple[str, ...]:
            found = [[n for n in known if fnmatchcase(n, name)] if name not in known else [name] for name in names]
            return tuple(dict.fromkeys(n for name, some in zip(names, found, strict=True) for n in some or [name]))

        return replace(spec, job=replace(job, after=matching(job.after), after_any=matching(job.after_any)))

    def _with_ids(self, job: Job, snapshot: Snapshot) -> Job:
        """The job under an id of its own, if its name was used before by jobs that have ended; after others by id."""
        newest = self._id_of(job.id)
        is_over = newest not in self._coming and newest not in snapshot.jobs
        if is_over and self._known(newest) is not None:
            newest = next_id(newest)
            while self._is_taken(newest):  # It was a name before names could be used again.
                newest = next_id(newest)
        after, after_any = (tuple(map(self._id_of, names)) for names in (job.after, job.after_any))
        if (newest, after, after_any) == (job.id, job.after, job.after_any):
            return job
        return replace(job, id=newest, after=after, after_any=after_any)

    def _refusal(self, job: Job, snapshot: Snapshot, whole: Capacity) -> str:
        def verdict_of(name: str) -> str | None:
            record = self._known(name)
            if record is not None:
                return record.verdict
            return "" if name in self._coming else None

        if not self._commands and (why := refused_command(job)):
            return why
        bundle = job.launch.working_dir if job.launch is not None else ""
        if bundle and not self.bundles.has(bundle):
            return f"job '{job.id}': working_dir must be a bundle that was uploaded, and {bundle[:12]} was not"
        taken = self._coming if job.id in self._coming else snapshot.jobs
        return refusal(taken, job, whole, self._owners.known(snapshot, job.owner), verdict_of, self.grows)

    def _cluster(self, snapshot: Snapshot) -> Capacity:
        """The cluster with nothing on it."""
        nodes = tuple(view.node for view in snapshot.nodes.values())
        if nodes != self._nodes:
            self._nodes, self._whole = nodes, Capacity.of(nodes)
        return self._whole

    def _made_up_name(self, job: Job, number: int) -> str:
        """A name from the command: `train-12`."""
        words = [w for w in job.command if w.endswith(".py")] or [job.command[0]]
        words = ["query"] if job.kind is Kind.QUERY else words
        stem = os.path.basename(words[0]).removesuffix(".py")
        stem = "".join(c if c.isalnum() or c in "-_." else "-" for c in stem)[:60].strip("-.") or "job"
        number += 1
        while any(self._is_taken(name) for name in (f"{stem}-{number}", f"{stem}-{number}-0")):
            number += 1
        return f"{stem}-{number}"

    def _is_taken(self, job_id: str) -> bool:
        return job_id in self._coming or self._known(job_id) is not None
