"""`gapless sessions`: what an operator does with a store of sessions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Annotated, Final, TypeVar

import typer

from statemachines.drivers.persistent_sessions.node_commands import Store
from statemachines.kernel import ConfigurationError
from statemachines.plain_text import plain_json, plain_line

if TYPE_CHECKING:
    from statemachines.drivers.persistent_sessions.operator_requests import SessionDetail, SessionSummary
    from statemachines.drivers.persistent_sessions.store import SessionStore
    from statemachines.persistent_sessions.session_host_record import ClockState

T = TypeVar("T")

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Operate a store of persistent sessions.")

Client = Annotated[str, typer.Argument(metavar="CLIENT", help="The id of a client.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for programs instead of text.")]

LIST_MAX: Final = 10_000
"""Sessions in one answer."""

LEAD_SHOWN_S: Final = 1.0
"""A clock that differs from store time by less goes with it."""

DELETED_AT_ONCE: Final = 1_000
"""Rows that are deleted in one transaction: nodes wait for no more."""


@app.callback()
def sessions() -> None:
    """Operate a store of persistent sessions."""


@app.command("list")
def list_command(
    store: Store,
    limit: Annotated[int, typer.Option(min=1, max=LIST_MAX, help="At most so many sessions.")] = 100,
    after: Annotated[str, typer.Option(metavar="CLIENT", help="Only clients behind this one, by their ids.")] = "",
    json: Json = False,
) -> None:
    """List sessions, in the order of their clients' ids.

    A session is connected, connecting (a node is about to have it), away (its client has left), or lost (its node has
    ended, or has said nothing of it for 5 s). Last stands how many messages wait for it in the store, at most: expired
    ones may be among them. Where there are more than `--limit`, the last line says how to go on.
    """
    from statemachines.drivers.persistent_sessions.operator_requests import ListSessions

    found: tuple[SessionSummary, ...] = _run(store, lambda opened: opened.do(ListSessions(after, limit + 1)))
    shown, more = found[:limit], found[limit:]
    if json:
        print(plain_json({"sessions": shown, "after": shown[-1].client if more else None}))
        return
    for one in shown:
        print(_line(_words(one)))
    if more:
        print(f"... there are more; go on with --after {plain_line(shown[-1].client)!r}")
    elif not shown:
        print("no sessions" if not after else "no more sessions")


@app.command()
def describe(client: Client, store: Store, json: Json = False) -> None:
    """Describe the session of a client: where it is, what it subscribes, what waits for it."""
    from statemachines.drivers.persistent_sessions.operator_requests import DescribeSession

    found: SessionDetail | None = _run(store, lambda opened: opened.do(DescribeSession(client)))
    if found is None:
        raise _unknown(client)
    if json:
        print(plain_json(found))
        return
    print(_line(_words(found.summary)))
    print(f"token {found.token}")
    waiting = f"{'at least ' if found.waiting_more else ''}{found.waiting}"
    print(f"{found.in_flight} in flight, {found.queued} queued, {waiting} waiting")
    for one in found.filters:
        print(_line(("subscribes", one.filter, f"QoS {one.qos}")))
    if found.filters_more:
        print("... and more")


@app.command()
def kick(client: Client, store: Store, json: Json = False) -> None:
    """End the connection of a client; its session stays.

    Nothing that its node asks for it is carried out any more, from this moment on. The node notices within a second:
    it ends the connection, and the client gets SessionTaken. It may connect again.
    """
    from statemachines.drivers.persistent_sessions.operator_requests import KickClient

    found: SessionSummary | None = _run(store, lambda opened: opened.do(KickClient(client)))
    if found is None:
        raise _unknown(client)
    is_kicked = found.state != "away"
    if json:
        print(plain_json({"client": client, "session": found.session, "node": found.node, "kicked": is_kicked}))
    elif not is_kicked:
        print(f"{plain_line(client)}: is not connected; nothing was changed")
    elif found.expiry_s == 0:
        print(f"{plain_line(client)}: was {found.state} at {found.node}; its session ends with its connection")
    else:
        print(f"{plain_line(client)}: was {found.state} at {found.node}; superseded, and its session stays")


@app.command()
def purge(client: Client, store: Store, json: Json = False) -> None:
    """Discard the session of a client, with all that waits for it, and forget the client.

    A connection that has it ends as with `kick`. When the client connects again it has a fresh session. Payloads that
    no other session needs are deleted by the collector of the nodes, a minute after they came.
    """

    from statemachines.drivers.persistent_sessions.operator_requests import DeleteRows, PurgeClient

    async def work(opened: SessionStore) -> tuple[SessionSummary | None, int]:
        found: SessionSummary | None = await opened.do(PurgeClient(client))
        rows = 0
        while found is not None and found.session:
            deleted = await opened.do(DeleteRows(found.session, DELETED_AT_ONCE))
            rows += deleted
            if deleted < DELETED_AT_ONCE:
                break
        return found, rows

    found, rows = _run(store, work)
    if found is None:
        raise _unknown(client)
    if json:
        print(plain_json({"client": client, "session": found.session, "node": found.node, "rows": rows}))
    elif not found.session:
        print(f"{plain_line(client)}: had no session; forgotten")
    else:
        done = f"session {plain_line(found.session)} discarded, {rows} rows deleted"
        print(f"{plain_line(client)}: was {found.state}; {done}")


@app.command()
def clock(
    store: Store,
    accept: Annotated[bool, typer.Option("--accept", help="Let ages count again: the clock is right.")] = False,
    json: Json = False,
) -> None:
    """Show what the clock of the store shows, and whether ages count.

    Where the clock was set ahead while nodes ran, nothing expires and nothing is deleted for its age, and the log of
    every node says so. If the clock is wrong, set it back. If it is right, `--accept` it: what it has leapt over counts
    in no age. Without that option nothing is changed.
    """

    async def work(opened: SessionStore) -> tuple[str, bool, ClockState]:
        is_accepted = accept and await opened.accept_clock()
        return opened.where, is_accepted, await opened.read_clock()

    where, is_accepted, state = _run(store, work)
    if json:
        found = {
            "clock": _utc(state.clock_ns),
            "store_time": _utc(state.time_ns),
            "ahead_s": state.ahead_s,
            "stopped": state.is_stopped,
            "stopped_s": state.stopped_s,
        }
        print(plain_json({**found, "accepted": is_accepted} if accept else found))
        return
    if accept:
        print(f"{where}: {'ages count again' if is_accepted else 'ages count already; nothing was changed'}")
        return
    print(f"{where}: its clock shows {_utc(state.clock_ns)}{_describe_lead(state.ahead_s)}")
    if state.is_stopped:
        print(f"ages stand still for {state.stopped_s:.0f} s: set the clock back, or accept it with --accept")
    else:
        print("ages count")


def _run(store: str, work: Callable[[SessionStore], Awaitable[T]]) -> T:
    """`work` with the store, which must be there."""
    import asyncio

    from statemachines.drivers.signals import log_plainly, run_without_waiting

    log_plainly()
    return asyncio.run(run_without_waiting(_with_store(store, work)))


async def _with_store(store: str, work: Callable[[SessionStore], Awaitable[T]]) -> T:
    import asyncio

    from statemachines.drivers.persistent_sessions.store import open_session_store
    from statemachines.drivers.sql.awaited import ONE_OPERATION_S, retry_while_unavailable
    from statemachines.drivers.sql.database_url import find_path

    path = find_path(store)
    if path is not None and not path.exists():
        raise ConfigurationError("store", store, "is not there; give the store of the nodes, as they have it")
    opened = await retry_while_unavailable(
        lambda: asyncio.to_thread(open_session_store, store), who="sessions", patience_s=ONE_OPERATION_S
    )
    try:
        return await work(opened)
    finally:
        await opened.close()


def _utc(time_ns: int) -> str:
    """A time as people read it, to the second."""
    from datetime import UTC, datetime

    return datetime.fromtimestamp(time_ns // 10**9, UTC).isoformat().replace("+00:00", "Z")


def _describe_lead(ahead_s: float) -> str:
    if abs(ahead_s) < LEAD_SHOWN_S:
        return ""
    if ahead_s > 0:
        return f", {ahead_s:.0f} s ahead of store time"
    return f", {-ahead_s:.0f} s behind store time, which waits for it"


def _unknown(client: str) -> ConfigurationError:
    return ConfigurationError("client", client, "has no session there; `gapless sessions list` shows those that have")


def _words(one: SessionSummary) -> tuple[str, ...]:
    if not one.session and one.state == "away":
        return (one.client, "no session")
    if one.state == "away":
        where = f"away for {one.seen_s:.0f} s"
    elif one.state == "lost":
        where = f"lost with {one.node} {one.seen_s:.0f} s ago"
    else:
        where = f"{one.state} at {one.node}"
    expiry = "does not expire" if one.expiry_s is None else f"expires after {one.expiry_s:g} s"
    waiting = f"at most {one.waiting_max} waiting" if one.waiting_max else "nothing waiting"
    return (one.client, one.session, where, expiry, waiting)


def _line(words: Iterable[str]) -> str:
    return "\t".join(plain_line(word) for word in words)
