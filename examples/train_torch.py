"""A small network on generated data, trained by several processes with PyTorch: ordinary code for torchrun.

    OMP_NUM_THREADS=1 torchrun --standalone --nproc-per-node 2 train_torch.py --epochs 20 --checkpoint-dir /tmp/run2

It can be stopped and resumed as `train_numpy.py` can (SIGTERM saves and ends, SIGUSR1 saves and goes on, the folder is
`--checkpoint-dir` or `$HOCKET_CHECKPOINT_DIR`), and resumed by any number of processes: a batch is the same examples
however many share it, and its gradient is the same except for rounding. With one process it also runs without torchrun.

The processes agree after each batch whether one of them got a signal; the first of them prints and saves. The position
within the epoch is saved too, so each example is used once per epoch even if the training is stopped. The checkpoint
before the last one is kept, and used if the last one cannot be read.
"""

import argparse
import hashlib
import json
import os
import pickle
import signal
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

INPUTS, CLASSES = 16, 4
TRAINING, TEST = 4000, 1000  # examples
BATCH = 80  # of all processes together
LEARNING_RATE, MOMENTUM = 0.1, 0.9
CHECKPOINTS = ("checkpoint.pt", "checkpoint.previous.pt")


def arguments():
    parser = argparse.ArgumentParser(description="Trains a small network on generated data, in one process or several.")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--hidden", type=int, default=64, help="hidden units")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--checkpoint-dir", default=os.environ.get("HOCKET_CHECKPOINT_DIR"), help="none: nothing is saved"
    )
    parser.add_argument("--checkpoint-every", type=int, default=1, metavar="EPOCHS")
    parser.add_argument(
        "--epoch-seconds", type=float, default=0, help="compute at least this many seconds in each epoch"
    )
    parser.add_argument(
        "--pace", type=float, default=0, help="sleep so that each epoch lasts at least this many seconds"
    )
    parser.add_argument("--shared-pace", type=float, default=0, help="by one process; by n it is an nth of that")
    parser.add_argument(
        "--ledger", help="a file to which a line is added for each start, epoch, checkpoint, stop and end"
    )
    parser.add_argument(
        "--steps", action="store_true", help="add a line for each batch too: its process, device and examples"
    )
    return parser.parse_args()


def dice(*seed):
    """The same for the same seed, in every process and after every restart."""
    number = 0
    for part in seed:
        number = number * 1_000_003 + part
    return torch.Generator().manual_seed(number)


def generated_data(seed):
    """Random points, labelled by a random network that the trained one has to imitate."""
    rolls = dice(seed, 1)
    inputs = torch.randn(TRAINING + TEST, INPUTS, generator=rolls)
    first, second = torch.randn(INPUTS, 8, generator=rolls), torch.randn(8, CLASSES, generator=rolls)
    labels = (torch.tanh(inputs @ first) @ second).argmax(dim=1)
    return inputs[:TRAINING], labels[:TRAINING], inputs[TRAINING:], labels[TRAINING:]


def new_network(seed, hidden):
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(INPUTS, hidden), torch.nn.Tanh(), torch.nn.Linear(hidden, CLASSES))


@torch.no_grad()
def accuracy(network, inputs, labels):
    return (network(inputs).argmax(dim=1) == labels).double().mean().item()


# -- checkpoints --------------------------------------------------------------------------------------------


