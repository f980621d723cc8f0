"""Timed systems of shared subscriptions: what the untimed ones assume of deadlines is counted down here.

Each is about a pair of deadlines that two nodes reckon by their own clocks; every other timer may fire at any moment
while it is set, and every other deadline order is assumed as it is there.  That a deadline order holds is a theorem of
the system in which it is `shown`: it is not assumed there.
"""

from __future__ import annotations

import copy
from typing import Any

import msgspec
from msgspec.structs import replace

from statemachines.kernel import ConfigurationError
from statemachines.shared_subscriptions.configuration import Configuration
from statemachines.shared_subscriptions.group_store import SERVICE as GROUP_STORE
from statemachines_spec.explorer.actor import Actor
from statemachines_spec.explorer.network import Network
from statemachines_spec.explorer.order import Order
from statemachines_spec.explorer.post import Post
from statemachines_spec.explorer.property import Eventually
from statemachines_spec.explorer.system import System
from statemachines_spec.explorer.tick import TickClock, drift_of
from statemachines_spec.shared_subscriptions import (
    claims,
    contracts,
    declaration_systems,
    private_systems,
    succession,
    systems,
)
from statemachines_spec.shared_subscriptions.consumer import Consumer
from statemachines_spec.shared_subscriptions.leader_host import LeaderHost
from statemachines_spec.shared_subscriptions.orders import (
    CLAIM_END_BEFORE_AGE,
    LEASE_BEFORE_GRACE,
    LEASE_BEFORE_HAND_OVER,
)
from statemachines_spec.shared_subscriptions.script import GroupSetting
from statemachines_spec.shared_subscriptions.stores import Store, make_declared_store
from statemachines_spec.shared_subscriptions.succession import TICK_NS, TIMES, Election, of_borrower, of_leader
from statemachines_spec.shared_subscriptions.systems import SIZES
from statemachines_spec.shared_subscriptions.variants import configuration

OTHERS = (*declaration_systems.BUILDS, *private_systems.ABOUT, *contracts.BUILDS)
"""Systems that say themselves what must be met in them."""

LAGS, LEADS, BOTH = (True, False), (False, True), (True, True)
"""How a clock may drift: it only loses ticks, it only gains some, or either."""


class TimedSetting(msgspec.Struct, frozen=True):
    """A timed system: its `setting` without a tick; the timed timers of a `borrower` and of a `leader`; the deadline
    orders that it is to show; `drift`: node -> how; `delay`:
    messages take at most so many ticks, and nothing goes wrong (None: they take as long as they like); `asked`:
    somebody asks the leader hosts in turn, and it is counted for how long nobody holds the claim."""

    setting: GroupSetting | Election
    borrower: tuple[str, ...] = ()
    leader: tuple[str, ...] = ()
    shown: tuple[Order, ...] = ()
    drift: dict[str, tuple[bool, bool]] = {}
    delay: int | None = None
    asked: bool = False
    times: Configuration = TIMES


def times(one: TimedSetting, variant: str) -> Configuration:
    """The times of a timed system under the rules of a variant."""
    return replace(one.times, exclusive=configuration(variant).exclusive)


def system(
    name: str, size: str = "small", variant: str = "settled", without: tuple[str, ...] = (), slack: int = 0,
    most: int = 0,
) -> System:  # fmt: skip
    """The timed system of that name; `without` these deadline orders of those that it assumes; `slack`: ticks by which
    mistaken machines may reckon further than they should; `most`: ticks in place of the bound of L6.  Raises
    `ConfigurationError` for unknown names."""
    if name not in SYSTEMS:
        raise ConfigurationError("system", name, f"unknown; there are: {', '.join(SYSTEMS)}")
    about, sizes = SYSTEMS[name]
    if size not in sizes:
        raise ConfigurationError("size", size, f"unknown; there are: {', '.join(sizes)}")
    made = build(name, about, sizes[size], variant, without, slack, most)
    arguments: dict[str, Any] = {"name": name, "size": size, "variant": variant}
    if without:
        arguments["without"] = without
    if slack:
        arguments["slack"] = slack
    if most:
        arguments["most"] = most
    return replace(made, origin=(f"{__name__}:system", arguments))


