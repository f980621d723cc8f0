"""Database URL: which database a path or a URL names, and what it takes to open it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar
from urllib.parse import unquote

from statemachines.drivers.sql.shown_url import names_password, without_password
from statemachines.kernel import ConfigurationError

POSTGRES: Final = ("postgresql", "postgres", "postgresql+psycopg")
FORMS: Final = "must be a path, sqlite:///PATH or postgresql://USER@HOST:PORT/DATABASE"

T = TypeVar("T")


def find_path(store: str | Path) -> Path | None:
    """The file of SQLite that a path or URL names; None for a database elsewhere.

    Raises `ConfigurationError` for a URL of a kind that we do not know.
    """
    if isinstance(store, Path):
        return store
    scheme, separator, rest = store.partition("://")
    if not separator:
        if names_password(store):
            raise ConfigurationError("store", "...", FORMS)
        return Path(store)
    if scheme in POSTGRES:
        return None
    if scheme != "sqlite" or not rest.startswith("/") or len(rest) < 2:
        raise ConfigurationError("store", without_password(store), FORMS)
    return Path(unquote(rest[1:]))


def with_extra(store: str | Path, make: Callable[[], T]) -> T:
    """`make()`; a package that is missing is named with what brings it."""
    try:
        return make()
    except ImportError as error:
        if (error.name or "").partition(".")[0] not in ("sqlalchemy", "psycopg"):
            raise
        shown = str(store).rpartition("@")[2]
        rule = f"needs the package {error.name!r}, which is not installed: pip install 'gapless[postgres]'"
        raise ConfigurationError("store", shown.partition("?")[0], rule) from error
