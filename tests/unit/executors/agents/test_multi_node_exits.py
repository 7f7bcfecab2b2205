"""A job on two nodes: two agents whose every word the test says, an engine on a real journal."""

import time

import pytest
from msgspec.structs import replace

from hocket.agent.protocol import ForgetJob, Hello, Report, StartRun, StopRun
from hocket.executors.agents.executor import agents
from hocket.executors.agents.multi_node_exits import MultiNodeExits
from hocket.executors.agents.orders import Orders
from hocket.executors.agents.reconcile import Reconciliation
from hocket.executors.agents.run_numbers import present
from hocket.executors.agents.sessions import Sessions
from hocket.model.event import JobAsked, JobPrepared, JobRequest, JobSubmitted
from hocket.model.job import Job, Launch
from hocket.model.partition import Holding
from hocket.model.resources import Node, Slice
from hocket.model.versioned import versioned
from hocket.model.view import Doing, Tenancy
from hocket.policies import find
from hocket.service.engine import Engine
from hocket.testing.builders import snapshot, submitted

NODES = (Node("left", gpus=2, cores=4.0), Node("right", gpus=2, cores=4.0))
STARTED = ("started", {"pids": [1]})
FINISHED = ("exited", {"code": 0, "signal": None, "asked": False})
LEFT = ("exited", {"code": 0, "signal": None, "asked": True})
BROKE = ("exited", {"code": 3, "signal": None, "asked": False})
PATIENCE_S = 60.0  # far more than anything here takes


class TwoNodes:
    """A controller that may be killed, and its two agents."""

    def __init__(self, path, lease_s=300.0):
        self.path, self.lease_s = path, lease_s
        self.said = {}
        self.engine = None
        self.up()

    def up(self, runs=()):
        """Start it, or start it again as after a kill; the agents say hello with these runs."""
        if self.engine is not None:
            self.engine.close()
        self.engine = Engine(str(self.path), agents(self.lease_s), find("fifo").bound())
        self.engine.start()
        self.sessions, self.taken = {}, {}
        for node in NODES:
            self.hello(node, [run for where, run in runs if where == node.id])

    def hello(self, node, runs=()):
        self.sessions[node.id], self.taken[node.id] = self.engine.sessions.open(node.id, "127.0.0.1"), 0
        self.engine.executor.post(self.engine.executor.hello(Hello(node, "127.0.0.1", tuple(runs)))).result(PATIENCE_S)

    def start(self, **fields):
        """A job that needs both nodes, and runs."""
        job = Job("a", command=("python", "x.py"), launch=Launch(cwd="/", grace_s=7.0), sizes=(4,), retries=3, **fields)
        self.engine.executor.post(lambda _state, now_s: [JobSubmitted(now_s, job)]).result(PATIENCE_S)
        return self.begin()

    def begin(self):
        """Both agents take their order and start."""
        runs = [self.run_ordered(node.id) for node in NODES]
        assert len(set(runs)) == 1
        for node in NODES:
            self.say(node.id, runs[0], STARTED)
        return runs[0]

    def run_ordered(self, node):
        """The next run that its agent is told to start; other orders may come before it."""
        until = time.monotonic() + PATIENCE_S
        while not (runs := [order.run for order in self.orders(node) if isinstance(order, StartRun)]):
            assert time.monotonic() < until
        (run,) = runs
        return run

    def ask(self, request):
        self.engine.executor.post(lambda _state, now_s: [JobAsked(now_s, "a", request)]).result(PATIENCE_S)

    def say(self, node, run, *events):
        reports = []
        for event, fields in events:
            n = self.said[node, run] = self.said.get((node, run), 0) + 1
            reports.append(Report(run, n, time.time(), event, fields))
        self.engine.executor.report(reports, node).result(PATIENCE_S)

    def orders(self, node):
        """All orders that have come."""
        new = self.engine.sessions.orders(self.sessions[node], self.taken[node], 0.3)
        self.taken[node] = new[-1].n if new else self.taken[node]
        return [numbered.order for numbered in new]

    @property
    def view(self):
        return self.engine.snapshot.jobs.get("a")

    @property
    def record(self):
        return self.engine.catalogue.records["a"]


@pytest.fixture
def world(tmp_path):
    found = TwoNodes(tmp_path / "journal.db")
    yield found
    found.engine.close()


def test_it_has_finished_when_both_parts_have(world):
    run = world.start()
    world.say("right", run, FINISHED)
    assert str(world.view.state) == "running"
    world.say("left", run, FINISHED)
    assert world.record.verdict == "finished"


