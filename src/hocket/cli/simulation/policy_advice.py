"""Which policy to choose in which situation: `hocket policies --advise`, and the table in docs/policies/README.md."""

from __future__ import annotations

from msgspec import Struct


class Advice(Struct, frozen=True):
    """A situation, the policies to try first, and why."""

    situation: str
    policies: tuple[str, ...]
    why: str


ADVICE = (
    Advice(
        "one user on one machine, or no idea yet",
        ("las",),
        "the default: short jobs do not wait behind long ones, and nobody has to state run times",
    ),
    Advice(
        "long trainings beside notebooks and short tests",
        ("las", "tiresias"),
        "newcomers run at once, jobs that had much GPU time make way; --priority for those that must not wait",
    ),
    Advice(
        "a team that shares by weights and quotas",
        ("fair", "drf"),
        "each owner gets its share (hocket owners set); drf counts cores and memory too, not only GPUs",
    ),
    Advice(
        "jobs that must be done by a time",
        ("edf",),
        "the earliest --deadline goes first, and later ones make way",
    ),
    Advice(
        "known run times, or the same jobs again and again",
        ("srtf",),
        "the shortest go first; long jobs may wait long, and wrong estimates do harm (las needs none)",
    ),
    Advice(
        "jobs that cannot save their state, or must not be paused",
        ("backfill", "fifo"),
        "nothing is paused; backfill lets small jobs pass where they delay no other, fifo keeps the order",
    ),
    Advice(
        "production before research",
        ("las", "borg_fair"),
        "a higher --priority takes the place of a lower one; under borg_fair owners of one priority take turns",
    ),
    Advice(
        "elastic jobs (--gpus 1,2,4) that shall all be done early",
        ("reshape", "dorm"),
        "reshape sizes jobs so that the last one ends soonest; dorm fills the cluster and stays nearly fair",
    ),
    Advice(
        "everyone a little, in turns",
        ("round_robin",),
        "each job gets a time slice; every switch costs a restart",
    ),
    Advice(
        "hyperparameter sweeps of small models",
        ("pack_gain",),
        "with hocket tune: many models are trained in one step on one GPU",
    ),
    Advice(
        "more work than the cluster can do, and jobs with goals",
        ("mlfs_c",),
        "around another policy (inner=las): ends trainings that have, or cannot reach, what their users want (--stop)",
    ),
    Advice(
        "parameter servers on shared machines",
        ("harmony",),
        "one job computes while another communicates; in simulations, with jobs whose phases are known",
    ),
    Advice(
        "models cut into tasks",
        ("mlf_h",),
        "places task by task, several on a GPU; in simulations, no agent runs task graphs yet",
    ),
)
