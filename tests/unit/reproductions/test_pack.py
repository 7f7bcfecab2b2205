"""The packing evaluation: what is run, what is found, and that every measurement measures."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from hocket.cli.main import app
from hocket.reproductions import Case, Request, find
from hocket_reproductions.pack.cases import (
    FACTORS,
    PackResult,
    PeakMemory,
    Scale,
    StepTimes,
    SweepResult,
    SwitchCost,
    compared,
    factor_rows,
    sweep_of,
)
from hocket_reproductions.pack.evaluation import DIFFERENT, MODELS, POLICIES

PACK = find("pack")
REQUEST = Request((0,))


def played(case: Case) -> PackResult:
    def step(models: tuple[str, ...], batches: tuple[int, ...], factors: dict[str, bool] | None = None) -> StepTimes:
        return StepTimes(models, batches, factors or {}, 0.010, 0.004, "graph")

    if case.label == "steps":
        model = case.settings["model"]
        return PackResult(
            "a GPU", 224,
            by_count=(step((model,) * 2, (32, 32)), StepTimes((model,) * 4, (32,) * 4, error="out of memory")),
            by_batch=(step((model,) * 2, (64, 64)),),
            peaks=(PeakMemory(1, 32, 105.0, 100.0), PeakMemory(2, 32, 200.0, None)),
            switch=SwitchCost(312, 20.0, 9.0, 2.0, 8.0),
        )  # fmt: skip
    if case.label == "ablation":
        pair = tuple(case.settings["pair"])
        rows = [{"same model": pair[0] == pair[1], **row} for row in factor_rows(every=True)]
        return PackResult("a GPU", 224, ablation=tuple(step(pair, (32, 32), row) for row in rows))
    seconds = {"pack_none": 100.0}.get(case.settings["policy"], 10.0)
    return PackResult(
        "a GPU", 32, sweep=SweepResult(case.settings["policy"], seconds, 143, 1000, 8, 81, "trial 3", 0.5)
    )


@pytest.mark.long
def test_the_papers_figures_stand_beside_ours(tmp_path: Path) -> None:
    results = [(case, played(case)) for case in PACK.cases(REQUEST)]
    found = {(f.group.split(",")[0], f.what): f for f in PACK.findings(REQUEST, results).findings}
    saved = found["Figure 2.4a", "MLP-3 × 2"]
    assert saved.paper == "≤ 80 %"
    assert saved.ours is not None
    assert saved.ours.mean == pytest.approx(60.0)
    assert found["Figure 2.4a", "DenseNet-121 × 4"].paper == "out of memory"
    assert found["Figure 2.4a", "DenseNet-121 × 4"].ours is None
    assert "+5.0%" in found["Figure 2.5", "MLP-3, batch 32"].remark
    switch = found["Table 2.1", "ResNet-50, SwOH(2)"]
    assert (switch.paper, switch.ours and switch.ours.mean) == ("14 s", 2.0)
    assert found["Table 2.4", "MobileNet, pack_knn"].paper == "30182 s"
    speed_up = found["Table 2.4", "MLP-3, speed-up"]
    assert (speed_up.paper, speed_up.ours and speed_up.ours.mean) == ("2.7×", 10.0)
    levels = [what for group, what in found if group == "Table 2.2 and Figure 2.6"]
    assert len(levels) == 2 * (1 + len(FACTORS))
    drawn = PACK.draw(REQUEST, results, tmp_path)
    assert {p.stem for p in drawn} == {"figure-2.4-improvement", "figure-2.5-memory", "figure-2.6-ablation"}


def test_all_models_pairs_and_policies_are_run() -> None:
    cases = PACK.cases(REQUEST)
    assert sum(case.label == "steps" for case in cases) == len(MODELS)
    assert sum(case.label == "ablation" for case in cases) == len(MODELS) + len(DIFFERENT)
    assert sum(case.label == "hyperband" for case in cases) == len(MODELS) * len(POLICIES)
    assert len(factor_rows(every=True)) == 2 ** len(FACTORS)
    assert len(factor_rows(every=False)) == 1 + len(FACTORS)


def test_what_is_measured_by_the_clock_runs_one_at_a_time(tmp_path: Path) -> None:
    ran = CliRunner().invoke(app, ["reproduce", "pack", "--workers", "2", "--out", str(tmp_path)])
    assert ran.exit_code == 2
    assert "--workers: the runs of 'pack' are measured one at a time, not 2" in ran.output


@pytest.mark.long
def test_two_models_are_measured_apart_and_packed() -> None:
    from hocket_reproductions.pack.setups import Setup

    scale = Scale(8, (2,), (4,), (4,), 4, 0.01, every_factor := False)
    assert not every_factor
    row = compared([Setup("mlp-3", 4, 8, examples=16)] * 2, "cpu", scale)
    assert not row.error
    assert row.sequential_s > 0
    assert row.packed_s > 0
    broken = compared([Setup("mlp-3", 4, 8, "no such optimiser", examples=16)] * 2, "cpu", scale)
    assert broken.error


def test_a_sweep_tells_how_long_it_took_and_which_trial_won() -> None:
    steps: list[int] = []
    sweeps = [
        sweep_of("mlp-3", policy, 0, steps.append, lambda _n: None, exact=True, unit=1, resource=3).sweep
        for policy in ("pack_none", "pack_knn")
    ]
    assert all(s is not None and s.seconds > 0 and s.trials == 5 for s in sweeps)
    assert sweeps[0] is not None
    assert sweeps[1] is not None
    assert steps == [sweeps[0].steps] * 2
    assert (sweeps[0].winner, sweeps[0].best) == (sweeps[1].winner, sweeps[1].best), "packing changed a result"
