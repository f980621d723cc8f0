"""Address: the URL of a database, what may be shown of it, and the connections that are made with it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError
from sqlalchemy.pool import QueuePool

from statemachines.drivers.sql.shown_url import without_password
from statemachines.kernel import ConfigurationError

SCHEMES: Final = ("postgresql", "postgres", "postgresql+psycopg")
FORM: Final = "must be postgresql://USER@HOST:PORT/DATABASE (a password is better kept in ~/.pgpass)"
SECRET: Final = ("password", "sslpassword")
"""Parameters of a URL that are never shown."""

CONNECT_S: Final = 5
SILENCE_S: Final = 10
"""A server whose machine is gone says nothing: the connection is given up after that."""

STATEMENT_S: Final = 60
IDLE_S: Final = 2
"""A process that is paused within a transaction holds others up for so long, not for ever."""


def parse_url(given: str) -> URL:
    """Raises `ConfigurationError`, which shows no password."""
    try:
        url = make_url(given)
    except (ArgumentError, ValueError) as error:
        raise ConfigurationError("store", without_password(given), FORM) from error
    if "@" in (url.host or "") or "@" in given.partition("?")[2]:
        raise ConfigurationError(
            "store", f"{url.drivername}://...", f"write @ and ? of a password as %40 and %3F; {FORM}"
        )
    if url.drivername not in SCHEMES:
        raise ConfigurationError("store", hide_password(url), FORM)
    if not url.database:
        raise ConfigurationError("store", hide_password(url), f"names no database; it {FORM}")
    return url.set(drivername="postgresql+psycopg")


def hide_password(url: URL) -> str:
    """The URL without its password, as its user writes it."""
    query = {name: "***" if name.lower() in SECRET else value for name, value in url.query.items()}
    text = url.set(drivername="postgresql", query=query).render_as_string(hide_password=True)
    return text.replace("%2A%2A%2A", "***")


DIRECT: Final = "gapless.direct"
"""A setting that a session of the server has if it took ours when it began."""

SAID: Final = "FATAL:"
"""Before the words of a server, or of a pooler, that answers and lets nobody in."""

REFUSED_OPTIONS: Final = "unsupported startup parameter"
"""What a pooler says that takes no settings of a session."""


def connect(url: URL, busy_s: float, note: Callable[[Any, dict[str, Any]], None]) -> Engine:
    """Two connections at most, made when they are needed and made anew when they were lost; `note` hears of each, and
    of the arguments that it was made with.

    It may lead to a pooler that gives each transaction another session of the server (pgbouncer in transaction mode).
    Such a one takes no settings of a session, or drops them: then each transaction sets its own, and no statement is
    prepared, since the session that has it serves others.
    """
    limits = {
        "lock_timeout": round(busy_s * 1000),
        "statement_timeout": round(max(STATEMENT_S, busy_s) * 1000),
        "idle_in_transaction_session_timeout": IDLE_S * 1000,
    }
    # The server's own: it learns that a machine has gone amid a transaction only by what this one does not answer.
    silence = {
        "tcp_keepalives_idle": SILENCE_S // 2,
        "tcp_keepalives_interval": 1,
        "tcp_keepalives_count": SILENCE_S // 2,
    }
    options = " ".join(f"-c {name}={value}" for name, value in {**limits, **silence, DIRECT: 1}.items())
    arguments: dict[str, Any] = {
        "application_name": "gapless",
        "connect_timeout": CONNECT_S,
        "keepalives_idle": SILENCE_S // 2,
        "keepalives_interval": 1,
        "keepalives_count": SILENCE_S // 2,
        "tcp_user_timeout": SILENCE_S * 1000,
        "client_encoding": "utf8",
    }
    arguments = {name: value for name, value in arguments.items() if name not in url.query}
    arguments["options"] = f"{url.query.get('options', '')} {options}".strip()
    engine = create_engine(
        url,
        connect_args=arguments,
        poolclass=QueuePool,
        pool_size=2,
        max_overflow=0,
        pool_reset_on_return=None,
        isolation_level="READ COMMITTED",
    )
    event.listen(engine, "do_connect", partial(_connect, note))
    set_limits = "SELECT " + ", ".join(f"set_config('{name}', '{value}', true)" for name, value in limits.items())

    def begin(connection: Connection) -> None:
        if is_pooled(connection):
            try:
                connection.exec_driver_sql(set_limits)
            except BaseException:
                connection.invalidate()  # nobody would end what has begun
                raise

    event.listen(engine, "begin", begin)
    return engine


def is_pooled(connection: Connection) -> bool:
    """It leads to a pooler: another session of the server in each transaction."""
    return bool(connection.connection.info["pooled"])


def _connect(
    note: Callable[[Any, dict[str, Any]], None], dialect: Any, record: Any, given: Any, arguments: dict[str, Any]
) -> Any:
    """A connection of psycopg; the `record` of it says whether it is pooled."""
    driver = dialect.loaded_dbapi
    try:
        connection = driver.connect(*given, **arguments)
    except driver.OperationalError as error:
        if REFUSED_OPTIONS not in str(error):
            raise
        arguments = {**arguments, "options": _without_ours(arguments["options"])}
        connection = driver.connect(*given, **arguments)
    note(connection, arguments)
    try:
        connection.autocommit = True
        ((found,),) = connection.execute(f"SELECT current_setting('{DIRECT}', true)").fetchall()
        connection.autocommit = False
    except BaseException:
        connection.close()
        raise
    record.info["pooled"] = found != "1"
    if record.info["pooled"]:
        connection.prepare_threshold = None
    return connection


def _without_ours(options: str) -> str:
    """What stands before our own: a user's, who is told by the pooler what it does not take."""
    return options.partition("-c lock_timeout=")[0].strip()
