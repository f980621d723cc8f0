"""Failure systems: a small closed system in which messages fail: they are given back, or their consumer dies of them.

Deliveries are bounded, and a message that failed too often has a dead letter.  The books of the applications are those
of other systems; a message that has a dead letter counts as dealt with, and is handed over no more.

Registry systems: what the registry is told by a leader, and progress that is believed only when the store was asked.

The registry remembers the last word about a stream or an end; what it says must be so.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

from msgspec.structs import replace

from statemachines.kernel import Effect, Event, Map, Tell, in_order, node_of
from statemachines.shared_subscriptions.group_store import SERVICE as GROUP_STORE
from statemachines.shared_subscriptions.group_store import (
    FailingMessage,
    GroupStore,
    Properties,
    StoredRecord,
    record_key,
)
from statemachines.shared_subscriptions.leader import Resigned
from statemachines.shared_subscriptions.progress_cover import ProgressRefused, StreamBehind
from statemachines.shared_subscriptions.properties.delivered_messages import DeliveredMessages
from statemachines.shared_subscriptions.properties.failing_history import check_no_letter
from statemachines.shared_subscriptions.returned_messages import is_in_hand
from statemachines.shared_subscriptions.session import Nack
from statemachines.shared_subscriptions.session_record import Deliver, SessionRecord
from statemachines.shared_subscriptions.stream_store import SERVICE as STREAM_STORE
from statemachines.shared_subscriptions.stream_store import Append, StreamStore
from statemachines_spec.directed_system import DirectedSystem
from statemachines_spec.explorer.actor import Actor, Envelope, Reaction, Watch
from statemachines_spec.explorer.network import Network
from statemachines_spec.explorer.property import Always, Property, Sometimes, Stepwise, View
from statemachines_spec.explorer.system import System, at_most
from statemachines_spec.shared_subscriptions import leader_belief, leader_steps, step_properties
from statemachines_spec.shared_subscriptions.account import AccountLocal, DeliveryAccount, bits
from statemachines_spec.shared_subscriptions.consumer import FILTER, GROUP
from statemachines_spec.shared_subscriptions.leader_host import LeaderHost
from statemachines_spec.shared_subscriptions.script import GroupSetting
from statemachines_spec.shared_subscriptions.session_consumer import ACCOUNT, SessionConsumer
from statemachines_spec.shared_subscriptions.stores import Store, StoreLocal, make_declared_store, streams
from statemachines_spec.shared_subscriptions.systems import build
from statemachines_spec.shared_subscriptions.variants import configuration

TOPIC: Final = "$dead"
LETTERS: Final = f"0.0/{TOPIC}"
LETTERS_MAX: Final = 7
"""More than any of these systems stores."""


class Lettered(Event, frozen=True, gc=False):
    """To the account: these messages of a stream have dead letters."""

    stream: str
    mask: int


class LetterLocal(AccountLocal, frozen=True, gc=False):
    """`lettered`: by stream, what has a dead letter, as bits."""

    lettered: tuple[int, ...] = ()


class LetterAccount(DeliveryAccount):
    """The books, with dead letters."""

    def initial(self) -> LetterLocal:
        nothing = (0,) * len(self.streams)
        return LetterLocal(nothing, (DeliveredMessages(),) * len(self.streams), nothing, (), nothing)

    def sees(self, actor: str, before: Any, event: Any, after: Any) -> Event | None:
        if isinstance(before, StoreLocal) and actor == STREAM_STORE:
            old, new = before.state.letters, after.state.letters
            for key, behind in in_order(new):
                if behind > old.get(key, 0):
                    stream = next(one for one in self.streams if key.endswith(one))
                    return Lettered(stream, bits(behind - 1, behind - 1))
            return None
        return super().sees(actor, before, event, after)

    def react(self, local: AccountLocal, envelope: Envelope, watch: Watch | None = None) -> Reaction | None:
        event = envelope.event
        if isinstance(event, Lettered):
            assert isinstance(local, LetterLocal)
            acked = self._with(local.acked, event.stream, event.mask)
            return Reaction(replace(local, acked=acked, lettered=self._with(local.lettered, event.stream, event.mask)))
        if isinstance(event, Nack):
            once = tuple(
                DeliveredMessages() if name == event.stream else known
                for name, known in zip(self.streams, local.once, strict=True)
            )
            places = tuple(one for one in local.places if one.stream != event.stream)
            return Reaction(replace(local, once=once, places=places))
        return super().react(local, envelope, watch)


class FailingConsumer(SessionConsumer):
    """Its application gives a message back, now and then."""

    def _taking(self, record: SessionRecord) -> Iterator[Event]:
        yield from super()._taking(record)
        for _, reading in in_order(record.readings):
            if reading.delivered > reading.progress:
                nack = Nack(reading.owner, reading.stream, reading.grant, reading.delivered - 1)
                if is_in_hand(record, nack):
                    yield nack

    def _take(self, turn: Any, local: Any, envelope: Envelope) -> None:
        if isinstance(envelope.event, Nack):
            turn.feed(local.session.record.id, envelope.event)
        else:
            super()._take(turn, local, envelope)

    def _done(self, turn: Any, before: Any, event: Any = None) -> Reaction:
        reaction = super()._done(turn, before, event)
        if not isinstance(event, Nack):
            return reaction
        return replace(reaction, calls=(Envelope(self.name, ACCOUNT, event), *reaction.calls))


def count_letters(local: StoreLocal) -> int:
    """Dead letters in the store."""
    stored = local.state.by_id.get(LETTERS)
    return 0 if stored is None else min(stored.count, LETTERS_MAX)


def is_handed_over_no_more(streams: tuple[str, ...]) -> Callable[[str, Any, Any, Any], bool]:
    """S21, of every message that is handed over."""

    def holds(actor: str, before: Any, event: Any, after: Any) -> bool:
        if not isinstance(before, LetterLocal) or not isinstance(event, Deliver):
            return True
        masks = zip(streams, before.lettered, strict=True)
        stored = {(stream, at) for stream, mask in masks for at in range(mask.bit_length()) if mask >> at & 1}
        return not check_no_letter(event, stored)

    return holds


def judge_letters(streams: tuple[str, ...], offsets: int) -> tuple[Any, ...]:
    """S21, and against an empty model."""
    stored = View(STREAM_STORE, LETTERS_MAX + 1, count_letters)
    known = View(ACCOUNT, offsets + 1, lambda local: sum(mask.bit_count() for mask in local.lettered))
    return (
        Always("S21 once", "a message has at most one dead letter", (stored, known), lambda count, have: count == have),
        Stepwise("S21", "a message with a dead letter is handed over no more", is_handed_over_no_more(streams)),
        Sometimes("dead letter", "some message has a dead letter", (stored,), bool),
    )


FAILING: Final = GroupSetting(
    consumers=1,
    sessions=True,
    offsets=1,
    roots=5,
    grants=3,
    lives=2,
    registrations=2,
    leader_crashes=1,
    host_lives=2,
    epochs=2,
    claims_age=True,
    leases_hold=True,
    network=Network(2, lossy=False, duplicating=False),
)


def build_failing(name: str, about: str, setting: GroupSetting) -> System:
    """The closed system: one delivery is all that a message has."""
    made = build(name, about, setting)
    actors = tuple(make_failing(actor) for actor in made.actors)
    kept = tuple(one for one in made.properties if one.name.split()[0] not in ("all", "durable", "L4"))
    budgets = (*made.budgets, at_most("message that is given back", 1, Nack))
    (account,) = (actor for actor in actors if isinstance(actor, LetterAccount))
    judged = judge_letters(account.streams, setting.offsets)
    return replace(made, actors=actors, properties=(*kept, *judged), budgets=budgets)


def make_failing(actor: Actor) -> Actor:
    """The same component, where messages may fail."""
    if isinstance(actor, DeliveryAccount):
        return LetterAccount(actor.streams, actor.published)
    if not isinstance(actor, LeaderHost | SessionConsumer):
        return actor
    one = copy.copy(actor)
    one.configuration = replace(
        actor.configuration, count_deliveries=True, max_deliver=1, dead_letter_topic=TOPIC
    ).check()
    if isinstance(one, LeaderHost):
        one.silent = actor.silent - {"commit", "renew"}
    else:
        one.__class__ = FailingConsumer
    return one


def build_relaxed(name: str, about: str, setting: GroupSetting) -> System:
    """The closed system, in relaxed order and without a bound: everything is acknowledged in the end."""
    made = build(name, about, setting)
    actors = tuple(make_relaxed(actor) for actor in made.actors)
    kept = tuple(one for one in made.properties if "S14" not in one.name and "session of" not in one.name)
    budgets = (*made.budgets, at_most("message that is given back", 1, Nack))
    holes = View(GROUP_STORE, 2, has_holes)
    known = Sometimes("hole", "some message behind a hole is durable", (holes,), bool)
    return replace(made, actors=actors, properties=(*kept, known), budgets=budgets)


def make_relaxed(actor: Actor) -> Actor:
    """The same component, where a message may be given back and its group lets its stream go on."""
    if isinstance(actor, DeliveryAccount):
        return LetterAccount(actor.streams, actor.published)
    one = copy.copy(actor)
    if isinstance(one, Store) and actor.name == GROUP_STORE:
        one.state = Map({key: relax(stored) for key, stored in in_order(one.state)})
    elif isinstance(one, LeaderHost):
        one.silent = one.silent - {"commit", "renew"}
    elif isinstance(one, SessionConsumer):
        one.__class__ = FailingConsumer
    return one


def relax(stored: StoredRecord) -> StoredRecord:
    """The properties of the group, in relaxed order."""
    assert isinstance(stored.value, Properties)
    return replace(stored, value=replace(stored.value, order="relaxed"))


def has_holes(local: StoreLocal) -> bool:
    """Something behind a progress is acknowledged."""
    values = (stored.value for _, stored in in_order(local.state))
    return any(isinstance(value, FailingMessage) and value.acked for value in values)


DYING: Final = replace(
    FAILING, leader_crashes=0, host_lives=1, epochs=1, claims_age=False, crashes=1, timeouts=1, lives=3, registrations=3
)

SYSTEMS: Final = {
    "dead letters": ("one consumer gives a message back; its leader crashes while the dead letter is stored", FAILING),
    "dying consumer": ("one consumer dies of a message, or is given up, and then gives it back", DYING),
}

RELAXED: Final = {
    "relaxed order": (
        "a message is given back while its stream goes on",
        replace(FAILING, offsets=2, leader_crashes=0, host_lives=1, epochs=1, claims_age=False, grants=1, roots=3),
    ),
    "relaxed death": (
        "the same, and its consumer dies",
        replace(DYING, offsets=2, timeouts=0, grants=2, roots=3, lives=2, registrations=2),
    ),
    "relaxed crash": ("the same, and its leader crashes", replace(FAILING, offsets=2, roots=4, grants=2)),
}

DIRECTED_SYSTEMS: Final = (
    *(
        DirectedSystem(name, about, partial(build_failing, name, about, setting))
        for name, (about, setting) in SYSTEMS.items()
    ),
    *(
        DirectedSystem(name, about, partial(build_relaxed, name, about, setting))
        for name, (about, setting) in RELAXED.items()
        if name != "relaxed crash"
    ),
)


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
    promises = (*step_properties.STEPWISE, *leader_steps.promises((HOST,)))
    return replace(made, properties=(*kept, *promises))


ABOUT: Final = {
    "told of lies": "a consumer lies, and its leader stops: what the registry is told",
    "told of loss": "the store has less than an earlier leader has committed: what the registry is told",
    "grown": "a stream grows after it was listed, and who has read it further may leave before that is believed",
}
BUILDS: Final = {"told of lies": build_refused, "told of loss": behind, "grown": build_grown}
REGISTRY_DIRECTED_SYSTEMS: Final = tuple(
    DirectedSystem(name, ABOUT[name], partial(build_one)) for name, build_one in BUILDS.items()
)
