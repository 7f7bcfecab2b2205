"""All that a policy is set to, for whoever must know later under what a result came about."""

from __future__ import annotations

from typing import Any

from hocket.policies.registry import BoundPolicy


def settings_in_full(bound: BoundPolicy) -> dict[str, Any]:
    """The parameters as plain data; of a layer also all those of what it is put around, defaults included."""
    if bound.inner is None:
        return bound.settings
    return bound.settings | {"inner_params": settings_in_full(bound.inner)}
