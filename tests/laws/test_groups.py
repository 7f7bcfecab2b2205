"""The laws for policies that share machines, under jobs with phases: told, measured on the way, or nonsense."""

import pytest
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.laws.drawing import known_to_break, over

from hocket.model.curve import Curve, Point
from hocket.model.event import PhasesObserved
from hocket.model.job import Kind
from hocket.policies import find
from hocket.testing import laws
from hocket.testing import strategies as some
from hocket.testing.harness import Harness
from hocket.workloads.truth import Submission

CASES = [
    ("harmony", {}),
    ("harmony", {"variant": "paper"}),
    ("harmony", {"variant": "oracle", "profile_machines": 2}),
    ("harmony", {"regroup_gain": 0, "similar": 0.5, "profile_at_once": 1}),
    ("isolated", {}),
    ("naive", {}),
    ("naive", {"together": 3}),
]
seconds = st.sampled_from([0.0, 0.001, 0.5, 1.0, 3.0, 10.0, 400.0])


@st.composite
def grouped(draw, job):
    """The job as one for groups, most of the time."""
    return replace(job, kind=Kind.PARAMETER_SERVER) if draw(st.integers(0, 5)) else job


@st.composite
def phased_steps(draw, cluster):
    """A history whose jobs have phases; some are told beforehand, some of those make no sense."""
    steps = []
    for step in draw(some.histories(cluster)):
        if step.what != "submit":
            steps.append(step)
            continue
        job, beliefs, costs = step.value
        if draw(st.booleans()):
            comp, comm = draw(seconds), draw(seconds)
            if draw(st.integers(0, 9)) == 0:
                comp = -1.0  # What is not finite does not survive a file; unit tests have that.
            x = float(draw(st.integers(1, 4)))
            beliefs = replace(beliefs, comp_s=Curve((Point(x, comp),)), comm_s=Curve((Point(x, comm),)))
        steps.append(replace(step, value=(draw(grouped(job)), beliefs, costs)))
    return steps


@st.composite
def phased_workloads(draw, cluster):
    workload = draw(some.workloads(cluster))
    submissions = []
    for s in workload.submissions:
        truth = replace(s.truth, comp_s=draw(seconds) or 1.0, comm_s=draw(seconds), run_s=min(s.truth.run_s, 5000.0))
        submissions.append(Submission(s.at_s, draw(grouped(s.job)), truth))
    return replace(workload, submissions=tuple(submissions))


KNOWN = {  # Some jobs wait for ever: to be profiled, or while the groups are in balance without them.
    "harmony-{'variant': 'paper'}": "every_job_ends",
    "harmony-{'variant': 'oracle', 'profile_machines': 2}": "every_job_ends",
}
SCENES = some.nodes().flatmap(lambda cluster: st.tuples(st.just(cluster), phased_steps(cluster), st.integers(0, 3)))
WORKLOADS = some.nodes().flatmap(lambda cluster: st.tuples(phased_workloads(cluster), st.just(cluster)))


@pytest.mark.parametrize(("name", "knobs"), CASES, ids=[f"{n}-{k}" for n, k in CASES])
@over(SCENES)
def test_every_decision_over_groups_keeps_the_laws(name, knobs, example):
    bound = find(name).bound(knobs)
    cluster, steps, seed = example
    harness = Harness.of(bound, cluster, seed=seed)
    for step in steps:
        some.play(harness, [step], cluster)
        running = [v for v in harness.snapshot.jobs.values() if v.size]
        if running and step.which % 2:
            view = running[step.which % len(running)]
            comp_s, comm_s = (0.1 + step.which) / view.size, 1.0 + len(view.job.id)
            harness.tell(PhasesObserved(harness.now_s, view.job.id, view.size, comp_s, comm_s, 5))
    for snapshot in [s for s, _plan in harness.asked[-8:]] + [harness.snapshot]:
        laws.hold(bound, snapshot)


@pytest.mark.parametrize(("name", "knobs"), CASES, ids=[f"{n}-{k}" for n, k in CASES])
@over(WORKLOADS, turns=laws.BESIDES)
def test_every_run_with_groups_keeps_the_laws(name, knobs, example, turn):
    workload, cluster = example
    with known_to_break(KNOWN.get(f"{name}-{knobs}")):
        laws.hold_in_a_run(find(name).bound(knobs), workload, cluster, besides=(turn,))
