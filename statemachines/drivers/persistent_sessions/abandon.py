"""Abandon: a session is over, and a row says so."""

from __future__ import annotations

from typing import Final

from statemachines.drivers.persistent_sessions.machine_requests import is_there
from statemachines.drivers.persistent_sessions.route_rows import remove_routes
from statemachines.drivers.persistent_sessions.row_products import PUT_ROW
from statemachines.drivers.persistent_sessions.share_rows import return_messages
from statemachines.drivers.persistent_sessions.sql import Sql
from statemachines.drivers.persistent_sessions.state_rows import delete_state
from statemachines.drivers.persistent_sessions.tables import ABANDONED
from statemachines.drivers.persistent_sessions.will_rows import end_wills

NAMES_NONE: Final = (
    "UPDATE @clients SET session = NULL WHERE client = (SELECT client FROM @sessions WHERE session = :session)"
    " AND session = :session"
)


def abandon(sql: Sql, session: bytes) -> None:
    """Nothing is routed to it any more, and nobody owns it; its row says to a collector that all of it may go.  One
    that was abandoned already is left alone.  Its client has no session."""
    if not is_there(sql, session):
        return
    return_messages(sql, session)
    end_wills(sql, session, 0, sql.now_ns)
    remove_routes(sql, session)
    delete_state(sql, session)
    sql.run(NAMES_NONE, session=session)
    for table in ("epochs", "sessions", "received", "fan_out"):
        sql.run(f"DELETE FROM @{table} WHERE session = :session", session=session)
    sql.run("UPDATE @store SET sessions = sessions - 1")
    sql.run(
        PUT_ROW,
        session=session, writer=b"", epoch=0, number=0, tag=ABANDONED, message=b"", filter=b"", qos=0, token=0, n=0,
        k=0, time_ns=sql.now_ns, until_ns=0, more=b"",
    )  # fmt: skip
