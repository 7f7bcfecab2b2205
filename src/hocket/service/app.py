"""The HTTP API (docs/api.md). Every answer to something that was said comes after it is in the journal."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from typing import Any

from msgspec.structs import replace
from starlette.concurrency import run_in_threadpool
from starlette.convertors import StringConvertor, register_url_convertor
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse

from hocket import __version__
from hocket.model.event import Event, JobAsked, JobRequest
from hocket.model.job import Kind
from hocket.model.shortage import Shortages
from hocket.model.snapshot import Snapshot
from hocket.service import rows
from hocket.service.agent_calls import add_agents
from hocket.service.api import Api, ApiError, Count, Offset, answer, caller, decoded
from hocket.service.bundle_calls import add_bundles
from hocket.service.bundle_store import BundleStore
from hocket.service.ended_jobs import EndedJobsError
from hocket.service.engine import Engine
from hocket.service.history_calls import add_history
from hocket.service.history_process import HistoryProcess
from hocket.service.host_names import HostNames
from hocket.service.http_app import HttpApp
from hocket.service.job_files import job_files
from hocket.service.job_output import answered, printed
from hocket.service.job_requests import JobRequestError, JobRequestSpec, in_parts, read_job_request, requested_jobs
from hocket.service.metrics import PATH as METRICS
from hocket.service.metrics import Metrics
from hocket.service.node_drain import DrainSpec, NodeError, UnknownNode, drain, drained_row, read_drain, undrain
from hocket.service.node_reserve import (
    ReserveSpec,
    UnreserveSpec,
    read_reserve,
    read_unreserve,
    reserve,
    reserved_row,
    unreserve,
)  # fmt: skip
from hocket.service.openapi_schema import body_of
from hocket.service.owners import OwnerError, OwnerSpec, owner_row, owner_rows, read_owner
from hocket.service.page import add_page
from hocket.service.page_sessions import PageSessions
from hocket.service.permissions import Permissions
from hocket.service.plan_ahead import plan_ahead
from hocket.service.request_guard import IS_VALID, RequestGuard
from hocket.service.secret_store import KeyFile, SecretStore
from hocket.service.studies import Studies
from hocket.service.study_calls import add_studies
from hocket.service.submission_calls import add_submission
from hocket.service.tokens import Role, Token, TokenError, Tokens, TokenSpec, read_token_spec, token_row
from hocket.service.visibility import sees_all_rows, visible_job, visible_row, visible_why
from hocket.service.whatif_calls import add_whatif
from hocket.service.whatif_runs import WhatIfRuns

_log = logging.getLogger("hocket.service")


class AnyText(StringConvertor):
    """The rest of a path, whatever characters it has; starlette's `path` would lose a line break."""

    regex = r"[\s\S]*"


register_url_convertor("text", AnyText())