@pytest.mark.parametrize("first", ["left", "right"])
def test_it_breaks_when_any_part_does_and_the_other_is_stopped_at_once(world, first):
    other = "right" if first == "left" else "left"
    run = world.start()
    world.say(first, run, BROKE)
    assert world.record.tries[-1].how == "failed: exit code 3"
    assert StopRun(run, 0.0) in world.orders(other)
    world.say(other, run, LEFT)  # The end of an attempt that broke means nothing.
    assert world.view.crashes == 1


@pytest.mark.parametrize("order", [("left", "right"), ("right", "left")])
def test_a_part_that_breaks_after_the_other_has_finished_breaks_the_job(world, order):
    run = world.start()
    world.say(order[0], run, FINISHED)
    world.say(order[1], run, BROKE)
    assert world.record.verdict == ""
    assert world.view.crashes == 1


def test_it_starts_again_on_both_nodes(world):
    run = world.start(backoff_s=0.01)
    world.say("right", run, BROKE)
    world.say("left", run, LEFT)
    again = world.begin()
    assert again.number > run.number
    world.say("left", again, FINISHED)
    world.say("right", again, FINISHED)
    assert world.record.verdict == "finished"
    assert ForgetJob("a") in world.orders("left")
    assert ForgetJob("a") in world.orders("right")


def test_it_is_paused_when_both_parts_have_left(world):
    run = world.start()
    world.ask(JobRequest.PAUSE)
    assert world.orders("left") == world.orders("right") == [StopRun(run, 7.0)]
    world.say("left", run, LEFT)
    assert world.view.tenancies
    world.say("right", run, ("exited", {"code": 0, "signal": None, "asked": False}))  # It was about to finish.
    assert str(world.view.state) == "paused"


def test_it_is_stopped_when_both_parts_have_left(world):
    run = world.start()
    world.ask(JobRequest.STOP)
    world.say("left", run, LEFT)
    assert world.view is not None
    world.say("right", run, ("lost", {}))
    assert world.record.verdict == "stopped"


def test_reports_of_the_two_nodes_are_not_taken_for_each_other(world):
    run = world.start()
    world.say("left", run, ("progress", {"epoch": 1, "metrics": {"loss": 1.0}}))
    world.say("right", run, ("progress", {"epoch": 2, "metrics": {"loss": 0.5}}))
    assert world.view.epoch == 2


def test_it_starts_again_only_when_no_part_of_it_is_left(world):
    run = world.start()
    world.say("right", run, BROKE)
    assert [type(order) for order in world.orders("right")] == [], "the left part may still run"
    assert world.orders("left") == [StopRun(run, 0.0)]
    world.say("left", run, LEFT)
    assert world.begin().number > run.number


def test_a_controller_that_comes_back_starts_it_only_when_all_nodes_have_said_what_they_have(world):
    run = world.start()
    world.engine.executor.report([Report(run, 9, 0.0, *BROKE)], "right").result(PATIENCE_S)
    world.engine.close()
    world.engine = Engine(str(world.path), agents(world.lease_s), find("fifo").bound())
    world.engine.start()
    world.hello(NODES[1])
    assert not [order for order in world.orders("right") if isinstance(order, StartRun)], "left was not heard yet"
    world.hello(NODES[0], [run])
    assert world.orders("left") == [StopRun(run, 0.0)]
    assert world.orders("right") == []
    world.say("left", run, LEFT)
    assert world.begin().number > run.number


def test_when_a_node_is_lost_its_other_part_is_stopped(tmp_path):
    world = TwoNodes(tmp_path / "journal.db", lease_s=300.0)
    run = world.start()
    world.engine.sessions._sessions[world.sessions["right"]].heard_at -= 1000.0
    until = time.monotonic() + PATIENCE_S
    found = []
    while StopRun(run, 0.0) not in found and time.monotonic() < until:
        found += world.orders("left")  # It is heard from; the other has long been silent.
    world.engine.close()
    assert StopRun(run, 0.0) in found


def test_a_controller_comes_back_to_a_pause_of_which_one_part_has_left(world):
    run = world.start()
    world.ask(JobRequest.PAUSE)
    world.up(runs=[("left", run)])
    assert world.view.tenancies, "the left part is still there"
    assert StopRun(run, 7.0) in world.orders("left")
    world.say("left", run, LEFT)
    assert str(world.view.state) == "paused"


def test_a_part_that_an_agent_has_lost_fails_the_attempt_and_counts_as_no_retry(world):
    run = world.start()
    world.up(runs=[("left", run)])
    assert world.view.failures == 1
    assert world.view.crashes == 0
    assert StopRun(run, 0.0) in world.orders("left")


