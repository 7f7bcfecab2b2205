"""A small network on images of digits, with PyTorch in one process, trained until it is good enough.

    python examples/train_goal.py --epochs 60 --batch-size 32
    hocket submit --gpus 0 --until "acc >= 95% within 60 epochs" --model mlp --trait dataset=digits \\
        --trait optimizer=sgd --trait batch_size=32 --trait learning_rate=0.05 -- \\
        python examples/train_goal.py --epochs 60 --batch-size 32 --learning-rate 0.05

When to stop is the scheduler's business: the script prints `epoch 3/60 loss=0.4127 acc=0.8910` and goes on. Under
`hocket up --policy rotary` it holds its device for an epoch at a time; what it prints says how many it still needs,
and the model and the traits say which earlier jobs were like it. It saves its state after each epoch, and on SIGTERM
before the next batch; started again it goes on within the epoch, with the same batches.
"""

import argparse
import os
import signal
import sys
import time

import torch
from torch.nn.functional import cross_entropy
from tune_data import digits

OPTIMIZERS = {
    "sgd": lambda weights, rate: torch.optim.SGD(weights, lr=rate, momentum=0.9),
    "adam": lambda weights, rate: torch.optim.Adam(weights, lr=rate),
}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--hidden", type=int, default=64, help="hidden units")
    parser.add_argument("--optimizer", choices=sorted(OPTIMIZERS), default="sgd")
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--learning-rate", type=float, default=0.05)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--pace", type=float, default=0.0, help="least seconds of each epoch, by sleeping")
    parser.add_argument("--checkpoint-dir", default=os.environ.get("HOCKET_CHECKPOINT_DIR"), help="none: no state")
    return parser.parse_args()


def save(folder, state):
    """Write the file whole or not at all."""
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, "checkpoint.pt")
    with open(f"{path}.part", "wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(f"{path}.part", path)


def main():
    asked_to_leave = []
    signal.signal(signal.SIGTERM, lambda *_: asked_to_leave.append(True))
    options = arguments()
    torch.set_num_threads(1)  # The matrices are small: more threads would not be faster.
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(options.seed)
    data, (test_images, test_labels) = digits()
    images, labels = (tensor.to(device) for tensor in data.tensors)
    test_images, test_labels = test_images.to(device), test_labels.to(device)
    layers = torch.nn.Linear(64, options.hidden), torch.nn.ReLU(), torch.nn.Linear(options.hidden, 10)
    network = torch.nn.Sequential(*layers).to(device)
    optimizer = OPTIMIZERS[options.optimizer](network.parameters(), options.learning_rate)
    epoch, batch, losses = 0, 0, 0.0  # epochs done, and the position in the next one

    saved = os.path.join(options.checkpoint_dir or "", "checkpoint.pt")
    if options.checkpoint_dir and os.path.exists(saved):
        state = torch.load(saved, weights_only=True)
        network.load_state_dict(state["network"])
        optimizer.load_state_dict(state["optimizer"])
        epoch, batch, losses = state["epoch"], state["batch"], state["losses"]
        print(f"resuming from epoch {epoch}, batch {batch}", flush=True)

    def keep():
        if options.checkpoint_dir:
            state = {"network": network.state_dict(), "optimizer": optimizer.state_dict()}
            save(options.checkpoint_dir, {**state, "epoch": epoch, "batch": batch, "losses": losses})

    batches = -(-len(images) // options.batch_size)
    while epoch < options.epochs:
        # The same order after a restart.
        order = torch.randperm(len(images), generator=torch.Generator().manual_seed(1000 * options.seed + epoch))
        while batch < batches:
            if asked_to_leave:
                keep()
                sys.exit(128 + signal.SIGTERM)
            began = time.monotonic()
            chosen = order[batch * options.batch_size : (batch + 1) * options.batch_size]
            optimizer.zero_grad()
            loss = cross_entropy(network(images[chosen]), labels[chosen])
            loss.backward()
            optimizer.step()
            losses, batch = losses + loss.item(), batch + 1
            time.sleep(max(0.0, began + options.pace / batches - time.monotonic()))
        mean, epoch, batch, losses = losses / batches, epoch + 1, 0, 0.0
        with torch.no_grad():
            acc = (network(test_images).argmax(dim=1) == test_labels).double().mean().item()
        keep()
        print(f"epoch {epoch}/{options.epochs} loss={mean:.4f} acc={acc:.4f}", flush=True)


if __name__ == "__main__":
    main()
