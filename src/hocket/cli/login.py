"""Who is at the keyboard."""

from __future__ import annotations


def login() -> str:
    """The login name."""
    import getpass
    import os

    try:
        return getpass.getuser()
    except (KeyError, OSError):  # A container may run under a number that has no name.
        return str(os.getuid())
