"""The words that errors are made of."""

from __future__ import annotations

from hocket.workloads.errors import did_you_mean, shown


def test_a_long_value_keeps_its_closing_quote() -> None:
    assert shown("x" * 58) == f"'{'x' * 58}'"
    assert shown("x" * 59) == f"'{'x' * 57}…'"
    assert shown(list(range(99))).endswith("…]")
    assert {len(shown(v)) for v in ("x" * 99, list(range(99)), 10**99)} == {60}


def test_what_has_no_name_is_not_among_what_there_is() -> None:
    assert did_you_mean("zzz", ["", "vc1", "vc2"]) == " (there are: vc1, vc2)"
