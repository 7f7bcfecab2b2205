"""MLFS's evaluation on small cases: not what it shows, but that it is what it says."""

import pytest
from msgspec.structs import replace

from hocket.control.journal import MemoryJournal
from hocket.control.ports import Cycle, Header
from hocket.executors.simulated import BeliefMode, simulate
from hocket.model.event import EpochEnded, JobEnded, JobPaused, JobStarted, JobSubmitted
from hocket.model.job import Edge, Task, TaskGraph
from hocket.model.partition import Partition, Sharing, Tenant
from hocket.model.plan import Plan
from hocket.model.resources import Demand, Slice
from hocket.policies import find as find_policy
from hocket.policies.mlfs.weights_file import SHIPPED
from hocket.reports.account import account
from hocket.reports.mlfs_run import RunStatistics, dealt
from hocket.reports.summary import summarise
from hocket.reproductions import Case, Request, find
from hocket.reproductions.results_file import digest_of_file
from hocket.testing.builders import job
from hocket.workloads.mlfs import as_whole, mlfs_workload
from hocket_reproductions.mlfs.evaluation import APPROACHES, JOBS, SCHEDULERS, WITHOUT
from hocket_reproductions.mlfs.findings import is_better, order
from hocket_reproductions.mlfs.paper_values import CONTRIBUTIONS, METRICS, RATIOS

MLFS = find("mlfs")
PHILLY = "job_idx,submit_s,num_gpus,wall_run_s,vc\n" + "".join(
    f"{n},{n * 60},{1 << n % 4},{600 + 60 * n},a\n" for n in range(12)
)


def silent(_n):
    pass


@pytest.fixture(scope="module")
def trace(tmp_path_factory):
    path = tmp_path_factory.mktemp("trace") / "philly.csv"
    path.write_text(PHILLY)
    return str(path)


@pytest.fixture(scope="module")
def results(trace):
    found = []
    for seed in (0, 1):
        for label in APPROACHES:
            for jobs in (12, 20):
                case = Case(label, seed, {"jobs": jobs})
                found.append((case, MLFS.run(case, silent, silent)))
    for label in SCHEDULERS:
        case = Case(label, 0, {"trace": trace, "k": 0.5})
        found.append((case, MLFS.run(case, silent, silent)))
    for label in ("mlf_h", "las"):
        case = Case(label, 0, {"trace": trace, "k": 2.0})
        found.append((case, MLFS.run(case, silent, silent)))
    return found


def test_every_approach_is_run_with_every_number_of_jobs_for_every_seed():
    cases = MLFS.cases(Request((0, 1)))
    assert len(cases) == 2 * len(JOBS) * len(APPROACHES)
    assert JOBS == (155, 310, 620, 1240, 1860)


def test_the_trace_is_run_once_by_all_schedulers_and_at_its_multiples_by_two(trace):
    cases = [c for c in MLFS.cases(Request((0, 1), trace=trace)) if "k" in c.settings]
    assert {c.seed for c in cases} == {0}
    for k in (0.5, 1.0):
        assert [c.label for c in cases if c.settings["k"] == k] == list(SCHEDULERS)
    for k in (2.0, 4.0):
        assert [c.label for c in cases if c.settings["k"] == k] == ["mlf_h", "las"]


def test_results_with_other_weights_are_not_taken():
    rests_on = {c.label: c.rests_on for c in MLFS.cases(Request((0,)))}
    for label, policy in (("mlf_rl", "mlf_rl"), ("mlfs_rl", "mlf_rl"), ("rl", "rl")):
        assert rests_on[label]["weights_sha256"] == digest_of_file(SHIPPED[policy])
    assert {label for label, on in rests_on.items() if "weights_sha256" in on} == {"mlf_rl", "mlfs_rl", "rl"}


def test_a_case_names_all_knobs_of_its_approach(monkeypatch):
    before = {c.label: c for c in MLFS.cases(Request((0,)))}
    inner = before["mlfs_c"].rests_on["params"]["inner_params"]
    assert inner == before["mlf_h"].rests_on["params"]
    assert inner["h_r"] == 0.9
    monkeypatch.setitem(APPROACHES, "mlf_h", replace(APPROACHES["mlf_h"], params={"h_r": 0.8}))
    after = {c.label: c for c in MLFS.cases(Request((0,)))}
    assert [label for label in before if before[label] != after[label]] == ["mlf_h"]


def test_a_trace_that_cannot_be_read_is_refused_before_anything_runs(tmp_path):
    path = tmp_path / "none.csv"
    path.write_text("a,b\n1,2\n")
    with pytest.raises(ValueError, match=r"none\.csv"):
        MLFS.cases(Request((0,), trace=str(path)))


