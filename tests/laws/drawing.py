"""What the laws are tried on: drawn once for all policies, since to draw takes longer than to try the laws.

With `HOCKET_ROAM=1` every policy gets examples of its own, others each time, and what breaks a law is shrunk.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, wraps
from itertools import cycle
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy
from tests.roaming import ROAMS

from hocket.testing.laws import Broken

EXAMPLES = 50  # of each law and policy
# How a law draws that does not share its examples with others.
DRAWN = settings(
    max_examples=EXAMPLES, deadline=None, database=None, suppress_health_check=list(HealthCheck), derandomize=not ROAMS
)


@cache
def drawn(strategy: SearchStrategy[Any]) -> list[Any]:
    """The examples, the same in every run."""
    found: list[Any] = []

    @settings(DRAWN, phases=[Phase.generate])
    @given(strategy)
    def collect(example: Any) -> None:
        found.append(example)

    collect()
    return found


def is_among_many(strategy: SearchStrategy[Any], wanted: Callable[[Any], bool]) -> bool:
    """Is there one among more examples, for a search that must find something? No more are drawn than it takes."""

    @settings(DRAWN, phases=[Phase.generate], max_examples=6 * EXAMPLES)
    @given(strategy)
    def look(example: Any) -> None:
        if wanted(example):
            raise _FoundError

    try:
        look()
    except _FoundError:
        return True
    return False


class _FoundError(Exception):
    """An example as it is wanted."""


def over(
    strategy: SearchStrategy[Any], turns: Sequence[str] = ()
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Call a test, which has a policy's name and its knobs, with every example too.

    With `turns`, each example comes with one of these words, the `turn`, in turns.
    """

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        if ROAMS:
            words = {"turn": st.sampled_from(turns)} if turns else {}
            return DRAWN(given(example=strategy, **words)(test))

        @wraps(test)
        def every(name: str, knobs: dict[str, Any]) -> None:
            # With knobs turned, a policy is the same but for a few lines: half of the examples do.
            examples = list(enumerate(drawn(strategy)))[:: 2 if knobs else 1]
            words = [{"turn": turn} for turn in turns] or [{}]
            with _quiet():
                for (n, example), word in zip(examples, cycle(words)):
                    try:
                        test(name, knobs, example, **word)
                    except BaseException as error:
                        error.add_note(f"with drawn example {n}; HOCKET_ROAM=1 looks for a smaller one")
                        raise

        del every.__wrapped__  # type: ignore[attr-defined]  # pytest would ask for the signature of the test within.
        return every

    return decorate


@contextmanager
def _quiet() -> Iterator[None]:
    """No log: thousands of drawn jobs that fail and nodes that are lost, each of which pytest would keep as a line."""
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)


@contextmanager
def known_to_break(law: str | None) -> Iterator[None]:
    """A law that a policy is known to break for some examples, a bug to be mended; every other law must hold."""
    try:
        yield
    except Broken as error:
        if law is None or f"breaks the law '{law}'" not in str(error):
            raise
