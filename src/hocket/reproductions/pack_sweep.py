"""Table 2.4: one Hyperband sweep over Table 2.3's space, packed by one policy."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from hocket.reproductions.pack_result import Measured, Sweep
from hocket.tune import Hyperband, Study, choice

POLICIES = ("pack_none", "pack_batch_size", "pack_random", "pack_knn", "pack_gain")
UNITS = {"mlp-3": 50, "mobilenet-v2": 6, "resnet-50": 6, "densenet-121": 3}  # steps, on a GPU: minutes unpacked
EXAMPLES = 10_000
SMALL_RESOURCES = {"mlp-3": 9, "mobilenet-v2": 9, "resnet-50": 3, "densenet-121": 3}  # on a CPU
SMALL_UNIT, SMALL_EXAMPLES = 1, 500


def study_of(
    model: str, policy: str, seed: int, *, exact: bool = False, unit: int = 0, resource: int = 0,
    folder: Path | None = None,
) -> Study:  # fmt: skip
    """The sweep, ready to run. Unpacked, models are trained as everybody does: eagerly, in turn."""
    from hocket.runtimes.packing.measuring import sweeping
    from hocket.runtimes.packing.measuring.stepping import device_here

    device = device_here()
    on_gpu = device == "cuda"
    examples = EXAMPLES if on_gpu else SMALL_EXAMPLES
    sweeping.warm_up(device, examples)
    return Study(
        partial(sweeping.training, model, examples),
        {
            "batch_size": choice(list(sweeping.BATCH_SIZES)),
            "optimiser": choice(list(sweeping.OPTIMISERS)),
            "rate": choice(list(sweeping.RATES)),
            "activation": choice(list(sweeping.ACTIVATIONS)),
        },
        evaluate=sweeping.held_out_loss,
        search=Hyperband(units=resource or (81 if on_gpu else SMALL_RESOURCES[model]), eta=3),
        unit_steps=unit or (UNITS[model] if on_gpu else SMALL_UNIT), policy=policy,
        way="turn" if policy == "pack_none" else None, exact=exact, device=device, seed=seed, folder=folder,
    )  # fmt: skip


def sweep_of(
    model: str, policy: str, seed: int, began: Callable[[int], None], progressed: Callable[[int], None],
    exact: bool = False, unit: int = 0, resource: int = 0,
) -> Measured:  # fmt: skip
    """The sweep, from its first trial to its last."""
    from hocket.runtimes.packing.measuring.stepping import clock, device_here, device_named

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
    return Measured(device_named(device), 32, sweep=swept(study, now() - since))


def swept(study: Study, seconds: float) -> Sweep:
    """What came of a sweep that took so long."""
    best, result, of = study.best, study.best_result, study.outcome.definition
    winner = f"trial {best.number}" if best is not None else "nobody"
    value = result.metrics["value"] if result is not None else float("nan")
    resource = of.most_steps // of.unit_steps
    policy = study.outcome.policy
    return Sweep(policy, seconds, len(study.trials), study.steps, of.unit_steps, resource, winner, value)
