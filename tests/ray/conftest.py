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
def small_cluster() -> Iterator[RayCluster]:
    """A head without cores, and the node n1; for tests that may find more, as each node costs seconds to start."""
    from tests.ray.cluster import RayCluster

    with RayCluster() as found:
        found.add_node("n1")
        yield found


@pytest.fixture(scope="session")
def cluster(small_cluster: RayCluster) -> RayCluster:
    """The same with the nodes n2 and n3."""
    for name in ("n2", "n3"):
        small_cluster.add_node(name)
    return small_cluster
