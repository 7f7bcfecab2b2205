"""Whole studies in this process: packed and not, refused, broken and gone on with."""

from __future__ import annotations

import math
import signal
import sqlite3
from collections import Counter
from contextlib import closing, nullcontext
from functools import cache
from pathlib import Path

import pytest
import torch
from counting_study import SEARCHES, SPACE, UNIT_STEPS, X, Y, outcome, study
from msgspec.structs import replace
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from hocket.control.journal import SqliteJournal
from hocket.control.replay import replay
from hocket.executors.inprocess.executor import InProcessExecutor
from hocket.model.event import JobSubmitted
from hocket.model.partition import Sharing
from hocket.pack import Refused, Training
from hocket.policies import find
from hocket.tune import Asha, Hyperband, RandomSearch, Study, StudyError, SuccessiveHalving, choice, loguniform, read
from hocket.tune.definition import definition_of, refuse_another

POLICIES = ("pack_gain", "pack_knn", "pack_random", "pack_batch_size")


@cache
def whole(search: str) -> Study:
    """The study with this search, run at once: to be read only."""
    return study(None, search=search).run()


@pytest.fixture(scope="module")
def unpacked():
    """The study as it is without packs."""
    return outcome(study(None, policy="pack_none").run())


@pytest.mark.parametrize("policy", POLICIES)
def test_packed_or_not_a_study_has_the_same_winner_and_the_same_numbers(policy: str, unpacked) -> None:
    found = study(None, policy=policy).run()
    assert outcome(found) == unpacked
    assert max(r.metrics["pack.others"] for t in found.trials for r in t.results) > 1


def test_exact_modes_change_nothing_either(unpacked) -> None:
    assert outcome(study(None, mode=None, exact=True).run()) == unpacked


def test_brackets_in_turn_find_the_same(unpacked) -> None:
    found = outcome(whole("hyperband in turn"))
    assert found["results"] == unpacked["results"]


@pytest.mark.parametrize("search", ["halving", "asha", "random"])
def test_the_other_searches_end_with_a_trial_trained_to_the_end(search: str) -> None:
    found = whole(search)
    most = max(t.units for t in found.trials)
    assert most == max(b.rungs[-1].units for b in found.outcome.brackets)
    for trial in found.trials:
        for result in trial.results:
            assert result.metrics["steps"] == result.units * UNIT_STEPS


def test_every_step_is_counted_as_it_is_made() -> None:
    made = []
    found = study(None).run(made.append)
    assert sum(made) == found.steps == found.total_steps


def test_a_bar_shows_the_best_so_far_and_changes_nothing(tmp_path: Path, unpacked, monkeypatch) -> None:
    from rich.progress import Progress

    said = []
    update = Progress.update

    def noted(self, task, **fields) -> None:
        said.append(fields["description"])
        update(self, task, **fields)

    monkeypatch.setattr(Progress, "update", noted)
    monkeypatch.setattr("hocket.tune.study._BAR_EVERY_S", 0.0)
    assert outcome(study(tmp_path / "s").run(bar=True)) == unpacked
    assert said[0] == "study"
    assert said[-1].startswith("study, best accuracy 0.")


@pytest.mark.parametrize("policy", ["pack_gain", "pack_knn"])
def test_the_journal_tells_the_packs_the_plans_and_the_outcome(tmp_path: Path, policy: str) -> None:
    found = study(tmp_path / "s", policy=policy, mode=None).run()
    journal = SqliteJournal(tmp_path / "s" / "journal.db")
    packs = [p for c in journal if c.plan is not None for p in c.plan.put]
    assert {p.sharing for p in packs} == {Sharing.PACKED}
    assert max(len(p.tenants) for p in packs) > 1
    assert replay(journal.header, journal, find(policy).bound()).difference is None
    journal.close()
    assert outcome(read(tmp_path / "s")) == outcome(found)


@pytest.mark.parametrize("search", ["hyperband", "asha"])
def test_a_finished_study_is_not_trained_again_and_the_best_model_is_kept(tmp_path: Path, search: str) -> None:
    first = study(tmp_path / "s", search=search).run()
    made = []
    again = study(tmp_path / "s", search=search).run(made.append)
    assert made == []
    assert outcome(again) == outcome(first)
    assert [p.name for p in (tmp_path / "s" / "checkpoints").iterdir()] == [f"t{first.best.number}.pt"]


