"""Harmony's parameters."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from hocket.policies.harmony.columns import Weights
from hocket.policies.registry import Params


class Harmony(Params, frozen=True):
    variant: Annotated[
        Literal["best", "paper", "oracle"],
        Meta(
            description="how groups are found: our search, Algorithm 1 as printed, or exhaustively where that is small"
        ),
    ] = "best"
    cpu_weight: Annotated[
        float, Meta(ge=0, le=1, description="what CPU counts in utilisation; network has the rest")
    ] = 0.6
    objective: Annotated[
        Literal["work", "use"],
        Meta(description="what a grouping is worth: the work it gets done, or utilisation as in equation 4"),
    ] = "work"
    fewer: Annotated[float, Meta(ge=0, lt=1, description="share of that worth given up for fewer jobs at once")] = 0.05
    similar: Annotated[float, Meta(ge=0, description="by how much a substitute may differ from the job that left")] = (
        0.05
    )
    join_gain: Annotated[
        float, Meta(ge=0, description="share of a group's machines that a job must be worth to join it")
    ] = 0.005
    regroup_gain: Annotated[float, Meta(ge=0, description="share by which a regrouping must win")] = 0.05
    horizon_s: Annotated[
        float, Meta(gt=0, description="time in which a regrouping must gain more than its migrations may cost")
    ] = 7200.0
    migrating: Annotated[
        float, Meta(ge=0, le=1, description="share of machine time that migrations of regroupings may take")
    ] = 0.015
    patience_s: Annotated[
        float, Meta(gt=0, description="who has waited so long has the next place, and is not sent away again")
    ] = 86_400.0
    reloading: Annotated[
        bool, Meta(description="whether jobs spill data; if not, a group has the machines that its jobs need alone")
    ] = True
    profile_iterations: Annotated[int, Meta(ge=1, description="iterations seen before a profile is believed")] = 3
    profile_machines: Annotated[int, Meta(ge=1, description="machines of a group that is opened to profile")] = 16
    profile_at_once: Annotated[int, Meta(ge=1, description="newcomers that one group profiles at a time")] = 4
    looked_at: Annotated[int, Meta(ge=1, description="waiting jobs that a regrouping considers")] = 64
    widest: Annotated[int, Meta(ge=1, description="groups up to which a regrouping may involve all of them")] = 32

    @property
    def weights(self) -> Weights:
        """As the kernel takes them."""
        return Weights(self.cpu_weight, 1 - self.cpu_weight)
