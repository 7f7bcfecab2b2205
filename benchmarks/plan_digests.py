"""`python -m benchmarks.plan_digests --save FILE | --against FILE [--reasons]`: has any decision changed?

Every policy decides on every workload below, through `hocket simulate --journal`. Two trees whose digests agree made
the same plans at the same moments, whatever was renamed or rearranged between them. Reasons are words for people: they
count only with `--reasons`.
"""

from __future__ import annotations

import argparse
import json
import sqlite3
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from os import cpu_count
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import msgspec

CASES: dict[str, tuple[str, ...]] = {
    "demo": ("demo",),
    "demo, noisy": ("demo", "--beliefs", "noisy:0.3", "--noise", "0.1", "--seed", "3"),
    "poisson": ("poisson?jobs=150&gap=90", "--cluster", "2x8", "--switching", "start=10,checkpoint=5,stop=2"),
    "kinds of GPU": ("poisson?jobs=80&gap=120", "--cluster", "2x4:v100+2x4:k80", "--beliefs", "oracle"),
    "harmony": ("harmony?which=compute&gap=240",),
    "mlfs": ("mlfs?jobs=60&over=18h",),
    "reshape": ("reshape?workload=1",),
    "dorm": ("dorm",),
    "quotas and lost nodes": ("{folder}/quotas.toml",),
}
LIMIT_S = 600
QUOTAS = """
name = "quotas and lost nodes"
cluster = "3x4"
[costs]
prepare_s = 20
start_s = 10
checkpoint_s = 5
stop_s = 2
[[owners]]
id = "a"
max_gpus = 5
weight = 2
[[owners]]
id = "b"
max_jobs = 3
[[faults]]
node = "n001"
at_s = 4000
back_s = 9000
"""
JOB = """
[[jobs]]
id = "j{n}"
owner = "{owner}"
submit_s = {submit_s}
run_s = {run_s}
gpus = {gpus}
sizes = {sizes}
speed = "law:0.05"
epochs = 20
quality = {{ start = 0.1, final = 0.93, half_epochs = 4 }}
criterion = "acc >= {goal}% within {within}h"
deadline_s = {deadline_s}
priority = {priority}
urgency = {urgency}
warm = {warm}
model = "m{model}"
stop = "optstop"
"""


def main(arguments: list[str]) -> int:
    """Take the digests; save them, or say which differ."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.plan_digests", description=__doc__.partition("\n")[0])
    target = parser.add_mutually_exclusive_group(required=True)
    target.add_argument("--save", type=Path, metavar="FILE", help="write the digests to this JSON file")
    target.add_argument("--against", type=Path, metavar="FILE", help="compare with the digests of this file")
    parser.add_argument("--reasons", action="store_true", help="the words of the reasons count too")
    parser.add_argument("--policies", nargs="+", metavar="NAME", help="only these")
    chosen = parser.parse_args(arguments)
    policies = chosen.policies or [entry["name"] for entry in _printed("policies", "--json")["policies"]]
    found = digests(policies, chosen.reasons)
    if chosen.save is not None:
        chosen.save.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")
        print(f"{len(found)} digests saved")
        return 0
    before = {key: digest for key, digest in json.loads(chosen.against.read_text()).items() if key in found}
    different = sorted(key for key in found if before.get(key) != found[key])
    for key in different:
        print(f"{key}: {before.get(key, 'was not taken')} before, {found[key]} now")
    print(f"{len(found) - len(different)} of {len(found)} are the same")
    return 1 if different else 0


def digests(policies: list[str], reasons: bool) -> dict[str, str]:
    """`policy, case` → the digest of all its plans, or how the run ended instead."""
    pairs = [(policy, case) for policy in policies for case in CASES]
    with ThreadPoolExecutor(cpu_count()) as pool:
        return {
            f"{policy}, {case}": digest
            for (policy, case), digest in zip(pairs, pool.map(lambda p: _digest(*p, reasons), pairs), strict=True)
        }


def _digest(policy: str, case: str, reasons: bool) -> str:
    with TemporaryDirectory() as folder:
        journal = Path(folder) / "run.db"
        (Path(folder) / "quotas.toml").write_text(_quotas())
        words = [word.replace("{folder}", folder) for word in CASES[case]]
        command = [sys.executable, "-m", "hocket", "simulate", *words, "--policy", policy, "--journal", str(journal)]
        try:
            done = subprocess.run([*command, "--json"], capture_output=True, text=True, timeout=LIMIT_S, check=False)
        except subprocess.TimeoutExpired:
            return f"not over after {LIMIT_S} s"
        if not journal.exists():
            return f"exit code {done.returncode}: {done.stderr.strip()[-200:]}"
        return f"exit code {done.returncode}, {_of_plans(journal, reasons)}"


def _quotas() -> str:
    rng = Random(1)
    jobs = []
    for n in range(60):
        gpus = rng.choice((1, 2, 4))
        jobs.append(
            JOB.format(
                n=n, owner=rng.choice("abc"), submit_s=round(n * 110 + rng.random() * 60, 1), gpus=gpus,
                sizes=sorted({1, 2, gpus}), run_s=round(300 + rng.random() * 3000, 1), goal=rng.choice((70, 90, 95)),
                within=rng.choice((1, 4)), deadline_s=round(3600 + rng.random() * 9000, 1),
                priority=rng.choice((0, 0, 1)), urgency=rng.choice((0, 5, 9)), warm=rng.choice(("true", "false")),
                model=n % 5,
            )
        )  # fmt: skip
    return QUOTAS + "".join(jobs)


def _of_plans(journal: Path, reasons: bool) -> str:
    digest, decisions = sha256(), 0
    connection = sqlite3.connect(journal)
    try:
        for (value,) in connection.execute("SELECT value FROM cycle ORDER BY n"):
            cycle: dict[str, Any] = msgspec.msgpack.decode(value)
            plan = cycle.get("plan")
            if plan is None:
                continue
            decisions += 1
            if not reasons:
                plan.pop("reasons", None)
            digest.update(msgspec.msgpack.encode([cycle["at_s"], plan, bool(cycle.get("refused"))]))
    finally:
        connection.close()
    return f"{decisions} decisions {digest.hexdigest()[:16]}"


def _printed(*arguments: str) -> Any:
    done = subprocess.run([sys.executable, "-m", "hocket", *arguments], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
