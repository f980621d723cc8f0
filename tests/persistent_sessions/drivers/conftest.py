"""The databases that sessions are tried on: a file, and a PostgreSQL server that the whole test run shares."""

import pytest
from session_databases import new_url


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
