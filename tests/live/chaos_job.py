"""A job for chaos runs, with the options and the ledger of `examples/train_numpy.py`: it computes next to nothing.

What an epoch comes to follows from all batches before it, so that one that is lost or done twice is seen.
"""

import argparse
import json
import os
import signal
import sys
import time

BATCHES = 10  # of an epoch
ASKED = {signal.SIGTERM, signal.SIGUSR1}


def save(path, state):
    """Whole or not at all."""
    with open(f"{path}.part", "w") as file:
        json.dump(state, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(f"{path}.part", path)


def load(path):
    """The last state: epochs done, batches of the next one, and what they came to."""
    try:
        with open(path) as file:
            return json.load(file)
    except FileNotFoundError:
        return 0, 0, 1


def main():
    signal.pthread_sigmask(signal.SIG_BLOCK, ASKED)  # They are waited for, instead of sleeping.
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int)
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--pace", type=float)
    parser.add_argument("--ledger")
    parser.add_argument("--checkpoint-every", type=int)
    given = parser.parse_args()
    path = os.path.join(os.environ["HOCKET_CHECKPOINT_DIR"], "state")
    epoch, batch, value = load(path)

    def note(event, **more):
        """Add a line by one write, which the system does not mix with those of other processes."""
        line = json.dumps({"event": event, "pid": os.getpid(), "time": time.time(), "epoch": epoch, **more}) + "\n"
        file = os.open(given.ledger, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        os.write(file, line.encode())
        os.close(file)

    def keep():
        save(path, (epoch, batch, value))
        note("checkpoint", batch=batch)

    if epoch or batch:
        print(f"resuming from epoch {epoch}, batch {batch} of {BATCHES}", flush=True)
    note("start", batch=batch)
    while epoch < given.epochs:
        while batch < BATCHES:
            if told := signal.sigtimedwait(ASKED, given.pace / BATCHES):
                keep()
                if told.si_signo == signal.SIGTERM:
                    note("stop", batch=batch)
                    sys.exit(128 + signal.SIGTERM)
                continue
            value = (value * 6364136223846793005 + given.seed + batch) % 2**61
            batch += 1
        epoch, batch = epoch + 1, 0
        print(f"epoch {epoch}/{given.epochs} loss={1 / epoch:.4f} acc={value / 2**61:.4f}", flush=True)
        note("epoch", acc=value)
        if epoch % given.checkpoint_every == 0 or epoch == given.epochs:
            keep()
    note("end")


if __name__ == "__main__":
    main()
