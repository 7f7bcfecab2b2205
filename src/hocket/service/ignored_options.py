"""Options of a job that have no effect under a policy: users are told, and which policies use them."""

from __future__ import annotations

from collections.abc import Iterator

from hocket.model.job import Job
from hocket.model.job_spec import FIELDS, option_of
from hocket.policies.registry import OPTIONAL_FIELDS, BoundPolicy, policies

_DEFAULTS = {field.field: field.given_default for field in FIELDS if field.part == "job"}


def ignored_options(job: Job, policy: BoundPolicy) -> Iterator[str]:
    """One sentence for each option that was given and that the policy does not read, as far as its author says."""
    reads = policy.reads
    if reads is None:
        return
    for name in OPTIONAL_FIELDS:
        if name in reads or getattr(job, name) == _DEFAULTS[name]:
            continue
        users = ", ".join(p.name for p in policies().values() if name in (p.reads or ()))
        said = f"; policies that use it: {users}" if users else "; no policy uses it"
        yield f"{option_of(name)} has no effect under policy '{_named(policy)}'{said}"


def _named(policy: BoundPolicy) -> str:
    own = policy.policy.name
    return own if policy.inner is None else f"{own} around {_named(policy.inner)}"
