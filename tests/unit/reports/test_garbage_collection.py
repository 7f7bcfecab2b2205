"""While a run is simulated, Python looks for garbage rarely; afterwards as before."""

import gc
from collections.abc import Iterator

import pytest

from hocket.reports.simulation import rare_garbage_collection


@pytest.fixture(params=[True, False], ids=["something is frozen", "nothing is"])
def froze(request: pytest.FixtureRequest) -> Iterator[bool]:
    had = gc.get_freeze_count() > 0
    gc.freeze() if request.param else gc.unfreeze()
    yield request.param
    gc.freeze() if had else gc.unfreeze()


def test_what_was_frozen_before_is_frozen_afterwards_and_nothing_else(froze: bool) -> None:
    threshold = gc.get_threshold()
    with rare_garbage_collection():
        assert gc.get_freeze_count() > 0
        assert gc.get_threshold()[0] > threshold[0]
    assert (gc.get_freeze_count() > 0) == froze
    assert gc.get_threshold() == threshold
