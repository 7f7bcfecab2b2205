"""Numbers and metric names as people write them."""

from __future__ import annotations

MAX_NAME = 100  # characters; a criterion can name no longer metric
MAX_NUMBER = 64  # characters

_IN_NAMES = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./@-")


def number(text: str) -> float | None:
    """The number that a text is, a percentage as a fraction; None if it is none. NaN and the infinities are numbers."""
    text = text.strip(" \t\r\n'\"")
    if len(text) > MAX_NUMBER:
        return None
    try:
        return float(text) if not text.endswith("%") else percentage(text[:-1])
    except ValueError:
        return None


def percentage(text: str) -> float:
    """So many hundredths. Scaled in decimal, so that 91.2 is 0.912 to the last bit; raises ValueError."""
    return (
        float(text) / 100
        if "e" in text or "E" in text or not text.strip()[-1:].isdigit()
        else float(f"{text.strip()}e-2")
    )


def metric_name(text: str) -> str:
    """A name that a criterion can hold: what it may not contain becomes `_`. Empty if nothing is left."""
    text = text.strip()[:MAX_NAME]
    if not (text.isascii() and text.isidentifier()):
        text = "".join(c if c in _IN_NAMES else "_" for c in text).strip("./@-")
        if text[:1].isdigit():
            text = f"_{text}"[:MAX_NAME]
    return text if text.strip("_") else ""
