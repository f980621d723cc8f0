"""Election: leader hosts race for the claim of one group, stand still, crash, and lose it to each other.

Of borrowers there is no more than that somebody asks each host for a leader whenever it has none: what a leader does
for them stands in the other systems.  So the hosts do the same things, and are interchangeable; the group store keeps
their names, and is renamed with them.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec.structs import replace

from statemachines.shared_subscriptions.group_store import GroupStore
from statemachines.shared_subscriptions.message import LeaderWanted
from statemachines.shared_subscriptions.stream_store import StreamStore
from statemachines_spec.explorer.actor import Crash, Pause
from statemachines_spec.explorer.network import Network
from statemachines_spec.explorer.symmetry import Symmetry
from statemachines_spec.explorer.system import Budget, System
from statemachines_spec.shared_subscriptions import leader_host, properties
from statemachines_spec.shared_subscriptions.consumer import FILTER, GROUP
from statemachines_spec.shared_subscriptions.leader_host import STORE_TIMERS, LeaderHost, LeaderHostLocal
from statemachines_spec.shared_subscriptions.orders import CLAIM_END_BEFORE_AGE
from statemachines_spec.shared_subscriptions.stores import Store, make_declared_store, streams
from statemachines_spec.shared_subscriptions.variants import configuration

NAME = "election"
ABOUT = "three hosts race for the claim, which they lose by standing still and by crashing"
WANTED = LeaderWanted("somebody~1/1", GROUP, FILTER)


class Election(msgspec.Struct, frozen=True):
    """How many of what: `hosts`, the `network` between them and the stores (which loses and doubles no request),
    `epochs` of the claim and `renewals` (all together), `host_lives` of a host and `leaders` it starts in each; faults:
    how often all together."""

    hosts: int = 3
    network: Network = Network(3, lossy=False, duplicating=False)
    epochs: int = 2
    renewals: int = 0
    host_lives: int = 1
    leaders: int = 1
    crashes: int = 0
    pauses: int = 0


SIZES: dict[str, dict[str, Any]] = {
    "small": {"network": Network(2, lossy=False, duplicating=False), "crashes": 1},
    "ci": {"crashes": 1, "host_lives": 2},
    "large": {"crashes": 1, "host_lives": 2, "pauses": 1, "renewals": 1},
}
"""Size -> what differs from the default."""


class CandidateHost(LeaderHost):
    """A leader host that somebody asks for a leader as long as it has none.  A crash ends its last life for good."""

    def inputs(self, local: LeaderHostLocal) -> tuple[Any, ...]:
        if local.party is None and local.mode is leader_host.RUNNING:
            return (WANTED,) if local.life <= self.lives else ()
        return super().inputs(local)

    def within(self, local: LeaderHostLocal) -> bool:
        return local.life == self.lives + 1 or super().within(local)


def build(setting: Election, variant: str = "settled", without: tuple[str, ...] = ()) -> System:
    """The closed system; `without` these deadline orders."""
    hosts = tuple(_host(number, setting, variant) for number in range(setting.hosts))
    names = tuple(one.name for one in hosts)
    stores = (
        Store(GroupStore(), at_once=False, state=make_declared_store(configuration(variant)), roots=setting.renewals),
        Store(StreamStore(1), at_once=False, state=streams(("a",), 1)),
    )
    return System(
        NAME,
        ABOUT,
        (*hosts, *stores),
        setting.network,
        (
            properties.one_leader(names),
            *properties.sometimes_elected(names),
            *(one for one in properties.STEPWISE if one.name != "S4"),
        ),
        (
            Budget("crash of a leader host", setting.crashes, lambda actor, event: isinstance(event, Crash)),
            Budget("pause of a leader host", setting.pauses, lambda actor, event: isinstance(event, Pause)),
        ),
        tuple(order for order in (CLAIM_END_BEFORE_AGE,) if order.name not in without),
        _bounds(setting, variant),
        symmetries=(Symmetry(names),),
    )


def system(size: str, variant: str, without: tuple[str, ...]) -> System:
    """The system in one of its sizes."""
    return build(replace(Election(), **SIZES[size]), variant, without)


def _host(number: int, setting: Election, variant: str) -> CandidateHost:
    faults = (*((Crash,) if setting.crashes else ()), *((Pause,) if setting.pauses else ()))
    fires = {"claim_end", *(("heartbeat",) if setting.renewals else ())}
    return CandidateHost(
        f"leader-{number + 1}",
        configuration(variant),
        at_once=False,
        lives=setting.host_lives,
        leaders=setting.leaders,
        epochs=setting.epochs,
        faults=faults,
        silent=tuple(timer for timer in STORE_TIMERS if timer not in fires),
        ages=True,
    )


def _bounds(setting: Election, variant: str) -> dict[str, str]:
    return {
        "variant": variant,
        "borrowers": "none; somebody asks each host for a leader while it has none",
        "leaders": f"{setting.epochs} epochs; {setting.leaders} in each of {setting.host_lives} lives of a host",
        "stores": "requests and answers travel",
        "commits": f"{setting.renewals} renewals of the claim",
    }
