import random

import numpy as np
import pytest
from msgspec.structs import replace

from hocket.model.phases import Profile
from hocket.policies.harmony import search_kernel
from hocket.policies.harmony.algorithm_1 import as_printed
from hocket.policies.harmony.oracle import exhaustive
from hocket.policies.harmony.schedule import Terms, schedule, use_of
from hocket.policies.harmony.search_kernel import Groups, Jobs, ResourceWeights


def some_jobs(dice, n):
    return [Profile(dice.lognormvariate(3, 0.8), dice.lognormvariate(2, 0.8)) for _ in range(n)]


def sound(jobs, found, machines, least=None):
    members = [j for g in found.groups for j in g]
    assert len(members) == len(set(members))
    assert sum(found.machines) <= machines
    assert all(m >= 1 for m in found.machines)
    assert found.use == pytest.approx(use_of(jobs, found, machines), abs=1e-9)
    if least is not None:
        assert all(least[j] <= m for g, m in zip(found.groups, found.machines, strict=True) for j in g)


def test_groupings_are_near_the_best_there_is():
    dice = random.Random(5)
    ours, printed = [], []
    for _ in range(60):
        jobs, machines = some_jobs(dice, dice.randint(3, 7)), dice.randint(3, 6)
        best, found = exhaustive(jobs, machines), schedule(jobs, machines)
        sound(jobs, best, machines)
        sound(jobs, found, machines)
        ours.append(found.use / best.use)
        printed.append(as_printed(jobs, machines).use / best.use)
    assert sum(ours) / len(ours) >= 0.999
    assert min(ours) >= 0.99
    assert max(ours) <= 1 + 1e-9
    assert sum(printed) / len(printed) < 0.95


@pytest.mark.parametrize("n", [13, 80, 300])
def test_many_jobs_use_nearly_everything(n):
    jobs = [Profile(random.Random(n * 1000 + i).uniform(50, 500), 20.0) for i in range(n)]
    found = schedule(jobs, 50)
    sound(jobs, found, 50)
    assert sum(found.machines) == 50
    assert found.use >= 0.98


def test_no_job_gets_fewer_machines_than_it_needs():
    dice = random.Random(3)
    for n in (4, 9, 30):
        jobs, least = some_jobs(dice, n), [dice.randint(1, 12) for _ in range(n)]
        found = schedule(jobs, 20, least=least)
        sound(jobs, found, 20, least)
        assert found.groups


def test_whole_numbers_are_scheduled_as_others_are_and_nothing_is_compiled_for_them():
    schedule([Profile(40.0, 10.0), Profile(10.0, 40.0)], 4)
    compiled = len(search_kernel.compiled().group_jobs.signatures)
    assert schedule([Profile(40, 10), Profile(10, 40)], 4) == schedule([Profile(40.0, 10.0), Profile(10.0, 40.0)], 4)
    assert len(search_kernel.compiled().group_jobs.signatures) == compiled


def test_a_job_that_needs_more_than_there_is_waits():
    assert schedule([Profile(10, 1), Profile(10, 1)], 4, least=[5, 1]).groups == ((1,),)
    assert schedule([Profile(10, 1)], 4, least=[5]).groups == ()


def test_the_order_of_the_list_decides_which_job_runs_if_all_would_do():
    jobs = [Profile(100.0, 10.0)] * 40
    found = schedule(jobs, 20)
    chosen = {j for g in found.groups for j in g}
    assert chosen == set(range(len(chosen)))
    assert len(chosen) < 40


@pytest.mark.parametrize(
    "jobs",
    [
        [Profile(10.0, 0.0)] * 3,
        [Profile(0.0, 10.0)] * 3,
        [Profile(10.0, 0.0), Profile(0.0, 10.0)],
        [Profile(10.0, 1.0)],
        [Profile(10.0, 1.0)] * 20,
        [Profile(1.0, 1.0), Profile(100.0, 100.0), Profile(10_000.0, 100.0)],
        [Profile(0.0, 10.0)] * 20 + [Profile(10.0, 0.0)],
    ],
    ids=["no network", "no compute", "one of each", "one job", "alike", "a hundred times larger", "mostly network"],
)
@pytest.mark.parametrize("machines", [1, 2, 7])
def test_odd_jobs_get_a_sensible_grouping(jobs, machines):
    for found in (schedule(jobs, machines), as_printed(jobs, machines)):
        sound(jobs, found, machines)
        assert found.groups
    if len(jobs) <= 7:
        assert schedule(jobs, machines).use >= 0.99 * exhaustive(jobs, machines).use


def test_jobs_that_only_communicate_are_apart_where_links_have_a_price():
    network = [Profile(0.1, 10.0)] * 6
    assert len(schedule(network, 60).groups) < 6  # Equation 4 does not care whose link it is.
    assert len(schedule(network, 60, Terms(ResourceWeights(0.6, 0.4, price=10.0))).groups) == 6


def test_barriers_keep_a_job_that_only_communicates_off_machines_that_others_use():
    jobs = [Profile(0.1, 10.0), Profile(2000.0, 10.0)]
    found = schedule(jobs, 20, Terms(ResourceWeights(0.6, 0.4, price=10.0, barrier=0.1)))
    machines = dict(zip(found.groups, found.machines, strict=True))
    assert machines[(0,)] == 1
    assert machines[(1,)] == 19