@pytest.mark.parametrize("search", ["hyperband in turn", "halving", "asha", "random"])
def test_interrupted_again_and_again_it_makes_every_step_once(tmp_path: Path, search: str) -> None:
    made: Counter[str] = Counter()

    def interrupted(steps: int) -> None:
        made["steps"] += steps
        made["calls"] += 1
        if made["calls"] % 5 == 0:
            signal.raise_signal(signal.SIGINT)

    while True:
        try:
            found = study(tmp_path / "s", search=search).run(interrupted)
            break
        except KeyboardInterrupt:
            made["interrupts"] += 1
            assert made["interrupts"] < 100, "it does not get on"
    assert made["interrupts"] > 1
    assert made["steps"] == found.steps
    if search != "asha":  # which of its trials ends first depends on which are packed together
        assert outcome(found) == outcome(whole(search))
    assert sorted(t.units for t in found.trials)[-1] == sorted(t.units for t in whole(search).trials)[-1]


@pytest.mark.parametrize("pragma", ["", "PRAGMA journal_mode = WAL"], ids=["an empty file", "no table yet"])
def test_killed_before_its_journal_has_begun_a_study_begins(tmp_path: Path, pragma: str) -> None:
    (tmp_path / "s").mkdir()
    with closing(sqlite3.connect(tmp_path / "s" / "journal.db")) as database:
        database.execute(pragma)
    (tmp_path / "s" / "journal.db").touch()
    found = study(tmp_path / "s", search="random").prepare().run()
    assert len(found.trials) == 4
    assert outcome(read(tmp_path / "s")) == outcome(found)


class Killed(BaseException):
    """As if the process were gone."""


@pytest.mark.parametrize("is_written", [False, True])
def test_dying_at_any_entry_of_the_journal_repeats_no_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_written: bool
) -> None:
    for entry in range(1, 100):
        made: list[int] = []
        if _outlives(study(tmp_path / str(entry), search="halving"), made, entry, is_written, monkeypatch):
            break
        found = study(tmp_path / str(entry), search="halving").run(made.append)
        assert outcome(found) == outcome(whole("halving")), entry
        assert sum(made) == whole("halving").steps, entry
    assert entry > 5


