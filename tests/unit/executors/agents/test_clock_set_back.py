"""A clock that is behind the journal: time goes on from where it was, and no job waits for the clock to catch up."""

import time

from tests.unit.executors.agents.test_executor import PATIENCE_S, STARTED, World, broke, job

from hocket.executors.agents.executor import agents
from hocket.policies import find
from hocket.service.engine import Engine


class SetBack(World):
    """Its clock was set back by an hour before it started for the second time."""

    behind_s = 0.0

    def up(self):
        clock = lambda: time.time() - self.behind_s  # noqa: E731
        self.engine = Engine(str(self.path), agents(self.lease_s, clock=clock), find(self.policy).bound())
        self.engine.start()


def test_a_delay_is_as_long_as_it_was_and_no_time_is_negative(tmp_path):
    world = SetBack(tmp_path / "journal.db")
    world.hello()
    world.submit(job(backoff_s=0.2))
    (first,) = world.orders()
    world.say(first.run, STARTED)
    before_s = world.engine.snapshot.now_s
    world.behind_s = 3600.0
    world.restart()
    world.hello(first.run)
    assert world.engine.now_s() >= before_s
    world.say(first.run, broke())
    (second,) = world.orders()  # It would wait for an hour and 0.2 s.
    assert second.run.number == first.run.number + 2
    view = world.engine.snapshot.jobs["a"]
    assert 0 <= view.ran_s < PATIENCE_S
    assert 0 <= view.waited_s < PATIENCE_S
    assert before_s <= world.engine.snapshot.now_s < before_s + PATIENCE_S
    world.engine.close()
