"""A policy that changes the size and place of jobs all the time, for chaos runs."""

from typing import Annotated

from msgspec import Meta

from hocket.model import JobView, Plan, Snapshot, Wake
from hocket.policies import Draft, Params, policy


class Restless(Params, frozen=True):
    every_s: Annotated[float, Meta(gt=0, description="between decisions")] = 1.0
    paused: Annotated[float, Meta(ge=0, le=1, description="how likely a placed job is paused")] = 0.1
    resized: Annotated[float, Meta(ge=0, le=1, description="how likely it is given another size")] = 0.2


def rank(view: JobView, _now_s: float, _params: Restless) -> tuple[float]:
    """In order of submission."""
    return (view.submitted_s,)


@policy("restless", params=Restless, order=rank, reads_beliefs=False)
def decide(snapshot: Snapshot, params: Restless) -> Plan:
    """Pauses and resizes jobs by dice, and starts whatever fits."""
    draft, dice = Draft(snapshot), snapshot.rng()
    for entry in list(snapshot.placed):
        view, luck = snapshot.jobs[entry[-1]], dice.random()
        if luck < params.paused:
            draft.pause(view, "paused: the dice say so")
        elif luck < params.paused + params.resized:
            draft.resize(view, dice.choice(view.job.sizes), "resized: the dice say so")
    for view in draft.candidates():
        draft.start(view, "starts: there is room", dice.choice(view.job.sizes))
    again_s = snapshot.now_s + params.every_s if snapshot.jobs else None
    return draft.plan(Wake(freed_gpus=1, epoch=False, at_s=again_s))
