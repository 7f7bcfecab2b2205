"""What is kept on disk here is kept on one: it is read around the page cache."""

from pathlib import Path

import pytest


@pytest.fixture
def tmp_path(disk_path: Path) -> Path:
    return disk_path
