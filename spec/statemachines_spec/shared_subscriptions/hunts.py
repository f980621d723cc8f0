"""Hunts: small closed systems in which mistakes are looked for, the smallest first.

Each has the few faults that some kind of mistake needs, and no more, so that all of them together are explored in
seconds.  The shipped machines hold in every one; a table or an action that is wrong breaks something in at least one.
"""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from statemachines.kernel import ConfigurationError
from statemachines_spec.explorer.explore import explore
from statemachines_spec.explorer.network import Network
from statemachines_spec.explorer.path import Path
from statemachines_spec.explorer.system import System
from statemachines_spec.liveness.judge import live
from statemachines_spec.shared_subscriptions import step_properties
from statemachines_spec.shared_subscriptions.consumer import Consumer
from statemachines_spec.shared_subscriptions.leader_host import LeaderHost
from statemachines_spec.shared_subscriptions.systems import Setting, build, obligations_of

STREAM = "0.0/a"
"""The stream whose progress is compared: there is one in every system."""


class Hunt(msgspec.Struct, frozen=True):
    """A system by its setting; with `live` its obligations are judged too."""

    name: str
    about: str
    setting: Setting
    live: bool = False


class Catch(msgspec.Struct, frozen=True):
    """What a hunt came to: the property that broke ("" = none), the steps of a shortest run to it (of an obligation:
    until it is never met), and the states explored."""

    what: str
    steps: int
    states: int
    path: Path | None = None


HUNTS = (
    Hunt(
        "late timers",
        "one consumer; a timer that was taken back fires all the same",
        Setting(consumers=1, late_timers=1),
    ),
    Hunt(
        "resends",
        "one consumer, two streams; whatever is lost is sent again",
        Setting(consumers=1, topics=2),
        live=True,
    ),
    Hunt(
        "ends",
        "one consumer with a session reads a stream to its end",
        Setting(consumers=1, sessions=True, offsets=1, ended=True, grants=2),
    ),
    Hunt(
        "leaving",
        "one consumer unsubscribes while its leader gives it up",
        Setting(consumers=1, unsubscribes=1, timeouts=1, lives=2),
    ),
    Hunt(
        "given up",
        "one consumer that is not dead is given up, and copies of what it said come late",
        Setting(consumers=1, timeouts=1, network=Network(2)),
    ),
    Hunt(
        "reports",
        "one consumer; what it reports is lost, comes twice, and out of order",
        Setting(consumers=1, offsets=1, pings=2, network=Network(2)),
    ),
    Hunt(
        "next leader",
        "one consumer; progress is committed, the leader crashes, and the next one goes on from there",
        Setting(
            consumers=1, offsets=2, roots=2, leader_crashes=1, host_lives=2, epochs=2, claims_age=True, lives=2
        ),
    ),
    Hunt(
        "false timeouts",
        "two consumers; one is given up although it is not dead",
        Setting(timeouts=1),
    ),
    Hunt(
        "shares",
        "two consumers, two streams; each is to have one",
        Setting(topics=2, network=Network(1, duplicating=False)),
    ),
    Hunt(
        "taken back",
        "two consumers with sessions; a stream goes from one to the other",
        Setting(sessions=True, offsets=1, grants=2),
    ),
    Hunt(
        "late copies",
        "two consumers; copies of old messages come late",
        Setting(network=Network(2)),
    ),
    Hunt(
        "release",
        "a leader gives its claim up, and what it sends to the store arrives when the next one has it",
        Setting(
            consumers=1, halts=1, leaders=2, epochs=2, claims_age=True, asks_travel=True, roots=1, network=Network(2)
        ),
    ),
    Hunt(
        "leases",
        "two consumers with sessions; one is given up, and its lease ends",
        Setting(sessions=True, offsets=1, grants=2, timeouts=1),
    ),
)  # fmt: skip


def hunt_named(name: str) -> Hunt:
    """The hunt called so; raises `ConfigurationError` with the known names."""
    for hunt in HUNTS:
        if hunt.name == name:
            return hunt
    raise ConfigurationError("hunt", name, f"unknown; there are: {', '.join(hunt.name for hunt in HUNTS)}")


def system_of(hunt: Hunt) -> System:
    """The closed system, with every promise."""
    one = build(hunt.name, hunt.about, hunt.setting)
    names = [actor.name for actor in one.actors if isinstance(actor, Consumer)]
    hosts = [actor.name for actor in one.actors if isinstance(actor, LeaderHost)]
    return replace(
        one,
        properties=(
            *one.properties,
            *step_properties.STEPWISE,
            *step_properties.confirmed(names, hosts, STREAM),
            *step_properties.begins_behind_nothing(hosts, STREAM),
        ),
    )


def look(hunt: Hunt) -> Catch:
    """Explore the system in plain Python; its obligations only where everything else holds."""
    one = system_of(hunt)
    result = explore(one, engine="plain", hashing=False)
    if result.path is not None:
        return Catch(_short(result.path.broken), len(result.path.legs), result.states, result.path)
    if hunt.live:
        for judged in live(one, obligations_of(one)):
            if judged.way is not None and judged.then is not None:
                steps = len(judged.way.legs) + len(judged.then.legs)
                return Catch(_short(judged.name), steps, result.states, judged.way)
    return Catch("", 0, result.states)


def _short(name: str) -> str:
    """A property without the components it speaks of: `S10 consumer-1 leader-1` is S10."""
    return name.partition(" ")[0]
