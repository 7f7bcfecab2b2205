"""Studies whose trials are jobs, played without a controller: each job does what it is asked for, at once."""

from collections import Counter

import pytest

from hocket.control.journal import JournalHeld
from hocket.tune import Asha, Hyperband, RandomSearch, StudyError, SuccessiveHalving, loguniform, read
from hocket.tune.definition import Definition, JobTemplate
from hocket.tune.job_study import begun_in, opened
from hocket.tune.job_trials import JobLook, JobReport, Want
from hocket.tune.sampling import RandomSampler

SPACE = {"lr": loguniform(1e-4, 1.0)}
COMMAND = ("train", "{lr}", "{units}")


def definition(search, command=COMMAND, metric="acc"):
    jobs = JobTemplate(command, "1 epoch", "net", {})
    return Definition("net", SPACE, search, 1, metric, "max", 0, "", None, False, None, "random", jobs)


class Cluster:
    """Remembers how many epochs each trial has trained; a worse trial has a higher number."""

    def __init__(self, folder, fails=(), names="acc"):
        self.folder, self.fails, self.names = folder, set(fails), names
        self.epochs = Counter()
        self.jobs = {}  # name → the command that it was submitted with

    def opened(self, search, **changed):
        return opened(definition(search, **changed), SPACE, RandomSampler(SPACE, 0), self.folder)

    def run(self, search, looks=1000, **changed):
        """Look so often, or until the study is done; the outcome."""
        with self.opened(search, **changed) as study:
            for _ in range(looks):
                study.take({t.number: self.look(study, t) for t in study.under_way})
                if study.is_done:
                    break
            return study.outcome

    def look(self, study, trial):
        command = study.command(trial.number)
        self.jobs.setdefault(command.name, command)
        if trial.number in self.fails:
            return JobLook("failed", True, reason="it broke")
        before = self.epochs[trial.number]
        self.epochs[trial.number] = max(trial.asked, before)
        reports = [JobReport(e, 0, {self.names: e / (trial.number + 1)}) for e in range(before, trial.asked + 1)]
        return JobLook("running", False, trial.asked, 0, reports[-1].metrics, reports)


@pytest.fixture
def cluster(tmp_path):
    return Cluster(tmp_path / "study")


SEARCHES = [
    SuccessiveHalving(trials=9, units=9),
    Asha(trials=9, units=9, at_once=3),
    Hyperband(units=9),
    RandomSearch(trials=4),
]


@pytest.mark.parametrize("search", SEARCHES)
def test_a_search_ends_with_its_best_trial_trained_to_the_end(cluster, search):
    outcome = cluster.run(search)
    assert outcome.best.number == 0
    assert outcome.best_result.units == search.units
    assert read(cluster.folder).found.all == outcome.found.all
    assert set(cluster.jobs) == {f"net-{n}" for n in outcome.found.all}, "a job for each trial"


def test_trials_are_paused_at_their_rung_and_stopped_when_they_cannot_go_on(cluster):
    with cluster.opened(SuccessiveHalving(trials=3, units=3)) as study:
        study.take({})
        first, *others = study.under_way
        study.take({first.number: cluster.look(study, first)})
        assert study.want(0) is Want.PAUSE
        assert {study.want(t.number) for t in others} == {Want.RUN}
        study.take({t.number: cluster.look(study, t) for t in others})
        assert [study.want(n) for n in range(3)] == [Want.RUN, Want.STOP, Want.STOP]


@pytest.mark.parametrize("search", SEARCHES)
@pytest.mark.parametrize("looks", [1, 2, 3])
def test_a_study_that_is_killed_goes_on_and_no_job_is_another(cluster, tmp_path, search, looks):
    whole = Cluster(tmp_path / "whole").run(search)
    for _ in range(100):
        outcome = cluster.run(search, looks)
    assert {n: (t.config, [r.units for r in t.results]) for n, t in outcome.found.all.items()} == {
        n: (t.config, [r.units for r in t.results]) for n, t in whole.found.all.items()
    }
    assert len(cluster.jobs) == len(outcome.trials)


