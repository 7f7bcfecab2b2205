"""One Ray cluster for all tests here; they are skipped where Ray is not installed (`make test-ray` installs it)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.ray.cluster import RayCluster


@pytest.fixture(scope="session")
def cluster() -> Iterator[RayCluster]:
    """A head without cores, and the nodes n1, n2 and n3."""
    from tests.ray.cluster import RayCluster  # Not above: where Ray is not installed, the tests' module says so.

    with RayCluster() as found:
        for name in ("n1", "n2", "n3"):
            found.add_node(name)
        yield found
