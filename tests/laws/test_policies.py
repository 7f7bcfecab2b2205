"""Every policy there is keeps every law. A new policy file is covered with no change here."""

import pytest
from hypothesis import strategies as st
from tests.laws.drawing import over

from hocket.policies import find, policies
from hocket.testing import laws
from hocket.testing import strategies as some

# Policies at their defaults, and these with knobs turned to where more can happen; rounds are shorter than jobs,
# but not so short that nothing happens in most of them.
VARIANTS = {
    "backfill": [{"depth": 2}],
    "bcf": [{"longest_epoch_s": 400}],
    "borg_fair": [{"preempt": False}],
    "drf": [{"preempt": True}, {"preempt": True, "quantum_s": 0}],
    "edf": [{"preempt": False}],
    "fair": [{"preempt": False}, {"quantum_s": 0}],
    "graphene": [{"jct": 0.0, "packing": 1.0}],
    "hypersched": [{"round_s": 100, "significant": 0.2}],
    "laf": [{"by": "value", "longest_epoch_s": 400}],
    "las": [{"promote": 1.0}, {"levels_gpu_s": [1, 10, 100]}, {"levels_gpu_s": [1, 10, 100], "promote": 0.2}],
    "mlfs_c": [{"inner": "las"}, {"inner": "fair", "inner_params": {"quantum_s": 0}}],
    "mlf_h": [{"round_s": 0}, {"round_s": 0, "patience_s": 50}],
    "mlf_rl": [{"round_s": 0, "guard": False}],
    "relaqs": [{"epoch_s": 50, "longest_epoch_s": 300}],
    "reshape": [{"objective": "jct", "hysteresis": 0.2}, {"donors": 3}],
    "round_robin": [{"quantum_s": 120}],
    "rl": [{"round_s": 0}],
    "rotary": [{"epoch_s": 50, "longest_epoch_s": 300}, {"variant": "paper", "extra": "turn"}],
    "rotary_aqp": [{"epoch_s": 50, "longest_epoch_s": 300}],
    "rotary_dlt": [{"threshold": 0.0, "longest_epoch_s": 400}, {"threshold": 1.0}],
    "slaq": [{"round_s": 100}],
    "srf": [{"longest_epoch_s": 400}],
    "srtf": [{"hysteresis": 0.5}],
    "static": [{"size": "largest"}],
    "tiresias": [{"variant": "las"}, {"levels_gpu_s": [1, 10, 100], "promote": 1.0}],
}
CASES = [
    pytest.param(name, knobs, id=name + "".join(f"-{k}={v}" for k, v in knobs.items()))
    for name in policies()
    for knobs in [{}, *VARIANTS.get(name, [])]
]


# With HOCKET_ROAM=1 other draws may find that mlf_h, with round_s=0 and patience_s=50, starts some jobs sooner if it is
# asked in every cycle.
SCENES = some.scenes()
WORKLOADS = some.nodes().flatmap(lambda cluster: st.tuples(some.workloads(cluster), st.just(cluster)))


@pytest.mark.parametrize(("name", "knobs"), CASES)
@over(SCENES)
def test_every_decision_keeps_the_laws(name, knobs, example):
    bound = find(name).bound(knobs)
    for snapshot in some.snapshots_of(example, bound):
        laws.hold(bound, snapshot)


@pytest.mark.parametrize(("name", "knobs"), CASES)
@over(WORKLOADS, turns=laws.BESIDES)
def test_every_run_keeps_the_laws(name, knobs, example, turn):
    workload, cluster = example
    laws.hold_in_a_run(find(name).bound(knobs), workload, cluster, besides=(turn,))


BROKEN = {
    "uses what is not there": """
    put = [Partition(job, (Slice("n0", (0,)),), (Tenant(job, (1,)),)) for job in snapshot.jobs]
    return Plan(put=tuple(put), reasons=dict.fromkeys(snapshot.jobs, "starts"))
""",
    "waits for no reason": "    return Draft(snapshot).plan()",
    "gives no reason": """
    draft = Draft(snapshot)
    for view in draft.candidates():
        draft.start(view, "")
    return draft.plan()
""",
    "goes by names": """
    draft = Draft(snapshot)
    for view in sorted(draft.candidates(), key=lambda v: v.job.id):
        draft.start(view, "starts")
    return draft.plan()
""",
    "throws its own dice": """
    draft = Draft(snapshot)
    for view in draft.candidates():
        if random() < 0.5:
            draft.start(view, "starts")
    draft.reasons["*"] = "waits: the dice are for 'j0'"
    return draft.plan()
""",
    "remembers what JSON does not": """
    draft = Draft(snapshot)
    for view in draft.candidates():
        draft.start(view, "starts")
    return draft.plan(memo=(1, 2))
""",
    "forgets to be woken": """
    draft = Draft(snapshot)
    for view in draft.candidates():
        draft.start(view, "starts")
    return draft.plan(Wake(freed_gpus=None))
""",
}


@pytest.mark.parametrize("body", BROKEN.values(), ids=BROKEN)
def test_the_laws_find_a_policy_that_breaks_them(body):
    from random import Random

    from hocket.model import Partition, Plan, Slice, Tenant, Wake
    from hocket.policies import Draft, Params, Policy
    from hocket.testing.builders import cluster, job, snapshot, submission, submitted, workload

    scope = {"Draft": Draft, "Partition": Partition, "Plan": Plan, "Slice": Slice, "Tenant": Tenant, "Wake": Wake}
    scope["random"] = Random(1).random
    exec("def decide(snapshot, params):\n" + body, scope)
    bound = Policy("broken", scope["decide"], Params, None, "", "", "").bound()
    jobs = [job(f"j{i}", 1 + i % 3) for i in (3, 1, 2, 0)]
    nodes = cluster("1x4")

    def keep_all_laws():
        laws.hold(bound, snapshot(nodes, *(submitted(j) for j in jobs)))
        laws.hold_in_a_run(bound, workload(*(submission(j, i) for i, j in enumerate(jobs))), nodes)

    with pytest.raises(AssertionError):
        keep_all_laws()
