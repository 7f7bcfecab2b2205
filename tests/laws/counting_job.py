"""A job that counts its steps, for the laws of executors: it saves only when it is told to, and keeps its own account.

    python counting_job.py FOLDER

FOLDER is the same on every node. In it are, for each job, the account (`JOB.steps`: a line a step), the runs
(`JOB.runs`: process, attempt, node, GPUs and program of each) and the checkpoint (`JOB.saved`). SIGTERM tells
it to save and to leave, SIGUSR1 to save and to go on. On several nodes only the first part makes steps and saves.
"""

import os
import signal
import sys

STEP_S = 0.05


def append(path, line):
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.write(file, f"{line}\n".encode())
    os.close(file)


def save(path, count):
    """Whole or not at all."""
    with open(f"{path}.part", "w") as file:
        file.write(str(count))
    os.rename(f"{path}.part", path)


def load(path):
    try:
        with open(path) as file:
            return int(file.read())
    except FileNotFoundError:
        return 0


def main():
    asked = {signal.SIGTERM, signal.SIGUSR1}
    signal.pthread_sigmask(signal.SIG_BLOCK, asked)  # They are waited for, instead of sleeping.
    job = os.path.join(sys.argv[1], os.environ["HOCKET_JOB"])
    count = load(f"{job}.saved")
    with open("/proc/self/cmdline") as file:
        program = next(os.path.basename(word) for word in file.read().split("\0") if word.endswith(".py"))
    place = f"{os.environ['HOCKET_NODE']} {os.environ['CUDA_VISIBLE_DEVICES']}"
    append(f"{job}.runs", f"{os.getpid()} {os.environ['HOCKET_ATTEMPT']} {place} {program}")
    is_first = os.environ.get("GROUP_RANK", "0") == "0"
    while True:
        if told := signal.sigtimedwait(asked, STEP_S):
            if is_first:
                save(f"{job}.saved", count)
            if told.si_signo == signal.SIGTERM:
                sys.exit(128 + signal.SIGTERM)
            continue
        if not is_first:
            continue
        count += 1
        append(f"{job}.steps", count)
        print(f"epoch {count}/100000 loss={1 / count:.4f}", flush=True)


main()
