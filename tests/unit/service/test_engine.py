"""The engine when its journal cannot be written, or its policy is wrong: it says so, loses nothing, and goes on."""

import sqlite3

import pytest

from hocket.agent.protocol import Hello
from hocket.control.journal import JournalError, JournalHeld, SqliteJournal
from hocket.control.ports import Cycle
from hocket.control.replay import replay
from hocket.executors.agents.executor import agents
from hocket.model.event import EpochEnded, JobEnded, JobStarted, JobSubmitted, NodeJoined, PastJobsGiven, PolicySet
from hocket.model.job import Job
from hocket.model.past_job import MAX_PAST_JOBS, PastJob
from hocket.model.plan import Plan
from hocket.model.resources import Node
from hocket.policies import find
from hocket.policies.fifo import decide as fifo
from hocket.policies.kit.common_params import EverydayParams
from hocket.policies.registry import Policy
from hocket.service.engine import Engine, Unavailable


def submit(engine, name):
    return engine.executor.post(lambda _state, now_s: [JobSubmitted(now_s, Job(name, command=("true",)))])


@pytest.mark.slow
def test_a_journal_that_cannot_be_written_is_said_and_nothing_is_accepted_until_it_can(engine, tmp_path):
    submit(engine, "before").result(60)
    in_the_way = sqlite3.connect(tmp_path / "journal.db", isolation_level=None)
    in_the_way.execute("BEGIN IMMEDIATE")
    with pytest.raises(Unavailable, match=r"journal\.db"):
        submit(engine, "during").result(120)
    assert "journal.db" in engine.trouble
    in_the_way.execute("ROLLBACK")
    in_the_way.close()
    submit(engine, "after").result(60)
    assert not engine.trouble
    assert [view.job.id for view in engine.snapshot.jobs.values()] == ["before", "after"]


@pytest.mark.usefixtures("engine")
def test_a_second_engine_on_one_journal_is_refused(tmp_path):
    with pytest.raises(JournalHeld, match=r"journal\.db"):
        Engine(str(tmp_path / "journal.db"), agents(), find("las").bound())


def decided_by(path, policy, *jobs):
    """The policy that decides on a journal, once these jobs are submitted too; and what the engine shows of that."""
    engine = Engine(path, agents(), policy)
    engine.start()
    engine.executor.post(engine.executor.hello(Hello(Node("here", 1), "127.0.0.1"))).result(60)
    for name in jobs:
        submit(engine, name).result(60)
    shown, followed = engine.policy, engine._controller.policy_set
    live = [view.job.id for view in engine.snapshot.jobs.values()]
    engine.close()
    return shown.policy.name, shown.settings, followed, live


def test_another_policy_on_a_journal_decides_from_then_on(tmp_path):
    path = str(tmp_path / "other.db")
    assert decided_by(path, None, "a")[0] == "las", "as long as no other policy is set"
    name, _settings, followed, live = decided_by(path, find("fifo").bound(), "b")
    assert (name, followed.policy, live) == ("fifo", "fifo", ["a", "b"])
    assert decided_by(path, None, "c")[::3] == ("fifo", ["a", "b", "c"]), "it goes on where it was"
    rising = find("las").bound({"promote": 2.0})
    assert decided_by(path, rising, "d")[:2] == ("las", rising.settings), "the same with other parameters is another"
    assert decided_by(path, None)[:2] == ("las", rising.settings)
    journal = SqliteJournal(tmp_path / "other.db")
    cycles = list(journal)
    assert [e.policy for c in cycles for e in c.events if isinstance(e, PolicySet)] == ["fifo", "las"], "each once"
    assert replay(journal.header, cycles, find("las").bound()).difference is None
    journal.close()


