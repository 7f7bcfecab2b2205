"""A policy for tests of resizing: a running job gets the next of its sizes repeatedly."""

from typing import Annotated

from msgspec import Meta

from hocket.model import JobView, Plan, Snapshot, Wake
from hocket.policies import Draft, Params, policy


class Seesaw(Params, frozen=True):
    every_s: Annotated[float, Meta(gt=0, description="between changes")] = 1.0
    grows_once: Annotated[bool, Meta(description="jobs change once, after a report, to their largest")] = False


def rank(view: JobView, _now_s: float, _params: Seesaw) -> tuple[float]:
    """In order of submission."""
    return (view.submitted_s,)


@policy("seesaw", params=Seesaw, order=rank, reads_beliefs=False)
def decide(snapshot: Snapshot, params: Seesaw) -> Plan:
    """Starts what fits, and moves each job on to the next of its sizes that fits once the last change is done."""
    draft = Draft(snapshot)
    for entry in list(snapshot.placed):
        view = snapshot.jobs[entry[-1]]
        is_settled = view.size == draft.size_of(view) and not snapshot.unsettled
        if is_settled and (size := _next_size(view, params)) != view.size:
            draft.resize(view, size, "resized: it is time")
    for view in draft.candidates():
        draft.start(view, "starts: there is room", view.job.sizes[0])
    again_s = snapshot.now_s + params.every_s if snapshot.jobs else None
    return draft.plan(Wake(freed_gpus=1, epoch=False, at_s=again_s))


def _next_size(view: JobView, params: Seesaw) -> int:
    sizes = view.job.sizes
    if params.grows_once:
        return sizes[-1] if view.observations else view.size
    return sizes[(sizes.index(view.size) + 1) % len(sizes)]
