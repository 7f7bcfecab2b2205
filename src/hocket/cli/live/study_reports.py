"""Sends the controller summaries of a study, which its page shows; the study goes on without it, too."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal
from urllib.parse import quote

import typer

from hocket.cli.live.client import Client, ControllerAway, ControllerRefused, login
from hocket.cli.terminal.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from hocket.model.study_summary import StudySummary
    from hocket.tune import Study

StudyState = Literal["running", "paused", "done", "failed"]

_EVERY_S = 2.0  # between two reports, at least
_ALIVE_S = 30.0  # and at most, so that a page sees that the tuner is there
_PAUSE_FACTOR = 20  # After a report, the next waits for so many times as long as it took.
_PATIENCE_S = 5.0  # that the training of models waits for a controller that does not answer


class StudyReports:
    """Sends the controller summaries of one study: `study` is its id, and `summary` makes one."""

    def __init__(self, client: Client, study: str, owner: str, summary: Callable[[StudyState], StudySummary]) -> None:
        self._client, self._study, self._owner, self._summary = client, study, owner, summary
        self._due_s = self._alive_s = 0.0
        self._is_refused = False

    def send(self, state: StudyState, happened: bool = True) -> bool:
        """Send a summary; whether it was sent: while the study runs only if something `happened`, and not too often."""
        from msgspec.structs import replace

        began_s = time.monotonic()
        is_due = began_s >= self._due_s if happened else began_s >= self._alive_s
        if self._is_refused or (state == "running" and not is_due):
            return False
        try:
            self._client.connect()  # First: without a controller nothing is summed up, which takes seconds with Optuna.
            told = replace(self._summary(state), owner=self._owner)
            self._client.put(f"/v1/studies/{quote(self._study, safe='')}", told)
        except ControllerAway:
            self._client.close()  # Calls that matter wait for it.
        except ControllerRefused as error:
            if error.status not in (401, 503):  # Those pass; an older controller knows no studies.
                self._refuse(str(error))
        except InputError as error:
            self._refuse(str(error))
        now_s = time.monotonic()
        self._due_s = now_s + max(_EVERY_S, _PAUSE_FACTOR * (now_s - began_s))
        self._alive_s = now_s + max(_ALIVE_S, _PAUSE_FACTOR * (now_s - began_s))
        return True

    def _refuse(self, why: str) -> None:
        self._is_refused = True
        typer.echo(f"hocket: warning: the page cannot show this study: {why}", err=True)


@contextmanager
def reports_of_process_study(study: Study, home: Path | None) -> Iterator[Callable[[], None]]:
    """While models are trained in this process: gives a function to call now and then; the result is sent at the end.

    There need not be a controller; one that is started later gets summaries, too.
    """
    from msgspec.structs import replace

    from hocket.control.journal import JournalError
    from hocket.tune import SpaceError, StudyError
    from hocket.tune.summary import summary_of

    began_s, earlier_s = time.monotonic(), study.seconds
    looked_s, told_steps = 0.0, -1

    def summary(state: StudyState) -> StudySummary:
        return summary_of(replace(study.outcome, seconds=earlier_s + time.monotonic() - began_s), state, lambda _: "")

    with Client(home, _PATIENCE_S) as client:
        reports = StudyReports(client, study.outcome.definition.name, login(), summary)

        def send() -> None:
            nonlocal looked_s, told_steps
            if (now_s := time.monotonic()) - looked_s < _EVERY_S:
                return
            looked_s, steps = now_s, study.steps
            if reports.send("running", steps != told_steps):
                told_steps = steps

        try:
            yield send
        except (StudyError, SpaceError):
            reports.send("failed")
            raise
        except JournalError:  # Another process has the study, which tells of it.
            raise
        except BaseException:  # Ctrl-C, or no memory: the same command goes on.
            reports.send("paused")
            raise
        reports.send("done" if study.best is not None else "failed")
