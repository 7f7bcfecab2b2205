"""How Hypothesis draws (it never judges how long something took: a machine may be slow), and a PostgreSQL server."""

import gc
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers
from tests.roaming import ROAMS

from hocket.testing.postgresql import NoPostgresql, PostgresServer

# Tests run beside each other, and what they compute is small: more threads would only wait for each other.
os.environ.setdefault("OMP_NUM_THREADS", "1")

settings.register_profile("ours", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=not ROAMS)
settings.load_profile("ours")
if not ROAMS and hasattr(providers, "_get_local_constants"):
    # It also draws constants out of those modules of ours that are loaded: what a test draws would depend on which
    # tests ran before it in the same process, and so on chance.
    providers._get_local_constants = lambda: providers._local_constants

if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    # Started in the background, as a job of a shell: what the tests start would never hear of Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_configure() -> None:
    """Nothing of what is imported and collected is garbage; to look for some takes a fifth of that time."""
    gc.disable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Spread the modules of live tests evenly among the others: those wait most of their time, these compute."""
    modules: dict[Path, list[pytest.Item]] = {}
    for item in items:
        modules.setdefault(item.path, []).append(item)
    live = [path for path in modules if path.parent.name == "live"]
    others = [path for path in modules if path.parent.name != "live"]
    places = {path: (n + 0.5) / len(group) for group in (live, others) for n, path in enumerate(group)}
    items[:] = [item for path in sorted(places, key=places.__getitem__) for item in modules[path]]


def pytest_collection_finish() -> None:
    """Look for garbage from now on, but not again and again among the modules and tests that are there for good."""
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    """A real PostgreSQL server; a test with this is skipped where none is installed."""
    pytest.importorskip("psycopg", reason="psycopg is not installed: pip install 'hocket[postgresql]'")
    try:
        found = PostgresServer()
    except NoPostgresql as error:
        pytest.skip(str(error))
    with found:
        yield found