def make_app(
    engine: Engine,
    token: str,
    go_down: Callable[[float], None],
    protect_s: float = 0.0,
    *,
    notify_commands: bool = False,
    local_commands: bool = False,
    is_ready: Callable[[], bool] = lambda: True,
    hosts: HostNames | None = None,
    secrets_key: KeyFile,
    metrics: Metrics | None = None,
    history: HistoryProcess | None = None,
    whatif: WhatIfRuns | None = None,
    bundles: BundleStore | None = None,
    grows: bool = False,
) -> HttpApp:
    """The API over an engine. New jobs are protected from preemption for `protect_s` at most; 0: without limit.

    `token` is that of the home, which is an admin's. With `notify_commands`, jobs may name commands that are run here
    when something happens to them; with `local_commands` those of admins. Until `is_ready`, only agents are served.
    Requests must name one of `hosts`, if those are given. Secrets of jobs are encrypted with `secrets_key`. The past is
    looked at by `history`, and run again by `whatif`. Working directories that come with jobs are kept in `bundles`.
    If the cluster `grows`, jobs may be submitted that do not fit it yet.
    """
    app = HttpApp("Hocket", __version__)
    tokens = Tokens(engine.journal, engine.executor, token)
    secrets = SecretStore(engine.journal, secrets_key)
    secrets.sweep(engine.snapshot.jobs)
    engine.executor.secrets_of = secrets.of
    engine.on_jobs_changed.append(secrets.drop_ended)
    api = Api(engine, tokens, secrets, go_down, protect_s, notify_commands or local_commands)
    api.user_commands = notify_commands
    api.intake.bundles, api.intake.grows = bundles or BundleStore(None), grows
    if grows:
        engine.accept_jobs_without_room()
    api.is_ready = is_ready

    metrics = Metrics(engine) if metrics is None else metrics
    sessions = PageSessions(tokens, engine.journal, engine.executor, token)
    permissions = Permissions(app.router.routes)
    app.add_middleware(
        RequestGuard,
        tokens=tokens,
        permissions=permissions,
        is_ready=lambda: api.is_ready(),
        hosts=hosts,
        count=metrics.count_request,
        sessions=sessions,
    )

    for kind in (EndedJobsError, HTTPException, ClientDisconnect):
        app.add_exception_handler(kind, _answer_error)

    add_submission(app, api)
    _add_jobs(app, api)
    _add_owners(app, api)
    _add_cluster(app, api, history)
    _add_metrics(app, metrics)
    add_history(app, history)
    add_whatif(app, api, whatif)
    add_studies(app, api, Studies(engine.journal, engine.executor))
    _add_tokens(app, api)
    add_page(app, api, sessions)
    add_agents(app, api)
    add_bundles(app, api, api.intake.bundles)
    return app


async def _answer_error(_request: Request, error: Exception) -> Response:
    if isinstance(error, EndedJobsError):
        return answer({"error": str(error)}, 503)
    if isinstance(error, HTTPException):
        return answer({"error": str(error.detail)}, error.status_code)
    return Response(status_code=400)  # The caller was killed in the middle of it: this reaches nothing.


def _add_jobs(app: HttpApp, api: Api) -> None:
    @app.get("/v1/jobs")
    def jobs(
        request: Request,
        all: bool = False,  # noqa: A002 - the API's word
        owner: str = "",
        limit: Count = 100_000,
    ) -> Response:
        """Live jobs, and those that are over."""
        now_s, snapshot, waits = api.engine.now_s(), api.engine.snapshot, api.engine.catalogue.queue_reason
        live = snapshot.jobs.data()
        records = api.engine.catalogue.listed(over=all, owner=owner, limit=limit)
        short = Shortages(snapshot)
        found = [rows.row(r, live.get(r.job.id), snapshot, now_s, waits, short) for r in records]
        token = caller(request)
        return answer({"jobs": found if sees_all_rows(token) else [visible_row(row, token) for row in found]})

    @app.get("/v1/jobs/{job_id:path}/why")
    def why(job_id: str, request: Request) -> Response:
        """Why a job stands where it stands."""
        record, snapshot = api.record(job_id), api.engine.snapshot
        waits = api.engine.catalogue.queue_reason
        found = rows.why(record, snapshot.jobs.get(record.job.id), snapshot, api.engine.now_s(), waits)
        return answer(visible_why(found, record.job.owner, caller(request)))

    @app.get("/v1/jobs/{job_id:path}/log")
    async def log(
        job_id: str, request: Request, offset: Offset = 0, limit: Count = 1 << 20, attempt: Count = 0
    ) -> Response:
        """A part of what a job printed."""
        record = await run_in_threadpool(api.owned, job_id, caller(request))
        return await printed(api, record, offset, limit, attempt)

    @app.get("/v1/jobs/{job_id:path}/answer")
    async def query_answer(job_id: str, request: Request) -> Response:
        """The present answer of a query, or its last one."""
        record = await run_in_threadpool(api.owned, job_id, caller(request))
        if record.job.kind is not Kind.QUERY:
            raise ApiError(409, f"job '{record.job.id}' must be a query, and is of kind '{record.job.kind}'")
        return await answered(api, record)

    for job_request in JobRequest:
        _add_request_of_one(app, api, job_request)

    @app.post("/v1/job-requests", openapi_extra=body_of(JobRequestSpec))
    async def job_requests(request: Request) -> Response:
        """Ask something of many jobs; answered once it is in the journal, in as many cycles as it takes."""
        try:
            spec = read_job_request(await request.body())
        except JobRequestError as error:
            raise ApiError(400, str(error)) from error
        return answer({"jobs": await run_in_threadpool(_request_many, api, _limited_to_caller(spec, caller(request)))})

    @app.get("/v1/jobs/{job_id:path}")
    def show(job_id: str, request: Request) -> Response:
        """All about one job."""
        token = caller(request)
        record = api.record(job_id) if token.role is Role.READ else api.owned(job_id, token)
        engine = api.engine
        snapshot, waits = engine.snapshot, engine.catalogue.queue_reason
        view = snapshot.jobs.get(record.job.id)
        found = rows.shown(record, view, snapshot, engine.executor, engine.now_s(), waits, engine.policy)
        return answer(visible_job(found | job_files(record, engine.sessions.folders()), token))


