"""What a controller is told of a study."""

import msgspec
import pytest

from hocket.model.study_summary import Hyperparameter, StudySummary
from hocket.tune import choice, loguniform, randint, summary, uniform
from hocket.tune.brackets import SuccessiveHalving
from hocket.tune.definition import Definition, JobTemplate
from hocket.tune.job_study import header_of_jobs
from hocket.tune.outcome import StudyOutcome
from hocket.tune.summary import importance, summary_of
from hocket.tune.trials import Result, Trial, Trials

SPACE = {
    "rate": loguniform(1e-4, 1.0), "kind": choice(["a", "b"]), "width": randint(1, 8), "noise": uniform(0.0, 1.0),
}  # fmt: skip


def study(trials, names=tuple(SPACE), acc=lambda share: 1 - share):
    """A study in which only the rate matters; every second trial has gone on to nine units."""
    jobs = JobTemplate(("train", "{rate}"), "1 epoch", "net", {})
    search = SuccessiveHalving(trials=trials, units=9)
    definition = Definition(
        "net", {n: SPACE[n] for n in names}, search, 1, "acc", "max", 0, "", None, False, None, "random", jobs
    )
    found = Trials("acc", "max")
    for n in range(trials):
        config = {
            "rate": 10 ** (-4 * n / trials),
            "kind": "ab"[n % 2],
            "width": 1 + n * 5 % 8,
            "noise": n * 7 % 10 / 10,
        }
        results = [
            Result(units, {"acc": acc(n / trials), "loss": 1.0}, 1.0, 0.0) for units in (3, 9)[: 1 + (n % 2 == 0)]
        ]
        found.all[n] = Trial(n, {name: config[name] for name in names}, tuple(results), 9)
    return StudyOutcome(header_of_jobs(definition), definition, found, 12.0)


def test_a_summary_has_space_trials_jobs_and_the_best_and_survives_json():
    told = summary_of(study(6), "running", lambda number: f"net-{number}")
    assert msgspec.json.decode(msgspec.json.encode(told), type=StudySummary) == told
    assert told.space[0] == Hyperparameter("rate", "loguniform", 1e-4, 1.0)
    assert told.space[1] == Hyperparameter("kind", "choice", values=["a", "b"])
    assert (told.best, told.unit, told.units, told.search) == (0, "1 epoch", 9, "halving, configurations by random")
    assert [trial.job for trial in told.trials] == [f"net-{n}" for n in range(6)]
    assert told.trials[0].results == [(3, 1.0), (9, 1.0)]


def test_of_too_many_trials_the_best_and_the_last_are_told_of(monkeypatch):
    monkeypatch.setattr(summary, "MOST_TRIALS", 4)
    told = summary_of(study(10), "done", str)
    assert [trial.number for trial in told.trials] == [0, 1, 8, 9]
    assert told.more_trials == 6


def test_what_matters_most_is_found_among_trials_that_came_equally_far():
    pytest.importorskip("optuna", reason="Optuna is not installed: pip install 'hocket[optuna]'")
    assert importance(study(3)) is None, "too few to say anything"
    found = importance(study(40))
    assert found is not None
    assert (found.units, found.trials) == (3, 40), "all were compared where all have been"
    assert max(found.shares, key=found.shares.get) == "rate"
    assert sum(found.shares.values()) == pytest.approx(1)


def test_of_one_hyperparameter_all_that_matters_is_its():
    pytest.importorskip("optuna", reason="Optuna is not installed: pip install 'hocket[optuna]'")
    found = importance(study(6, ["rate"]))
    assert found is not None
    assert (found.shares, found.units, found.trials) == ({"rate": 1.0}, 3, 6)
    assert importance(study(6, ["rate"], lambda _share: 0.5)) is None, "nothing matters: all came as far"


def test_without_optuna_nothing_is_said_of_what_matters(monkeypatch):
    monkeypatch.setattr(summary, "find_spec", lambda _name: None)
    assert importance(study(40)) is None
