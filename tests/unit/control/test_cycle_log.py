"""What a controller logs of a cycle: at which level, and with which fields."""

import logging
from typing import Any

import pytest

from hocket.control.controller import Controller
from hocket.control.cycle_log import log_cycle
from hocket.control.journal import MemoryJournal
from hocket.control.ports import Cycle, Header
from hocket.model.action import End, Pause, Prepare, Start
from hocket.model.event import (
    EpochEnded,
    JobAsked,
    JobEnded,
    JobFailed,
    JobRefused,
    JobRequest,
    JobStarted,
    JobSubmitted,
    JobWarned,
    NodeLost,
    OwnerSet,
    PolicySet,
    TimePassed,
)
from hocket.model.job import Job, Owner
from hocket.model.partition import Holding, Partition, Tenant
from hocket.model.plan import Plan
from hocket.model.resources import Node, Slice
from hocket.model.snapshot import empty_snapshot
from hocket.policies import find

PLACE = (Slice("n0", (0,)),)
PARTITION = Partition("p", PLACE, (Tenant("a", (1,)),))
START = Start("a", "", Holding("p", PLACE, (1,)), PARTITION)
FIELDS = ("job", "node", "owner", "by", "policy", "event", "action", "run", "reason")


@pytest.fixture(autouse=True)
def everything_is_heard(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "hocket.control")


def fields(record: logging.LogRecord) -> dict[str, Any]:
    return {name: value for name in FIELDS if (value := getattr(record, name, None)) is not None}


@pytest.mark.parametrize(
    ("event", "level", "said", "about"),
    [
        (JobSubmitted(0.0, Job("a", sizes=(1, 2))), "INFO", "JobSubmitted 'a': sizes 1,2", {"job": "a"}),
        (JobSubmitted(0.0, Job("a", "eve")), "INFO", "JobSubmitted 'a': of eve, sizes 1", {"job": "a", "owner": "eve"}),
        (JobRefused(0.0, "a", "it is there"), "WARNING", "JobRefused 'a': it is there", {"job": "a"}),
        (JobWarned(0.0, "a", "no progress"), "WARNING", "JobWarned 'a': no progress", {"job": "a"}),
        (JobStarted(0.0, "a", attempt=2), "INFO", "JobStarted 'a': run 2", {"job": "a", "run": 2}),
        (JobAsked(0.0, "a", JobRequest.STOP, "eve"), "INFO", "JobAsked 'a': stop by eve", {"job": "a", "by": "eve"}),
        (JobFailed(0.0, "a", "exit code 3"), "WARNING", "JobFailed 'a': exit code 3", {"job": "a"}),
        (JobEnded(0.0, "a", "attained"), "INFO", "JobEnded 'a': attained", {"job": "a"}),
        (NodeLost(0.0, "n0", "silent"), "WARNING", "NodeLost 'n0': silent", {"node": "n0"}),
        (OwnerSet(0.0, Owner("eve")), "INFO", "OwnerSet 'eve': weight 1", {"owner": "eve"}),
        (OwnerSet(0.0, Owner("eve", 2, max_jobs=3)), "INFO", "OwnerSet 'eve': weight 2, max_jobs 3", {"owner": "eve"}),
        (PolicySet(0.0, "fifo"), "INFO", "PolicySet 'fifo'", {"policy": "fifo"}),
        (EpochEnded(0.0, "a", 3, {}), "DEBUG", "EpochEnded 'a': epoch 3", {"job": "a"}),
        (TimePassed(0.0, ("a",)), "DEBUG", "the timer of 'a' is due", {"job": "a"}),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, str | dict) else None,
)
def test_trouble_is_logged_as_a_warning_routine_at_debug_and_other_events_at_info(
    caplog: pytest.LogCaptureFixture, event: Any, level: str, said: str, about: dict[str, Any]
) -> None:
    log_cycle(7, Cycle(0.0, (event,)), (), ())
    record, summary = caplog.records
    assert (record.levelname, record.getMessage()) == (level, f"cycle 7: {said}")
    assert fields(record) == {**about, "event": type(event).__name__}
    assert summary.levelname == "DEBUG"
    assert {r.cycle for r in caplog.records} == {7}  # type: ignore[attr-defined]


def test_a_decision_is_logged_with_its_reason_for_each_job_and_then_its_actions(
    caplog: pytest.LogCaptureFixture,
) -> None:
    plan = Plan((PARTITION,), ends={"c": "hopeless"}, reasons={"a": "starts: first", "b": "paused: 'a' is first"})
    log_cycle(8, Cycle(0.0, (), plan), (Pause("b"), START), (0.5, 0.002))
    told = [(r.getMessage(), fields(r)) for r in caplog.records if r.levelno == logging.INFO]
    assert told == [
        ("cycle 8: decided: 2 changes in 2.0 ms", {}),
        ("cycle 8: decided for 'a': starts: first", {"job": "a", "reason": "starts: first"}),
        ("cycle 8: decided for 'b': paused: 'a' is first", {"job": "b", "reason": "paused: 'a' is first"}),
        ("cycle 8: decided for 'c': ends: hopeless", {"job": "c", "reason": "ends: hopeless"}),
        ("cycle 8: Pause 'b'", {"job": "b", "action": "Pause"}),
        ("cycle 8: Start 'a' on n0", {"job": "a", "action": "Start"}),
    ]


