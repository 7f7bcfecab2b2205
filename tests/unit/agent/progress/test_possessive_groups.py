"""Python before 3.11.5 may lose its place in a possessive group that can backtrack (python/cpython#106052).

Debian 12 has such a Python: `top5=0.9` was no metric there. So what we write as `(…)*+` has nothing within that gives
back what it took.
"""

import re
from collections.abc import Iterator
from re import _constants, _parser  # type: ignore[attr-defined]

import pytest

from hocket.agent.progress import phrases
from hocket.agent.progress.epoch_counter import EpochCounter

FOUND = vars(phrases) | vars(phrases.Phrases(EpochCounter(), "epoch"))
PATTERNS = {name: value for name, value in FOUND.items() if isinstance(value, re.Pattern)}


def parts(tree: object) -> Iterator[tuple[object, object]]:
    """Every operation of a parsed pattern with its operand, from the outside to the inside."""
    for operation, operand in tree:  # type: ignore[attr-defined]
        yield operation, operand
        for inner in operand if isinstance(operand, tuple) else (operand,):
            for branch in inner if isinstance(inner, list) else (inner,):
                if isinstance(branch, _parser.SubPattern):
                    yield from parts(branch)


def may_lose_its_place(pattern: str) -> bool:
    """May one of its possessive groups fail amid what it took? Single characters in it are repeated possessively."""
    groups = [of for kind, of in parts(_parser.parse(pattern)) if kind is _constants.POSSESSIVE_REPEAT]
    inner = [part for _least, _most, group in groups for part in parts(group)]
    unsafe = (_constants.MAX_REPEAT, _constants.MIN_REPEAT, _constants.BRANCH)
    return any(kind in unsafe or (kind is _constants.POSSESSIVE_REPEAT and len(of[2]) > 1) for kind, of in inner)


def test_such_a_group_is_found() -> None:
    assert may_lose_its_place(r"(?:(?:train|top-?\d)[ _])*+[a-z]")
    assert may_lose_its_place(r"(?:x(?:ing)?+_)*+[a-z]")
    assert may_lose_its_place(r"x(?:(?:a|(?:b\s{0,3}c)))?+")
    assert not may_lose_its_place(r"(?>(?:(?:train|top-?\d)[ _])*)[a-z]?(?:/\d{1,9}+)?+")


@pytest.mark.parametrize("name", PATTERNS)
def test_no_possessive_group_gives_back_what_it_took(name: str) -> None:
    assert not may_lose_its_place(PATTERNS[name].pattern)
