"""What a job shall reach, by which epoch, and what may end it before: on the job, and in a document."""

import pytest

from hocket.model.criterion import parse
from hocket.model.document import DocumentError, decode, encode, to_document
from hocket.model.job import Job, Stop
from hocket.model.rebuild import from_document
from hocket.testing.builders import cluster, job, snapshot, submitted

TARGET = parse("acc >= 90% within 80 epochs")


def test_the_goal_of_a_job_is_its_criterion_or_else_its_target():
    goal = parse("loss <= 0.2")
    assert Job("a", criterion=goal, target=TARGET).goal is goal
    assert Job("a", criterion=parse("for 2h"), target=TARGET).goal is TARGET
    assert Job("a").goal is None


@pytest.mark.parametrize(
    ("criterion", "target", "last"),
    [
        ("for 30 epochs", TARGET, 30),
        ("acc >= 0.9 within 40 epochs", None, 40),
        ("for 2h", TARGET, 80),
        (None, TARGET, 80),
        ("acc >= 0.9 within 2h", None, None),
    ],
)
def test_the_last_epoch_is_that_of_the_criterion_or_else_of_the_target(criterion, target, last):
    assert Job("a", criterion=criterion and parse(criterion), target=target).last_epoch == last


def test_a_job_may_be_stopped_if_its_user_allows_it_ever():
    assert not Job("a").may_stop
    assert Job("a", stop=Stop.OPTSTOP).may_stop
    assert Job("a", may_lower=Stop.REQUIRED).may_stop


def test_target_and_permissions_survive_a_document():
    what = job("a", target=TARGET, stop=Stop.OPTSTOP, may_lower=Stop.REQUIRED)
    there = snapshot(cluster("1x1"), submitted(what))
    assert from_document(decode(encode(to_document(there)))).jobs["a"].job == what


def test_a_document_whose_target_is_no_goal_is_refused():
    there = snapshot(cluster("1x1"), submitted(job("a", target=TARGET)))
    text = encode(to_document(there)).replace("acc >= 90% within 80 epochs", "for 2h")
    with pytest.raises(DocumentError, match=r"job.target must be a goal such as 'acc >= 90%'"):
        from_document(decode(text))
