"""What all calls of the API have in common: the engine behind it, answers and errors, numbers with bounds."""

from __future__ import annotations

from asyncio import Future as AsyncFuture
from asyncio import wait, wrap_future
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotYet
from contextlib import contextmanager
from math import inf
from typing import Annotated, Any, TypeVar

import msgspec
from anyio import CapacityLimiter
from msgspec import Meta
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from hocket.control.journal import JournalError
from hocket.control.ports import SecretsLost
from hocket.model.shortage import Shortages
from hocket.service import rows
from hocket.service.broadcast import Broadcast
from hocket.service.engine import Engine, Unavailable
from hocket.service.gpu_history import GpuHistory
from hocket.service.intake import Intake
from hocket.service.owners import Owners
from hocket.service.record import Record
from hocket.service.request_guard import TOKEN
from hocket.service.secret_store import SecretStore
from hocket.service.tokens import Token, TokenError, Tokens, UnknownToken
from hocket.service.visibility import visible_row

# Numbers in queries; a larger one fits no database, and no message to an agent.
Count = Annotated[int, Meta(ge=0, le=2**31 - 1)]
Offset = Annotated[int, Meta(ge=-(2**53), le=2**53)]
_PATIENCE_S = 60.0  # for a cycle to be written
T = TypeVar("T")


class ApiError(HTTPException):
    """An answer that is not what was asked for: one sentence."""

    def __init__(self, status: int, error: str) -> None:
        super().__init__(status, error)


class Api:
    """What the routes share."""

    def __init__(
        self,
        engine: Engine,
        tokens: Tokens,
        secrets: SecretStore,
        go_down: Callable[[float], None],
        protect_s: float,
        commands: bool,
    ) -> None:
        self.engine = engine
        self.tokens = tokens
        self.go_down = go_down
        self.user_commands = False  # whether users may name commands as notifications, not only admins
        self.is_ready: Callable[[], bool] = lambda: True  # whether users are served
        self.logs: dict[str, AsyncFuture[tuple[bytes, dict[str, str]]]] = {}  # request → the part of a log, and headers
        self.owners = Owners(engine.executor)
        self.intake = Intake(engine, self.owners, secrets, protect_s, commands=commands)
        # Each agent has a thread that waits for orders, and takes none from other calls.
        self.polls = CapacityLimiter(inf)
        self._shortages: Shortages | None = None  # of the last snapshot that a change was told of
        self.broadcast = Broadcast(self.change)
        self.gpu_history = GpuHistory(lambda limit: engine.catalogue.listed(over=True, limit=limit))
        engine.on_jobs_changed += [self.gpu_history.add_changes, self.broadcast.publish]

    def accepted(self, future: Future[Any], shown_by: str = "hocket jobs") -> Any:
        """Wait until something is in the journal; `shown_by` is the command that tells whether it came there late."""
        with _in_words():
            try:
                return future.result(_PATIENCE_S)
            except NotYet as error:
                raise _too_late(shown_by) from error

    async def is_accepted(self, future: Future[Any], shown_by: str = "hocket jobs") -> Any:
        """The same in the event loop, where waiting takes no thread."""
        written = wrap_future(future)
        await wait([written], timeout=_PATIENCE_S)
        if not written.done():
            written.add_done_callback(lambda late: late.exception())  # An error that nothing asks for would be logged.
            raise _too_late(shown_by)
        with _in_words():
            return written.result()

    def record(self, job_id: str) -> Record:
        """The record of a job by its name or id, or 404."""
        record = self.engine.catalogue.get(self.engine.catalogue.names.id_of(job_id))
        if record is None:
            raise ApiError(404, f"there is no job '{job_id[:200]}'")
        return record

    def owned(self, job_id: str, token: Token) -> Record:
        """The record of a job that the caller owns, or 404, or 403."""
        record = self.record(job_id)
        if not token.owns(record.job.owner):
            of = f"owner '{token.owner}'" if token.owner else f"the role {token.role}"
            raise ApiError(
                403, f"token '{token.name}' is of {of}, and job '{record.job.id}' is of owner '{record.job.owner}'"
            )
        return record

    def row(self, record: Record, now_s: float) -> rows.JobRow:
        """One job in one line."""
        snapshot, waits = self.engine.snapshot, self.engine.catalogue.queue_reason
        if self._shortages is None or self._shortages.snapshot is not snapshot:
            self._shortages = Shortages(snapshot)
        return rows.row(record, snapshot.jobs.get(record.job.id), snapshot, now_s, waits, self._shortages)

    def state(self, record: Record) -> str:
        """Where a job stands, in one word."""
        return rows.state_of(record, self.engine.snapshot.jobs.get(record.job.id))

    def change(self, record: Record, token: Token | None = None) -> bytes:
        """A job that changed, for those that listen; for one with this token, what it may see."""
        row = self.row(record, self.engine.now_s())
        shown = row if token is None else visible_row(row, token)
        return b"event: job\ndata: " + msgspec.json.encode(shown) + b"\n\n"


@contextmanager
def _in_words() -> Iterator[None]:
    """What keeps something from the journal, as an answer."""
    try:
        yield
    except TokenError as error:
        raise ApiError(404 if isinstance(error, UnknownToken) else 409, str(error)) from error
    except (Unavailable, JournalError, SecretsLost, RuntimeError) as error:
        raise ApiError(503, str(error)) from error


def _too_late(shown_by: str) -> ApiError:
    late = f"the controller did not come to it within {_PATIENCE_S:g} s; it may still be accepted"
    return ApiError(503, f"{late} (`{shown_by}` shows it)")


def caller(request: Request) -> Token:
    """The token of a call."""
    token: Token = request.scope[TOKEN]
    return token


def decoded(body: bytes, kind: type[T]) -> T:
    """A body of that type, or 422."""
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise ApiError(422, str(error)) from error


def answer(value: Any, status: int = 200) -> Response:
    """JSON, in which a number that is none is null."""
    return Response(msgspec.json.encode(value), status, media_type="application/json")
