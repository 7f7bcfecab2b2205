"""A small network on generated data, with NumPy alone: ordinary training code that can be stopped and resumed.

    python train_numpy.py --epochs 20 --checkpoint-dir /tmp/run1

A scheduler needs the following, which many scripts do already:

- after each epoch it prints its progress: `epoch 3/20 loss=0.4127 acc=0.8910`;
- on SIGTERM it saves a checkpoint and ends (exit code 143); on SIGUSR1 it saves one and continues;
- it saves one every few epochs on its own, so that little is lost if it is killed;
- it resumes from the folder `--checkpoint-dir`, or `$HOCKET_CHECKPOINT_DIR`, where it stopped, also within an epoch.

The same seed gives the same accuracy to the last digit, even if it was stopped in between.
"""

import argparse
import json
import os
import signal
import sys
import time

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # The matrices are small: more threads would not be faster.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

INPUTS, CLASSES = 16, 4
TRAINING, TEST = 4000, 1000  # examples
BATCH = 80
LEARNING_RATE, MOMENTUM = 0.1, 0.9


def arguments():
    parser = argparse.ArgumentParser(description="Trains a small network on generated data.")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--hidden", type=int, default=64, help="hidden units")
    parser.add_argument("--learning-rate", type=float, default=LEARNING_RATE)
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
    parser.add_argument(
        "--ledger", help="a file to which a line is added for each start, epoch, checkpoint, stop and end"
    )
    return parser.parse_args()


def generated_data(seed):
    """Random points, labelled by a random network that the trained one has to imitate."""
    dice = np.random.default_rng([seed, 1])
    inputs = dice.normal(size=(TRAINING + TEST, INPUTS))
    labels = (np.tanh(inputs @ dice.normal(size=(INPUTS, 8))) @ dice.normal(size=(8, CLASSES))).argmax(axis=1)
    return inputs[:TRAINING], labels[:TRAINING], inputs[TRAINING:], labels[TRAINING:]


def new_network(seed, hidden):
    """Weights and biases of two layers, and the momentum of each."""
    dice = np.random.default_rng([seed, 2])
    network = {
        "w1": dice.normal(size=(INPUTS, hidden)) / np.sqrt(INPUTS),
        "b1": np.zeros(hidden),
        "w2": dice.normal(size=(hidden, CLASSES)) / np.sqrt(hidden),
        "b2": np.zeros(CLASSES),
    }
    return network, {name: np.zeros_like(values) for name, values in network.items()}


def outputs(network, inputs):
    hidden = np.tanh(inputs @ network["w1"] + network["b1"])
    return hidden, hidden @ network["w2"] + network["b2"]


def loss_and_gradients(network, inputs, labels):
    hidden, scores = outputs(network, inputs)
    likely = np.exp(scores - scores.max(axis=1, keepdims=True))
    likely /= likely.sum(axis=1, keepdims=True)
    rows = np.arange(len(labels))
    loss = -np.log(likely[rows, labels] + 1e-12).mean()
    likely[rows, labels] -= 1
    error = likely / len(labels)
    behind = (error @ network["w2"].T) * (1 - hidden**2)
    gradients = {"w1": inputs.T @ behind, "b1": behind.sum(axis=0), "w2": hidden.T @ error, "b2": error.sum(axis=0)}
    return loss, gradients


def accuracy(network, inputs, labels):
    return float((outputs(network, inputs)[1].argmax(axis=1) == labels).mean())


# -- checkpoints --------------------------------------------------------------------------------------------


def save(folder, state):
    """Write the file whole or not at all: beside the last one, synced to disk, and renamed over it."""
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, "checkpoint.npz")
    with open(f"{path}.part", "wb") as file:
        np.savez(file, **state)
        file.flush()
        os.fsync(file.fileno())
    os.replace(f"{path}.part", path)
    directory = os.open(folder, os.O_RDONLY)
    os.fsync(directory)
    os.close(directory)


