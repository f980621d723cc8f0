"""Systems: the closed systems of shared subscriptions that `gapless check` explores, in three sizes each.

Every system is a `Setting`: how many of what, and which faults how often.  Faults that a system does not name do not
happen in it; `gapless check` prints all of it beside the verdict.
"""

from __future__ import annotations

from typing import Any

import msgspec

from statemachines.kernel import ConfigurationError, Event
from statemachines.shared_subscriptions.assignment import RevokeTimeout
from statemachines.shared_subscriptions.borrower import OnUnsubscribe, PingTimeout
from statemachines.shared_subscriptions.group_store import GroupStore
from statemachines.shared_subscriptions.member import ExpiryTimer
from statemachines.shared_subscriptions.stream_store import StreamStore
from statemachines_spec.actor import Crash, Pause
from statemachines_spec.network import Network
from statemachines_spec.property import Eventually
from statemachines_spec.subscriptions import properties
from statemachines_spec.subscriptions.consumer import FILTER, Consumer
from statemachines_spec.subscriptions.delivering import SYSTEMS as DELIVERING
from statemachines_spec.subscriptions.delivering import acknowledging, with_sessions
from statemachines_spec.subscriptions.leader_host import STORE_TIMERS, LeaderHost
from statemachines_spec.subscriptions.orders import ORDERS
from statemachines_spec.subscriptions.stores import Store, declared, streams
from statemachines_spec.subscriptions.variants import borrower, configuration
from statemachines_spec.system import Budget, System

SIZES = ("small", "ci", "large")


class Setting(msgspec.Struct, frozen=True):
    """How many of what.

    `consumers` and `hosts` (leader hosts) take part, over `topics` streams of `offsets` messages; `network`;
    `sessions`: consumers are whole, and what follows up to `disconnects` is theirs, as `delivering` says;
    `roots` batches are committed after a claim was taken (0: none is, and no progress becomes durable);
    `lives` borrowers each consumer makes, `pings` each of them sends; `registrations`, `grants`, `epochs` of leaders;
    `host_lives` of a leader host and `leaders` it starts in each; faults: how often all together.
    """

    consumers: int = 2
    hosts: int = 1
    topics: int = 1
    offsets: int = 0
    sessions: bool = False
    buffer: int = 256
    ended: bool = False
    at_delivery: bool = False
    fetches_wait: bool = False
    losses: int = 0
    leases_hold: bool = False
    filter: str = FILTER
    disconnects: int = 0
    network: Network = Network(1)
    lives: int = 1
    pings: int = 1
    registrations: int = 2
    grants: int = 3
    epochs: int = 1
    host_lives: int = 1
    leaders: int = 1
    asks_travel: bool = False
    claims_age: bool = False
    roots: int = 0
    crashes: int = 0
    leader_crashes: int = 0
    timeouts: int = 0
    revoke_timeouts: int = 0
    pauses: int = 0
    leader_pauses: int = 0
    unsubscribes: int = 0


FAULTS: dict[str, tuple[str, str, type[Event]]] = {
    "crashes": ("crash of a consumer", "consumer", Crash),
    "leader_crashes": ("crash of a leader host", "leader", Crash),
    "timeouts": ("ping timeout or expiry", "", PingTimeout),
    "revoke_timeouts": ("revoke timeout", "leader", RevokeTimeout),
    "pauses": ("pause of a consumer", "consumer", Pause),
    "leader_pauses": ("pause of a leader host", "leader", Pause),
    "unsubscribes": ("unsubscribe", "consumer", OnUnsubscribe),
}
"""Field of a setting -> what is printed, whom it happens to, the event."""


