"""A job that counts, on whatever devices it has, and does as it is told or not: for tests of resizing.

    python elastic_job.py FOLDER COUNT [--deaf] [--spoils] [--dies]

It counts up to COUNT, saves at every tenth number and when it is told to stop, and keeps the checkpoint before the
last. Each device is a file that it locks; if one is locked already, it reports that and ends. `--deaf` ignores the
signal, `--spoils` writes nonsense when it is told to stop, and fails when it reads that. `--dies` ends it as it is
prepared.
"""

import fcntl
import json
import os
import signal
import sys
import time
from contextlib import suppress

import elastic_imports  # noqa: F401 - what is prepared; it may end the process


def note(folder, **facts):
    line = json.dumps({"job": os.environ["HOCKET_JOB"], "run": int(os.environ["HOCKET_ATTEMPT"]), **facts}) + "\n"
    ledger = os.open(os.path.join(folder, "ledger"), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.write(ledger, line.encode())
    os.close(ledger)


def save(text):
    path = os.path.join(os.environ["HOCKET_CHECKPOINT_DIR"], "count")
    with open(f"{path}.part", "w") as file:
        file.write(text)
    if os.path.exists(path):  # It stays where it is until there is a newer one: we may be killed at any time.
        with suppress(FileNotFoundError):
            os.unlink(f"{path}.kept")  # An attempt that was killed between the next two lines left it.
        os.link(path, f"{path}.kept")
        os.rename(f"{path}.kept", f"{path}.previous")
    os.rename(f"{path}.part", path)


def load():
    try:
        with open(os.path.join(os.environ["HOCKET_CHECKPOINT_DIR"], "count")) as file:
            return int(file.read())
    except FileNotFoundError:
        return 0


def main():
    folder, goal = sys.argv[1], int(sys.argv[2])
    asked = []
    signal.signal(signal.SIGTERM, signal.SIG_IGN if "--deaf" in sys.argv else lambda *_: asked.append(1))
    devices = os.environ["CUDA_VISIBLE_DEVICES"].split(",")
    locks = [os.open(os.path.join(folder, f"device-{device}"), os.O_WRONLY | os.O_CREAT, 0o644) for device in devices]
    try:
        for lock in locks:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        note(folder, event="device used twice", devices=devices)
        sys.exit(1)
    count = load()
    note(folder, event="start", devices=devices, count=count)
    while count < goal:
        if asked:
            save("nonsense" if "--spoils" in sys.argv else str(count))
            note(folder, event="stop", devices=devices, count=count)
            sys.exit(128 + signal.SIGTERM)
        count += 1
        if count % 10 == 0:
            save(str(count))
        time.sleep(0.02)
    note(folder, event="end", devices=devices, count=count)


main()