def test_a_job_that_makes_way_only_later_is_logged_with_its_reason_at_once(caplog: pytest.LogCaptureFixture) -> None:
    plan = Plan((PARTITION,), drop=("q",), reasons={"a": "starts: first", "b": "paused: 'a' is first", "*": "waits"})
    log_cycle(8, Cycle(0.0, (), plan), (Prepare("a"),), (0.002,))
    told = {r.job: r.reason for r in caplog.records if hasattr(r, "reason")}  # type: ignore[attr-defined]
    assert told == {"a": "starts: first", "b": "paused: 'a' is first"}


def test_of_many_events_or_actions_of_one_kind_some_are_logged_and_the_others_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    asked = [JobAsked(0.0, f"j{n}", JobRequest.STOP) for n in range(1_000)]
    failed = [JobFailed(0.0, f"f{n}", "exit code 3") for n in range(30)]
    cycle = Cycle(0.0, (*asked, *failed, JobEnded(0.0, "a")), Plan(reasons={f"j{n}": "waits" for n in range(50)}))
    actions = [End(f"j{n}", "stopped") for n in range(25)]
    caplog.set_level(logging.INFO, "hocket.control")
    log_cycle(8, cycle, actions, ())
    told = [r.getMessage() for r in caplog.records]
    assert sum("JobAsked 'j" in line for line in told) == sum("End 'j" in line for line in told) == 20
    assert sum("JobFailed 'f" in line for line in told) == 30, "trouble is logged"
    assert "cycle 8: JobEnded 'a': finished" in told
    assert told[-3:] == [
        "cycle 8: JobAsked: 980 more, not listed",
        "cycle 8: decided: 30 more, not listed",
        "cycle 8: End: 5 more, not listed",
    ]
    caplog.clear()
    caplog.set_level(logging.DEBUG, "hocket.control")
    log_cycle(8, cycle, actions, ())
    assert sum("JobAsked 'j" in r.getMessage() for r in caplog.records) == 1_000


def test_a_decision_that_changes_nothing_is_logged_at_debug(caplog: pytest.LogCaptureFixture) -> None:
    log_cycle(8, Cycle(0.0, (), Plan()), (), (0.002,))
    assert {record.levelname for record in caplog.records} == {"DEBUG"}


@pytest.mark.parametrize("level", [logging.DEBUG, logging.WARNING])
def test_a_refused_plan_is_a_warning_at_every_level_and_no_decision(
    caplog: pytest.LogCaptureFixture, level: int
) -> None:
    caplog.set_level(level, "hocket.control")
    plan = Plan((PARTITION,), reasons={"a": "starts: first"})
    log_cycle(9, Cycle(0.0, (JobSubmitted(0.0, Job("a")),), plan, ("no GPU 8", "no node")), (), (0.1,))
    warnings = [r for r in caplog.records if r.levelno == logging.WARNING]
    said = [r.getMessage() for r in warnings]
    assert said == ["cycle 9: the plan is refused: no GPU 8", "cycle 9: the plan is refused: no node"]
    assert [r.cycle for r in warnings] == [9, 9]  # type: ignore[attr-defined]
    assert "decided for" not in caplog.text
    assert ("JobSubmitted" in caplog.text) == (level == logging.DEBUG)


@pytest.mark.parametrize("trouble", [JobFailed(0.0, "a", "exit code 3"), JobWarned(0.0, "a", "no progress")])
def test_at_level_warning_trouble_of_a_job_is_logged_and_nothing_else(
    caplog: pytest.LogCaptureFixture, trouble: JobFailed | JobWarned
) -> None:
    caplog.set_level(logging.WARNING, "hocket.control")
    log_cycle(1, Cycle(0.0, (JobStarted(0.0, "b"), trouble), Plan((PARTITION,))), (START,), (0.1,))
    (record,) = caplog.records
    assert (record.levelname, fields(record)) == ("WARNING", {"job": "a", "event": type(trouble).__name__})


def test_with_the_level_off_no_decision_or_action_is_looked_at(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "hocket.control")

    class Untouched(tuple[Any, ...]):
        def __iter__(self) -> Any:
            raise AssertionError("the cost of a cycle must not grow with what is not logged")

    log_cycle(1, Cycle(0.0, (TimePassed(0.0),), Plan(reasons={"a": "starts"})), Untouched(), Untouched())  # type: ignore[arg-type]
    assert not caplog.records


def test_a_controller_counts_its_cycles_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    policy = find("fifo").bound()
    journal = MemoryJournal(Header("fifo", nodes=(Node("n0", 1),)))
    snapshot = empty_snapshot(journal.header.nodes)
    controller = Controller(snapshot, policy.decide, policy.order, journal, **policy.needs)
    controller.cycle(0.0, [JobSubmitted(0.0, Job("a"))])
    controller.cycle(1.0, [JobStarted(1.0, "a")])
    of_job = [(r.cycle, r.getMessage().split(": ")[1]) for r in caplog.records if getattr(r, "job", "") == "a"]  # type: ignore[attr-defined]
    assert of_job == [(1, "JobSubmitted 'a'"), (1, "decided for 'a'"), (1, "Start 'a' on n0"), (2, "JobStarted 'a'")]