def _limited_to_caller(spec: JobRequestSpec, token: Token) -> JobRequestSpec:
    """What a caller may ask of jobs: a user of those of its owner."""
    if token.is_admin:
        return spec
    if spec.owner not in ("", token.owner):
        raise ApiError(403, f"token '{token.name}' is of owner '{token.owner}', and the jobs are of '{spec.owner}'")
    return replace(spec, owner=token.owner, by=token.owner)


def _add_request_of_one(app: HttpApp, api: Api, job_request: JobRequest) -> None:
    def request_one(job_id: str, request: Request, by: str = "") -> Response:
        token = caller(request)
        record = api.owned(job_id, token)
        by = by if token.is_admin else token.owner
        if record.ended_s is not None:
            raise ApiError(409, f"job '{job_id}' is over: {record.verdict}")

        def make(_snapshot: Snapshot, now_s: float) -> list[Event]:
            return [JobAsked(now_s, record.job.id, job_request, by[:200])]

        api.accepted(api.engine.executor.post(make))
        return answer({"id": record.job.id, "state": api.state(record)})

    request_one.__doc__, request_one.__name__ = f"Ask a job to {job_request}.", f"{job_request}_job"
    app.add("POST", f"/v1/jobs/{{job_id:path}}/{job_request}", request_one)


def _request_many(api: Api, spec: JobRequestSpec) -> list[dict[str, str]]:
    engine = api.engine
    live = {view.job.id: view for view in engine.snapshot.jobs.values()}
    try:
        found = requested_jobs(spec, live.values(), engine.catalogue)
    except JobRequestError as error:
        raise ApiError(404, str(error)) from error
    records = {job_id: engine.catalogue.records.get(job_id) for job_id in found.jobs}
    states: dict[str, str] = {}
    for part in in_parts(spec.request, found.jobs, live):

        def make(_snapshot: Snapshot, now_s: float, part: list[str] = part) -> list[Event]:
            return [JobAsked(now_s, job_id, spec.request, spec.by) for job_id in part]

        api.accepted(engine.executor.post(make))
        now = engine.snapshot.jobs
        for job_id in part:
            record = records[job_id] or api.record(job_id)  # It may have ended meanwhile.
            states[job_id] = rows.state_of(record, now.get(job_id))
    told = [{"id": job_id, "state": states[job_id]} for job_id in found.jobs]
    return told + [{"id": job_id, "refused": why} for job_id, why in found.refused.items()]


