"""A folder with a page that shows a run in a browser, without a controller: for several commands."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hocket.service.recorded_run import ReadableJournal


def write_page(journal: ReadableJournal, folder: Path) -> Path:
    """Write the page of a journal's run; gives the file to open. Raises JournalError and OSError."""
    from hocket.cli.terminal.output_files import whole
    from hocket.cli.terminal.progress import watching
    from hocket.service.page_export import page_with
    from hocket.service.recorded_run import recorded_run

    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "index.html"
    reached = 0

    def seen(number: int) -> None:
        nonlocal reached
        reached = number

    with watching("page", len(journal), lambda: reached, "cycles"):
        run = recorded_run(journal, seen)
        text = page_with(run)
    with whole(path) as out:
        out.write(text)
    return path
