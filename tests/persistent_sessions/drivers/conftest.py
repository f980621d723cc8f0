"""The databases that sessions are tried on: a file, and a PostgreSQL server that the whole test run shares."""

from __future__ import annotations

import os

import pytest
from session_databases import new_url

from statemachines.drivers.sql import silent_server
from statemachines.testing.postgres import share_server


@pytest.fixture(scope="session")
def sessions_server(tmp_path_factory):
    """The URL of the server; the workers of a run share it."""
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    with share_server(shared / "postgres") as url, pytest.MonkeyPatch.context() as patch:
        patch.setattr(silent_server, "PROBE_S", 60.0)  # a server on a busy machine is slow, and is not silent
        yield url


@pytest.fixture(params=["sqlite", "postgres"])
def url(request, tmp_path_factory):
    """Each database in turn, and nothing is in it."""
    return new_url(request.param, request, tmp_path_factory)


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def shared_url(request, tmp_path_factory):
    """Each database in turn, for all tests of a module."""
    return new_url(request.param, request, tmp_path_factory)


@pytest.fixture
def sqlite_url(request, tmp_path_factory):
    """A file with nothing in it."""
    return new_url("sqlite", request, tmp_path_factory)


@pytest.fixture
def postgres_url(request, tmp_path_factory):
    """A database of PostgreSQL with nothing in it."""
    return new_url("postgres", request, tmp_path_factory)


@pytest.fixture
def store(tmp_path):
    """The file of a database that is not there yet."""
    return str(tmp_path / "sessions.db")