def _add_owners(app: HttpApp, api: Api) -> None:
    @app.get("/v1/owners")
    def owners() -> Response:
        """The owners: weight, quotas, what they use and how many of their jobs wait."""
        return answer({"owners": owner_rows(api.engine.snapshot)})

    @app.put("/v1/owners/{owner_id:text}", openapi_extra=body_of(OwnerSpec))
    async def set_owner(owner_id: str, request: Request) -> Response:
        """Set an owner's weight and quotas; answered once they are in the journal. What is left out stays."""
        try:
            spec = read_owner(owner_id, await request.body())
        except OwnerError as error:
            raise ApiError(400, str(error)) from error
        await api.is_accepted(api.owners.set(owner_id, spec), "hocket owners")
        return answer(await run_in_threadpool(owner_row, api.engine.snapshot, owner_id))


def _add_cluster(app: HttpApp, api: Api, history: HistoryProcess | None) -> None:
    @app.get("/v1/health")
    async def health() -> Response:  # It waits for no thread.
        """Is it there?"""
        ok = api.is_ready() and not api.engine.over.is_set() and not api.engine.journal.lost
        return answer({"ok": ok, "version": __version__, "pid": os.getpid()}, 200 if ok else 503)

    @app.get("/v1/status")
    def status() -> Response:
        """The controller in a few numbers."""
        engine, snapshot = api.engine, api.engine.snapshot
        counts = rows.live_counts(snapshot) + engine.catalogue.over
        return answer(
            {
                "policy": engine.policy.policy.name,
                "params": engine.policy.settings,
                "now_s": api.engine.now_s(),
                "jobs": counts,
                "decisions": engine.decisions,
                "trouble": engine.trouble,
            }
        )

    @app.get("/v1/nodes")
    def nodes() -> Response:
        """The nodes, their reservations, and which jobs hold their GPUs."""
        contained = api.engine.sessions.containments()
        found = rows.nodes(api.engine.snapshot, api.engine.now_s())
        return answer({"nodes": [row | {"containment": contained.get(row["id"], "")} for row in found]})

    @app.get("/v1/gpus")
    def gpus(request: Request, since_s: float | None = None) -> Response:
        """Which jobs held which GPUs since then, by attempts; since an hour ago if it is not said."""
        now_s = api.engine.now_s()
        since_s = now_s - 3600.0 if since_s is None else since_s
        held = api.gpu_history.since(since_s, api.engine.catalogue.listed(), caller(request))
        return answer({"now_s": now_s, "since_s": since_s, "held": held})

    @app.get("/v1/ahead")
    def ahead(request: Request) -> Response:
        """Which GPUs jobs will hold, as far as it is planned or believed."""
        now_s = api.engine.now_s()
        return answer({"now_s": now_s, "ahead": plan_ahead(api.engine.snapshot, now_s, caller(request))})

    @app.post("/v1/nodes/{node:text}/drain", openapi_extra=body_of(DrainSpec))
    async def drain_node(node: str, request: Request) -> Response:
        """Give a node no new jobs; answered once it is in the journal, with the jobs that are still on it."""
        return await _of_node(_drained, api, node, await request.body(), True)

    @app.post("/v1/nodes/{node:text}/undrain", openapi_extra=body_of(DrainSpec))
    async def undrain_node(node: str, request: Request) -> Response:
        """Give a drained node jobs again."""
        return await _of_node(_drained, api, node, await request.body(), False)

    @app.post("/v1/nodes/{node:text}/reserve", openapi_extra=body_of(ReserveSpec))
    async def reserve_node(node: str, request: Request) -> Response:
        """Reserve a node for some owners; answered once it is in the journal, with jobs of others that run on there."""
        return await _of_node(_reserved, api, node, await request.body())

    @app.post("/v1/nodes/{name:text}/unreserve", openapi_extra=body_of(UnreserveSpec))
    async def unreserve_node(name: str, request: Request) -> Response:
        """Remove all reservations of a node, or the one of this name."""
        return await _of_node(_unreserved, api, name, await request.body())

    @app.get("/v1/events")
    async def events(request: Request) -> StreamingResponse:
        """Changes of jobs as they come (server-sent events)."""
        token = caller(request)
        told = None if sees_all_rows(token) else lambda record: api.change(record, token)
        is_valid = request.scope.get(IS_VALID, lambda: api.tokens.is_valid(token))
        is_page = IS_VALID in request.scope

        def goes_on() -> bool:
            if is_page and history is not None:
                history.expect()
            return bool(is_valid())

        goes_on()
        found = api.broadcast.listen(told, goes_on)
        return StreamingResponse(found, media_type="text/event-stream")

    @app.post("/v1/down", openapi_extra=body_of({"type": "object", "properties": {"grace_s": {"type": "number"}}}))
    async def down(request: Request) -> Response:
        """Stop every job, which keeps its checkpoint, and the controller."""
        body = await request.body()
        given = decoded(body or b"{}", dict[str, float])
        _log.info("a shutdown was requested")
        api.go_down(min(max(0.0, given.get("grace_s", 30.0)), 3600.0))
        return answer({"ok": True})


