"""How Hypothesis draws (it never judges how long something took: a machine may be slow), and a PostgreSQL server."""

import gc
import os
import shutil
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers
from tests.roaming import ROAMS

from hocket.testing.postgresql import NoPostgresql, PostgresServer

_WAITING = {"live", "ray", "agent", "service", "executors", "examples"}  # folders of tests that mostly wait
_FILES_MIB = 4096  # free in memory, so that the tests' files are kept there

# Tests run beside each other, and what they compute is small: more threads would only wait for each other.
os.environ.setdefault("OMP_NUM_THREADS", "1")

settings.register_profile("ours", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=not ROAMS)
settings.load_profile("ours")
if not ROAMS and hasattr(providers, "_get_local_constants"):
    # It also draws constants out of those modules of ours that are loaded: what a test draws would depend on which
    # tests ran before it in the same process, and so on chance.
    providers._get_local_constants = lambda: providers._local_constants

with suppress(OSError):
    # Many tests wait for a disk most of their time. Those that look at one have `disk_path`.
    if shutil.disk_usage("/dev/shm").free >= _FILES_MIB << 20:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", "/dev/shm")

if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    # Started in the background, as a job of a shell: what the tests start would never hear of Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_configure() -> None:
    """Nothing of what is imported and collected is garbage; to look for some takes a fifth of that time."""
    gc.disable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Let half of pytest's workers begin with the tests that mostly wait, while the others compute.

    Each worker begins with its part of the list, and takes tests from the end of another's when it has none left.
    """
    workers = getattr(config, "workerinput", {}).get("workercount", 1)
    waiting, computing = list[pytest.Item](), list[pytest.Item]()
    for item in items:
        is_waiting = _WAITING.intersection(item.path.relative_to(config.rootpath).parts)
        (waiting if is_waiting else computing).append(item)
    first, size = max(1, workers // 2), len(items) // workers
    parts = [waiting[len(waiting) * n // first : len(waiting) * (n + 1) // first] for n in range(first)]
    ordered, begin = [], 0
    for part in parts:
        end = begin + max(0, size - len(part))
        ordered += [*part, *computing[begin:end]]
        begin = end
    items[:] = [*ordered, *computing[begin:]]


def pytest_collection_finish() -> None:
    """Look for garbage from now on, but not again and again among the modules and tests that are there for good."""
    gc.freeze()
    gc.enable()


@pytest.fixture
def disk_path() -> Iterator[Path]:
    """A folder on a disk, for what memory cannot do."""
    with TemporaryDirectory(prefix="hocket-test-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


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