def save(folder, state):
    """Write the file whole or not at all: beside the last one, synced to disk; then each is renamed."""
    os.makedirs(folder, exist_ok=True)
    path, previous = (os.path.join(folder, name) for name in CHECKPOINTS)
    with open(f"{path}.part", "wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())
    if os.path.exists(path):
        os.replace(path, previous)
    os.replace(f"{path}.part", path)
    directory = os.open(folder, os.O_RDONLY)
    os.fsync(directory)
    os.close(directory)


def load(folder):
    """The last state that can be read, or None if there is none; an error if there is one and none can be read."""
    trouble = None
    for name in CHECKPOINTS:
        try:
            return torch.load(os.path.join(folder, name), weights_only=True)
        except FileNotFoundError:
            continue
        except (RuntimeError, EOFError, KeyError, ValueError, pickle.UnpicklingError) as error:
            trouble = error
            print(f"'{name}' cannot be read: {type(error).__name__}", file=sys.stderr, flush=True)
    if trouble is not None:
        raise trouble
    return None


def digest(network, optimiser):
    """The same if and only if all weights and momenta are, to the last bit."""
    momenta = [state["momentum_buffer"] for state in optimiser.state_dict()["state"].values()]
    found = hashlib.sha256()
    for tensor in [*network.state_dict().values(), *momenta]:
        found.update(tensor.numpy().tobytes())
    return found.hexdigest()


# -- training -----------------------------------------------------------------------------------------------


class Signals:
    """Remembers the signals of this process until all processes have agreed on them."""

    def __init__(self):
        self.stop = self.save = False
        self.asked_at = None
        signal.signal(signal.SIGTERM, self.note)
        signal.signal(signal.SIGUSR1, self.note)

    def note(self, number, _frame):
        self.asked_at = time.time()
        self.save = True
        self.stop = self.stop or number == signal.SIGTERM

    def agreed(self):
        """Whether to save and whether to stop, the same in all processes."""
        asked = torch.tensor([self.save, self.stop], dtype=torch.int32)
        self.save = False
        if dist.is_initialized():
            dist.all_reduce(asked, op=dist.ReduceOp.MAX)
        return bool(asked[0]), bool(asked[1])


def mean_over_processes(value):
    value = torch.tensor(value, dtype=torch.float64)
    if dist.is_initialized():
        dist.all_reduce(value)
        value /= dist.get_world_size()
    return value.item()


def note_in_ledger(path, event, epoch, **more):
    """Add a line by one write, which the system does not mix with those of other processes."""
    if path:
        line = json.dumps({"event": event, "pid": os.getpid(), "time": time.time(), "epoch": epoch, **more}) + "\n"
        ledger = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        os.write(ledger, line.encode())
        os.close(ledger)


def leave(code):
    """Ends the process, at once if it exchanged anything with others.

    A thread of PyTorch may still be in the last exchange. If the interpreter exits meanwhile, it kills that thread,
    which aborts the process; destroying the process group may wait for the thread for ever.
    """
    if dist.is_initialized():
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


def main():
    began_at = time.time()
    signals = Signals()
    options = arguments()
    torch.set_num_threads(1)
    if "WORLD_SIZE" in os.environ:  # started by torchrun, or by Hocket in the same way
        dist.init_process_group("gloo")
    rank, processes = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
    joined_at = time.time()
    ledger = options.ledger if rank == 0 else None
    devices = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
    device = devices[min(int(os.environ.get("LOCAL_RANK", 0)), len(devices) - 1)]

    inputs, labels, test_inputs, test_labels = generated_data(options.seed)
    network = new_network(options.seed, options.hidden)
    batches = len(inputs) // BATCH
    batch_s = max(options.pace, options.shared_pace / processes) / batches
    epoch, batch, loss_sum = 0, 0, 0.0  # epochs done, and the position in the next one

    saved = load(options.checkpoint_dir) if options.checkpoint_dir else None
    if saved:
        epoch, batch, loss_sum = saved["epoch"], saved["batch"], saved["loss_sum"]
        network.load_state_dict(saved["network"])
    model = DistributedDataParallel(network) if dist.is_initialized() else network
    optimiser = torch.optim.SGD(model.parameters(), LEARNING_RATE, MOMENTUM)
    if saved:
        optimiser.load_state_dict(saved["optimiser"])
    if saved and rank == 0:
        print(f"resuming from epoch {epoch}, batch {batch} of {batches}, by {processes} processes", flush=True)
    times = {"began": began_at, "joined": joined_at}
    state = digest(network, optimiser) if ledger else ""
    note_in_ledger(ledger, "start", epoch, batch=batch, processes=processes, state=state, **times)

    def heed_signals():
        nonlocal loss_sum
        to_save, to_stop = signals.agreed()
        if to_save:
            loss_sum = mean_over_processes(loss_sum)
        if to_save and options.checkpoint_dir and rank == 0:
            state = {"network": network.state_dict(), "optimiser": optimiser.state_dict()}
            save(options.checkpoint_dir, {"epoch": epoch, "batch": batch, "loss_sum": loss_sum, **state})
            state = digest(network, optimiser) if ledger else ""
            note_in_ledger(ledger, "checkpoint", epoch, batch=batch, state=state)
        if to_stop and epoch < options.epochs:
            note_in_ledger(ledger, "stop", epoch, batch=batch, asked=signals.asked_at)
            if dist.is_initialized():
                dist.barrier()  # A process that ended sooner would look like a failure while the first may still save.
            leave(128 + signal.SIGTERM)

    while epoch < options.epochs:
        order = torch.randperm(len(inputs), generator=dice(options.seed, 3, epoch))
        while batch < batches:
            heed_signals()
            began = time.monotonic()
            chosen = order[batch * BATCH : (batch + 1) * BATCH][rank::processes]
            # The mean over the whole batch, though processes may have unequal parts: theirs are averaged afterwards.
            loss = cross_entropy(model(inputs[chosen]), labels[chosen], reduction="sum") * processes / BATCH
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            loss_sum += loss.item()
            if options.steps:
                process = {"rank": rank, "device": device, "examples": chosen.tolist()}
                note_in_ledger(options.ledger, "step", epoch, batch=batch, **process)
            batch += 1

            # Simulates a larger network: gradients are computed and not used.
            while time.monotonic() < began + options.epoch_seconds / batches and not signals.save:
                wasted = cross_entropy(network(inputs[chosen]), labels[chosen])
                torch.autograd.grad(wasted, list(network.parameters()))
            while (rest := began + batch_s - time.monotonic()) > 0 and not signals.save:
                time.sleep(min(rest, 0.01))

        epoch, batch, mean_loss, loss_sum = epoch + 1, 0, mean_over_processes(loss_sum) / batches, 0.0
        if rank == 0:
            acc = accuracy(network, test_inputs, test_labels)
            print(f"epoch {epoch}/{options.epochs} loss={mean_loss:.4f} acc={acc:.4f}", flush=True)
            note_in_ledger(ledger, "epoch", epoch, acc=acc)
        signals.save = signals.save or epoch % options.checkpoint_every == 0 or epoch == options.epochs
        heed_signals()

    if rank == 0:
        print(f"done: final acc={accuracy(network, test_inputs, test_labels)!r}", flush=True)
        note_in_ledger(ledger, "end", epoch)
    leave(0)


if __name__ == "__main__":
    main()
