"""A kernel with functions of numba, whose import takes half a second: tests load this when they run."""

from types import ModuleType
from typing import Any

import numpy as np
from numba import njit


@njit  # type: ignore[misc]
def doubled(value: Any) -> Any:
    return 2 * value


@njit  # type: ignore[misc]
def tripled(value: Any) -> Any:
    return 3 * value


TABLE = np.array([1.0, 2.0])
helpers = ModuleType("helpers")
helpers.FACTOR = 2.0  # type: ignore[attr-defined]
_other_helpers = ModuleType("helpers")
_other_helpers.FACTOR = 5.0  # type: ignore[attr-defined]
OTHERS: dict[str, Any] = {"doubled": tripled, "TABLE": TABLE + 1, "helpers": _other_helpers}  # in place of those


def of_globals(value: Any) -> Any:
    return doubled(value) + TABLE[1] + helpers.FACTOR
