"""Windows: as much work as they say, and those for judging are not those of the training."""

import pytest
from msgspec.structs import replace

from hocket.learn.windows import (
    GPUS_OF_A_SERVER,
    LIMIT,
    SECOND_CLUSTERS,
    SECOND_WEEKS,
    TRAINING_CLUSTERS,
    TRAINING_WEEKS,
    WEEK_S,
    Window,
    held_out_windows,
    large_windows,
    long_queue_windows,
    second_held_out_windows,
    training_windows,
    validation_windows,
    workload_of,
)
from hocket.workloads.errors import WorkloadError


@pytest.fixture
def table(tmp_path):
    rows = [
        f"w{week}-{cluster}-{n},{week * WEEK_S + 900 * n},{1 << n % 4},{600 + 60 * n},{cluster}"
        for week in range(17)
        for cluster in ("6214e9", "11cb48", "", "6c71a0", "b436b2")
        for n in range(120)
    ]
    path = tmp_path / "jobs.csv"
    path.write_text("\n".join(["job_idx,submit_s,num_gpus,wall_run_s,vc", *rows]))
    return str(path)


@pytest.mark.parametrize("load", [0.7, 1.5])
def test_the_work_that_comes_is_the_load_times_what_the_cluster_can_do(load):
    window = Window("w", 1, 60, 4, load)
    found = workload_of(window)
    assert len(found.submissions) == 60
    work = sum(sum(t.demand.gpu_load for t in s.job.tasks.tasks) * s.truth.run_s for s in found.submissions)
    capacity = 4 * GPUS_OF_A_SERVER * LIMIT * found.submissions[-1].at_s
    assert work / capacity == pytest.approx(load, rel=1e-3)
    assert workload_of(window) == found
    assert workload_of(replace(window, seed=2)) != found


def _parts(windows):
    """Which parts of the table these windows are of; None stands for all clusters of a week, which it has all."""
    found = {(w.cluster, w.week) for w in windows if w.trace and w.kind == "philly"}
    clusters = {cluster for cluster, _week in found} | {c for c, _ in SECOND_WEEKS + SECOND_CLUSTERS}
    return found | {(cluster, week) for whole, week in found if whole is None for cluster in clusters}


def test_windows_for_judging_are_of_other_weeks_or_clusters(table):
    training = [w for g in range(-4, 40) for w in training_windows(table, 0, g, 6)] + long_queue_windows(0)
    of_table = [w for w in training if w.trace]
    assert {w.week for w in of_table} == {*TRAINING_WEEKS}
    assert {w.cluster for w in of_table} == {*TRAINING_CLUSTERS}
    first, second = held_out_windows(table, table), second_held_out_windows(table)
    assert len(second) == 20
    assert not {w.seed for w in first + large_windows(table)} & {w.seed for w in second}
    assert not _parts(first + large_windows(table)) & _parts(second)
    weeks, clusters = ({w.week for w in first}, {w.cluster for w in first if w.trace})
    of_weeks = [w for w in second if w.name.startswith("Philly week")]
    of_clusters = [w for w in second if w.name.startswith("Philly cluster")]
    assert len(of_weeks) == len(of_clusters) == 5
    assert not {w.week for w in of_weeks} & ({*TRAINING_WEEKS} | weeks)
    assert not {w.cluster for w in of_clusters} & ({*TRAINING_CLUSTERS} | clusters)
    held_out = first + second
    assert len(held_out) >= 20
    assert not _parts(held_out) & _parts(of_table)
    assert not {w.seed for w in held_out + large_windows(table)} & {w.seed for w in training}
    assert {w.load for w in held_out} >= {0.7, 0.9, 1.1, 1.3, 1.5}
    assert not {w.seed for w in validation_windows(table, 0, 6)} & {w.seed for w in training_windows(table, 0, 0, 6)}


def test_a_window_of_the_table_has_its_jobs_of_that_week(table):
    window = Window("w", 3, 50, 5, 1.0, table, cluster="6c71a0", week=8)
    found = workload_of(window)
    assert len(found.submissions) == 50
    assert all(s.job.id.startswith("w8-6c71a0-") and s.job.owner == "6c71a0" for s in found.submissions)
    gaps = {round(b.at_s - a.at_s, 1) for a, b in zip(found.submissions, found.submissions[1:], strict=False)}
    assert len(gaps) <= 3  # even ones, as in the table


def test_a_week_without_jobs_is_refused(table):
    with pytest.raises(WorkloadError, match="week 99 of '6c71a0' must have 2 jobs"):
        workload_of(Window("w", 3, 50, 5, 1.0, table, cluster="6c71a0", week=99))
