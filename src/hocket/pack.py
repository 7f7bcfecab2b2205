"""Train many small models on one device in one step, each exactly as if it were alone.

    from hocket.pack import Pack, Training

    pack = Pack("cuda")
    for rate in (0.1, 0.03, 0.01):
        model = Net()
        optimiser = SGD(model.parameters(), rate)
        pack.load(Training(f"lr={rate}", model, optimiser, loader, steps=1000, loss=CrossEntropyLoss()))
    for checkpoint in pack.run():
        print(checkpoint.name, checkpoint.loss, checkpoint.reason)

It needs PyTorch and NumPy, and nothing else of Hocket.
"""

from hocket.runtimes.packing.certificate import Certificate
from hocket.runtimes.packing.checkpoint import ModelCheckpoint
from hocket.runtimes.packing.member import Member
from hocket.runtimes.packing.memory import Memory, Need
from hocket.runtimes.packing.pack import STEP_MODES, Pack
from hocket.runtimes.packing.primitives import free, load, pack
from hocket.runtimes.packing.training import NoRoom, Refused, Training

__all__ = [
    "STEP_MODES",
    "Certificate",
    "Member",
    "Memory",
    "ModelCheckpoint",
    "Need",
    "NoRoom",
    "Pack",
    "Refused",
    "Training",
    "free",
    "load",
    "pack",
]  # fmt: skip
