"""What must hold of a live controller's folder once all its jobs are over: nothing left, and a journal that is true."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
from tests.live.controller import LiveController
from tests.live.processes import below, cgroups_of
from tests.unit.cli.typed import hocket

from hocket.cli.policy_text import bound_policy
from hocket.control.journal import SqliteJournal
from hocket.control.restore import restore
from hocket.service import rows
from hocket.service.catalogue import Catalogue


class Shown:
    """What a controller shows of itself, as far as it does not change with the clock."""

    def __init__(self, jobs: list[dict[str, Any]], nodes: list[dict[str, Any]], decisions: int) -> None:
        self.jobs, self.nodes, self.decisions = {row["id"]: row for row in jobs}, nodes, decisions

    @classmethod
    def by(cls, controller: LiveController) -> "Shown":
        """As its API says."""
        jobs, nodes = controller.call("GET", "/v1/jobs?all=true"), controller.call("GET", "/v1/nodes")
        for node in nodes["nodes"]:
            del node["containment"]  # is told by its agent, and not in the journal
        return cls(jobs["jobs"], nodes["nodes"], controller.call("GET", "/v1/status")["decisions"])

    def differences(self, other: "Shown") -> Iterator[str]:
        """Where the two are not the same."""
        for job_id in sorted(self.jobs.keys() | other.jobs.keys()):
            if self.jobs.get(job_id) != other.jobs.get(job_id):
                yield f"job '{job_id}': {self.jobs.get(job_id)} became {other.jobs.get(job_id)}"
        if self.nodes != other.nodes:
            yield f"nodes: {self.nodes} became {other.nodes}"
        if self.decisions != other.decisions:
            yield f"decisions: {self.decisions} became {other.decisions}"


def restored(journal: Path, copy: Path) -> Shown:
    """What a controller would show that is restored from a copy of the journal of one that was killed."""
    copy.mkdir(exist_ok=True)
    for path in journal.parent.glob(f"{journal.name}*"):
        shutil.copy(path, copy / path.name)
    kept = SqliteJournal(copy / journal.name, goes_on=True)
    try:
        header = kept.header
        controller = restore(kept, bound_policy(header.policy).policy.bound(header.params))
        catalogue = Catalogue()
        for cycle in kept:
            catalogue.add_cycle(cycle)
    finally:
        kept.close()
    snapshot = controller.snapshot
    jobs = [rows.row(record, snapshot.jobs.get(name), snapshot, 0.0) for name, record in catalogue.records.items()]
    plain = msgspec.json.decode(msgspec.json.encode([jobs, rows.nodes(snapshot, 0.0)]))
    return Shown(*plain, controller.state.decision)


def decided_again(journal: Path) -> str:
    """Decide again all that was decided; what `hocket replay` says if there is a difference."""
    found = hocket("replay", str(journal))
    return "" if found.exit_code == 0 else str(found.stdout + found.stderr)


def orphans(root: Path) -> list[str]:
    """Processes that are still there."""
    return [f"{found.kind} {found.pid}: {found.command[:200]}" for found in below(root)]


def leftover_files(controller: LiveController) -> list[str]:
    """Temporary files, unfinished ones, cgroups, and whatever but logs is kept of runs that are over."""
    found = list(controller.temporary.rglob("*"))
    found += controller.home.rglob("*.part")
    runs = controller.home / "agent" / "runs"
    found += [path for path in runs.glob("*/*/*") if path.name != "log" and not path.name.startswith("log.")]
    cgroups = [str(path) for path in cgroups_of(controller.root)]
    return sorted([*(str(path.relative_to(controller.root)) for path in found), *cgroups])


def complaints(controller: LiveController) -> list[str]:
    """What the controller and its agents say that they would not if only they were killed now and then."""
    found = []
    for log in (controller.log, controller.home / "log"):
        for line in log.read_text(errors="replace").splitlines() if log.exists() else ():
            said = line.replace(str(controller.root), "")  # which is named after a test
            ended_by_itself = "the agent ended with" in said and "with -9;" not in said
            if ended_by_itself or "Traceback" in said or "bug" in said or "cannot" in said:
                found.append(f"{log.name}: {line}")
    return found
