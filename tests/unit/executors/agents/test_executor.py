"""Orders and reports: an engine on a real journal, and an agent whose every word the test says."""

import time

import pytest
from msgspec.structs import replace

from hocket.agent.protocol import ForgetJob, Hello, PrepareRun, Report, RunKey, StartRun, StopRun
from hocket.executors.agents.executor import agents
from hocket.model.criterion import parse
from hocket.model.event import JobAsked, JobRequest, JobSubmitted
from hocket.model.job import Job, Launch
from hocket.model.resources import Node
from hocket.model.snapshot import Snapshot
from hocket.policies import find
from hocket.service.engine import Engine

NODE = Node("here", gpus=2, cores=4.0, mem_mib=4096.0)
PATIENCE_S = 60.0  # far more than anything here takes


class World:
    """A controller that may be killed, and what its only agent says and hears."""

    def __init__(self, path, policy="las", lease_s=300.0):
        self.path, self.policy, self.lease_s = path, policy, lease_s
        self.n = {}
        self.up()

    def up(self):
        self.engine = Engine(str(self.path), agents(self.lease_s), find(self.policy).bound())
        self.engine.start()

    def restart(self):
        """As after a kill: nothing of the old one is left but its journal."""
        self.engine.close()
        self.up()

    def hello(self, *runs, jobs=()):
        self.session = self.engine.sessions.open(NODE.id, "127.0.0.1")
        self.taken = 0
        said = Hello(NODE, "127.0.0.1", runs, jobs)
        self.engine.executor.post(self.engine.executor.hello(said)).result(PATIENCE_S)

    def submit(self, *jobs):
        def make(_snapshot: Snapshot, now_s: float):
            return [JobSubmitted(now_s, job) for job in jobs]

        self.engine.executor.post(make).result(PATIENCE_S)

    def ask(self, job, request):
        self.engine.executor.post(lambda _state, now_s: [JobAsked(now_s, job, request)]).result(PATIENCE_S)

    def orders(self, count=1):
        """The next orders, as many as are expected; fails when they do not come, or more do."""
        found = []
        until = time.monotonic() + PATIENCE_S
        while len(found) < count and time.monotonic() < until:
            new = self.engine.sessions.orders(self.session, self.taken, 0.2)
            found += [numbered.order for numbered in new]
            self.taken = new[-1].n if new else self.taken
        more = self.engine.sessions.orders(self.session, self.taken, 0.05)
        assert len(found) == count, found
        assert not more, more
        return found

    def say(self, run, *events, again=False):
        reports = []
        for event, fields in events:
            if not again:
                self.n[run] = self.n.get(run, 0) + 1
            reports.append(Report(run, 0 if event == "lost" else self.n[run], time.time(), event, fields))
        self.engine.executor.report(reports, NODE.id).result(PATIENCE_S)

    def state(self, job):
        view = self.engine.snapshot.jobs.get(job)
        return None if view is None else str(view.state)

    def verdict(self, job):
        return self.engine.catalogue.records[job].verdict


def job(name="a", **fields):
    return Job(name, command=("python", "train.py"), launch=Launch(cwd="/", grace_s=7.0), retries=3, **fields)


STARTED = ("started", {"pids": [1], "warm": False})
LEFT = ("exited", {"code": 0, "signal": None, "asked": True})
FINISHED = ("exited", {"code": 0, "signal": None, "asked": False})


def broke(code=3):
    return ("exited", {"code": code, "signal": None, "asked": False})


def test_a_job_runs_to_its_end(world):
    world.submit(job(sizes=(2,)))
    (order,) = world.orders()
    assert isinstance(order, StartRun)
    assert order.run == RunKey("a", 1)
    assert order.env["CUDA_VISIBLE_DEVICES"] == "0,1"
    assert order.spec["argv"] == ["python", "train.py"]
    world.say(order.run, STARTED)
    assert world.state("a") == "running"
    world.say(order.run, ("progress", {"epoch": 1, "metrics": {"acc": 0.5}}), FINISHED)
    assert world.state("a") is None
    assert world.verdict("a") == "finished"
    assert world.engine.catalogue.records["a"].metrics == {"acc": 0.5}
    assert world.orders() == [ForgetJob("a")]


