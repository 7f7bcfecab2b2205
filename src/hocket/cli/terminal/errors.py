"""What was wrong with the input, in one line.

Exit codes: 2 bad input, 3 jobs left unfinished, or all of them refused, 4 a plan that breaks a rule (`decide`), 5 jobs
that missed their criterion, 130 interrupted.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hocket.reports.summary import Summary

BAD_INPUT = 2
UNFINISHED = 3
MISSED_CRITERION = 5
INTERRUPTED = 130


class InputError(Exception):
    """The command cannot be carried out as it was given; the message is for the user, and one line."""


@contextmanager
def refusing() -> Iterator[None]:
    """While input is read and checked: what it raises is the user's to mend, not ours.

    Only there: a ValueError out of the middle of a run is a bug, and shows its traceback;
    out of a policy, `policy_fault.py` tells its author.
    """
    from hocket.policies.registry import UnknownPolicy

    try:
        yield
    except OSError as error:
        raise InputError(_of_file(error)) from error
    except (ValueError, UnknownPolicy) as error:
        raise InputError(str(error)) from error


def all_refused(summary: Summary, reason: str) -> str:
    """That none of a run's jobs was let in, and why the first was not; nothing if some were, or there are none."""
    if not summary.refused or summary.refused < summary.jobs:
        return ""
    return f"every job was refused ({summary.jobs:,}): {reason}"


def _of_file(error: OSError) -> str:
    if error.filename is None:
        return str(error)
    return f"{error.filename}: {error.strerror or error}"