def system(name: str, size: str = "ci", variant: str = "settled", without: tuple[str, ...] = ()) -> System:
    """The system of that name; `without` these deadline orders.  Raises `ConfigurationError` for unknown names."""
    if name not in SYSTEMS:
        raise ConfigurationError("system", name, f"unknown; there are: {', '.join(SYSTEMS)}")
    about, sizes = SYSTEMS[name]
    if size not in SIZES:
        raise ConfigurationError("size", size, f"unknown; there are: {', '.join(SIZES)}")
    setting = msgspec.structs.replace(Setting(), **sizes[size])
    made = build(name, about, setting, variant, without)
    arguments: dict[str, Any] = {"name": name, "size": size, "variant": variant}
    if without:
        arguments["without"] = without
    return msgspec.structs.replace(made, origin=(f"{__name__}:system", arguments))


def obligations_of(made: System) -> tuple[Eventually, ...]:
    """What must be met sooner or later in a system of these actors."""
    consumers = [actor.name for actor in made.actors if isinstance(actor, Consumer)]
    hosts = [actor.name for actor in made.actors if isinstance(actor, LeaderHost)]
    return (*properties.obligations(consumers, hosts), *acknowledging(made))


def build(name: str, about: str, setting: Setting, variant: str = "settled", without: tuple[str, ...] = ()) -> System:
    """A closed system by its setting."""
    known = [order.name for order in ORDERS]
    for order in without:
        if order not in known:
            raise ConfigurationError("deadline order", order, f"unknown; there are: {', '.join(known)}")
    topics = tuple("abcdefgh"[: setting.topics])
    held = tuple(f"0.0/{topic}" for topic in topics)
    consumers = tuple(_consumer(number, setting, variant) for number in range(setting.consumers))
    hosts = tuple(_host(number, setting, variant) for number in range(setting.hosts))
    at_once = not setting.asks_travel
    stores = (
        Store(
            GroupStore(),
            at_once=at_once,
            ages=setting.claims_age,
            state=declared(configuration(variant)),
            roots=setting.roots,
        ),
        Store(StreamStore(1), at_once=at_once, state=streams(topics, max(1, setting.offsets))),
    )
    names, leaders = tuple(one.name for one in consumers), tuple(one.name for one in hosts)
    made = System(
        name,
        about,
        (*consumers, *hosts, *stores),
        setting.network,
        (
            properties.exclusive(names, held),
            *properties.declared(names, leaders),
            *((properties.one_leader(leaders),) if setting.hosts > 1 else ()),
            *properties.sometimes_served(names, held),
            *properties.STEPWISE,
        ),
        tuple(_budget(field, setting) for field in FAULTS),
        tuple(order for order in ORDERS if order.name not in without),
        _bounds(setting, variant),
    )
    return with_sessions(made, setting, variant) if setting.sessions else made


def _consumer(number: int, setting: Setting, variant: str) -> Consumer:
    faults = (
        *((Crash,) if setting.crashes else ()),
        *((Pause,) if setting.pauses else ()),
        *((OnUnsubscribe,) if setting.unsubscribes else ()),
    )
    return Consumer(
        f"consumer-{number + 1}",
        configuration(variant),
        fsm=borrower(variant),
        registry=f"leader-{number % setting.hosts + 1}",
        lives=setting.lives,
        pings=setting.pings,
        offsets=setting.offsets,
        faults=faults,
        silent=("ping",) if setting.pings == 1 else (),
    )


def _host(number: int, setting: Setting, variant: str) -> LeaderHost:
    faults = (*((Crash,) if setting.leader_crashes else ()), *((Pause,) if setting.leader_pauses else ()))
    fires = {"claim_end": setting.claims_age, "commit": setting.roots > 0}
    silent = [timer for timer in STORE_TIMERS if not fires.get(timer, False)]
    return LeaderHost(
        f"leader-{number + 1}",
        configuration(variant),
        at_once=not setting.asks_travel,
        lives=setting.host_lives,
        leaders=setting.leaders,
        registrations=setting.registrations,
        grants=setting.grants,
        epochs=setting.epochs,
        faults=faults,
        silent=tuple(silent),
    )


