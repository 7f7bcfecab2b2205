"""The queue of single tasks: a priority that is not needed is not computed."""

from random import Random

from hocket.model.job import Job
from hocket.model.view import JobState, JobView
from hocket.policies.mlfs.queue import SingleTask, SingleTaskQueue

NEEDS = (0.5, 0.0, 0.0, 0.0)


def view(number):
    return JobView(Job(f"j{number}"), number, 0.0, JobState.RUNNING, 0.0)


def line(exact, bounds, gone=()):
    """Tasks by number with these priorities, of which only bounds are known; and those whose priority was computed."""
    asked = []

    def ranked(single):
        asked.append(single.view.number)
        return None if single.view.number in gone else exact[single.view.number]

    singles = SingleTaskQueue(ranked)
    for number, bound in enumerate(bounds):
        singles.add(SingleTask(bound, view(number), 0, NEEDS), False)
    return singles, asked


def numbers(singles, least=float("-inf")):
    return [single.view.number for single in iter(lambda: singles.next(least), None)]


def test_they_come_in_the_order_of_their_priorities_whatever_the_bounds():
    dice = Random(1)
    for _ in range(50):
        exact = [dice.randrange(10) for _ in range(20)]
        singles, _asked = line(exact, [e + dice.randrange(5) for e in exact])
        assert numbers(singles) == sorted(range(20), key=lambda n: (-exact[n], n))


def test_a_priority_is_not_computed_where_the_bound_suffices():
    singles, asked = line([3.0, 9.0, 1.0], [5.0, 9.5, 2.0])
    assert numbers(singles, least=8.0) == [1]
    assert asked == [1]
    assert numbers(singles, least=4.0) == []
    assert asked == [1, 0]
    assert numbers(singles) == [0, 2]


def test_a_task_that_fits_nowhere_any_more_leaves_the_queue():
    singles, asked = line([3.0, 9.0], [5.0, 9.5], gone={1})
    assert numbers(singles) == [0]
    assert asked == [1, 0]


def test_exact_priorities_and_bounds_stand_in_one_order():
    singles, _asked = line([4.0, 6.0], [7.0, 7.0])
    singles.add(SingleTask(5.0, view(2), 0, NEEDS, gpu=3), True)
    assert numbers(singles) == [1, 2, 0]
