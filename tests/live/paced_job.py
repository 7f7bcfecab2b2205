"""A job that only takes its time, so that many of them run side by side on few cores.

    python paced_job.py CHECKPOINT EPOCHS SECONDS [--saves] [--breaks-at EPOCHS]

An epoch takes so many seconds at size 1, and at size n the nth part. When it is told to stop it saves how far it is,
to a fraction of an epoch; with `--saves` it does so after every epoch too. It breaks once, after so many epochs.
"""

import os
import signal
import sys
import time


def save(path, done):
    """Whole or not at all."""
    with open(f"{path}.part", "w") as file:
        file.write(repr(done))
    os.rename(f"{path}.part", path)


def load(path):
    """Epochs done."""
    try:
        with open(path) as file:
            return float(file.read())
    except FileNotFoundError:
        return 0.0


def main():
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})  # It is waited for, instead of sleeping.
    began_s = time.monotonic()
    path, epochs, epoch_s = sys.argv[1], int(sys.argv[2]), float(sys.argv[3]) / int(os.environ["HOCKET_SIZE"])
    breaks_at = float(sys.argv[sys.argv.index("--breaks-at") + 1]) if "--breaks-at" in sys.argv else None
    if breaks_at is not None and os.path.exists(f"{path}.broke"):
        breaks_at = None
    begun = done = load(path)
    while done < epochs:
        goal = float(int(done) + 1)
        if breaks_at is not None and done < breaks_at < goal:
            goal = breaks_at
        wait_s = began_s + (goal - begun) * epoch_s - time.monotonic()
        if signal.sigtimedwait({signal.SIGTERM}, max(wait_s, 0.0)):
            save(path, begun + (time.monotonic() - began_s) / epoch_s)
            sys.exit(128 + signal.SIGTERM)
        done = goal
        if done == breaks_at:
            save(f"{path}.broke", done)
            sys.exit("it breaks")
        if "--saves" in sys.argv:
            save(path, done)
        # With a number beside it, an epoch is known to be over; without, it may have just begun.
        print(f"epoch {int(done)}/{epochs} loss={1 / done:.4f}", flush=True)


main()
