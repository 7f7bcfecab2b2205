"""Changes, in the imperative. An executor carries each out and reports an event when it has.

Every action names a `job` by its id. Where it has a `task`, that is one task or replica of the job ("layer1",
"layer1#2"), empty for a job that is not divided into tasks.
"""

from __future__ import annotations

from typing import final

from msgspec import Struct

from hocket.model.partition import NOW, Boundary, Holding, Partition
from hocket.model.view import Tier


class _Action(Struct, frozen=True, gc=False, tag_field="action"):
    job: str  # id of the job to change


@final
class Prepare(_Action, frozen=True, gc=False, tag=True):
    """Bring the job up to the point before its main, without resources."""


@final
class Checkpoint(_Action, frozen=True, gc=False, tag=True):
    """Save the job's state at the boundary; it goes on."""

    tier: Tier = Tier.DISK  # where the state is saved
    boundary: Boundary = NOW  # when it is saved: at once, or at the end of a step or epoch


@final
class Pause(_Action, frozen=True, gc=False, tag=True):
    """Save the tenant's state at the boundary and leave its resources."""

    task: str = ""  # which task leaves; empty for a job without tasks
    tier: Tier = Tier.DISK  # where its state is kept meanwhile
    boundary: Boundary = NOW  # when it leaves: at once, or at the end of a step or epoch


@final
class End(_Action, frozen=True, gc=False, tag=True):
    """Stop the job for good."""

    verdict: str  # why, as in `Verdict`


@final
class Store(_Action, frozen=True, gc=False, tag=True):
    """Bring a paused job's state to another tier."""

    tier: Tier  # where the state shall be afterwards


@final
class Resize(_Action, frozen=True, gc=False, tag=True):
    """Go on in the same partition with other resources, or with running epochs of another length."""

    task: str  # which task; empty for a job without tasks
    to: Holding  # what it will hold
    partition: Partition  # as it will be, with all its tenants


@final
class Move(_Action, frozen=True, gc=False, tag=True):
    """Go on in another place with as much as before."""

    task: str  # which task; empty for a job without tasks
    to: Holding  # what it will hold, on other nodes or GPUs
    partition: Partition  # as it will be, with all its tenants


@final
class Start(_Action, frozen=True, gc=False, tag=True):
    """Run a tenant that has no saved state."""

    task: str  # which task; empty for a job without tasks
    to: Holding  # what it will hold
    partition: Partition  # with its other tenants: the executor arranges how they share it


@final
class Resume(_Action, frozen=True, gc=False, tag=True):
    """Run a tenant again from its saved state."""

    task: str  # which task; empty for a job without tasks
    to: Holding  # what it will hold; it may be of another size than before
    partition: Partition  # with its other tenants, as in `Start`


# Any of the changes that a controller tells an executor.
Action = Prepare | Checkpoint | Pause | End | Store | Resize | Move | Start | Resume
