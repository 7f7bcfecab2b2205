"""A controller with an agent that the test speaks for."""

import pytest
from tests.unit.executors.agents.test_executor import World


@pytest.fixture
def kind_of_world():
    return World


@pytest.fixture
def world(tmp_path, kind_of_world):
    found = kind_of_world(tmp_path / "journal.db")
    found.hello()
    yield found
    found.engine.close()
