"""Fixed sizes, as a cluster gives them whose manager never adjusts anything."""

from functools import lru_cache
from typing import Annotated, Any, ClassVar, Literal

from msgspec import Meta

from hocket.model.plan import Plan, Wake
from hocket.model.snapshot import Snapshot
from hocket.model.view import JobView
from hocket.policies.kit.draft import Draft
from hocket.policies.kit.fixed_sizes import serve
from hocket.policies.registry import Params, policy


class Static(Params, frozen=True):
    size: Annotated[
        Literal["smallest", "largest"], Meta(description="which of its sizes a job has whose model is not named below")
    ] = "smallest"
    models: Annotated[
        str, Meta(description="sizes by model, as `lr=8,mf=4`; of a job's own sizes the largest that is not above it")
    ] = ""
    spare_gpus: Annotated[
        bool, Meta(description="whether jobs that need no GPU go to nodes without GPUs as long as there is room")
    ] = True
    before: ClassVar[dict[str, Any]] = {"spare_gpus": False}

    def __post_init__(self) -> None:
        sizes_by_model(self.models)


@policy(
    "static",
    params=Static,
    paper="the baseline of Dorm, Docker Swarm",
    reads_beliefs=False,
    reads_usage=False,
    reads=(),
)
def decide(snapshot: Snapshot, params: Static) -> Plan:
    """In the order of submission, each at a fixed size that it keeps; those that do not fit wait, others may overtake.

    Nothing grows, shrinks or pauses.
    """
    draft, by_model = Draft(snapshot), sizes_by_model(params.models)

    def choose(view: JobView, sizes: tuple[int, ...]) -> int:
        wanted = by_model.get(view.job.model)
        if wanted is None:
            return sizes[0 if params.size == "smallest" else -1]
        return max((n for n in sizes if n <= wanted), default=sizes[0])

    first = serve(draft, choose, "its fixed size", params.spare_gpus)
    if first:
        draft.reasons["*"] = f"waits: '{first}' and others have fixed sizes that do not fit yet"
    return draft.plan(Wake(freed_gpus=1 if first or draft.over_quota else None, epoch=False))


@lru_cache(maxsize=8)
def sizes_by_model(text: str) -> dict[str, int]:
    """`lr=8,mf=4` as a table."""
    found = {}
    for part in filter(None, (p.strip() for p in text.split(","))):
        model, equals, size = part.rpartition("=")
        if not equals or not model or not size.isdecimal() or int(size) < 1:
            raise ValueError(f"models must be as MODEL=SIZE, with a size from 1 up, not '{part}'")
        found[model] = int(size)
    return found