@pytest.mark.parametrize("label", ["mlf_h", "mlfs_c", "tiresias"])
def test_the_listener_hears_what_the_account_of_the_journal_says(label):
    approach = APPROACHES[label]
    workload = mlfs_workload(30, 7200.0, 3600.0, 1.0, seed=3)
    graphs = {s.job.id: s.job.tasks for s in workload.submissions}
    uses = {s.job.id: s.truth.gpu_use for s in workload.submissions}
    if approach.whole:
        workload = replace(workload, submissions=tuple(map(as_whole, workload.submissions)))
    policy = find_policy(approach.policy).bound(approach.params)
    header = Header(policy.policy.name, policy.settings, workload.nodes, 3, workload.name)
    journal, listener = MemoryJournal(header), RunStatistics(header, graphs, uses)
    simulate(workload, workload.nodes, policy, seed=3, beliefs=BeliefMode("noisy", 0.11), journal=journal)
    for cycle in journal:
        listener.append(cycle)
    accounted = account(header, journal)
    played, told = listener.played(), summarise(accounted)
    assert played.jobs == told.jobs == 30
    assert played.unfinished == told.unfinished == 0
    assert played.makespan_s == pytest.approx(told.makespan_s)
    assert played.jct_mean_s == pytest.approx(told.jct_mean_s)
    starting_s = sum(11.0 * r.starts for r in accounted.jobs) / 30  # The account counts it as held, at most.
    assert told.wait_mean_s - 1e-6 <= played.waited_s <= told.wait_mean_s + starting_s
    assert played.deadlines == pytest.approx(told.deadlines_met)
    assert played.goals / 30 == pytest.approx(told.accuracies_met)
    assert played.stopped == sum(n for v, n in told.verdicts.items() if v not in ("finished", "failed"))
    assert played.jct_s[100] == pytest.approx(told.jct_p50_s, abs=1e-3)


GRAPH = TaskGraph(
    tuple(Task(name, Demand(1, gpu_share=0.6)) for name in ("r0p0", "r0p1", "ps")),
    (Edge("r0p0", "r0p1", 1024.0), Edge("r0p1", "ps", 512.0)),
)


def on(gpu, *tenants):
    part = Slice(gpu.partition("/")[0], (int(gpu[-1]),))
    return Partition(gpu, (part,), tuple(Tenant(j, (1,), t) for j, t in tenants), Sharing.STACKED)


def heard(*cycles, use=1.0):
    listener = RunStatistics(Header("mlf_h"), {"j": GRAPH, "k": GRAPH}, {"j": use, "k": use})
    for cycle in cycles:
        listener.append(cycle)
    return listener.played()


COMES = JobSubmitted(0.0, job("j", tasks=GRAPH, deadline_s=100.0))


def test_data_count_once_an_epoch_where_tasks_are_on_different_servers():
    apart = Plan(put=(on("a/0", ("j", "r0p0")), on("a/1", ("j", "r0p1")), on("b/0", ("j", "ps"))))
    epoch = Cycle(5.0, (EpochEnded(5.0, "j", 1, {}),))
    assert heard(Cycle(0.0, (COMES,), apart), epoch, epoch).sent_tib == pytest.approx(2 * 512 / 1024**2)
    moved = Cycle(6.0, (), Plan(put=(on("b/1", ("j", "r0p1")),), drop=("a/1",)))
    assert heard(Cycle(0.0, (COMES,), apart), moved, epoch).sent_tib == pytest.approx(1024 / 1024**2)
    refused = Cycle(6.0, (), moved.plan, ("no",))
    assert heard(Cycle(0.0, (COMES,), apart), refused, epoch).sent_tib == pytest.approx(512 / 1024**2)


def test_a_job_in_one_piece_has_its_parts_in_order_and_its_server_beside_the_last():
    partition = Partition("j", (Slice("a", (0,)), Slice("b", (1,))), (Tenant("j", (1, 1)),))
    assert dealt(GRAPH, partition, (1, 1)) == {"r0p0": "a", "r0p1": "b", "ps": "b"}


def test_a_server_is_overloaded_each_time_several_tasks_take_more_than_the_limit():
    both = Cycle(1.0, (), Plan(put=(on("a/0", ("j", "r0p0"), ("k", "r0p0")),)))
    one = Cycle(2.0, (), Plan(put=(on("a/0", ("j", "r0p0")),)))
    more = Cycle(1.5, (), Plan(put=(on("a/1", ("j", "r0p1"), ("k", "r0p1")),)))
    came = Cycle(0.0, (COMES, JobSubmitted(0.0, job("k", tasks=GRAPH))))
    assert heard(came, both, more).overloads == 1
    assert heard(came, both, one, both).overloads == 2
    ends = Cycle(2.0, (JobEnded(2.0, "k"), came.events[1]))
    assert heard(came, both, ends, both).overloads == 2
    assert heard(came, both, use=0.7).overloads == 0


def test_a_job_waits_while_none_of_its_tasks_runs():
    events = [
        JobStarted(10.0, "j", "r0p0"),
        JobStarted(12.0, "j", "ps"),
        JobPaused(20.0, "j", "r0p0"),
        JobPaused(30.0, "j", "ps"),
        JobStarted(37.0, "j", "ps"),
        JobEnded(40.0, "j"),
    ]
    played = heard(Cycle(0.0, (COMES,)), *(Cycle(e.at_s, (e,)) for e in events))
    assert played.waited_s == 17.0
    assert played.deadlines == 1.0


