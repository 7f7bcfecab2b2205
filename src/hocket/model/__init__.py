"""The nouns of Hocket: frozen values, standard library and msgspec only."""

from hocket.model.action import Action, Checkpoint, End, Move, Pause, Prepare, Resize, Resume, Start, Store
from hocket.model.capacity import Capacity
from hocket.model.criterion import Criterion
from hocket.model.curve import Beliefs, Curve, Estimate, Point
from hocket.model.event import Event
from hocket.model.job import Edge, Job, Kind, Owner, Task, TaskGraph
from hocket.model.partition import EPOCH, NOW, STEP, Boundary, Holding, Partition, Sharing, Tenant
from hocket.model.plan import ALWAYS, Plan, Verdict, Wake
from hocket.model.resources import Demand, Node, Slice
from hocket.model.snapshot import Snapshot
from hocket.model.view import (
    Costs,
    Doing,
    JobState,
    JobView,
    NodeView,
    Observation,
    SuspendedProcess,
    Tenancy,
    Tier,
    Use,
)

__all__ = [
    "ALWAYS",
    "EPOCH",
    "NOW",
    "STEP",
    "Action",
    "Beliefs",
    "Boundary",
    "Capacity",
    "Checkpoint",
    "Costs",
    "Criterion",
    "Curve",
    "Demand",
    "Doing",
    "Edge",
    "End",
    "Estimate",
    "Event",
    "Holding",
    "Job",
    "JobState",
    "JobView",
    "Kind",
    "Move",
    "Node",
    "NodeView",
    "Observation",
    "Owner",
    "Partition",
    "Pause",
    "Plan",
    "Point",
    "Prepare",
    "Resize",
    "Resume",
    "Sharing",
    "Slice",
    "Snapshot",
    "Start",
    "Store",
    "SuspendedProcess",
    "Task",
    "TaskGraph",
    "Tenancy",
    "Tenant",
    "Tier",
    "Use",
    "Verdict",
    "Wake",
]