def any_system(name: str, size: str = "small", variant: str = "settled", without: tuple[str, ...] = ()) -> System:
    """The system of that name, timed or not."""
    if name in systems.SYSTEMS:
        return systems.system(name, size, variant, without)
    if name in private_systems.ABOUT:
        return private_systems.system(name, size, variant, without)
    if name in contracts.BUILDS:
        return contracts.system(name, size, variant, without)
    if name in declaration_systems.BUILDS:
        return declaration_systems.system(name, size, variant, without)
    if name not in SYSTEMS:
        raise ConfigurationError(
            "system",
            name,
            f"unknown; there are: {', '.join((*systems.SYSTEMS, *OTHERS, *SYSTEMS))}",
        )
    return system(name, size, variant, without)


def obligations_of(made: System) -> tuple[Eventually, ...]:
    """None where time is counted: "sooner or later" is about systems in which any timer may fire at any moment."""
    if made.name in OTHERS:
        return made.obligations
    return () if any(isinstance(actor, TickClock) for actor in made.actors) else systems.obligations_of(made)


def build(
    name: str, about: str, one: TimedSetting, variant: str = "settled", without: tuple[str, ...] = (), slack: int = 0,
    most: int = 0,
) -> System:  # fmt: skip
    """A timed system by what it is made of; `most`: ticks in place of the bound of L6."""
    ours = times(one, variant)
    untimed = _untimed(name, about, one.setting, variant, without)
    if one.asked:
        untimed = succession.ask_in_turn(untimed, ours, most)
    drift = {node: drift_of(ours.clock_drift, slow=slow, fast=fast) for node, (slow, fast) in one.drift.items()}
    return replace(
        untimed,
        name=name,
        about=about,
        actors=(
            *(_timed(actor, one, ours, slack) for actor in untimed.actors),
            *(() if one.delay is None else (Post(TICK_NS, delay=one.delay, places=3),)),
            TickClock(TICK_NS, drift=drift),
        ),
        budgets=untimed.budgets if one.delay is None or one.asked else (),
        orders=tuple(order for order in untimed.orders if order not in one.shown),
        bounds={**untimed.bounds, **_bounds(one, ours)},
        symmetries=(),
    )


def _untimed(name: str, about: str, setting: GroupSetting | Election, variant: str, without: tuple[str, ...]) -> System:
    if isinstance(setting, GroupSetting):
        return systems.build(name, about, setting, variant, without)
    made = succession.build(setting, variant, without)
    hosts = tuple(actor.name for actor in made.actors if isinstance(actor, LeaderHost))
    sometimes = () if setting.hosts > 1 else ("a race", "a later leader")
    kept = tuple(one for one in made.properties if one.name not in sometimes)
    keeps = () if setting.hosts > 1 else (claims.keeps_claim(hosts), claims.renews(hosts))
    return replace(made, properties=(*kept, *claims.knows_store(hosts), *keeps))


def _timed(actor: Actor, one: TimedSetting, ours: Configuration, slack: int) -> Actor:
    """The same component, living by these times."""
    if isinstance(actor, Store) and actor.name == GROUP_STORE:
        other = copy.copy(actor)
        other.state = make_declared_store(ours)
        return other
    if isinstance(actor, Consumer | LeaderHost):
        timed = copy.copy(actor)
        timed.configuration = ours
        timers = one.borrower if isinstance(actor, Consumer) else one.leader
        reckon = of_borrower if isinstance(actor, Consumer) else of_leader
        if timers:
            timed.set_timing(reckon(ours, timers, slack))
        return timed
    return actor


def _bounds(one: TimedSetting, ours: Configuration) -> dict[str, str]:
    times_ms = {field: getattr(ours, field) for field in ours.__struct_fields__ if field.endswith("_ms")}
    return {
        "times (ms)": ", ".join(f"{field[:-3]} {value}" for field, value in times_ms.items()),
        "clock_drift": str(ours.clock_drift),
        **{f"shown: {order.name}": order.relation for order in one.shown},
    }