def test_a_whole_life_in_one_call(world):
    world.submit(job())
    (order,) = world.orders()
    world.say(order.run, STARTED, ("progress", {"epoch": 1, "metrics": {}}), FINISHED)
    assert world.verdict("a") == "finished"


def test_a_job_that_breaks_starts_again_as_another_run(world):
    world.submit(job())
    runs = []
    for _ in range(4):
        (order,) = world.orders()
        runs.append(order.run.number)
        world.say(order.run, STARTED, broke())
    assert runs == sorted(set(runs))
    assert world.verdict("a") == "failed"
    assert "exit code 3" in world.engine.catalogue.records["a"].reason
    assert world.orders() == [ForgetJob("a")]


def test_a_command_that_cannot_start_is_not_tried_again(world):
    world.submit(job())
    (order,) = world.orders()
    world.say(order.run, ("cannot-start", {"reason": "command 'python' does not exist"}))
    assert world.verdict("a") == "failed"
    assert "'python'" in world.engine.catalogue.records["a"].reason


def test_a_lost_sidecar_is_not_the_jobs_fault(world):
    world.submit(job(backoff_s=0.001))
    for _ in range(6):
        (order,) = world.orders()
        world.say(order.run, STARTED)
        world.say(order.run, ("lost", {}))
    assert world.engine.snapshot.jobs["a"].crashes == 0


def test_a_job_that_kills_its_sidecar_again_and_again_rests(world):
    world.submit(job(backoff_s=1000.0))
    for _ in range(2):  # The first time it may have been anything, and it starts again at once.
        (order,) = world.orders()
        world.say(order.run, STARTED)
        world.say(order.run, ("lost", {}))
    assert world.orders(0) == []
    view = world.engine.snapshot.jobs["a"]
    assert (str(view.held), view.crashes) == ("rests", 0)


def test_pause_and_resume(world):
    world.submit(job())
    (order,) = world.orders()
    world.say(order.run, STARTED)
    world.ask("a", JobRequest.PAUSE)
    assert world.orders() == [StopRun(order.run, 7.0)]
    world.say(order.run, LEFT)
    assert world.state("a") == "paused"
    world.ask("a", JobRequest.RESUME)
    (again,) = world.orders()
    assert again.run == RunKey("a", order.run.number + 1)


def test_stopped_while_it_starts(world):
    world.submit(job())
    (order,) = world.orders()
    world.ask("a", JobRequest.STOP)
    assert world.orders() == [StopRun(order.run, 7.0)]
    world.say(order.run, STARTED, ("exited", {"code": None, "signal": "SIGTERM", "asked": True}))
    assert world.verdict("a") == "stopped"


def test_a_waiting_job_is_stopped_without_an_agent(world):
    world.submit(job("a", sizes=(2,)), job("b"))
    world.orders()
    world.ask("b", JobRequest.STOP)
    assert world.orders(0) == []  # No agent has anything of it.
    assert world.verdict("b") == "stopped"


def test_reports_said_twice_count_once(world):
    world.submit(job())
    (order,) = world.orders()
    world.say(order.run, STARTED)
    progress = ("progress", {"epoch": 1, "metrics": {"acc": 0.5}})
    world.say(order.run, progress)
    world.say(order.run, progress, again=True)
    assert len(world.engine.snapshot.jobs["a"].observations) == 1
    world.restart()
    world.hello(order.run)
    world.say(order.run, progress, again=True)
    assert len(world.engine.snapshot.jobs["a"].observations) == 1


def test_an_exit_of_an_earlier_run_means_nothing(world):
    world.submit(job())
    (first,) = world.orders()
    world.say(first.run, STARTED)
    world.ask("a", JobRequest.PAUSE)
    world.orders()
    world.say(first.run, LEFT)
    world.ask("a", JobRequest.RESUME)
    (second,) = world.orders()
    world.say(second.run, STARTED)
    world.restart()
    world.hello(second.run)
    world.say(first.run, LEFT, again=True)
    assert world.state("a") == "running"


