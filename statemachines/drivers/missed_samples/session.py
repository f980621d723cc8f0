"""zenoh_session: a session of zenoh with explicit endpoints, closed when it is left.

async with zenoh_session("peer", listen=["tcp/127.0.0.1:7447"]) as session: ...
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

import zenoh

from statemachines.drivers.opening import finish_in_thread, open_in_thread
from statemachines.kernel import ConfigurationError

MODES: Final = ("peer", "client", "router")


def session_config(
    mode: str = "peer", *, listen: Sequence[str] = (), connect: Sequence[str] = (), scouting: bool = False
) -> zenoh.Config:
    """Without `scouting`, who is connected is what the endpoints (`tcp/HOST:PORT`) say; with it whoever zenoh finds on
    the local network, too.  A link that is lost is tried again within a second.  A peer speaks with whom it is
    connected to; whoever is to be reached through a router is a client of it, since a router passes nothing on between
    peers.  Raises `ConfigurationError` for another mode, or an endpoint that zenoh does not take."""
    if mode not in MODES:
        raise ConfigurationError("mode", mode, f"one of {', '.join(MODES)}")
    config = zenoh.Config()
    settings: dict[str, Any] = {
        "mode": mode,
        "listen/endpoints": list(listen),
        "connect/endpoints": list(connect),
        "connect/timeout_ms": -1 if mode != "client" else 10_000,
        "connect/exit_on_failure": False,
        "connect/retry": {"period_init_ms": 100, "period_max_ms": 1_000, "period_increase_factor": 2},
        "scouting/multicast/enabled": scouting,
        "scouting/gossip/enabled": scouting,
    }
    for key, value in settings.items():
        try:
            config.insert_json5(key, json.dumps(value))
        except zenoh.ZError as error:
            raise ConfigurationError(key, str(value), f"zenoh does not take it: {_words(error)}") from None
    return config


@asynccontextmanager
async def zenoh_session(
    mode: str = "peer", *, listen: Sequence[str] = (), connect: Sequence[str] = (), scouting: bool = False
) -> AsyncIterator[zenoh.Session]:
    """Open from here to the end of the `async with`, see `session_config`; raises `ConfigurationError` where it cannot
    be opened."""
    config = session_config(mode, listen=listen, connect=connect, scouting=scouting)
    try:
        session = await open_in_thread(lambda: zenoh.open(config), lambda opened: opened.close())  # type: ignore[no-untyped-call]
    except zenoh.ZError as error:
        where = f"{mode}, listen {list(listen)}, connect {list(connect)}"
        who = " (is a router there? `gapless node zenoh-router` is one)" if mode == "client" else ""
        raise ConfigurationError("zenoh session", where, f"cannot be opened: {_words(error)}{who}") from None
    try:
        yield session
    finally:
        await finish_in_thread(session.close)


def _words(error: zenoh.ZError) -> str:
    """What zenoh says, without the places in its own source."""
    said = re.sub(r" at /\S+?\.rs:\d+\.?", "", str(error)).strip()
    inner = re.search(r'msg: "(.*?)", location', said)
    return inner[1] if inner else said


def is_matched(entity: zenoh.Publisher | zenoh.Querier) -> bool:
    """Whether zenoh knows of a subscriber to it, or a queryable.  Its stubs call `matching_status` a bool; what comes
    is an object, and true whatever it says."""
    status: Any = entity.matching_status
    return bool(getattr(status, "matching", status))