ORDERED = Network(2, lossy=False, duplicating=False, ordered=True)

HAND_OVER = TimedSetting(
    GroupSetting(timeouts=1, grants=2, network=ORDERED),
    borrower=("lease",),
    leader=("hand_over",),
    shown=(LEASE_BEFORE_HAND_OVER,),
    drift={"consumer-1": LAGS, "leader-1": LEADS},
)
GRACE = TimedSetting(
    GroupSetting(leader_crashes=1, host_lives=2, epochs=2, claims_age=True, grants=1, network=ORDERED),
    borrower=("lease",),
    leader=("grace",),
    shown=(LEASE_BEFORE_GRACE,),
    drift={"consumer-1": LAGS, "leader-1": LEADS},
)
SLOW_MESSAGES = replace(
    TIMES, max_delay_ms=4, ping_timeout_ms=20, validity_ms=52, idle_stop_ms=24, find_leader_ms=4
).check()
"""As TIMES, but a message may take a tick."""
PINGS = TimedSetting(
    GroupSetting(consumers=1, lives=2, pings=4, registrations=2, grants=1),
    borrower=("ping", "ping_timeout"),
    leader=("expiry",),
    drift={"consumer-1": BOTH, "leader-1": BOTH},
    delay=1,
    times=SLOW_MESSAGES,
)
OFTEN = replace(TIMES, claim_heartbeat_ms=4).check()
"""As TIMES, but there is a tick between the renewal of a claim and its end, even where two pass at once."""
RENEWAL = TimedSetting(
    Election(hosts=1, renewals=3, leaders=1),
    leader=("heartbeat", "claim_end"),
    drift={"leader-1": BOTH},
    delay=0,
    times=OFTEN,
)
CLAIM = TimedSetting(
    Election(hosts=2, network=Network(2, lossy=False, duplicating=False)),
    leader=("claim_end",),
    shown=(CLAIM_END_BEFORE_AGE,),
    drift={"leader-1": LAGS, "leader-2": LEADS},
)
SUCCESSION = TimedSetting(
    Election(hosts=2, network=Network(2, lossy=False, duplicating=False), leaders=2, crashes=1),
    leader=("retry", "claim_end"),
    drift={"leader-2": LAGS, "somebody": LAGS},
    delay=0,
    asked=True,
)


def _sizes(small: TimedSetting, ci: dict[str, Any], large: dict[str, Any]) -> dict[str, TimedSetting]:
    """Three sizes: of the second and third the setting differs in this, too."""
    settings = (small.setting, replace(small.setting, **ci), replace(small.setting, **{**ci, **large}))
    return {size: replace(small, setting=setting) for size, setting in zip(SIZES, settings, strict=True)}


SYSTEMS: dict[str, tuple[str, dict[str, TimedSetting]]] = {
    "timed-hand-over": (
        "a lease ends by its borrower's clock before its stream is handed over by the leader's",
        _sizes(HAND_OVER, {"network": Network(1)}, {"pings": 2}),
    ),
    "timed-grace": (
        "every lease from before a claim ends before the leader that made it grants anything",
        _sizes(GRACE, {"network": Network(1)}, {"pings": 2}),
    ),
    "timed-claim": (
        "a claim ends by its owner's clock before another has watched it for its TTL",
        _sizes(CLAIM, {"pauses": 1}, {"host_lives": 2, "crashes": 1}),
    ),
    "timed-renewal": (
        "where stores answer at once a leader renews its claim before that ends",
        _sizes(RENEWAL, {"renewals": 6}, {"renewals": 12}),
    ),
    "timed-succession": (
        "after the end of a claim somebody holds it again within a bound, while stores answer",
        _sizes(SUCCESSION, {"crashes": 0, "pauses": 1}, {"renewals": 1}),
    ),
    "timed-pings": (
        "where messages take no longer than max_delay nobody who lives is given up",
        _sizes(PINGS, {"pings": 6}, {"consumers": 2}),
    ),
}
