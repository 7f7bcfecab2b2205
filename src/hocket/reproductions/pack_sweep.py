"""Table 2.4: one Hyperband sweep over Table 2.3's space, packed by one policy."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from hocket.reproductions.pack_result import Measured, Sweep
from hocket.tune import Hyperband, Study, choice

POLICIES = ("pack_none", "pack_batch_size", "pack_random", "pack_knn", "pack_gain")
UNITS = {"mlp-3": 50, "mobilenet-v2": 10, "resnet-50": 10, "densenet-121": 10}  # steps, on a GPU
EXAMPLES = 10_000
SMALL_RESOURCES = {"mlp-3": 9, "mobilenet-v2": 9, "resnet-50": 3, "densenet-121": 3}  # on a CPU
SMALL_UNIT, SMALL_EXAMPLES = 1, 500


def sweep_of(
    model: str, policy: str, seed: int, began: Callable[[int], None], progressed: Callable[[int], None],
    exact: bool = False, unit: int = 0, resource: int = 0,
) -> Measured:  # fmt: skip
    """The sweep, from its first trial to its last. Unpacked, models are trained as everybody does: eagerly, in turn."""
    from hocket.runtimes.packing.measuring import sweeping
    from hocket.runtimes.packing.measuring.stepping import clock, device_here, device_named

    device = device_here()
    on_gpu = device == "cuda"
    unit = unit or (UNITS[model] if on_gpu else SMALL_UNIT)
    resource = resource or (81 if on_gpu else SMALL_RESOURCES[model])
    examples = EXAMPLES if on_gpu else SMALL_EXAMPLES
    study = Study(
        partial(sweeping.training, model, examples),
        {
            "batch_size": choice(list(sweeping.BATCH_SIZES)),
            "optimiser": choice(list(sweeping.OPTIMISERS)),
            "rate": choice(list(sweeping.RATES)),
            "activation": choice(list(sweeping.ACTIVATIONS)),
        },
        evaluate=sweeping.held_out_loss, search=Hyperband(units=resource, eta=3), unit_steps=unit, policy=policy,
        way="turn" if policy == "pack_none" else None, exact=exact, device=device, seed=seed,
    )  # fmt: skip
    sweeping.warm_up(device, examples)
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
    seconds = now() - since
    best, result = study.best, study.best_result
    winner = f"trial {best.number}" if best is not None else "nobody"
    value = result.metrics["value"] if result is not None else float("nan")
    sweep = Sweep(policy, seconds, len(study.trials), study.steps, unit, resource, winner, value)
    return Measured(device_named(device), 32, sweep=sweep)
