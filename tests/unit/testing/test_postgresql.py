"""A PostgreSQL server for tests leaves nothing behind, and its shared memory least of all: a machine has little."""

from pathlib import Path

import pytest

from hocket.testing.postgresql import NoPostgresql, PostgresServer

pytest.importorskip("psycopg")


def segments() -> set[int]:
    """The ids of the System V shared memory of this machine."""
    lines = Path("/proc/sysvipc/shm").read_text().splitlines()[1:]
    return {int(line.split()[1]) for line in lines}


@pytest.mark.parametrize("is_killed", [False, True])
def test_a_closed_server_has_given_back_its_memory_and_its_folder(is_killed):
    try:
        server = PostgresServer()
    except NoPostgresql as error:
        pytest.skip(str(error))
    segment = server.segment()
    assert segment in segments()
    assert list((server.folder / "data" / "pg_dynshmem").iterdir())  # and not in /dev/shm
    if is_killed:
        server.kill()
        assert segment in segments()
    server.close()
    assert segment not in segments()
    assert not server.folder.exists()