def test_an_order_that_never_came_through_is_given_again(world):
    world.submit(job())
    world.engine.sessions.end(NODE.id)  # The agent has not fetched it, and the controller dies.
    world.restart()
    world.hello()
    (order,) = world.orders()
    assert order.run == RunKey("a", 1)


def test_an_order_to_start_is_given_again_to_an_agent_that_may_only_have_prepared_the_run(world):
    world.submit(job())
    (order,) = world.orders()
    world.restart()
    world.hello(order.run)  # Whether it stands ready or is about to start, the agent knows.
    assert world.orders() == [order]


def test_a_controller_comes_back_to_a_job_that_ran_on(world):
    world.submit(job())
    (order,) = world.orders()
    world.say(order.run, STARTED)
    world.restart()
    world.hello(order.run)
    assert world.orders(0) == []
    assert world.state("a") == "running"
    world.say(order.run, FINISHED)
    assert world.verdict("a") == "finished"


def test_a_controller_comes_back_to_an_agent_that_lost_everything(world):
    world.submit(job())
    (order,) = world.orders()
    world.say(order.run, STARTED)
    world.restart()
    world.hello()
    (again,) = world.orders()
    assert isinstance(again, StartRun)
    assert again.run.number > order.run.number


def test_a_controller_comes_back_in_the_middle_of_a_pause(world):
    world.submit(job())
    (order,) = world.orders()
    world.say(order.run, STARTED)
    world.ask("a", JobRequest.PAUSE)
    world.restart()
    world.hello(order.run)
    assert world.orders() == [StopRun(order.run, 7.0)]
    world.restart()
    world.hello()
    assert world.state("a") == "paused"


def test_runs_that_are_not_wanted_are_ended(world):
    world.submit(job())
    (order,) = world.orders()
    world.say(order.run, STARTED)
    world.restart()
    world.hello(RunKey("long-ago", 4), RunKey("a", 0), order.run)
    assert world.orders(2) == [ForgetJob("long-ago"), StopRun(RunKey("a", 0), 0.0)]


@pytest.mark.parametrize("agent_is_new", [False, True])
def test_what_is_over_is_forgotten_though_the_order_was_lost_with_the_controller(world, agent_is_new):
    world.submit(job("over"), job("runs"))
    first, second = world.orders(2)
    world.say(first.run, STARTED, ("exited", {"code": 0, "signal": None, "asked": False}))
    world.say(second.run, STARTED)
    assert world.verdict("over") == "finished"
    world.restart()
    world.hello(*[] if agent_is_new else [second.run], jobs=("over", "runs"))
    assert world.orders(2 if agent_is_new else 1)[0] == ForgetJob("over")


def test_a_silent_node_is_lost_and_comes_back(tmp_path):
    world = World(tmp_path / "journal.db", lease_s=300.0)
    world.hello()
    world.submit(job())
    (order,) = world.orders()
    world.say(order.run, STARTED)
    world.engine.sessions.lease_s = 0.1  # From here on it is silent.
    until = time.monotonic() + PATIENCE_S
    while world.state("a") == "running" and time.monotonic() < until:
        time.sleep(0.02)
    assert not world.engine.snapshot.nodes["here"].up
    world.engine.sessions.lease_s = 300.0
    world.hello(order.run)
    stop, run = world.orders(2)
    assert stop == StopRun(order.run, 0.0)  # It is not forgotten: an older journal may ask for its numbers.
    assert run.run.number > order.run.number
    world.engine.close()


def prepared_while_another_leaves(world):
    """A warm job waits for the place of one that was told to go: the orders to run that, to stop it, to prepare."""
    world.submit(job("old", sizes=(2,)))
    (order,) = world.orders()
    world.say(order.run, STARTED)
    world.ask("old", JobRequest.PAUSE)
    (stop,) = world.orders()
    world.submit(job("new", sizes=(2,), warm=True))
    (prepare,) = world.orders()
    return order, stop, prepare


