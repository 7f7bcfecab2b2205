"""The policy: newcomers first (Algorithm 1), then idle GPUs (Algorithm 2)."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from hocket.model.plan import Plan, Wake
from hocket.model.snapshot import Snapshot
from hocket.policies.kit.draft import Draft
from hocket.policies.kit.remaining_time import PredictedEnds, Predicting, by_end
from hocket.policies.registry import policy
from hocket.policies.reshape.growth import grow
from hocket.policies.reshape.newcomers import serve


class Reshape(Predicting, frozen=True):
    """The paper's algorithms as they are; all else is off unless asked for."""

    objective: Annotated[
        Literal["makespan", "jct"], Meta(description="the latest predicted end, or the mean of all predicted ends")
    ] = "makespan"
    donors: Annotated[int, Meta(ge=1, description="how many running jobs may shrink for one newcomer")] = 1
    hysteresis: Annotated[
        float, Meta(ge=0, lt=1, description="a job grows if that saves more than this share of what it has left")
    ] = 0.0


@policy("reshape", params=Reshape, order=by_end, paper="Reshape, Wang et al., SC'20", reads_usage=False, reads=())
def decide(snapshot: Snapshot, params: Reshape) -> Plan:
    """Each newcomer gets the size, and if need be a running job's GPUs, with which the last job ends soonest.

    All its sizes are tried, and for each every running job that can give up what is missing. When no job waits, idle
    GPUs go to the running job with which the last one ends soonest, again and again, as long as that is sooner than
    now. Equal last ends: the smaller sum of ends, then fewer GPUs moved. Ends count what switching takes.
    """
    draft = Draft(snapshot)
    ends = PredictedEnds(draft, by_mean=params.objective == "jct")
    waiting = serve(draft, ends, params.donors, params.unknown_s)
    if waiting:
        draft.reasons["*"] = "waits: no size of it can be met, not with the GPUs of others either"
    elif draft.free_gpus:
        grow(draft, ends, params.hysteresis)
    wanting = waiting or draft.over_quota > 0 or draft.free_gpus > 0
    changes = ends.changing or bool(ends.changed)
    return draft.plan(Wake(epoch=wanting, at_s=snapshot.now_s if wanting and changes else None))
