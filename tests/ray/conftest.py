"""One Ray cluster for all tests here; they are skipped where Ray is not installed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.ray.cluster import RayCluster


@pytest.fixture(scope="session", autouse=True)
def has_ray() -> None:
    """Ray is imported within functions only: whoever collects the tests would load it, and that takes a second."""
    if find_spec("ray") is None:
        pytest.skip("Ray is not installed: `make test` installs it")


@pytest.fixture(scope="session", autouse=True)
def without_tokens() -> Iterator[None]:
    """No token in the home of whoever runs the tests is asked for or made: Ray would, where it is not told."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(os.environ, "RAY_AUTH_MODE", "disabled")
        yield


@pytest.fixture(scope="session")
def cluster() -> Iterator[RayCluster]:
    """A head without cores, and the nodes n1, n2 and n3."""
    from tests.ray.cluster import RayCluster

    with RayCluster() as found:
        for name in ("n1", "n2", "n3"):
            found.add_node(name)
        yield found
