"""The calls that look back: the state as it was after any cycle or at any time, and when there were how many cycles."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from math import isfinite
from typing import Annotated

from anyio import CapacityLimiter
from anyio.to_thread import run_sync
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from hocket.service.api import ApiError, Count, caller
from hocket.service.history_process import HistoryProcess, HistoryUnavailable
from hocket.service.history_worker import HistoryRequest
from hocket.service.http_app import HttpApp
from hocket.service.past_state_rows import PARTS

_MOST_WAITING = 64  # calls that wait for others before them
Buckets = Annotated[int, Meta(ge=1, le=1000)]
CycleNumber = Annotated[int, Meta(ge=1, le=2**53)]
_LARGEST_S = 1e11  # since 1970
_OFFSET = re.compile(r"(\d) (\d\d:\d\d)$")  # of a time zone, whose + a query turns into a space


def add_history(app: HttpApp, history: HistoryProcess | None) -> None:
    """Without a process for it, past states cannot be looked at."""
    one_at_a_time = CapacityLimiter(1)  # Others wait without a thread.

    async def answered(request: HistoryRequest) -> Response:
        if history is None:
            raise ApiError(404, "this controller does not show the past")
        if one_at_a_time.statistics().tasks_waiting >= _MOST_WAITING:
            raise ApiError(503, f"{_MOST_WAITING} calls wait already to look at the past: ask again")
        try:
            status, body = await run_sync(history.ask, request, limiter=one_at_a_time)
        except HistoryUnavailable as error:
            raise ApiError(503, str(error)) from error
        return Response(body, status, media_type="application/json")

    @app.get("/v1/at")
    async def at_time(
        request: Request,
        time: str = "",
        all: bool = False,  # noqa: A002 - the API's word
        owner: str = "",
        limit: Count = 100_000,
        parts: str = "",
    ) -> Response:
        """The state as it was at a time, or after the last cycle."""
        at_s = _seconds("time", time)
        asked = HistoryRequest(
            caller(request), at_s=at_s, over=all, owner=owner, limit=limit, parts=_parts(parts)
        )  # fmt: skip
        return await answered(asked)

    @app.get("/v1/at/{cycle}")
    async def at_cycle(
        cycle: CycleNumber,
        request: Request,
        all: bool = False,  # noqa: A002 - the API's word
        owner: str = "",
        limit: Count = 100_000,
        parts: str = "",
    ) -> Response:
        """The state as it was after a cycle: jobs, queue, nodes, owners, what happened in it and what was decided."""
        asked = HistoryRequest(caller(request), cycle=cycle, over=all, owner=owner, limit=limit, parts=_parts(parts))
        return await answered(asked)

    @app.get("/v1/cycles")
    async def cycles(request: Request, buckets: Buckets = 200, since: str = "", until: str = "") -> Response:
        """How many cycles and decisions there were, in equal spans of time."""
        since_s, until_s = _seconds("since", since), _seconds("until", until)
        return await answered(HistoryRequest(caller(request), buckets=buckets, since_s=since_s, until_s=until_s))


def _parts(text: str) -> tuple[str, ...]:
    """What to show: all that there is if nothing is said."""
    if not text:
        return PARTS
    asked = tuple(part.strip() for part in text.split(","))
    for part in asked:
        if part not in PARTS:
            raise ApiError(422, f"parts must be some of {', '.join(PARTS)}, not '{part[:100]}'")
    return asked


def _seconds(name: str, text: str) -> float | None:
    """A time, in seconds since 1970; None if it is not said."""
    if not text:
        return None
    rule = "seconds since 1970, or a date such as 2026-11-17T10:00 (in UTC) or 2026-11-17T10:00+01:00"
    wrong = ApiError(422, f"{name} must be {rule}, not '{text[:100]}'")
    try:
        found = float(text)
    except ValueError:
        try:
            date = datetime.fromisoformat(_OFFSET.sub(r"\1+\2", text))
            found = (date if date.tzinfo is not None else date.replace(tzinfo=UTC)).timestamp()
        except (ValueError, OverflowError) as error:
            raise wrong from error
    if not isfinite(found) or abs(found) > _LARGEST_S:
        raise wrong
    return found