def test_a_warm_job_is_prepared_while_another_leaves(world):
    _order, stop, prepare = prepared_while_another_leaves(world)
    assert isinstance(prepare, PrepareRun)
    assert prepare.spec["warm"]
    world.say(prepare.run, ("prepared", {}))
    world.say(stop.run, LEFT)
    (run,) = world.orders()
    assert isinstance(run, StartRun)
    assert run.run == prepare.run


@pytest.mark.parametrize("is_late", [False, True], ids=["at once", "late"])
def test_what_was_prepared_on_another_node_is_stopped_when_the_run_has_started(world, is_late):
    _order, _stop, prepare = prepared_while_another_leaves(world)
    ready = ("prepared", {"warm": True})
    if not is_late:
        world.say(prepare.run, ready)
    world.ask("new", JobRequest.PAUSE)  # What stands prepared stays.
    world.submit(job("between", sizes=(2,)))
    other = replace(NODE, id="there")
    world.engine.sessions.open(other.id, "127.0.0.1")
    world.engine.executor.post(world.engine.executor.hello(Hello(other, "127.0.0.1"))).result(PATIENCE_S)
    world.ask("new", JobRequest.RESUME)
    assert [t.coming.slices[0].node for t in world.engine.snapshot.jobs["new"].tenancies] == ["there"]
    started = [Report(prepare.run, n, time.time(), *said) for n, said in enumerate([ready, STARTED], 1)]
    world.engine.executor.report(started, other.id).result(PATIENCE_S)
    if is_late:
        assert world.orders(0) == []
        world.say(prepare.run, ready)
    assert world.orders() == [StopRun(prepare.run, 0.0)]
    world.say(prepare.run, ("exited", {"code": None, "signal": None, "asked": True}))
    assert world.state("new") == "running"


def test_a_controller_comes_back_to_a_run_that_stands_prepared_and_asks_for_it_again(world):
    order, stop, prepare = prepared_while_another_leaves(world)
    world.restart()
    world.hello(order.run, prepare.run)  # It may have been reported as ready before it was needed.
    assert world.orders(2) == [stop, prepare]
    world.say(prepare.run, ("prepared", {}))
    world.say(stop.run, LEFT)
    (run,) = world.orders()
    assert run.run == prepare.run


def test_a_goal_about_what_the_job_never_reports_is_warned_of(world):
    world.submit(job(criterion=parse("acc >= 90%")))
    (order,) = world.orders()
    world.say(order.run, STARTED)
    world.say(order.run, ("progress", {"epoch": 1, "metrics": {"loss": 0.5}}))
    record = world.engine.catalogue.records["a"]
    assert record.unseen == "its criterion is about 'acc', and it has reported loss so far"
    world.say(order.run, ("metric-unseen", {"metric": "acc", "after_s": 60.0, "read": ["loss"], "lines": ["a", "b"]}))
    assert "not seen in its first 60 s: what was read is loss; it printed last: 'a' | 'b'; --progress" in record.unseen
    world.say(order.run, ("progress", {"epoch": 2, "metrics": {"acc": 0.95}}))
    assert record.unseen == ""
    assert world.orders() == [StopRun(order.run, 7.0)]


def test_a_step_that_does_not_tell_all_is_no_reason_for_a_warning(world):
    world.submit(job(criterion=parse("val_loss <= 2")))
    (order,) = world.orders()
    world.say(order.run, STARTED)
    world.say(order.run, ("progress", {"step": 10, "metrics": {"loss": 4.5}}))
    assert world.engine.catalogue.records["a"].unseen == ""
    world.say(order.run, ("progress", {"step": 250, "metrics": {"val_loss": 2.5}}))
    # Of an attempt that has not come to it, though one before had.
    world.say(order.run, ("metric-unseen", {"metric": "val_loss", "after_s": 60.0, "read": [], "lines": []}))
    record = world.engine.catalogue.records["a"]
    assert (record.unseen, record.warnings, record.step) == ("", [], 250)
    world.say(order.run, ("progress", {"step": 500, "metrics": {"val_loss": 1.9}}))
    assert world.orders() == [StopRun(order.run, 7.0)]
