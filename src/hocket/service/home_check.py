"""Examines a controller's home, whether it runs or not: permissions, journal, catalogue, controller, agent, processes.

What can be put right without a loss is repaired on demand, and only while no controller holds the journal: it would do
that itself.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from enum import StrEnum
from pathlib import Path

from msgspec import Struct

from hocket.agent import run_folder
from hocket.agent.node.events_reader import story
from hocket.agent.node.known_run import KnownRun, read_run
from hocket.agent.node.lease import controller_is_dead
from hocket.agent.node.state_folder import CONTAINMENT, numbers
from hocket.agent.orphan_cleanup import kill_orphans, orphans
from hocket.control.journal import JournalError, open_to_read
from hocket.control.journal.archive import ArchiveReader, archive_files, archive_folder, continuous
from hocket.control.journal.stored import date_of, one_line
from hocket.service.home import Home
from hocket.service.local_agent import agents_of

_LEAST_FREE = 1 << 30  # bytes
_EVERY = 1000  # cycles between signs of progress


class Health(StrEnum):
    """How a thing is."""

    OK = "ok"
    WARNING = "warning"  # worth a look
    PROBLEM = "problem"  # the controller cannot start with it, or something is lost


class HomeFinding(Struct, frozen=True):
    """One thing that was examined."""

    about: str
    health: Health
    text: str
    repair: Callable[[], None] | None = None  # puts it right


def examine(home: Home, store: str = "", progress: Callable[[str], None] = lambda _: None) -> Iterator[HomeFinding]:
    """Everything about a home, one after the other. `progress` is called now and then with what is being done."""
    if not home.path.is_dir():
        yield HomeFinding("home", Health.PROBLEM, f"'{home.path}' is not there: `hocket up` makes it")
        return
    yield from _permissions(home)
    free = shutil.disk_usage(home.path).free
    told = f"{free / (1 << 30):,.1f} GiB are free"
    yield HomeFinding("disk", Health.OK if free >= _LEAST_FREE else Health.WARNING, told)
    store = store or str(home.journal)
    is_dead = "://" not in store and controller_is_dead(f"{Path(store).resolve()}.lock")
    yield from _journal(home, store, progress)
    yield from _catalogue(home, is_dead)
    if is_dead:
        yield HomeFinding("controller", Health.WARNING, "none holds the journal: `hocket up` starts one")
    else:
        yield HomeFinding("controller", Health.OK, "one holds the journal")
    yield from _agent(home, is_dead, progress)


def _permissions(home: Home) -> Iterator[HomeFinding]:
    files = [(home.path, 0o700), (home.token_file, 0o600)]
    if home.secrets_key.exists():  # It is made for the first secret.
        files.append((home.secrets_key, 0o600))
    for path, mode in files:
        if not path.exists():
            yield HomeFinding("permissions", Health.WARNING, f"'{path}' is missing: `hocket up` makes it")
        elif (now := path.stat().st_mode & 0o777) & 0o077:
            text = f"'{path}' has mode {now:o}, so that others can read what is in it; it should have {mode:o}"
            yield HomeFinding("permissions", Health.PROBLEM, text, lambda path=path, mode=mode: os.chmod(path, mode))  # type: ignore[misc]
        else:
            yield HomeFinding("permissions", Health.OK, f"'{path}' is its owner's alone")


def _journal(home: Home, store: str, progress: Callable[[str], None]) -> Iterator[HomeFinding]:
    is_file = "://" not in store
    if is_file and not (os.path.exists(store) and os.path.getsize(store)):
        if home.had_journal(store):
            text = f"'{store}' had jobs, and is missing or empty: restore it, or begin anew, `hocket up --new-journal`"
            yield HomeFinding("journal", Health.PROBLEM, text)
        else:
            yield HomeFinding("journal", Health.OK, "there is none yet")
        return
    count = 0
    try:
        if is_file:
            progress("checking the journal's pages")
            _check_pages(Path(store))
        with closing(open_to_read(store)) as journal:
            begun = journal.beginning()
            number = 0 if begun is None else begun.number
            for count, _cycle in enumerate(journal.after(number), 1):  # Each is read with its checksum.
                if count % _EVERY == 0:
                    progress(f"{count:,} cycles of the journal")
            text = f"'{journal.name}' has {count:,} cycles, all of them whole"
            text += f", {os.path.getsize(store) / (1 << 20):,.1f} MiB" if is_file else ""
            if begun is not None:
                for _block in journal.ended():  # With their checksums, too.
                    pass
                text += f"; {number:,} cycles, up to {date_of(begun.at_s)}, were removed"
            yield HomeFinding("journal", Health.OK, text)
        yield from _archives(archive_folder(store) if is_file else home.archive, number, progress)
    except (JournalError, sqlite3.Error, OSError) as error:
        text = f"after {count:,} cycles: {one_line(error)}: restore a backup"
        yield HomeFinding("journal", Health.PROBLEM, text)


def _archives(folder: Path, until: int, progress: Callable[[str], None]) -> Iterator[HomeFinding]:
    """The files with cycles that were removed from the journal up to this one."""
    files = archive_files(folder)
    for file in files:
        progress(f"reading '{file.path}'")
        try:
            for _cycle in ArchiveReader(file.path):  # Each is read with its checksum.
                pass
        except JournalError as error:
            yield HomeFinding("archive", Health.PROBLEM, f"{one_line(error)}: restore a backup, or remove the file")
            return
    if files:
        whole = continuous(files, until)
        first = whole[0].first if whole else 0
        size = sum(os.path.getsize(file.path) for file in files) / (1 << 20)
        text = f"'{folder}' has the journal's cycles from {first:,} on, {size:,.1f} MiB"
        if not whole:
            text = f"'{folder}' has files, and none with the cycles before the journal's first"
        yield HomeFinding("archive", Health.OK if whole else Health.WARNING, text)


def _check_pages(path: Path) -> None:
    with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as db:
        (said,) = db.execute("PRAGMA quick_check(1)").fetchone()
    if said != "ok":
        raise JournalError(f"journal '{path}' is damaged: {said}")


def _catalogue(home: Home, is_dead: bool) -> Iterator[HomeFinding]:
    if not home.catalogue.exists():
        yield HomeFinding("catalogue", Health.OK, "there is none; it is made of the journal")
        return
    try:
        _check_pages(home.catalogue)
        yield HomeFinding("catalogue", Health.OK, "it can be read")
    except (JournalError, sqlite3.Error) as error:

        def remove() -> None:
            for part in (home.catalogue, Path(f"{home.catalogue}-wal"), Path(f"{home.catalogue}-shm")):
                part.unlink(missing_ok=True)

        text = f"{one_line(error)}; it is made of the journal, and can be removed"
        yield HomeFinding("catalogue", Health.PROBLEM, text, remove if is_dead else None)


def _agent(home: Home, is_dead: bool, progress: Callable[[str], None]) -> Iterator[HomeFinding]:
    agents = agents_of(str(home.agent))
    if agents:
        yield HomeFinding("agent", Health.OK, f"it runs, as process {', '.join(map(str, agents))}")
    elif home.agent.is_dir():
        yield HomeFinding("agent", Health.OK if is_dead else Health.WARNING, "it does not run")
    with suppress(OSError):
        contained = (home.agent / CONTAINMENT).read_text().strip()
        is_whole = contained.startswith("each") and ", no " not in contained
        yield HomeFinding("containment", Health.OK if is_whole else Health.WARNING, contained)
    progress("looking for processes of jobs")
    running = 0
    for run in _runs(home):
        job, number = run.key.job, run.key.number
        if run_folder.is_running(run.folder):
            running += 1
            if not agents:
                text = f"run {number} of job '{job}' has a sidecar, and no agent: `hocket up` takes it over"
                yield HomeFinding("runs", Health.WARNING, text)
        elif run.mark and (left := orphans(run.mark, cgroup=run.cgroup)):
            text = f"run {number} of job '{job}' has no sidecar, and left processes {left}"
            can = is_dead and not agents
            yield HomeFinding("runs", Health.PROBLEM, text, (lambda run=run: _kill(run)) if can else None)  # type: ignore[misc]
        elif run.mark and not run.ended and not story(run.events).ended and not agents:
            text = f"run {number} of job '{job}' has died unseen: the next agent reports it, and the job goes on"
            yield HomeFinding("runs", Health.WARNING, text)
    yield HomeFinding("runs", Health.OK, f"{running} run now")


def _kill(run: KnownRun) -> None:
    if left := kill_orphans(run.mark, cgroup=run.cgroup):
        raise OSError(f"processes {left} cannot be killed")


def _runs(home: Home) -> Iterator[KnownRun]:
    runs = home.agent / "runs"
    for job in sorted(runs.iterdir()) if runs.is_dir() else ():
        for number in numbers(str(job)):
            if (run := read_run(str(job / str(number)))) is not None and not run.cursor.over:
                yield run
