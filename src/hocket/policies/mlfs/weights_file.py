"""The weights of a learned policy as a file: JSON, with what made them. What is not sound is refused in one line.

A file is of one policy, mlf_rl or rl. It is read once, before the first decision that needs it. Those that are shipped
stand beside this module.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from hocket.policies.mlfs.network import HOST_FEATURES, JOB_FEATURES, LEAVING_FEATURES, PolicyNetwork, shapes

if TYPE_CHECKING:
    from collections.abc import Mapping

FORMAT = 1
SHIPPED = {name: Path(__file__).with_name(f"{name}_weights.json") for name in ("mlf_rl", "rl")}  # by policy
_MOST_UNITS = 256


class WeightsError(ValueError):
    """A weights file breaks a rule; the text names the file, the rule and the value."""


class MadeBy(Struct, frozen=True):
    """What made the weights."""

    command: str
    data: str
    seed: int
    date: str
    notes: dict[str, Any] = {}  # numbers of the training


class _Header(Struct, frozen=True):
    kind: str
    format: int


class _File(Struct, frozen=True):
    kind: str
    format: int
    made_by: MadeBy
    features: dict[str, list[str]]
    arrays: dict[str, Any]


class LearnedWeights(Struct, frozen=True, eq=False):
    """A network and what made it."""

    network: PolicyNetwork
    made_by: MadeBy
    policy: str = "mlf_rl"


@lru_cache(maxsize=16)
def learned_weights(path: str, policy: str) -> LearnedWeights | WeightsError:
    """The weights in a file, or of the one that is shipped for ""; what is wrong with them, if anything is."""
    try:
        return read_weights(Path(path) if path else SHIPPED[policy], policy)
    except WeightsError as error:
        return error


def read_weights(path: Path, policy: str) -> LearnedWeights:
    """The weights of this policy in this file. Raises WeightsError."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise WeightsError(f"weights '{path.name}': cannot be read: {error.strerror}") from error
    return decoded(data, path.name, policy)


def decoded(data: bytes, name: str, policy: str) -> LearnedWeights:
    """The weights of this policy in these bytes; `name` is for messages. Raises WeightsError."""
    where, kind = f"weights '{name}'", _kind(policy)
    try:
        header = msgspec.json.decode(data, type=_Header)
        if header.kind != kind:
            raise WeightsError(f"{where}: kind must be '{kind}', not '{header.kind}'")
        if header.format != FORMAT:
            raise WeightsError(f"{where}: format must be {FORMAT}, not {header.format}")
        found = msgspec.json.decode(data, type=_File)
    except msgspec.DecodeError as error:
        raise WeightsError(f"{where}: {error}") from error
    for key, names in _features().items():
        if found.features.get(key) != names:
            raise WeightsError(f"{where}: features of {key} must be {', '.join(names)}, not {found.features.get(key)}")
    return LearnedWeights(_network(found.arrays, where), found.made_by, policy)


def _kind(policy: str) -> str:
    return f"{policy} weights"


def _network(arrays: Mapping[str, Any], where: str) -> PolicyNetwork:
    import numpy as np

    units = arrays.get("bias")
    count = len(units) if isinstance(units, list) else 0
    if not 1 <= count <= _MOST_UNITS:
        raise WeightsError(f"{where}: bias must have from 1 to {_MOST_UNITS} numbers, not {count}")
    known = {}
    for key, shape in shapes(count).items():
        try:
            array = np.array(arrays.get(key), dtype=float)
        except (TypeError, ValueError) as error:
            raise WeightsError(f"{where}: {key} must be numbers in the shape {shape}") from error
        if array.shape != shape:
            raise WeightsError(f"{where}: {key} must have the shape {shape}, not {array.shape}")
        if not np.isfinite(array).all():
            raise WeightsError(f"{where}: {key} must be finite numbers, and one is not")
        known[key] = array
    if not (known["scale"] > 0).all():
        raise WeightsError(f"{where}: scale must be above 0, not {known['scale'].min():g}")
    return PolicyNetwork(**known)


def encoded(weights: LearnedWeights) -> bytes:
    """The same as a file."""
    network = weights.network
    arrays = {name: getattr(network, name).tolist() for name in shapes(len(network.bias))}
    found = _File(_kind(weights.policy), FORMAT, weights.made_by, _features(), arrays)
    return msgspec.json.format(msgspec.json.encode(found), indent=1) + b"\n"


def _features() -> dict[str, list[str]]:
    return {"jobs": list(JOB_FEATURES), "hosts": list(HOST_FEATURES), "leaving": list(LEAVING_FEATURES)}
