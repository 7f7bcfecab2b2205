"""Functions that answer HTTP calls: what they read of the path and of the query is said by their arguments.

That is all that our calls need beyond starlette. A framework that also reads bodies and makes answers by types took
half of the time in which a controller starts.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache, partial
from inspect import Parameter, iscoroutinefunction, signature
from typing import Any, NamedTuple, TypeVar, get_type_hints

import msgspec
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

Answering = TypeVar("Answering", bound=Callable[..., Any])
_WORDS = {"`int`": "an integer", "`bool`": "true or false", "`float | null`": "a number"}
_ERROR = {"type": "object", "properties": {"error": {"type": "string"}}, "required": ["error"]}


class Value(NamedTuple):
    """What a function reads of a call: a part of its path or a value of its query, of a type with its bounds."""

    name: str
    type: Any
    default: Any  # Parameter.empty: it must be said
    is_in_path: bool

    def read(self, request: Request) -> Any:
        """As this request says it, or the request itself. Raises HTTPException."""
        if self.type is Request:
            return request
        text = (request.path_params if self.is_in_path else request.query_params).get(self.name)
        if text is None:
            if self.default is Parameter.empty:
                raise HTTPException(422, f"{self.name} must be said, in the query")
            return self.default
        try:
            found = msgspec.convert(text, self.type, strict=False)
        except msgspec.ValidationError as error:
            _, expected, rule = str(error).partition(", got")[0].partition("Expected ")
            raise self._refused(rule if expected else "a number of fewer digits", text) from error
        if type(found) is int and str(found) != text:  # as 1e9, or 2.0
            raise self._refused("`int`", text)
        return found

    def _refused(self, rule: str, text: str) -> HTTPException:
        for word, plain in _WORDS.items():
            rule = rule.replace(word, plain)
        return HTTPException(422, f"{self.name} must be {rule}, not {text[:100]!r}")

    def described(self) -> dict[str, Any]:
        """For OpenAPI."""
        is_required = self.default is Parameter.empty
        schema = msgspec.json.schema(self.type) | ({} if is_required else {"default": self.default})
        place = "path" if self.is_in_path else "query"
        return {"name": self.name, "in": place, "required": is_required, "schema": schema}


class HttpApp(Starlette):
    """Routes to functions. One without `async` is called in a thread; all give a response."""

    def __init__(self, title: str, version: str) -> None:
        super().__init__()
        self._info = {"title": title, "version": version}
        self._described: list[tuple[Route, str, str, Callable[[], list[Value]], Callable[[], dict[str, Any]]]] = []

        @self.get("/openapi.json", include_in_schema=False)
        async def description() -> Response:
            return Response(msgspec.json.encode(self.openapi()), media_type="application/json")

    def get(self, path: str, **about: Any) -> Callable[[Answering], Answering]:
        """The function below answers GET; `about` as in `add`."""
        return partial(self.add, "GET", path, **about)

    def post(self, path: str, **about: Any) -> Callable[[Answering], Answering]:
        """The same for POST."""
        return partial(self.add, "POST", path, **about)

    def put(self, path: str, **about: Any) -> Callable[[Answering], Answering]:
        """The same for PUT."""
        return partial(self.add, "PUT", path, **about)

    def delete(self, path: str, **about: Any) -> Callable[[Answering], Answering]:
        """The same for DELETE."""
        return partial(self.add, "DELETE", path, **about)

    def add(
        self,
        method: str,
        path: str,
        function: Answering,
        *,
        openapi_extra: Callable[[], dict[str, Any]] = dict,
        include_in_schema: bool = True,
    ) -> Answering:
        """A function for the calls of a method and path. `openapi_extra` gives what its signature does not say."""
        is_async = iscoroutinefunction(function)

        @cache  # when it is first called: to do it for all takes a while, and many are never called
        def values() -> list[Value]:
            types = get_type_hints(function, include_extras=True)
            given = signature(function).parameters.items()
            return [
                Value(name, types[name], parameter.default, name in route.param_convertors) for name, parameter in given
            ]

        async def serve(request: Request) -> Response:
            given = {value.name: value.read(request) for value in values()}
            found: Response = await (function(**given) if is_async else run_in_threadpool(function, **given))
            return found

        route = Route(path, serve, methods=[method], name=function.__name__)
        route.methods = {method}  # starlette adds HEAD.
        self.router.routes.append(route)
        if include_in_schema:
            self._described.append((route, method, function.__doc__ or "", values, openapi_extra))
        return function

    def openapi(self) -> dict[str, Any]:
        """The description of the API, as OpenAPI wants it."""
        paths: dict[str, dict[str, Any]] = {}
        for route, method, text, values, openapi_extra in self._described:
            extra, named = openapi_extra(), [value.described() for value in values() if value.type is not Request]
            word = re.sub(r"\W", "_", f"{route.name}{route.path_format}_{method.lower()}")
            paths.setdefault(route.path_format, {})[method.lower()] = {
                "summary": route.name.replace("_", " ").capitalize(),
                "description": text,
                "operationId": word,
                **extra,
                "parameters": [*named, *extra.get("parameters", ())],
                "responses": {
                    "200": {"description": "The answer.", "content": {"application/json": {"schema": {}}}},
                    "4XX": {"description": "What is wrong.", "content": {"application/json": {"schema": _ERROR}}},
                },
            }
        return {"openapi": "3.1.0", "info": self._info, "paths": paths}
