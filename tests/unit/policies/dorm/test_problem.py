"""P2 as a value: its limits, and the checker that knows no solver."""

import pytest
from msgspec.structs import replace

from hocket.policies.dorm.problem import Application, Problem, fairness_loss, utilisation, violations

TWO = Problem(
    ((4.0, 1.0), (4.0, 0.0)),
    (8.0, 1.0),
    (Application((1.0, 0.0), (1, 2, 3, 4), before=((0, 2),)), Application((2.0, 1.0), (1,))),
    theta1=0.3,
    theta2=0.5,
)
RIGHT = (((0, 2),), ((0, 1),))


def test_limits_are_rounded_up_as_printed():
    assert replace(TWO, theta1=0.1).loss_limit == 1
    assert replace(TWO, theta1=0.5).loss_limit == 2
    assert replace(TWO, theta1=0.0).loss_limit == 0
    assert replace(TWO, theta2=0.01).change_limit == 1


def test_worth_and_loss_are_the_papers_sums():
    assert utilisation(TWO, RIGHT) == pytest.approx(2 / 8 + 2 / 8 + 1)
    assert TWO.fair == pytest.approx((0.5, 1.0))
    assert fairness_loss(TWO, RIGHT) == pytest.approx(0.25)


def test_an_allocation_that_breaks_nothing_passes():
    assert list(violations(TWO, RIGHT)) == []


@pytest.mark.parametrize(
    ("problem", "allocation", "said"),
    [
        (TWO, (((0, 3),), ((0, 1),)), "server 0 lacks"),
        (TWO, (((0, 2),), ((1, 1),)), "server 1 lacks"),
        (TWO, (((0, 2),), ()), "may have (1,) containers, and has 0"),
        (TWO, (((0, 1), (1, 4)), ((0, 1),)), "containers, and has 5"),
        (replace(TWO, theta1=0.0), RIGHT, "the fairness loss is 0.25"),
        (replace(TWO, theta2=0.0), (((1, 2),), ((0, 1),)), "1 applications change, the limit is 0"),
        (
            replace(TWO, applications=(replace(TWO.applications[0], servers=0b10), TWO.applications[1])),
            RIGHT,
            "does not accept",
        ),
        (
            replace(TWO, applications=(replace(TWO.applications[0], max_servers=1), TWO.applications[1])),
            (((0, 1), (1, 1)), ((0, 1),)),
            "may span 1",
        ),
        (
            replace(TWO, applications=(replace(TWO.applications[0], owner=0), TWO.applications[1]), quotas=((1.0, 9),)),
            RIGHT,
            "owner 0 may have 1.0",
        ),
    ],
)  # fmt: skip
def test_every_broken_constraint_is_said(problem, allocation, said):
    assert any(said in found for found in violations(problem, allocation))
