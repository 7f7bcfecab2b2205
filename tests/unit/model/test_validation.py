"""What msgspec says, as users read it."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
import pytest
from msgspec import Meta, Struct

from hocket.model.validation import explained, shown


class Knobs(Struct, forbid_unknown_fields=True):
    """Fields of all sorts."""

    weight: Annotated[float, Meta(gt=0, le=1e6)] = 1.0
    name: Annotated[str, Meta(max_length=200)] = ""
    parts: Annotated[tuple[int, ...], Meta(min_length=1, max_length=3)] = (1,)
    limit: int | None = None
    loud: bool = False
    texts: dict[str, Annotated[str, Meta(max_length=1)]] = {}
    pair: tuple[int, int] = (1, 2)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"weight": -1}, "weight: expected a number above 0, not -1"),
        ({"weight": 1e9}, "weight: expected a number up to 1,000,000, not 1000000000.0"),
        ({"name": 3}, "name: expected a text, not 3"),
        ({"name": "n" * 201}, f'name: expected a text of at most 200 characters, not "{"n" * 56}…"'),
        ({"parts": []}, "parts: expected a list of at least 1 entry, not []"),
        ({"parts": [1] * 4}, "parts: expected a list of at most 3 entries, not [1,1,1,1]"),
        ({"pair": [1]}, "pair: expected a list of 2 entries, not [1]"),
        ({"limit": "x"}, 'limit: expected a whole number or nothing, not "x"'),
        ({"loud": 2}, "loud: expected true or false, not 2"),
        ({"texts": {"a": "bc"}}, 'texts[...]: expected a text of at most 1 character, not {"a":"bc"}'),
        ({"wieght": 2}, "unknown field 'wieght'; did you mean 'weight'?"),
        ({"x": 2}, "unknown field 'x'"),
    ],
)
def test_a_broken_rule_is_told_without_the_names_of_types(given: dict[str, Any], said: str) -> None:
    with pytest.raises(msgspec.ValidationError) as found:
        msgspec.convert(given, Knobs)
    assert explained(found.value, given, Knobs.__struct_fields__) == said


def test_a_long_value_keeps_its_end() -> None:
    assert shown(["x" * 99]).endswith("x…]")
