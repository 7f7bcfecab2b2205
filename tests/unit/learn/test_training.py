"""Training: records are imitated, rewards are those of MLFS, and a training that stopped goes on alike."""

import gc
from pathlib import Path

import msgspec
import numpy as np
import pytest
from msgspec.structs import replace

from hocket.cli.simulation.recording import Recording
from hocket.control.ports import Header
from hocket.executors.simulated import simulate
from hocket.learn.betas import search_betas
from hocket.learn.episodes import (
    Episode,
    RecordedWindow,
    SameDecisions,
    compare_decisions,
    record,
    run_episode,
    seen_columns,
)
from hocket.learn.evolution import initial
from hocket.learn.imitation import Agreement, agreement, imitate, read_record
from hocket.learn.own_history import history_windows, history_workload
from hocket.learn.reward import BETAS, Goals
from hocket.learn.training import (
    STATE,
    LearningError,
    LearningState,
    TrainingSetup,
    applied,
    final_network,
    next_generation,
    numbers,
    save_weights,
    train,
)
from hocket.learn.windows import Window, workload_of
from hocket.policies import find
from hocket.policies.mlfs.weights_file import LearnedWeights, MadeBy, WeightsError, read_weights

WINDOW = Window("w", 5, 30, 3, 1.4)


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    return read_record(Path(record(RecordedWindow(WINDOW, str(tmp_path_factory.mktemp("record"))))))


@pytest.fixture(scope="module")
def network(records):
    return imitate(records, 0)


def test_what_a_record_says_is_what_the_policy_sees(records, network):
    """The columns that imitation reads off files are those that a decision computes."""
    asked = seen_columns(Episode(WINDOW, network=network))
    low, high = records.columns.min(axis=0), records.columns.max(axis=0)
    assert (asked >= low - 0.6).all()
    assert (asked <= high + 0.6).all()
    assert records.started.any()
    assert not records.started.all()


def test_a_network_that_imitates_mlf_h_decides_as_it_does(records, network):
    assert agreement(network, records).pairs > 0.95
    assert agreement(replace(network, linear=-network.linear, out=-network.out), records).pairs < 0.05
    same = compare_decisions(Episode(WINDOW, network=network))
    assert same.decisions > 20
    assert same.same_jobs / same.decisions > 0.85


def test_the_reward_is_the_weighted_sum_of_the_goals():
    goals = Goals(0.5, 0.9, 0.8, 1.0, 0.7, (0.6, 0.5, 0.4), 100.0, 0.25, 0)
    assert goals.reward() == pytest.approx(0.25 + 0.495 + 0.2 + 0.15 + 0.105)
    assert goals.discounted() == pytest.approx(0.25 + 0.33 + 0.2 + 0.075 + 0.06)
    assert goals.reward((1.0, 0.0, 0.0, 0.0, 0.0)) == 0.5


def test_a_window_is_simulated_to_its_end():
    goals = run_episode(Episode(replace(WINDOW, jobs=12), "mlf_h"))
    assert gc.collect() < 100  # A process of a training runs thousands of them, and must not grow.
    assert not goals.unfinished
    assert 0 < goals.jct <= 1
    undiscounted = (goals.deadlines, goals.accuracies, goals.accuracy)
    assert all(0 <= later <= now for later, now in zip(goals.later, undiscounted, strict=True))
    whole = run_episode(Episode(replace(WINDOW, jobs=12), "tiresias", whole=True))
    assert not whole.unfinished


def test_a_journal_is_a_school_of_its_own_and_its_last_jobs_are_for_validation(tmp_path):
    load = workload_of(replace(WINDOW, jobs=24))
    policy, path = find("mlf_h").bound(), tmp_path / "week.db"
    with Recording(path, Header("mlf_h", policy.settings, load.nodes, 1, load.name)) as journal:
        simulate(load, load.nodes, policy, seed=1, journal=journal)
    learns, judges = (history_workload(w) for v in (False, True) for w in history_windows(str(path), 0, 0, 1, v))
    assert {s.job.id for s in learns.submissions} == {s.job.id for s in load.submissions[:18]}
    assert {s.job.id for s in judges.submissions} == {s.job.id for s in load.submissions[18:]}
    assert judges.nodes == load.nodes
    assert judges.submissions[0].at_s == 0.0
    true_s = {s.job.id: s.truth.run_s for s in load.submissions}
    for s in judges.submissions:
        assert s.truth.run_s == pytest.approx(true_s[s.job.id], rel=0.35)
    goals = run_episode(Episode(history_windows(str(path), 0, 0, 1, True)[0], "mlf_h"))
    assert not goals.unfinished


