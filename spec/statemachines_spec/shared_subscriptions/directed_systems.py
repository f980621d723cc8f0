"""Directed systems: small closed systems of shared subscriptions in which mistakes are looked for (`directed
system`), the smallest first."""

from __future__ import annotations

from functools import partial

import msgspec
from msgspec.structs import replace

from statemachines.kernel import ConfigurationError
from statemachines_spec.directed_system import DirectedSystem
from statemachines_spec.explorer.network import Network
from statemachines_spec.explorer.system import System
from statemachines_spec.shared_subscriptions import (
    configuration_systems,
    directed_consumer_systems,
    directed_group_systems,
    directed_leader_systems,
    election,
    failure_systems,
    last_words,
    leader_progress,
    member_systems,
    pace_systems,
    registry_systems,
    step_properties,
)
from statemachines_spec.shared_subscriptions.consumer import Consumer
from statemachines_spec.shared_subscriptions.election import Election
from statemachines_spec.shared_subscriptions.group_setting import GroupSetting
from statemachines_spec.shared_subscriptions.leader_host import LeaderHost
from statemachines_spec.shared_subscriptions.systems import build, obligations_of

STREAM = "0.0/a"
"""The stream whose progress is compared: there is one in every system."""


class SmallSystem(msgspec.Struct, frozen=True):
    """A system by its setting; with `live` its obligations are judged too."""

    name: str
    about: str
    setting: GroupSetting
    live: bool = False


SETTINGS = (
    SmallSystem(
        "late timers",
        "one consumer; a timer that was taken back fires all the same",
        GroupSetting(consumers=1, late_timers=1),
    ),
    SmallSystem(
        "resends",
        "one consumer, two streams; whatever is lost is sent again",
        GroupSetting(consumers=1, topics=2),
        live=True,
    ),
    SmallSystem(
        "ends",
        "one consumer with a session reads a stream to its end",
        GroupSetting(consumers=1, sessions=True, offsets=1, ended=True, grants=2),
    ),
    SmallSystem(
        "leaving",
        "one consumer unsubscribes while its leader gives it up",
        GroupSetting(consumers=1, unsubscribes=1, timeouts=1, lives=2),
    ),
    SmallSystem(
        "given up",
        "one consumer that is not dead is given up, and copies of what it said come late",
        GroupSetting(consumers=1, timeouts=1, network=Network(2)),
    ),
    SmallSystem(
        "reports",
        "one consumer; what it reports is lost, comes twice, and out of order",
        GroupSetting(consumers=1, offsets=1, pings=2, network=Network(2)),
    ),
    SmallSystem(
        "next leader",
        "one consumer; progress is committed, the leader crashes, and the next one goes on from there",
        GroupSetting(
            consumers=1, offsets=2, roots=2, leader_crashes=1, host_lives=2, epochs=2, claims_age=True, lives=2
        ),
    ),
    SmallSystem(
        "false timeouts",
        "two consumers; one is given up although it is not dead",
        GroupSetting(timeouts=1),
    ),
    SmallSystem(
        "shares",
        "two consumers, two streams; each is to have one",
        GroupSetting(topics=2, network=Network(1, duplicating=False)),
    ),
    SmallSystem(
        "taken back",
        "two consumers with sessions; a stream goes from one to the other",
        GroupSetting(sessions=True, offsets=1, grants=2),
    ),
    SmallSystem(
        "late copies",
        "two consumers; copies of old messages come late",
        GroupSetting(network=Network(2)),
    ),
    SmallSystem(
        "release",
        "a leader gives its claim up, and what it sends to the store arrives when the next one has it",
        GroupSetting(
            consumers=1, halts=1, leaders=2, epochs=2, claims_age=True, asks_travel=True, roots=1, network=Network(2)
        ),
    ),
    SmallSystem(
        "leases",
        "two consumers with sessions; one is given up, and its lease ends",
        GroupSetting(sessions=True, offsets=1, grants=2, timeouts=1),
    ),
    SmallSystem(
        "lies",
        "one consumer reports more than is stored, and the end of a stream that goes on",
        GroupSetting(consumers=1, lies=True, lives=2, registrations=3, roots=1),
    ),
    SmallSystem(
        "unanswered",
        "one of two consumers answers no grant",
        GroupSetting(mutes=1, grant_timeouts=1, lives=2, registrations=3),
    ),
    SmallSystem(
        "window",
        "one consumer, two streams; one grant at a time may be unanswered",
        GroupSetting(consumers=1, topics=2, grant_window=1),
    ),
    SmallSystem(
        "ends ahead",
        "one consumer with a session, which fetches one message at a time, reads a stream to its end",
        GroupSetting(consumers=1, sessions=True, offsets=2, buffer=1, ended=True, grants=2),
    ),
    SmallSystem(
        "last word",
        "one consumer that its leader has given up unsubscribes, and says how far it has read",
        GroupSetting(consumers=1, unsubscribes=1, timeouts=1, offsets=1),
    ),
    SmallSystem(
        "pretender",
        "one consumer hears by its witness; somebody else says that it leads",
        GroupSetting(consumers=1, pretends=1, lives=2),
        live=True,
    ),
    SmallSystem(
        "put back",
        "one consumer hears by its witness; the group store is put back while somebody else says that it leads",
        GroupSetting(consumers=1, pretends=1, restores=1, lives=2, epochs=2),
    ),
    SmallSystem(
        "two lies",
        "one consumer lies about two streams, and one answer of the store judges both",
        GroupSetting(consumers=1, topics=2, lies=True, look_failures=1, lives=2, registrations=2, grants=4),
    ),
)  # fmt: skip


def with_promises(small: SmallSystem) -> System:
    """The closed system, with every promise."""
    one = build(small.name, small.about, small.setting)
    names = [actor.name for actor in one.actors if isinstance(actor, Consumer)]
    hosts = [actor.name for actor in one.actors if isinstance(actor, LeaderHost)]
    return replace(
        one,
        properties=(
            *one.properties,
            *step_properties.STEPWISE,
            *step_properties.make_confirmed(names, hosts, STREAM),
            *step_properties.begins_behind_nothing(hosts, STREAM),
            last_words.clean(names, STREAM),
            last_words.STAGES,
            *leader_progress.promises(hosts),
        ),
    )


RACE = Election(hosts=2, network=Network(2, lossy=False, duplicating=False), renewals=1, pauses=1)

DIRECTED_SYSTEMS = (
    *(
        DirectedSystem(one.name, one.about, partial(with_promises, one), obligations_of if one.live else None)
        for one in SETTINGS
    ),
    DirectedSystem(
        "race",
        "two leader hosts; the claim is renewed while the other one watches it, or its leader stands still",
        partial(election.build, RACE),
    ),
    *directed_leader_systems.DIRECTED_SYSTEMS,
    *pace_systems.DIRECTED_SYSTEMS,
    *directed_group_systems.DIRECTED_SYSTEMS,
    *registry_systems.DIRECTED_SYSTEMS,
    *configuration_systems.DIRECTED_SYSTEMS,
    *member_systems.DIRECTED_SYSTEMS,
    *directed_consumer_systems.DIRECTED_SYSTEMS,
    *failure_systems.DIRECTED_SYSTEMS,
)


def find_directed(name: str) -> DirectedSystem:
    """The directed system called so; raises `ConfigurationError` with the known names."""
    for directed in DIRECTED_SYSTEMS:
        if directed.name == name:
            return directed
    raise ConfigurationError(
        "directed system", name, f"unknown; there are: {', '.join(directed.name for directed in DIRECTED_SYSTEMS)}"
    )
