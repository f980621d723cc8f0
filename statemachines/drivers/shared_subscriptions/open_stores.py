"""Opening the stores, wherever they are: the one place that knows which databases there are.

sqlite:///messages.db           a file (relative); sqlite:////var/lib/messages.db (absolute)
messages.db                     the same: a plain path
postgresql://me@db:5432/mine    PostgreSQL; needs the extra `postgres`
messages.db;leaders.db          messages in the first, what leaders keep in the second, each as above
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from pathlib import Path
from threading import Thread
from typing import NamedTuple, TypeVar

from statemachines.drivers.shared_subscriptions.store import MessageDatabase, RecordDatabase
from statemachines.drivers.sql.awaited import AGAIN_S, SAY_AGAIN_S, retry_while_unavailable
from statemachines.drivers.sql.database_url import find_path, with_extra

T = TypeVar("T")


class OpenStores(NamedTuple):
    """Both stores, of one database or of two."""

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
    messages, leaders = split_store(store)
    stores = _both(lambda: _open_group_store(leaders), lambda: open_stream_store(messages))
    if messages != leaders:  # members of one group read the same messages, wherever its leader keeps what it knows
        stores.groups.identity = stores.streams.identity
    return stores


def open_stream_store(store: str | Path) -> MessageDatabase:
    """Open the stream store, for a consumer or publisher; as `open_stores`."""
    path = path_of(store)
    if path is not None:
        from statemachines.drivers.shared_subscriptions.sqlite import SqliteStreamStore

        return SqliteStreamStore(path)
    return with_extra(store, lambda: _open_postgres_streams(str(split_store(store)[0])))


def split_store(store: str | Path) -> tuple[str | Path, str | Path]:
    """Where messages are, and what leaders keep; the same, unless a `;` is between."""
    messages, separator, leaders = store.partition(";") if isinstance(store, str) else (store, "", store)
    return messages, leaders if separator else messages


def path_of(store: str | Path) -> Path | None:
    """The file of a SQLite store, of two that of the messages; None for a database elsewhere.

    Raises `ConfigurationError` for a URL of a kind that we do not know.
    """
    return find_path(split_store(store)[0])


def directory_of(store: str | Path) -> Path:
    """Where files that belong beside the store go: the directory of its file; the current one for a server."""
    path = path_of(store)
    return Path() if path is None else path.parent


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


def _open_group_store(store: str | Path) -> RecordDatabase:
    path = path_of(store)
    if path is not None:
        from statemachines.drivers.shared_subscriptions.sqlite import SqliteGroupStore

        return SqliteGroupStore(path)
    return with_extra(store, lambda: _open_postgres_groups(str(store)))


def _open_postgres_groups(url: str) -> RecordDatabase:
    from statemachines.drivers.shared_subscriptions.postgres import PostgresGroupStore

    return PostgresGroupStore(url)


def _open_postgres_streams(url: str) -> MessageDatabase:
    from statemachines.drivers.shared_subscriptions.postgres import PostgresStreamStore

    return PostgresStreamStore(url)
