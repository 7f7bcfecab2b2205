"""MLFS's workload has what its paper says, and curves that learn."""

from pathlib import Path

import pytest

from hocket.control.admission import refusal
from hocket.executors.simulated import simulate
from hocket.model.capacity import Capacity
from hocket.model.versioned import versioned
from hocket.policies import find
from hocket.workloads import WorkloadError, load
from hocket.workloads.learning_curves import FAMILIES, Learner, learning, read_learning
from hocket.workloads.mlfs import EPOCHS, GPUS, MODELS, servers

PHILLY = "job_idx,submit_s,num_gpus,wall_run_s,vc\n" + "\n".join(
    f"{i},{i * 100},{1 + i % 5},{600 + i},v" for i in range(40)
)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "philly.csv"
    path.write_text(PHILLY)
    return path


def test_jobs_are_as_the_paper_draws_them():
    workload = load("mlfs?jobs=400", seed=3)
    jobs = [s.job for s in workload.submissions]
    assert {j.model for j in jobs} == {m.name for m in MODELS}
    assert {j.urgency for j in jobs} == set(range(1, 11))
    for s in workload.submissions:
        assert 1.1 * s.truth.run_s <= s.job.deadline_s + 1e-3
        assert 1800.0 <= s.job.deadline_s <= max(1.1 * s.truth.run_s, 86400.0) + 1e-3
        workers = [t for t in s.job.tasks.tasks if t.id[0] == "r" and t.id != "reduce"]
        assert len(workers) in GPUS
        assert all(47.6 <= e.mib <= 2 * 95.4 for e in s.job.tasks.edges)
    assert workload.submissions[-1].at_s == 7 * 86400.0


def test_whole_jobs_are_the_same_ones_with_a_gpu_for_each_part():
    cut, whole = load("mlfs?jobs=120", seed=3), load("mlfs?jobs=120&whole", seed=3)
    assert cut.nodes == whole.nodes
    for a, b in zip(cut.submissions, whole.submissions, strict=True):
        workers = [t for t in a.job.tasks.tasks if t.id not in ("ps", "reduce")]
        assert b.job.tasks is None
        assert b.job.sizes == (len(workers),) == (b.truth.reference_size,)
        assert b.job.demand.gpu_share == b.truth.gpu_use == 1.0
        assert (a.job.id, a.at_s, a.job.deadline_s, a.job.target) == (b.job.id, b.at_s, b.job.deadline_s, b.job.target)
        assert (a.truth.run_s, a.truth.quality) == (b.truth.run_s, b.truth.quality)


@pytest.mark.parametrize("policy", ["mlf_h", "graphene"])
def test_jobs_of_the_trace_that_take_no_time_end(policy: str, tmp_path: Path) -> None:
    path = tmp_path / "philly.csv"
    path.write_text("job_idx,submit_s,num_gpus,wall_run_s,vc\n1,0,4,0,v\n2,10,1,0,v\n3,20,2,60,v\n")
    workload = load(f"mlfs-philly:{path}")
    ran = simulate(workload, workload.nodes, find(policy).bound())
    assert not ran.final.jobs.values()


def test_the_goal_of_a_job_ends_with_its_last_epoch():
    assert {s.job.last_epoch for s in load("mlfs?jobs=20").submissions} == {EPOCHS}


def test_every_job_is_admitted_to_its_cluster():
    workload = load("mlfs?jobs=200")
    whole = Capacity.of(workload.nodes)
    assert [r for s in workload.submissions if (r := refusal(versioned(), s.job, whole))] == []


def test_svm_is_data_parallel_only():
    for s in load("mlfs?jobs=100").submissions:
        if s.job.model == "svm":
            assert {t.id for t in s.job.tasks.tasks} <= {"ps", "reduce", *(f"r{r}p0" for r in range(32))}


def test_the_required_accuracy_is_a_share_of_the_jobs_own():
    for s in load("mlfs?jobs=50&accuracy=0.9").submissions:
        assert s.job.target.target == pytest.approx(0.9 * s.truth.quality.at(EPOCHS).mean, abs=1e-4)
        assert s.job.criterion is None


