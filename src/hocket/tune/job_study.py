"""A study whose trials are jobs of a controller: its journal, what it takes from looks at the jobs, and what it wants.

The journal has the same events as that of a study in one process, so `read` and the reports know only one kind. Which
job a trial is follows from it as well: a trial that goes on after it was stopped, as in a study that is extended, is
another job, with the checkpoints of the first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import monotonic

import msgspec
from msgspec.structs import replace

from hocket.control.journal import open_to_append
from hocket.control.ports import Cycle, DurableJournal, Header
from hocket.model.event import EpochEnded, Event, JobAsked, JobFailed, JobRequest, JobSubmitted
from hocket.model.job import Job, Kind
from hocket.tune import extension
from hocket.tune.brackets import total_units
from hocket.tune.command_template import environment, filled
from hocket.tune.configurations import Configurations
from hocket.tune.definition import Definition, JobTemplate, StudyError, definition_of, refuse_another
from hocket.tune.job_trials import JobLook, TrialFailed, Unit, Want, result_of, unit_of
from hocket.tune.outcome import JOURNAL, StudyOutcome, is_begun, read, set_aside
from hocket.tune.promotion import dropped, due
from hocket.tune.sampling import Sampler
from hocket.tune.space import Space
from hocket.tune.trials import Trial, Trials, job_id, of_job


class TrialCommand(msgspec.Struct, frozen=True):
    """What the job of a trial runs."""

    name: str  # of the job
    command: list[str]
    env: dict[str, str]
    until: str  # ends it, if the study does not before
    continues: str  # job whose checkpoints it uses; empty: it begins


def header_of_jobs(definition: Definition) -> Header:
    """What the journal begins with. The policy is the controller's, and may change."""
    return Header("", {}, (), definition.seed, msgspec.json.encode(definition).decode())


def begun_in(folder: Path) -> Definition | None:
    """The study that was begun in a folder and did not fail as a whole, if there is one."""
    if not is_begun(folder):
        return None
    there = read(folder)
    return None if there.found.has_failed else there.definition


class JobStudy:
    """One run of it. Use it within `opened`."""

    def __init__(
        self, definition: Definition, space: Space, sampler: Sampler, journal: DurableJournal, trials: Trials
    ) -> None:
        if definition.jobs is None:
            raise StudyError(f"study '{definition.name}' trains models in one process: its trials are no jobs")
        self.definition, self.trials = definition, trials
        self._template: JobTemplate = definition.jobs
        self.unit: Unit = unit_of(definition.jobs.unit)
        self._journal = journal
        self._configurations = Configurations(definition, space, trials, sampler)
        self._closed: set[int] = set()  # trials whose job is to be stopped
        self._stops: Counter[int] = Counter()  # trial → jobs of it that were stopped, and after which it went on
        self._began, self._earlier_s = monotonic(), 0.0
        for cycle in journal:
            self._fold(cycle.events)
            self._earlier_s = cycle.at_s

    @property
    def outcome(self) -> StudyOutcome:
        """All that is known so far."""
        return StudyOutcome(self._journal.header, self.definition, self.trials, self.now_s)

    @property
    def now_s(self) -> float:
        """Seconds of all processes together."""
        return self._earlier_s + monotonic() - self._began

    @property
    def is_done(self) -> bool:
        """Nothing is under way, and nothing will be."""
        return bool(self.trials.all) and len(self._closed) == len(self.trials.all)

    @property
    def total(self) -> int:
        """Units of all trials together, if none fails."""
        return total_units(self.definition.search.brackets())

    @property
    def under_way(self) -> list[Trial]:
        """Trials that have not reached what they were asked for."""
        return [t for t in self.trials.all.values() if self.want(t.number) is Want.RUN]

    def want(self, number: int) -> Want:
        """What the search wants of a trial's job."""
        trial = self.trials.all[number]
        if number in self._closed:
            return Want.STOP
        return Want.PAUSE if trial.is_over_at(trial.asked) else Want.RUN

    def job_name(self, number: int) -> str:
        """The job that a trial is now."""
        return self._names(number)[-1]

    def earlier_jobs(self, number: int) -> list[str]:
        """Jobs that the trial was before it went on as another; they are to be stopped."""
        return self._names(number)[:-1]

    def _names(self, number: int) -> list[str]:
        first = f"{self._template.prefix}-{number}"
        return [first, *(f"{first}-{n + 2}" for n in range(self._stops[number]))]

    def command(self, number: int) -> TrialCommand:
        """What that job runs."""
        config = self.trials.all[number].config
        units = self.definition.search.units
        return TrialCommand(
            self.job_name(number),
            filled(self._template.command, config, self.unit.most(units)),
            environment(config),
            self.unit.bound(units),
            self._names(number)[0] if self._stops[number] else "",
        )

    def take(self, looks: Mapping[int, JobLook]) -> None:
        """What is seen of trials that are under way, and what follows from it, are one entry of the journal."""
        now_s = self.now_s
        events: list[Event] = []
        for number, look in looks.items():
            trial = self.trials.all[number]
            found = result_of(look, self.unit, trial.asked, self.definition.metric)
            job = job_id(number, trial.asked)
            if isinstance(found, TrialFailed):
                if found.lacks_metric and self.trials.best is None:
                    raise StudyError(f"trial {number} (job '{self.job_name(number)}'): {found.reason}")
                events.append(JobFailed(now_s, job, found.reason, final=True))
            elif found is not None:
                events.append(EpochEnded(now_s, job, trial.asked, found.metrics))
        self._fold(events)
        self._configurations.tell_sampler()
        more = list(self._due(now_s))
        self._fold(more)
        gone = dropped(self.definition.search, self.trials) if self.under_way else set(self.trials.all)
        stops = [
            JobAsked(now_s, job_id(n, self.trials.all[n].asked), JobRequest.STOP) for n in sorted(gone - self._closed)
        ]
        self._fold(stops)
        if events or more or stops:
            self._journal.append(Cycle(now_s, (*events, *more, *stops)))

    def fill_in(self) -> None:
        """Give trials results at rungs that the search has only since it was extended."""
        if found := list(extension.missing_results(self.definition.search, self.trials, self.now_s)):
            self._fold(found)
            self._journal.append(Cycle(self.now_s, tuple(found)))

    def give_up(self, reason: str) -> None:
        """All trials have failed, for a reason that is none of their own; the folder can be used again."""
        now_s = self.now_s
        live = [t for t in self.trials.all.values() if not t.failed]
        events: list[Event] = [JobFailed(now_s, job_id(t.number, t.asked), reason, final=True) for t in live]
        events += [JobAsked(now_s, job_id(t.number, t.asked), JobRequest.STOP) for t in self.trials.all.values()]
        self._fold(events)
        if events:
            self._journal.append(Cycle(now_s, tuple(events)))

    def _due(self, now_s: float) -> Iterator[JobSubmitted]:
        for number, units in due(self.definition.search, self.trials):
            asked = self._configurations.drawn(number)
            config = msgspec.json.encode(asked.config).decode()
            job = Job(job_id(number, units), kind=Kind.MODEL, command=(config,), model=self.definition.name)
            yield JobSubmitted(now_s, job)

    def _fold(self, events: Sequence[Event]) -> None:
        self.trials.take(events)
        for event in events:
            if isinstance(event, JobAsked):
                self._closed.add(of_job(event.job)[0])
            elif isinstance(event, JobSubmitted):
                number = of_job(event.job.id)[0]
                if number in self._closed:
                    self._closed.remove(number)
                    self._stops[number] += 1


