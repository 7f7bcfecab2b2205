"""The calls of agents (`hocket.agent.protocol`): hello, signs of life, reports, orders, parts of logs."""

from __future__ import annotations

import logging

import msgspec
from anyio.to_thread import run_sync
from fastapi import FastAPI, Request, Response

from hocket.agent.protocol import Hello, Report, ReportsAccepted, Welcome
from hocket.control.ports import LateHello, NameTaken, UnknownSession
from hocket.model.resources import MAX_GPUS
from hocket.model.validation import too_small
from hocket.service.api import Api, ApiError, Count, answer, decoded

_log = logging.getLogger("hocket.service")
POLL_S = 20.0  # that a call for orders may stand


def add_agents(app: FastAPI, api: Api) -> None:
    """The calls that only agents make."""
    engine = api.engine

    @app.post("/v1/agents/hello", include_in_schema=False)
    async def hello(request: Request) -> Response:
        said = decoded(await request.body(), Hello)
        if not 0 <= said.node.gpus <= MAX_GPUS:
            raise ApiError(400, f"node '{said.node.id}': gpus must be from 0 to {MAX_GPUS}, not {said.node.gpus}")
        if wrong := too_small(msgspec.structs.asdict(said.node)):
            raise ApiError(400, f"node '{said.node.id}': {wrong}")
        try:
            which = said.start, said.number
            session = engine.sessions.open(said.node.id, said.address, said.state, said.folder, which)
        except LateHello as error:
            raise ApiError(410, str(error)) from error
        except NameTaken as error:
            _log.warning("an agent is refused: %s", error, extra={"node": said.node.id})
            raise ApiError(409, str(error)) from error
        await api.is_accepted(engine.executor.post(engine.executor.hello(said)))
        sessions = engine.sessions
        try:
            waiting = sessions.waiting(session)
        except UnknownSession as error:
            raise ApiError(410, "say hello again") from error
        return answer(Welcome(session, sessions.lease_s, POLL_S, sessions.fence_s, waiting))

    @app.post("/v1/agents/{session}/alive", include_in_schema=False)
    async def alive(session: str) -> Response:
        _node(api, session)
        return answer({})

    @app.post("/v1/agents/{session}/reports", include_in_schema=False)
    async def reports(session: str, request: Request) -> Response:
        node = _node(api, session)
        said = decoded(await request.body(), list[Report])
        return answer(ReportsAccepted(await api.is_accepted(engine.executor.report(said, node))))

    @app.get("/v1/agents/{session}/orders", include_in_schema=False)
    async def orders(session: str, after: Count = 0) -> Response:
        wait_s = min(POLL_S, engine.sessions.lease_s / 3)
        try:
            return answer(await run_sync(engine.sessions.orders, session, after, wait_s, limiter=api.polls))
        except UnknownSession as error:
            raise ApiError(410, "say hello again") from error

    @app.post("/v1/agents/{session}/logs/{log_request}", include_in_schema=False)
    async def logs(session: str, log_request: str, request: Request) -> Response:
        _node(api, session)
        body = await request.body()
        came = api.logs.get(log_request)
        if came is not None and not came.done():
            came.set_result((body, dict(request.headers)))
        return answer({"ok": True})


def _node(api: Api, session: str) -> str:
    try:
        return api.engine.sessions.node_of(session)
    except UnknownSession as error:
        raise ApiError(410, "say hello again") from error