def test_the_same_seed_gives_the_same_jobs_and_another_others():
    assert load("mlfs?jobs=20", seed=1) == load("mlfs?jobs=20", seed=1)
    assert load("mlfs?jobs=20", seed=1) != load("mlfs?jobs=20", seed=2)


def test_the_clusters_are_the_papers():
    assert sum(n.gpus for n in load("mlfs?jobs=1").nodes) == 80
    nodes = servers((229, 8), (321, 2))
    assert (len(nodes), sum(n.gpus for n in nodes)) == (550, 2474)


@pytest.mark.parametrize(("times", "jobs"), [("1", 40), ("2", 80), ("4", 160)])
def test_each_job_of_a_trace_comes_k_times(table, times, jobs):
    submissions = load(f"mlfs-philly:{table}?k={times}").submissions
    assert len(submissions) == jobs
    first = {s.job.id: s for s in submissions}
    for i in range(40):
        assert first[str(i)].at_s == i * 100.0
        assert all(0 <= first[f"{i}x{n}"].at_s - i * 100.0 <= 3600.0 for n in range(2, int(times) + 1))


def test_below_one_some_are_left_out(table):
    assert 10 <= len(load(f"mlfs-philly:{table}?k=0.5").submissions) <= 30


@pytest.mark.parametrize("k", ["0", "1.5", "nan", "-1"])
def test_k_must_be_a_whole_number_or_below_one(table, k):
    with pytest.raises(WorkloadError, match="k"):
        load(f"mlfs-philly:{table}?k={k}")


@pytest.mark.parametrize("family", FAMILIES)
def test_learners_learn(family):
    found = learning(Learner(family, 0.1, 0.9, noise=0.0, spread=0.0), 40, 0, 0)
    accuracy, loss = ([p.mean for p in curve.points] for curve in (found.accuracy, found.loss))
    assert accuracy == sorted(accuracy)
    assert loss == sorted(loss, reverse=True)
    assert 0.8 < accuracy[-1] < 0.9


def test_noise_is_drawn_by_seed():
    learner = Learner("power", 0.1, 0.9)
    assert learning(learner, 20, 0, 1) == learning(learner, 20, 0, 1)
    assert learning(learner, 20, 0, 1) != learning(learner, 20, 1, 1)
    assert learning(learner, 20, 0, 1) != learning(learner, 20, 0, 2)


def test_measured_curves_are_stretched_and_error_rates_turned(tmp_path):
    path = tmp_path / "curves.csv"
    path.write_text("app,batch_size,metric\ncifar10,1,0.2\ncifar10,1,0.6\nyolov3,8,40\nyolov3,8,10\n")
    found = read_learning(str(path), 4)
    assert [p.mean for p in found["cifar10"][0].accuracy.points] == [0.2, 0.2, 0.6, 0.6]
    assert [p.mean for p in found["yolov3"][0].accuracy.points] == [0.6, 0.6, 0.9, 0.9]
    assert [p.mean for p in found["yolov3"][0].loss.points] == pytest.approx([0.4, 0.4, 0.1, 0.1])


def test_a_run_that_stands_under_two_sources_is_learnt_once_and_to_its_end(tmp_path):
    path = tmp_path / "curves.csv"
    runs = "".join(f"{source},cifar10,1,{v}\n" for source in ("sia", "pollux") for v in (0.1, 0.5, 0.7))
    path.write_text(f"source,app,batch_size,metric\n{runs}pollux,cifar10,2,0.3\n")
    small, large = read_learning(str(path), 4)["cifar10"]
    assert [p.mean for p in small.accuracy.points] == [0.1, 0.5, 0.7, 0.7]
    assert [p.mean for p in large.accuracy.points] == [0.3] * 4


def test_a_job_can_reach_the_accuracy_that_it_asks_for():
    for submission in load("mlfs?jobs=200&over=1h&accuracy=1").submissions:
        target, quality = submission.job.target, submission.truth.quality
        assert target.met_by(quality.points[-1].mean)


def test_a_file_of_curves_must_have_those_of_every_model(tmp_path):
    path = tmp_path / "curves.csv"
    path.write_text("app,batch_size,metric\ncifar10,1,0.2\n")
    with pytest.raises(WorkloadError, match="must have curves of 'imagenet'"):
        load(f"mlfs?jobs=3&curves={path}")
