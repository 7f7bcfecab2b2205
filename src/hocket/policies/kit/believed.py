"""When a placed job is believed to end, for policies that go by it.

That is settled when the job is placed, and is in its memo: it does not move while the job runs, so placed jobs stay in
the right order by it though nobody touches them. A job that outlives it is reviewed, and believed to need as long
again as it has run.
"""

from collections.abc import Sequence
from math import inf

from hocket.model.resources import Node
from hocket.model.view import JobView
from hocket.policies.kit.draft import Draft

_GRACE_S = 60.0  # one that ends about when it was believed to is not looked at once more


def depends_on_place(view: JobView) -> bool:
    """Is the job believed to be faster in some places than in others?"""
    return bool(view.beliefs.kinds) or view.beliefs.spread != 1.0


def pace_in(view: JobView, nodes: Sequence[Node]) -> float:
    """What these nodes make of the job's believed speed. The first says of what kind its GPUs are."""
    return view.beliefs.pace_on(nodes[0].gpu_kind, len(nodes)) if nodes and depends_on_place(view) else 1.0


def pace_now(draft: Draft, view: JobView) -> float:
    """What the nodes that the draft gives a job make of its believed speed."""
    if not depends_on_place(view):
        return 1.0
    return pace_in(view, [draft.snapshot.nodes[part.node].node for part in draft.slices_of(view)])


def left_s(view: JobView, now_s: float, size: int, pace: float) -> float:
    """How long it still needs at a size, where its speed is so much of the believed one; infinite if nothing is."""
    left = view.remaining_s(now_s, size)
    return inf if left is None or pace <= 0 else left / pace


def end_s(view: JobView, now_s: float) -> float:
    """When a placed job is believed to end."""
    if view.review_s is not None and view.memo is not None and "end_s" in view.memo:
        return float(view.memo["end_s"])  # It stands until the review, whatever happens to the job meanwhile.
    return now_s + left_s(view, now_s, view.size, view.pace)


def watch(draft: Draft, view: JobView, delay_s: float = 0.0) -> float:
    """Settle the end of a job that the draft has just started, and look at it again if it has not ended by then."""
    now_s = draft.snapshot.now_s
    return _settle(draft, view, now_s + delay_s + left_s(view, now_s, draft.size_of(view), pace_now(draft, view)))


def watch_again(draft: Draft) -> None:
    """Settle anew the ends of those whose review has come."""
    for job_id in draft.snapshot.due:
        view = draft.snapshot.jobs[job_id]
        if view.partitions:
            _settle(draft, view, view.rank[0])


def _settle(draft: Draft, view: JobView, at_s: float) -> float:
    draft.memos[view.job.id] = None
    if at_s < inf:
        draft.memos[view.job.id] = {"end_s": at_s}
        draft.reviews[view.job.id] = at_s + _GRACE_S
    return at_s
