"""A learned policy takes over when it is at least as good on the journal's own past, and hands back when it is not."""

import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.policies.mlfs.test_mlf_rl import network

from hocket.agent.protocol import Hello
from hocket.control.journal import SqliteJournal
from hocket.executors.agents.executor import agents
from hocket.learn.training import save_weights
from hocket.model.event import JobEnded, JobStarted, JobSubmitted, PolicySet
from hocket.model.job import Job
from hocket.model.resources import Node
from hocket.policies import find
from hocket.policies.mlfs.network import JOB_FEATURES
from hocket.policies.mlfs.weights_file import LearnedWeights, MadeBy
from hocket.service.engine import Engine
from hocket.service.policy_switch import Judgement, PolicySwitch, SwitchOptions, carried_over, switch

NAMES = ("mlf_h", "mlf_rl")
REWARDS = st.floats(0.001, 2.0)
JUDGEMENTS = st.builds(Judgement, st.integers(0, 60), st.integers(0, 3), REWARDS, REWARDS)


def decided(found, learned_decides):
    return switch(found, learned_decides, 20, NAMES, 14.0)


@given(JUDGEMENTS, st.booleans())
def test_after_a_switch_the_same_past_does_not_switch_back(found, learned_decides):
    to = decided(found, learned_decides)
    if to is not None:
        assert to.to_learned is not learned_decides
        assert decided(found, to.to_learned) is None
        assert NAMES[1] in to.reason
        assert "\n" not in to.reason


@given(JUDGEMENTS, st.booleans(), st.floats(0.0, 1.0))
def test_more_reward_of_the_learned_policy_never_takes_decisions_from_it(found, learned_decides, more):
    better = Judgement(found.jobs, found.undone, found.usual, found.learned + more)
    before, after = decided(found, learned_decides), decided(better, learned_decides)
    decides_before = learned_decides if before is None else before.to_learned
    assert (learned_decides if after is None else after.to_learned) >= decides_before


@given(JUDGEMENTS, st.booleans())
def test_with_few_jobs_nothing_changes_and_jobs_that_it_would_not_end_are_never_worth_it(found, learned_decides):
    to = decided(found, learned_decides)
    if found.jobs < 20:
        assert to is None
    elif found.undone:
        assert (to is not None) is learned_decides
    elif not learned_decides:
        assert (to is not None) is (found.learned >= found.usual)


@pytest.mark.parametrize(
    ("found", "learned_decides", "to_learned"),
    [
        (Judgement(20, 0, 1.0, 1.0), False, True),
        (Judgement(19, 0, 1.0, 1.0), False, None),
        (Judgement(20, 0, 1.0, 0.999), False, None),
        (Judgement(20, 0, 1.0, 0.995), True, None),
        (Judgement(20, 0, 1.0, 0.98), True, False),
        (Judgement(20, 1, 1.0, 2.0), True, False),
    ],
)
def test_as_good_takes_over_and_behind_by_more_than_the_margin_hands_back(found, learned_decides, to_learned):
    to = decided(found, learned_decides)
    assert (None if to is None else to.to_learned) is to_learned


def test_knobs_that_both_have_are_carried_over_and_back():
    usual = find("mlf_h").bound({"h_r": 0.8, "patience_s": 50})
    learned = carried_over(usual, "mlf_rl", {"guard": False})
    assert (learned.settings["h_r"], learned.settings["guard"]) == (0.8, False)
    assert carried_over(learned, "mlf_h", {}).settings == usual.settings
    assert carried_over(usual, "rl", {}).settings["patience_s"] == 50


# -- a real controller, on a journal, with the real process that judges ------------------------------------------


def weights_that_start(path, needs):
    """A file by which jobs that need many GPUs go first, or last."""
    far = np.full(len(JOB_FEATURES), 1e9)
    found = network({"needs": needs}, low=-far, high=far)
    save_weights(path, LearnedWeights(found, MadeBy("hocket learn mlf_rl", "none", 0, "2026-11-18")))
    return {"weights_file": str(path)}


def past_in_which_small_jobs_went_first(engine):
    """One job holds both GPUs; a large one and four small, urgent ones come; the small ones go first."""

    def told(make):
        engine.executor.post(lambda _state, now_s: [make(now_s)]).result(60)

    def submit(name, gpus, urgency=1):
        told(lambda now_s: JobSubmitted(now_s, Job(name, command=("true",), sizes=(gpus,), urgency=urgency)))

    def run(name, for_s):
        assert engine.snapshot.jobs[name].partitions, f"'{name}' was placed"
        told(lambda now_s: JobStarted(now_s, name))
        time.sleep(for_s)  # So long its work is.
        told(lambda now_s: JobEnded(now_s, name))

    submit("first", 2)
    submit("large", 2)
    for n in range(4):
        submit(f"small{n}", 1, 10)
    run("first", 0.01)
    for n in range(4):
        run(f"small{n}", 0.01)
    run("large", 0.4)


def until(condition):
    end_s = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < end_s, "it never came"
        time.sleep(0.02)


def followed(engine):
    last = engine._controller.policy_set
    return None if last is None else last.policy


@pytest.fixture
def journal(tmp_path):
    return str(tmp_path / "journal.db")


@pytest.fixture
def live(journal):
    engine = Engine(journal, agents(300.0), find("mlf_h").bound({"round_s": 0}))
    engine.start()
    engine.sessions.open("here", "127.0.0.1")
    engine.executor.post(engine.executor.hello(Hello(Node("here", 2, cores=4.0), "127.0.0.1"))).result(60)
    yield engine
    engine.close()


def test_the_learned_policy_takes_over_by_its_past_and_hands_back(live, journal, tmp_path):
    past_in_which_small_jobs_went_first(live)
    good = weights_that_start(tmp_path / "good.json", -5.0)
    takes = PolicySwitch(live, journal, "", SwitchOptions("mlf_rl", good, first_s=0.0, least_jobs=6))
    takes.start()
    until(lambda: followed(live) == "mlf_rl")
    takes.close()
    assert live.policy.settings["round_s"] == 0
    bad = weights_that_start(tmp_path / "bad.json", 5.0)
    live.set_policy(find("mlf_rl").bound({"round_s": 0, **bad}), "a user says so").result(60)
    hands_back = PolicySwitch(live, journal, "", SwitchOptions("mlf_rl", bad, first_s=0.0, least_jobs=6))
    hands_back.start()
    until(lambda: followed(live) == "mlf_h")
    hands_back.close()
    live.close()
    kept = SqliteJournal(tmp_path / "journal.db")
    sets = [(e.policy, e.reason.partition(":")[0]) for c in kept for e in c.events if isinstance(e, PolicySet)]
    kept.close()
    assert sets == [
        ("mlf_rl", "mlf_rl is at least as good as mlf_h"),
        ("mlf_rl", "a user says so"),
        ("mlf_h", "mlf_rl falls behind mlf_h"),
    ]


def test_a_judgement_that_fails_changes_nothing_and_is_said(live, journal, tmp_path, caplog):
    options = SwitchOptions("mlf_rl", {"weights_file": str(tmp_path / "none.json")}, first_s=0.0)
    judges = PolicySwitch(live, journal, "", options)
    judges.start()
    until(lambda: "policy 'mlf_rl' was not judged: weights 'none.json': cannot be read" in caplog.text)
    judges.close()
    assert followed(live) is None
