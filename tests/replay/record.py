"""Record the journals of this folder: `.venv/bin/python tests/replay/record.py`.

Run it when a policy was changed on purpose, or the format of journals; the replay then guards the new decisions.
"""

from __future__ import annotations

import lzma
import sqlite3
import tempfile
from pathlib import Path

from hocket.control.journal import SqliteJournal
from hocket.control.ports import Header
from hocket.executors.simulated import simulate
from hocket.policies import find
from hocket.workloads.cluster import parse_cluster
from hocket.workloads.demo import demo
from hocket.workloads.truth import Fault, Workload

FOLDER = Path(__file__).parent
POLICIES = ("fifo", "las")
SEED = 11


def record(policy: str, path: Path) -> None:
    """Two hours of the demo, with owners' quotas, costs, epochs, noise, and a node that is lost and comes back."""
    bound = find(policy).bound()
    nodes = parse_cluster("4x4")
    whole = demo(SEED)
    workload = Workload("demo", whole.submissions, owners=whole.owners, faults=(Fault(3000.0, "n001", 4000.0),))
    journal = SqliteJournal(path, Header(policy, bound.settings, tuple(nodes), SEED, workload.name))
    simulate(workload, nodes, bound, seed=SEED, noise=0.1, until_s=7200.0, journal=journal)
    journal.close()


def main() -> None:
    """Write one compressed journal a policy."""
    for policy in POLICIES:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "journal.db"
            record(policy, path)
            with sqlite3.connect(path, isolation_level=None) as db:
                db.execute("PRAGMA journal_mode = DELETE")
                db.execute("VACUUM")
            db.close()
            packed = lzma.compress(path.read_bytes(), preset=9)
        (FOLDER / f"{policy}.db.xz").write_bytes(packed)
        print(f"{policy}: {len(packed):,} bytes")


if __name__ == "__main__":
    main()