@contextmanager
def opened(definition: Definition, space: Space, sampler: Sampler, folder: Path) -> Iterator[JobStudy]:
    """The study in a folder: a new one, or the one that was begun there, with more units or trials if that is asked."""
    folder.mkdir(parents=True, exist_ok=True)
    header = header_of_jobs(definition)
    journal: DurableJournal = open_to_append(folder / JOURNAL, header)
    try:
        begun = definition_of(journal.header)
        before = Trials(begun.metric, begun.goal)
        for cycle in journal:
            before.take(cycle.events)
        if before.has_failed:
            journal.close()
            set_aside(folder)
            journal = open_to_append(folder / JOURNAL, header)
        definition = _continued(folder, journal.header, definition)
        study = JobStudy(definition, space, sampler, journal, Trials(definition.metric, definition.goal))
        study.fill_in()
        yield study
    finally:
        journal.close()


def refuse_other_jobs(folder: Path, kept: Definition, wanted: Definition) -> None:
    """Raise StudyError if the study in a folder is another one; it may have had fewer units or trials so far."""
    if kept.jobs is None or wanted.jobs is None:
        raise StudyError(f"study '{folder}' is one of models in one process, not of jobs: give it another folder")
    for name in ("command", "unit", "options"):
        if (was := getattr(kept.jobs, name)) != (now := getattr(wanted.jobs, name)):
            said, says = (" ".join(v) if isinstance(v, tuple) else v for v in (was, now))
            raise StudyError(f"study '{folder}' was begun with {name} {said!r}, not {says!r}: give it another folder")
    extension.refuse_smaller(str(folder), kept.search, wanted.search)
    same = replace(wanted, search=kept.search, jobs=kept.jobs)
    refuse_another(str(folder), header_of_jobs(kept), header_of_jobs(same))


def _continued(folder: Path, header: Header, wanted: Definition) -> Definition:
    """The definition that is wanted, under the names that the jobs have already; that it has grown is kept."""
    kept = extension.in_force(folder, definition_of(header))
    refuse_other_jobs(folder, kept, wanted)
    if kept.search != wanted.search:
        extension.keep(folder, wanted.search)
    return replace(wanted, jobs=kept.jobs)
