"""Changes, in the imperative. An executor makes each true and reports an event when it has."""

from __future__ import annotations

from typing import final

from msgspec import Struct

from hocket.model.partition import NOW, Boundary, Holding, Partition
from hocket.model.view import Tier


class _Action(Struct, frozen=True, gc=False, tag_field="action"):
    job: str


@final
class Prepare(_Action, frozen=True, gc=False, tag=True):
    """Bring the job up to the point before its main, without resources."""


@final
class Checkpoint(_Action, frozen=True, gc=False, tag=True):
    """Save the job's state at the boundary; it goes on."""

    tier: Tier = Tier.DISK
    boundary: Boundary = NOW


@final
class Pause(_Action, frozen=True, gc=False, tag=True):
    """Save the tenant's state at the boundary and leave its resources."""

    task: str = ""
    tier: Tier = Tier.DISK
    boundary: Boundary = NOW


@final
class End(_Action, frozen=True, gc=False, tag=True):
    """Stop the job for good."""

    verdict: str


@final
class Store(_Action, frozen=True, gc=False, tag=True):
    """Bring a paused job's state to another tier."""

    tier: Tier


@final
class Resize(_Action, frozen=True, gc=False, tag=True):
    """Go on in the same partition with other resources, or with running epochs of another length."""

    task: str
    to: Holding
    partition: Partition


@final
class Move(_Action, frozen=True, gc=False, tag=True):
    """Go on in another place with as much as before."""

    task: str
    to: Holding
    partition: Partition


@final
class Start(_Action, frozen=True, gc=False, tag=True):
    """Run a tenant that has no saved state."""

    task: str
    to: Holding
    partition: Partition  # with its other tenants, for how they share it is the executor's to arrange


@final
class Resume(_Action, frozen=True, gc=False, tag=True):
    """Run a tenant again from its saved state."""

    task: str
    to: Holding
    partition: Partition


Action = Prepare | Checkpoint | Pause | End | Store | Resize | Move | Start | Resume
