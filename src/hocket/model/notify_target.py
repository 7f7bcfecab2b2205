"""Where a notification goes: a URL that gets a POST, or a command line that is run."""

from __future__ import annotations

import re
import shlex

# A host without a user and password before it: they would stand in the journal.
_URL = re.compile(r"(?P<site>https?://(?:[^\s/?#@:\[\]]+|\[[0-9a-fA-F:.]+\])(?::\d{1,5})?)(?P<rest>[/?][!-~]*)?")


def is_url(target: str) -> bool:
    """Is it a URL? Else it is a command line."""
    return "://" in (target.split(maxsplit=1) or [""])[0]


def target_problem(target: str) -> str:
    """The rule that a target breaks, with its value; empty if there is none."""
    if is_url(target):
        is_whole = _URL.fullmatch(target) is not None and target.isascii()
        return "" if is_whole else f"must be an http or https URL with a host and no user, not {target[:80]!r}"
    try:
        words = shlex.split(target)
    except ValueError:
        words = []
    if not words or not words[0] or not target.isprintable():
        return f"must be a URL, or one line with a command whose quotes are closed, not {target[:80]!r}"
    return ""


def shown_target(target: str) -> str:
    """A target as logs name it: the rest of a URL and the arguments of a command may hold secrets."""
    found = _URL.fullmatch(target)
    if found is None:
        return shlex.split(target)[0]
    return found["site"] + ("/…" if (found["rest"] or "/") != "/" else "")
