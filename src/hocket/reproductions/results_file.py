"""A file of results, written as they come, so that a run that was cut off continues where it stopped.

The first line describes the results; each further line is one result. A half line at the end is left by a
kill. A case is identified by all that its result depends on: settings, contents of the files it reads, parameters.
Results of other sources are used and counted, since they may have taken days and perhaps only a comment changed.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from functools import cache
from hashlib import file_digest, sha256
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from hocket import __version__
from hocket.reproductions.reproduction import Case, Reproduction, Request


class Heading(Struct, frozen=True):
    """Describes the results. Those of another version are not mixed with these."""

    reproduction: str
    version: str = __version__


class ResultLine(Struct, frozen=True):
    """One line."""

    case: Case
    result: msgspec.Raw
    sources: str = ""  # older lines have none


class CaseResult(Struct, frozen=True):
    """A result, and the digest of the sources that made it; empty where that is not known."""

    result: Any
    sources: str


class ResultsFile:
    """A file of results. `resume` keeps the results in it; without, the old file is renamed."""

    def __init__(self, path: Path, reproduction: Reproduction, *, resume: bool) -> None:
        heading = Heading(reproduction.name)
        self._known: dict[bytes, CaseResult] = {}
        whole = self._read(path, heading, reproduction.result) if resume and path.exists() else b""
        path.parent.mkdir(parents=True, exist_ok=True)
        if not resume and path.exists() and path.read_bytes().count(b"\n") > 1:  # They may have taken hours.
            os.replace(path, path.with_name(f"{path.stem}.before{path.suffix}"))
        part = path.with_name(f".{path.name}.part")
        part.write_bytes(whole or msgspec.json.encode(heading) + b"\n")
        os.replace(part, path)
        self._out = path.open("ab")

    def _read(self, path: Path, heading: Heading, result: Any) -> bytes:
        """Read the results; returns the lines that are whole."""
        lines = path.read_bytes().split(b"\n")[:-1]  # What follows the last newline was cut off.
        if not lines:
            return b""
        try:
            found = msgspec.json.decode(lines[0], type=Heading)
            if found != heading:
                raise ValueError(
                    f"{path}: results of '{found.reproduction}', version {found.version}, cannot be continued as "
                    f"'{heading.reproduction}', version {heading.version}"
                )
            for line in lines[1:]:
                read = msgspec.json.decode(line, type=ResultLine)
                self._known[_key(read.case)] = CaseResult(msgspec.json.decode(read.result, type=result), read.sources)
        except msgspec.DecodeError as error:
            raise ValueError(f"{path}: is not a file of results that can be continued ({error})") from error
        return b"".join(line + b"\n" for line in lines)

    def get(self, case: Case) -> CaseResult | None:
        """The result of a case that was run before; also one of an older file, which has no digests."""
        return self._known.get(_key(case)) or self._known.get(_key(replace(case, rests_on={})))

    def add(self, case: Case, made: CaseResult) -> None:
        """Write a result; from now on it survives a kill."""
        line = msgspec.json.encode(ResultLine(case, msgspec.Raw(msgspec.json.encode(made.result)), made.sources))
        self._out.write(line + b"\n")
        self._out.flush()
        os.fsync(self._out.fileno())

    def __enter__(self) -> ResultsFile:
        return self

    def __exit__(self, *_error: object) -> None:
        self._out.close()


def _key(case: Case) -> bytes:
    return msgspec.json.encode(case, order="deterministic")


# -- what a result rests on ---------------------------------------------------------------------------------


def cases_of(chosen: Reproduction, request: Request) -> list[Case]:
    """The cases of an evaluation, with digests of the files that they read. Raises ValueError on bad input."""
    cases = chosen.cases(request)
    paths = {name: path for name in chosen.takes if (path := getattr(request, name)) is not None}
    digests = {name: digest_of_file(path) for name, path in paths.items()}
    return [_with_digests(case, digests) for case in cases]


def _with_digests(case: Case, digests: Mapping[str, str]) -> Case:
    read = {f"{name}_sha256": digest for name, digest in digests.items() if case.settings.get(name) is not None}
    return replace(case, rests_on=case.rests_on | read)


def digest_of_file(path: str | Path) -> str:
    """Of its content."""
    with Path(path).open("rb") as file:
        return file_digest(file, "sha256").hexdigest()


def digest_of_sources(*folders: Path) -> str:
    """Of all Python sources in these folders, with their names."""
    digest = sha256()
    for folder in folders:
        for path in sorted(folder.rglob("*.py")):
            digest.update(f"{path.relative_to(folder).as_posix()} {digest_of_file(path)}\n".encode())
    return digest.hexdigest()


def own_sources(reproduction: Reproduction) -> str:
    """Of hocket and of the package that has the reproduction, as they are installed here."""
    return _own_sources(reproduction.run.__module__.partition(".")[0])


@cache  # What this process runs does not change with the files.
def _own_sources(package: str) -> str:
    folders = getattr(sys.modules.get(package), "__path__", ())
    return digest_of_sources(Path(__file__).parents[1], *map(Path, folders))