def _add_metrics(app: HttpApp, metrics: Metrics) -> None:
    @app.get(METRICS)
    def read_metrics(request: Request) -> Response:
        """Metrics, in the format of Prometheus."""
        return metrics.answer(request.headers.get("accept", ""))


def _add_tokens(app: HttpApp, api: Api) -> None:
    @app.get("/v1/token")
    async def own_token(request: Request) -> Response:
        """The token of this call: its role, and for whom it speaks."""
        return answer(token_row(caller(request)))

    @app.get("/v1/tokens")
    async def tokens() -> Response:
        """All tokens but that of the home."""
        return answer({"tokens": [token_row(token) for token in api.tokens.listed()]})

    @app.post("/v1/tokens", openapi_extra=body_of(TokenSpec))
    async def create_token(request: Request) -> Response:
        """Make a token; this answer is the only one that has it."""
        try:
            spec = read_token_spec(await request.body())
        except TokenError as error:
            raise ApiError(400, str(error)) from error
        secret, future = api.tokens.create(spec)
        token = await api.is_accepted(future, "hocket token list")
        _log.info("token '%s' is made, of the role %s, by token '%s'", token.name, token.role, caller(request).name)
        return answer(token_row(token) | {"token": secret})

    @app.post("/v1/tokens/{name:text}/revoke", openapi_extra=body_of({"type": "object"}))
    async def revoke_token(name: str, request: Request) -> Response:
        """Make a token invalid, at once and for ever."""
        await api.is_accepted(api.tokens.revoke(name), "hocket token list")
        _log.info("token '%s' is revoked by token '%s'", name, caller(request).name)
        return answer({"revoked": name})


def _drained(api: Api, node: str, body: bytes, is_drained: bool) -> Response:
    executor, spec = api.engine.executor, read_drain(body)
    future = drain(executor, node, spec) if is_drained else undrain(executor, node, spec.by)
    api.accepted(future, "hocket nodes")
    return answer(drained_row(api.engine.snapshot, node, api.engine.now_s()))


def _reserved(api: Api, node: str, body: bytes) -> Response:
    name = api.accepted(reserve(api.engine.executor, node, read_reserve(body)), "hocket nodes")
    return answer(reserved_row(api.engine.snapshot, name, api.engine.now_s()))


def _unreserved(api: Api, name: str, body: bytes) -> Response:
    removed = api.accepted(unreserve(api.engine.executor, name, read_unreserve(body).by), "hocket nodes")
    return answer({"removed": removed})


async def _of_node(change: Callable[..., Response], *given: Any) -> Response:
    """The answer to what is asked of a node; an error says why it cannot be done."""
    try:
        return await run_in_threadpool(change, *given)
    except NodeError as error:
        raise ApiError(404 if isinstance(error, UnknownNode) else 400, str(error)) from error
