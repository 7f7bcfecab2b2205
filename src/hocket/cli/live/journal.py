"""`hocket journal`: how large a controller's journal is and where it begins; `compact` removes old cycles from it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hocket.cli.options import AsJson, Everything, Home
from hocket.cli.terminal.errors import InputError, refusing

if TYPE_CHECKING:
    from hocket.service.compaction import Keep

journal = typer.Typer(name="journal", invoke_without_command=True)
Store = Annotated[
    str, typer.Option(metavar="FILE|URL", help="The journal, if it is not in the home.", show_default=False)
]


@journal.callback()
def show(ctx: typer.Context, store: Store = "", home: Home = None, as_json: AsJson = False) -> None:
    """Say how large a controller's journal is and where it begins; make it smaller."""
    if ctx.invoked_subcommand is not None:
        return
    from contextlib import closing

    import msgspec

    from hocket.control.journal import open_to_read
    from hocket.control.journal.archive import archive_files
    from hocket.control.journal.stored import date_of

    path, keep = _kept(home, store)
    with refusing(), closing(open_to_read(path)) as kept:
        begun = kept.beginning()
        number, last, size = 0 if begun is None else begun.number, len(kept), kept.size
        first = next(iter(kept.after(number)), None)
        files = archive_files(Path(keep.archive)) if keep.archive else []
        archived = sum(Path(file.path).stat().st_size for file in files)
    if as_json:
        found = {
            "journal": kept.name,
            "first_cycle": number + 1,
            "first_s": None if first is None else first.at_s,
            "last_cycle": last,
            "bytes": size,
            "keep_history_s": keep.history_s or None,
            "keep_bytes": keep.size or None,
            "archive": keep.archive or None,
            "archived_bytes": archived,
            "archived_first_cycle": files[0].first if files else None,
        }
        print(msgspec.json.encode(found).decode())
        return
    since = "" if first is None else f", the first of {date_of(first.at_s)}"
    print(f"journal '{kept.name}': cycles {number + 1:,} to {last:,}{since}; {_mib(size)}")
    days = keep.history_s / 86400
    limits = [f"older than {days:g} {'day' if days == 1 else 'days'}"] if days else []
    limits += [f"beyond {_mib(keep.size)}"] if keep.size else []
    to = f"go to '{keep.archive}'" if keep.archive else "are deleted"
    print(f"cycles {' and '.join(limits)} {to}" if limits else "all cycles are kept")
    if files:
        print(f"archive: cycles {files[0].first:,} to {files[-1].last:,}, {_mib(archived)}")


@journal.command("page")
def page(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Where it goes; `index.html` in it is the page.")],
    store: Store = "",
    home: Home = None,
    everything: Everything = False,
    as_json: AsJson = False,
) -> None:
    """Write a page that shows the journal's jobs and decisions in a browser, without a controller.

    It is one file, to be sent to others. It has the commands and reasons of all jobs, the names of their variables
    without the values, and no logs.
    """
    from contextlib import closing

    import msgspec

    from hocket.cli.page_folder import write_page
    from hocket.cli.terminal.output_files import must_be_writable
    from hocket.control.journal import open_to_read
    from hocket.control.journal.history import JournalWithArchives

    path, keep = _kept(home, store)
    with refusing():
        must_be_writable(folder, "the folder", is_folder=True)
        with closing(open_to_read(path)) as kept:
            whole = JournalWithArchives(kept, Path(keep.archive) if keep.archive else None)
            if everything:
                whole.check()
            shown = whole if everything else kept
            begun = shown.beginning()
            written = write_page(shown, folder)
    if begun is not None:
        where = "in its archive (--all reads them too)" if whole.files and not everything else "deleted"
        message = f"the page begins after cycle {begun.number:,}, with the journal: earlier decisions are {where}"
        typer.echo(f"hocket: {message}, and not in it; jobs that ended before are", err=True)
    size = written.stat().st_size
    if as_json:
        print(msgspec.json.encode({"page": str(written), "bytes": size}).decode())
    else:
        print(f"{written} ({_mib(size)}): open it in a browser")


