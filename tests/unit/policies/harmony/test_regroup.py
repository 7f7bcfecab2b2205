from msgspec.structs import replace

from hocket.model.job import Kind
from hocket.policies.harmony.hall import fitting
from hocket.policies.harmony.regroup import budget_s
from hocket.testing.builders import cluster, job, snapshot, submitted


def at(now_s, memo=None):
    return replace(snapshot(cluster("10x8"), now_s=now_s), memo=memo)


def test_machine_time_for_migrations_is_a_share_of_all_and_can_be_saved_up_for_a_while():
    spent = [1000.0, 0.0]  # nothing was left then
    assert budget_s(at(1000.0, spent), 0.02) == 0
    assert budget_s(at(1100.0, spent), 0.02) == 0.02 * 10 * 100
    assert budget_s(at(1e6, spent), 0.02) == budget_s(at(2e6, spent), 0.02)
    assert budget_s(at(0.0), 0.02) > 0  # There is something to begin with.
    assert budget_s(at(5000.0, [1000.0, -1e6]), 0.02) < 0  # What was spent in advance has to be saved first.


def test_only_jobs_whose_data_has_room_together_share_machines_where_nothing_is_spilled():
    jobs = [submitted(job(f"j{n}", *range(n, 9), gpus=0, kind=Kind.PARAMETER_SERVER)) for n in (3, 6, 4)]
    views = list(snapshot(cluster("10x8"), *jobs).jobs.values())
    assert [v.job.id for v in fitting(views, 8)] == ["j3", "j4"]
    assert [v.job.id for v in fitting(views, 20, most=2)] == ["j3", "j6"]
    assert fitting(views, 2) == []
