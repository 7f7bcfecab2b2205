"""The calls for bundles: users upload them before their jobs, in parts, and agents fetch them."""

from __future__ import annotations

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from hocket.service.api import Api, ApiError, Offset, answer
from hocket.service.bundle_store import BundleRefused, BundleStore
from hocket.service.http_app import HttpApp


def add_bundles(app: HttpApp, api: Api, bundles: BundleStore) -> None:
    """Adds the calls."""

    @app.get("/v1/bundles/{digest}")
    def shown(digest: str) -> Response:
        """Whether a bundle is there."""
        return answer({"digest": digest, "is_there": bundles.has(digest)})

    @app.put("/v1/bundles/{digest}/{offset}")
    async def upload(digest: str, offset: Offset, request: Request, size: Offset) -> Response:
        """A part of a bundle of `size` bytes, which begins at this offset; the body is its bytes."""
        body = await request.body()

        def add() -> bool:
            if offset == 0:
                bundles.sweep(needed(api))
            return bundles.add(digest, offset, size, body)

        try:
            return answer({"digest": digest, "is_there": await run_in_threadpool(add)})
        except BundleRefused as error:
            raise ApiError(400, str(error)) from error
        except OSError as error:
            raise ApiError(507, f"bundle {digest[:12]} cannot be kept: {error.strerror or error}") from error

    @app.get("/v1/bundles/{digest}/{offset}", include_in_schema=False)
    def part(digest: str, offset: Offset) -> Response:
        try:
            return Response(bundles.read(digest, max(offset, 0)), media_type="application/octet-stream")
        except KeyError:
            raise ApiError(404, f"there is no bundle {digest[:12]} any more: submit the job again") from None


def needed(api: Api) -> set[str]:
    """The bundles of jobs that are not over."""
    launches = (view.job.launch for view in api.engine.snapshot.jobs.values())
    return {launch.working_dir for launch in launches if launch is not None and launch.working_dir}