@pytest.mark.slow
def test_a_policy_that_could_not_be_written_down_is_set_as_soon_as_it_can(tmp_path):
    path = tmp_path / "other.db"
    Engine(str(path), agents(), find("las").bound()).close()
    engine = Engine(str(path), agents(), find("fifo").bound())
    in_the_way = sqlite3.connect(path, isolation_level=None)
    in_the_way.execute("BEGIN IMMEDIATE")
    engine.start()
    with pytest.raises(Unavailable, match=r"other\.db"):
        submit(engine, "during").result(120)
    in_the_way.execute("ROLLBACK")
    in_the_way.close()
    submit(engine, "after").result(60)
    assert engine._controller.policy_set.policy == "fifo"
    engine.close()


def test_what_a_policy_compiles_is_compiled_before_an_agent_can_call(tmp_path, caplog):
    compiled = []
    las = find("las")
    for number, compiles in enumerate((lambda: compiled.append("las"), lambda: 1 / 0)):
        policy = Policy("las", las.decide, las.params, las.order, "", "", "", compiles=compiles)
        engine = Engine(str(tmp_path / f"{number}.db"), agents(), policy.bound())
        engine.journal.close()
    assert compiled == ["las"]
    assert "policy 'las' cannot be compiled" in caplog.text
    assert find("harmony").bound().policy.compiles is not None


def test_past_jobs_that_are_given_are_in_the_journal_once(tmp_path):
    path = str(tmp_path / "other.db")
    history = [PastJob(model=f"m{n}", unit_s=1.0 + n) for n in range(3)]
    for given in (history[:2], history[:2], history):  # the same file again, and with one more line
        engine = Engine(path, agents(), find("rotary").bound(), history=given)
        engine.start()
        submit(engine, f"j{len(engine.journal)}").result(60)
        known = [job.model for job in engine.snapshot.past_jobs.jobs]
        engine.close()
        assert known == [job.model for job in given]
    journal = SqliteJournal(tmp_path / "other.db")
    events = [e for c in journal for e in c.events if isinstance(e, PastJobsGiven)]
    journal.close()
    assert [[job.model for job in e.jobs] for e in events] == [["m0", "m1"], ["m2"]]


def test_past_jobs_that_are_given_push_out_none_that_the_journal_has(tmp_path):
    path = str(tmp_path / "other.db")
    own = [PastJob(model=f"own{n}", unit_s=1.0 + n) for n in range(MAX_PAST_JOBS - 1)]
    for given in (own, [PastJob(model=f"given{n}", unit_s=1.0 + n) for n in range(3)]):
        engine = Engine(path, agents(), find("rotary").bound(), history=given)
        engine.start()
        submit(engine, f"j{len(engine.journal)}").result(60)
        known = [job.model for job in engine.snapshot.past_jobs.jobs]
        engine.close()
    assert known == [*(job.model for job in own), "given2"]


def test_a_journal_whose_policy_is_unknown_is_named(tmp_path):
    path = str(tmp_path / "other.db")
    Engine(path, agents(), Faulty().bound()).close()
    with pytest.raises(JournalError, match=r"other\.db': policy 'faulty' is unknown"):
        Engine(path, agents())
    Engine(path, agents(), Faulty().bound()).close()  # and the journal is not held


def test_all_that_was_accepted_is_there_again(tmp_path):
    path = str(tmp_path / "other.db")
    first = Engine(path, agents(), find("fifo").bound())
    first.start()
    first.executor.post(first.executor.hello(Hello(Node("here", 1), "127.0.0.1"))).result(60)
    for n in range(50):
        submit(first, f"j{n}").result(60)
    first.close()
    again = Engine(path, agents(), find("fifo").bound())
    assert list(again.catalogue.records) == [f"j{n}" for n in range(50)]
    assert [view.job.id for view in again.snapshot.jobs.values()] == [f"j{n}" for n in range(50)]
    again.close()


