"""Which agents are connected, and which count as lost."""

from threading import Thread

import pytest

from hocket.agent.protocol import ForgetJob, RunKey, StartRun, StopRun
from hocket.control.ports import LateHello, NameTaken, UnknownSession
from hocket.executors.agents import sessions as sessions_module
from hocket.executors.agents.executor import AgentExecutor
from hocket.executors.agents.sessions import Sessions
from hocket.model.event import NodeLost
from hocket.model.resources import Node
from hocket.model.snapshot import empty_snapshot

LEASE_S = 15.0


class World:
    """A controller's executor that looks when it is told to, agents that are heard when the test says so."""

    def __init__(self, monkeypatch, lease_s=LEASE_S):
        self.now_s = 1000.0
        monkeypatch.setattr(sessions_module, "monotonic", lambda: self.now_s)
        self.sessions = Sessions(lease_s)
        snapshot = empty_snapshot([Node("n0", 1), Node("n1", 1)])
        self.executor = AgentExecutor(snapshot, self.sessions, clock=lambda: self.now_s)
        self.ids = {node: self.sessions.open(node, "127.0.0.1") for node in ("n0", "n1")}

    def after(self, seconds, *heard):
        """Time passes in which all threads stand still; agents are heard at its end. The nodes that are lost then."""
        self.now_s += seconds
        for node in heard:
            self.sessions.node_of(self.ids[node])
        _now_s, events = self.executor.wait(self.now_s)
        return [event.node for event in events if isinstance(event, NodeLost)]


@pytest.fixture
def world(monkeypatch):
    return World(monkeypatch)


def test_a_lost_node_is_a_warning_that_names_it(world, caplog):
    for _ in range(15):
        world.after(1.0, "n0")
    assert world.after(1.0, "n0") == ["n1"]
    (warning,) = [record for record in caplog.records if record.levelname == "WARNING" and hasattr(record, "node")]
    assert (warning.name, warning.node) == ("hocket.executors", "n1")
    assert warning.getMessage() == "node 'n1' is lost: its agent is silent for over 15 s"


def test_orders_are_logged_when_they_are_sent_and_when_they_are_taken(world, caplog):
    caplog.set_level("DEBUG", "hocket.executors")
    world.sessions.tell("n0", [StopRun(RunKey("a", 2), 1.0), ForgetJob("b")])
    world.sessions.tell("elsewhere", [ForgetJob("c")])
    world.sessions.orders(world.ids["n0"], 1, 0.0)
    assert [(r.levelname, r.getMessage(), r.job, r.node, r.n) for r in caplog.records] == [
        ("INFO", "order 1 (stop) for run 2 of job 'a' queued for node 'n0'", "a", "n0", 1),
        ("DEBUG", "order 2 (forget) for job 'b' queued for node 'n0'", "b", "n0", 2),
        ("DEBUG", "order 1 (stop) for run 2 of job 'a' taken by node 'n0'", "a", "n0", 1),
    ]
    assert caplog.records[0].run == 2


def test_a_node_that_is_silent_for_longer_than_its_lease_is_lost(world):
    for _ in range(15):
        assert world.after(1.0, "n0") == []
    assert world.after(1.0, "n0") == ["n1"]


def test_a_second_agent_of_a_name_takes_nothing_from_the_first_while_that_is_heard(world):
    first = world.sessions.open("n0", "10.0.0.1", "a")
    world.now_s += LEASE_S
    for other in ("b", ""):  # One that does not say which it is takes over nothing either.
        with pytest.raises(
            NameTaken, match=r"node 'n0' has an agent with another .*15\.0 s ago, at 10\.0\.0\.1.*--name"
        ):
            world.sessions.open("n0", "10.0.0.2", other)
    assert world.sessions.node_of(first) == "n0"
    again = world.sessions.open("n0", "10.0.0.1", "a")  # It was killed, and started again on its folder.
    assert world.sessions.node_of(again) == "n0"
    world.now_s += LEASE_S + 0.1
    second = world.sessions.open("n0", "10.0.0.2", "b")
    assert world.sessions.node_of(second) == "n0"


