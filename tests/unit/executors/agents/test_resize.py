"""A change of size by orders and reports: the next run stands ready before the present one is asked to leave."""

import pytest
from tests.unit.executors.agents.test_executor import LEFT, NODE, STARTED, World, broke, job

from hocket.agent.protocol import ForgetJob, PrepareRun, RunKey, StartRun, StopRun
from hocket.executors.agents.executor import agents
from hocket.executors.agents.standby_runs import ResizeBy
from hocket.model.event import JobRequest
from hocket.policies import find
from hocket.service.engine import Engine

READY = ("prepared", {"warm": True})
COLD = ("prepared", {"warm": False, "reason": "an import failed"})


class Resizing(World):
    """Two devices, and a policy by which an elastic job shrinks for a newcomer and grows when that is gone."""

    resize_by = ResizeBy.EARLY

    def up(self):
        policy = find("fair").bound({"quantum_s": 0.0})
        self.engine = Engine(str(self.path), agents(self.lease_s, self.resize_by), policy)
        self.engine.start()

    def begin(self, warm=True):
        """The elastic job runs on both devices."""
        self.submit(elastic(warm=warm))
        orders = self.orders(2 if warm and self.resize_by is ResizeBy.EARLY else 1)
        self.say(orders[-1].run, STARTED)
        return orders

    def devices(self, name):
        view = self.engine.snapshot.jobs[name]
        return [gpu for tenancy in view.tenancies for part in tenancy.holding.slices for gpu in part.gpus]


def elastic(name="a", **fields):
    return job(name, sizes=(1, 2), owner="x", **fields)


def newcomer(name="b", **fields):
    return job(name, owner="y", **fields)


@pytest.fixture
def kind_of_world():
    return Resizing


@pytest.fixture
def terminating(tmp_path):
    found = Resizing.__new__(Resizing)
    found.resize_by = ResizeBy.TERMINATE
    found.__init__(tmp_path / "journal.db")
    found.hello()
    yield found
    found.engine.close()


def test_a_job_that_can_be_prepared_starts_from_what_is_prepared_and_the_next_run_is_prepared_at_once(world):
    prepare, run = world.begin()
    assert (type(prepare), type(run)) == (PrepareRun, StartRun)
    assert prepare.run == run.run == RunKey("a", 1)
    (spare,) = world.orders()
    assert isinstance(spare, PrepareRun)
    assert spare.run == RunKey("a", 2)


def test_a_job_of_one_size_has_no_process_that_stands_by(world):
    world.submit(job(sizes=(2,), warm=True))
    _prepare, run = world.orders(2)
    world.say(run.run, STARTED)
    assert world.orders(0) == []


def test_the_donor_is_asked_to_leave_once_the_newcomer_and_its_own_next_run_stand_ready(world):
    world.begin()
    (spare,) = world.orders()
    world.submit(newcomer(warm=True))
    (prepare,) = world.orders()
    assert (type(prepare), prepare.run) == (PrepareRun, RunKey("b", 1))
    world.say(prepare.run, READY)
    assert world.orders() == [spare]  # It is asked again, in case the order was lost; the donor trains on.
    world.say(spare.run, READY)
    assert world.orders() == [StopRun(RunKey("a", 1), 7.0)]
    world.say(RunKey("a", 1), LEFT)
    (run,) = world.orders()
    assert (type(run), run.run, run.env["CUDA_VISIBLE_DEVICES"]) == (StartRun, RunKey("a", 2), "0")
    assert len(world.devices("a")) == 2, "no other job may have them yet"
    world.say(run.run, STARTED)
    start, following = world.orders(2)
    assert (type(start), start.run, start.env["CUDA_VISIBLE_DEVICES"]) == (StartRun, RunKey("b", 1), "1")
    assert (type(following), following.run) == (PrepareRun, RunKey("a", 3))


def test_a_next_run_that_stands_ready_already_is_not_waited_for(world):
    world.begin()
    (spare,) = world.orders()
    world.say(spare.run, READY)
    world.submit(newcomer())
    assert world.orders() == [StopRun(RunKey("a", 1), 7.0)]


def test_what_stands_by_a_paused_job_serves_when_it_comes_back(world):
    world.begin()
    (spare,) = world.orders()
    world.say(spare.run, READY)
    world.ask("a", JobRequest.PAUSE)
    world.orders()
    world.say(RunKey("a", 1), LEFT)
    world.submit(newcomer("b"), newcomer("c"))
    for run in world.orders(2):
        world.say(run.run, STARTED)
    world.ask("a", JobRequest.RESUME)
    (prepare,) = world.orders()
    assert (type(prepare), prepare.run) == (PrepareRun, spare.run)
    world.say(spare.run, READY, again=True)  # It has said so before, and is asked again.
    (stop,) = world.orders()
    assert stop.run.job in ("b", "c")
    world.say(stop.run, LEFT)
    (run,) = world.orders()
    assert (type(run), run.run) == (StartRun, spare.run)


def test_a_newcomer_that_cannot_be_prepared_starts_cold(world):
    world.begin()
    (spare,) = world.orders()
    world.say(spare.run, READY)
    world.submit(newcomer(warm=True))
    (prepare,) = world.orders()
    world.say(prepare.run, COLD)
    assert world.orders() == [StopRun(RunKey("a", 1), 7.0)]
    world.say(RunKey("a", 1), LEFT)
    (run,) = world.orders()
    world.say(run.run, STARTED)
    start, _following = world.orders(2)
    assert (type(start), start.run) == (StartRun, RunKey("b", 1))


