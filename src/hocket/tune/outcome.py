"""The results of a study, final or so far: read from its journal, whether it runs or not."""

from __future__ import annotations

import sqlite3
from contextlib import closing, suppress
from pathlib import Path

from msgspec import Struct

from hocket.control.journal import SqliteJournal
from hocket.control.ports import Header
from hocket.tune.brackets import Bracket, total_units
from hocket.tune.definition import Definition, definition_of
from hocket.tune.extension import EXTENDED, in_force
from hocket.tune.trials import Result, Trial, Trials

JOURNAL, CHECKPOINTS = "journal.db", "checkpoints"  # in a study's folder


class StudyOutcome(Struct, frozen=True):
    """A study, its trials and its best."""

    header: Header  # first entry of its journal: policy, node and seed
    definition: Definition  # what the study was asked to do
    found: Trials  # all trials with their results
    seconds: float  # time of all processes that ran it, together

    @property
    def policy(self) -> str:
        """The policy that formed the packs."""
        return self.header.policy

    @property
    def trials(self) -> list[Trial]:
        """All trials so far."""
        return list(self.found.all.values())

    @property
    def brackets(self) -> tuple[Bracket, ...]:
        """What the search consists of."""
        return self.definition.search.brackets()

    @property
    def best(self) -> Trial | None:
        """The trial with the best result at any rung, if there is one yet."""
        found = self.found.best
        return found[0] if found else None

    @property
    def best_result(self) -> Result | None:
        """That result."""
        found = self.found.best
        return found[1] if found else None

    @property
    def total_steps(self) -> int:
        """Steps of all trials together, if none fails."""
        return total_units(self.brackets) * self.definition.unit_steps

    @property
    def steps(self) -> int:
        """Steps of all stages that are over."""
        return sum(t.units for t in self.trials) * self.definition.unit_steps


def is_begun(folder: Path) -> bool:
    """Whether there is a journal with something in it: a kill in the first moment leaves one without a table."""
    path = folder / JOURNAL
    if not path.exists():
        return False
    with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as database:
        try:
            return bool(database.execute("SELECT count(*) FROM sqlite_master").fetchone() != (0,))
        except sqlite3.DatabaseError:  # Reading it will say what is wrong.
            return True


def set_aside(folder: Path) -> None:
    """Make room for a new study where one has failed; its journal is kept under another name."""
    for suffix in ("", "-wal", "-shm"):
        with suppress(FileNotFoundError):
            (folder / f"{JOURNAL}{suffix}").replace(folder / f"failed-{JOURNAL}{suffix}")
    for checkpoint in (folder / CHECKPOINTS).glob("t*.pt"):
        checkpoint.unlink()
    (folder / EXTENDED).unlink(missing_ok=True)


def read(folder: Path | str) -> StudyOutcome:
    """The outcome of the study in a folder, so far."""
    journal = SqliteJournal(Path(folder) / JOURNAL)
    try:
        definition = in_force(Path(folder), definition_of(journal.header))
        trials = Trials(definition.metric, definition.goal)
        at_s = 0.0
        for cycle in journal:
            trials.take(cycle.events)
            at_s = cycle.at_s
        return StudyOutcome(journal.header, definition, trials, at_s)
    finally:
        journal.close()
