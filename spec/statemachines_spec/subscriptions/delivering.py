"""Delivering: systems in which the shipped Session reads, hands over and collects acknowledgements.

They are declared by the same `Setting` as the others, with `sessions` set; here stands what that adds: the consumers,
the account of what applications get, faults, properties, bounds.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from statemachines.kernel import Event
from statemachines.shared_subscriptions.borrower import OnDisconnect, OnUnsubscribe
from statemachines.shared_subscriptions.stream_store import Rotate, StreamStore
from statemachines_spec.actor import Crash, Pause
from statemachines_spec.network import Network
from statemachines_spec.property import Property
from statemachines_spec.subscriptions import deliveries
from statemachines_spec.subscriptions.account import Account
from statemachines_spec.subscriptions.consumer import FILTER
from statemachines_spec.subscriptions.session_consumer import SessionConsumer, Unheard
from statemachines_spec.subscriptions.stores import declared, streams
from statemachines_spec.subscriptions.variants import borrower, configuration
from statemachines_spec.system import Budget

if TYPE_CHECKING:
    from statemachines_spec.subscriptions.systems import Setting

FAULTS: dict[str, tuple[str, str, type[Event]]] = {
    "disconnects": ("disconnect of a client", "consumer", OnDisconnect),
    "losses": ("update that is lost", "consumer", Unheard),
}
"""As in `systems.FAULTS`: what happens only where sessions are."""


def consumer(number: int, setting: Setting, variant: str) -> SessionConsumer:
    """A consumer with a session."""
    faults = (
        *((Crash,) if setting.crashes else ()),
        *((Pause,) if setting.pauses else ()),
        *((OnUnsubscribe,) if setting.unsubscribes else ()),
        *((OnDisconnect,) if setting.disconnects else ()),
    )
    return SessionConsumer(
        f"consumer-{number + 1}",
        configuration(variant),
        fsm=borrower(variant),
        registry=f"leader-{number % setting.hosts + 1}",
        lives=setting.lives,
        pings=setting.pings,
        offsets=setting.offsets,
        faults=faults,
        silent=("ping",) if setting.pings == 1 else (),
        group=declared(configuration(variant)),
        buffer=setting.buffer,
        at_delivery=setting.at_delivery,
        fetches_wait=setting.fetches_wait,
        losses=setting.losses > 0,
    )


def stored(topics: tuple[str, ...], setting: Setting) -> Any:
    """The stream store: the messages of each topic; where streams end, its generation is over."""
    state = streams(topics, setting.offsets)
    return StreamStore(1).apply(state, Rotate(0), 0)[0] if setting.ended else state


def account(topics: tuple[str, ...]) -> Account:
    """The books over the streams of these topics."""
    return Account(tuple(f"0.0/{topic}" for topic in topics))


def properties(
    consumers: tuple[str, ...], hosts: tuple[str, ...], held: tuple[str, ...], setting: Setting
) -> Iterator[Property]:
    """What is judged besides."""
    offsets = setting.offsets
    yield deliveries.sessions_exclusive(consumers, held)
    yield from deliveries.declared(consumers)
    yield from deliveries.no_loss(consumers, hosts, held, offsets, setting.ended)
    yield from deliveries.ended_not_granted(hosts, held)
    yield from deliveries.happening(
        consumers, held, offsets, commits=setting.roots > 0, ended=setting.ended, acks=not setting.at_delivery
    )
    if setting.consumers > 1 and not setting.at_delivery:
        yield deliveries.sometimes_in_hand(consumers)
    if any((setting.crashes, setting.timeouts, setting.pauses, setting.leader_crashes, setting.disconnects)):
        yield from deliveries.redelivered(consumers, held, offsets)
    yield from deliveries.over_deliveries(held, dict.fromkeys(consumers, FILTER))
    yield deliveries.END_ABSORBS


def budgets(setting: Setting) -> Iterator[Budget]:
    """The faults that only these systems have."""
    for field, (text, whom, kind) in FAULTS.items():
        yield Budget(text, getattr(setting, field), _spends(whom, kind))


def _spends(whom: str, kind: type[Event]) -> Any:
    return lambda actor, event: actor.startswith(whom) and type(event) is kind


def bounds(setting: Setting) -> dict[str, str]:
    """What is bounded besides."""
    pings = f"{setting.pings} pings each" if setting.pings else "as many pings as they like"
    return {
        "streams": f"{setting.topics}, {setting.offsets} messages in each"
        + (", then it ends" if setting.ended else ""),
        "borrowers": f"{setting.lives} for each consumer, {pings}",
        "sessions": f"fetch at most {setting.buffer} ahead"
        + (", answered later" if setting.fetches_wait else ", answered at once"),
        "applications": "take one message at a time, "
        + ("acknowledged when it is handed over" if setting.at_delivery else "acknowledge one by one in any order"),
    }


READING: dict[str, Any] = {"sessions": True, "offsets": 2, "grants": 2, "network": Network(1)}

SYSTEMS: dict[str, tuple[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any]]]] = {
    "faultless": (
        "no faults but those of the network: every message is delivered once",
        (READING, {"network": Network(2), "pings": 2}, {"offsets": 3}),
    ),
    "sessions": (
        "sessions deliver while pings and borrowers are given up although nobody is dead",
        (READING | {"timeouts": 1}, {"network": Network(2)}, {"pings": 2, "grants": 3}),
    ),
    "ends": (
        "a stream ends after its last message; a consumer crashes in the middle",
        (
            READING | {"ended": True, "crashes": 1, "timeouts": 1, "roots": 1},
            {"network": Network(2)},
            {"offsets": 3, "grants": 3},
        ),
    ),
    "next-leader": (
        "a leader host crashes; the next leader begins where progress was committed",
        (
            READING
            | {
                "consumers": 1, "leader_crashes": 1, "host_lives": 2, "epochs": 2, "claims_age": True, "lives": 2,
                "roots": 1,
            },
            {"consumers": 2},
            {"network": Network(2)},
        ),
    ),
    "fire-and-forget": (
        "messages are acknowledged when they are handed over; a consumer unsubscribes",
        (
            READING | {"at_delivery": True, "unsubscribes": 1},
            {"network": Network(2), "offsets": 3, "timeouts": 1},
            {"topics": 2},
        ),
    ),
    "leaving": (
        "clients unsubscribe or go away while fetches are under way and messages in hand",
        (
            READING | {"fetches_wait": True, "unsubscribes": 1, "disconnects": 1},
            {"network": Network(2)},
            {"pings": 2},
        ),
    ),
}  # fmt: skip
"""Name -> (about, what differs from the size before: small, ci, large)."""
