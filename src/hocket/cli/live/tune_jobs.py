"""`hocket tune … -- COMMAND`: looks at the jobs of a study's trials again and again, and requests what is wanted."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

import typer

from hocket.cli.live.client import ControllerRefused, login
from hocket.cli.live.job_rows import ListedJob, job_path, row_in, rows
from hocket.cli.live.study_reports import StudyReports
from hocket.cli.live.submission import BATCH
from hocket.cli.live.waiting import retry_while_away
from hocket.model.criterion import Epochs, Steps
from hocket.tune.definition import StudyError
from hocket.tune.job_trials import JobLook, JobReport, NextStep, Want, next_step

if TYPE_CHECKING:
    from hocket.cli.live.client import Client
    from hocket.tune.job_study import JobStudy, TrialCommand

_FIRST_S, _LAST_S = 0.1, 1.0  # between looks, after something happened and when nothing does
_EARLY_UNITS = 2  # after which it is said that the metric was not seen
_SILENT_S = 60.0  # that a trial runs before it is said that nothing is read of its progress

Describe = Callable[["TrialCommand"], dict[str, Any]]  # the spec of a trial's job, as it is sent


def free_prefix(client: Client, name: str) -> str:
    """What the jobs of a new study are called: its name, or with a number where another study had that."""
    number = 1
    while True:
        prefix = name if number == 1 else f"{name}.{number}"
        if _shown(client, f"{prefix}-0") is None:
            return prefix
        number += 1


def reports_of_jobs(client: Client, study: JobStudy) -> StudyReports:
    """The reports of a study whose trials are jobs, under the name that these begin with."""
    from hocket.tune.summary import summary_of

    assert study.definition.jobs is not None
    jobs = study.definition.jobs
    owner = str(jobs.options.get("owner") or login())
    return StudyReports(client, jobs.prefix, owner, lambda state: summary_of(study.outcome, state, study.job_name))


class JobTuner:
    """Drives a study until all is done."""

    def __init__(self, client: Client, study: JobStudy, describe: Describe, show: Callable[[float], None]) -> None:
        self._client, self._study, self._describe, self._show = client, study, describe, show
        self._last_steps: dict[str, NextStep] = {}  # job → what this process requested for it last
        self._reports = reports_of_jobs(client, study)
        self._has_news = True  # something happened that is in no summary yet
        self._warned: set[tuple[int, str]] = set()  # warnings that were given, by trial and kind

    def run(self) -> None:
        """Run the study until nothing is under way and every job has ended, or was asked to stop."""
        pause_s = _FIRST_S
        while True:
            live = self._live()
            looks = {t.number: look for t in self._study.under_way if (look := self._look(t.number, t.asked, live))}
            before = self._study.outcome.steps
            try:
                self._study.take(looks)
                asked = self._reconcile(live, looks)
            except StudyError as error:
                self._leave(str(error))
                raise
            self._show(self._units_done(live))
            if self._study.is_done and not asked:
                self._reports.send("done" if self._study.trials.best is not None else "failed")
                return
            happened = asked or self._study.outcome.steps > before
            self._has_news |= happened
            if self._reports.send("running", self._has_news):
                self._has_news = False
            pause_s = _FIRST_S if happened else min(pause_s * 1.3, _LAST_S)
            time.sleep(pause_s)

    def _leave(self, why: str) -> None:
        """The study cannot go on. Where nothing is found yet, it is over, and its folder can be used again."""
        if self._study.trials.best is not None:
            self.pause()
            return
        self._study.give_up(why)
        self._reconcile(self._live(), {})
        self._reports.send("failed")

    def pause(self) -> int:
        """Pause what runs; how many trials were not over."""
        names = {self._study.job_name(t.number) for t in self._study.under_way}
        there = [name for name in self._live() if name in names]
        self._request("pause", there)
        self._reports.send("paused")
        return len(there)

    # -- looks --------------------------------------------------------------------------------------------------

    def _live(self) -> dict[str, ListedJob]:
        return {row.id: row for row in retry_while_away(self._client, partial(rows, self._client))}

    def _look(self, number: int, units: int, live: dict[str, ListedJob]) -> JobLook | None:
        """The job of a trial, with its reports if they can tell a result; None if there is no such job."""
        name = self._study.job_name(number)
        row = live.get(name)
        found: dict[str, Any] | None = None
        if row is None or self._study.unit.progress(row.epoch, row.step) >= units:
            found = retry_while_away(self._client, partial(_shown, self._client, name))
            if found is None:
                return None
            row = row_in(found)
        self._warn(number, row)
        reports = [JobReport(o["epoch"], o["step"], o["metrics"]) for o in (found or {}).get("observations", ())]
        return JobLook(row.state, row.is_over, row.epoch, row.step, row.metrics, reports, row.reason)

    def _warn(self, number: int, row: ListedJob) -> None:
        if row.lost_epochs or row.lost_steps:
            lost = str(Epochs(row.lost_epochs) if row.lost_epochs else Steps(row.lost_steps))
            self._warn_once(
                number, "lost", f"trial {number} (job '{row.id}') lost {lost} that it had not saved: "
                "a script that saves nothing in $HOCKET_CHECKPOINT_DIR begins anew whenever it is paused",
            )  # fmt: skip
        done, metric = self._study.unit.progress(row.epoch, row.step), self._study.definition.metric
        if done >= _EARLY_UNITS and metric not in row.metrics:
            self._warn_once(
                number, "metric", f"trial {number} has done {done:.3g} units and reported "
                f"{', '.join(sorted(row.metrics)) or 'no value'}, but not '{metric}' yet, which is the metric",
            )  # fmt: skip
        if row.ran_s > _SILENT_S and not row.epoch and not row.step:
            self._warn_once(
                number, "silent", f"trial {number} has run for {row.ran_s:.0f} s and no epoch or step was read of it: "
                f"see `hocket logs {row.id}` and --progress",
            )  # fmt: skip

    def _warn_once(self, number: int, kind: str, text: str) -> None:
        """Warn once for each trial, and three times at most of each kind: what one script does, all do."""
        if (number, kind) in self._warned or sum(k == kind for _, k in self._warned) >= 3:
            return
        self._warned.add((number, kind))
        typer.echo(f"hocket: warning: {text}", err=True)

    def _units_done(self, live: dict[str, ListedJob]) -> float:
        done: float = self._study.outcome.steps
        for trial in self._study.under_way:
            row = live.get(self._study.job_name(trial.number))
            if row is not None:
                reached = self._study.unit.progress(row.epoch, row.step)
                done += max(0.0, min(reached, trial.asked) - trial.units)
        return done

    # -- requests ---------------------------------------------------------------------------------------------

    def _reconcile(self, live: dict[str, ListedJob], looks: dict[int, JobLook]) -> bool:
        """Request what is wanted and not so yet; whether there was anything to request."""
        found: dict[NextStep, list[tuple[int, str]]] = {}
        for number in self._study.trials.all:
            name = self._study.job_name(number)
            want = self._study.want(number)
            row = live.get(name)
            look = looks.get(number) or (JobLook(row.state, False) if row is not None else None)
            last = self._last_steps.get(name, NextStep.NOTHING)
            what = next_step(want, look, last)
            for earlier in self._study.earlier_jobs(number):
                if earlier in live and self._last_steps.get(earlier) is not NextStep.STOP:
                    found.setdefault(NextStep.STOP, []).append((number, earlier))
            if what is not NextStep.NOTHING:
                found.setdefault(what, []).append((number, name))
            elif want is Want.RUN and last is NextStep.NOTHING:
                self._last_steps[name] = NextStep.RESUME  # If it is paused from now on, a user did it.
        for what in (NextStep.STOP, NextStep.PAUSE, NextStep.RESUME):  # what frees devices first
            self._request(what, [name for _, name in found.get(what, ())])
        self._submit([number for number, _ in found.get(NextStep.SUBMIT, ())])
        for what, jobs in found.items():
            self._last_steps |= dict.fromkeys((name for _, name in jobs), what)
        return bool(found)

    def _request(self, request: str, names: list[str]) -> None:
        """Send a request for these jobs; one that has ended by now needs none."""
        if not names:
            return
        body = {"request": str(request), "jobs": names, "by": f"hocket tune ({login()})"[:200]}
        retry_while_away(self._client, lambda: self._client.post("/v1/job-requests", body))

    def _submit(self, numbers: Iterable[int]) -> None:
        specs = [self._describe(self._study.command(number)) for number in numbers]
        for first in range(0, len(specs), BATCH):
            batch = specs[first : first + BATCH]
            body = {"jobs": batch, "owner": login()}
            response = retry_while_away(self._client, lambda body=body: self._client.post("/v1/jobs", body).json())  # type: ignore[misc]
            for spec, answer in zip(batch, response["jobs"], strict=True):
                # An answer may have been lost: then it is there already, and was sent again.
                if answer.get("refused") and not _is_same(_shown(self._client, answer["id"]), spec):
                    raise StudyError(answer["refused"])
            for warning in response.get("warnings") or ():
                self._warn_once(-1, warning, warning)


def _is_same(found: dict[str, Any] | None, spec: dict[str, Any]) -> bool:
    return found is not None and list(found["job"].get("command", ())) == list(spec["command"])


def _shown(client: Client, name: str) -> dict[str, Any] | None:
    try:
        found: dict[str, Any] = client.get(job_path(name)).json()
        return found
    except ControllerRefused as error:
        if error.status == 404:
            return None
        raise