def test_a_policy_that_raises_wastes_a_cycle_and_is_said_in_the_log(engine, caplog):
    def decide(snapshot):
        if "bad" in snapshot.jobs:
            raise ZeroDivisionError("a bug of a policy")
        return real(snapshot)

    real, engine._controller.decide = engine._controller.decide, decide
    submit(engine, "before").result(60)
    submit(engine, "bad").result(60)
    submit(engine, "after").result(60)
    assert not engine.over.is_set()
    assert [view.job.id for view in engine.snapshot.jobs.values()] == ["before", "bad", "after"]
    assert "ZeroDivisionError: a bug of a policy" in caplog.text
    assert engine.trouble.endswith("was refused: the policy raised ZeroDivisionError: a bug of a policy")
    assert engine.catalogue.queue_reason.endswith("ZeroDivisionError: a bug of a policy"), "all jobs have this reason"
    assert not engine._controller.decision_s, "these are not read"


class Faulty:
    """A policy that ranks, foresees and notes as it should, until it is told otherwise."""

    def __init__(self):
        self.wrong = ""

    def decide(self, snapshot, _params):
        if self.wrong == "memo":
            return Plan(memo=object())
        return fifo(snapshot, _params)

    def order(self, view, _now_s, _params):
        if self.wrong == "order":
            raise KeyError(view.job.id)
        return [1] if self.wrong == "no tuple" else (view.submitted_s,)

    def shifts(self, view, _now_s, _params):
        if self.wrong == "shifts":
            raise KeyError(view.job.id)

    def bound(self):
        return Policy("faulty", self.decide, EverydayParams, self.order, "", "", "", shifts=self.shifts).bound()


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("order", "KeyError: 'bad'"),
        ("no tuple", "TypeError: its order must give a tuple, not [1]"),
        ("shifts", "KeyError: 'bad'"),
        ("memo", "TypeError: its plan cannot be written down"),
    ],
)
def test_a_policy_that_is_wrong_in_ranks_or_notes_does_not_end_the_controller(tmp_path, caplog, wrong, said):
    policy = Faulty()
    engine = Engine(str(tmp_path / "journal.db"), agents(), policy.bound())
    engine.start()
    try:
        engine.executor.post(engine.executor.hello(Hello(Node("here", 4), "127.0.0.1"))).result(60)
        submit(engine, "before").result(60)
        policy.wrong = wrong
        submit(engine, "bad").result(60)
        if wrong == "shifts":  # They are asked for once the job runs.
            engine.executor.post(lambda _state, now_s: [JobStarted(now_s, "bad")]).result(60)
        policy.wrong = ""
        submit(engine, "after").result(60)
        assert [view.job.id for view in engine.snapshot.jobs.values()] == ["before", "bad", "after"]
        assert said in caplog.text
        assert engine.trouble == ""
    finally:
        engine.close()


def test_what_a_policy_raises_again_and_again_is_logged_once(engine, caplog):
    for _ in range(100):
        engine._on_policy_error(KeyError("x"))
    engine._on_policy_error(KeyError("y"))
    assert caplog.text.count("its decision was not carried out") == 2


class CountedEvents(tuple):
    """Events that count how often all of them are gone through."""

    rounds = 0

    def __iter__(self):
        CountedEvents.rounds += 1
        return super().__iter__()


def test_the_events_of_a_cycle_are_not_searched_for_each_job_that_it_ends(tmp_path):
    found = Engine(str(tmp_path / "journal.db"), agents(300.0), find("fifo").bound())
    names = [f"j{n}" for n in range(100)]
    found._controller.cycle(1.0, [NodeJoined(1.0, Node("n0", 1)), *(JobSubmitted(1.0, Job(name)) for name in names)])
    found.written(found._controller)
    reports = [EpochEnded(2.0, name, 1, {"acc": 0.5}) for name in names]
    cycle = Cycle(2.0, CountedEvents([*reports, *(JobEnded(2.0, name) for name in names)]))
    found._controller.advance(2.0, cycle.events, cycle)
    CountedEvents.rounds = 0
    changed = found._see(cycle)
    assert [record.job.id for record in changed] == names
    assert all(record.observations[0].metrics == {"acc": 0.5} for record in changed)
    assert CountedEvents.rounds <= 3
    found.close()