def test_accuracy_is_the_best_by_the_deadline():
    from hocket.model.criterion import Goal

    wants = JobSubmitted(0.0, job("j", tasks=GRAPH, deadline_s=100.0, target=Goal("acc", ">=", 0.8)))
    reports = [EpochEnded(t, "j", n, {"acc": a}) for n, (t, a) in enumerate([(10, 0.7), (20, 0.6), (150, 0.9)], 1)]
    played = heard(Cycle(0.0, (wants,)), *(Cycle(e.at_s, (e,)) for e in reports), Cycle(200.0, (JobEnded(200.0, "j"),)))
    assert (played.accuracy, played.accuracies, played.goals, played.deadlines) == (0.7, 0.0, 1, 0.0)


@pytest.mark.long
def test_all_jobs_end_and_only_load_control_stops_any(results):
    for case, played in results:
        assert not played.unfinished
        assert bool(played.stopped) == (case.label in ("mlfs_rl", "mlfs_c")) or "k" in case.settings
        assert played.goals == played.jobs


@pytest.mark.long
def test_the_same_case_gives_the_same_result_but_for_times(results):
    case, played = results[0]
    again = MLFS.run(case, silent, silent)
    same = {"decision_ms": 0.0, "cpu_s": 0.0, "peak_mib": 0.0}
    assert replace(again, **same) == replace(played, **same)


@pytest.mark.long
def test_every_figure_of_the_paper_has_one_of_ours(results, trace):
    found = MLFS.findings(Request((0, 1), trace=trace), results)
    groups = {f.group.split(",")[0].split("(")[0] for f in found.findings}
    assert {"Figure 4", "Figure 5", "Figure 6", "Figure 7", "Figure 8", "Figure 9"} <= groups
    said = {f.what: f for f in found.findings}
    assert all(part.what in said for part in CONTRIBUTIONS)
    assert all(f"{r.ours} against {r.other}, {r.metric}" in said for r in RATIOS)
    for metric in METRICS:
        assert said[metric.name].remark.startswith("ours: ")
        assert any(f"Figure 4, {metric.name}, " in r for r in found.remarks)
    with_control = said["goals reached with load control less those without, 20 jobs"]
    assert with_control.ours.mean == 0.0


@pytest.mark.long
def test_beside_the_trace_stands_what_the_paper_simulated(results, trace):
    found = MLFS.findings(Request((0, 1), trace=trace), results).findings
    for where, field in (("80 GPUs", "paper"), ("the trace", "simulated")):
        said = {f.what: f for f in found if f.group.startswith(f"How much more or less, {where}, ")}
        assert len(said) == len(RATIOS)
        for ratio in RATIOS:
            assert said[f"{ratio.ours} against {ratio.other}, {ratio.metric}"].paper == getattr(ratio, field)
    told = {(r.other, r.metric): r.simulated for r in RATIOS if r.ours == "mlfs_rl"}
    assert told["tiresias", "mean JCT"] == "−30 %"
    assert told["tiresias", "makespan"] == "−17 %"


@pytest.mark.long
def test_figures_like_the_papers_are_drawn(results, trace, tmp_path):
    files = MLFS.draw(Request((0, 1), trace=trace), results, tmp_path)
    assert {f.name.split("-")[1].split(".")[0] for f in files} == {"4", "5", "6", "7", "8", "9"}
    assert all(f.stat().st_size > 1000 for f in files)


@pytest.mark.long
def test_schedulers_that_chance_may_order_are_about_equal(results):
    metric = next(m for m in METRICS if m.name == "mean JCT")
    played = results[0][1]
    fast, slow = (replace(played, jct_mean_s=s) for s in (100.0, 200.0))
    assert is_better(metric, [fast], [slow])
    assert not is_better(metric, [slow], [fast])
    assert not is_better(metric, [replace(fast, jct_mean_s=199.0)], [slow])
    assert not is_better(metric, [fast, slow], [slow, fast])
    assert order(metric, {"a": [slow, slow], "b": [fast, fast], "c": [slow, slow]}, ["a", "b", "c"]) == "b < a ≈ c"


@pytest.mark.long
def test_that_an_order_is_as_in_the_paper_is_said_with_what_counts_as_a_difference(results, trace):
    remarks = MLFS.findings(Request((0, 1), trace=trace), results).remarks
    same = [r for r in remarks if "no two schedulers" in r]
    assert same
    for remark in same:
        what = "chance" if remark.startswith("Figure 4") else "2 %"  # The trace is run once.
        assert remark.endswith(f"no two schedulers stand the other way round than in the paper by more than {what}.")


def test_what_is_assumed_is_said_and_the_trace_is_named_without_its_folder(trace):
    said = MLFS.assumptions(Request((0,), trace=trace))
    assert {"tasks or whole jobs", "what tasks take", "the trace", "MLFS"} <= {a.what for a in said}
    assert all(trace not in a.taken for a in said)


def test_each_part_can_be_left_out_of_mlf_h():
    assert {p.without for p in CONTRIBUTIONS} == {*WITHOUT, "mlf_h"}
    for approach in WITHOUT.values():
        assert find_policy("mlf_h").bound(approach.params).params != find_policy("mlf_h").bound().params
