import random

import pytest
from msgspec.structs import replace

from hocket.executors.simulated import BeliefMode, simulate
from hocket.executors.simulated.beliefs import beliefs_of
from hocket.executors.simulated.memory import InputInMemory, pressed, settled
from hocket.executors.simulated.phases import Phases, foresee, interleave, stack
from hocket.executors.simulated.speed import Companion, overflows, own_speed, phases_of, play, takes_turns
from hocket.model.event import PhasesObserved
from hocket.model.job import Job, Kind
from hocket.model.partition import Holding, Sharing
from hocket.model.phases import Profile, predict
from hocket.model.resources import Demand, Node, Slice
from hocket.policies import find
from hocket.workloads.truth import Submission, Truth, Workload

HERE = (0,)


def test_complementary_jobs_interleave_without_loss():
    played = interleave((Phases(10.0, 5.0, HERE), Phases(5.0, 10.0, HERE)))
    assert played.iteration_s == pytest.approx((15.0, 15.0))
    assert played.cpu == pytest.approx(1.0)


def test_comm_is_shorter_on_fewer_machines_where_each_keeps_a_part_of_the_model():
    truth = Truth(100.0, 2, comp_s=4.0, comm_s=3.0, own_part=1.0)  # on two machines
    for size, comp_s, comm_s in ((1, 8.0, 0.3), (2, 4.0, 3.0), (4, 2.0, 4.5)):
        holding = Holding("p", tuple(Slice(f"n{i}") for i in range(size)), (1,) * size)
        assert phases_of(truth, holding, "") == pytest.approx((comp_s, comm_s))
        assert own_speed(truth, holding, "") == pytest.approx(7.0 / (comp_s + comm_s))
    submitted = Submission(0.0, Job("a", kind=Kind.PARAMETER_SERVER), truth)
    assert beliefs_of(submitted, BeliefMode("oracle"), 0).own_part == 1.0


def test_what_is_simulated_is_measured_as_on_those_machines():
    demand = Demand(cores=8.0, net_mbps=1000.0)
    job = Job("a", kind=Kind.PARAMETER_SERVER, demand=demand, sizes=(2, 3, 4))
    nodes = tuple(Node(f"m{i}", cores=8.0, mem_mib=1000.0, net_mbps=1000.0) for i in range(4))
    truth = Truth(100.0, 2, comp_s=4.0, comm_s=3.0, own_part=1.0)
    ran = simulate(
        Workload("one", (Submission(0.0, job, truth),), nodes=nodes), nodes, find("harmony").bound(),
        beliefs=BeliefMode("learned"),
    )  # fmt: skip
    seen = [e for cycle in ran.journal for e in cycle.events if isinstance(e, PhasesObserved)]
    assert {(e.own_part, e.machines, round(e.comm_s, 6)) for e in seen} <= {(1.0, 2, 3.0), (1.0, 3, 4.0), (1.0, 4, 4.5)}
    assert seen


def test_one_comp_runs_at_a_time():
    played = interleave((Phases(10.0, 1.0, HERE), Phases(10.0, 1.0, HERE)))
    assert played.iteration_s == pytest.approx((20.0, 20.0))


def test_a_secondary_comm_uses_what_the_primary_leaves_of_the_link():
    tenants = (Phases(0.1, 10.0, HERE), Phases(0.1, 10.0, HERE), Phases(0.1, 10.0, HERE))
    alone, shared = interleave(tenants, busy=1.0), interleave(tenants, busy=0.8)
    assert alone.round_s == pytest.approx(30.0, rel=0.02)
    assert shared.round_s == pytest.approx(24.0, rel=0.03)  # 0.8 of the link for each


def test_what_machines_need_to_meet_lengthens_a_job_alone_and_is_used_by_others():
    alone = Phases(1.0, 1.0, (0, 1), meeting_s=0.6)
    assert interleave((alone,)).round_s == pytest.approx(2.6)
    assert foresee([Profile(2.0, 1.0, meeting_s=0.6)], 2).round_s == pytest.approx(2.6)
    busy = tuple(Phases(1.0, 0.1, (0, 1), meeting_s=0.6) for _ in range(3))  # While one meets, another computes.
    assert interleave(busy).round_s == pytest.approx(3.0, rel=0.01)
    assert foresee([Profile(2.0, 0.1, meeting_s=0.6)] * 3, 2).round_s == pytest.approx(3.0, rel=0.01)


