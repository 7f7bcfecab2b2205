"""Priorities against the paper's equations, written out task by task."""

from math import inf, nan

import numpy as np
import pytest
from msgspec.structs import replace

from hocket.model.curve import Beliefs, Estimate
from hocket.model.job import Edge, Job, Task, TaskGraph
from hocket.model.resources import Demand
from hocket.model.view import JobView, Observation
from hocket.policies.kit.task_shapes import ONE_TASK, graph_structure, shape_key, structure_key
from hocket.policies.mlfs.priority import (
    PriorityInputs,
    PriorityWeights,
    features,
    highest_priorities,
    loss_ratio,
    priorities,
    priority_inputs,
    upper_bound,
    upper_bounds,
)

HOUR = 3600.0
PAPER = PriorityWeights(0.3, 0.8, 0.3, 0.3, 0.35, HOUR, 60.0, 24 * HOUR)
SHARES = {"a": 0.4, "b": 0.3, "c": 0.2, "d": 0.1}
CHILDREN = {"a": ["b", "c"], "b": ["d"], "c": ["d"], "d": []}
DIAMOND = TaskGraph(
    tuple(Task(name, Demand(1, gpu_share=0.5), share) for name, share in SHARES.items()),
    tuple(Edge(a, b, 10.0) for a, children in CHILDREN.items() for b in children),
)
PATH = 0.4 + 0.3 + 0.1  # a, b, d
AFTER = {"a": 0.4, "b": 0.1, "c": 0.1, "d": 0.0}


def by_the_paper(ml, due_h, left_h, waited_h):
    """Equations 2 to 6 as they stand, in hours; `due_h` is the time left to the job's deadline."""

    def learning(k):
        return ml * SHARES[k] + 0.8 * sum(learning(i) for i in CHILDREN[k])

    def computation(k):
        own = 0.3 / (due_h - left_h * AFTER[k] / PATH) + 0.3 / (left_h * SHARES[k] / PATH) + 0.35 * waited_h
        return own + 0.8 * sum(computation(i) for i in CHILDREN[k])

    return [0.3 * learning(k) + 0.7 * computation(k) for k in SHARES]


def found(ml, due_h, left_h, waited_h, weights=PAPER, graph=DIAMOND):
    known = graph_structure(structure_key(shape_key(graph)), weights.gamma)
    row = PriorityInputs(ml, due_h * HOUR + 1000.0, left_h * HOUR, 1000.0 - waited_h * HOUR)
    return priorities(known, row, [waited_h * HOUR] * known.tasks, 1000.0, weights).tolist()


def test_jobs_of_several_structures_have_the_highest_of_their_tasks_priorities():
    dice = np.random.default_rng(0)
    chain = TaskGraph(DIAMOND.tasks[:3], (Edge("a", "b"), Edge("b", "c")))
    known = [graph_structure(structure_key(shape_key(g)), 0.8) for g in (DIAMOND, None, chain)]
    blocks = list(zip(known, (5, 1, 7), strict=True))
    columns = [dice.uniform(low, high, 13) for low, high in ((0, 10), (0, 1e5), (0, 1e4), (0, 1e5))]
    columns[2][3] = inf
    of = features(*columns, 500.0, PAPER)
    of_each = [one for one, n in blocks for _ in range(n)]
    alone = [
        priorities(one, PriorityInputs(ml, due_s, left_s, 0.0), [waited_s] * one.tasks, 500.0, PAPER).max()
        for one, ml, due_s, left_s, waited_s in zip(of_each, *(c.tolist() for c in columns), strict=True)
    ]
    assert highest_priorities(blocks, of, PAPER).tolist() == pytest.approx(alone, rel=1e-12)
    assert len(highest_priorities([], of, PAPER)) == 0


@pytest.mark.parametrize("numbers", [(10.0, 24.0, 2.0, 0.0), (0.5, 3.0, 1.0, 2.5), (0.0, 5.0, 4.0, 0.1)])
def test_priorities_are_those_of_equations_2_to_6(numbers):
    assert found(*numbers) == pytest.approx(by_the_paper(*numbers))


def test_a_task_with_more_dependants_that_are_closer_goes_first():
    a, b, _c, d = found(1.0, 24.0, 2.0, 1.0)
    assert a > b > d


def test_times_under_a_fraction_bar_are_no_shorter_than_a_round():
    late = found(0.0, -5.0, 0.0001, 0.0)
    own = 0.3 * 60.0 + 0.3 * 60.0  # an hour is sixty rounds
    assert late[3] == pytest.approx(0.7 * own)


def test_what_is_unknown_counts_nothing():
    (d,) = found(0.0, 10.0, inf, 2.0)[3:]
    assert d == pytest.approx(0.7 * (0.3 / 10.0 + 0.35 * 2.0))


def test_a_job_that_is_not_partitioned_is_one_task():
    assert shape_key(None) == ONE_TASK
    assert found(2.0, 10.0, 1.0, 3.0, graph=None) == pytest.approx(
        [0.3 * 2.0 + 0.7 * (0.3 / 10.0 + 0.3 / 1.0 + 0.35 * 3.0)]
    )


