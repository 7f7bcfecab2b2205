"""A bundle: a working directory as one file, called by the SHA-256 of its bytes, for nodes that share no disk.

The same files make the same bundle: names are in order, times and owners are left out.
"""

from __future__ import annotations

import gzip
import os
import re
import stat
import tarfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from fnmatch import fnmatchcase
from hashlib import sha256
from io import BytesIO
from types import MappingProxyType
from typing import NamedTuple

MOST_BYTES = 512 << 20  # of the files in it, and so of the bundle
PART_BYTES = 8 << 20  # that are sent in one call
IGNORE_FILE = ".hocketignore"  # in the directory: patterns of names and paths that stay here, one a line
_MOST_FILES = 100_000
# What nothing that runs elsewhere needs, or what would not work there.
_LEFT_OUT = (".git", ".hg", ".svn", "__pycache__", ".mypy_cache", ".pytest_cache", ".ruff_cache", ".ipynb_checkpoints")
_VENV = "pyvenv.cfg"  # in a folder that is a virtual environment
_DIGEST = re.compile(r"[0-9a-f]{64}\Z")
_MIB = 1 << 20


class BundleError(ValueError):
    """A directory that cannot be a bundle, or a bundle that cannot be unpacked; says why, in one line."""


class _Entry(NamedTuple):
    name: str  # within the directory, with /
    path: str
    status: os.stat_result


def is_digest(text: str) -> bool:
    """Can it be the name of a bundle?"""
    return _DIGEST.match(text) is not None


def pack(
    folder: str,
    to: str,
    packed: Callable[[int], None] = lambda _bytes: None,
    extra: Mapping[str, bytes] = MappingProxyType({}),
) -> str:
    """Write a bundle of the folder to a file, and give its digest; `packed` is told of bytes that are in it.

    `extra` are files beside those of the folder, by name.

    Raises BundleError, and OSError if the file cannot be written.
    """
    entries = bundled(folder)
    # Level 1: code shrinks nearly as much, and large files take a third of the time.
    with (
        open(to, "wb") as file,
        gzip.GzipFile("", "wb", 1, file, mtime=0) as zipped,
        tarfile.open(fileobj=zipped, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        for entry in entries:
            _add(tar, entry, packed)
        for name, content in sorted(extra.items()):
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, BytesIO(content))
    if os.path.getsize(to) > MOST_BYTES:
        raise BundleError(_too_large(folder, f"{os.path.getsize(to) // _MIB:,} MiB when packed", ""))
    return digest_of(to)


def bundled(folder: str) -> list[_Entry]:
    """What goes into a bundle of the folder, in order. Raises BundleError if that is too much."""
    if not os.path.isdir(folder):
        raise BundleError(f"must be a folder, and '{folder}' is none")
    entries, total = [], 0
    for entry in _walked(folder, "", _patterns(folder)):
        entries.append(entry)
        total += entry.status.st_size if stat.S_ISREG(entry.status.st_mode) else 0
        if len(entries) > _MOST_FILES:
            raise BundleError(_too_large(folder, f"more than {_MOST_FILES:,} files", ""))
    if total > MOST_BYTES:
        by_top: dict[str, int] = {}
        for entry in entries:
            top, slash, _ = entry.name.partition("/")
            by_top[top + slash] = by_top.get(top + slash, 0) + entry.status.st_size
        largest = max(by_top, key=by_top.__getitem__)
        most = f"; most of it is '{largest}', with {by_top[largest] // _MIB:,} MiB"
        raise BundleError(_too_large(folder, f"{total // _MIB:,} MiB", most))
    return entries


def _too_large(folder: str, much: str, most: str) -> str:
    rule = f"must have at most {MOST_BYTES // _MIB} MiB in {_MOST_FILES:,} files"
    return f"{rule}, and '{folder}' has {much}{most}: name what stays here in '{IGNORE_FILE}'"


def digest_of(path: str) -> str:
    """The SHA-256 of a file."""
    found = sha256()
    with open(path, "rb") as file:
        while part := file.read(_MIB):
            found.update(part)
    return found.hexdigest()


def unpack(path: str, folder: str) -> None:
    """Write what is in a bundle to a folder, which is made. Raises BundleError and OSError."""
    left = MOST_BYTES
    os.makedirs(folder, 0o700)
    try:
        with tarfile.open(path, "r:gz") as tar:
            for member in tar:
                left -= member.size
                if left < 0:
                    raise BundleError(f"it has more than {MOST_BYTES // _MIB} MiB")
                _take(tar, member, folder)
    except (tarfile.TarError, EOFError, gzip.BadGzipFile) as error:
        raise BundleError(f"it is no bundle: {error}") from error


def _walked(folder: str, within: str, patterns: list[str]) -> Iterator[_Entry]:
    with os.scandir(os.path.join(folder, within)) as found:
        names = sorted(entry.name for entry in found)
    if _VENV in names:
        return
    for name in names:
        whole = f"{within}/{name}" if within else name
        if name in _LEFT_OUT or any(fnmatchcase(name, p) or fnmatchcase(whole, p) for p in patterns):
            continue
        path = os.path.join(folder, whole)
        with suppress(FileNotFoundError):  # It was removed meanwhile.
            status = os.lstat(path)
            if stat.S_ISDIR(status.st_mode):
                yield _Entry(whole, path, status)
                yield from _walked(folder, whole, patterns)
            elif stat.S_ISREG(status.st_mode) or stat.S_ISLNK(status.st_mode):
                yield _Entry(whole, path, status)


def _patterns(folder: str) -> list[str]:
    try:
        with open(os.path.join(folder, IGNORE_FILE), encoding="utf-8") as file:
            lines = [line.strip() for line in file]
    except FileNotFoundError:
        return []
    except (OSError, ValueError) as error:
        raise BundleError(f"has a file '{IGNORE_FILE}' that cannot be read: {error}") from error
    return [line.strip("/") for line in lines if line and not line.startswith("#")]


def _add(tar: tarfile.TarFile, entry: _Entry, packed: Callable[[int], None]) -> None:
    member, mode = tarfile.TarInfo(entry.name), entry.status.st_mode
    member.mode = 0o755 if mode & 0o100 or stat.S_ISDIR(mode) else 0o644
    if stat.S_ISDIR(mode):
        member.type = tarfile.DIRTYPE
        tar.addfile(member)
    elif stat.S_ISLNK(mode):
        member.type, member.linkname = tarfile.SYMTYPE, os.readlink(entry.path)
        tar.addfile(member)
    else:
        with open(entry.path, "rb") as file:
            member.size = os.fstat(file.fileno()).st_size
            try:
                tar.addfile(member, file)
            except OSError as error:
                raise BundleError(f"has a file '{entry.name}' that changes while it is read: {error}") from error
        packed(member.size)


def _take(tar: tarfile.TarFile, member: tarfile.TarInfo, folder: str) -> None:
    """One file of a bundle. Whoever may submit jobs may write any file by them: this is against accidents."""
    words = member.name.split("/")
    if not member.name or member.name.startswith("/") or ".." in words:
        raise BundleError(f"it has a file '{member.name}', which would be outside")
    path = os.path.join(folder, *words)
    if member.isdir():
        os.makedirs(path, 0o700, exist_ok=True)
    elif member.issym():
        os.symlink(member.linkname, path)
    elif member.isreg() and (source := tar.extractfile(member)) is not None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
        with open(os.open(path, flags, 0o700 if member.mode & 0o100 else 0o600), "wb") as file:
            while part := source.read(_MIB):
                file.write(part)
    else:
        raise BundleError(f"it has '{member.name}', which is no file, folder or link")
