"""Pack's evaluation: step time, memory and switching of packed models, what these depend on, and Hyperband over packs.

Nothing is simulated: everything is trained on the device that is there, a GPU if there is one. Data are generated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import isfinite

from hocket.reports.mean_interval import MeanInterval, mean_interval
from hocket.reproductions import Assumption, Case, Finding, Findings, Reproduction, Request, Results
from hocket_reproductions.pack.cases import (
    FACTORS,
    ON_CPU,
    ON_GPU,
    POLICIES,
    UNITS,
    PackResult,
    StepTimes,
    SweepResult,
    ablation_of,
    factor_rows,
    n_steps,
    steps_of,
    sweep_of,
)
from hocket_reproductions.pack.figures import draw_figures

MODELS = {"mlp-3": "MLP-3", "mobilenet-v2": "MobileNet", "resnet-50": "ResNet-50", "densenet-121": "DenseNet-121"}
DIFFERENT = (
    ("mlp-3", "mobilenet-v2"), ("mobilenet-v2", "densenet-121"), ("resnet-50", "mobilenet-v2"),
    ("densenet-121", "resnet-50"),
)  # fmt: skip
TABLE_2_1 = {"mlp-3": (133, 61, 11), "mobilenet-v2": (227, 107, 13), "resnet-50": (274, 130, 14),
             "densenet-121": (305, 144, 17)}  # fmt: skip
TABLE_2_4 = {  # seconds: original, batch size, random, kNN
    "mlp-3": (9236, 5260, 3682, 3491), "mobilenet-v2": (52092, 45787, 36973, 30182),
    "resnet-50": (98067, 89162, 75436, 70047), "densenet-121": (131494, 126437, 117405, 108673),
}  # fmt: skip
SPEED_UP = {"mlp-3": "2.7×", "mobilenet-v2": "1.7×", "resnet-50": "1.4×", "densenet-121": "1.2×"}


def cases(request: Request) -> list[Case]:
    """Model by model, the small ones first, so that there is something to see."""
    pairs = (*zip(MODELS, MODELS, strict=True), *DIFFERENT)
    weight = {model: n for n, model in enumerate(MODELS)}
    found = []
    for seed in request.seeds:
        for model in MODELS:
            found.append(Case("steps", seed, {"model": model}))
            found += [
                Case("ablation", seed, {"pair": list(pair)})
                for pair in pairs
                if max(map(weight.__getitem__, pair)) == weight[model]
            ]
            found += [Case("hyperband", seed, {"model": model, "policy": policy}) for policy in POLICIES]
    return found


def run_case(case: Case, began: Callable[[int], None], progressed: Callable[[int], None]) -> PackResult:
    """One model, one pair, or one sweep."""
    from hocket_reproductions.pack.measurements import device_here, one_thread

    one_thread()
    scale = ON_GPU if device_here() == "cuda" else ON_CPU
    if case.label == "steps":
        began(n_steps(scale))
        return steps_of(case.settings["model"], progressed)
    if case.label == "ablation":
        began(len(factor_rows(scale.all_factors)))
        first, second = case.settings["pair"]
        return ablation_of((first, second), progressed)
    return sweep_of(case.settings["model"], case.settings["policy"], case.seed, began, progressed)


# -- what it showed -----------------------------------------------------------------------------------------


def compare_with_paper(_request: Request, results: Results) -> Findings:
    """The paper's figures and ours."""
    steps = _by_model(results, "steps")
    found = [
        *_by_count(steps), *_by_batch(steps), *_memory(steps), *_switching(steps),
        *_ablation([m for case, m in results if case.label == "ablation"]), *_hyperband(results),
    ]  # fmt: skip
    return Findings(tuple(found), tuple(_remarks(results)))


def _by_model(results: Results, label: str) -> dict[str, list[PackResult]]:
    found: dict[str, list[PackResult]] = {}
    for case, measured in results:
        if case.label == label:
            found.setdefault(case.settings["model"], []).append(measured)
    return found


def _by_count(steps: dict[str, list[PackResult]]) -> Iterable[Finding]:
    group = "Figure 2.4a, step time saved by packing n equal models"
    for model, runs in steps.items():
        for k, first in enumerate(runs[0].by_count):
            n = len(first.models)
            paper = {("mlp-3", 2): "–", ("densenet-121", 4): "out of memory"}.get((model, n), "–")
            paper = "≤ 80 %" if model == "mlp-3" else "≤ 40 %" if n == 2 else paper
            yield _saved(f"{MODELS[model]} × {n}", paper, [run.by_count[k] for run in runs], group)


