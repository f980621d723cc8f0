"""Registry systems: what the registry is told by a leader, and progress that is believed only when the store was asked.

The registry remembers the last word about a stream or an end; what it says must be so.
"""

from __future__ import annotations

import copy
from functools import partial
from typing import Any, Final

from msgspec.structs import replace

from statemachines.kernel import Effect, Event, Tell, node_of
from statemachines.shared_subscriptions.group_store import SERVICE as GROUP_STORE
from statemachines.shared_subscriptions.group_store import GroupStore, StoredRecord, record_key
from statemachines.shared_subscriptions.leader import Resigned
from statemachines.shared_subscriptions.progress_cover import ProgressRefused, StreamBehind
from statemachines.shared_subscriptions.stream_store import SERVICE as STREAM_STORE
from statemachines.shared_subscriptions.stream_store import Append, StreamStore
from statemachines_spec.directed_system import DirectedSystem
from statemachines_spec.explorer.actor import Actor, Envelope, Reaction, Watch
from statemachines_spec.explorer.network import Network
from statemachines_spec.explorer.property import Always, Property, Sometimes, View
from statemachines_spec.explorer.system import System
from statemachines_spec.shared_subscriptions import leader_belief, leader_progress, step_properties
from statemachines_spec.shared_subscriptions.consumer import FILTER, GROUP
from statemachines_spec.shared_subscriptions.group_setting import GroupSetting
from statemachines_spec.shared_subscriptions.leader_host import LeaderHost
from statemachines_spec.shared_subscriptions.stores import Store, make_declared_store, streams
from statemachines_spec.shared_subscriptions.systems import build
from statemachines_spec.shared_subscriptions.variants import configuration

STREAM: Final = "0.0/a"
HOST: Final = "leader-1"
REGISTRY: Final = "registry"
KEPT: Final = Network(2, lossy=False, duplicating=False)


class ToldRegistry(Actor):
    """What it was told last (None: nothing)."""

    def initial(self) -> Event | None:
        return None

    def inputs(self, local: Event | None) -> tuple[Any, ...]:
        return ()

    def react(self, local: Event | None, envelope: Envelope, watch: Watch | None = None) -> Reaction | None:
        told: Event = envelope.event
        return Reaction(told)


class TellingHost(LeaderHost):
    """Its leader tells the registry."""

    def _perform(self, name: str, effect: Effect, sends: list[Envelope], calls: list[Envelope]) -> None:
        if isinstance(effect, Tell):
            calls.append(Envelope(name, REGISTRY, effect.event))
        else:
            super()._perform(name, effect, sends, calls)


def _is_so(told: Event | None, count: int) -> bool:
    """Of a stream with `count` messages, which goes on: whoever says more has said so of a grant that it had."""
    match told:
        case ProgressRefused():
            return (
                node_of(told.leader) == HOST
                and node_of(told.borrower) == "consumer-1"
                and told.stream == STREAM
                and told.grant in (1, 2)
                and told.progress > told.count
                and told.count == count
            )
        case StreamBehind():
            return node_of(told.leader) == HOST and told.stream == STREAM and told.progress == 5 and told.count == count
        case Resigned():
            return node_of(told.leader) == HOST and (told.group, told.filter) == (GROUP, FILTER)
    return True


def telling(system: System, kinds: tuple[type[Event], ...], count: int) -> System:
    """The same with the registry."""
    actors = tuple(_telling(actor) for actor in system.actors)
    right = View(REGISTRY, 2, lambda told: int(_is_so(told, count)))
    said: tuple[Property, ...] = tuple(
        Sometimes(f"S16 told {kind.__name__}", "the registry is told", (View(REGISTRY, 2, _is(kind)),), bool)
        for kind in kinds
    )
    so = Always("S16 told", "what the registry is told of a stream, or of an end, is so", (right,), bool)
    return replace(system, actors=(*actors, ToldRegistry(REGISTRY)), properties=(*system.properties, so, *said))


