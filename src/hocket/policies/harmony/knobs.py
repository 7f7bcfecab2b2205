"""Harmony's parameters."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from hocket.policies.harmony.kernel import Weights
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
    fewer: Annotated[float, Meta(ge=0, lt=1, description="share of utilisation given up for fewer jobs at once")] = (
        0.003
    )
    spare: Annotated[
        float,
        Meta(ge=0, lt=1, description="share of utilisation given up for progress where jobs cannot use all of it"),
    ] = 0.1
    similar: Annotated[float, Meta(ge=0, description="by how much a substitute may differ from the job that left")] = (
        0.05
    )
    join_gain: Annotated[
        float, Meta(ge=0, description="by how much a job must raise a group's utilisation to join it")
    ] = 0.005
    regroup_gain: Annotated[float, Meta(ge=0, description="share by which a regrouping must raise utilisation")] = 0.05
    horizon_s: Annotated[
        float, Meta(gt=0, description="time in which a regrouping must gain more than its migrations may cost")
    ] = 600.0
    profile_iterations: Annotated[int, Meta(ge=1, description="iterations seen before a profile is believed")] = 3
    profile_machines: Annotated[int, Meta(ge=1, description="machines of a group that is opened to profile")] = 16
    profile_at_once: Annotated[int, Meta(ge=1, description="newcomers that one group profiles at a time")] = 4
    looked_at: Annotated[int, Meta(ge=1, description="waiting jobs that a regrouping considers")] = 64
    widest: Annotated[int, Meta(ge=1, description="groups up to which a regrouping may involve all of them")] = 32

    @property
    def weights(self) -> Weights:
        """As the kernel takes them."""
        return Weights(self.cpu_weight, 1 - self.cpu_weight)
