"""What is reported of a study: numbers, tables and figures, from the outcome alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from hocket.control.ports import Header
from hocket.reports.study_report import pack_speedups, plot_study, rung_table, study_as_dict, trial_table
from hocket.tune.brackets import SuccessiveHalving
from hocket.tune.definition import Definition
from hocket.tune.outcome import StudyOutcome
from hocket.tune.space import choice, loguniform
from hocket.tune.trials import Result, Trial, Trials


def outcome(*trials: Trial) -> StudyOutcome:
    space = {"rate": loguniform(1e-3, 1.0), "kind": choice(["sgd", "adam"])}
    search = SuccessiveHalving(trials=3, units=3)
    of = Definition("digits", space, search, 10, "accuracy", "max", 0, "cpu", None, False, None, "dice")
    found = Trials("accuracy", "max")
    found.all = {t.number: t for t in trials}
    return StudyOutcome(Header("pack_gain"), of, found, 12.5)


def result(units: int, accuracy: float, **packs: float) -> Result:
    return Result(units, {"accuracy": accuracy, **{f"pack.{k}": v for k, v in packs.items()}}, 1.0, 0.0)


@pytest.fixture(scope="module")
def three() -> StudyOutcome:
    first = result(1, 0.5, step_s=0.004, alone_s=0.002, others=3.0)
    return outcome(
        Trial(0, {"rate": 0.1, "kind": "sgd"}, (first, result(3, 0.9)), 3),
        Trial(1, {"rate": 0.01, "kind": "adam"}, (result(1, 0.4, step_s=0.004, others=3.0),), 1),
        Trial(2, {"rate": 0.5, "kind": "sgd"}, (), 1, failed="its loss was nan"),
    )  # fmt: skip


def test_a_gain_is_the_models_in_turn_by_their_common_step(three: StudyOutcome) -> None:
    (found,) = pack_speedups(three)
    assert (found.trial, found.models) == (0, 4)
    assert found.gain == pytest.approx(4 * 0.002 / 0.004)


def test_the_numbers_are_those_of_the_trials(three: StudyOutcome) -> None:
    numbers = study_as_dict(three)
    assert (numbers["trials"], numbers["failed"], numbers["steps"], numbers["seconds"]) == (3, 1, 40, 12.5)
    assert numbers["best"]["config"] == {"rate": 0.1, "kind": "sgd"}
    assert numbers["best"]["units"] == 3
    assert numbers["failures"] == {2: "its loss was nan"}
    assert numbers["models_in_a_pack"] == pytest.approx((4 + 1 + 4) / 3)


def rows(table) -> list[list[str]]:
    return [list(row) for row in zip(*([str(cell) for cell in column.cells] for column in table.columns), strict=True)]


def test_a_rung_says_how_many_trials_came_and_which_was_best(three: StudyOutcome) -> None:
    assert rows(rung_table(three)) == [["0", "1", "3", "1", "0.5", "0"], ["0", "3", "1", "", "0.9", "0"]]


def test_the_best_trials_stand_first_each_at_its_best(three: StudyOutcome) -> None:
    assert rows(trial_table(three)) == [["0", "0.9", "3", "0.1", "sgd"], ["1", "0.4", "1", "0.01", "adam"]]


@pytest.fixture(scope="module")
def drawn(three: StudyOutcome, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return plot_study(three, tmp_path_factory.mktemp("drawn"))


@pytest.mark.parametrize("trials", [0, 3])
def test_figures_are_drawn_also_of_a_study_without_results(drawn: list[Path], trials: int, tmp_path: Path) -> None:
    files = drawn if trials else plot_study(outcome(), tmp_path)
    assert sorted(f.name for f in files) == [
        "curves.png", "curves.svg", "gain.png", "gain.svg", "parallel.png", "parallel.svg"
    ]  # fmt: skip
    assert all(f.stat().st_size > 1000 for f in files)


def test_the_same_outcome_gives_the_same_figures(three: StudyOutcome, drawn: list[Path], tmp_path: Path) -> None:
    first = {f.name: f.read_bytes() for f in drawn}
    assert first == {f.name: f.read_bytes() for f in plot_study(three, tmp_path / "b")}