# -- going on -----------------------------------------------------------------------------------------------


def run_here(_function, episodes, _what):
    """Rewards by what a candidate weighs: at once, and as reproducible as a simulation."""

    def goals(episode):
        value = 1 / (1 + float(((episode.network.linear - 0.3) ** 2).sum()))
        return Goals(value, value, value, value, value, (value, value, value), 1.0, 0.0, 0)

    return [(goals(episode), 0.5) for episode in episodes]


def begun_training(network, **settings):
    setup = TrainingSetup(validation=2, **settings)
    size = numbers(network, setup.policy)
    same, held_out = SameDecisions(1, 1, 1), Agreement(1, 1.0, 1.0)
    return LearningState(setup, initial(size, 0.5), [], [0.0] * size, -1.0, 0.0, held_out, same, [0.5, 0.5], 0.0)


def test_a_training_goes_on_from_its_file_as_if_it_had_never_stopped(network):
    whole = begun_training(network, generations=8)
    for _ in range(8):
        whole = next_generation(whole, network, run_here)
    parts = begun_training(network, generations=8)
    for _ in range(8):
        parts = msgspec.json.decode(msgspec.json.encode(parts), type=LearningState)
        parts = next_generation(parts, network, run_here)
    assert parts == whole
    assert [row.number for row in whole.history] == list(range(1, 9))
    assert whole.best_gain > -1.0
    assert whole.cpu_s > 8 * 0.5
    learned = applied(network, whole.best, "mlf_rl")
    assert ((learned.linear - 0.3) ** 2).sum() < ((network.linear - 0.3) ** 2).sum()
    np.testing.assert_array_equal(learned.hidden, network.hidden)


def test_a_folder_with_a_training_of_other_settings_is_refused(network, tmp_path):
    (tmp_path / STATE).write_bytes(msgspec.json.encode(begun_training(network, seed=1)))
    with pytest.raises(LearningError, match="has a training with other settings; name another folder"):
        train(TrainingSetup(validation=2, seed=2), tmp_path, 1, lambda _progress: None)
    (tmp_path / STATE).write_bytes(b"{")
    with pytest.raises(LearningError, match="truncated"):
        train(TrainingSetup(), tmp_path, 1, lambda _progress: None)


def test_weights_that_are_not_finite_are_not_written(network, tmp_path):
    made_by = MadeBy("c", "d", 0, "2026-11-18")
    save_weights(tmp_path / "w.json", LearnedWeights(network, made_by))
    broken = replace(network, out=np.full_like(network.out, np.nan))
    with pytest.raises(WeightsError, match="out must be finite"):
        save_weights(tmp_path / "w.json", LearnedWeights(broken, made_by))
    assert read_weights(tmp_path / "w.json", "mlf_rl").made_by == made_by


@pytest.mark.parametrize(("theirs", "reaches"), [(0.4, 40.0), (0.6, 4.0)])
def test_the_network_decides_with_longer_queues_only_if_it_is_as_good_as_mlf_h_there(network, theirs, reaches):
    def run(function, episodes, _what):
        if function is seen_columns:
            return [np.full((1, 12), 40.0 if e.window.name.startswith("long queue") else 4.0) for e in episodes]
        values = [0.5 if e.network is not None else theirs for e in episodes]
        return [(Goals(v, v, v, v, v, (v, v, v), 1.0, 0.0, 0), 0.5) for v in values]

    low_range = replace(network, low=np.zeros(12), high=np.zeros(12))
    found, gain = final_network(begun_training(low_range), low_range, run)
    assert (gain >= 0) == (theirs < 0.5)
    np.testing.assert_allclose(found.high, reaches + network.scale)


# -- the search for β ---------------------------------------------------------------------------------------


def test_a_search_tries_the_papers_betas_first_and_keeps_all_trials(network):
    pytest.importorskip("optuna")
    names = []

    def train_shortly(setup, name):
        names.append(name)
        return replace(begun_training(network), setup=setup, best_gain=-abs(setup.betas[1] - 0.9))

    found, again = (search_betas(TrainingSetup(generations=40), 6, train_shortly) for _ in range(2))
    assert found == again
    assert names[:6] == [f"beta-{n:02d}" for n in range(6)]
    assert found.beta_trials[0].betas == BETAS
    assert len({t.betas for t in found.beta_trials}) == 6
    best = max(found.beta_trials, key=lambda t: t.gain)
    assert found.betas == best.betas != BETAS
    assert found.generations == 40
