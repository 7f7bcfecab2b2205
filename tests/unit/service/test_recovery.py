"""Whatever is cut short, by a kill or by a commit that fails, is taken up again: no job waits for ever.

The engine's thread is not started; the test makes one cycle after another, and so chooses where it is cut.
"""

import time

import pytest
from msgspec.structs import replace

from hocket.agent.protocol import Hello, PrepareRun, Report, RunKey, StartRun, StopRun
from hocket.control.drive import step
from hocket.control.journal import JournalError
from hocket.control.ports import UnknownSession
from hocket.executors.agents.executor import agents
from hocket.executors.agents.standby_runs import ResizeBy
from hocket.model.event import JobAsked, JobRequest, JobSubmitted, NodeLost
from hocket.model.job import Job, Launch
from hocket.model.partition import EPOCH, NOW, Partition, Tenant
from hocket.model.plan import Plan
from hocket.model.resources import Node, Slice
from hocket.policies import find
from hocket.policies.registry import Params, Policy
from hocket.service import engine as engine_module
from hocket.service.engine import Engine, Unavailable

NODE = Node("here", gpus=1, cores=4.0)
STARTED = ("started", {"pids": [1], "warm": False})
LEFT = ("exited", {"code": 0, "signal": None, "asked": True})


class Stepped:
    """An engine cycle by cycle, and its only agent."""

    def __init__(self, path, policy, **options):
        self.path, self.policy, self.options = str(path), policy, options
        self.said = 0
        self.up()

    def up(self):
        self.engine = Engine(self.path, agents(300.0, **self.options), self.policy)

    def killed(self):
        """Nothing is left of the controller but its journal; its agent has yet to say hello."""
        self.engine.journal.close()
        self.up()

    def cycle(self):
        moment = self.engine.executor.wait(time.time())
        self.engine._controller = step(self.engine._controller, self.engine.executor, self.engine, moment)

    def rest(self):
        """Cycle until there is nothing to take in."""
        while self.engine.executor._inbox or self.engine.executor._ready:
            self.cycle()

    def hello(self, *runs):
        self.session = self.engine.sessions.open(NODE.id, "127.0.0.1")
        self.engine.executor.post(self.engine.executor.hello(Hello(NODE, "127.0.0.1", runs)))
        self.rest()

    def post(self, *events):
        return self.engine.executor.post(lambda _state, now_s: [replace(e, at_s=now_s) for e in events])

    def submit(self, *jobs):
        self.post(*(JobSubmitted(0.0, job) for job in jobs))
        self.rest()

    def stop(self, name):
        return self.post(JobAsked(0.0, name, JobRequest.STOP))

    def say(self, run, *events):
        reports = []
        for event, fields in events:
            self.said += 1
            reports.append(Report(run, self.said, time.time(), event, fields))
        self.engine.executor.report(reports, NODE.id)
        self.rest()

    def start(self, *jobs):
        """They are submitted, and the first runs."""
        self.submit(*jobs)
        order = next(order for order in self.orders() if isinstance(order, StartRun))
        self.say(order.run, STARTED)
        self.orders()
        return order.run

    def orders(self):
        """Those that wait for the agent; they are taken."""
        found = self.engine.sessions.orders(self.session, 0, 0.0)
        if found:
            self.engine.sessions.orders(self.session, found[-1].n, 0.0)
        return [numbered.order for numbered in found]

    def fails_once(self, *, commits=False):
        """The next commit fails, or took place and is said to have failed."""
        journal, real = self.engine.journal, self.engine.journal._commit

        def fail(rows):
            journal._commit = real
            if commits:
                real(rows)
            raise JournalError("the disk is full")

        journal._commit = fail

    def verdict(self, name):
        return self.engine.catalogue.records[name].verdict

    def view(self, name):
        return self.engine.snapshot.jobs[name]


@pytest.fixture
def make(tmp_path):
    made = []

    def new(policy=None, **options):
        world = Stepped(tmp_path / "journal.db", policy or find("fifo").bound(), **options)
        made.append(world)
        world.hello()
        return world

    yield new
    for world in made:
        world.engine.close()


@pytest.fixture
def world(make):
    return make()


def job(name="a", **fields):
    return Job(name, command=("train",), launch=Launch(cwd="/", grace_s=7.0), **fields)


# -- ends ---------------------------------------------------------------------------------------------------


def test_a_waiting_job_that_was_stopped_is_over_though_the_controller_was_killed_right_then(world):
    run = world.start(job("a"), job("b"))
    asked = world.stop("b")
    world.cycle()
    assert asked.done()
    world.killed()
    world.rest()
    assert world.verdict("b") == "stopped"
    world.hello(run)
    assert list(world.engine.snapshot.jobs) == ["a"]


@pytest.mark.parametrize("commits", [False, True])
def test_a_waiting_job_that_was_stopped_is_over_though_a_commit_failed(world, commits):
    world.start(job("a"), job("b"))
    world.stop("b")
    world.cycle()
    world.fails_once(commits=commits)
    world.cycle()  # The one in which it is over.
    world.rest()
    assert world.verdict("b") == "stopped"
    assert list(world.engine.snapshot.jobs) == ["a"]
    assert world.engine.catalogue.over["stopped"] == 1


def test_a_job_whose_node_is_lost_while_it_is_being_stopped_is_over(world):
    run = world.start(job())
    world.stop("a")
    world.rest()
    assert world.orders() == [StopRun(run, 7.0)]
    world.post(NodeLost(0.0, NODE.id, "its agent is silent"))
    world.rest()
    assert world.verdict("a") == "stopped"
    assert world.engine.catalogue.over["stopped"] == 1


