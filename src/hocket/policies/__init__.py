"""One file a policy: a pure function from a snapshot to a plan."""

from hocket.policies.kit.draft import Draft
from hocket.policies.registry import (
    BoundPolicy,
    LayerParams,
    Params,
    Policy,
    PolicyError,
    UnknownPolicy,
    find,
    policies,
    policy,
)

__all__ = [
    "BoundPolicy",
    "Draft",
    "LayerParams",
    "Params",
    "Policy",
    "PolicyError",
    "UnknownPolicy",
    "find",
    "policies",
    "policy",
]