def _is(kind: type[Event]) -> Any:
    return lambda told: int(isinstance(told, kind))


def _telling(actor: Actor) -> Actor:
    if not isinstance(actor, LeaderHost):
        return actor
    host = copy.copy(actor)
    host.__class__ = TellingHost
    return host


def build_refused() -> System:
    """A consumer lies, and its leader stops at some time."""
    setting = GroupSetting(
        consumers=1, lies=True, lives=2, registrations=2, grants=2, halts=1, network=KEPT, claims_age=True
    )
    return telling(_build_system("told of lies", setting), (ProgressRefused, Resigned), 1)


def behind() -> System:
    """An earlier leader has committed more than the store has."""
    made = _build_system("told of loss", GroupSetting(consumers=1, registrations=1, grants=1, network=KEPT))
    state = make_declared_store(configuration("settled")).set(
        record_key(GROUP, FILTER, f"progress:{STREAM}"), StoredRecord(5, 0)
    )
    actors = tuple(Store(GroupStore(), state=state) if one.name == GROUP_STORE else one for one in made.actors)
    granted = View(HOST, 2, lambda local: int(local.party is not None and STREAM in local.party.record.assignments))
    nobody = Always(
        "S16 behind",
        "a stream of which more was committed than it has is granted to nobody",
        (granted,),
        lambda on: not on,
    )
    kept = tuple(one for one in made.properties if not isinstance(one, Sometimes) and one.name.split()[0] != "L4")
    return telling(replace(made, actors=actors, properties=(*kept, nobody)), (StreamBehind,), 1)


def build_grown() -> System:
    """A stream grows after it was listed; who reads it further says so, and may leave before it is believed."""
    setting = GroupSetting(consumers=1, offsets=2, unsubscribes=1, registrations=1, grants=1, network=KEPT, roots=1)
    made = _build_system("grown", setting)
    store = Store(StreamStore(1), at_once=False, state=streams(("a",), 1), script=(Append(0, "a", 1),))
    actors = tuple(store if one.name == STREAM_STORE else one for one in made.actors)
    known = View(HOST, 2, _knows_two)
    left = View(HOST, 2, _knows_two_of_nobody)
    kept = Sometimes("S16 left", "a last word is believed that came before what it speaks of was known", (left,), bool)
    learns = Sometimes("S16 grown", "a leader goes by what came after its listing", (known,), bool)
    return replace(
        made, actors=actors, properties=(*made.properties, *leader_belief.believes((HOST,), (STREAM,)), learns, kept)
    )


def _knows_two(local: Any) -> int:
    record = None if local.party is None else local.party.record
    if record is None or STREAM not in record.streams:
        return 0
    assignment = record.assignments.get(STREAM)
    return int(max(record.streams[STREAM].progress, 0 if assignment is None else assignment.progress) == 2)


def _knows_two_of_nobody(local: Any) -> int:
    return int(_knows_two(local) and not local.party.record.assignments)


def _build_system(name: str, setting: GroupSetting) -> System:
    made = build(name, ABOUT[name], setting)
    kept = tuple(one for one in made.properties if one.name.split()[0] != "L8")
    promises = (*step_properties.STEPWISE, *leader_progress.promises((HOST,)))
    return replace(made, properties=(*kept, *promises))


ABOUT: Final = {
    "told of lies": "a consumer lies, and its leader stops: what the registry is told",
    "told of loss": "the store has less than an earlier leader has committed: what the registry is told",
    "grown": "a stream grows after it was listed, and who has read it further may leave before that is believed",
}
BUILDS: Final = {"told of lies": build_refused, "told of loss": behind, "grown": build_grown}
DIRECTED_SYSTEMS: Final = tuple(
    DirectedSystem(name, ABOUT[name], partial(build_one)) for name, build_one in BUILDS.items()
)
