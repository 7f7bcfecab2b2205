"""Sees when a job saves its state: when files in its checkpoint folder, or where it says that it saves, change."""

from __future__ import annotations

import os
import time

TYPE_CHECKING = False  # Without `typing`, which costs each sidecar memory.
if TYPE_CHECKING:
    from collections.abc import Iterator

_UNTIL_FIRST_S, _EVERY_S = 1.0, 5.0  # between looks: until a save was seen, and afterwards
_SAID_EVERY_S = 30.0  # A save that is followed by another soon is not reported.
_MOST_SHARE = 0.0005  # of a core that looking may take
_MOST_FILES = 10_000  # looked at each time

Newest = tuple[int, int, int, str, int, int]  # last change in ns, files, bytes; path, inode and bytes of the last file


class CheckpointWatch:
    """A save is a change of any file that has stayed as it is from one look to the next.

    So is one that was replaced since the last look: a job that saves before every look never leaves its files alone.
    Times of files are compared with each other only, since a file server may have another clock.
    """

    def __init__(self, folder: str | None, path: str, cwd: str, now_s: float) -> None:
        self._places = [folder] if folder is not None else []
        if path:
            self._places.append(os.path.join(cwd, os.path.expanduser(path)))
        self._seen = self._saved = self._newest()  # What is there before the job starts is no save of this attempt.
        self._said_s: float | None = None
        self._unsaid = False
        self.saved_s: float | None = None  # when the last save was seen
        self.next_s = now_s + _UNTIL_FIRST_S

    def look(self, now_s: float) -> bool:
        """Look now; is there a save to report?"""
        began = time.perf_counter()
        newest, seen = self._newest(), self._seen
        replaced = _is_replaced(seen, newest)
        if seen != self._saved and seen[1] and (newest == seen or replaced):
            self._note(seen, now_s)
        self._seen = newest
        settled = replaced or newest == self._saved
        every_s = _UNTIL_FIRST_S if self.saved_s is None or not settled else _EVERY_S
        self.next_s = now_s + max(every_s, (time.perf_counter() - began) / _MOST_SHARE)
        if not self._unsaid or (self._said_s is not None and now_s - self._said_s < _SAID_EVERY_S):
            return False
        self._said_s, self._unsaid = now_s, False
        return True

    def look_last(self, now_s: float, whole: bool) -> bool:
        """Look once more at the end, when nothing is written any more; a process that was killed may have left half a
        file, so what it wrote last does not count unless `whole`."""
        newest = self._newest()
        if whole and newest != self._saved and newest[1]:
            self._note(newest, now_s)
        unsaid, self._unsaid = self._unsaid, False
        return unsaid

    def _note(self, newest: Newest, now_s: float) -> None:
        self._saved, self.saved_s, self._unsaid = newest, now_s, True

    def _newest(self) -> Newest:
        files = size = 0
        last: tuple[int, str, int, int] = (0, "", 0, 0)
        for path, found in self._files():
            files, size = files + 1, size + found.st_size
            if found.st_mtime_ns > last[0]:
                last = found.st_mtime_ns, path, found.st_ino, found.st_size
            if files >= _MOST_FILES:
                break
        return last[0], files, size, *last[1:]

    def _files(self) -> Iterator[tuple[str, os.stat_result]]:
        """Files that are not empty; of folders all files in them."""
        for place in self._places:
            for path in _matching(place):
                try:
                    if os.path.isdir(path):
                        yield from _files_in(path)
                    elif (found := os.stat(path)).st_size:
                        yield path, found
                except OSError:
                    continue  # It is not there, or no longer.


def _is_replaced(before: Newest, now: Newest) -> bool:
    """Was the file that had changed last written again since, from its beginning? Then it was whole before."""
    changed_ns, _files, _size, path, inode, size = before
    same_path = bool(path) and now[3] == path and now[0] != changed_ns
    return same_path and (now[4] != inode or now[5] <= size)


def _matching(place: str) -> list[str]:
    if not set(place) & set("*?["):
        return [place]
    import glob  # Only jobs that name a pattern pay for it.

    return glob.glob(place)


def _files_in(folder: str) -> Iterator[tuple[str, os.stat_result]]:
    with os.scandir(folder) as entries:
        for entry in entries:
            try:
                if entry.is_dir(follow_symlinks=False):
                    yield from _files_in(entry.path)
                elif entry.is_file() and (found := entry.stat()).st_size:
                    yield entry.path, found
            except OSError:
                continue
