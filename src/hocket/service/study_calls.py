"""The calls about hyperparameter studies: `hocket tune` sends summaries of them, the page shows these."""

from __future__ import annotations

from msgspec.structs import asdict, replace
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from hocket.model.job import NAME_LENGTH
from hocket.model.study_summary import StudySummary
from hocket.service.api import Api, ApiError, answer, caller, decoded
from hocket.service.http_app import HttpApp
from hocket.service.openapi_schema import body_of
from hocket.service.studies import KeptStudy, Studies, StudyRefused
from hocket.service.tokens import Role, Token

_LONGEST_BODY = 4 << 20


def add_studies(app: HttpApp, api: Api, studies: Studies) -> None:
    """Adds the calls."""

    @app.get("/v1/studies")
    def listed(request: Request) -> Response:
        """The studies that the caller may see, each in one line."""
        token = caller(request)
        return answer({"studies": [head for head in studies.listed() if _sees(token, head.owner)]})

    @app.get("/v1/studies/{study:text}")
    def show(study: str, request: Request) -> Response:
        """All about one study."""
        kept = _found(studies, study, caller(request))
        return answer(asdict(kept.head) | {"summary": kept.summary()})

    @app.put("/v1/studies/{study:text}", openapi_extra=body_of(StudySummary))
    async def tell(study: str, request: Request) -> Response:
        """Keep the summary of a study, in place of the last one; answered once it is kept."""
        token, body = caller(request), await request.body()
        if not 0 < len(study) <= NAME_LENGTH or not study.isprintable():
            raise ApiError(400, f"a study's id must be 1 to {NAME_LENGTH} printable characters, not {study[:100]!r}")
        if len(body) > _LONGEST_BODY:
            raise ApiError(413, f"the summary of a study must have {_LONGEST_BODY} bytes at most, not {len(body)}")
        summary = await run_in_threadpool(decoded, body, StudySummary)
        if not token.is_admin:
            summary = replace(summary, owner=token.owner)
        try:
            await api.is_accepted(await run_in_threadpool(studies.tell, study, summary), "hocket open")
        except StudyRefused as error:
            raise ApiError(403, str(error)) from error
        return answer({"id": study})

    @app.delete("/v1/studies/{study:text}")
    async def forget(study: str, request: Request) -> Response:
        """Keep nothing of a study; its jobs stay."""
        _found(studies, study, caller(request))
        await api.is_accepted(studies.forget(study), "hocket open")
        return answer({"id": study})


def _sees(token: Token, owner: str) -> bool:
    """Configurations and results are as a job's metrics: its owner's, and readers may look."""
    return token.role is Role.READ or token.owns(owner)


def _found(studies: Studies, study: str, token: Token) -> KeptStudy:
    kept = studies.find(study)
    if kept is None:
        raise ApiError(404, f"there is no study '{study[:200]}'")
    if not _sees(token, kept.head.owner):
        of = f"owner '{token.owner}'"
        raise ApiError(403, f"token '{token.name}' is of {of}, and study '{study}' is of owner '{kept.head.owner}'")
    return kept