def test_the_command_of_a_trial_has_its_values(cluster):
    outcome = cluster.run(RandomSearch(trials=2, units=5))
    rate = outcome.found.all[1].config["lr"]
    assert cluster.jobs["net-1"].command == ["train", repr(rate), "5"]
    assert cluster.jobs["net-1"].env["HOCKET_TUNE_LR"] == repr(rate)
    assert cluster.jobs["net-1"].until == "for 6 epochs", "one more: its last value may come late"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (SuccessiveHalving(trials=9, units=9), SuccessiveHalving(trials=9, units=27)),
        (SuccessiveHalving(trials=9, units=9), SuccessiveHalving(trials=27, units=9)),
        (SuccessiveHalving(trials=9, units=9), SuccessiveHalving(trials=10, units=12)),  # other rungs: 1, 4, 12
        (Asha(trials=9, units=9), Asha(trials=9, units=27)),
        (Asha(trials=9, units=9), Asha(trials=20, units=12, at_once=2)),
        (Hyperband(units=9), Hyperband(units=27)),
        (Hyperband(units=9), Hyperband(units=10)),
        (RandomSearch(trials=3, units=4), RandomSearch(trials=5, units=6)),
    ],
)
@pytest.mark.parametrize("looks", [2, 1000])
def test_a_study_is_extended_and_trains_nothing_twice(cluster, tmp_path, before, after, looks):
    cluster.run(before, looks)
    done = dict(cluster.epochs)
    outcome = cluster.run(after)
    at_once = Cluster(tmp_path / "whole").run(after)
    assert outcome.best.number == at_once.best.number == 0
    assert outcome.best_result.units == after.units
    assert len(outcome.trials) == len(at_once.trials)
    assert all(cluster.epochs[n] >= epochs for n, epochs in done.items())
    assert read(cluster.folder).definition.search == after
    again = cluster.run(after)
    assert again.found.all == outcome.found.all, "run once more it has nothing to do"


def test_a_trial_that_goes_on_after_it_was_stopped_is_a_new_job_with_the_first_ones_checkpoints(cluster):
    cluster.run(SuccessiveHalving(trials=3, units=3))
    cluster.run(SuccessiveHalving(trials=3, units=9))
    cluster.run(SuccessiveHalving(trials=3, units=27))
    assert cluster.jobs["net-0"].continues == ""
    assert cluster.jobs["net-0-2"].continues == "net-0"
    assert cluster.jobs["net-0-3"].continues == "net-0"
    assert cluster.jobs["net-0-3"].until == "for 28 epochs"


@pytest.mark.parametrize(
    ("search", "changed", "problem"),
    [
        (SuccessiveHalving(trials=8, units=9), {}, "has 9 trials already, and can only get more, not 8"),
        (SuccessiveHalving(trials=9, units=3), {}, "has 9 units already"),
        (SuccessiveHalving(trials=9, units=9, eta=2), {}, "was begun with eta 3, not 2"),
        (Asha(trials=9, units=9), {}, "was begun with search halving, not asha"),
        (SuccessiveHalving(trials=9, units=9), {"command": ("other", "{lr}")}, "was begun with command 'train {lr}"),
        (SuccessiveHalving(trials=9, units=9), {"metric": "loss"}, "was begun with metric 'acc', not 'loss'"),
    ],
)  # fmt: skip
def test_another_study_in_the_folder_is_refused(cluster, search, changed, problem):
    before = cluster.run(SuccessiveHalving(trials=9, units=9))
    with pytest.raises(StudyError) as refused:
        cluster.run(search, **changed)
    assert problem in str(refused.value)
    assert read(cluster.folder).found.all == before.found.all


def test_a_trial_that_fails_is_left_out_and_all_failed_begin_anew(cluster):
    cluster.fails = {0}
    outcome = cluster.run(SuccessiveHalving(trials=3, units=3))
    assert (outcome.best.number, outcome.found.all[0].failed) == (1, "it broke")
    other = Cluster(cluster.folder.parent / "other", fails={0, 1, 2})
    other.run(SuccessiveHalving(trials=3, units=3))
    assert begun_in(other.folder) is None
    other.fails = set()
    assert other.run(SuccessiveHalving(trials=3, units=9)).best.number == 0


def test_a_metric_that_no_trial_reports_ends_the_study(cluster):
    cluster.names = "loss"
    with cluster.opened(SuccessiveHalving(trials=3, units=3)) as study:
        study.take({})
        look = JobLook("running", False, 2, 0, {"loss": 1.0}, [JobReport(2, 0, {"loss": 1.0})])
        with pytest.raises(
            StudyError, match=r"trial 0 \(job 'net-0'\): it has done 2 epochs and reported loss"
        ) as error:
            study.take({0: look})
        study.give_up(str(error.value))
        assert {study.want(n) for n in range(3)} == {Want.STOP}
    assert begun_in(cluster.folder) is None, "the folder can be used again"


def test_two_processes_cannot_run_one_study(cluster):
    search = RandomSearch(trials=2, units=2)
    with cluster.opened(search), pytest.raises(JournalHeld), cluster.opened(search):
        pass
