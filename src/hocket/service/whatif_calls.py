"""The calls that ask what another policy would have done, and which policies there are."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from hocket.policies.kit.parameters import parameters
from hocket.policies.registry import PolicyError, UnknownPolicy, find, policies
from hocket.service.api import Api, ApiError, answer, caller, decoded
from hocket.service.http_app import HttpApp
from hocket.service.openapi_schema import body_of
from hocket.service.whatif_runs import Busy, WhatIfRun, WhatIfRuns, WhatIfSpec


def add_whatif(app: HttpApp, api: Api, runs: WhatIfRuns | None) -> None:
    """Without a place for runs, nothing can be asked."""

    def there() -> WhatIfRuns:
        if runs is None:
            raise ApiError(404, "this controller runs nothing again")
        return runs

    @app.get("/v1/policies")
    def known() -> Response:
        """The policies, with their parameters."""
        return answer({"policies": [_policy(name) for name in policies()]})

    @app.get("/v1/whatif")
    def last(request: Request) -> Response:
        """The caller's last run, or the last of all: how far it is, and what came of it."""
        return answer(_shown_run(there().run_of(caller(request))))

    @app.post("/v1/whatif", openapi_extra=body_of(WhatIfSpec))
    async def begin(request: Request) -> Response:
        """Run the recorded past again under another policy."""
        spec = decoded(await request.body(), WhatIfSpec)
        try:
            find(spec.policy).bound(spec.params)
            return answer(_shown_run(there().begin(spec, api.engine.now_s(), caller(request))))
        except (PolicyError, UnknownPolicy) as error:
            raise ApiError(400, str(error)) from error
        except Busy as error:
            raise ApiError(409, str(error)) from error
        except OSError as error:
            raise ApiError(503, f"no process could be started: {error}") from error

    @app.delete("/v1/whatif")
    async def cancel(request: Request) -> Response:
        """Cancel the run that `GET` tells of."""
        token = caller(request)
        run = there().run_of(token)
        if run is not None and not token.is_admin and run.by != token.name:
            raise ApiError(403, f"the run is of token '{run.by}', and this is token '{token.name}'")
        if run is not None:
            there().cancel(run)
        return answer(_shown_run(run))


def _shown_run(run: WhatIfRun | None) -> dict[str, Any] | WhatIfRun:
    return {"state": "none"} if run is None else run


def _policy(name: str) -> dict[str, Any]:
    policy = find(name)
    told = [
        {"name": p.name, "type": p.type, "default": p.default_text, "description": p.description}
        for p in parameters(policy.params)
    ]
    return {"name": name, "summary": policy.summary, "paper": policy.paper, "parameters": told}