@journal.command("history")
def history(ctx: typer.Context, store: Store = "", home: Home = None) -> None:
    """Print what ended jobs have shown, a JSON object a line: `hocket up --history FILE` begins with it."""
    from contextlib import closing

    from hocket.control.journal import open_to_read
    from hocket.service.journal_history import past_jobs_of
    from hocket.workloads.past_jobs_file import lines_of

    before = ctx.parent.params if ctx.parent is not None else {}
    path, _keep = _kept(home or before.get("home"), store or before.get("store") or "")
    with refusing(), closing(open_to_read(path)) as kept:
        begun = kept.beginning()
        cycles = kept.after(0 if begun is None else begun.number)
        found = past_jobs_of(kept.header, kept.name, cycles, begun)
    for line in lines_of(found):
        print(line)


@journal.command("compact")
def compact_journal(
    ctx: typer.Context,
    keep_history: Annotated[
        str | None, typer.Option(metavar="TIME", help="Remove older cycles; as at the last start by default.")
    ] = None,
    keep_size: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Remove the oldest cycles beyond this size: 2G.")
    ] = None,
    archive: Annotated[
        str | None, typer.Option(metavar="DIR|auto|none", help="Folder for removed cycles; none: delete them.")
    ] = None,
    store: Store = "",
    home: Home = None,
    as_json: AsJson = False,
) -> None:
    """Remove old cycles now, while no controller runs (one that runs does so by itself), and shrink the file."""
    from contextlib import closing

    import msgspec

    from hocket.cli.terminal.progress import bars
    from hocket.control.journal import SqliteJournal, open_to_append, open_to_read
    from hocket.job_input.units import BadValue, mebibytes, seconds
    from hocket.service.compaction import compact, last_time, removable

    before = ctx.parent.params if ctx.parent is not None else {}
    path, keep = _kept(home or before.get("home"), store or before.get("store") or "", archive)
    try:
        if keep_history is not None:
            keep = msgspec.structs.replace(keep, history_s=seconds(keep_history))
        if keep_size is not None:
            keep = msgspec.structs.replace(keep, size=int(mebibytes(keep_size) * (1 << 20)))
    except BadValue as error:
        raise InputError(f"{'--keep-history' if keep_size is None else '--keep-size'} {error}") from error
    with refusing():
        with closing(open_to_read(path)) as there:
            header = there.header
        with closing(open_to_append(path, header)) as kept, bars() as progress:
            task = progress.add_task("compacting", total=None)
            until = removable(kept, keep, last_time(kept), slack=0.0)
            done = compact(
                kept, until, keep.archive, lambda _s: None, lambda what: progress.update(task, description=what)
            )
            if isinstance(kept, SqliteJournal):
                progress.update(task, description="writing the file anew")
                kept.rewrite()
            size = kept.size
    if as_json:
        print(msgspec.json.encode(msgspec.structs.replace(done, bytes_after=size)).decode())
        return
    if not done.cycles:
        print(f"no cycles to remove; {_mib(done.bytes_before)} before, {_mib(size)} now")
        return
    to = f", to '{keep.archive}'" if keep.archive else ""
    print(f"{done.cycles:,} cycles removed, with {done.jobs:,} ended jobs, which stay listed{to}; "
          f"{_mib(done.bytes_before)} before, {_mib(size)} now")  # fmt: skip


def _kept(home: Path | None, store: str, archive: str | None = None) -> tuple[str, Keep]:
    """The journal of a home, and what is kept of it by the home's settings."""
    from msgspec.structs import replace

    from hocket.cli.live.client import home_folder
    from hocket.cli.live.up import archive_setting
    from hocket.control.journal.archive import archive_folder
    from hocket.service.home import Home as HomeFolder
    from hocket.service.home_settings import read_settings

    place = HomeFolder(home_folder(home))
    path = store or str(place.journal)
    with refusing():
        settings = read_settings(place)
    if archive is not None:
        settings = replace(settings, archive=archive_setting(archive))
    return path, settings.keep(archive_folder(path) if "://" not in path else place.archive)


def _mib(size: int) -> str:
    return f"{size / (1 << 20):,.1f} MiB"
