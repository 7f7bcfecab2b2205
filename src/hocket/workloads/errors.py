"""The error of this package, and helpers for its message."""

from __future__ import annotations

from collections.abc import Iterable

_SHOWN = 60  # characters of an offending value; the file has the rest


class WorkloadError(ValueError):
    """Input that cannot be read: one line that names file, line, field, rule and value."""

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(message.splitlines()))


def shown(value: object) -> str:
    """A value for an error message: quoted, on one line, and shortened."""
    try:
        text = repr(value)
    except ValueError:  # Python refuses to print whole numbers of more than 4,300 digits.
        return "a number of thousands of digits"
    if len(text) <= _SHOWN:
        return text
    end = text[-1] if text[-1] in "'\")]}" else ""  # Close the quote again.
    return f"{text[: _SHOWN - 1 - len(end)]}…{end}"


def plain(path: str) -> str:
    """A path for the beginning of an error message."""
    return path if path.isprintable() else repr(path)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """` (did you mean 'x'?)`, or what there is, or nothing."""
    from difflib import get_close_matches

    names = {n.lower(): n for n in sorted(known) if n}
    # Long names are compared by their beginning: the matcher takes quadratic time.
    if close := get_close_matches(name[:100].lower(), names, n=1, cutoff=0.6):
        return f" (did you mean '{names[close[0]]}'?)"
    return f" (there are: {', '.join(names.values())})" if names else ""
