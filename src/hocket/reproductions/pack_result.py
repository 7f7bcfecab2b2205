"""What is kept of one measurement of the packing evaluation."""

from __future__ import annotations

from msgspec import Struct


class Step(Struct, frozen=True):
    """One training step of some models, each isolated and added up, against a pack of them."""

    models: tuple[str, ...]
    batches: tuple[int, ...]
    factors: dict[
        str, bool
    ] = {}  # of Table 2.2: whether the two are the same in it; `preprocess`: whether there is any
    sequential_s: float = 0.0
    packed_s: float = 0.0
    way: str = ""
    error: str = ""  # why there are no times

    @property
    def improvement(self) -> float:
        """The paper's IMPV."""
        return (self.sequential_s - self.packed_s) / self.sequential_s if self.sequential_s else 0.0


class Peak(Struct, frozen=True):
    """Memory of one model or of a pack."""

    models: int
    batch: int
    predicted_mib: float
    seen_mib: float | None


class Switch(Struct, frozen=True):
    """Table 2.1: two models for an epoch each."""

    steps: int
    sequence_s: float
    model_s: float  # the mean of both
    overhead_s: float
    packed_s: float


class Sweep(Struct, frozen=True):
    """Table 2.4: one Hyperband sweep."""

    policy: str
    seconds: float
    trials: int
    steps: int  # of all models together
    unit: int  # steps to one unit of the resource
    resource: int  # R
    winner: str
    best: float


class Measured(Struct, frozen=True):
    """One case."""

    device: str
    size: int  # of the images, in pixels
    by_count: tuple[Step, ...] = ()
    by_batch: tuple[Step, ...] = ()
    peaks: tuple[Peak, ...] = ()
    switch: Switch | None = None
    ablation: tuple[Step, ...] = ()
    sweep: Sweep | None = None
