"""Which roles may make which call of the API: one line for each route. What has no line is refused to all.

What a user may see of a job that is another owner's, and `read` of any job, is in `visibility.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from starlette.routing import BaseRoute, Match, Route
from starlette.types import Scope

from hocket.service.tokens import Role

Roles = frozenset[Role | None]  # None: also without a token
_ALL: Roles = frozenset({*Role, None})
_ANY_TOKEN: Roles = frozenset(Role)
_SEE: Roles = frozenset({Role.ADMIN, Role.USER, Role.READ})
_USE: Roles = frozenset({Role.ADMIN, Role.USER})
_LEND: Roles = frozenset({Role.ADMIN, Role.AGENT})
_RULE: Roles = frozenset({Role.ADMIN})
_NONE: Roles = frozenset()

PERMISSIONS: Mapping[str, Roles] = {
    "GET /": _ALL,  # files of the page: the same for all, without data
    "GET /page/{name:path}": _ALL,
    "GET /v1/health": _ALL,
    "POST /v1/page/session": _ALL,  # The body has a token, or a link that one was given.
    "DELETE /v1/page/session": _SEE,
    "POST /v1/page/links": _SEE,
    "GET /v1/gpus": _SEE,
    "GET /v1/ahead": _SEE,
    "GET /openapi.json": _ANY_TOKEN,
    "GET /v1/token": _ANY_TOKEN,
    "GET /metrics": _SEE,
    "GET /v1/jobs": _SEE,
    "GET /v1/job-fields": _SEE,
    "GET /v1/jobs/{job_id:path}": _SEE,
    "GET /v1/jobs/{job_id:path}/why": _SEE,
    "GET /v1/owners": _SEE,
    "GET /v1/nodes": _SEE,
    "GET /v1/status": _SEE,
    "GET /v1/events": _SEE,
    "GET /v1/at": _SEE,
    "GET /v1/at/{cycle}": _SEE,
    "GET /v1/cycles": _SEE,
    "GET /v1/policies": _SEE,
    "GET /v1/whatif": _SEE,
    "POST /v1/whatif": _USE,
    "DELETE /v1/whatif": _USE,
    "GET /v1/studies": _SEE,
    "GET /v1/studies/{study:text}": _SEE,
    "PUT /v1/studies/{study:text}": _USE,
    "DELETE /v1/studies/{study:text}": _USE,
    "GET /v1/jobs/{job_id:path}/log": _USE,
    "GET /v1/jobs/{job_id:path}/answer": _USE,
    "POST /v1/jobs": _USE,
    "GET /v1/bundles/{digest}": _USE,
    "PUT /v1/bundles/{digest}/{offset}": _USE,
    "GET /v1/bundles/{digest}/{offset}": _LEND,
    "POST /v1/jobs/{job_id:path}/pause": _USE,
    "POST /v1/jobs/{job_id:path}/resume": _USE,
    "POST /v1/jobs/{job_id:path}/stop": _USE,
    "POST /v1/job-requests": _USE,
    "PUT /v1/owners/{owner_id:text}": _RULE,
    "POST /v1/nodes/{node:text}/drain": _RULE,
    "POST /v1/nodes/{node:text}/undrain": _RULE,
    "POST /v1/nodes/{node:text}/reserve": _RULE,
    "POST /v1/nodes/{name:text}/unreserve": _RULE,
    "GET /v1/tokens": _RULE,
    "POST /v1/tokens": _RULE,
    "POST /v1/tokens/{name:text}/revoke": _RULE,
    "POST /v1/down": _RULE,
    "POST /v1/agents/hello": _LEND,
    "POST /v1/agents/{session}/alive": _LEND,
    "POST /v1/agents/{session}/reports": _LEND,
    "GET /v1/agents/{session}/orders": _LEND,
    "POST /v1/agents/{session}/logs/{log_request}": _LEND,
}


def declared(method: str, path: str) -> Roles:
    """The roles that may call a route, by the path that it is declared with; none if that has no line here."""
    return PERMISSIONS.get(f"{'GET' if method == 'HEAD' else method} {path}", _NONE)


class Permissions:
    """Finds the line of a request as the router finds its route."""

    def __init__(self, routes: Sequence[BaseRoute]) -> None:
        self._routes = routes  # of the app, which may get more
        self._fixed: dict[tuple[str, str], tuple[str, Roles]] = {}  # by method and path, of routes without parameters

    def of(self, scope: Scope) -> tuple[str, Roles]:
        """The call as it is declared, and the roles that may make it; all with a token may call what no route serves.

        The answer to that is 404, or 405.
        """
        method, path = key = scope["method"], scope["path"]
        if (found := self._fixed.get(key)) is not None:
            return found
        for route in self._routes:
            if isinstance(route, Route):  # As `matches` does, in a tenth of the time.
                is_served = route.path_regex.match(path) and (not route.methods or method in route.methods)
                as_declared = route.path
            else:
                is_served, as_declared = route.matches(scope)[0] is Match.FULL, ""
            if is_served:
                found = f"{method} {as_declared}", declared(method, as_declared)
                if as_declared == path:
                    self._fixed[key] = found
                return found
        return f"{method} {path}", _ANY_TOKEN
