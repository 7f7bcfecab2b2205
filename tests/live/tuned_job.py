"""A script as a user has it, for `hocket tune`: trains nothing, but counts epochs, saves them and goes on from there.

    python tuned_job.py --rate RATE --folder FOLDER

Its accuracy rises with the epochs, and is the better, the nearer RATE is to 0.1. It trains up to the epoch that is in
FOLDER/pace, so that a test says how far all go, and notes in FOLDER/starts the epoch at which each process begins.
"""

import argparse
import math
import os
import signal
import sys
import time

parser = argparse.ArgumentParser()
parser.add_argument("--rate", type=float, required=True)
parser.add_argument("--folder", required=True)
parser.add_argument("--epochs", type=int, default=1000)
parser.add_argument("--saves", type=int, default=1)
given = parser.parse_args()
path = os.path.join(os.environ["HOCKET_CHECKPOINT_DIR"], "epoch")
stop = []
signal.signal(signal.SIGTERM, lambda *_: stop.append(1))
epoch = 0
if os.path.exists(path):
    with open(path) as file:
        epoch = int(file.read())
with open(os.path.join(given.folder, "starts", os.environ["HOCKET_JOB"]), "a") as file:
    print(epoch, file=file)
while epoch < given.epochs:
    time.sleep(0.05)
    if stop:
        if given.saves:
            with open(path, "w") as file:
                file.write(str(epoch))
        sys.exit(128 + signal.SIGTERM)
    with open(os.path.join(given.folder, "pace")) as file:
        if epoch >= int(file.read() or 0):
            continue
    epoch += 1
    accuracy = (1 - abs(math.log10(given.rate / 0.1)) / 4) * (1 - 0.8**epoch)
    print(f"epoch {epoch} acc={accuracy:.6f}", flush=True)