def test_a_comm_that_is_short_beside_the_primary_one_gives_no_way():
    # The long COMM takes 10 s either way, the other job computes for 2 s and communicates for 0.2 s in each iteration.
    long, computes = Phases(0.1, 20.0, HERE), Phases(2.0, 0.4, HERE)
    waits = interleave((long, computes), busy=1.0)
    assert waits.iteration_s[1] == pytest.approx(20.1, rel=0.02)  # Each PULL and each PUSH waits for a whole one.
    shares = interleave(tuple(replace(t, short=0.25) for t in (long, computes)), busy=1.0)
    # Both get half of the link meanwhile: its iteration takes 2 + 2 · 0.4 s, and each COMM costs the other one 0.2 s.
    assert shares.iteration_s[1] == pytest.approx(2.8, rel=0.01)
    # The long job: PUSH with 9 such COMMs, PULL with 8, 1.4 s until the processor is free, COMP, and the end of a COMM.
    assert shares.iteration_s[0] == pytest.approx(11.8 + 11.6 + 1.4 + 0.1 + 0.1, rel=0.01)
    gaps = interleave(tuple(replace(t, short=0.25) for t in (long, computes)), busy=0.5)
    # What the long one leaves is enough for it, which still waits for the processor once in an iteration.
    assert gaps.iteration_s == pytest.approx((21.6, 2.4), rel=0.01)
    profiles = [Profile(t.comp_s, t.comm_s, link=1.0) for t in (long, computes)]
    assert foresee(profiles, 1).round_s == pytest.approx(20.1, rel=0.02)
    assert foresee(profiles, 1, short=0.25).round_s == pytest.approx(25.0, rel=0.02)


def test_a_comm_that_is_longer_than_a_quarter_of_the_primary_one_gives_way():
    tenants = (Phases(0.1, 20.0, HERE, short=0.25), Phases(2.0, 5.2, HERE, short=0.25))
    in_order = tuple(replace(t, short=0.0) for t in tenants)
    assert interleave(tenants, busy=1.0) == interleave(in_order, busy=1.0)


def test_the_prediction_is_equation_1_where_no_job_waits():
    jobs = [Profile(100.0, 5.0), Profile(50.0, 10.0)]
    assert foresee(jobs, 10).round_s == pytest.approx(predict(jobs, 10).iteration_s.mean)
    assert foresee(jobs[:1], 10).round_s == pytest.approx(15.0)


def test_queueing_behind_others_is_predicted():
    jobs = [Profile(250.0, 6.0), Profile(1.0, 13.0), Profile(1.0, 13.0)]
    assert predict(jobs, 10).iteration_s.mean == pytest.approx(32.0)
    assert foresee(jobs, 10).round_s > 35


def test_phases_that_vary_do_not_fit_into_each_others_gaps():
    phases = [(1.25, 0.22), (0.15, 0.41), (0.1, 0.84)]
    steady = [Profile(comp_s, comm_s) for comp_s, comm_s in phases]
    varying = [Profile(comp_s, comm_s, 0.05 * comp_s, 0.1 * comm_s) for comp_s, comm_s in phases]
    fitting_s = foresee(steady, 1).round_s
    assert 1.04 * fitting_s < foresee(varying, 1).round_s < 1.2 * fitting_s
    assert foresee(varying, 1) == foresee(varying, 1)


@pytest.mark.parametrize("sd", [0.05, 0.1, 5.0])
def test_a_job_alone_takes_its_mean_however_it_varies(sd):
    alone = [Profile(1.0, 0.9, comp_sd=sd, comm_sd=sd)]
    assert foresee(alone, 1).round_s == pytest.approx(1.9, rel=0.02)


def test_a_second_comm_uses_what_the_first_leaves_of_the_link():
    jobs = [Profile(0.1, 10.0, link=0.8)] * 3
    assert foresee(jobs, 1).round_s == pytest.approx(24.0, rel=0.03)
    assert foresee(jobs, 1).net == pytest.approx(1.0, rel=0.03)


