"""The calls of agents (`hocket.agent.protocol`): hello, signs of life, reports, orders, parts of logs."""

from __future__ import annotations

import logging

import msgspec
from anyio.to_thread import run_sync
from starlette.requests import Request
from starlette.responses import Response

from hocket.agent.protocol import Alive, Hello, Report, ReportsAccepted, Welcome
from hocket.control.ports import LateHello, NameTaken, UnknownSession
from hocket.model.resources import MAX_GPUS
from hocket.model.validation import too_small
from hocket.service.api import Api, ApiError, Count, answer, caller, decoded
from hocket.service.http_app import HttpApp

_log = logging.getLogger("hocket.service")
POLL_S = 20.0  # that a call for orders may stand at most
# Of the lease. Another controller may have taken the journal over as soon as it is not certain that this one has it. It
# waits a lease for our agents before it starts their jobs elsewhere; agents that hear nothing freeze theirs after three
# quarters of one. So an eighth is left to answer in, and an eighth for jobs to be frozen.
_UNCONFIRMED = 1 / 8
_LARGEST = 2**53  # number in a report
_LONGEST = 1 << 16  # text in a report


def add_agents(app: HttpApp, api: Api) -> None:
    """The calls that only agents make."""
    engine = api.engine

    @app.post("/v1/agents/hello", include_in_schema=False)
    async def hello(request: Request) -> Response:
        hello, token = decoded(await request.body(), Hello), caller(request)
        if not token.may_lend(hello.node.id):
            _log.warning("an agent is refused: token '%s' is not of node '%s'", token.name, hello.node.id)
            raise ApiError(
                403, f"token '{token.name}' is of node '{token.node}', and the agent's node is '{hello.node.id}'"
            )
        if not 0 <= hello.node.gpus <= MAX_GPUS:
            raise ApiError(400, f"node '{hello.node.id}': gpus must be from 0 to {MAX_GPUS}, not {hello.node.gpus}")
        if wrong := too_small(msgspec.structs.asdict(hello.node)):
            raise ApiError(400, f"node '{hello.node.id}': {wrong}")
        try:
            identity, which = (hello.state, hello.folder, hello.containment), (hello.start, hello.number)
            session = engine.sessions.open(hello.node.id, hello.address, *identity, which)
        except LateHello as error:
            raise ApiError(410, str(error)) from error
        except NameTaken as error:
            _log.warning("an agent is refused: %s", error, extra={"node": hello.node.id})
            raise ApiError(409, str(error)) from error
        await api.is_accepted(engine.executor.post(engine.executor.hello(hello)))
        sessions = engine.sessions
        try:
            waiting = sessions.waiting(session)
        except UnknownSession as error:
            raise ApiError(410, "say hello again") from error
        return answer(Welcome(session, sessions.lease_s, _poll_s(api), sessions.fence_s, waiting))

    @app.post("/v1/agents/{session}/alive", include_in_schema=False)
    async def alive(session: str, request: Request) -> Response:
        _node(api, session, request)
        _require_journal(api)
        return answer(Alive(engine.journal.others.urls()))

    @app.post("/v1/agents/{session}/reports", include_in_schema=False)
    async def reports(session: str, request: Request) -> Response:
        node = _node(api, session, request)
        reports = decoded(await request.body(), list[Report])
        for report in reports:
            if not _is_moderate(report.fields):
                raise ApiError(400, f"report {report.n} of job '{report.run.job}' has too large a number or text")
        try:
            return answer(ReportsAccepted(await api.is_accepted(engine.executor.report(reports, node))))
        except (TypeError, ValueError, AttributeError, LookupError) as error:  # Fields are not what they should be.
            _log.warning("reports of node '%s' cannot be read: %s", node, error, extra={"node": node})
            raise ApiError(400, f"the reports cannot be read: {error}") from error

    @app.get("/v1/agents/{session}/orders", include_in_schema=False)
    async def orders(session: str, request: Request, after: Count = 0) -> Response:
        _node(api, session, request)
        try:
            found = await run_sync(engine.sessions.orders, session, after, _poll_s(api), limiter=api.polls)
        except UnknownSession as error:
            raise ApiError(410, "say hello again") from error
        if not api.tokens.is_valid(caller(request)):  # It was revoked while the call stood.
            raise ApiError(401, f"token '{caller(request).name}' was revoked, or has expired")
        _require_journal(api)
        return answer(found)

    @app.post("/v1/agents/{session}/logs/{log_request}", include_in_schema=False)
    async def logs(session: str, log_request: str, request: Request) -> Response:
        _node(api, session, request)
        body = await request.body()
        came = api.logs.get(log_request)
        if came is not None and not came.done():
            came.set_result((body, dict(request.headers)))
        return answer({"ok": True})


def _poll_s(api: Api) -> float:
    """How long a call for orders may stand."""
    return min(POLL_S, api.engine.sessions.lease_s / 3)


def _require_journal(api: Api) -> None:
    """Only the holder of the journal may give an answer that lets an agent's runs go on, or orders."""
    if api.engine.journal.others.unconfirmed_s() > api.engine.sessions.lease_s * _UNCONFIRMED:
        raise ApiError(503, "it is not certain that this controller still has its journal")


def _is_moderate(value: object) -> bool:
    """Does it hold only numbers that fit a journal, and no endless text?"""
    if isinstance(value, int):
        return abs(value) <= _LARGEST
    if isinstance(value, str):
        return len(value) <= _LONGEST
    if isinstance(value, dict):
        return all(len(key) <= _LONGEST and _is_moderate(each) for key, each in value.items())
    return not isinstance(value, list) or all(map(_is_moderate, value))


def _node(api: Api, session: str, request: Request) -> str:
    token = caller(request)
    try:
        node = api.engine.sessions.node_of(session)
    except UnknownSession as error:
        raise ApiError(410, "say hello again") from error
    if not token.may_lend(node):
        raise ApiError(403, f"token '{token.name}' is of node '{token.node}', and the session is of node '{node}'")
    return node
