"""A policy that raises, as its author wants to be told: which one, when, what, and where in the author's own file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from inspect import unwrap
from traceback import extract_tb
from typing import TYPE_CHECKING, Any

from hocket.cli.terminal.errors import InputError
from hocket.control.check import NoPlan

if TYPE_CHECKING:
    from hocket.policies.registry import BoundPolicy

_MOST_SAID = 500  # characters of what was raised


@contextmanager
def blaming(bound: BoundPolicy, when: str = "") -> Iterator[None]:
    """While it decides and ranks: what comes out of its code becomes an InputError, and all else stays as it is.

    Where nothing says when that was, the last note on the error does: a simulation leaves one.
    """
    try:
        yield
    except Exception as error:
        said = _blamed(bound, error, when)
        if said is None:
            raise
        raise InputError(said) from error


def _blamed(bound: BoundPolicy, error: Exception, when: str) -> str | None:
    """What to tell the author; None if none of its code was running."""
    when = when or next(reversed(getattr(error, "__notes__", [])), "")
    if isinstance(error, NoPlan):
        code = unwrap(bound.policy.decide).__code__
        return f"policy '{bound.policy.name}' {error}, {when} ({code.co_filename}:{code.co_firstlineno})"
    frames = extract_tb(error.__traceback__)
    for policy in _layers(bound):
        files = {code.co_filename for code in _codes(policy)}
        own = [frame for frame in frames if frame.filename in files]
        if own:
            where = " → ".join(f"{frame.filename}:{frame.lineno} in {frame.name}" for frame in own)
            if frames[-1].filename not in files:
                where += f"; out of {frames[-1].filename}:{frames[-1].lineno} in {frames[-1].name}"
            raised = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
            return f"policy '{policy.policy.name}' raised {_cut(raised)} {when} ({where})"
    return None


def _layers(bound: BoundPolicy) -> list[BoundPolicy]:
    """The policy, and what it is put around: the innermost first, for what that raises comes through the others."""
    return [*([] if bound.inner is None else _layers(bound.inner)), bound]


def _codes(bound: BoundPolicy) -> Iterator[Any]:
    for function in (bound.policy.decide, bound.policy.order, bound.policy.shifts):
        if function is not None:
            for each in (function, unwrap(function)):
                if hasattr(each, "__code__"):
                    yield each.__code__


def _cut(text: str) -> str:
    return text if len(text) <= _MOST_SAID else f"{text[: _MOST_SAID - 1]}…"
