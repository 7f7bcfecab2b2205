"""What `benchmarks.paramserver.groups` reads from journals: groups, their rounds, the best possible, and a replay."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from benchmarks.paramserver import regroup
from benchmarks.paramserver.groups import balance, comparison, job_mix, replay
from benchmarks.paramserver.groups.job_mix import RunFailed
from benchmarks.paramserver.groups.policy_run import JobTimes, PolicyRun, UseSample, job_times
from benchmarks.paramserver.groups.recorded_groups import recorded_groups
from benchmarks.paramserver.groups.round_prediction import RoundErrors, round_errors

from hocket.control.ports import Cycle
from hocket.model.event import EpochEnded, Event, JobEnded, JobStarted, JobSubmitted, PhasesObserved
from hocket.model.job import Job, Kind
from hocket.model.partition import Partition, Sharing, Tenant
from hocket.model.plan import Plan
from hocket.model.resources import Slice

_COMPUTES, _COMMUNICATES = "lda-comp", "lasso-comm"


def cycle(at_s: float, *events: Event, plan: Plan | None = None) -> Cycle:
    return Cycle(at_s, events, plan)


def a_run(round_s: float = 1.0) -> list[Cycle]:
    """Two jobs in a group of two hosts, which iterate once in each round; the first ends, the other goes on alone."""
    jobs = (_COMPUTES, _COMMUNICATES)
    tenants = tuple(Tenant(job, (1, 1)) for job in jobs)
    group = Partition("g", (Slice("n0"), Slice("n1")), tenants, Sharing.INTERLEAVED)
    found = [
        cycle(0.0, *(JobSubmitted(0.0, Job(job, kind=Kind.PARAMETER_SERVER)) for job in jobs), plan=Plan(put=(group,))),
        cycle(1.0, *(JobStarted(1.0, job) for job in jobs)),
        # Before it was a group, phases were believed to be a tenth longer.
        cycle(2.0, PhasesObserved(2.0, jobs[0], 2, 0.99, 0.11, 3), PhasesObserved(2.0, jobs[1], 2, 0.11, 0.55, 3)),
    ]
    for iteration in range(1, 21):
        at_s = 9.0 + iteration * round_s
        events: list[Event] = [EpochEnded(at_s, job, iteration, {}) for job in jobs]
        if iteration % 5 == 0:
            events += [
                PhasesObserved(at_s, jobs[0], 2, 0.9, 0.1, 5), PhasesObserved(at_s, jobs[1], 2, 0.1, 0.5, 5)
            ]  # fmt: skip
        found.append(cycle(at_s, *events))
    end_s = 9.0 + 20 * round_s
    found.append(cycle(end_s + 0.5, JobEnded(end_s + 0.5, jobs[0])))
    alone = [cycle(end_s + 0.6 * i, EpochEnded(end_s + 0.6 * i, jobs[1], 20 + i, {})) for i in range(1, 12)]
    return [*found, *alone, cycle(end_s + 7, JobEnded(end_s + 7, jobs[1]))]


def test_a_group_is_measured_from_when_all_its_jobs_iterate_until_one_is_over() -> None:
    (group,) = recorded_groups(a_run())  # Of the job alone, no phases were reported.
    assert (group.since_s, group.until_s, group.nodes) == (10.0, 29.0, ("n0", "n1"))
    assert [tenant.iterations for tenant in group.tenants] == [19, 19]
    assert group.round_s == pytest.approx(1.0)
    errors = round_errors([group])
    assert errors.meanwhile == [pytest.approx(0.0, abs=0.02)]
    assert errors.before == [pytest.approx(0.1, abs=0.02)]
    assert replay.play_group(group).round_s == pytest.approx(1.0, abs=0.02)


def test_a_group_that_is_slower_than_its_phases_say_is_shown_so() -> None:
    (group,) = recorded_groups(a_run(round_s=1.25))
    assert round_errors([group]).meanwhile == [pytest.approx(-0.2, abs=0.02)]


def test_the_best_possible_is_what_the_busier_resource_has_to_do() -> None:
    best_s, busier = comparison.least_makespan_s(a_run(), 1.0)
    iterations = {job.name: job.iterations(1.0) for job in job_mix.JOBS}
    comp_s = sum(2 * seen * iterations[name] for name, seen in ((_COMPUTES, 0.918), (_COMMUNICATES, 0.102)))
    assert (best_s, busier) == (pytest.approx(comp_s / job_mix.HOSTS), "CPU")


def test_runs_are_compared_by_their_jobs_ends(tmp_path: Path) -> None:
    times = job_times(a_run())
    assert times[0] == JobTimes(_COMPUTES, 1.0, 29.5, 10.0, 1, "finished")
    run = PolicyRun("harmony", 1.0, 25.0, times, [UseSample(0.5 * i, 0.8, 0.4) for i in range(80)], "")
    assert (run.mean_jct_s, run.makespan_s) == (32.75, 36.0)
    found = comparison.Compared(1.0, [run], 20.0, "CPU", RoundErrors([0.01], [0.02], [0.03]))
    shown = "\n".join(comparison.text(found))
    assert "harmony" in shown
    assert "33" in shown
    assert "the best possible makespan, start-up apart: 20 s, by the CPU" in shown
    assert [path.name for path in comparison.draw(found, tmp_path)] == ["groups-use.png", "groups-use.svg"]


def test_policies_are_compared_repetition_by_repetition() -> None:
    def run(policy: str, number: int, makespan_s: float) -> PolicyRun:
        times = [JobTimes(_COMPUTES, 0.0, makespan_s, 1.0, 1, "finished")]
        return PolicyRun(policy, 1.0, 25.0, times, [UseSample(1.0, 0.8, 0.4)], f"{policy}-{number}.journal")

    runs = [run("harmony", 3, 90.0)]  # has no other
    for number, slow in enumerate((1.0, 2.0), 1):
        runs += [run("isolated", number, 120.0 * slow), run("harmony", number, 100.0 * slow)]
    found = comparison.Compared(1.0, runs, 20.0, "CPU", RoundErrors([0.01], [0.02], [0.03]))
    (line,) = [line for line in comparison.text(found) if "against isolated" in line]
    assert "makespan 1.38 times faster (intervals overlap), by repetition 1.20 ± 0.00" in line


def used(share: float, cpu: float, net: float, makespan_s: float) -> PolicyRun:
    """A run in which hosts used so much of their CPU and links all the time."""
    times = [JobTimes("lda-comp", 0.0, makespan_s, 1.0, 1, "finished")]
    seconds = range(1, round(makespan_s) + 1)
    return PolicyRun("isolated", share, 50.0, times, [UseSample(float(s), cpu, net) for s in seconds], "")


def test_links_balance_when_jobs_need_them_for_as_long_as_the_cpu() -> None:
    # 20 s more took 10 s more of all CPUs and 4 s more of all links, for a half of the epochs more.
    found = balance.balanced(used(0.5, 0.5, 0.2, 30.0), used(1.0, 0.5, 0.2, 50.0))
    assert found.mbit == 20.0
    assert found.start_s == pytest.approx(10.0)
    # Of the 40 s for all epochs, jobs compute for ten parts of 14, and then communicate for as long.
    assert found.epochs_s == pytest.approx(40.0 * 20 / 14)
    assert found.seconds(found.share(100.0)) == pytest.approx(100.0)
    with pytest.raises(RunFailed, match="needs 10 s to start jobs alone"):
        found.share(9.0)


def test_a_balance_that_was_not_measured_is_refused() -> None:
    with pytest.raises(RunFailed, match=r"used 0\.00 s more of all CPUs .* give --mbit and --length"):
        balance.balanced(used(0.5, 0.0, 0.2, 30.0), used(1.0, 0.0, 0.2, 50.0))


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The runs that were made, which take no time; those of `naive` fail."""
    made: list[str] = []

    def run_policy(
        policy: str, _jobs: object, share: float, mbit: float, shape: job_mix.HostShape, _data: Path, out: Path,
        seed: int, _tell: object,
    ) -> PolicyRun:  # fmt: skip
        made.append(f"{policy}-{seed}")
        if policy == "naive":
            raise RunFailed("naive: a job failed")
        (out / f"{policy}-{seed}.journal").touch()
        return PolicyRun(policy, share, mbit, job_times(a_run()), [], f"{policy}-{seed}.journal", shape)

    monkeypatch.setattr(comparison, "run_policy", run_policy)
    for name in ("make_data", "compile_kernels"):
        monkeypatch.setattr(comparison, name, lambda _folder: None)
    return made


