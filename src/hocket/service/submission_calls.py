"""The calls that submit jobs, and check them without submitting."""

from __future__ import annotations

import logging

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from hocket.model.job import Job
from hocket.model.job_spec import SpecError
from hocket.service.api import Api, ApiError, answer, caller
from hocket.service.http_app import HttpApp
from hocket.service.ignored_options import ignored_options
from hocket.service.intake import call_parts, read_submitted_specs, refused_command
from hocket.service.job_check import CheckedJob, check, form_fields
from hocket.service.openapi_schema import submission
from hocket.service.tokens import Token

_log = logging.getLogger("hocket.service")
_SHORT = 8 << 10  # bytes of a body that the event loop reads itself; a longer one would delay other calls
_COMMANDS_OF_USERS = "and users are not its admins"


def add_submission(app: HttpApp, api: Api) -> None:
    """Adds the calls."""

    @app.post("/v1/jobs", openapi_extra=submission)
    async def submit(request: Request) -> Response:
        """Submit jobs, answered once they are in the journal; or check them."""
        body, token = await request.body(), caller(request)
        if _is_check(request):
            return answer({"jobs": await run_in_threadpool(_checked, api, body, token)})
        try:
            if len(body) <= _SHORT:
                specs = read_submitted_specs(body, token.owner)
            else:
                specs = await run_in_threadpool(read_submitted_specs, body, token.owner)
        except SpecError as error:
            _log.info("a submission is refused: %s", error)
            raise ApiError(400, str(error)) from error
        for each in specs:
            _require_own(api, each.job, token)
        answers: list[dict[str, str]] = []
        for part in call_parts(specs, answers):
            answers += await api.is_accepted(api.intake.submit(part))
        ignored = (sentence for each in specs for sentence in ignored_options(each.job, api.engine.policy))
        return answer({"jobs": answers, "warnings": list(dict.fromkeys(ignored))})

    @app.get("/v1/job-fields")
    def fields() -> Response:
        """What can be said of a job: the fields of a form."""
        return answer({"fields": form_fields()})


def _is_check(request: Request) -> bool:
    value = request.query_params.get("check", "false")
    if value not in ("true", "false"):
        raise ApiError(422, f"check must be true or false, not {value[:100]!r}")
    return value == "true"


def _checked(api: Api, body: bytes, token: Token) -> list[CheckedJob]:
    def may_submit(job: Job) -> str:
        try:
            _require_own(api, job, token)
        except ApiError as error:
            return str(error.detail)
        return ""

    try:
        return check(body, token.owner, api.intake, api.engine.policy, may_submit)
    except SpecError as error:
        raise ApiError(400, str(error)) from error


def _require_own(api: Api, job: Job, token: Token) -> None:
    """A user submits jobs of its owner, which take nothing of others; or 403."""
    if token.is_admin:
        return
    of = f"token '{token.name}' is of owner '{token.owner}'"
    if job.owner != token.owner:
        raise ApiError(403, f"{of}, and the job's owner must be that or empty, not '{job.owner}'")
    launch = job.launch
    if launch is not None and not api.user_commands and (why := refused_command(job, _COMMANDS_OF_USERS)):
        raise ApiError(403, f"{of}: {why}")
    if launch is not None and launch.continues:
        before = api.engine.catalogue.get(api.engine.catalogue.names.id_of(launch.continues))
        if before is not None and before.job.owner != token.owner:
            raise ApiError(403, f"{of}, and job '{launch.continues}', to be continued, is of '{before.job.owner}'")
