"""Text without what only a terminal needs."""

from __future__ import annotations

import re

# Colours and cursor moves; titles and links. None reaches beyond its line.
_SEQUENCE = re.compile(rb"\x1b(?:\[[0-9:;<=>?]*[ -/]*[@-~]?|\][^\x07\x1b\r\n]*(?:\x07|\x1b\\)?|[@-Z\\^_])?|\x08")


def plain(text: bytes) -> bytes:
    """The text without escape sequences and backspaces."""
    return _SEQUENCE.sub(b"", text)
