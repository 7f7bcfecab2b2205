"""Tells the controller how a study stands, so that its page shows it; a study does not depend on it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Literal
from urllib.parse import quote

import typer

from hocket.cli.live.client import ControllerAway, ControllerRefused, login

if TYPE_CHECKING:
    from hocket.cli.live.client import Client
    from hocket.tune.job_study import JobStudy

_EVERY_S = 2.0  # between two reports, at least
_ALIVE_S = 30.0  # and at most, so that a page sees that the tuner is there
_LEISURE = 20  # reports take at most one part in so many of the time


class StudyReports:
    """Of one study."""

    def __init__(self, client: Client, study: JobStudy) -> None:
        self._client, self._study = client, study
        self._owner = str(study.definition.jobs.options.get("owner") or login()) if study.definition.jobs else ""
        self._due_s = self._alive_s = 0.0
        self._is_refused = False

    def tell(self, state: Literal["running", "paused", "done", "failed"], happened: bool = True) -> bool:
        """How it stands; whether it was told. While it runs not too often, and only if something `happened`."""
        from msgspec.structs import replace

        from hocket.tune.summary import summary_of

        began_s = time.monotonic()
        is_due = began_s >= self._due_s if happened else began_s >= self._alive_s
        if self._is_refused or (state == "running" and not is_due):
            return False
        told = replace(summary_of(self._study.outcome, state, self._study.job_name), owner=self._owner)
        prefix = self._study.definition.jobs.prefix if self._study.definition.jobs else ""
        try:
            self._client.put(f"/v1/studies/{quote(prefix, safe='')}", told)
        except ControllerAway:
            self._client.close()  # Calls that matter wait for it.
        except ControllerRefused as error:
            if error.status not in (401, 503):  # Those pass; an older controller knows no studies.
                self._is_refused = True
                typer.echo(f"hocket: warning: the page cannot show this study: {error}", err=True)
        now_s = time.monotonic()
        self._due_s = now_s + max(_EVERY_S, _LEISURE * (now_s - began_s))
        self._alive_s = now_s + max(_ALIVE_S, _LEISURE * (now_s - began_s))
        return True
