from msgspec.structs import replace

from hocket.model.job import Kind
from hocket.model.phases import Profile
from hocket.policies.harmony.regroup import budget_s, next_overdue_s, overdue, substitutes, widths
from hocket.policies.kit.group_draft import fitting
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


def test_a_regrouping_widens_step_by_step_then_faster_and_looks_at_no_width_twice():
    assert list(widths(3, lambda _width: 0, 10)) == [0, 1, 2, 3]
    assert list(widths(8, lambda _width: 0, 10)) == list(range(9))
    assert list(widths(21, lambda _width: 0, 10)) == [*range(9), 16, 21]
    assert list(widths(21, lambda width: 3 * width, 10)) == [0, 1, 2, 3]  # Too many jobs would be involved.


def test_the_next_job_whose_patience_ends_is_given_and_those_after_it_are_not():
    jobs = [submitted(job(f"j{n}", gpus=0), at_s=100.0 * n) for n in range(3)]
    views = list(snapshot(cluster("10x8"), *jobs).jobs.values())
    assert next_overdue_s(views, 250.0, 200.0) == 300.0  # j1's; that of j0 is over.
    assert [overdue(v, 250.0, 200.0) for v in views] == [True, False, False]
    assert next_overdue_s(views[:1], 250.0, 200.0) is None


def test_what_is_alike_depends_on_what_machines_have_to_send():
    """COMP takes 10 and 10.5 s on 2 machines, COMM 10 and 12 s on very many: 22.5 s are not like 20, 16.5 like 15."""
    other = [Profile(21.0, 12.0)]
    assert substitutes(20.0, 10.0, 2, other, 0.11) == ()
    assert substitutes(20.0, 10.0, 2, other, 0.11, own_part=1.0) == (0,)