def test_jobs_a_thousand_times_shorter_are_foreseen_too():
    assert foresee([Profile(1e5, 1.0), Profile(1e-3, 1e-3)], 2).round_s >= 5e4


def test_a_short_comp_need_not_wait_for_long_ones_under_an_agent():
    tenants = (Phases(1.0, 0.3, HERE), Phases(1.0, 0.3, HERE), Phases(0.1, 0.4, HERE))
    in_order = interleave(tenants, busy=1.0)
    agents = interleave(tuple(replace(t, short=0.01) for t in tenants), busy=1.0)
    assert in_order.iteration_s == pytest.approx((2.1, 2.1, 2.1), rel=0.01)  # It waits for both in each iteration.
    assert agents.iteration_s[2] < 1.3
    assert max(agents.iteration_s[:2]) < 2.25  # Both wait for it twice in their turns.


def test_a_long_comp_is_not_overtaken_for_ever_under_an_agent():
    short = [Phases(0.1, 0.02, HERE, short=0.01)] * 4  # They keep the processor busy.
    played = interleave((*short, Phases(1.0, 0.02, HERE, short=0.01)), busy=1.0)
    assert played.iteration_s[4] < 5.0


def test_profiles_are_played_as_they_vary_from_one_phase_to_the_next():
    """What was observed are means of three iterations; a COMM is two phases."""
    profiles = [Profile(2.0, 0.5, 0.2, 0.05, link=0.9, meeting_s=0.03), Profile(0.2, 1.0, 5.0, 5.0, link=0.9)]
    tenants = (
        Phases(1.0, 0.5, HERE, meeting_s=0.03, short=0.3, comp_varies=3**0.5 * 0.1, comm_varies=6**0.5 * 0.1),
        Phases(0.1, 1.0, HERE, short=0.3, comp_varies=0.4, comm_varies=0.4),  # More is a change.
    )
    assert foresee(profiles, 2, short=0.3).iteration_s == pytest.approx(interleave(tenants, busy=0.9).iteration_s)


def test_uncoordinated_jobs_get_in_each_others_way():
    tenants = (Phases(10.0, 5.0, HERE), Phases(5.0, 10.0, HERE))
    assert stack(tenants).round_s > 1.3 * interleave(tenants).round_s
    assert stack(tenants[:1]).iteration_s == pytest.approx((15.0,))


def test_barriers_make_stragglers_cost_more_on_more_machines():
    few, many = (interleave((Phases(10.0, 5.0, tuple(range(m))),), noise=0.1, seed=1) for m in (1, 32))
    assert many.round_s > 1.1 * few.round_s
    assert interleave((Phases(10.0, 5.0, tuple(range(32))),)).round_s == pytest.approx(15.0)


def test_a_tenant_on_some_of_the_machines_slows_only_those():
    wide, narrow = Phases(10.0, 1.0, (0, 1)), Phases(10.0, 1.0, (1,))
    played = interleave((wide, narrow))
    assert played.round_s == pytest.approx(20.0)  # The barrier waits for the shared machine.
    assert played.cpu == pytest.approx(0.75)


def test_the_same_seed_plays_the_same():
    tenants = (Phases(3.0, 2.0, (0, 1, 2)), Phases(2.0, 3.0, (0, 1, 2)))
    assert interleave(tenants, 0.1, 7) == interleave(tenants, 0.1, 7)
    assert interleave(tenants, 0.1, 7) != interleave(tenants, 0.1, 8)


def _groups(count):
    dice = random.Random("phases")
    for _ in range(count):
        machines = tuple(range(dice.randint(1, 12)))
        yield tuple(
            Phases(dice.lognormvariate(3, 0.5), dice.lognormvariate(3, 0.5), machines)
            for _ in range(dice.randint(2, 6))
        )


def test_a_short_play_agrees_with_a_long_one_within_a_percent():
    for tenants in _groups(40):
        short, long = interleave(tenants), interleave(tenants, iterations=500)
        assert short.iteration_s == pytest.approx(long.iteration_s, rel=0.01)