def _budget(field: str, setting: Setting) -> Budget:
    text, whom, kind = FAULTS[field]
    kinds: tuple[type[Event], ...] = (kind, ExpiryTimer) if kind is PingTimeout else (kind,)
    return Budget(text, getattr(setting, field), lambda actor, event: actor.startswith(whom) and type(event) in kinds)


def _bounds(setting: Setting, variant: str) -> dict[str, str]:
    return {
        "variant": variant,
        "streams": f"{setting.topics}, {setting.offsets} messages acknowledged one by one in each",
        "borrowers": f"{setting.lives} for each consumer, {setting.pings} pings each",
        "leaders": f"{setting.registrations} registrations and {setting.grants} grants in an epoch, "
        f"{setting.epochs} epochs; {setting.leaders} in each of {setting.host_lives} lives of a host",
        "stores": "requests and answers travel" if setting.asks_travel else "answer within the step that asks",
        "commits": f"{setting.roots} batches after a claim was taken",
    }


def _sizes(small: dict[str, Any], ci: dict[str, Any], large: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {"small": small, "ci": small | ci, "large": small | ci | large}


SYSTEMS: dict[str, tuple[str, dict[str, dict[str, Any]]]] = {
    "late-copies": (
        "no faults but those of the network: copies of old messages come late",
        _sizes({"network": Network(2)}, {"network": Network(3), "topics": 2}, {"pings": 2, "offsets": 1}),
    ),
    "borrower-crash": (
        "a consumer crashes; its streams are handed over when its lease has ended",
        _sizes({"crashes": 1, "timeouts": 1}, {"network": Network(2), "pings": 2, "offsets": 1}, {"topics": 2}),
    ),
    "false-timeouts": (
        "pings and borrowers are given up although nobody is dead",
        _sizes({"timeouts": 1, "lives": 2, "registrations": 3}, {"network": Network(2), "timeouts": 2}, {"pings": 2}),
    ),
    "pause": (
        "a consumer stands still until its lease, and everything else, has passed",
        _sizes({"pauses": 1, "timeouts": 1}, {"network": Network(2), "pings": 2}, {"topics": 2}),
    ),
    "unsubscribe": (
        "a consumer unsubscribes while it holds streams",
        _sizes({"unsubscribes": 1, "offsets": 1}, {"network": Network(2), "pings": 2, "offsets": 2}, {"topics": 2}),
    ),
    "revoke-timeout": (
        "a borrower does not finish a revoke in time",
        _sizes(
            {"revoke_timeouts": 1},
            {"network": Network(2), "topics": 2, "pings": 2},
            {"lives": 2, "registrations": 3},
        ),
    ),
    "leader-crash": (
        "a leader host crashes; the next leader waits until every lease from before has ended",
        _sizes(
            {"leader_crashes": 1, "host_lives": 2, "epochs": 2, "claims_age": True, "lives": 2, "grants": 2},
            {"network": Network(2), "roots": 1, "offsets": 1},
            {"registrations": 3},
        ),
    ),
    "two-leaders": (
        "two hosts race for the claim; one of them may stand still past its end",
        _sizes(
            {
                "hosts": 2, "leader_pauses": 1, "epochs": 2, "claims_age": True, "asks_travel": True, "grants": 1,
                "network": Network(1),
            },
            {"network": Network(2), "roots": 1, "offsets": 1},
            {"network": Network(3), "lives": 2},
        ),
    ),
    "reordering": (
        "a network that loses and doubles nothing, but hands over in any order",
        _sizes(
            {"network": Network(3, lossy=False, duplicating=False)},
            {"network": Network(5, lossy=False, duplicating=False), "topics": 2, "pings": 2},
            {"offsets": 1},
        ),
    ),
    **{name: (about, _sizes(*sizes)) for name, (about, sizes) in DELIVERING.items()},
}  # fmt: skip
"""Name -> (about, size -> what differs from the default setting)."""