def _outlives(found: Study, made: list[int], entry: int, is_written: bool, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Run it until its journal gets its n-th entry, which is still written or not; False if it died there."""
    commit, commits = SqliteJournal._commit, []

    def dies(journal: SqliteJournal, rows: list) -> None:
        commits.append(1)
        if len(commits) < entry or is_written:
            commit(journal, rows)
        if len(commits) == entry:
            raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(SqliteJournal, "_commit", dies)
        try:
            found.run(made.append)
        except Killed:
            return False
    return True


def test_a_study_of_another_kind_does_not_go_on_in_the_same_folder(tmp_path: Path) -> None:
    first = study(tmp_path / "s", search="halving").run()
    with pytest.raises(StudyError, match="was begun with search"):
        study(tmp_path / "s", search="random").run()
    with pytest.raises(StudyError, match="was begun with policy 'pack_gain', not 'pack_none'"):
        study(tmp_path / "s", search="halving", policy="pack_none").run()
    assert outcome(read(tmp_path / "s")) == outcome(first), "it is unharmed"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (SuccessiveHalving(trials=6, units=3), SuccessiveHalving(trials=9, units=9)),
        (SuccessiveHalving(trials=9, units=9), SuccessiveHalving(trials=9, units=12)),  # other rungs: 1, 4, 12
        (Asha(trials=6, units=3, at_once=2), Asha(trials=6, units=9, at_once=2)),
        (Hyperband(units=3), Hyperband(units=9)),
    ],
)
def test_a_study_is_extended_by_more_units_and_trials(tmp_path: Path, before, after) -> None:
    def of(search, folder):
        return Study(
            plain, SPACE, search=search, unit_steps=2, policy="pack_none", mode="turn", folder=tmp_path / folder
        )

    of(before, "s").run()
    of(after, "s").prepare()
    more = of(after, "s").run()
    whole = of(after, "whole").run()
    assert more.best_result.units == after.units
    assert len(more.trials) == len(whole.trials)
    assert read(tmp_path / "s").definition.search == after
    if not isinstance(after, Asha) and after.units == 9:  # Else the order counts, or values of other rungs stand in.
        ends = {t.number: t.results[-1].metrics["loss"] for t in more.trials if t.units == after.units}
        assert ends == {t.number: t.results[-1].metrics["loss"] for t in whole.trials if t.units == after.units}
    with pytest.raises(StudyError, match="already, and can only get more"):
        of(before, "s").run()


def test_a_study_that_an_earlier_version_began_goes_on() -> None:
    header = whole("hyperband").outcome.header
    earlier = replace(header, workload=header.workload.replace('"sampler":"random"', '"sampler":"dice"'))
    assert earlier != header
    refuse_another("digits", earlier, header)
    assert definition_of(earlier) == definition_of(header)


def plain(config):
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3))
    optimiser = torch.optim.SGD(model.parameters(), config["rate"])
    loader = DataLoader(TensorDataset(X, Y), config["batch_size"], shuffle=True)
    return Training(config.name, model, optimiser, loader, config.steps, loss=nn.CrossEntropyLoss())


def few(training, evaluate=None, **options) -> Study:
    return Study(training, SPACE, evaluate=evaluate, search=RandomSearch(trials=3, units=2), unit_steps=4, **options)


def test_without_an_evaluation_the_loss_counts() -> None:
    found = few(plain).run()
    assert found.outcome.definition.metric == "loss"
    assert found.best_result.metrics["loss"] == min(r.metrics["loss"] for t in found.trials for r in t.results)


@pytest.mark.parametrize(
    ("breaks", "said"),
    [
        (lambda _config: 1 / 0, "ZeroDivisionError: division by zero"),
        (lambda _config: nn.Linear(2, 2), "must give a hocket.pack.Training, not a Linear"),
        (lambda config: with_loss(config, lambda out, _y: out.sum(1)), "its loss must be one number"),
        (lambda config: with_loss(config, lambda out, _y: out.sum() * math.nan), "its loss was nan in step"),
        (lambda config: with_data(config, 4), "its data set has 4 examples, fewer than the batch's"),
    ],
)
def test_a_trial_that_breaks_is_over_and_the_others_go_on(breaks, said: str) -> None:
    found = few(lambda config: breaks(config) if config.name == "t1" else plain(config)).run()
    failed = {t.number: t.failed for t in found.trials if t.failed}
    assert list(failed) == [1]
    assert said in failed[1]
    assert [t.units for t in found.trials] == [2, 0, 2]


@pytest.mark.parametrize("mode", ["turn", "joint"])
@pytest.mark.parametrize(
    ("loss", "said"),
    [
        (lambda out, _y: out.sum() * math.nan, "its loss was nan in step 1"),
        (lambda out, _y: out.sum(1), "its loss must be one number"),
    ],
)
def test_if_all_models_of_a_pack_fail_in_one_step_each_is_over_and_the_study_ends(loss, said: str, mode: str) -> None:
    found = few(lambda config: with_loss(config, loss), mode=mode).run()
    assert len(found.trials) == 3
    assert all(said in t.failed for t in found.trials)
    assert found.best is None


def with_loss(config, loss):
    made = plain(config)
    made.loss = loss
    return made


def test_a_module_that_all_trials_share_is_trained_by_the_first_only() -> None:
    one = nn.Linear(X.shape[1], 3)

    def training(config):
        made = plain(config)
        made.module, made.optimiser = one, torch.optim.SGD(one.parameters(), 0.1)
        return made

    found = few(training).run()
    assert [t.units for t in found.trials] == [2, 0, 0]
    assert [t.failed for t in found.trials[1:]] == [
        f"model 't{n}' shares parameters with 't0': each needs its own" for n in (1, 2)
    ]


def with_data(config, examples):
    made = plain(config)
    made.data = DataLoader(TensorDataset(X[:examples], Y[:examples]), 8)
    return made


@pytest.mark.parametrize(
    ("evaluate", "said"),
    [
        (lambda _module, _config: 1 / 0, "ZeroDivisionError"),
        (lambda _module, _config: "good", "evaluate must give a number or numbers by name, not a str"),
        (
            lambda _module, _config: {"accuracy": torch.ones(3)},
            "evaluate must give one number as 'accuracy', not a Tensor",
        ),
        (lambda _module, _config: math.nan, "its accuracy was nan after 2 units"),
    ],
)
def test_an_evaluation_that_breaks_fails_its_trials_and_says_why(evaluate, said: str) -> None:
    found = few(plain, evaluate, metric="accuracy").run()
    assert found.best is None
    assert all(said in t.failed for t in found.trials)


@pytest.mark.parametrize("search", ["hyperband", "hyperband in turn", "asha"])
@pytest.mark.parametrize(
    ("metric", "said"),
    [
        ("", "evaluate gives accuracy, steps: say by metric, or --metric, which of them counts"),
        ("acc", "evaluate gives accuracy, steps, and not 'acc'"),
    ],
)
def test_an_evaluation_without_the_metric_ends_the_study_at_its_first_report(
    tmp_path: Path, search: str, metric: str, said: str
) -> None:
    made: list[int] = []

    def named(metric: str) -> Study:
        return Study(
            plain, SPACE, evaluate=lambda _module, _config: {"accuracy": 0.5, "steps": 1.0}, metric=metric,
            search=SEARCHES[search], unit_steps=2, policy="pack_none", mode="turn", folder=tmp_path,
        )  # fmt: skip

    with pytest.raises(StudyError, match=said):
        named(metric).run(made.append)
    assert sum(made) == 2, "the first stretch of the first trial"
    found = named("accuracy").prepare().run()
    assert found.best is not None, "the same folder serves once the metric is named"
    assert found.steps == named("accuracy").run().steps > 0


def test_a_study_about_another_metric_does_not_set_aside_what_was_found(tmp_path: Path) -> None:
    def about(metric: str) -> Study:
        return Study(
            plain, SPACE, evaluate=lambda _module, _config: {metric: 0.5}, metric=metric,
            search=SEARCHES["hyperband"], unit_steps=4, policy="pack_none", mode="turn", folder=tmp_path,
        )  # fmt: skip

    found = about("accuracy").run()
    with pytest.raises(StudyError, match="was begun with metric 'accuracy', not 'recall'"):
        about("recall").run()
    assert about("accuracy").prepare().best == found.best


@pytest.mark.parametrize("is_given_up", [False, True])
def test_time_does_not_go_back_where_the_executor_passed_some_over(tmp_path: Path, monkeypatch, is_given_up) -> None:
    made = InProcessExecutor.__init__

    def passes_over(executor: InProcessExecutor, *args, **options) -> None:
        made(executor, *args, **options)
        executor._skipped_s = 1000.0

    monkeypatch.setattr(InProcessExecutor, "__init__", passes_over)
    trials = few(plain, (lambda _module, _config: {"accuracy": 0.5}) if is_given_up else None, folder=tmp_path)
    with pytest.raises(StudyError) if is_given_up else nullcontext():
        trials.run()
    with closing(SqliteJournal(tmp_path / "journal.db")) as journal:
        times_s = [s for cycle in journal for s in (*(event.at_s for event in cycle.events), cycle.at_s)]
    assert times_s[0] >= 1000
    assert times_s == sorted(times_s)


def test_a_single_evaluation_without_the_metric_fails_its_trial_only() -> None:
    def evaluate(_module, config):
        return {"other": 1.0} if config.name == "t2" else 0.5

    found = few(plain, evaluate, mode="turn", policy="pack_none").run()
    assert [t.failed for t in found.trials] == ["", "", "evaluate must give 'value', and gives other"]


def test_a_study_whose_trials_have_all_failed_begins_anew(tmp_path: Path) -> None:
    broken = few(lambda _config: 1 / 0, folder=tmp_path).run()
    assert all(t.failed for t in broken.trials)
    found = few(plain, folder=tmp_path, seed=1).prepare().run()
    assert [t.units for t in found.trials] == [2, 2, 2]
    assert [t.failed for t in read(tmp_path).trials] == ["", "", ""]
    with pytest.raises(StudyError, match="was begun with seed 1, not 0"):
        few(plain, folder=tmp_path).prepare()


def test_a_study_with_a_result_does_not_begin_anew_though_others_have_failed(tmp_path: Path) -> None:
    few(lambda config: plain(config) if config.name == "t0" else 1 / 0, folder=tmp_path).run()
    found = few(plain, folder=tmp_path).run()
    assert [bool(t.failed) for t in found.trials] == [False, True, True]


def test_parameters_of_a_policy_that_are_lists_are_the_same_in_a_journal(tmp_path: Path) -> None:
    found = few(plain, folder=tmp_path, policy="las").run()
    assert outcome(few(plain, folder=tmp_path, policy="las").run()) == outcome(found)


def test_models_are_judged_in_evaluation_mode_without_gradients() -> None:
    seen = []

    def evaluate(module, config):
        seen.append((module.training, torch.is_grad_enabled(), config.name, config.steps))
        return 0.0

    few(plain, evaluate).run()
    assert {s[:2] for s in seen} == {(False, False)}
    assert {s[2] for s in seen} == {"t0", "t1", "t2"}
    assert {s[3] for s in seen} == {8}


def test_packs_keep_to_the_memory_they_are_given() -> None:
    free = few(plain, memory_mib=100.0).run()
    assert max(r.metrics["pack.others"] for t in free.trials for r in t.results) == 2
    tight = few(plain, memory_mib=_need_mib() * 2.5).run()
    assert [t.failed for t in tight.trials] == ["", "", ""]
    assert max(r.metrics["pack.others"] for t in tight.trials for r in t.results) == 1


def _need_mib() -> float:
    """What the largest of the three models takes, as its job asks for it."""
    found = few(plain, memory_mib=100.0)
    demands = []
    from hocket.tune.tuner import Tuner

    original = Tuner._submission

    def noted(self, *args) -> JobSubmitted:
        made = original(self, *args)
        demands.append(made.job.demand.mem_mib)
        return made

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Tuner, "_submission", noted)
        found.run()
    assert min(demands) > 0
    return max(demands)


def test_a_model_that_no_device_holds_fails_and_the_study_ends() -> None:
    found = few(plain, memory_mib=0.0001).run()
    assert all("would bring the device from 0 to" in t.failed for t in found.trials)
    assert found.best is None


@pytest.mark.parametrize(
    ("metric", "goal", "taken"), [("accuracy", None, "max"), ("accuracy", "min", "min"), ("x", None, "min")]
)
def test_without_a_goal_the_name_of_the_metric_tells_whether_more_is_better(metric, goal, taken) -> None:
    found = few(plain, evaluate=lambda _module, _config: {metric: 1.0}, metric=metric, goal=goal)
    assert found.outcome.definition.goal == taken


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"search": "grid"}, "search 'grid' is not one of hyperband, halving, asha, random"),
        ({"unit_steps": 0}, "unit_steps is at least 1, not 0"),
        ({"goal": "most"}, "goal is min or max, not 'most'"),
        ({"metric": "accuracy"}, "metric 'accuracy' needs an evaluate function"),
        ({"params": {"most": 0}}, "policy 'pack_gain'"),
        ({"search": RandomSearch(trials=10**8)}, "at most 1,000,000 trials, not 100,000,000"),
        ({"search": Hyperband(units=10**9)}, "at most 1,000,000 trials"),
        ({"checkpoint_s": -1.0}, "checkpoint_s is more than 0 seconds, not -1.0"),
        ({"checkpoint_s": float("nan")}, "checkpoint_s is more than 0 seconds, not nan"),
        ({"memory_mib": 0.0}, "memory_mib is more than 0, not 0.0"),
        ({"seed": -1}, "seed is from 0 to 4294967295, not -1"),
        ({"seed": 2**32}, "seed is from 0 to 4294967295, not 4294967296"),
        ({"search": SuccessiveHalving(least=9, units=3)}, "least is at most the search's 3 units, not 9"),
        ({"search": Asha(least=9, units=3)}, "least is at most the search's 3 units, not 9"),
    ],
)
def test_a_study_that_makes_no_sense_is_refused_before_anything_is_trained(options, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Study(plain, SPACE, **options)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"device": "cuda:99"}, "device 'cuda:99' is not there"),
        ({"device": "abacus"}, "device 'abacus' is not one that PyTorch knows"),
        ({"mode": "sideways"}, "mode 'sideways' is not one of"),
        ({"mode": "fused", "exact": True}, "mode 'fused' is not bitwise as alone"),
    ],
)
def test_a_device_or_a_mode_that_is_not_there_is_refused(options, said: str) -> None:
    with pytest.raises((StudyError, Refused), match=said):
        Study(plain, SPACE, **options).prepare()
    with pytest.raises((StudyError, Refused), match=said):
        Study(plain, SPACE, **options).run()


def test_a_study_learns_what_companions_cost_and_tells_its_policy() -> None:
    found = Study(
        plain, {"rate": loguniform(0.01, 0.1), "batch_size": choice([8])},
        search=Hyperband(units=9), unit_steps=40,
    ).run()  # fmt: skip
    measured = [r for t in found.trials for r in t.results if "pack.alone_s" in r.metrics]
    assert measured, "the probe measures models in turn"
    from hocket.estimators.packs import slowdown
    from hocket.tune.tuner import _seen

    curve = slowdown(_seen(found.trials))
    assert curve is not None
    assert curve.at(0).mean == 1
    assert all(p.mean > 0 for p in curve.points)
