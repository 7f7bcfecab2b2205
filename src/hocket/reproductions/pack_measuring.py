"""The measurements of the packing evaluation, on the device that is there: what a worker does for one case."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import product
from typing import TYPE_CHECKING

from msgspec import Struct

from hocket.reproductions.pack_result import Measured, Peak, Step, Switch

if TYPE_CHECKING:
    from hocket.runtimes.packing.measuring.setups import Setup

FACTORS = ("same data", "preprocess", "same optimiser", "same batch")  # of Table 2.2, beside the models themselves


class Scale(Struct, frozen=True):
    """How large the measurements are: the paper's sizes on a GPU, small ones on a CPU."""

    size: int  # pixels
    counts: tuple[int, ...]
    batches: tuple[int, ...]
    memory_batches: tuple[int, ...]
    epoch_steps: int
    budget_s: float  # for each figure
    all_factors: bool  # every combination of them, instead of one at a time


ON_GPU = Scale(224, (2, 4, 6, 8), (32, 48, 64, 80, 100), (32, 64, 100), 312, 0.3, True)
ON_CPU = Scale(32, (2, 4), (4, 8), (4, 8), 10, 0.2, False)


def scale_of(device: str) -> Scale:
    """The one for this device."""
    return ON_GPU if device == "cuda" else ON_CPU


def factor_rows(every: bool) -> list[dict[str, bool]]:
    """Combinations of the factors: all of them, or the best case and each factor changed by itself."""
    best = {"same data": True, "preprocess": False, "same optimiser": True, "same batch": True}
    if every:
        return [dict(zip(FACTORS, chosen, strict=True)) for chosen in product((True, False), repeat=len(FACTORS))]
    return [best, *({**best, name: not best[name]} for name in FACTORS)]


def steps_of(model: str, progressed: Callable[[int], None]) -> Measured:
    """Figures 2.4 and 2.5 and Table 2.1 for one model."""
    from hocket.runtimes.packing.measuring.memory_peaks import peak
    from hocket.runtimes.packing.measuring.setups import Setup
    from hocket.runtimes.packing.measuring.stepping import device_here, device_named
    from hocket.runtimes.packing.measuring.switching import switching

    device = device_here()
    scale = scale_of(device)
    base = Setup(model, scale.batches[0], scale.size)
    by_count = []
    for n in scale.counts:
        by_count.append(compared([base] * n, device, scale))
        progressed(len(by_count))
    by_batch = []
    for batch in scale.batches:
        setup = Setup(model, batch, scale.size)
        by_batch.append(compared([setup] * 2, device, scale))
        progressed(len(by_count) + len(by_batch))
    peaks = []
    for batch in scale.memory_batches:
        for n in (1, 2):
            setup = Setup(model, batch, scale.size, examples=batch)
            found = peak([setup] * n, device, "graph" if n > 1 and device == "cuda" else "turn")
            peaks.append(Peak(n, batch, found.predicted_mib, found.seen_mib))
    switch = switching(base, scale.epoch_steps, device)
    progressed(n_steps(scale))
    model_s = sum(switch.models_s) / 2
    return Measured(
        device_named(device), scale.size, tuple(by_count), tuple(by_batch), tuple(peaks),
        Switch(switch.steps, switch.sequence_s, model_s, switch.overhead_s, switch.packed_s),
    )  # fmt: skip


def n_steps(scale: Scale) -> int:
    """Progress of `steps_of`."""
    return len(scale.counts) + len(scale.batches) + 1


def ablation_of(pair: tuple[str, str], progressed: Callable[[int], None]) -> Measured:
    """Figure 2.6 for two models."""
    from hocket.runtimes.packing.measuring.stepping import device_here, device_named

    device = device_here()
    scale = scale_of(device)
    found: list[Step] = []
    for factors, setups in _ablation(pair, scale):
        found.append(compared(setups, device, scale, factors))
        progressed(len(found))
    return Measured(device_named(device), scale.size, ablation=tuple(found))


def _ablation(pair: tuple[str, str], scale: Scale) -> Iterator[tuple[dict[str, bool], list[Setup]]]:
    from hocket.runtimes.packing.measuring.setups import Setup

    smaller = scale.batches[0]
    larger = 50 if smaller == 32 else 2 * smaller - smaller // 2
    for factors in factor_rows(scale.all_factors):
        decodes = factors["preprocess"]
        yield factors, [
            Setup(pair[0], smaller, scale.size, preprocess=decodes),
            Setup(
                pair[1], smaller if factors["same batch"] else larger, scale.size,
                "momentum" if factors["same optimiser"] else "sgd", 0 if factors["same data"] else 1, decodes,
            ),
        ]  # fmt: skip


def compared(setups: Sequence[Setup], device: str, scale: Scale, factors: dict[str, bool] | None = None) -> Step:
    """T_s(Seq) and T_s(Pack); what does not fit on the device is said, and the rest goes on."""
    from hocket.runtimes.packing.measuring.stepping import packed, sequential_s

    models, batches = tuple(s.network for s in setups), tuple(s.batch for s in setups)
    given = {"same model": len(set(models)) == 1, **factors} if factors is not None else {}
    try:
        sequential = sequential_s(setups, device, scale.budget_s)
        together = packed(setups, device, scale.budget_s)
    except Exception as error:
        said = str(error).splitlines() or [type(error).__name__]
        return Step(models, batches, given, error=said[0])
    return Step(models, batches, given, sequential, together.step_s, together.way)