BY_WORK = Terms(ResourceWeights(0.6, 0.4, price=4.0, own_part=1.0))


def test_groupings_are_near_the_best_where_machines_keep_a_part_of_the_model():
    dice, ours = random.Random(6), []
    for _ in range(60):
        jobs, machines = some_jobs(dice, dice.randint(3, 6)), dice.randint(3, 6)
        jobs = [replace(j, own_part=1.0) for j in jobs]
        best, found = exhaustive(jobs, machines, BY_WORK), schedule(jobs, machines, BY_WORK)
        assert found.use == pytest.approx(use_of(jobs, found, machines, BY_WORK.weights))
        ours.append(found.use / best.use)
    assert sum(ours) / len(ours) >= 0.9995
    assert min(ours) >= 0.995
    assert max(ours) <= 1 + 1e-9


@pytest.mark.parametrize(("comp_s", "on"), [(1.0, 2), (4.0, 2), (16.0, 4), (100.0, 8)])
def test_a_job_has_no_machines_that_make_it_slower(comp_s, on):
    """On m of them it takes comp_s/m + 2·(1 − 1/m): the more it computes, the more it can use."""
    found = schedule([Profile(comp_s, 2.0, own_part=1.0)], on, BY_WORK, least=[2])
    assert found.machines == (on if comp_s > 2.0 else 2,)


def test_what_a_group_is_worth_follows_from_what_its_machines_have_to_send():
    """COMP 4 on 2 machines, COMM 6 of which each sends half: a round takes 3 s, in which the work of all is done."""
    found = search_kernel.value_of(4.0, 6.0, 2.0, 2.0, BY_WORK.weights)
    assert found == pytest.approx((0.6 * 4.0 + 0.4 * 4.0 * 6.0) / 3.0)
    assert search_kernel.value_of(4.0, 6.0, 2.0, 2.0, ResourceWeights(0.6, 0.4)) == pytest.approx(
        (0.6 * 4.0 + 0.4 * 2.0 * 6.0) / 6.0
    )


@pytest.mark.parametrize("weights", [BY_WORK.weights, ResourceWeights(0.6, 0.4, 0.9, 4.0, 0.1, 0.5)])
def test_a_change_of_two_groups_gains_what_it_says(weights):
    dice, kernel, changes = random.Random(7), search_kernel.compiled(), set()
    for _ in range(300):
        n, machines = dice.randint(2, 8), dice.randint(2, 9)
        # Often one job sets the pace, of which all that is said hangs on its length.
        jobs = Jobs(
            *(np.array([dice.lognormvariate(1, 1.5) for _ in range(n)]) for _ in range(2)), np.ones(n, dtype=np.int64)
        )
        by_job = [np.full(n, -1, dtype=np.int64) for _ in range(3)]
        by_group = [np.zeros(2, dtype=np.int64 if i < 5 else np.float64) for i in range(8)]
        room = Groups(*by_job, *by_group, np.zeros(4, dtype=np.int64))
        kernel.group_jobs(jobs, np.arange(n), 2, machines, 0, 1, 1e9, False, room, weights)
        if not room.machines.all():
            continue
        before, found = room.value.sum(), kernel._pair(0, 1, jobs, room, weights, True)
        if found.kind >= 0:
            kernel._apply(0, 1, found, jobs, room, weights)
            assert room.value.sum() - before == pytest.approx(found.gain, abs=1e-8), found
            changes.add(found.kind)
    assert len(changes) >= 5  # Machines, jobs in both directions, swaps, and jobs that leave.


def test_the_exhaustive_search_refuses_what_would_take_for_ever():
    with pytest.raises(ValueError, match="8 jobs and 12 machines at most, not 9 and 4"):
        exhaustive([Profile(1.0, 1.0)] * 9, 4)


def test_nothing_to_group_gives_nothing():
    assert schedule([], 5).groups == ()
    assert as_printed([], 5).groups == ()
    assert exhaustive([], 5).groups == ()


def test_no_grouping_is_worth_more_than_all_machines_that_compute_and_all_links_that_are_busy():
    dice = random.Random(11)
    for n in (9, 30, 90):
        jobs, weights = some_jobs(dice, n), ResourceWeights(0.6, 0.4, link=0.9, price=3.0, barrier=0.02)
        found = schedule(jobs, 40, Terms(weights))
        assert found.groups
        assert found.use == pytest.approx(use_of(jobs, found, 40, weights), abs=1e-9)
        assert found.use <= 0.6 + 0.4 * 3.0 * len(found.groups) / 40 + 1e-9


def test_what_is_wanted_changes_only_answers_that_are_worth_less():
    dice = random.Random(12)
    refused = 0
    for _ in range(20):
        jobs, terms = some_jobs(dice, dice.randint(9, 40)), Terms(ResourceWeights(0.6, 0.4, price=3.0), fewer=0.05)
        best = schedule(jobs, 20, terms)
        assert schedule(jobs, 20, terms, wanted=0.98 * best.use) == best
        missed = schedule(jobs, 20, terms, wanted=1.2 * best.use)
        assert missed.use < 1.2 * best.use
        refused += missed.groups == ()
    assert refused  # A job that cannot be reached is not looked at.