def test_what_has_run_is_not_run_again_unless_it_was_another_length(ran: list[str], tmp_path: Path) -> None:
    def wanted(share: float) -> comparison.Wanted:
        return comparison.Wanted(["isolated", "harmony"], 2, job_mix.HostShape(3.0, 3), share, mbit=100.0)

    assert comparison.run_all(wanted(1.0), tmp_path, tmp_path) == []
    assert ran == ["isolated-1", "harmony-1", "isolated-2", "harmony-2"]
    (tmp_path / "harmony-1.json").write_bytes(b"{")  # It was killed while it wrote.
    (tmp_path / "isolated-2.journal").unlink()
    ran.clear()
    comparison.run_all(wanted(1.0), tmp_path, tmp_path)
    assert ran == ["harmony-1", "isolated-2"]
    ran.clear()
    comparison.run_all(wanted(2.0), tmp_path, tmp_path)
    assert len(ran) == 4


def test_a_run_that_fails_keeps_no_other_from_being_made(ran: list[str], tmp_path: Path) -> None:
    shape = job_mix.HostShape()
    wanted = comparison.Wanted(["naive", "harmony"], 1, shape, 1.0, mbit=100.0)
    assert comparison.run_all(wanted, tmp_path, tmp_path) == ["naive: a job failed"]
    assert ran == ["naive-1", "harmony-1"]


