"""Opening the stores, wherever they are: the one place that knows which databases there are.

sqlite:///messages.db           a file (relative); sqlite:////var/lib/messages.db (absolute)
messages.db                     the same: a plain path
postgresql://me@db:5432/mine    PostgreSQL; needs the extra `postgres`
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from pathlib import Path
from threading import Thread
from typing import Final, NamedTuple, TypeVar
from urllib.parse import unquote

from statemachines.drivers.shared_subscriptions.store import MessageDatabase, RecordDatabase
from statemachines.drivers.sql.awaited import AGAIN_S, SAY_AGAIN_S, retry_while_unavailable
from statemachines.drivers.sql.shown_url import names_password, without_password
from statemachines.kernel import ConfigurationError

POSTGRES: Final = ("postgresql", "postgres", "postgresql+psycopg")
SQLITE: Final = "sqlite"
FORMS: Final = "must be a path, sqlite:///PATH or postgresql://USER@HOST:PORT/DATABASE"

T = TypeVar("T")


class OpenStores(NamedTuple):
    """Both stores of one database."""

    groups: RecordDatabase
    streams: MessageDatabase


async def open_store_patiently(
    make: Callable[[str | Path], T], store: str | Path, *, who: str, patience_s: float = math.inf
) -> T:
    """`make(store)` in a thread, again and again while the database is away, starts, or is too busy, as requests are
    repeated later; `who`: waits, as the log says it.

    Raises what `make` does; where it is only not there, when `patience_s` is over.
    """
    return await retry_while_unavailable(
        lambda: asyncio.to_thread(make, store),
        who=who,
        patience_s=patience_s,
        again_s=AGAIN_S,
        say_again_s=SAY_AGAIN_S,
    )


def open_stores(store: str | Path) -> OpenStores:
    """Open both stores, for a leader host.

    Waits for the database: call it in a thread where a loop is running.  Raises `ConfigurationError` where the database
    cannot be reached or used (no password is shown), `StoreUnavailable` where it is busy.
    """
    path = path_of(store)
    if path is not None:
        from statemachines.drivers.shared_subscriptions.sqlite import SqliteGroupStore, SqliteStreamStore

        return _both(lambda: SqliteGroupStore(path), lambda: SqliteStreamStore(path))
    return with_extra(store, lambda: _open_postgres(str(store)))


def open_stream_store(store: str | Path) -> MessageDatabase:
    """Open the stream store, for a consumer or publisher; as `open_stores`."""
    path = path_of(store)
    if path is not None:
        from statemachines.drivers.shared_subscriptions.sqlite import SqliteStreamStore

        return SqliteStreamStore(path)
    return with_extra(store, lambda: _open_postgres_streams(str(store)))


def path_of(store: str | Path) -> Path | None:
    """The file of a SQLite store; None for a database elsewhere.

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
    if scheme != SQLITE or not rest.startswith("/") or len(rest) < 2:
        raise ConfigurationError("store", without_password(store), FORMS)
    return Path(unquote(rest[1:]))


def directory_of(store: str | Path) -> Path:
    """Where files that belong beside the store go: the directory of its file; the current one for a server."""
    path = path_of(store)
    return Path() if path is None else path.parent


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


def _both(open_groups: Callable[[], RecordDatabase], open_streams: Callable[[], MessageDatabase]) -> OpenStores:
    """Both, or none: whoever tries again and again keeps no connection of each time."""
    groups = open_groups()
    try:
        return OpenStores(groups, open_streams())
    except BaseException:
        closing = Thread(target=asyncio.run, args=(groups.close(),))  # whoever calls may be in a loop
        closing.start()
        closing.join()
        raise


def _open_postgres(url: str) -> OpenStores:
    from statemachines.drivers.shared_subscriptions.postgres import PostgresGroupStore, PostgresStreamStore

    return _both(lambda: PostgresGroupStore(url), lambda: PostgresStreamStore(url))


def _open_postgres_streams(url: str) -> MessageDatabase:
    from statemachines.drivers.shared_subscriptions.postgres import PostgresStreamStore

    return PostgresStreamStore(url)