def load(folder):
    """The last state, or None if there is none."""
    try:
        with np.load(os.path.join(folder, "checkpoint.npz")) as saved:
            return dict(saved)
    except FileNotFoundError:
        return None


# -- training -----------------------------------------------------------------------------------------------


class Signals:
    """Remembers signals until the end of a batch."""

    def __init__(self):
        self.stop = self.save = False
        signal.signal(signal.SIGTERM, self.note)
        signal.signal(signal.SIGUSR1, self.note)

    def note(self, number, _frame):
        self.save = True
        self.stop = self.stop or number == signal.SIGTERM


def note_in_ledger(path, event, epoch, **more):
    """Add a line by one write, which the system does not mix with those of other processes."""
    if path:
        line = json.dumps({"event": event, "pid": os.getpid(), "time": time.time(), "epoch": epoch, **more}) + "\n"
        ledger = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        os.write(ledger, line.encode())
        os.close(ledger)


def main():
    signals = Signals()
    options = arguments()
    inputs, labels, test_inputs, test_labels = generated_data(options.seed)
    network, momentum = new_network(options.seed, options.hidden)
    batches = len(inputs) // BATCH
    epoch, batch, loss_sum = 0, 0, 0.0  # epochs done, and the position in the next one

    saved = load(options.checkpoint_dir) if options.checkpoint_dir else None
    if saved:
        epoch, batch, loss_sum = int(saved["epoch"]), int(saved["batch"]), float(saved["loss_sum"])
        network = {name: saved[name] for name in network}
        momentum = {name: saved[f"momentum_{name}"] for name in momentum}
        print(f"resuming from epoch {epoch}, batch {batch} of {batches}", flush=True)
    note_in_ledger(options.ledger, "start", epoch, batch=batch)

    def heed_signals():
        if signals.save and options.checkpoint_dir:
            moving = {f"momentum_{name}": values for name, values in momentum.items()}
            save(options.checkpoint_dir, {"epoch": epoch, "batch": batch, "loss_sum": loss_sum, **network, **moving})
            note_in_ledger(options.ledger, "checkpoint", epoch, batch=batch)
        signals.save = False
        if signals.stop and epoch < options.epochs:
            note_in_ledger(options.ledger, "stop", epoch, batch=batch)
            sys.exit(128 + signal.SIGTERM)

    while epoch < options.epochs:
        order = np.random.default_rng([options.seed, 3, epoch]).permutation(len(inputs))  # the same after a restart
        while batch < batches:
            heed_signals()
            began = time.monotonic()
            chosen = order[batch * BATCH : (batch + 1) * BATCH]
            loss, gradients = loss_and_gradients(network, inputs[chosen], labels[chosen])
            for name in network:
                momentum[name] = MOMENTUM * momentum[name] - options.learning_rate * gradients[name]
                network[name] = network[name] + momentum[name]
            loss_sum += float(loss)
            batch += 1

            # Simulates a larger network: gradients are computed and not used.
            while time.monotonic() < began + options.epoch_seconds / batches and not signals.save:
                loss_and_gradients(network, inputs[chosen], labels[chosen])
            while (rest := began + options.pace / batches - time.monotonic()) > 0 and not signals.save:
                time.sleep(min(rest, 0.05))

        epoch, batch, mean_loss, loss_sum = epoch + 1, 0, loss_sum / batches, 0.0
        acc = accuracy(network, test_inputs, test_labels)
        print(f"epoch {epoch}/{options.epochs} loss={mean_loss:.4f} acc={acc:.4f}", flush=True)
        note_in_ledger(options.ledger, "epoch", epoch, acc=acc)
        signals.save = signals.save or epoch % options.checkpoint_every == 0 or epoch == options.epochs
        heed_signals()

    print(f"done: final acc={accuracy(network, test_inputs, test_labels)!r}", flush=True)
    note_in_ledger(options.ledger, "end", epoch)


if __name__ == "__main__":
    main()
