"""What the laws are tried on: drawn once for all policies, since to draw takes longer than to try the laws.

With `HOCKET_ROAM=1` every policy gets examples of its own, others each time, and what breaks a law is shrunk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, wraps
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings
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


@cache
def many_drawn(strategy: SearchStrategy[Any]) -> list[Any]:
    """More examples, for a search that must find something.

    Not by a parameter of `drawn`: what Hypothesis draws follows from the source of the function that collects it.
    """
    found: list[Any] = []

    @settings(DRAWN, phases=[Phase.generate], max_examples=6 * EXAMPLES)
    @given(strategy)
    def collect(example: Any) -> None:
        found.append(example)

    collect()
    return found


def over(strategy: SearchStrategy[Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Call a test, which has a policy's name and its knobs, with every example too."""

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        if ROAMS:
            return DRAWN(given(example=strategy)(test))

        @wraps(test)
        def every(name: str, knobs: dict[str, Any]) -> None:
            # With knobs turned, a policy is the same but for a few lines: half of the examples do.
            for n, example in list(enumerate(drawn(strategy)))[:: 2 if knobs else 1]:
                try:
                    test(name, knobs, example)
                except BaseException as error:
                    error.add_note(f"with drawn example {n}; HOCKET_ROAM=1 looks for a smaller one")
                    raise

        del every.__wrapped__  # type: ignore[attr-defined]  # pytest would ask for the signature of the test within.
        return every

    return decorate


@contextmanager
def known_to_break(law: str | None) -> Iterator[None]:
    """A law that a policy is known to break for some examples, a bug to be mended; every other law must hold."""
    try:
        yield
    except Broken as error:
        if law is None or f"breaks the law '{law}'" not in str(error):
            raise
