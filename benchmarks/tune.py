"""One sweep by several tuners on the same cores: `python -m benchmarks.tune [--quick] [--json] [--rounds N]`.

Hyperband (R = 27, η = 3) over a small network on generated pictures: ours with packs and without, Optuna with its
Hyperband pruner, Ray Tune with its HyperBand scheduler. Each runs in a process of its own; one that is not installed is
left out, and said to be. They do not make the same number of steps, so steps stand beside the seconds.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.machine import ROOT, machine
from benchmarks.tune_sweep import CORES, RATE, SIZES, WIDTHS, Sweep, learner, right

CONTENDERS = {
    "hocket, packed": "",
    "hocket, unpacked": "",
    "optuna": "optuna",
    "ray tune": "ray",
}  # name → the package that it needs


# -- in the process of one contender ------------------------------------------------------------------------


def by_hocket(sweep: Sweep, policy: str, mode: str | None) -> dict[str, Any]:
    from benchmarks.tune_sweep import training
    from hocket.tune import Hyperband, Study, choice, loguniform

    space = {"rate": loguniform(*RATE), "batch_size": choice(SIZES), "width": choice(WIDTHS)}
    study = Study(
        training, space, evaluate=lambda module, _config: right(module), metric="accuracy", goal="max",
        search=Hyperband(units=sweep.units, eta=3), unit_steps=sweep.unit_steps, policy=policy, mode=mode,
    ).run()  # fmt: skip
    assert study.best_result is not None
    found = study.best_result.metrics["accuracy"]
    return {"trials": len(study.trials), "steps": study.steps, "accuracy": found}


def by_optuna(sweep: Sweep) -> dict[str, Any]:
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    steps = 0

    def objective(trial: optuna.Trial) -> float:
        nonlocal steps
        config = {
            "rate": trial.suggest_float("rate", *RATE, log=True),
            "batch_size": trial.suggest_categorical("batch_size", SIZES),
            "width": trial.suggest_categorical("width", WIDTHS),
        }
        module, learn = learner(config)
        found = 0.0
        for unit in range(1, sweep.units + 1):
            learn(sweep.unit_steps)
            steps += sweep.unit_steps
            found = right(module)
            trial.report(found, unit)
            if trial.should_prune():
                raise optuna.TrialPruned
        return found

    study = optuna.create_study(
        direction="maximize", sampler=optuna.samplers.RandomSampler(seed=0),
        pruner=optuna.pruners.HyperbandPruner(min_resource=1, max_resource=sweep.units, reduction_factor=3),
    )  # fmt: skip
    study.optimize(objective, n_trials=sweep.trials, n_jobs=CORES)
    return {"trials": len(study.trials), "steps": steps, "accuracy": study.best_value}


def by_ray(sweep: Sweep) -> dict[str, Any]:
    import ray
    import torch
    from ray import tune

    def trainable(config: dict[str, Any]) -> None:
        module, learn = learner(config)
        unit = 0
        if (saved := tune.get_checkpoint()) is not None:  # Its scheduler pauses trials, and makes new ones of them.
            with saved.as_directory() as folder:
                state = torch.load(Path(folder) / "state.pt")
            module.load_state_dict(state["module"])
            learn.optimiser.load_state_dict(state["optimiser"])
            unit = state["unit"]
        while True:
            learn(sweep.unit_steps)
            unit += 1
            with tempfile.TemporaryDirectory() as folder:
                state = {"module": module.state_dict(), "optimiser": learn.optimiser.state_dict(), "unit": unit}
                torch.save(state, Path(folder) / "state.pt")
                kept = tune.Checkpoint.from_directory(folder)
                tune.report({"accuracy": right(module), "units": unit}, checkpoint=kept)

    ray.init(num_cpus=CORES, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    scheduler = tune.schedulers.HyperBandScheduler(time_attr="units", max_t=sweep.units, reduction_factor=3)
    settings = tune.TuneConfig(
        metric="accuracy", mode="max", scheduler=scheduler, num_samples=sweep.trials, reuse_actors=True
    )
    space = {"rate": tune.loguniform(*RATE), "batch_size": tune.choice(SIZES), "width": tune.choice(WIDTHS)}
    with tempfile.TemporaryDirectory() as folder:
        run = tune.RunConfig(storage_path=folder, verbose=0)
        tuner = tune.Tuner(
            tune.with_resources(trainable, {"cpu": 1}), param_space=space, tune_config=settings, run_config=run
        )
        results = tuner.fit()
        units = sum(r.metrics.get("units", 0) for r in results if r.metrics)
        best = results.get_best_result(scope="all").metrics
    assert best is not None
    return {"trials": len(results), "steps": units * sweep.unit_steps, "accuracy": best["accuracy"]}


RUNS: dict[str, Callable[[Sweep], dict[str, Any]]] = {
    "hocket, packed": lambda sweep: by_hocket(sweep, "pack_gain", None),
    "hocket, unpacked": lambda sweep: by_hocket(sweep, "pack_none", "turn"),
    "optuna": by_optuna,
    "ray tune": by_ray,
}


def one(name: str, sweep: Sweep) -> dict[str, Any]:
    """A sweep by one contender, timed from when its packages are there to its end."""
    import torch

    torch.set_num_threads(1)  # Two of them at a time are what two cores can do.
    right(learner({"rate": 0.1, "batch_size": SIZES[0], "width": WIDTHS[0]})[0])
    if CONTENDERS[name]:
        __import__(CONTENDERS[name])
    began_s, began_cpu_s = time.perf_counter(), time.process_time()
    found = RUNS[name](sweep)
    seconds, own_s = time.perf_counter() - began_s, time.process_time() - began_cpu_s
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = (
        None if name == "ray tune" else own_s + children.ru_utime + children.ru_stime
    )  # Ray's workers are no children.
    return {**found, "seconds": seconds, "cpu_s": cpu_s}


# -- in the process that measures ---------------------------------------------------------------------------


def measured(name: str, sweep: Sweep) -> dict[str, Any]:
    """The same in a process of its own."""
    needs = CONTENDERS[name]
    if needs and importlib.util.find_spec(needs) is None:
        return {"name": name, "left_out": f"{needs} is not installed"}
    command = [sys.executable, "-m", "benchmarks.tune", "--run", name, "--sweep", msgspec.json.encode(sweep).decode()]
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "RAY_AIR_NEW_OUTPUT": "0",
        "RAY_TRAIN_ENABLE_V2_MIGRATION_WARNINGS": "0",
    }
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        return {"name": name, "left_out": f"it broke: {(done.stderr.splitlines() or [''])[-1]}"}
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return {"name": name, **found}


def main() -> None:
    """Measure, and say so."""
    parser = argparse.ArgumentParser(description="The same sweep by several tuners.")
    parser.add_argument("--quick", action="store_true", help="a sweep of seconds")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--rounds", type=int, default=1, help="the fastest of so many counts")
    parser.add_argument("--only", nargs="+", choices=list(CONTENDERS), default=list(CONTENDERS))
    parser.add_argument("--run", choices=list(CONTENDERS), help=argparse.SUPPRESS)
    parser.add_argument("--sweep", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run:
        print(json.dumps(one(options.run, msgspec.json.decode(options.sweep, type=Sweep))))
        return
    sweep = Sweep(units=9, unit_steps=5, trials=17) if options.quick else Sweep()
    rows = []
    for name in options.only:
        rounds = [measured(name, sweep) for _ in range(options.rounds)]
        rows.append(min(rounds, key=lambda row: row.get("seconds", 0.0)))
    command = " ".join(["python -m benchmarks.tune", *sys.argv[1:]])
    if options.json:
        about = {"machine": msgspec.to_builtins(machine()), "sweep": msgspec.to_builtins(sweep)}
        print(json.dumps({"command": command, **about, "rows": rows}))
        return
    print(f"{command}: Hyperband, R = {sweep.units}, η = 3, {sweep.unit_steps} steps a unit; {machine()}")
    ours = next((row["seconds"] for row in rows if row["name"] == "hocket, packed"), None)
    for row in rows:
        if "left_out" in row:
            print(f"{row['name']:18} left out: {row['left_out']}")
            continue
        ratio = f"{row['seconds'] / ours:6.2f} × ours" if ours else ""
        rate = row["steps"] / row["seconds"]
        cpu = "     –" if row["cpu_s"] is None else f"{row['cpu_s']:6.1f}"
        print(
            f"{row['name']:18} {row['seconds']:8.1f} s {cpu} CPU-s {row['trials']:4} trials"
            f" {row['steps']:7} steps {rate:8.0f} steps/s  accuracy {row['accuracy']:.3f} {ratio}"
        )


if __name__ == "__main__":
    main()
