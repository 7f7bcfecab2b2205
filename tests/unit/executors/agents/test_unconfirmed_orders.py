"""What an agent never confirms is asked again, then given up; numbers of runs that it knows are not given again."""

import time

import pytest
from tests.unit.executors.agents.test_executor import LEFT, NODE, PATIENCE_S, STARTED, World, job
from tests.unit.executors.agents.test_resize import Resizing, newcomer

from hocket.agent.protocol import Hello, RunKey, StartRun, StopRun
from hocket.executors.agents.unconfirmed_orders import Overdue, UnconfirmedOrders, limit_s
from hocket.model.event import JobRequest


class Clock:
    """The time by which confirmations are awaited; it stands still unless it is set."""

    def __init__(self, world):
        self.now_s = 0.0
        world.engine.executor._unconfirmed = UnconfirmedOrders(self)

    def __call__(self):
        return self.now_s


@pytest.fixture
def clock(world):
    return Clock(world)


def warnings(world, name="a"):
    return [str(warning) for warning in world.engine.catalogue.records[name].warnings]


def until(condition):
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_start_that_is_not_confirmed_is_asked_again_and_then_made_anew(world, clock):
    world.submit(job())
    (first,) = world.orders()
    clock.now_s = 127.0
    (again,) = world.orders()
    clock.now_s = 254.0
    stop, anew = world.orders(2)
    assert [type(o) for o in (first, again, stop, anew)] == [StartRun, StartRun, StopRun, StartRun]
    assert (first.run, again.run, stop.run, anew.run) == (*[RunKey("a", 1)] * 3, RunKey("a", 2))
    assert world.engine.snapshot.jobs["a"].crashes == 0
    asked_again, given_up = warnings(world)
    assert "is not confirmed by node 'here' after 127 s: asked again" in asked_again
    assert "after 254 s: given up" in given_up


@pytest.mark.parametrize(("job_request", "state"), [(JobRequest.PAUSE, "paused"), (JobRequest.STOP, None)])
def test_a_stop_that_is_not_confirmed_is_asked_again_and_then_believed(world, clock, job_request, state):
    world.submit(job())
    (start,) = world.orders()
    world.say(start.run, STARTED)
    clock.now_s = 1000.0
    world.ask("a", job_request)
    assert world.orders() == [StopRun(start.run, 7.0)]
    clock.now_s = 1127.0
    assert world.orders() == [StopRun(start.run, 7.0)]
    clock.now_s = 1254.0
    until(lambda: world.state("a") == state)
    assert world.orders(1 if state else 2)[0] == StopRun(start.run, 0.0)
    if state is None:
        assert world.verdict("a") == "stopped"


@pytest.mark.parametrize("has_left", [False, True])
def test_of_a_job_that_changes_its_size_what_is_not_confirmed_is_asked_again(tmp_path, has_left):
    world = Resizing(tmp_path / "journal.db")
    world.hello()
    clock = Clock(world)
    world.begin(warm=False)
    world.submit(newcomer())
    (first,) = world.orders()
    if has_left:
        world.say(RunKey("a", 1), LEFT)
        (first,) = world.orders()
    clock.now_s = 127.0
    (again,) = world.orders()
    world.engine.close()
    assert again == first
    assert again.run == RunKey("a", 2 if has_left else 1), "what has left is not asked to leave again"


def test_what_is_confirmed_in_time_is_not_asked_again(world):
    world.submit(job())
    (start,) = world.orders()
    world.say(start.run, STARTED)
    world.ask("a", JobRequest.PAUSE)
    (stop,) = world.orders()
    world.say(stop.run, LEFT)
    assert (world.state("a"), warnings(world)) == ("paused", [])


def test_a_job_may_take_its_grace_and_the_time_of_a_node_that_is_away_does_not_count(world):
    world.submit(job())
    world.orders()
    view = world.engine.snapshot.jobs["a"]
    now_s = 0.0
    unconfirmed = UnconfirmedOrders(lambda: now_s)
    unconfirmed.see(view)
    assert limit_s(view) == 127.0
    now_s = 126.0
    assert unconfirmed.overdue({"a": view}.get, [NODE.id]) == []
    assert unconfirmed.overdue({"a": view}.get, []) == []
    now_s = 126.0 + 126.0
    assert unconfirmed.overdue({"a": view}.get, [NODE.id]) == []
    now_s = 126.0 + 127.0
    assert unconfirmed.overdue({"a": view}.get, [NODE.id]) == [(view, Overdue.ASK_AGAIN, 127.0)]
    assert unconfirmed.overdue({"a": view}.get, [NODE.id]) == []
    now_s = 126.0 + 254.0
    assert unconfirmed.overdue({"a": view}.get, [NODE.id]) == [(view, Overdue.GIVE_UP, 254.0)]
    assert unconfirmed.overdue({"a": view}.get, [NODE.id]) == []


def hello(world, seen, runs=()):
    world.session, world.taken = world.engine.sessions.open(NODE.id, "127.0.0.1"), 0
    said = Hello(NODE, "127.0.0.1", runs, tuple(seen), seen=seen)
    world.engine.executor.post(world.engine.executor.hello(said)).result(PATIENCE_S)


def test_a_number_that_an_agent_knows_is_not_given_to_a_job_that_starts(world: World):
    world.submit(job())
    world.orders()
    hello(world, {"a": 3})
    assert world.orders()[0].run == RunKey("a", 4)
    view = world.engine.snapshot.jobs["a"]
    assert (view.crashes, view.failures, view.skipped) == (0, 1, 2)


def test_nor_to_one_that_waits(world):
    world.submit(job())
    (start,) = world.orders()
    world.say(start.run, STARTED)
    world.ask("a", JobRequest.PAUSE)
    (stop,) = world.orders()
    world.say(stop.run, LEFT)
    assert world.state("a") == "paused"
    hello(world, {"a": 5})
    assert world.engine.snapshot.jobs["a"].failures == 0
    world.ask("a", JobRequest.RESUME)
    assert world.orders()[0].run == RunKey("a", 6)


def test_numbers_that_were_given_change_nothing(world):
    world.submit(job())
    (start,) = world.orders()
    world.say(start.run, STARTED)
    hello(world, {"a": 2}, (start.run,))  # The next run may stand prepared.
    view = world.engine.snapshot.jobs["a"]
    assert (str(view.state), view.failures, view.skipped) == ("running", 0, 0)