# -- orders -------------------------------------------------------------------------------------------------


def test_after_a_failed_commit_every_agent_says_hello_again_and_is_told_what_it_has_not_heard(world):
    world.fails_once(commits=True)
    asked = world.post(JobSubmitted(0.0, job()))
    world.cycle()
    with pytest.raises(Unavailable, match="the disk is full"):
        asked.result(0)
    assert str(world.view("a").state) == "starting", "the journal has it"
    with pytest.raises(UnknownSession):
        world.orders()
    world.hello()
    (order,) = world.orders()
    assert order.run == RunKey("a", 1)


def test_a_journal_that_can_be_read_and_not_written_is_not_restored_over_and_over(world, monkeypatch):
    slept = []
    monkeypatch.setattr(engine_module, "sleep", slept.append)
    for expected in ([], [1.0], [1.0, 1.0]):  # The first failure may be a single one.
        world.fails_once()
        world.stop("nobody")
        world.cycle()
        assert slept == expected


def test_after_a_failed_commit_an_agent_has_its_lease_to_say_hello(world):
    run = world.start(job())
    world.engine.executor._began_s = time.time() - 1000.0  # It has been up for long.
    world.fails_once()
    world.stop("nobody")
    world.cycle()
    world.cycle()
    assert world.engine.snapshot.nodes[NODE.id].up
    world.hello(run)
    assert str(world.view("a").state) == "running"
    assert world.orders() == []


def test_what_an_agent_reported_in_a_cycle_that_failed_is_heard_when_it_says_it_again(world):
    run = world.start(job())
    world.fails_once()
    report = Report(run, 99, time.time(), "exited", {"code": 0, "signal": None, "asked": False})
    heard = world.engine.executor.report([report], NODE.id)
    world.cycle()
    assert heard.exception(0) is not None
    world.hello(run)
    world.engine.executor.report([report], NODE.id)
    world.rest()
    assert world.verdict("a") == "finished"


# -- what needs no agent ------------------------------------------------------------------------------------


def by_epochs(snapshot, _params):
    """A job that runs shall change its place at the end of its epochs only, from the second decision on."""
    put = [
        Partition(v.id, (Slice(NODE.id, (0,)),), (Tenant(v.id, (1,), boundary=EPOCH if v.size else NOW),))
        for v in snapshot.jobs.values()
        if v.size or not v.partitions
    ]
    return Plan(tuple(put), reasons={"*": "so"})


BY_EPOCHS = Policy("by-epochs", by_epochs, Params, lambda _view, _now_s, _params: (), "", "", "").bound()


@pytest.mark.parametrize("killed", [False, True])
def test_a_job_that_only_got_another_boundary_runs_on_though_that_was_cut_short(make, killed):
    world = make(BY_EPOCHS)
    run = world.start(job())
    world.engine.executor.report([Report(run, 9, time.time(), "progress", {"epoch": 1, "metrics": {}})], NODE.id)
    world.cycle()
    (tenancy,) = world.view("a").tenancies
    assert str(tenancy.doing) == "resizing"
    if killed:
        world.killed()
    else:
        world.fails_once()
        world.cycle()
    # The hello comes in the very cycle in which the change is said to be done.
    world.hello(run)
    (tenancy,) = world.view("a").tenancies
    assert (str(tenancy.doing), tenancy.holding.boundary) == ("nothing", EPOCH)
    assert world.orders() == []
    assert world.view("a").starts == 1


def test_a_job_that_starts_cold_is_as_good_as_prepared_though_that_was_cut_short(make):
    world = make(find("edf").bound(), resize_by=ResizeBy.TERMINATE)
    run = world.start(job("old", deadline_s=1e6))
    world.post(JobSubmitted(0.0, job("new", deadline_s=10.0, warm=True)))
    world.cycle()
    assert world.view("new").preparing
    world.killed()
    world.hello(run)
    assert not any(isinstance(order, PrepareRun) for order in world.orders())
    world.say(run, LEFT)
    (order,) = world.orders()
    assert order.run == RunKey("new", 1)


# -- preparations -------------------------------------------------------------------------------------------


class Wanted:
    """A policy that gives the only GPU to the job that the test names."""

    def __init__(self):
        self.job = ""
        self.policy = Policy("wanted", self.decide, Params, lambda _view, _now_s, _params: (), "", "", "").bound()

    def decide(self, snapshot, _params):
        put = [Partition(self.job, (Slice(NODE.id, (0,)),), (Tenant(self.job, (1,)),))]
        wanted = self.job in snapshot.jobs and self.job not in snapshot.partitions and snapshot.nodes[NODE.id].up
        drop = tuple(pid for pid in snapshot.partitions if pid != self.job)
        return Plan(tuple(put) if wanted else (), drop, reasons={"*": "so"})


def test_a_job_starts_though_the_node_is_lost_on_which_it_was_prepared_for_a_plan_that_was_withdrawn(make):
    wanted = Wanted()
    world = make(wanted.policy)
    wanted.job = "old"
    run = world.start(job("old"))
    wanted.job = "new"
    world.submit(job("new", warm=True))
    (prepare,) = world.orders()
    assert isinstance(prepare, PrepareRun)
    wanted.job = "old"
    world.say(run, ("progress", {"epoch": 1, "metrics": {}}))
    assert world.view("new").partitions == ()
    world.post(NodeLost(0.0, NODE.id, "its agent is silent"))
    world.rest()
    wanted.job = "new"
    world.hello()
    assert RunKey("new", 1) in [order.run for order in world.orders() if isinstance(order, StartRun)]
