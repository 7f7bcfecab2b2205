"""How Hypothesis draws (it never judges how long something took: a machine may be slow), and a PostgreSQL server."""

import gc
import os
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

# Folders of tests that mostly wait, those of the longest first.
_WAITING = ("ray", "live", "examples", "executors", "service", "agent")
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
    memory = os.statvfs("/dev/shm")
    if memory.f_bavail * memory.f_frsize >= _FILES_MIB << 20 and not memory.f_flag & os.ST_NOEXEC:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", "/dev/shm")

if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    # Started in the background, as a job of a shell: what the tests start would never hear of Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_configure() -> None:
    """Nothing of what is imported and collected is garbage; to look for some takes a fifth of that time."""
    gc.disable()


@pytest.hookimpl(trylast=True)  # when those that shall not run are out of the list
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Let as many of pytest's workers as there are cores begin with tests that compute, and the others with those that
    mostly wait.

    Each worker begins with its part of the list, and takes tests from the end of another's when it has none left.
    """
    workers = getattr(config, "workerinput", {}).get("workercount", 1)
    if workers == 1:
        return
    computing, waiting = list[pytest.Item](), dict[Path, list[pytest.Item]]()
    for item in items:
        if _waits(item, config) is None:
            computing.append(item)
        else:
            waiting.setdefault(item.path, []).append(item)
    modules = sorted(waiting.values(), key=lambda module: _waits(module[0], config) or 0)
    first = max(1, workers - (os.cpu_count() or 1))
    ordered = list[pytest.Item]()
    for n in range(first):
        part = [item for module in modules[n::first] for item in module]
        size = (len(items) - len(ordered)) // (workers - n)  # as xdist divides the list
        more = max(0, size - len(part))
        ordered += [*part, *computing[:more]]
        del computing[:more]
    items[:] = [*ordered, *computing]


def _waits(item: pytest.Item, config: pytest.Config) -> int | None:
    """How soon a test begins that mostly waits; None for one that computes."""
    parts = item.path.relative_to(config.rootpath).parts
    return next((n for n, folder in enumerate(_WAITING) if folder in parts), None)


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
