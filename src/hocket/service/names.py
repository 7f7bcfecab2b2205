"""Names of jobs that are used again: the first job has the name as its id, later ones `NAME~2`, `NAME~3` …"""

from __future__ import annotations

import re

_AGAIN = re.compile(r"(?P<name>.+)~(?P<number>[1-9][0-9]*)", re.DOTALL)


def name_and_number(job_id: str) -> tuple[str, int]:
    """The name that an id was made of, and the how manyth of that name it is."""
    found = _AGAIN.fullmatch(job_id)
    return (found["name"], int(found["number"])) if found else (job_id, 1)


def is_numbered(name: str) -> bool:
    """Does it end as ids of names that are used again do?"""
    return _AGAIN.fullmatch(name) is not None


def next_id(last_id: str) -> str:
    """The id of the next job with the name of this one."""
    name, number = name_and_number(last_id)
    return f"{name}~{number + 1}"


class Names:
    """Which job a name means: the newest that has it."""

    def __init__(self) -> None:
        self.newest: dict[str, str] = {}  # name → id, of names that were used again

    def add(self, job_id: str) -> None:
        """A job was submitted."""
        if is_numbered(job_id):
            self.newest[name_and_number(job_id)[0]] = job_id

    def id_of(self, name: str) -> str:
        """The id that is meant by a name or an id; `NAME~1` is the first job of that name."""
        if (newest := self.newest.get(name)) is not None:
            return newest
        first, number = name_and_number(name)
        return first if number == 1 and first in self.newest else name
