"""Systems of connections: one client connects again and again, starts clean or not, leaves, and dies.

Systems in which clients are forgotten: a collector beside connections, some of which come back just then.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from msgspec.structs import replace

from statemachines.kernel import Event
from statemachines.persistent_sessions.life_record import (
    CONNECTED,
    LEAVING,
    OPENING,
    SETTLING,
    Attach,
    Connect,
    ConnectTimeout,
    Disconnect,
    LifeRecord,
    SessionOpened,
)
from statemachines.persistent_sessions.life_times import LifeTimes
from statemachines.persistent_sessions.properties.opened_sessions import SessionProperty
from statemachines.persistent_sessions.properties.session_owners import SUPERSEDED, judge_end
from statemachines.persistent_sessions.request import DATABASE, NotOwner
from statemachines.persistent_sessions.resume_record import ConnectionLost
from statemachines.persistent_sessions.session_life import SESSION_LIFE
from statemachines.persistent_sessions.times import MS
from statemachines_spec.explorer.actor import Crash
from statemachines_spec.explorer.clock import Clock
from statemachines_spec.explorer.fsm_actor import DOWN, ENDED, FsmActor, FsmLocal
from statemachines_spec.explorer.network import Network
from statemachines_spec.explorer.property import Always, Eventually, Property, Sometimes, Stepwise, View
from statemachines_spec.explorer.system import System, at_most
from statemachines_spec.persistent_sessions.clients import Clients, DoneUnknown, NotDone
from statemachines_spec.persistent_sessions.collector_systems import CollectorSetting, collector
from statemachines_spec.persistent_sessions.systems import SessionSetting

HOUR_MS = 3_600_000


class Living(msgspec.Struct, frozen=True, kw_only=True):
    """What bounds such a system: of each connection whether it starts clean, and its expiry; `leaves` of clients,
    `crashes` of owners, requests that are `unclear`, connects that take too long (`late`), and `messages`; how often
    the store is full, or is not any more (`fills`); `stands_still`: the time of the database does, and no lease ends by
    it; `given_up`: all are of one client, which has given up each before it made the next, and each may come late."""

    connects: tuple[tuple[bool, int], ...]
    leaves: int = 0
    crashes: int = 0
    unclear: int = 0
    late: int = 0
    messages: int = 1
    sessions: int = 2
    stands_still: bool = False
    fills: int = 0
    given_up: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """Those of the connections."""
        return tuple(f"connection-{number}" for number in range(1, len(self.connects) + 1))


SYSTEMS: dict[str, tuple[str, Living]] = {
    "clean-start": (
        "a client starts clean beside rows that are routed late for its old session, and connects a third time",
        Living(connects=((False, HOUR_MS), (True, HOUR_MS), (False, HOUR_MS)), messages=2),
    ),
    "expiry": (
        "a client leaves, its session expires or does not, and it comes back; expiry 0 ends it, and is not raised",
        Living(connects=((False, HOUR_MS), (False, 0)), leaves=2),
    ),
    "owner-dies": (
        "the owner of a session dies, and its expiry counts from when it last lived",
        Living(connects=((False, HOUR_MS), (False, HOUR_MS)), crashes=1),
    ),
    "life-unclear": (
        "what a connection asks is done, or not, and it does not learn which; its client connects again",
        Living(connects=((False, HOUR_MS), (True, HOUR_MS)), unclear=1, leaves=1),
    ),
    "time-stands-still": (
        "the time of the database stands still, and who has locked the client id dies",
        Living(connects=((False, HOUR_MS), (False, HOUR_MS)), crashes=1, sessions=1, stands_still=True),
    ),
    "connects-late": (
        "a connect takes too long, and the lease of its lock ends at any moment",
        Living(connects=((True, 0), (False, HOUR_MS)), late=1, leaves=1),
    ),
    "full": (
        "the store keeps as many sessions as it may, and does not any more, at any moment; a client leaves for good",
        Living(connects=((False, HOUR_MS), (False, HOUR_MS)), fills=2, leaves=1, messages=0),
    ),
    "comes-late": (
        "a client gives up a connection that is on its way and makes another; the first comes at any moment",
        Living(connects=((False, HOUR_MS), (False, HOUR_MS)), sessions=1, given_up=True),
    ),
}
"""Name -> (about, bounds)."""


def living(name: str, about: str, one: Living, clients: Clients | None = None) -> System:
    """The system with these bounds; `clients`: their tables, if others than usual."""
    clients = clients or tables_of(one)
    connections = tuple(connection(party, one, number) for number, party in enumerate(one.names))
    return System(
        name,
        about,
        (*connections, clients, *((Clock(0, LifeTimes().lock_ms * MS),) if one.stands_still else ())),
        Network(1, lossy=False, duplicating=False),
        properties=tuple(properties(connections, clients, one)),
        budgets=(
            at_most("clients that leave", one.leaves, Disconnect, ConnectionLost),
            at_most("owners that die", one.crashes, Crash),
            at_most("requests of which nobody knows what became", one.unclear, DoneUnknown, NotDone),
            at_most("connects that take too long", one.late, ConnectTimeout),
        ),
        obligations=() if one.stands_still else tuple(connects(connections)),
    )


def tables_of(one: Living, **rules: bool) -> Clients:
    """Those of the client; `rules`: what they do not keep to."""
    clean = dict(zip(one.names, (clean for clean, _ in one.connects), strict=True))
    return Clients(clean, messages=one.messages, leases_end=not one.stands_still, fills=one.fills, **rules)


def connection(name: str, one: Living, number: int) -> FsmActor:
    """One connection of the client, from 0 on."""
    which = ("client", number + 1) if one.given_up else ("", 0)

    def calls(record: LifeRecord) -> tuple[Event, ...]:
        if record.status is SETTLING:
            return (Attach(),)
        gone = (Disconnect(), Disconnect(0), Disconnect(HOUR_MS), ConnectionLost())
        return gone if one.leaves and record.status in (OPENING, CONNECTED) else ()

    return FsmActor(
        name,
        SESSION_LIFE,
        lambda life: LifeRecord(f"{name}~{life}/1", "client", LifeTimes(), most=int(one.fills > 0)),
        faults=(Crash,) if one.crashes else (),
        start=Connect(*one.connects[number], *which),
        calls=calls,
        tells={SessionOpened: DATABASE},
        silent=() if one.late else ("deadline",),
    )


def connects(connections: tuple[FsmActor, ...]) -> list[Eventually]:
    """Every connect ends; where instants are counted, it may wait beyond the last of them."""
    return [Eventually(f"CONNECTS {one.name}", "a connect ends", (is_under_way(one),), bool) for one in connections]


def is_under_way(one: FsmActor) -> View:
    """It waits for something."""

    def read(local: FsmLocal) -> int:
        if local.party is None or local.mode in (DOWN, ENDED):
            return 0
        return int(local.party.record.status is not CONNECTED)

    return View(one.name, 2, read)


def keeps_its_promises(actor: str, before: Any, event: Any, after: Any) -> bool:
    """A session ends with the connection if the client says so."""
    if not isinstance(after, FsmLocal) or after.party is None or after.mode is ENDED:
        return True
    record = after.party.record
    if not isinstance(record, LifeRecord):
        return True
    if isinstance(event, Disconnect) and record.status in (OPENING, LEAVING) and event.expiry_ms == 0:
        return bool(record.expiry_ms == 0)
    return True


def keeps_last(last: str) -> Callable[[str, Any, Any, Any], bool]:
    """The last connection that a client has made is not superseded: nobody else has made one."""

    def holds(actor: str, before: Any, event: Any, after: Any) -> bool:
        return actor != last or not judge_end(last, SUPERSEDED if isinstance(event, NotOwner) else "")

    return holds


def properties(connections: tuple[FsmActor, ...], clients: Clients, one: Living) -> list[Property]:
    """What must hold, and what must happen sometimes."""
    found: list[Property] = [
        Always(how.name, f"never: {how.value}", (clients.is_wrong(how),), lambda wrong: not wrong)
        for how in SessionProperty
    ]
    found.append(Stepwise("LIFE", "the machine keeps what it promises of itself", keeps_its_promises))
    found.append(Sometimes("another session", "", (clients.has_had(one.sessions),), bool))
    if one.stands_still:
        found.append(Sometimes("a lock that nobody gives up is had at last", "", (clients.has_aged(),), bool))
    if one.fills:
        found.append(Sometimes("refused, and nothing is left", "", (clients.has_refused(),), bool))
    last = connections[-1]
    if one.given_up:
        text = "a connection that its client has given up supersedes no later one"
        found.append(Stepwise("SUPERSEDED", text, keeps_last(last.name)))
    found.append(Sometimes("connected at last", "", (last.is_in(CONNECTED),), bool))
    return found


FORGETTING_SYSTEMS: dict[str, tuple[str, Living]] = {
    "forgotten": (
        "a client leaves, and its session expires; it comes back before a collector forgets it, then, or after",
        Living(connects=((False, HOUR_MS), (False, 0)), leaves=1),
    ),
    "forgotten-dead": (
        "the owner of a session dies, and a collector forgets its client, which connects again",
        Living(connects=((False, HOUR_MS), (False, HOUR_MS)), crashes=1),
    ),
    "forgotten-unclear": (
        "a collector, or a connection, does not learn what became of what it asked",
        Living(connects=((False, HOUR_MS),), unclear=1, leaves=1, sessions=1),
    ),
}
"""Name -> (about, bounds)."""


def forgetting(name: str, about: str, one: Living, **rules: bool) -> System:
    """The system with these bounds; `rules`: what the tables do not keep to."""
    clients = tables_of(one, **rules)
    made = living(name, about, one, clients)
    over = "a client whose session has expired, or that has none, is forgotten"
    return replace(
        made,
        actors=(*made.actors, collector(CollectorSetting(setting=SessionSetting()))),
        properties=(*made.properties, Sometimes("a client is forgotten", "", (clients.has_forgotten(),), bool)),
        obligations=(*made.obligations, Eventually("FORGETS", over, (clients.has_ended(),), bool)),
    )


ASSUMED = {
    "forgets-blindly": ("whether a client is over is not asked again", {"asks_again": False}, "FORGOTTEN"),
    "forgets-silently": ("who has a token of a client that was forgotten goes on", {"supersedes": False}, "REUSED"),
}
"""What the database must do in the transaction that forgets: about, the rule, and what breaks without it."""


def without(name: str) -> System:
    """The system in which the rule is not kept, and the one thing that is to break."""
    about, rules, breaks = ASSUMED[name]
    made = forgetting(name, about, FORGETTING_SYSTEMS["forgotten"][1], **rules)
    return replace(made, properties=tuple(one for one in made.properties if one.name == breaks), obligations=())
