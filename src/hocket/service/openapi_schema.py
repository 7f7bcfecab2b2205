"""The bodies of requests, in the API's own description (OpenAPI)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from hocket.model.job import NAME_LENGTH
from hocket.model.job_spec import JobSpec
from hocket.service.intake import CALL_LIMIT

_CHECK = {
    "name": "check", "in": "query", "required": False, "schema": {"type": "boolean", "default": False},
    "description": "Check the jobs and submit nothing.",
}  # fmt: skip


def body_of(given: type | dict[str, Any]) -> Callable[[], dict[str, Any]]:
    """Gives what a route adds to its description: its body, by a struct or a schema."""

    def described() -> dict[str, Any]:
        schema = schema_of(given) if isinstance(given, type) else given
        return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}

    return described


def schema_of(kind: type) -> dict[str, Any]:
    """A struct's schema, with all that it refers to put in."""
    (spec,), defined = msgspec.json.schema_components([kind], ref_template="{name}")

    def whole(part: Any) -> Any:
        if isinstance(part, list):
            return [whole(each) for each in part]
        if not isinstance(part, dict):
            return part
        return whole(defined[part["$ref"]]) if "$ref" in part else {key: whole(each) for key, each in part.items()}

    found: dict[str, Any] = whole(spec)
    return found


def submission() -> dict[str, Any]:
    """What `POST /v1/jobs` adds to its description."""
    return body_of(submission_schema())() | {"parameters": [_CHECK]}


def submission_schema() -> dict[str, Any]:
    """What `POST /v1/jobs` reads."""
    return {
        "type": "object",
        "anyOf": [{"required": ["jobs"]}, {"required": ["options"]}],
        "additionalProperties": False,
        "properties": {
            "jobs": {"type": "array", "minItems": 1, "maxItems": CALL_LIMIT, "items": schema_of(JobSpec)},
            "options": {
                "type": "array",
                "minItems": 1,
                "maxItems": CALL_LIMIT,
                "items": {"type": "object"},
                "description": "instead of jobs: what users write, by the names of options and of keys in files",
            },
            "owner": {"type": "string", "maxLength": NAME_LENGTH, "description": "of jobs that name none"},
        },
    }
