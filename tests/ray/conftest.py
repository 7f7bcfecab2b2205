"""One Ray cluster for all tests here; they are skipped where Ray is not installed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.ray.cluster import RayCluster


@pytest.fixture(scope="session", autouse=True)
def without_tokens() -> Iterator[None]:
    """No token in the home of whoever runs the tests is asked for or made: Ray would, where it is not told."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(os.environ, "RAY_AUTH_MODE", "disabled")
        yield


@pytest.fixture(scope="session")
def cluster() -> Iterator[RayCluster]:
    """A head without cores, and the nodes n1, n2 and n3."""
    from tests.ray.cluster import RayCluster  # Not above: where Ray is not installed, the tests' module says so.

    with RayCluster() as found:
        for name in ("n1", "n2", "n3"):
            found.add_node(name)
        yield found
