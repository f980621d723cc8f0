"""Delivery systems: systems in which the shipped Session reads, hands over and collects acknowledgements.

They are declared by the same `Setting` as the others, with `sessions` set; here stands what that adds: whole consumers,
the account of what applications get, faults, properties, bounds.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec.structs import replace

from statemachines.kernel import Event, Map
from statemachines.shared_subscriptions.borrower import OnDisconnect
from statemachines.shared_subscriptions.group_store import StoredRecord, record_key
from statemachines.shared_subscriptions.properties.delivered_messages import compile_filter
from statemachines.shared_subscriptions.stream_store import SERVICE as STREAM_STORE
from statemachines.shared_subscriptions.stream_store import Rotate, StreamStore
from statemachines_spec.explorer.actor import Actor
from statemachines_spec.explorer.network import Network
from statemachines_spec.explorer.property import Eventually, Property
from statemachines_spec.explorer.system import Budget, System
from statemachines_spec.shared_subscriptions import deliveries
from statemachines_spec.shared_subscriptions.account import DeliveryAccount
from statemachines_spec.shared_subscriptions.consumer import FILTER, GROUP, Consumer
from statemachines_spec.shared_subscriptions.leader_host import LeaderHost
from statemachines_spec.shared_subscriptions.script import GroupSetting
from statemachines_spec.shared_subscriptions.session_consumer import SessionConsumer, Unheard
from statemachines_spec.shared_subscriptions.stores import Store, make_declared_store, streams
from statemachines_spec.shared_subscriptions.variants import configuration

FAULTS: dict[str, tuple[str, str, type[Event]]] = {
    "disconnects": ("disconnect of a client", "consumer", OnDisconnect),
    "losses": ("update that is lost", "consumer", Unheard),
}
"""As in `systems.FAULTS`: what happens only where sessions are."""


def with_sessions(made: System, setting: GroupSetting, variant: str) -> System:
    """The same system with whole consumers, the account of what they deliver, and what is judged of that."""
    consumers = tuple(actor.name for actor in made.actors if isinstance(actor, Consumer))
    hosts = tuple(actor.name for actor in made.actors if isinstance(actor, LeaderHost))
    topics = tuple("abcdefgh"[: setting.topics])
    held = tuple(f"0.0/{topic}" for topic in topics)
    kept = [one for one in made.properties if setting.filter == FILTER or one.name != "both deliver"]
    pattern = compile_filter(setting.filter)
    published = tuple(setting.offsets * bool(pattern.fullmatch(topic)) for topic in topics)
    return replace(
        made,
        actors=(*(_whole(actor, topics, setting, variant) for actor in made.actors), DeliveryAccount(held, published)),
        properties=(*kept, *properties(consumers, hosts, held, published, setting)),
        budgets=(*made.budgets, *budgets(setting)),
        bounds=made.bounds | bounds(setting),
    )


def _whole(actor: Actor, topics: tuple[str, ...], setting: GroupSetting, variant: str) -> Actor:
    if isinstance(actor, Consumer):
        return SessionConsumer(
            actor.name,
            actor.configuration,
            fsm=actor.fsm,
            registry=actor.registry,
            lives=actor.lives,
            pings=actor.pings,
            offsets=actor.offsets,
            faults=(*actor.faults, *((OnDisconnect,) if setting.disconnects else ())),
            silent=(*sorted(actor.silent), *(("lease",) if setting.leases_hold else ())),
            topic_filter=setting.filter,
            buffer=setting.buffer,
            at_delivery=setting.at_delivery,
            fetches_wait=setting.fetches_wait,
            losses=setting.losses > 0,
        )
    if isinstance(actor, Store) and actor.name == STREAM_STORE:
        state = streams(topics, setting.offsets)
        if setting.ended:
            state, _ = StreamStore(1).apply(state, Rotate(0), 0)
        return Store(actor.service, at_once=actor.at_once, state=state)
    if isinstance(actor, Store) and setting.filter != FILTER:
        actor.state = _group(setting, variant)
    return actor


def _group(setting: GroupSetting, variant: str) -> Map[str, StoredRecord]:
    """A group store that knows the group of this filter."""
    key, wanted = (record_key(GROUP, one, "properties") for one in (FILTER, setting.filter))
    return Map({wanted: make_declared_store(configuration(variant))[key]})


def acknowledging(made: System) -> tuple[Eventually, ...]:
    """L5, where there is an account."""
    accounts = (actor for actor in made.actors if isinstance(actor, DeliveryAccount))
    return tuple(each for one in accounts for each in deliveries.obligations(one.streams, one.published))


def properties(
    consumers: tuple[str, ...],
    hosts: tuple[str, ...],
    held: tuple[str, ...],
    published: tuple[int, ...],
    setting: GroupSetting,
) -> Iterator[Property]:
    """What is judged besides."""
    offsets = setting.offsets
    yield deliveries.sessions_exclusive(consumers, held)
    yield from deliveries.no_loss(consumers, hosts, held, offsets, setting.ended)
    yield from deliveries.make_ended_not_granted(hosts, held)
    yield from deliveries.happening(
        consumers, held, published, commits=setting.roots > 0, ended=setting.ended, acks=not setting.at_delivery
    )
    if setting.consumers > 1 and not setting.at_delivery:
        yield deliveries.sometimes_in_hand(consumers)
    faults = (setting.crashes, setting.timeouts, setting.pauses, setting.leader_crashes, setting.disconnects)
    if any(faults) and not setting.at_delivery:
        yield from deliveries.make_redelivered(consumers, held, offsets)
    yield from deliveries.over_deliveries(held, dict.fromkeys(consumers, setting.filter))
    yield deliveries.END_ABSORBS


def budgets(setting: GroupSetting) -> Iterator[Budget]:
    """The faults that only these systems have."""
    for field, (text, whom, kind) in FAULTS.items():
        yield Budget(text, getattr(setting, field), _spends(whom, kind))


def _spends(whom: str, kind: type[Event]) -> Any:
    return lambda actor, event: actor.startswith(whom) and type(event) is kind


def bounds(setting: GroupSetting) -> dict[str, str]:
    """What is bounded besides."""
    pings = f"{setting.pings} pings each" if setting.pings else "as many pings as they like"
    return {
        "streams": f"{setting.topics}, {setting.offsets} messages in each"
        + (", then it ends" if setting.ended else "")
        + (f"; only topic {setting.filter} is subscribed to" if setting.filter != FILTER else ""),
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
    "filtered": (
        "streams of two topics, and a subscription to one of them",
        (READING | {"topics": 2, "filter": "a"}, {"network": Network(2), "timeouts": 1}, {"pings": 2}),
    ),
    "answered": (
        "nothing is lost: small enough to ask whether every message is acknowledged at last",
        (
            READING | {"offsets": 1, "leases_hold": True, "network": Network(2, lossy=False)},
            {"offsets": 2, "network": Network(4, lossy=False)},
            {"network": Network(5, lossy=False)},
        ),
    ),
    "lost-messages": (
        "a few messages are lost, and then no more: whether every message is acknowledged at last",
        (
            READING
            | {
                "consumers": 1, "offsets": 1, "pings": 0, "lives": 2, "registrations": 2, "leases_hold": True,
                "lost": 1, "timeouts": 1, "network": Network(2, lossy=False, duplicating=False),
            },
            {"lost": 2, "timeouts": 2, "lives": 3, "registrations": 3, "grants": 3},
            {"offsets": 2},
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
