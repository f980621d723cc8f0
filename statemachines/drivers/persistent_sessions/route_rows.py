"""Route rows: which filters a session subscribes.  Every change has a number, so that a node reads what it does not
know yet."""

from __future__ import annotations

from typing import Final

from statemachines.drivers.persistent_sessions.sql import Sql, read_number, read_one

FORGET: Final = 10_000
"""So many changes a route that was removed is kept at least; a node that is farther behind reads all routes anew."""

FILTERS_MAX: Final = 1_000
"""Filters that a session subscribes: each of them that matches is a row for each message."""

FRONT: Final = 1 << 40
"""In the options of a subscription: a front has made it."""

COUNT_OTHERS: Final = (
    "SELECT count(*) FROM (SELECT 1 FROM @routes WHERE session = :session AND filter <> :filter AND gone = 0"
    " LIMIT :most) AS others"
)
PUT_ROUTE: Final = (
    "INSERT INTO @routes (session, filter, qos, version, gone) VALUES (:session, :filter, :qos, :version, 0)"
    " ON CONFLICT (session, filter) DO UPDATE SET"
    " qos = excluded.qos, version = excluded.version, gone = 0, options = 0"
)


def has_room(sql: Sql, session: bytes, topic_filter: bytes) -> bool:
    """Whether the session may subscribe this filter: it has it, or has fewer than it may."""
    return read_number(sql, COUNT_OTHERS, session=session, filter=topic_filter, most=FILTERS_MAX) < FILTERS_MAX


def has_route(sql: Sql, session: bytes, topic_filter: bytes) -> bool:
    """Whether the session subscribes this filter."""
    values = {"session": session, "filter": topic_filter}
    found = read_one(sql, "SELECT 1 FROM @routes WHERE session = :session AND filter = :filter AND gone = 0", **values)
    return found is not None


def put_route(sql: Sql, session: bytes, topic_filter: bytes, qos: int) -> None:
    """The session subscribes; a subscription that is there has this `qos` from now on."""
    sql.run(PUT_ROUTE, session=session, filter=topic_filter, qos=qos, version=_next_version(sql))


def put_options(sql: Sql, session: bytes, topic_filter: bytes, options: int) -> None:
    """What a front wants to know of the subscription again; a front's subscriptions are single."""
    sql.run(
        "UPDATE @routes SET options = :options WHERE session = :session AND filter = :filter",
        session=session, filter=topic_filter, options=options | FRONT,
    )  # fmt: skip


def read_options(sql: Sql, session: bytes) -> dict[str, int]:
    """Filter -> its options, of all that the session subscribes."""
    found = sql.all("SELECT filter, options FROM @routes WHERE session = :session AND gone = 0", session=session)
    return {topic_filter.decode(): options & ~FRONT for topic_filter, options in found}


def remove_route(sql: Sql, session: bytes, topic_filter: bytes) -> None:
    """It is kept as gone for nodes that know it; for so long that no node that works is behind."""
    if not has_route(sql, session, topic_filter):
        return
    values = {"session": session, "filter": topic_filter}
    version = _next_version(sql)
    sql.run(
        "UPDATE @routes SET gone = 1, version = :version WHERE session = :session AND filter = :filter",
        version=version, **values,
    )  # fmt: skip
    if version - read_number(sql, "SELECT forgotten FROM @store") >= 2 * FORGET:
        sql.run("DELETE FROM @routes WHERE gone = 1 AND version <= :version", version=version - FORGET)
        sql.run("UPDATE @store SET forgotten = :version", version=version - FORGET)


def list_filters(sql: Sql, session: bytes) -> tuple[str, ...]:
    """All that the session subscribes."""
    found = sql.all("SELECT filter FROM @routes WHERE session = :session AND gone = 0 ORDER BY filter", session=session)
    return tuple(topic_filter.decode() for (topic_filter,) in found)


def remove_routes(sql: Sql, session: bytes) -> None:
    """All of the session."""
    for topic_filter in list_filters(sql, session):
        remove_route(sql, session, topic_filter.encode())


def _next_version(sql: Sql) -> int:
    sql.run("UPDATE @store SET routes = routes + 1")
    return read_number(sql, "SELECT routes FROM @store")
