"""Stores to keep journals in: files, and a real PostgreSQL server."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote
from uuid import uuid4

import pytest

from hocket.testing.postgresql import PostgresServer


@pytest.fixture
def database(server: PostgresServer) -> str:
    """The URL of a schema of its own."""
    import psycopg

    schema = f"s{uuid4().hex[:12]}"
    with psycopg.connect(server.url, autocommit=True) as db:
        db.execute(f"CREATE SCHEMA {schema}")
    return f"{server.url}&options={quote(f'-csearch_path={schema}')}"


@pytest.fixture(params=["sqlite", "postgresql"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where a journal may be begun; a test with this runs for each kind of store."""
    return str(tmp_path / "j.db") if request.param == "sqlite" else str(request.getfixturevalue("database"))