def test_a_controller_that_was_stopped_itself_takes_no_agent_for_lost(world):
    world.after(1.0)
    assert world.after(600.0) == []
    for _ in range(14):
        assert world.after(1.0, "n0") == []
    assert world.after(2.0, "n0") == ["n1"], "from then on each has its lease"


def test_a_controller_that_was_stopped_while_agents_had_yet_to_say_hello_waits_for_them(world):
    world.sessions.end_all()
    world.after(1.0)
    assert world.after(600.0) == []
    world.ids["n0"] = world.sessions.open("n0", "127.0.0.1")
    for _ in range(15):
        assert world.after(1.0, "n0") == []
    assert world.after(1.0, "n0") == ["n1"]


def test_a_controller_whose_cycles_all_take_long_loses_a_silent_node_all_the_same(world):
    assert world.after(10.0, "n0") == []
    assert world.after(10.0, "n0") == []
    assert world.after(10.0, "n0") == ["n1"]


def test_a_lease_shorter_than_a_wait_is_kept(monkeypatch):
    world = World(monkeypatch, lease_s=0.5)
    world.after(0.1)
    assert world.after(1.0, "n0") == ["n1"]


def test_when_all_sessions_end_every_agent_must_say_hello(world):
    world.sessions.end_all()
    with pytest.raises(UnknownSession):
        world.sessions.orders(world.ids["n0"], 0, 0.0)
    assert not world.sessions.has("n1")


def test_nothing_is_told_between_the_last_orders_and_the_silence(world):
    last, late = StopRun(RunKey("a", 1), 5.0), StopRun(RunKey("b", 1), 5.0)
    other = Thread(target=lambda: world.sessions.tell("n0", [late]))

    def orders():
        yield "n0", last
        other.start()
        other.join(0.2)  # It must wait for us; if it need not, it is done by then.

    world.sessions.hush(orders())
    other.join()
    assert [o.order for o in world.sessions.orders(world.ids["n0"], 0, 0.0)] == [last]


def test_a_hello_that_comes_after_a_later_one_of_the_same_agent_is_refused():
    sessions = Sessions(LEASE_S)
    second = sessions.open("n0", "", "folder", which=(1, 2))
    for late in ((1, 1), (1, 2)):  # under way for long, or sent twice
        with pytest.raises(LateHello, match="node 'n0' has said hello again since"):
            sessions.open("n0", "", "folder", which=late)
    assert sessions.node_of(second) == "n0"
    sessions.open("n0", "", "folder", which=(1, 3))
    sessions.open("n0", "", "folder", which=(2, 1))  # It was started again.
    sessions.open("n0", "", "folder")  # an older agent


def test_that_a_job_is_over_is_told_only_to_agents_that_may_have_files_of_it():
    sessions = Sessions(60.0)
    ran, has_files, other = (sessions.open(node, "127.0.0.1", node) for node in ("ran", "has-files", "other"))
    sessions.tell("ran", [StartRun(RunKey("a", 1), {}, {})])
    sessions.note_files("has-files", ["a", "b"])
    sessions.tell_forget("a")
    assert [each.order for each in sessions.orders(ran, 1, 0.0)] == [ForgetJob("a")]
    assert [each.order for each in sessions.orders(has_files, 0, 0.0)] == [ForgetJob("a")]
    assert sessions.orders(other, 0, 0.0) == []


def test_an_order_for_one_agent_wakes_no_other():
    sessions = Sessions(60.0)
    waits, other = sessions.open("n0", "127.0.0.1", "n0"), sessions.open("n1", "127.0.0.1", "n1")
    woken = []
    thread = Thread(target=lambda: woken.append(sessions.orders(other, 0, 30.0)))
    thread.start()
    sessions.tell("n0", [ForgetJob("a")])
    assert len(sessions.orders(waits, 0, 30.0)) == 1
    assert not woken
    sessions.close()
    thread.join()
    assert woken == [[]]
