"""What Rotary's estimators take of a run (Table 3.3): CPU time, beside the time that the jobs run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import process_time
from typing import Any

from hocket.estimators import training_epochs, training_memory, unit_time

ESTIMATORS: dict[str, tuple[tuple[Any, str], ...]] = {
    "TTR": ((unit_time, "noted"), (unit_time, "unit_s"), (unit_time, "from_past")),
    "TEE": ((training_epochs, "chances"), (training_epochs, "as_printed")),
    "TME": ((training_memory, "memory_mib"),),
}
# Jobs → seconds of the whole run, and of each estimator.
PRINTED = {
    10: (8142.0, {"TTR": 0.225, "TEE": 0.74, "TME": 0.58}),
    20: (23790.0, {"TTR": 0.6, "TEE": 1.31, "TME": 1.03}),
    30: (34014.0, {"TTR": 0.87, "TEE": 1.98, "TME": 1.49}),
    40: (43124.0, {"TTR": 1.12, "TEE": 2.56, "TME": 2.11}),
}


@contextmanager
def spent_by_estimators() -> Iterator[dict[str, float]]:
    """CPU seconds of each estimator while the block runs; nothing is kept from runs before."""
    spent = dict.fromkeys(ESTIMATORS, 0.0)
    before = [(module, name, getattr(module, name)) for parts in ESTIMATORS.values() for module, name in parts]
    training_epochs.forget()
    try:
        for what, parts in ESTIMATORS.items():
            for module, name in parts:
                setattr(module, name, _timed(getattr(module, name), spent, what))
        yield spent
    finally:
        for module, name, function in before:
            setattr(module, name, function)


def _timed(function: Callable[..., Any], spent: dict[str, float], what: str) -> Callable[..., Any]:
    def timed(*args: Any, **named: Any) -> Any:
        began_s = process_time()
        try:
            return function(*args, **named)
        finally:
            spent[what] += process_time() - began_s

    return timed
