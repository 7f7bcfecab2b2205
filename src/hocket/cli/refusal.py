"""What was wrong with the input, in one line. Exit codes: 2 bad input, 3 jobs left unfinished, 130 interrupted."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

BAD_INPUT = 2
UNFINISHED = 3
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


def _of_file(error: OSError) -> str:
    if error.filename is None:
        return str(error)
    return f"{error.filename}: {error.strerror or error}"
