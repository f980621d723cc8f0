"""Directed systems: small closed systems of shared subscriptions in which mistakes are looked for (`directed
system`), the smallest first.

Directed consumer systems: small closed systems of a consumer's machines: a session by the clock, whose turns pass
to and fro, a borrower that pings more than once, a private subscription without a filter.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from statemachines.kernel import ConfigurationError
from statemachines.shared_subscriptions.stream_store import ListStreams
from statemachines_spec.contract import MACHINE
from statemachines_spec.directed_system import DirectedSystem
from statemachines_spec.explorer.network import Network
from statemachines_spec.explorer.property import Stepwise
from statemachines_spec.explorer.system import System
from statemachines_spec.shared_subscriptions import (
    borrower_contract,
    configuration_systems,
    directed_group_systems,
    directed_leader_systems,
    failure_systems,
    leader_steps,
    member_systems,
    pace_systems,
    private_systems,
    properties,
    session_contract,
    step_properties,
    stray_messages,
    succession,
)
from statemachines_spec.shared_subscriptions.borrower_contract import LeaderAlphabet
from statemachines_spec.shared_subscriptions.consumer import Consumer
from statemachines_spec.shared_subscriptions.leader_host import LeaderHost
from statemachines_spec.shared_subscriptions.script import GroupSetting
from statemachines_spec.shared_subscriptions.session_contract import SessionCast
from statemachines_spec.shared_subscriptions.succession import Election
from statemachines_spec.shared_subscriptions.systems import build, obligations_of

CASTS: Final = {
    "timed turns": SessionCast(
        owners=("x", "y"),
        grants=((1,), (2,)),
        messages=0,
        buffer=1,
        finish=False,
        fail=False,
        idle=("dismisses", "finishes", "counts", "hands over", "gives up"),
        sooner=True,
    ),
    "timed leaving": SessionCast(
        streams=("a", "b"), messages=1, buffer=1, fetches=2, come=(), fail=False, idle=("dismisses", "gives up"),
        sooner=True, kept=("b",),
    ),
    "timed replacing": SessionCast(
        grants=((1, 2),), messages=1, buffer=1, fetches=3, come=(), finish=False, idle=("dismisses", "finishes"),
        sooner=True,
    ),
    "timed hand-over": SessionCast(
        messages=2, buffer=1, at_delivery=True, fetches=3, come=(), finish=False, fail=False,
        idle=("dismisses", "finishes", "counts", "gives up"),
    ),
}  # fmt: skip
ABOUT: Final = {
    "timed turns": "a session of two owners, one of whom comes and goes, by the clock",
    "timed leaving": "a session of two streams, one of which is to be finished, by the clock",
    "timed replacing": "a session whose grants follow each other, and are acknowledged late, by the clock",
    "timed hand-over": "a session whose messages are acknowledged when they are handed over, by the clock",
    "reports again": "a borrower that reports in more than one ping, and is told the same again",
    "known alone": "a private subscription without a filter, which has nothing to ask",
}


def session(name: str) -> System:
    """A session, and everybody else."""
    made = session_contract.build_system(name, ABOUT[name], CASTS[name], timed=True)
    return replace(made, properties=(*made.properties, *stray_messages.of_session(MACHINE)))


def reports() -> System:
    """One stream under one grant."""
    alphabet = LeaderAlphabet(((2, 1),), ("0.0/a",), progress=(0, 1), pings=3, idle=("follows", "leaves once"))
    return borrower_contract.build_system("reports again", ABOUT["reports again"], alphabet)


def build_reader() -> System:
    """It reads what its application knows."""
    made = private_systems.system("alone-known", "small", "settled", ())
    asks = Stepwise("S12 asks", "who has no filter asks for no streams", _asks_nothing)
    made = replace(made, name="known alone", about=ABOUT["known alone"], origin=None)
    return replace(made, properties=(*made.properties, asks))


def _asks_nothing(actor: str, before: Any, event: Any, after: Any) -> bool:
    return not isinstance(event, ListStreams)


BUILDS: Final[dict[str, Callable[[], System]]] = {
    **{name: partial(session, name) for name in CASTS},
    "reports again": reports,
    "known alone": build_reader,
}
CONSUMER_DIRECTED_SYSTEMS: Final = tuple(DirectedSystem(name, ABOUT[name], build) for name, build in BUILDS.items())


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
            properties.clean(names, STREAM),
            properties.STAGES,
            *leader_steps.promises(hosts),
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
        partial(succession.build, RACE),
    ),
    *directed_leader_systems.DIRECTED_SYSTEMS,
    *pace_systems.DIRECTED_SYSTEMS,
    *directed_group_systems.DIRECTED_SYSTEMS,
    *failure_systems.REGISTRY_DIRECTED_SYSTEMS,
    *configuration_systems.DIRECTED_SYSTEMS,
    *member_systems.DIRECTED_SYSTEMS,
    *CONSUMER_DIRECTED_SYSTEMS,
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
