"""The measurements of the packing evaluation, on the device that is there: what a worker does for one case."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from hocket.tune import Hyperband, Study, choice

if TYPE_CHECKING:
    from hocket_reproductions.pack.setups import Setup

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


def steps_of(model: str, progressed: Callable[[int], None]) -> PackResult:
    """Figures 2.4 and 2.5 and Table 2.1 for one model."""
    from hocket_reproductions.pack.measurements import device_here, device_named, measure_peak, measure_switching
    from hocket_reproductions.pack.setups import Setup

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
            found = measure_peak([setup] * n, device, "graph" if n > 1 and device == "cuda" else "turn")
            peaks.append(PeakMemory(n, batch, found.predicted_mib, found.seen_mib))
    switch = measure_switching(base, scale.epoch_steps, device)
    progressed(n_steps(scale))
    model_s = sum(switch.models_s) / 2
    return PackResult(
        device_named(device), scale.size, tuple(by_count), tuple(by_batch), tuple(peaks),
        SwitchCost(switch.steps, switch.sequence_s, model_s, switch.overhead_s, switch.packed_s),
    )  # fmt: skip


def n_steps(scale: Scale) -> int:
    """Progress of `steps_of`."""
    return len(scale.counts) + len(scale.batches) + 1


def ablation_of(pair: tuple[str, str], progressed: Callable[[int], None]) -> PackResult:
    """Figure 2.6 for two models."""
    from hocket_reproductions.pack.measurements import device_here, device_named

    device = device_here()
    scale = scale_of(device)
    found: list[StepTimes] = []
    for factors, setups in _ablation(pair, scale):
        found.append(compared(setups, device, scale, factors))
        progressed(len(found))
    return PackResult(device_named(device), scale.size, ablation=tuple(found))


def _ablation(pair: tuple[str, str], scale: Scale) -> Iterator[tuple[dict[str, bool], list[Setup]]]:
    from hocket_reproductions.pack.setups import Setup

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


def compared(setups: Sequence[Setup], device: str, scale: Scale, factors: dict[str, bool] | None = None) -> StepTimes:
    """T_s(Seq) and T_s(Pack); what does not fit on the device is said, and the rest goes on."""
    from hocket_reproductions.pack.measurements import packed, sequential_s

    models, batches = tuple(s.network for s in setups), tuple(s.batch for s in setups)
    given = {"same model": len(set(models)) == 1, **factors} if factors is not None else {}
    try:
        sequential = sequential_s(setups, device, scale.budget_s)
        together = packed(setups, device, scale.budget_s)
    except Exception as error:
        said = str(error).splitlines() or [type(error).__name__]
        return StepTimes(models, batches, given, error=said[0])
    return StepTimes(models, batches, given, sequential, together.step_s, together.mode)


class StepTimes(Struct, frozen=True):
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


class PeakMemory(Struct, frozen=True):
    """Memory of one model or of a pack."""

    models: int
    batch: int
    predicted_mib: float
    seen_mib: float | None


class SwitchCost(Struct, frozen=True):
    """Table 2.1: two models for an epoch each."""

    steps: int
    sequence_s: float
    model_s: float  # the mean of both
    overhead_s: float
    packed_s: float


class SweepResult(Struct, frozen=True):
    """Table 2.4: one Hyperband sweep."""

    policy: str
    seconds: float
    trials: int
    steps: int  # of all models together
    unit: int  # steps to one unit of the resource
    resource: int  # R
    winner: str
    best: float


class PackResult(Struct, frozen=True):
    """One case."""

    device: str
    size: int  # of the images, in pixels
    by_count: tuple[StepTimes, ...] = ()
    by_batch: tuple[StepTimes, ...] = ()
    peaks: tuple[PeakMemory, ...] = ()
    switch: SwitchCost | None = None
    ablation: tuple[StepTimes, ...] = ()
    sweep: SweepResult | None = None


POLICIES = ("pack_none", "pack_batch_size", "pack_random", "pack_knn", "pack_gain")
UNITS = {"mlp-3": 50, "mobilenet-v2": 6, "resnet-50": 6, "densenet-121": 3}  # steps, on a GPU: minutes unpacked
EXAMPLES = 10_000
SMALL_RESOURCES = {"mlp-3": 9, "mobilenet-v2": 9, "resnet-50": 3, "densenet-121": 3}  # on a CPU
SMALL_UNIT, SMALL_EXAMPLES = 1, 500


def study_of(
    model: str, policy: str, seed: int, *, exact: bool = False, unit: int = 0, resource: int = 0,
    folder: Path | None = None,
) -> Study:  # fmt: skip
    """The sweep, ready to run. Unpacked, models are trained as usual: eagerly, one after another."""
    from hocket_reproductions.pack import search_space
    from hocket_reproductions.pack.measurements import device_here

    device = device_here()
    on_gpu = device == "cuda"
    examples = EXAMPLES if on_gpu else SMALL_EXAMPLES
    search_space.warm_up(device, examples)
    return Study(
        partial(search_space.training, model, examples),
        {
            "batch_size": choice(list(search_space.BATCH_SIZES)),
            "optimiser": choice(list(search_space.OPTIMISERS)),
            "rate": choice(list(search_space.RATES)),
            "activation": choice(list(search_space.ACTIVATIONS)),
        },
        evaluate=search_space.held_out_loss,
        search=Hyperband(units=resource or (81 if on_gpu else SMALL_RESOURCES[model]), eta=3),
        unit_steps=unit or (UNITS[model] if on_gpu else SMALL_UNIT), policy=policy,
        mode="turn" if policy == "pack_none" else None, exact=exact, device=device, seed=seed, folder=folder,
    )  # fmt: skip


def sweep_of(
    model: str, policy: str, seed: int, began: Callable[[int], None], progressed: Callable[[int], None],
    exact: bool = False, unit: int = 0, resource: int = 0,
) -> PackResult:  # fmt: skip
    """The sweep, from its first trial to its last."""
    from hocket_reproductions.pack.measurements import clock, device_here, device_named

    device = device_here()
    study = study_of(model, policy, seed, exact=exact, unit=unit, resource=resource)
    total, done = study.total_steps, 0
    began(total)

    def stepped(steps: int) -> None:
        nonlocal done
        if done // 500 != (done + steps) // 500:
            progressed(min(done + steps, total))
        done += steps

    now = clock(device)
    since = now()
    study.run(stepped)
    return PackResult(device_named(device), 32, sweep=swept(study, now() - since))


def swept(study: Study, seconds: float) -> SweepResult:
    """What came of a sweep that took so long."""
    best, result, of = study.best, study.best_result, study.outcome.definition
    winner = f"trial {best.number}" if best is not None else "none"
    value = result.metrics["value"] if result is not None else float("nan")
    resource = of.most_steps // of.unit_steps
    policy = study.outcome.policy
    return SweepResult(policy, seconds, len(study.trials), study.steps, of.unit_steps, resource, winner, value)
