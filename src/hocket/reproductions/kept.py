"""Results kept in a file as they come, so that a run that was cut off goes on where it stopped.

A line a result, after one line that says what they are results of. Half a line at the end is what a kill leaves. A case
of other input is another one. Results of other sources are good enough to go on with, for days may be in them and a
comment may be all that changed; but whoever goes on is told.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from hocket import __version__
from hocket.reproductions.reproduction import Case, Reproduction


class Heading(Struct, frozen=True):
    """What the results are of. Those of another version are not ours to mix with."""

    reproduction: str
    version: str = __version__


class Kept(Struct, frozen=True):
    """One line."""

    case: Case
    result: msgspec.Raw
    sources: str = ""  # Older lines do not say.


class Made(Struct, frozen=True):
    """A result, and the digest of the sources that made it; empty where nobody knows."""

    result: Any
    sources: str


class KeptResults:
    """A file of results. `resume`: go on with those that are there; else it begins anew, and those are put aside."""

    def __init__(self, path: Path, reproduction: Reproduction, *, resume: bool) -> None:
        heading = Heading(reproduction.name)
        self._known: dict[bytes, Made] = {}
        whole = self._read(path, heading, reproduction.result) if resume and path.exists() else b""
        path.parent.mkdir(parents=True, exist_ok=True)
        if not resume and path.exists() and path.read_bytes().count(b"\n") > 1:  # They may have taken hours.
            os.replace(path, path.with_name(f"{path.stem}.before{path.suffix}"))
        part = path.with_name(f".{path.name}.part")
        part.write_bytes(whole or msgspec.json.encode(heading) + b"\n")
        os.replace(part, path)
        self._out = path.open("ab")

    def _read(self, path: Path, heading: Heading, result: Any) -> bytes:
        """Fill in what is known; gives the lines that are whole."""
        lines = path.read_bytes().split(b"\n")[:-1]  # What follows the last newline was cut off.
        if not lines:
            return b""
        try:
            found = msgspec.json.decode(lines[0], type=Heading)
            if found != heading:
                raise ValueError(
                    f"{path}: results of '{found.reproduction}', version {found.version}, cannot go on as "
                    f"'{heading.reproduction}', version {heading.version}"
                )
            for line in lines[1:]:
                kept = msgspec.json.decode(line, type=Kept)
                self._known[_key(kept.case)] = Made(msgspec.json.decode(kept.result, type=result), kept.sources)
        except msgspec.DecodeError as error:
            raise ValueError(f"{path}: is no file of results that can go on ({error})") from error
        return b"".join(line + b"\n" for line in lines)

    def get(self, case: Case) -> Made | None:
        """The result of a case that was run before. Those of older files, which do not say what they rest on, count."""
        return self._known.get(_key(case)) or self._known.get(_key(replace(case, rests_on={})))

    def add(self, case: Case, made: Made) -> None:
        """Keep a result; it survives a kill from now on."""
        line = msgspec.json.encode(Kept(case, msgspec.Raw(msgspec.json.encode(made.result)), made.sources))
        self._out.write(line + b"\n")
        self._out.flush()
        os.fsync(self._out.fileno())

    def __enter__(self) -> KeptResults:
        return self

    def __exit__(self, *_error: object) -> None:
        self._out.close()


def _key(case: Case) -> bytes:
    return msgspec.json.encode(case, order="deterministic")
