"""The page at `/`: its files, and how a browser signs in and out (docs/page.md)."""

from __future__ import annotations

import logging
from typing import Annotated

from msgspec import Meta, Struct
from starlette.requests import Request
from starlette.responses import Response

from hocket.service.api import Api, ApiError, answer, caller, decoded
from hocket.service.http_app import HttpApp
from hocket.service.openapi_schema import body_of
from hocket.service.page_files import HEADERS, page_files
from hocket.service.page_sessions import PageSession, PageSessions
from hocket.service.request_guard import is_same_origin
from hocket.service.tokens import Role, token_row

_log = logging.getLogger("hocket.service")
_SECRET_LENGTH = 200


class SignIn(Struct, frozen=True, forbid_unknown_fields=True):
    """What a browser signs in with: one of both."""

    link: Annotated[str, Meta(max_length=_SECRET_LENGTH, description="of POST /v1/page/links")] = ""
    token: Annotated[str, Meta(max_length=_SECRET_LENGTH, description="a token")] = ""


def add_page(app: HttpApp, api: Api, sessions: PageSessions) -> None:
    """Adds the calls."""

    @app.get("/", include_in_schema=False)
    async def page(request: Request) -> Response:
        return _file(request, "index.html")

    @app.get("/page/{name:path}", include_in_schema=False)
    async def page_file(name: str, request: Request) -> Response:
        return _file(request, name)

    @app.post("/v1/page/links", openapi_extra=body_of({"type": "object"}))
    async def make_link(request: Request) -> Response:
        """Make a link that signs a browser in as the caller, once and soon."""
        token = caller(request)
        if not request.headers.get("authorization"):  # Else a session could follow itself without end.
            raise ApiError(403, "a link is made with a token, not from the page")
        link, expires_s = sessions.make_link(token)
        return answer({"path": f"/#link={link}", "expires_s": expires_s})

    @app.post("/v1/page/session", openapi_extra=body_of(SignIn))
    async def sign_in(request: Request) -> Response:
        """Sign a browser in: the answer sets a cookie, and has what the page shows with it."""
        if not is_same_origin(request.scope["headers"]):
            raise ApiError(403, "a browser signs in from the controller's own page")
        body = await request.body()
        given = decoded(body or b"{}", SignIn)
        token = sessions.use_link(given.link) if given.link else api.tokens.find(given.token.encode())
        if token is None:
            wrong = "the link was used before, or is too old; `hocket open` makes another" if given.link else _WRONG
            raise ApiError(401, wrong)
        if token.role is Role.AGENT:
            raise ApiError(403, f"token '{token.name}' has the role agent, and the page is for admin, user and read")
        session = sessions.begin(token)
        _log.info("token '%s' signs in at the page", token.name)
        found = answer({"proof": session.proof, "expires_s": session.expires_s, "token": token_row(token)})
        _set_cookie(found, request, sessions, session)
        return found

    @app.delete("/v1/page/session")
    async def sign_out(request: Request) -> Response:
        """End the session of this browser."""
        cookies = request.headers.get("cookie", "").encode("latin-1")
        if not request.headers.get("authorization"):
            await api.is_accepted(sessions.end(cookies), "hocket token list")
        found = answer({"signed_out": True})
        found.delete_cookie(sessions.cookie_name, path="/", httponly=True, samesite="strict")
        return found


_WRONG = "the token is wrong, was revoked, or has expired"


def _set_cookie(found: Response, request: Request, sessions: PageSessions, session: PageSession) -> None:
    found.set_cookie(
        sessions.cookie_name,
        session.cookie,
        max_age=max(1, int(session.expires_s - sessions.now_s())),
        path="/",
        secure=request.url.scheme == "https",
        httponly=True,
        samesite="strict",
    )


def _file(request: Request, name: str) -> Response:
    found = page_files().get(name)
    if found is None:
        raise ApiError(404, f"the page has no file '{name[:200]}'")
    headers = {**HEADERS, "ETag": found.tag}
    if request.headers.get("if-none-match") == found.tag:
        return Response(status_code=304, headers=headers)
    if "gzip" in request.headers.get("accept-encoding", ""):
        return Response(found.compressed, media_type=found.kind, headers={**headers, "Content-Encoding": "gzip"})
    return Response(found.body, media_type=found.kind, headers=headers)
