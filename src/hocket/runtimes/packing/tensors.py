"""Batches are nested: tuples, lists and dicts with tensors at their leaves."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from torch import Tensor


def leaves(value: Any) -> Iterator[Any]:
    """All values that are not a tuple, list or dict, from left to right."""
    if isinstance(value, dict):
        for part in value.values():
            yield from leaves(part)
    elif isinstance(value, tuple | list):
        for part in value:
            yield from leaves(part)
    else:
        yield value


def mapped(value: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """The same structure with every tensor changed."""
    if isinstance(value, Tensor):
        return change(value)
    if isinstance(value, dict):
        return type(value)({key: mapped(part, change) for key, part in value.items()})
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(mapped(part, change) for part in value))
    if isinstance(value, tuple | list):
        return type(value)(mapped(part, change) for part in value)
    return value


def joined(parts: list[Any], join: Callable[[list[Tensor]], Tensor]) -> Any:
    """Equal structures as one, their tensors joined."""
    first = parts[0]
    if isinstance(first, Tensor):
        return join(parts)
    if isinstance(first, dict):
        return type(first)({key: joined([part[key] for part in parts], join) for key in first})
    if isinstance(first, tuple) and hasattr(first, "_fields"):
        return type(first)(*(joined([part[k] for part in parts], join) for k in range(len(first))))
    return type(first)(joined([part[k] for part in parts], join) for k in range(len(first)))


def n_bytes(value: Any) -> int:
    """What its tensors take."""
    return sum(leaf.numel() * leaf.element_size() for leaf in leaves(value) if isinstance(leaf, Tensor))


def shape(value: Any) -> tuple[object, ...]:
    """What a captured step depends on: the shapes and types of all tensors, and all other values."""
    return tuple((tuple(leaf.shape), leaf.dtype) if isinstance(leaf, Tensor) else repr(leaf) for leaf in leaves(value))
