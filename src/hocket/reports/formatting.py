"""Times and numbers for users."""

from __future__ import annotations

from math import isfinite

_UNITS = (("d", 86400.0), ("h", 3600.0), ("min", 60.0), ("s", 1.0))
_NAMES = {"d": "days", "h": "hours", "min": "minutes", "s": "seconds"}


def axis_unit(longest_s: float) -> tuple[str, float]:
    """The name and length in seconds of the unit in which a time axis of this length is labelled."""
    for short, unit_s in _UNITS:
        if longest_s >= 3 * unit_s:
            return _NAMES[short], unit_s
    return "seconds", 1.0


def format_duration(time_s: float | None) -> str:
    """`3.2 h`: three digits and a unit; `–` for none."""
    if time_s is None or not isfinite(time_s):
        return "–"
    for short, unit_s in _UNITS:
        if abs(time_s) >= unit_s or unit_s == 1.0:
            return f"{format_number(time_s / unit_s)} {short}"
    return f"{format_number(time_s)} s"


def format_number(value: float) -> str:
    """Three significant digits, thousands separated: 0.0123, 1.23, 45.6, 12,345."""
    size = abs(value)
    if size >= 99.95 or value == int(value):
        return f"{value:,.0f}"
    if size >= 9.995:
        return f"{value:.1f}"
    if size >= 0.9995:
        return f"{value:.2f}"
    return f"{value:.3g}"
