"""Summaries of journals that were worked out by hand."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest

from hocket.control.ports import Cycle, Header
from hocket.model.criterion import parse
from hocket.model.event import (
    EpochEnded,
    Event,
    JobAsked,
    JobEnded,
    JobFailed,
    JobMoved,
    JobPaused,
    JobRefused,
    JobRequest,
    JobResized,
    JobStarted,
    JobSubmitted,
    NodeJoined,
    NodeLost,
)
from hocket.model.job import Job, Task, TaskGraph
from hocket.model.partition import EPOCH, Boundary, Partition, Sharing, Tenant
from hocket.model.plan import Plan
from hocket.model.resources import Demand, Node, Slice
from hocket.model.view import Costs
from hocket.reports.account import Account, account
from hocket.reports.summary import Summary, quantile, summarise

NODE = Node("n0", gpus=2)
NAMED_BY_THE_DESIGN = [
    *("policy", "workload", "seed", "jobs", "finished", "failed", "makespan_s", "jct_mean_s", "jct_p50_s", "jct_p99_s"),
    *("wait_mean_s", "utilisation", "fairness_loss", "deadlines_met", "accuracies_met", "adjustments"),
    *("overhead_share", "decisions", "decision_ms_mean", "decision_ms_p99", "cpu_s", "peak_rss_mib"),
]


def held(job: str, *gpus: int, node: str = "n0", boundary: Boundary = Boundary()) -> Partition:
    """A partition that one job has for itself."""
    return Partition(job, (Slice(node, gpus),), (Tenant(job, (len(gpus),), "", boundary),))


def at(at_s: float, *events: Event, put: Sequence[Partition] = (), drop: Sequence[str] = ()) -> Cycle:
    """A cycle, with a plan if it puts or drops something."""
    plan = Plan(tuple(put), tuple(drop)) if put or drop else None
    return Cycle(at_s, events, plan)


def read(*cycles: Cycle, nodes: Sequence[Node] = (NODE,)) -> Account:
    return account(Header("fifo", {}, tuple(nodes), 7, "by hand"), cycles)


def two_jobs() -> list[Cycle]:
    """`a` has one GPU for 100 s; `b`, which wants both, waits for 90 s of its 140."""
    a, b = Job("a"), Job("b", sizes=(2,))
    return [
        at(0, JobSubmitted(0, a), put=[held("a", 0)]),
        at(0, JobStarted(0, "a")),
        at(10, JobSubmitted(10, b)),
        at(100, JobEnded(100, "a"), put=[held("b", 0, 1)]),
        at(100, JobStarted(100, "b")),
        at(150, JobEnded(150, "b")),
    ]


def test_time_in_which_a_job_is_held_is_no_waiting_time() -> None:
    """`b` starts after `a`, and then its user pauses it from 120 to 180 s, which takes 5 s; it waits for 20 s."""
    cycles = [
        at(0, JobSubmitted(0, Job("a")), JobSubmitted(0, Job("b", after=("a",))), put=[held("a", 0)]),
        at(0, JobStarted(0, "a")),
        at(100, JobEnded(100, "a")),
        at(110, put=[held("b", 0)]),
        at(110, JobStarted(110, "b")),
        at(120, JobAsked(120, "b", JobRequest.PAUSE), drop=["b"]),
        at(125, JobPaused(125, "b")),
        at(180, JobAsked(180, "b", JobRequest.RESUME)),
        at(190, put=[held("b", 0)]),
        at(190, JobStarted(190, "b")),
        at(200, JobEnded(200, "b")),
    ]
    b = read(*cycles).jobs[1]
    assert (b.waited_s, b.ran_s) == (20, 25)
    assert read(*cycles[:8]).jobs[1].waited_s == 10


def test_two_jobs_in_a_row() -> None:
    summary = summarise(read(*two_jobs()), decision_s=[0.001, 0.003])
    assert (summary.jobs, summary.finished, summary.failed, summary.unfinished) == (2, 2, 0, 0)
    assert summary.makespan_s == 150
    assert summary.jct_mean_s == (100 + 140) / 2
    assert summary.jct_p50_s == 120
    assert summary.jct_p99_s == pytest.approx(100 + 0.99 * 40)
    assert summary.wait_mean_s == 45
    assert summary.utilisation == {"gpus": pytest.approx((100 * 1 + 50 * 2) / (150 * 2))}
    assert summary.decisions == 2
    assert summary.decision_ms_mean == pytest.approx(2)
    assert summary.overhead_share == 0
    assert summary.adjustments == 0
    # Each is due half of the cluster while both are there, and b has none of it for 90 s of 150.
    assert summary.fairness_loss == pytest.approx(0.5 * 90 / 150, rel=0.01)


def test_the_json_object_is_that_of_the_design_and_a_few_more() -> None:
    summary = summarise(read(*two_jobs()))
    told = msgspec.json.decode(msgspec.json.encode(summary))
    assert list(told)[: len(NAMED_BY_THE_DESIGN)] == NAMED_BY_THE_DESIGN
    assert (told["policy"], told["workload"], told["seed"]) == ("fifo", "by hand", 7)
    assert told["deadlines_met"] is None
    assert told["accuracies_met"] is None
    assert msgspec.json.decode(msgspec.json.encode(summary), type=Summary) == summary


def test_an_empty_journal_has_no_numbers_but_zero() -> None:
    summary = summarise(read())
    assert (summary.jobs, summary.makespan_s, summary.fairness_loss) == (0, 0, 0)
    assert (summary.jct_mean_s, summary.wait_mean_s, summary.decision_ms_mean) == (None, None, None)


def test_an_event_that_comes_with_a_later_cycle_counts_at_its_own_time() -> None:
    accounted = read(
        at(0, JobSubmitted(0, Job("a")), put=[held("a", 0)]),
        at(60, JobStarted(0, "a"), JobEnded(60, "a")),
    )
    (a,) = accounted.jobs
    assert (a.started_s, a.ran_s, a.waited_s) == (0, 60, 0)


def test_a_paused_job_waits_and_its_pauses_are_adjustments() -> None:
    accounted = read(
        at(0, JobSubmitted(0, Job("a")), put=[held("a", 0)]),
        at(0, JobStarted(0, "a")),
        at(30, drop=["a"]),
        at(30, JobPaused(30, "a")),
        at(50, put=[held("a", 1)]),
        at(50, JobStarted(50, "a")),
        at(90, JobEnded(90, "a")),
    )
    (a,) = accounted.jobs
    assert (a.ran_s, a.waited_s, a.starts, a.started_s) == (70, 20, 2, 0)
    summary = summarise(accounted)
    assert (summary.adjustments, summary.preemptions) == (1, 1)
    assert summary.overhead_share == 0


def test_switching_is_overhead_and_a_start_counts_from_when_its_gpus_are_free() -> None:
    costs = Costs(prepare_s=6, start_s=4, checkpoint_s=3, stop_s=2)
    accounted = read(
        at(0, JobSubmitted(0, Job("a"), costs=costs), put=[held("a", 0)]),
        at(10, JobStarted(10, "a")),
        # b is to have a's GPU: a takes 5 s to leave, b 10 s to start.
        at(50, JobSubmitted(50, Job("b"), costs=costs), put=[held("b", 0)], drop=["a"]),
        at(55, JobPaused(55, "a")),
        at(65, JobStarted(65, "b")),
        at(100, JobEnded(100, "b"), put=[held("a", 1)]),
        at(110, JobStarted(110, "a")),
        at(140, JobEnded(140, "a")),
    )
    a, b = accounted.jobs
    assert (a.stood_s, a.ran_s) == (10 + 5 + 10, 55 + 40)
    assert (b.stood_s, b.ran_s, b.waited_s) == (10, 45, 5)
    assert summarise(accounted).overhead_share == pytest.approx((25 + 10) / (95 + 45))


def test_a_tenant_that_works_on_to_its_boundary_is_not_idle_meanwhile() -> None:
    def stood_s(costs: Costs) -> float:
        accounted = read(
            at(0, JobSubmitted(0, Job("a"), costs=costs), put=[held("a", 0, boundary=EPOCH)]),
            at(0, JobStarted(0, "a")),
            at(30, drop=["a"]),
            at(70, JobPaused(70, "a")),
        )
        return accounted.jobs[0].stood_s

    assert stood_s(Costs(checkpoint_s=3, stop_s=2)) == 5
    assert stood_s(Costs()) == 0


def test_resizes_and_moves_count_and_change_what_is_held() -> None:
    costs = Costs(start_s=2, checkpoint_s=3)
    accounted = read(
        at(0, JobSubmitted(0, Job("a", sizes=(1, 2)), costs=costs), put=[held("a", 0)]),
        at(2, JobStarted(2, "a")),
        at(20, put=[held("a", 0, 1)]),
        at(25, JobResized(25, "a")),
        at(60, put=[Partition("b", (Slice("n1", (0, 1)),), (Tenant("a", (2,)),))]),
        at(65, JobMoved(65, "a")),
        at(100, JobEnded(100, "a")),
        nodes=[NODE, Node("n1", gpus=2)],
    )
    (a,) = accounted.jobs
    assert (a.stood_s, a.ran_s, a.size, a.starts) == (2 + 5 + 5, 100, 2, 1)
    assert [(s.since_s, s.until_s, s.partition.gpus) for s in accounted.spans if s.trains] == [
        (2, 20, 1),
        (25, 60, 2),
        (65, 100, 2),
    ]
    assert [(s.since_s, s.until_s, s.partition.gpus) for s in accounted.spans if not s.trains] == [
        (0, 2, 1),
        (20, 25, 1),
        (60, 65, 2),
    ]
    assert summarise(accounted).adjustments == 2


def test_tenants_of_one_partition_hold_it_once() -> None:
    shared = Partition("p", (Slice("n0", (0, 1)),), (Tenant("a", (1,)), Tenant("b", (1,))), Sharing.INTERLEAVED)
    alone = Partition("p", shared.slices, shared.tenants[1:], Sharing.INTERLEAVED)
    accounted = read(
        at(0, JobSubmitted(0, Job("a")), JobSubmitted(0, Job("b")), put=[shared]),
        at(0, JobStarted(0, "a")),
        at(20, JobStarted(20, "b")),
        at(60, JobEnded(60, "a"), put=[alone]),
        at(100, JobEnded(100, "b")),
    )
    a, b = accounted.jobs
    assert (a.ran_s, b.ran_s) == (60, 80)
    assert summarise(accounted).utilisation == {"gpus": pytest.approx(1.0)}
    assert [s.share for s in accounted.spans] == [1.0, 0.5, 0.5, 1.0]


def test_a_leaver_does_not_take_others_back_to_what_it_held() -> None:
    both = Partition("p", (Slice("n0", (0, 1)),), (Tenant("a", (1,)), Tenant("b", (1,))), Sharing.INTERLEAVED)
    less = Partition("p", (Slice("n0", (0,)),), both.tenants[1:], Sharing.INTERLEAVED)
    accounted = read(
        at(0, *(JobSubmitted(0, Job(j)) for j in "abc"), put=[both]),
        at(0, JobStarted(0, "a"), JobStarted(0, "b")),
        at(50, put=[less, held("c", 1)]),
        at(50, JobResized(50, "b")),
        at(60, JobPaused(60, "a")),
        at(60, JobStarted(60, "c")),
        at(100, JobEnded(100, "b"), JobEnded(100, "c")),
    )
    # Up to 50 a and b have both GPUs; up to 60 a has half of both, and b half of one; then b and c have one each.
    assert summarise(accounted).utilisation == {"gpus": pytest.approx((50 * 2 + 10 * 1.5 + 40 * 2) / 200)}


def test_a_new_tenant_shares_with_one_that_is_about_to_leave() -> None:
    first = Partition("p", (Slice("n0", (0, 1)),), (Tenant("a", (1,)), Tenant("b", (1,))), Sharing.INTERLEAVED)
    then = Partition("p", first.slices, (Tenant("b", (1,)), Tenant("c", (1,))), Sharing.INTERLEAVED)
    accounted = read(
        at(0, *(JobSubmitted(0, Job(j)) for j in "abc"), put=[first]),
        at(0, JobStarted(0, "a"), JobStarted(0, "b")),
        at(50, put=[then]),
        at(50, JobStarted(50, "c")),
        at(80, JobPaused(80, "a")),
        at(100, JobEnded(100, "b"), JobEnded(100, "c")),
    )
    assert summarise(accounted).utilisation == {"gpus": pytest.approx(1.0)}


def test_tasks_of_one_job_hold_side_by_side_and_the_job_runs_once() -> None:
    graph = TaskGraph((Task("x", Demand(gpus=1)), Task("y", Demand(gpus=1))))
    put = [Partition(n, (Slice("n0", (g,)),), (Tenant("a", (1,), n),)) for g, n in enumerate("xy")]
    accounted = read(
        at(0, JobSubmitted(0, Job("a", tasks=graph)), put=put),
        at(0, JobStarted(0, "a", "x"), JobStarted(0, "a", "y")),
        at(40, drop=["y"]),
        at(40, JobPaused(40, "a", "y")),
        at(100, JobEnded(100, "a")),
    )
    (a,) = accounted.jobs
    assert (a.ran_s, a.waited_s) == (100, 0)
    summary = summarise(accounted)
    assert summary.utilisation == {"gpus": pytest.approx((100 + 40) / 200)}
    assert summary.fairness_loss == pytest.approx(0.5 * 0.6, rel=0.01)  # due both GPUs, it has one for 60 s of 100


def test_a_lost_node_takes_its_tenants_and_its_capacity_along() -> None:
    nodes = [Node("n0", gpus=1), Node("n1", gpus=1)]
    accounted = read(
        at(0, JobSubmitted(0, Job("a")), put=[held("a", 0)]),
        at(0, JobStarted(0, "a")),
        at(40, NodeLost(40, "n0"), put=[held("a", 0, node="n1")]),
        at(40, JobStarted(40, "a")),
        at(80, NodeJoined(80, nodes[0])),
        at(100, JobEnded(100, "a")),
        nodes=nodes,
    )
    (a,) = accounted.jobs
    assert (a.ran_s, a.starts) == (100, 2)
    assert accounted.counts.failures == 1
    assert summarise(accounted).utilisation == {"gpus": pytest.approx(100 / (40 * 2 + 40 * 1 + 20 * 2))}


def test_every_submission_is_accounted_for() -> None:
    accounted = read(
        at(0, *(JobSubmitted(0, Job(name)) for name in "abcd"), put=[held("a", 0), held("b", 1)]),
        at(0, JobStarted(0, "a"), JobStarted(0, "b")),
        at(5, JobRefused(5, "huge", "job 'huge': sizes must fit the cluster")),
        at(10, JobFailed(10, "a", "it broke", final=True)),
        at(20, JobEnded(20, "b")),
        at(20, put=[held("c", 0)]),
        at(20, JobStarted(20, "c")),
        at(50, JobFailed(50, "c", "it broke once")),
    )
    summary = summarise(accounted)
    assert (summary.jobs, summary.finished, summary.failed, summary.refused, summary.unfinished) == (5, 1, 1, 1, 2)
    assert summary.verdicts == {"finished": 1, "failed": 1}
    assert summary.jct_mean_s == 20  # over finished jobs
    assert summary.makespan_s == 50  # up to the last moment, for jobs are left
    assert accounted.refusals == (("huge", "job 'huge': sizes must fit the cluster"),)
    assert [r.ran_s for r in accounted.jobs] == [10, 20, 30, 0]


def test_a_plan_that_was_refused_places_no_job() -> None:
    cycles = [
        at(0, JobSubmitted(0, Job("a"))),
        Cycle(0, (), Plan((held("a", 0),)), refused=("node 'n0' has 2 GPUs, the plan uses 8",)),
        at(10),
    ]
    summary = summarise(read(*cycles))
    assert (summary.decisions, summary.refused_plans, summary.utilisation) == (1, 1, {"gpus": 0.0})


def test_deadlines_are_met_by_jobs_that_end_in_time() -> None:
    def ending(name: str, deadline_s: float, end: Event) -> list[Cycle]:
        job = Job(name, deadline_s=deadline_s)
        return [at(0, JobSubmitted(0, job), put=[held(name, 0)]), at(0, JobStarted(0, name)), at(end.at_s, end)]

    accounted = read(
        *ending("in time", 10, JobEnded(10, "in time")),
        *ending("late", 10, JobEnded(11, "late")),
        *ending("failed", 100, JobFailed(12, "failed", "it broke", final=True)),
        at(12, JobSubmitted(12, Job("unfinished", deadline_s=99))),
    )
    assert [r.deadline_met for r in accounted.jobs] == [True, False, False, False]
    assert summarise(accounted).deadlines_met == 0.25


def test_goals_are_met_by_verdict_or_with_the_last_report() -> None:
    goal = parse("acc >= 90%")

    def ending(name: str, verdict: str, acc: float | None) -> list[Cycle]:
        job = Job(name, criterion=goal)
        reports = [] if acc is None else [EpochEnded(9, name, 1, {"acc": acc})]
        return [
            at(0, JobSubmitted(0, job), put=[held(name, 0)]),
            at(0, JobStarted(0, name)),
            at(9, *reports, JobEnded(9, name, verdict)),
        ]

    accounted = read(
        *ending("attained", "attained", None),
        *ending("at the very end", "finished", 0.91),
        *ending("below", "finished", 0.89),
        *ending("missed", "missed", None),
        at(9, JobSubmitted(9, Job("timed", criterion=parse("for 2h")))),
        at(9, JobEnded(9, "timed", "attained")),
    )
    assert [r.goal_met for r in accounted.jobs] == [True, True, False, False, None]
    assert summarise(accounted).accuracies_met == 0.5


def unfinished_jobs() -> list[Cycle]:
    """`early` and `late` run, and `waits` does not: their deadlines are at 5, 99 and 99 s, and it ends at 9 s."""
    jobs = [Job("early", deadline_s=5), Job("late", deadline_s=99), Job("waits", deadline_s=99)]
    return [
        at(0, *(JobSubmitted(0, job) for job in jobs), put=[held("early", 0), held("late", 1)]),
        at(0, JobStarted(0, "early"), JobStarted(0, "late")),
        at(9),
    ]


def test_a_deadline_that_has_not_passed_is_undecided_where_a_run_was_cut_off() -> None:
    accounted = read(*unfinished_jobs())
    assert [r.deadline_met for r in accounted.jobs] == [False, None, None]
    assert summarise(accounted).deadlines_met == 0.0
    assert [r.deadline_met for r in read(*unfinished_jobs()[:2]).jobs] == [None, None, None]
    assert summarise(read(*unfinished_jobs()[:2])).deadlines_met is None


def test_a_job_that_is_stuck_for_good_meets_no_deadline_and_no_goal() -> None:
    stuck = Job("stuck", deadline_s=99, criterion=parse("acc >= 90%"))
    simulated = read(at(0, JobSubmitted(0, stuck)), at(9))
    assert [(r.deadline_met, r.goal_met) for r in simulated.jobs] == [(False, False)]
    live = read(at(0, JobSubmitted(0, stuck)), at(9), nodes=())  # The journal of a live controller goes on.
    assert [(r.deadline_met, r.goal_met) for r in live.jobs] == [(None, None)]
    told = account(Header("fifo", {}, (NODE,), 7, "by hand"), unfinished_jobs(), is_cut=False)
    assert [r.deadline_met for r in told.jobs] == [False, False, False]


def test_the_goal_of_a_job_that_goes_on_is_undecided_until_its_limit_has_passed() -> None:
    texts = ["acc >= 90%", "acc >= 90% within 5s", "acc >= 90% within 2h", "acc >= 90% within 1 epochs", "acc >= 10%"]
    jobs = [Job(text, target=parse(text)) for text in texts]
    accounted = read(
        at(0, *(JobSubmitted(0, job) for job in jobs), put=[held(texts[0], 0)]),
        at(0, JobStarted(0, texts[0])),
        at(9, *(EpochEnded(9, text, 1, {"acc": 0.5}) for text in texts)),
    )
    assert [r.goal_met for r in accounted.jobs] == [None, False, None, False, None]
    assert summarise(accounted).accuracies_met == 0.0


def test_quantiles_lie_between_neighbours() -> None:
    assert quantile([], 0.5) is None
    assert quantile([3.0], 0.99) == 3.0
    assert quantile([1.0, 2.0, 4.0], 0.5) == 2.0
    assert quantile([1.0, 2.0, 4.0], 0.75) == 3.0
    assert quantile([1.0, 2.0, 4.0], 1.0) == 4.0