def _by_batch(steps: dict[str, list[PackResult]]) -> Iterable[Finding]:
    group = "Figure 2.4b, step time saved by packing two equal models, by batch"
    full = {"resnet-50": 80, "densenet-121": 64}  # from here on it does not fit on the paper's GPU
    for model, runs in steps.items():
        for k, first in enumerate(runs[0].by_batch):
            batch = first.batches[0]
            paper = "out of memory" if batch >= full.get(model, 1 << 30) else "–"
            yield _saved(f"{MODELS[model]}, batch {batch}", paper, [run.by_batch[k] for run in runs], group)


def _saved(what: str, paper: str, rows: Sequence[StepTimes], group: str) -> Finding:
    good = [row for row in rows if not row.error]
    if not good:
        return Finding(what, paper, None, remark=rows[0].error, group=group)
    first = good[0]
    remark = f"{_ms(first.sequential_s)} → {_ms(first.packed_s)} ms, {first.way}"
    return Finding(what, paper, mean_interval([100 * row.improvement for row in good]), "%", remark, group)


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds:.3g}" if seconds < 1 else f"{1e3 * seconds:.0f}"


def _memory(steps: dict[str, list[PackResult]]) -> Iterable[Finding]:
    group = "Figure 2.5, peak memory"
    for model, runs in steps.items():
        for peak in runs[0].peaks:
            what = f"{MODELS[model]}{' × 2, packed' if peak.models > 1 else ''}, batch {peak.batch}"
            if peak.seen_mib is None:
                yield Finding(
                    what, "–", MeanInterval(peak.predicted_mib), "MiB", "predicted only: no allocator to ask", group
                )
            else:
                error = peak.predicted_mib / peak.seen_mib - 1
                said = f"predicted {peak.predicted_mib:.0f} MiB beforehand ({error:+.1%})"
                yield Finding(what, "–", MeanInterval(peak.seen_mib), "MiB", said, group)


def _switching(steps: dict[str, list[PackResult]]) -> Iterable[Finding]:
    group = "Table 2.1, two models one after the other for an epoch"
    for model, runs in steps.items():
        done = [run.switch for run in runs if run.switch is not None]
        if not done:
            continue
        epoch = f"an epoch is {done[0].steps} steps"
        rows: tuple[tuple[str, float | None, Sequence[float]], ...] = (
            ("T_e(Seq)", TABLE_2_1[model][0], [s.sequence_s for s in done]),
            ("T_e(Model)", TABLE_2_1[model][1], [s.model_s for s in done]),
            ("SwOH(2)", TABLE_2_1[model][2], [s.overhead_s for s in done]),
            ("both in one pack", None, [s.packed_s for s in done]),
        )
        for what, paper, ours in rows:
            said = epoch if paper else "loading, probe and checkpoints included"
            yield Finding(
                f"{MODELS[model]}, {what}", f"{paper} s" if paper else "–", mean_interval(ours), "s", said, group
            )


def _ablation(runs: Sequence[PackResult]) -> Iterable[Finding]:
    group = "Table 2.2 and Figure 2.6, step time saved by packing two models"
    rows = [row for run in runs for row in run.ablation if not row.error]
    for factor in ("same model", *FACTORS):
        for level in (True, False):
            some = [row for row in rows if row.factors[factor] is level]
            slower = sum(row.packed_s > row.sequential_s for row in some)
            said = f"{slower} of {len(some)} configurations slower than in turn"
            name = (
                factor if level else factor.replace("same", "different") if factor != "preprocess" else "no preprocess"
            )
            paper = "> 0 %, always" if (factor, level) in (("same data", True), ("same batch", True)) else "–"
            yield Finding(name, paper, mean_interval([100 * row.improvement for row in some]), "%", said, group)
    if errors := sum(bool(row.error) for run in runs for row in run.ablation):
        yield Finding("configurations that did not run", "–", MeanInterval(errors), group=group)