def test_a_part_of_a_started_run_may_only_stand_prepared_and_is_told_again_to_start(world):
    run = world.start()
    world.hello(NODES[1], [run])
    (order,) = world.orders("right")
    assert (type(order), order.run) == (StartRun, run)
    assert world.orders("left") == []


# -- a change of place: the present run is on one node, the next will be on another ------------------------------


def moving(doing=Doing.MOVING):
    """A job whose run on the left node is to go on on the right one."""
    job = Job("a", command=("python", "x.py"), launch=Launch(cwd="/"))
    view = snapshot(NODES, submitted(job)).jobs["a"]
    there, to = Holding("a", (Slice("left", (0,)),), (1,)), Holding("a", (Slice("right", (0,)),), (1,))
    return replace(view, starts=1, tenancies=(Tenancy("", there, doing, to),))


def test_a_node_that_the_run_is_not_on_cannot_tell_its_end():
    view, exits = moving(), MultiNodeExits()
    lost = Report(present(view), 0, 0.0, "lost", {"reason": "it is not known here"})
    assert exits.gone(view, lost, "right") is None
    assert exits.gone(view, lost, "left") is lost


def test_only_the_nodes_that_a_run_is_on_are_told_to_stop_it():
    view, sessions = moving(), Sessions(300.0)
    ids = {node.id: sessions.open(node.id, "") for node in NODES}
    Orders(snapshot(NODES), sessions, prepares=False).stop(view)
    assert [o.order for o in sessions.orders(ids["left"], 0, 0.0)] == [StopRun(present(view), 30.0)]
    assert sessions.orders(ids["right"], 0, 0.0) == []


def test_a_hello_of_the_node_to_which_a_job_moves_does_not_start_it_while_it_runs_on_the_other():
    view, sessions = moving(), Sessions(300.0)
    state = replace(snapshot(NODES, submitted(Job("a"))), jobs=versioned([("a", view)]))
    session = sessions.open("right", "")
    orders = Orders(state, sessions, prepares=False)
    assert Reconciliation(Hello(NODES[1], ""), sessions, orders, MultiNodeExits()).facts(state, 0.0) == []
    assert sessions.orders(session, 0, 0.0) == []
    assert not orders._standby.has_left(present(view))


def hello_of(node, view, orders, sessions, exits):
    """The orders for a node whose agent says hello without any run."""
    session = sessions.open(node.id, "")
    state = orders.snapshot = replace(snapshot(NODES, submitted(Job("a"))), jobs=versioned([("a", view)]))
    assert Reconciliation(Hello(node, ""), sessions, orders, exits).facts(state, 0.0) == []
    return [numbered.order for numbered in sessions.orders(session, 0, 0.0)]


def test_a_node_that_was_away_when_a_job_left_for_it_is_told_to_start_it_at_its_hello():
    view, sessions = moving(), Sessions(300.0)
    orders = Orders(snapshot(NODES), sessions, prepares=False)
    orders.left(view, Report(present(view), 3, 0.0, *LEFT))
    (start,) = hello_of(NODES[1], view, orders, sessions, MultiNodeExits())
    assert (type(start), start.run.number) == (StartRun, present(view).number + 1)


def test_a_job_on_two_nodes_starts_in_its_new_place_only_when_both_have_nothing_left_of_it():
    there = Holding("a", (Slice("left", (0,)), Slice("right", (0,))), (1, 1))
    to = Holding("a", (Slice("left", (1,)), Slice("right", (1,))), (1, 1))
    view = replace(moving(), tenancies=(Tenancy("", there, Doing.MOVING, to),))
    sessions, exits = Sessions(300.0), MultiNodeExits()
    orders = Orders(snapshot(NODES), sessions, prepares=False)
    assert hello_of(NODES[0], view, orders, sessions, exits) == []
    assert hello_of(NODES[0], view, orders, sessions, exits) == [], "the right one may still have its part"
    (start,) = hello_of(NODES[1], view, orders, sessions, exits)
    assert isinstance(start, StartRun)


def test_a_job_that_was_to_be_prepared_and_has_no_place_any_more_starts_cold():
    """It was paused by its user before its agent was told to prepare it, and the controller was killed then."""
    view = replace(snapshot(NODES, submitted(Job("a", warm=True))).jobs["a"], preparing=True)
    state = replace(snapshot(NODES, submitted(Job("a"))), jobs=versioned([("a", view)]))
    sessions = Sessions(300.0)
    hello = Reconciliation(Hello(NODES[0], ""), sessions, Orders(state, sessions, prepares=True), MultiNodeExits())
    assert hello.facts(state, 0.0) == [JobPrepared(0.0, "a")]