def test_all_jobs_of_a_shape_at_once_are_as_each_alone():
    rows = [(10.0, 24.0, 2.0, 0.0), (0.5, 3.0, 1.0, 2.5), (1.0, 1.0, inf, 9.0)]
    ml, due_h, left_h, waited_h = (np.array(column) for column in zip(*rows, strict=True))
    of = features(ml, due_h * HOUR + 1000.0, left_h * HOUR, waited_h * HOUR, 1000.0, PAPER)
    together = highest_priorities([(graph_structure(structure_key(shape_key(DIAMOND)), 0.8), 3)], of, PAPER)
    assert together.tolist() == pytest.approx([max(found(*row)) for row in rows])


def test_one_job_by_itself_stands_where_it_does_in_a_column_to_the_last_bit():
    dice = np.random.default_rng(1)
    for graph in (DIAMOND, None):
        known = graph_structure(structure_key(shape_key(graph)), 0.8)
        for n in range(50):
            ml, due_s, left_s, waits_from_s = dice.uniform(0, (10, 1e5, 1e4, 500)).tolist()
            row = PriorityInputs(ml, due_s, inf if n % 5 == 0 else left_s, waits_from_s)
            waited_s = dice.uniform(0, 1e5)
            columns = [np.array([x]) for x in (row.ml, row.due_s, row.left_s, waited_s)]
            (in_column,) = highest_priorities([(known, 1)], features(*columns, 500.0, PAPER), PAPER)
            alone = priorities(known, row, [waited_s] * known.tasks, 500.0, PAPER)
            assert alone.max() == in_column
            assert upper_bound(known, row, waited_s, 500.0, PAPER) >= in_column * (1 - 1e-12)


def test_no_priority_is_above_its_bound():
    dice = np.random.default_rng(2)
    graphs = (DIAMOND, None, TaskGraph(DIAMOND.tasks[:3], (Edge("a", "b"), Edge("b", "c"))))
    known = [graph_structure(structure_key(shape_key(g)), 0.8) for g in graphs]
    columns = [dice.uniform(low, high, 900) for low, high in ((0, 10), (0, 1e5), (0, 1e4), (0, 1e6))]
    columns[2][::7] = inf
    of, which = features(*columns, 5e4, PAPER), np.repeat([0, 1, 2], 300)
    bound = upper_bounds(known, which, of, PAPER)
    exact = highest_priorities([(s, 300) for s in known], of, PAPER)
    assert (bound >= exact * (1 - 1e-12)).all()
    assert np.median(bound / exact) < 1.5


def test_a_shape_has_neither_names_nor_volumes():
    other = TaskGraph(
        tuple(replace(t, id=f"x{t.id}") for t in DIAMOND.tasks),
        tuple(Edge(f"x{e.source}", f"x{e.target}", 99.0) for e in DIAMOND.edges),
    )
    assert shape_key(other) is shape_key(DIAMOND)


# -- what is read off a job ---------------------------------------------------------------------------------


def view_of(*losses, **job):
    observations = tuple(Observation(float(e), e, {"loss": x}) for e, x in enumerate(losses, 1))
    return JobView(Job("j", **job), 0, 100.0, since_s=100.0, observations=observations, epoch=len(losses))


def test_the_ml_part_is_urgency_by_iteration_by_loss_ratio():
    view = view_of(3.0, 2.0, 1.5, urgency=8)
    assert priority_inputs(view, 200.0, PAPER, "loss").ml == pytest.approx(8 / 4 * 0.5 / 1.5)


def test_at_the_first_iteration_the_loss_ratio_is_one():
    assert priority_inputs(view_of(urgency=7), 200.0, PAPER, "loss").ml == 7.0


@pytest.mark.parametrize(
    ("losses", "ratio"),
    [
        ((2.0,), 1.0),  # one value is no reduction yet
        ((3.0, 2.0, 1.0), 0.5),
        ((1.0, 2.0, 3.0), 0.0),  # rising
        ((1.0, 1.0, 1.0), 0.0),  # constant
        ((3.0, 1.0, 2.0), 0.0),  # rose last
        ((3.0, nan, 2.0, 1.0), 0.5),  # what is not a number is passed over
        ((3.0, inf), 1.0),
        ((nan, nan, nan), 1.0),
    ],
)
def test_a_loss_that_does_not_fall_is_no_reduction(losses, ratio):
    assert loss_ratio(view_of(*losses), "loss") == ratio


def test_a_job_that_states_no_urgency_is_least_urgent():
    assert priority_inputs(view_of(), 200.0, PAPER, "loss").ml == 1.0


def test_a_job_without_a_deadline_has_the_longest():
    believed = replace(view_of(), beliefs=Beliefs(Estimate(100 * HOUR)))
    assert priority_inputs(view_of(), 200.0, PAPER, "loss").due_s == 100.0 + 24 * HOUR
    assert priority_inputs(believed, 200.0, PAPER, "loss").due_s == pytest.approx(100.0 + 110 * HOUR)
    assert priority_inputs(view_of(deadline_s=50.0), 200.0, PAPER, "loss").due_s == 150.0