def test_no_run_begins_that_might_not_end_in_time(ran: list[str], tmp_path: Path) -> None:
    (tmp_path / "balance").write_bytes(msgspec.json.encode(balance.Balance(job_mix.HostShape(), 100.0, 10.0, 50.0)))
    wanted = comparison.Wanted(["harmony"], 3, job_mix.HostShape(), seconds=60.0, within_s=60.0)
    (said,) = comparison.run_all(wanted, tmp_path, tmp_path)
    assert said.startswith("stopped before harmony-1: it might not end in time")
    assert ran == []


def test_a_move_is_found_between_two_attempts(tmp_path: Path) -> None:
    written = {name: tmp_path / name for name in ("moved", "stays-0", "stays-1")}
    moved = [(1, 100.0 + 0.1 * i) for i in range(50)] + [(2, 106.5 + 0.1 * i) for i in range(50)]
    written["moved"].write_text("".join(f"{attempt} {n} {at_s}\n" for n, (attempt, at_s) in enumerate(moved)))
    for name in ("stays-0", "stays-1"):
        # Iterations take 0.1 s before the move and 0.2 s after it, and one of them 0.25 s.
        ends_s = [90 + 0.1 * n for n in range(150)] + [105.15 + 0.2 * n for n in range(50)]
        written[name].write_text("".join(f"1 {n} {at_s}\n" for n, at_s in enumerate(ends_s)))
    (move,) = regroup._found(written)
    assert move["stood_still_s"] == pytest.approx(1.5)
    assert move["lost_s"] == pytest.approx(0.05, abs=0.001)
    assert move["lost_iterations"] == pytest.approx(0.25, abs=0.01)
    assert move["lost_without"] == pytest.approx(0.0, abs=0.01)
    shown = "\n".join(regroup.text({"mb": 100, "companions": [{"comp_s": 0.05, "moves": [move]}]}))
    assert "companions compute 0.05 s, 1 moves" in shown
    assert "1.50" in shown