@pytest.mark.parametrize("how", [COLD, ("cannot-start", {"reason": "no space"}), ("lost", {})], ids=lambda how: how[0])
def test_a_next_run_that_cannot_be_prepared_costs_the_job_nothing_but_time(world, how):
    world.begin()
    (spare,) = world.orders()
    world.submit(newcomer())
    assert world.orders() == [spare]
    world.say(spare.run, how)
    assert world.orders() == [StopRun(RunKey("a", 1), 7.0)]
    assert world.engine.snapshot.jobs["a"].failures == 0
    world.say(RunKey("a", 1), LEFT)
    assert world.orders(1 if how is COLD else 2)[-1].run == spare.run


def test_a_job_that_is_stopped_while_it_waits_for_its_next_run_holds_its_devices_until_it_has_left(world):
    world.begin()
    (spare,) = world.orders()
    world.submit(newcomer())
    world.orders()
    world.ask("a", JobRequest.STOP)
    assert world.orders(2) == [StopRun(RunKey("a", 1), 7.0), StopRun(spare.run, 7.0)]
    world.say(spare.run, LEFT)
    assert world.state("a") is not None
    assert world.orders(0) == []
    world.say(RunKey("a", 1), LEFT)
    assert world.state("a") is None
    forget, start = sorted(world.orders(2), key=lambda order: type(order).__name__)
    assert (forget, start.run) == (ForgetJob("a"), RunKey("b", 1))


def test_what_stands_by_is_stopped_when_the_run_before_it_breaks(world):
    world.begin()
    (spare,) = world.orders()
    world.say(spare.run, READY)
    world.say(RunKey("a", 1), broke())
    _prepare, run, stop = world.orders(3)
    assert run.run == RunKey("a", 3)
    assert stop == StopRun(spare.run, 0.0)


def test_what_is_ready_only_after_its_number_was_passed_over_is_stopped(world):
    world.begin()
    (spare,) = world.orders()
    world.say(RunKey("a", 1), broke())
    _prepare, run = world.orders(2)
    world.say(run.run, STARTED)
    assert run.run.number > spare.run.number
    world.orders()  # to prepare the run after it
    world.say(spare.run, READY)
    assert world.orders() == [StopRun(spare.run, 0.0)]


def test_a_controller_that_comes_back_in_the_middle_goes_on_with_what_stands_ready(world):
    world.begin()
    (spare,) = world.orders()
    world.say(spare.run, READY)
    world.submit(newcomer())
    world.orders()
    world.restart()
    world.hello(RunKey("a", 1), spare.run)
    assert world.orders() == [spare]
    world.say(spare.run, READY, again=True)
    assert world.orders() == [StopRun(RunKey("a", 1), 7.0)]
    world.restart()
    world.hello(spare.run)  # The old run has left meanwhile.
    (*_, run) = world.orders(2)
    assert (type(run), run.run) == (StartRun, spare.run)


def test_a_controller_that_comes_back_keeps_what_stands_by(world):
    world.begin()
    (spare,) = world.orders()
    world.say(spare.run, READY)
    world.restart()
    world.hello(RunKey("a", 1), spare.run)
    assert world.orders() == [spare]


def test_a_run_that_was_let_go_as_it_stood_by_is_told_to_start_again(world):
    world.begin()
    (spare,) = world.orders()
    world.say(spare.run, READY)
    world.ask("a", JobRequest.PAUSE)
    world.orders()
    world.say(RunKey("a", 1), LEFT)
    world.ask("a", JobRequest.RESUME)
    (run,) = world.orders()
    assert run.run == spare.run
    world.say(spare.run, ("exited", {"code": None, "signal": None, "asked": True}))
    (again,) = world.orders()
    assert again == run
    assert world.engine.snapshot.jobs["a"].failures == 0


def test_a_next_run_that_is_let_go_after_the_present_one_left_is_told_to_start_again(world):
    world.begin()
    (spare,) = world.orders()
    world.say(spare.run, READY)
    world.submit(newcomer())
    world.orders()
    world.say(RunKey("a", 1), LEFT)
    (run,) = world.orders()
    assert run.run == spare.run
    world.say(spare.run, ("exited", {"code": None, "signal": None, "asked": True}))
    assert run in world.orders()
    assert world.engine.snapshot.jobs["a"].failures == 0


def test_by_termination_nothing_is_prepared(terminating):
    world = terminating
    (run,) = world.begin()
    assert (type(run), run.run) == (StartRun, RunKey("a", 1))
    world.submit(newcomer(warm=True))
    assert world.orders() == [StopRun(RunKey("a", 1), 7.0)]
    world.say(RunKey("a", 1), LEFT)
    (again,) = world.orders()
    assert (type(again), again.run, again.spec["workers"]) == (StartRun, RunKey("a", 2), 1)
    world.say(again.run, STARTED)
    (start,) = world.orders()
    assert (type(start), start.run) == (StartRun, RunKey("b", 1))


def test_an_order_says_the_workers_of_this_run_and_the_most_of_any(world):
    command = ("torchrun", "train.py")
    world.submit(elastic(warm=True).__class__("a", command=command, sizes=(1, 2, 4), warm=True))
    prepare, _run = world.orders(2)
    assert (prepare.spec["workers"], prepare.spec["most_workers"]) == (2, 4)
    assert NODE.gpus == 2


def test_a_job_that_shall_change_in_the_cycle_in_which_it_has_started_leaves_when_its_next_run_is_ready(world):
    world.submit(elastic(warm=True))
    started = world.orders(2)[-1]
    world.submit(newcomer())  # It waits until the other runs, and can shrink.
    world.say(started.run, STARTED)
    prepared = next(order for order in world.orders(1) if isinstance(order, PrepareRun))
    world.say(prepared.run, READY)
    (stop,) = world.orders(1)
    assert isinstance(stop, StopRun)
    assert stop.run == started.run
