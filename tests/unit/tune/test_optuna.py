"""Optuna's samplers and storages; Optuna is an extra."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from counting_study import SPACE, study, training

from hocket.tune import RandomSearch, Study, StudyError, choice, loguniform, randint, uniform
from hocket.tune.optuna_support import OptunaSampler, distribution, export
from hocket.tune.trials import Result, Trial


@pytest.fixture(autouse=True, scope="module")
def optuna() -> Any:
    return pytest.importorskip("optuna", reason="needs the optuna extra")


def asked(trial):
    trial.suggest_float("rate", 1e-3, 1, log=True)
    trial.suggest_categorical("kind", ["a", "b"])


@pytest.mark.parametrize("space", [SPACE, asked], ids=["dict", "function"])
def test_a_sampler_of_optuna_gives_configurations_within_the_space(space) -> None:
    sampler = OptunaSampler(space, "RandomSampler", seed=1)
    found = [sampler.ask(n) for n in range(5)]
    assert all(1e-3 <= f.config["rate"] <= 1 for f in found)
    assert all(f.traits.keys() == f.config.keys() for f in found)


def test_a_sampler_learns_from_what_it_is_told() -> None:
    sampler = OptunaSampler({"x": uniform(0, 1)}, "TPESampler", seed=0, n_startup_trials=10)
    late = []
    for number in range(60):
        x = sampler.ask(number).config["x"]
        trial = Trial(number, {"x": x}, (Result(1, {"loss": (x - 0.3) ** 2}, 0.0, 0.0),))
        sampler.tell(trial, {1: (x - 0.3) ** 2}, is_complete=True)
        late.append(abs(x - 0.3))
    assert sum(late[40:]) / 20 < 0.1 < sum(late[:10]) / 10


def test_trials_of_an_earlier_process_are_told_as_a_whole() -> None:
    sampler = OptunaSampler(SPACE, "TPESampler")
    config = {"rate": 0.1, "batch_size": 8, "dropout": 0.0}
    sampler.tell(Trial(0, config, (Result(1, {"loss": 2.0}, 0.0, 0.0),)), {1: 2.0}, is_complete=False)
    sampler.tell(Trial(1, config, failed="broke"), {}, is_complete=False)
    assert [t.state.name for t in sampler._study.trials] == ["PRUNED", "FAIL"]


def test_a_study_runs_with_a_sampler_of_optuna(tmp_path: Path) -> None:
    sampler = OptunaSampler(SPACE, "TPESampler", seed=0)
    found = study(tmp_path / "s", sampler=sampler).run()
    assert found.best is not None
    assert len(sampler._study.trials) == len(found.trials)
    again = OptunaSampler(SPACE, "TPESampler", seed=0)
    study(tmp_path / "s", sampler=again).run()
    told = sorted((t.params["rate"], t.state.name) for t in again._study.trials)
    assert told == sorted((t.params["rate"], t.state.name) for t in sampler._study.trials)


def test_a_sampler_that_cannot_draw_from_the_space_is_refused() -> None:
    with pytest.raises(StudyError, match="sampler 'BruteForceSampler' cannot draw from the space: FloatDistribution"):
        OptunaSampler({"a": uniform(0, 1)}, "BruteForceSampler")


def test_a_sampler_that_optuna_does_not_have_is_refused() -> None:
    with pytest.raises(StudyError, match="sampler 'Crystal' is none of Optuna's"):
        OptunaSampler(SPACE, "Crystal")


def test_domains_are_the_same_in_optunas_words() -> None:
    assert distribution(choice([1, "a"])).choices == (1, "a")
    assert (distribution(uniform(0, 2)).low, distribution(uniform(0, 2)).high) == (0, 2)
    assert distribution(loguniform(0.1, 2)).log
    assert (distribution(randint(1, 3)).low, distribution(randint(1, 3)).high) == (1, 3)


def test_numbers_that_a_function_asked_for_are_exported_as_numbers_and_not_as_so_many_kinds(
    tmp_path: Path, optuna: Any
) -> None:
    def space(trial) -> None:
        trial.suggest_float("rate", 1e-3, 0.5)
        trial.suggest_categorical("batch_size", [8, 16])
        trial.suggest_categorical("dropout", [0.3])

    found = Study(training, space, search=RandomSearch(trials=4, units=1), unit_steps=2).run()
    storage = f"sqlite:///{tmp_path / 'trials.db'}"
    export(found.outcome, storage)
    there = optuna.load_study(study_name="study", storage=storage).trials
    rates = [t.config["rate"] for t in found.trials]
    kinds = there[0].distributions
    assert (kinds["rate"].low, kinds["rate"].high) == (min(rates), max(rates))
    assert [t.params["rate"] for t in there] == rates
    assert set(kinds["batch_size"].choices) <= {8, 16}
    assert kinds["dropout"].choices == (0.3,)


def test_an_exported_study_has_every_trial_with_its_values_by_units(tmp_path: Path, optuna: Any) -> None:
    found = study(None, search="halving", name="counted").run()
    storage = f"sqlite:///{tmp_path}/trials.db"
    assert export(found.outcome, storage) == 9
    there = optuna.load_study(study_name="counted", storage=storage)
    assert there.best_trial.params == found.best.config
    assert there.direction.name == "MAXIMIZE"
    states = [t.state.name for t in there.trials]
    assert (states.count("COMPLETE"), states.count("PRUNED")) == (1, 8)
    assert set(there.best_trial.intermediate_values) == {1, 3, 9}
    with pytest.raises(StudyError, match="has a study 'counted' already"):
        export(found.outcome, storage)
    with pytest.raises(StudyError, match="cannot be opened"):
        export(found.outcome, "nonsense://")