def _hyperband(results: Results) -> Iterable[Finding]:
    group = "Table 2.4, Hyperband over packs"
    sweeps: dict[tuple[str, str], list[SweepResult]] = {}
    for case, measured in results:
        if measured.sweep is not None:
            sweeps.setdefault((case.settings["model"], case.settings["policy"]), []).append(measured.sweep)
    for model in MODELS:
        first = sweeps.get((model, "pack_none"))
        if first is None:
            continue
        papers = dict(zip(("pack_none", "pack_batch_size", "pack_random", "pack_knn"), TABLE_2_4[model], strict=True))
        for policy in POLICIES:
            runs = sweeps.get((model, policy), [])
            if not runs:
                continue
            one = runs[0]
            said = f"{one.trials} trials, {one.steps:,} steps, unit {one.unit} steps; best {one.best:.4g}"
            agree = sum(a.winner == b.winner for a, b in zip(runs, first, strict=False))
            if policy != "pack_none":
                said += f"; the same winner in {agree} of {len(runs)}"
            paper = f"{papers[policy]} s" if policy in papers else "–"
            yield Finding(
                f"{MODELS[model]}, {policy}", paper, mean_interval([r.seconds for r in runs]), "s", said, group
            )
        best = [
            (min(sweeps[model, p][k].seconds for p in POLICIES if len(sweeps.get((model, p), [])) > k), one.seconds)
            for k, one in enumerate(first)
        ]
        ours = [none / fastest for fastest, none in best]
        yield Finding(f"{MODELS[model]}, speed-up", SPEED_UP[model], mean_interval(ours), "×", "the fastest", group)


def _remarks(results: Results) -> Iterable[str]:
    seen = {(m.device, m.size) for _, m in results}
    for device, size in sorted(seen):
        yield f"PackResult on {device}, images of {size}×{size} (the sweeps: 32×32); the paper had a Quadro P5000."
    if any("CPU" in device for device, _ in seen):
        yield (
            "On a CPU times are CPU time of one thread; the images, batches and epochs are small, the factors of "
            "Table 2.2 are changed one at a time, and Hyperband has R = 9 or 3: the figures say how packing behaves "
            "here, and nothing about the paper's."
        )
    steps = [row for _, m in results for row in (*m.by_count, *m.by_batch, *m.ablation) if not row.error]
    if slower := [row for row in steps if row.packed_s > 1.03 * row.sequential_s and isfinite(row.packed_s)]:
        worst = max(row.packed_s / row.sequential_s for row in slower)
        yield f"Packing was over 3 % slower than in turn in {len(slower)} of {len(steps)} cases, at worst {worst:.2f}×."
    if failed := [row for _, m in results for row in (*m.by_count, *m.by_batch, *m.ablation) if row.error]:
        yield f"{len(failed)} measurements failed, the first with: {failed[0].error}."


# -- what was assumed ---------------------------------------------------------------------------------------


def assumptions(_request: Request) -> list[Assumption]:
    """All that the paper leaves open, or that is not here."""
    units = ", ".join(f"{MODELS[m]} {u}" for m, u in UNITS.items())
    return [
        Assumption("images", "generated noise of the same size; JPEGs of generated pictures", "ImageNet is not here"),
        Assumption("MLP-3", "three hidden layers of 256", "ours: the paper gives no widths"),
        Assumption("MobileNet", "MobileNetV2", "the paper's reference [69]"),
        Assumption(
            "T_s(Seq)", "plain PyTorch, eager, a batch that stands ready in pinned memory and is copied in each step",
            "ours: the cheapest way to train alone",
        ),
        Assumption("T_s(Pack)", "hocket.pack with shuffled loaders; the probe chooses the way", "ours"),
        Assumption("preprocessing", "Pillow decodes, PyTorch normalises, in the training process", "ours"),
        Assumption(
            "an epoch", f"{ON_GPU.epoch_steps} steps of 32 on a GPU, {ON_CPU.epoch_steps} of 4 on a CPU",
            "10,000 images",
        ),
        Assumption("different batches", "32 and 50 on a GPU, 4 and 6 on a CPU", "Table 2.2"),
        Assumption(
            "Hyperband", f"R = 81, η = 3, Table 2.3; a unit is a number of steps: {units}; all brackets at once",
            "section 2.4.3; the units are ours",
        ),
    ]  # fmt: skip


REPRODUCTION = Reproduction(
    "pack",
    "Liu, Efficient Resource Sharing for Data-Intensive Computation, chapter 2: Pack, Chicago, 2022",
    "two to eight models in one training step, and Hyperband over packs, on the device that is there",
    assumptions,
    cases,
    run_case,
    PackResult,
    compare_with_paper,
    draw_figures,
    seeds=1,
    one_at_a_time=True,
)
