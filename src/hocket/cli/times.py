"""Moments as people read them: the hour, and the day where it is not today."""

from __future__ import annotations


def clock(at_s: object) -> str:
    """`14:03:07`, or `2031-02-03 14:03:07` of another day; `–` for none."""
    import time

    if not isinstance(at_s, int | float) or isinstance(at_s, bool):
        return "–"
    then = time.localtime(at_s)
    is_today = then[:3] == time.localtime()[:3]
    return time.strftime("%H:%M:%S" if is_today else "%Y-%m-%d %H:%M:%S", then)
