"""A line of single tasks: whose priority is not needed is not worked out."""

from random import Random

from hocket.model.job import Job
from hocket.model.view import JobState, JobView
from hocket.policies.mlfs.singles import Single, Singles

NEEDS = (0.5, 0.0, 0.0, 0.0)


def view(number):
    return JobView(Job(f"j{number}"), number, 0.0, JobState.RUNNING, 0.0)


def line(exact, bounds, gone=()):
    """Tasks by number with these priorities, of which only bounds are known; and whose priority was worked out."""
    asked = []

    def ranked(single):
        asked.append(single.view.number)
        return None if single.view.number in gone else exact[single.view.number]

    singles = Singles(ranked)
    for number, bound in enumerate(bounds):
        singles.add(Single(bound, view(number), 0, NEEDS), False)
    return singles, asked


def numbers(singles, least=float("-inf")):
    return [single.view.number for single in iter(lambda: singles.next(least), None)]


def test_they_come_in_the_order_of_their_priorities_whatever_the_bounds():
    dice = Random(1)
    for _ in range(50):
        exact = [dice.randrange(10) for _ in range(20)]
        singles, _asked = line(exact, [e + dice.randrange(5) for e in exact])
        assert numbers(singles) == sorted(range(20), key=lambda n: (-exact[n], n))


def test_nobody_is_asked_for_whom_the_bound_suffices():
    singles, asked = line([3.0, 9.0, 1.0], [5.0, 9.5, 2.0])
    assert numbers(singles, least=8.0) == [1]
    assert asked == [1]
    assert numbers(singles, least=4.0) == []
    assert asked == [1, 0]
    assert numbers(singles) == [0, 2]


def test_who_fits_nowhere_any_more_leaves_the_line():
    singles, asked = line([3.0, 9.0], [5.0, 9.5], gone={1})
    assert numbers(singles) == [0]
    assert asked == [1, 0]


def test_those_that_are_worked_out_already_stand_among_the_others():
    singles, _asked = line([4.0, 6.0], [7.0, 7.0])
    singles.add(Single(5.0, view(2), 0, NEEDS, gpu=3), True)
    assert numbers(singles) == [1, 2, 0]