def test_it_is_not_the_formula_and_yet_near_it():
    off = []
    for tenants in _groups(40):
        m = len(tenants[0].machines)
        predicted = predict([Profile(t.comp_s * m, t.comm_s) for t in tenants], m).iteration_s.mean
        off.append(interleave(tenants).round_s / predicted - 1)
    assert max(map(abs, off)) > 0.01
    assert sum(map(abs, off)) / len(off) < 0.1


def test_full_memory_slows_and_overfull_memory_breaks():
    tenants, kept = [Phases(10.0, 5.0, HERE)] * 2, [InputInMemory(9_000.0, 1_000.0)] * 2
    roomy, tight = pressed(tenants, kept, [0, 0], 100_000), pressed(tenants, kept, [0, 0], 22_000)
    assert roomy is not None
    assert tight is not None
    assert tight[0].comp_s > 1.2 * roomy[0].comp_s
    assert pressed(tenants, kept, [0, 0], 20_000) is None


def test_spilling_relieves_memory_at_the_price_of_reading_again():
    tenants, kept = [Phases(10.0, 5.0, HERE)] * 2, [InputInMemory(9_000.0, 1_000.0)] * 2
    spilled = pressed(tenants, kept, [0.5, 0.5], 20_000)
    assert spilled is not None
    assert spilled[0].reload_s > 0
    assert pressed(tenants, kept, [1, 1], 1_000) is not None  # Models follow when all input is on disk.


def test_what_is_spilled_costs_what_an_iteration_reads_of_it():
    tenants = [Phases(10.0, 5.0, HERE)]
    whole, part = (pressed(tenants, [InputInMemory(9_000.0, 0.0, read)], [1.0], 20_000) for read in (1.0, 0.1))
    assert whole is not None
    assert part is not None
    assert part[0].reload_s == pytest.approx(whole[0].reload_s / 10)


def test_a_job_alone_waits_for_its_slowest_machine_and_full_memory_too():
    truth = Truth(100.0, 8, comp_s=10.0, comm_s=5.0, input_mib=80_000.0)
    slices = tuple(Node(f"n{i}", cores=8.0, mem_mib=12_000.0).whole() for i in range(8))
    here = [Companion(Demand(), truth, Holding("p", slices, (1,) * 8), "")]
    assert takes_turns(Sharing.ALONE, truth)
    calm, noisy = (play(here, Sharing.ALONE, noise, 0) for noise in (0.0, 0.1))
    assert calm.round_s > 15.5  # It collects garbage.
    assert noisy.round_s > 1.05 * calm.round_s
    assert noisy.slowest[0] > 1.05
    assert not takes_turns(Sharing.ALONE, Truth(100.0, comp_s=10.0, comm_s=5.0))


def test_jobs_that_cannot_spill_run_out_of_memory_though_they_take_turns():
    slices = (Node("n", cores=8.0, mem_mib=12_000.0).whole(),)

    def two(spills):
        truth = Truth(100.0, comp_s=10.0, comm_s=5.0, input_mib=8_000.0, spills=spills)
        return [Companion(Demand(), truth, Holding("p", slices, (1,)), "")] * 2

    assert overflows(two(spills=False), Sharing.INTERLEAVED)
    assert not overflows(two(spills=True), Sharing.INTERLEAVED)


def test_alphas_of_their_own_are_no_worse_than_the_best_for_all():
    tenants = [Phases(40.0, 5.0, HERE), Phases(10.0, 20.0, HERE), Phases(20.0, 20.0, HERE)]
    kept = [InputInMemory(4_000.0, 500.0), InputInMemory(14_000.0, 1_000.0), InputInMemory(20_000.0, 2_000.0)]

    def round_s(alphas):
        now = pressed(tenants, kept, alphas, 32_000)
        return interleave(now).round_s if now is not None else float("inf")

    fixed = min(round_s([n / 20] * 3) for n in range(21))
    now, alphas = settled(tenants, kept, 32_000, interleave)
    assert interleave(now).round_s <= 1.02 * fixed
    assert len(set(alphas)) > 1
