"""What a run that cannot start means for its job: whether the node is to blame, the job, or a moment."""

import time

import pytest
from tests.unit.executors.agents.test_executor import NODE, PATIENCE_S, job
from tests.unit.executors.agents.test_resize import Resizing, newcomer

from hocket.agent.protocol import Report, RunKey, RunLimits, StopRun
from hocket.model.resources import Demand

NO_SPACE = {"reason": "[Errno 28] No space left on device", "passing": True}


def cannot_start(world, run, fields, n):
    """Said by the agent itself with number 0, and by the run's sidecar otherwise."""
    report = Report(run, n, time.time(), "cannot-start", fields)
    world.engine.executor.report([report], NODE.id).result(PATIENCE_S)


def test_a_node_without_space_costs_a_job_none_of_its_tries(world):
    world.submit(job())
    runs = []
    for _ in range(6):
        (order,) = world.orders()
        runs.append(order.run.number)
        cannot_start(world, order.run, NO_SPACE, n=0)
    assert runs == [1, 2, 3, 4, 5, 6]
    assert world.engine.snapshot.jobs["a"].crashes == 0
    assert "No space left" in world.engine.catalogue.records["a"].tries[-2].how


def test_what_an_agent_cannot_do_for_another_reason_is_tried_as_often_as_a_job_that_breaks(world):
    world.submit(job())
    for _ in range(4):
        (order,) = world.orders()
        cannot_start(world, order.run, {"reason": "unhashable type"}, n=0)
    assert world.verdict("a") == "failed"
    assert "unhashable" in world.engine.catalogue.records["a"].reason


def test_a_sidecar_that_has_no_process_left_for_its_job_lets_it_rest(world):
    world.submit(job(backoff_s=1000.0))
    (order,) = world.orders()
    cannot_start(world, order.run, {"reason": "Resource temporarily unavailable", "passing": True}, n=1)
    view = world.engine.snapshot.jobs["a"]
    assert (view.crashes, str(view.held)) == (1, "rests")


def test_a_command_that_does_not_exist_is_not_tried_again(world):
    world.submit(job())
    (order,) = world.orders()
    cannot_start(world, order.run, {"reason": "command 'python' does not exist", "passing": False}, n=1)
    assert world.verdict("a") == "failed"


@pytest.mark.parametrize("event", ["cannot-start", "lost"])
def test_a_newcomer_that_cannot_be_prepared_starts_cold_when_its_turn_comes(tmp_path, event):
    world = Resizing(tmp_path / "journal.db")
    world.hello()
    world.begin(warm=False)
    world.submit(newcomer(warm=True))
    (prepare,) = world.orders()
    report = Report(prepare.run, 0, time.time(), event, NO_SPACE)
    world.engine.executor.report([report], NODE.id).result(PATIENCE_S)
    assert world.orders() == [StopRun(RunKey("a", 1), 7.0)]
    world.engine.close()


def test_a_run_that_is_stale_costs_no_try_and_the_next_one_is_later_than_what_fenced_it(world):
    world.submit(job())
    (order,) = world.orders()
    ended = {"code": None, "signal": None, "asked": False, "fenced_by": 7}
    world.engine.executor.report([Report(order.run, 1, time.time(), "exited", ended)], NODE.id).result(PATIENCE_S)
    (again,) = world.orders()
    assert again.run == RunKey("a", 8)
    view = world.engine.snapshot.jobs["a"]
    assert (view.crashes, view.failures, view.skipped) == (0, 1, 6)
    told = {"code": None, "signal": "SIGKILL", "asked": False, "fenced_by": 3}
    world.engine.executor.report([Report(again.run, 1, time.time(), "exited", told)], NODE.id).result(PATIENCE_S)
    assert world.orders()[0].run == RunKey("a", 9), "never a smaller one"


def test_a_session_begins_with_the_number_of_orders_that_wait_for_it(world):
    world.submit(job())
    sessions = world.engine.sessions
    session = sessions.open(NODE.id, "here")
    assert sessions.waiting(session) == 0
    sessions.tell(NODE.id, [StopRun(RunKey("a", 1), 0.0)])
    assert sessions.waiting(session) == 1
    assert 0 < sessions.fence_s < sessions.lease_s


def test_a_user_is_told_that_a_job_stood_still(world):
    world.submit(job())
    (order,) = world.orders()
    reports = [Report(order.run, n, time.time(), what, f) for n, (what, f) in enumerate(
        [("started", {"pids": [1]}), ("frozen", {}), ("thawed", {"stood_s": 12.3456})], 1)]  # fmt: skip
    world.engine.executor.report(reports, NODE.id).result(PATIENCE_S)
    (warning,) = world.engine.catalogue.records["a"].warnings
    assert "it stood still for 12.3 s" in str(warning)


OVER_ITS_LIMIT = {"code": None, "signal": "SIGKILL", "asked": False, "out_of_memory": "limit", "limit_mib": 512.0}


def ended(world, run, fields):
    world.engine.executor.report([Report(run, 1, time.time(), "exited", fields)], NODE.id).result(PATIENCE_S)


def test_a_job_that_used_more_memory_than_it_asked_for_and_saved_nothing_is_not_tried_again(world):
    world.submit(job(demand=Demand(1, 1.0, 512.0)))
    (order,) = world.orders()
    assert order.limits == RunLimits(512.0, 1.0)
    ended(world, order.run, OVER_ITS_LIMIT | {"saved": False})
    assert world.verdict("a") == "failed"
    assert world.engine.catalogue.records["a"].reason == (
        "killed by the kernel: it used more than the 512 MiB that it asked for (--mem); "
        "it had saved nothing, and would fail again"
    )


def test_a_job_that_saved_before_it_used_too_much_memory_is_tried_again_as_after_any_crash(world):
    world.submit(job(demand=Demand(1, 0.0, 256.0), sizes=(2,)))
    (order,) = world.orders()
    assert order.limits == RunLimits(512.0, 0.0), "of both replicas"
    ended(world, order.run, OVER_ITS_LIMIT | {"saved": True})
    view = world.engine.snapshot.jobs["a"]
    assert (view.crashes, view.failures) == (1, 1)
    how = world.engine.catalogue.records["a"].tries[0].how
    assert "the 512 MiB that it asked for (--mem) for 2 replicas on a node" in how


def test_a_job_that_was_killed_because_its_node_had_no_memory_is_tried_again(world):
    world.submit(job())
    (order,) = world.orders()
    assert order.limits == RunLimits(), "it asked for nothing"
    ended(world, order.run, OVER_ITS_LIMIT | {"saved": False, "out_of_memory": "machine", "limit_mib": 0})
    assert world.engine.snapshot.jobs["a"].crashes == 1
    assert "its node had no memory left" in world.engine.catalogue.records["a"].tries[0].how
