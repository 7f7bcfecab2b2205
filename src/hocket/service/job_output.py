"""What a job printed, and the answer of a query: they are files of its agents, which are asked for them."""

from __future__ import annotations

from asyncio import get_running_loop, wait_for
from secrets import token_hex

from starlette.responses import Response

from hocket.agent.protocol import ReadAnswer, ReadLog
from hocket.service.api import Api, ApiError
from hocket.service.record import Record

_PATIENCE_S = 10.0
_LARGEST_LOG_PART = 4 << 20


async def printed(api: Api, record: Record, offset: int, limit: int, attempt: int) -> Response:
    """A part of what an attempt printed. No thread waits for agents, so that many readers delay no other call."""
    limit = min(limit, _LARGEST_LOG_PART)
    if (run := record.run_of(attempt)) == 0:
        return _log_part(b"", 0, 0)
    for node in api.engine.executor.nodes(record.job.id):
        body, headers = await _sent_by_agent(
            api, node, ReadLog(token_hex(8), record.job.id, run, offset, min(limit, _LARGEST_LOG_PART))
        )
        if body or headers.get("x-attempt", "0") != "0":
            return _log_part(body, headers.get("x-next-offset", 0), record.attempt_of(run))
    return _log_part(b"", 0, 0)


async def answered(api: Api, record: Record) -> Response:
    """The answer of a query: that of its latest run, on any node where it ran."""
    last, found = 0, b""
    near = api.engine.executor.nodes(record.job.id)
    for nodes in (near, [node for node in api.engine.sessions.addresses() if node not in near]):
        for node in nodes if not found else ():
            body, headers = await _sent_by_agent(api, node, ReadAnswer(token_hex(8), record.job.id))
            run = headers.get("x-attempt", "0")
            if body and run.isdecimal() and int(run) > last:
                last, found = int(run), body
    if not found:
        raise ApiError(404, f"job '{record.job.id}' has no answer yet; it is {api.state(record)}")
    said = {"X-Attempt": str(record.attempt_of(last)), "X-State": api.state(record)}
    return Response(found, media_type="application/json", headers=said)


async def _sent_by_agent(api: Api, node: str, order: ReadLog | ReadAnswer) -> tuple[bytes, dict[str, str]]:
    """What a node's agent sends; nothing if it does not answer."""
    came = get_running_loop().create_future()
    api.logs[order.request] = came
    api.engine.sessions.tell(node, [order])
    try:
        return await wait_for(came, _PATIENCE_S)
    except TimeoutError:
        return b"", {}
    finally:
        del api.logs[order.request]


def _log_part(body: bytes, next_offset: object, attempt: int) -> Response:
    headers = {"X-Next-Offset": str(next_offset), "X-Attempt": str(attempt)}
    return Response(body, media_type="application/octet-stream", headers=headers)
