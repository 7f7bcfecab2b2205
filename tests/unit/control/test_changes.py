"""What a plan changes, in words."""

from __future__ import annotations

from hocket.control.diff import changes
from hocket.model.document import from_document
from hocket.model.example import training
from hocket.model.partition import Partition, Sharing, Tenant
from hocket.model.plan import Plan
from hocket.model.resources import Slice
from hocket.model.view import Tier

SNAPSHOT = from_document(training())
RESNET, TAGGER = SNAPSHOT.partitions["resnet"], SNAPSHOT.partitions["tagger"]


def test_starts_pauses_resizes_and_ends_are_named() -> None:
    plan = Plan(
        (
            Partition("tagger", (Slice("n1", (0,)),), (Tenant("tagger", (1,)),)),
            Partition("notebook", (Slice("n1", (1,), 2.0, 100.0),), (Tenant("notebook", (1,)),)),
        ),
        ("resnet",),
        {"detector": "hopeless"},
        tiers={"resnet": Tier.MEMORY},
    )
    assert changes(SNAPSHOT, plan) == {
        "notebook": "gets 1 on n1 (GPU 1, 2 cores, 100 MiB)",
        "resnet": "loses its resources; its state is moved to memory",
        "tagger": "goes from 2 on n1 (GPU 0,1) to 1 on n1 (GPU 0)",
        "detector": "ends: hopeless",
    }


def test_jobs_that_stay_are_not_named() -> None:
    pack = Partition("tagger", TAGGER.slices, (*TAGGER.tenants, Tenant("notebook", (1,))), Sharing.PACKED)
    assert changes(SNAPSHOT, Plan((pack, RESNET))) == {"notebook": "gets 1 on n1 (GPU 0,1), packed with 1 more"}


def test_a_checkpoint_is_a_change() -> None:
    assert changes(SNAPSHOT, Plan(checkpoints={"resnet": Tier.DISK})) == {"resnet": "is saved to disk"}
