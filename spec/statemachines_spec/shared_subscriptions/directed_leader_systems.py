"""Directed leader systems: small closed systems in which a leader meets what is rare: groups that are not declared,
or destroyed under it, orderly stops over a store that fails, pages, answers that come once more."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from statemachines.kernel import Map
from statemachines.shared_subscriptions.claim import Halt
from statemachines.shared_subscriptions.group_store import SERVICE as GROUP_STORE
from statemachines.shared_subscriptions.group_store import Claim, GroupStore, Properties, StoredRecord, record_key
from statemachines.shared_subscriptions.leader_record import CLAIMED, RELEASING, SERVING
from statemachines.shared_subscriptions.message import Undeclared
from statemachines.shared_subscriptions.stream_store import StreamStore
from statemachines_spec.directed_system import DirectedSystem
from statemachines_spec.explorer.actor import Actor, Envelope, Observer, Reaction, Watch
from statemachines_spec.explorer.network import Network
from statemachines_spec.explorer.property import Always, Eventually, Property, Sometimes, View
from statemachines_spec.explorer.system import System, at_most
from statemachines_spec.shared_subscriptions import claims, leader_steps, properties, step_properties
from statemachines_spec.shared_subscriptions.consumer import FILTER, GROUP, Consumer
from statemachines_spec.shared_subscriptions.leader_host import QUIET_TIMERS, LeaderHost, LeaderHostLocal
from statemachines_spec.shared_subscriptions.leader_steps import (
    Again,
    ConcurrentlyModifiedStore,
    HauntedCandidate,
    HauntedHost,
    Meddle,
    PagedStore,
    ReplayingStore,
)
from statemachines_spec.shared_subscriptions.script import GroupSetting
from statemachines_spec.shared_subscriptions.stores import (
    OPEN,
    REFUSED,
    Fail,
    FailingStore,
    Store,
    StoreLocal,
    holder,
    make_declared_store,
    streams,
)
from statemachines_spec.shared_subscriptions.succession import CandidateHost
from statemachines_spec.shared_subscriptions.systems import build, obligations_of
from statemachines_spec.shared_subscriptions.variants import configuration

STREAM: Final = "0.0/a"
OTHER: Final = "0.0/b"
PROPERTIES: Final = record_key(GROUP, FILTER, "properties")
CLAIM: Final = record_key(GROUP, FILTER, "claim")


class LeaderCase(msgspec.Struct, frozen=True):
    """A directed system by its setting; `fires`: timers that fire beside those of the setting; `changed`: what else
    differs; `renews`: whoever has the claim can renew it; `live`: its obligations are judged, too."""

    name: str
    about: str
    setting: GroupSetting
    fires: tuple[str, ...] = ()
    changed: Callable[[System], System] = lambda made: made
    renews: bool = True
    live: bool = False


def build_system(one: LeaderCase) -> System:
    """The closed system, with every promise."""
    system = one.changed(build(one.name, one.about, one.setting))
    system = replace(system, actors=tuple(_firing(actor, one.fires) for actor in system.actors))
    consumers = [actor.name for actor in system.actors if isinstance(actor, Consumer)]
    hosts = [actor.name for actor in system.actors if isinstance(actor, LeaderHost)]
    promises: tuple[Property, ...] = (
        *(each for each in step_properties.STEPWISE if one.renews or each.name != "L6 renewal"),
        *step_properties.make_confirmed(consumers, hosts, STREAM),
        *step_properties.begins_behind_nothing(hosts, STREAM),
        *leader_steps.promises(hosts),
    )
    return replace(system, properties=(*system.properties, *promises))


def _firing(actor: Actor, timers: tuple[str, ...]) -> Actor:
    if not isinstance(actor, LeaderHost) or not timers:
        return actor
    host = copy.copy(actor)
    host.silent = actor.silent - frozenset(timers)
    return host


def with_actor(system: System, other: Actor) -> System:
    """The same with `other` in place of the component of its name."""
    return replace(system, actors=tuple(other if one.name == other.name else one for one in system.actors))


def without(system: System, *names: str) -> System:
    """Nothing is said of these properties."""
    kept = tuple(one for one in system.properties if one.name.split()[0] not in names)
    return replace(system, properties=kept)


def without_samples(system: System, *more: Property) -> System:
    """Nothing of what must happen sometimes elsewhere, and these instead."""
    kept = tuple(one for one in system.properties if not isinstance(one, Sometimes))
    return replace(system, properties=(*kept, *more))


# -- groups that are not as they should be --------------------------------------------------------------------------


class ObservedTells(msgspec.Struct, frozen=True, gc=False):
    """Whether a consumer was told that the group is not declared."""

    undeclared: bool = False


class TellObserver(Observer):
    """Remembers that."""

    def initial(self) -> ObservedTells:
        return ObservedTells()

    def sees(self, actor: str, before: Any, event: Any, after: Any) -> Undeclared | None:
        return event if isinstance(event, Undeclared) else None

    def react(self, local: ObservedTells, envelope: Envelope, watch: Watch | None = None) -> Reaction | None:
        return Reaction(ObservedTells(undeclared=True))


TOLD: Final = "told"


def _leads(local: LeaderHostLocal) -> int:
    return int(local.party is not None and local.party.record.status in CLAIMED)


def _nobody_leads(hosts: tuple[str, ...]) -> Always:
    """S18: of a group that is not declared so."""
    views = tuple(View(host, 2, _leads) for host in hosts)
    return Always(
        "S18 not led", "nobody leads a group that is not declared with its times", views, lambda *on: not any(on)
    )


def _led(hosts: tuple[str, ...]) -> Sometimes:
    return Sometimes("S18 led", "somebody leads", tuple(View(host, 2, _leads) for host in hosts), lambda *on: any(on))


def _promise_told() -> Sometimes:
    view = View(TOLD, 2, lambda local: int(local.undeclared))
    return Sometimes("L12 undeclared", "who asks is told that the group is not declared", (view,), bool)


def add_late_declaration(system: System) -> System:
    """The group is declared at some time."""
    properties = make_declared_store(configuration("settled"))[PROPERTIES].value
    system = with_actor(
        system, ConcurrentlyModifiedStore(GroupStore(), state=Map(), meddles=(Meddle(PROPERTIES, properties),))
    )
    hosts = ("leader-1",)
    return without_samples(replace(system, actors=(*system.actors, TellObserver(TOLD))), _promise_told(), _led(hosts))


def other_times(system: System) -> System:
    """It lives by other times, and nobody leads it with ours."""
    ours = configuration("settled")
    theirs = make_declared_store(replace(ours, claim_ttl_ms=ours.claim_ttl_ms + 1).check())
    system = with_actor(system, Store(GroupStore(), state=theirs))
    ends = Sometimes(
        "S18 refused",
        "a leader ends",
        (View("leader-1", 2, lambda local: int(local.number > 0 and local.party is None)),),
        bool,
    )
    return without_samples(system, _nobody_leads(("leader-1",)), ends)


def add_destruction(system: System) -> System:
    """The group is marked as destroyed at some time, and its properties are gone in the end."""
    ours = configuration("settled")
    held = make_declared_store(ours)
    properties = held[PROPERTIES].value
    assert isinstance(properties, Properties)
    mark = replace(properties, destroyed=True)
    meddles = (Meddle(PROPERTIES, mark), Meddle(PROPERTIES, None))
    system = with_actor(
        system, ConcurrentlyModifiedStore(GroupStore(), at_once=False, state=held, meddles=meddles, roots=2)
    )
    system = without(replace(system, actors=(*system.actors, TellObserver(TOLD))), "L8")
    system = replace(system, actors=tuple(_halted_serving(actor) for actor in system.actors))
    return without_samples(system, _promise_told(), _led(("leader-1",)), _released())


def add_other_mark(system: System) -> System:
    """The group is being destroyed, and lived by other times: who asks is told that it is not there."""
    ours = configuration("settled")
    theirs = make_declared_store(replace(ours, claim_ttl_ms=ours.claim_ttl_ms + 1).check())
    properties = theirs[PROPERTIES].value
    assert isinstance(properties, Properties)
    marked = StoredRecord(replace(properties, destroyed=True), 0)
    system = with_actor(system, Store(GroupStore(), state=theirs.set(PROPERTIES, marked)))
    return without_samples(
        replace(system, actors=(*system.actors, TellObserver(TOLD))), _promise_told(), _nobody_leads(("leader-1",))
    )


def add_overwritten_claim(system: System) -> System:
    """Somebody else's claim is written over ours, as by who restores a store; requests may fail, too."""
    held = make_declared_store(configuration("settled"))
    meddles = (Meddle(CLAIM, Claim("leader-1~9/1", 5)),)
    store = ConcurrentlyModifiedStore(
        GroupStore(), at_once=False, state=held, meddles=meddles, hows=(REFUSED, OPEN), roots=2
    )
    system = without(with_actor(system, store), "L8", "S3", "S10")
    gives_up = Eventually(
        "L6 given up",
        "who finds the claim of somebody else ends",
        (View("leader-1", 2, _holds), View(GROUP_STORE, 2, _is_taken)),
        lambda holds, taken: bool(holds and taken),
    )
    return replace(without_samples(system, _led(("leader-1",))), obligations=(gives_up,))


def _holds(local: LeaderHostLocal) -> int:
    """It leads.  One that was halted in doubt of a batch waits for the end of its claim, which does not fire here."""
    return _leads(local)


def _is_taken(local: StoreLocal) -> int:
    found = holder(local)
    return int(found is not None and found.epoch == 5)


def add_halt(system: System) -> System:
    """Whoever has stopped in good order has given its claim up."""
    stops = Sometimes("S3 stops", "a leader has stopped", (View("leader-1", 2, _has_stopped),), bool)
    text = "who gives its claim up waits for an answer of the store, since the store does not fail"
    asks = Always("L6 releases", text, (View("leader-1", 2, _releases),), bool)
    served = replace(system, actors=tuple(_halted_serving(actor) for actor in system.actors))
    return without_samples(without(served, "L8"), _released(), asks, stops)


def _released() -> Always:
    views = (View("leader-1", 2, _has_stopped), View(GROUP_STORE, 2, _is_held))
    text = "a leader that has stopped in good order holds no claim"
    return Always("S3 released", text, views, lambda ended, held: not (ended and held))


def _has_stopped(local: LeaderHostLocal) -> int:
    return int(local.number > 0 and local.party is None)


def _passed_on() -> Sometimes:
    """L6: who asks a follower is heard by the leader."""
    view = View("leader-1", 2, _knows_second)
    return Sometimes("L6 passed on", "who asks a follower becomes a member of the leader's", (view,), bool)


def _knows_second(local: LeaderHostLocal) -> int:
    return int(local.party is not None and "consumer-2~1/1" in local.party.record.members)


def _releases(local: LeaderHostLocal) -> int:
    return int(local.party is None or local.party.record.status is not RELEASING or local.awaited > 0)


class ServingHost(LeaderHost):
    """Its leaders are halted while they serve; one that does not even lead leaves what it has tried."""

    def inputs(self, local: LeaderHostLocal) -> tuple[Any, ...]:
        serves = local.party is not None and local.party.record.status in SERVING
        return tuple(event for event in super().inputs(local) if serves or not isinstance(event, Halt))


def _halted_serving(actor: Actor) -> Actor:
    if not isinstance(actor, LeaderHost):
        return actor
    host = copy.copy(actor)
    host.__class__ = ServingHost
    return host


def _is_held(local: StoreLocal) -> int:
    return int(holder(local) is not None)


def unclean(system: System) -> System:
    """The last leader has given its claim up while somebody might hold a lease."""
    state = make_declared_store(configuration("settled")).set(CLAIM, StoredRecord(Claim("", 1), 0))
    system = with_actor(system, Store(GroupStore(), state=state))
    return without_samples(system, leader_steps.waits_in_grace(("leader-1",)))


# -- stores that are not as usual -----------------------------------------------------------------------------------


def page_progress(system: System) -> System:
    """Progress comes in pages of one."""
    store = next(one for one in system.actors if one.name == GROUP_STORE)
    assert isinstance(store, Store)
    other = PagedStore(GroupStore(), at_once=store.at_once, state=store.state, roots=store.roots, page=1)
    return with_actor(system, other)


def with_slow_streams(system: System) -> System:
    """The stream store alone answers later than it is asked."""
    store = next(one for one in system.actors if isinstance(one, FailingStore))
    other = copy.copy(store)
    other.at_once = False
    return with_actor(system, other)


def repeat_answers(system: System, most: int = 12) -> System:
    """Answers of the stores that do not answer at once come once more."""
    actors: list[Actor] = []
    for one in system.actors:
        if isinstance(one, Store) and not one.at_once:
            hows = one.hows if isinstance(one, FailingStore) else ()
            actors.append(
                ReplayingStore(one.service, hows=hows, state=one.state, roots=one.roots, wrapped=True, most=most)
            )
        elif isinstance(one, LeaderHost):
            host = copy.copy(one)
            host.__class__ = HauntedHost
            actors.append(host)
        else:
            actors.append(one)
    budgets = (*system.budgets, at_most("answer that comes once more", 1, Again))
    properties = (*system.properties, leader_steps.ECHO)
    return replace(system, actors=tuple(actors), budgets=budgets, properties=properties)


def failing_once(system: System) -> System:
    """One request of the group store fails."""
    return replace(system, budgets=(*system.budgets, at_most("request that the store fails", 1, Fail)))


def build_repeated_look(name: str, hosts: int, fires: tuple[str, ...], **more: Any) -> System:
    """Hosts without members over stores that fail once, and whose answers come once more."""
    names = tuple(f"leader-{number + 1}" for number in range(hosts))
    silent = tuple(timer for timer in QUIET_TIMERS if timer not in fires)
    ours = configuration("settled")
    stores = (
        ReplayingStore(
            GroupStore(), hows=(REFUSED, OPEN), state=make_declared_store(ours), roots=1, wrapped=True, most=6
        ),
        ReplayingStore(StreamStore(1), hows=(REFUSED,), state=streams(("a",), 1), wrapped=True, most=2),
    )
    return System(
        name,
        ABOUT[name],
        (*(HauntedCandidate(one, ours, at_once=False, silent=silent, ages=False, **more) for one in names), *stores),
        QUIET,
        (
            *claims.knows_store(names),
            *(one for one in properties.STEPWISE if one.name != "S4"),
            *leader_steps.promises(names),
            leader_steps.ECHO,
            _led(names),
        ),
        (at_most("request that a store fails", 1, Fail), at_most("answer that comes once more", 1, Again)),
        bounds={"stores": "requests and answers travel"},
    )


def build_paged_load() -> System:
    """What earlier leaders committed comes in pages of one."""
    held = make_declared_store(configuration("settled"))
    for stream in (STREAM, OTHER):
        held = held.set(record_key(GROUP, FILTER, f"progress:{stream}"), StoredRecord(1, 0))
    host = CandidateHost("leader-1", configuration("settled"), at_once=False, silent=QUIET_TIMERS, ages=False)
    stores = (
        PagedStore(GroupStore(), at_once=False, state=held, page=1),
        Store(StreamStore(1), at_once=False, state=streams(("a", "b"), 1)),
    )
    return System(
        "loaded",
        ABOUT["loaded"],
        (host, *stores),
        QUIET,
        (*_of_hosts(), *(one for each in (STREAM, OTHER) for one in _begins_behind_nothing(each))),
        bounds={"stores": "requests and answers travel"},
    )


def _begins_behind_nothing(stream: str) -> tuple[Property, ...]:
    (one,) = step_properties.begins_behind_nothing(("leader-1",), stream)
    return (replace(one, name=f"{one.name} {stream}"),)


def _of_hosts() -> tuple[Property, ...]:
    names = ("leader-1",)
    return (
        *(one for one in properties.STEPWISE if one.name != "S4"),
        *leader_steps.promises(names),
        _led(names),
    )


def build_doubted() -> System:
    """Whether a claim was taken is in doubt, and meanwhile the group is declared anew, with other times."""
    ours = configuration("settled")
    theirs = make_declared_store(replace(ours, claim_ttl_ms=ours.claim_ttl_ms + 1).check())[PROPERTIES].value
    store = ConcurrentlyModifiedStore(
        GroupStore(),
        at_once=False,
        state=make_declared_store(ours),
        hows=(REFUSED, OPEN),
        meddles=(Meddle(PROPERTIES, theirs),),
    )
    host = CandidateHost("leader-1", ours, at_once=False, silent=QUIET_TIMERS, ages=False)
    return System(
        "doubted",
        ABOUT["doubted"],
        (host, store, Store(StreamStore(1), at_once=False, state=streams(("a",), 1))),
        QUIET,
        _of_hosts(),
        (at_most("request that a store fails", 1, Fail),),
        bounds={"stores": "requests and answers travel"},
    )


ABOUT: Final = {
    "loaded": "a leader reads what earlier ones committed, a record in a page",
    "doubted": "a group is declared anew, with other times, while it is in doubt whether a claim was taken",
    "failures again": "a leader without members; a store fails, and what it said comes once more",
    "followed again": "two hosts without members; a store fails, and what it said comes once more",
}

ONE: Final = GroupSetting(consumers=1)
QUIET: Final = Network(1, lossy=False, duplicating=False)
KEPT: Final = Network(2, lossy=False, duplicating=False)

RARE: Final = (
    LeaderCase(
        "undeclared",
        "one consumer asks for a group before it is declared",
        replace(ONE, leaders=3),
        changed=add_late_declaration,
        live=True,
    ),
    LeaderCase(
        "other times",
        "one consumer asks for a group that lives by other times",
        replace(ONE, leaders=2),
        changed=other_times,
    ),
    LeaderCase(
        "marked otherwise",
        "one consumer asks for a group of other times that is being destroyed",
        replace(ONE, leaders=2),
        changed=add_other_mark,
    ),
    LeaderCase(
        "destroyed",
        "a group is destroyed while it is led",
        GroupSetting(
            consumers=1, leaders=2, lives=2, roots=2, offsets=1, halts=1, grants=1, asks_travel=True, network=QUIET,
        ),
        ("heartbeat", "commit"),
        add_destruction,
        renews=False,
    ),
    LeaderCase(
        "stops",
        "an orderly stop over a store that fails",
        GroupSetting(
            consumers=1, halts=1, leaders=2, epochs=2, lives=2, asks_travel=True, roots=1, store_failures=1,
            registrations=1, grants=1, claims_age=True, network=QUIET,
        ),
        renews=False,
    ),
    LeaderCase(
        "pages",
        "the next leader reads progress, and streams, one in a page",
        GroupSetting(consumers=1, topics=2, offsets=1, halts=1, leaders=2, epochs=2, lives=2, roots=2, page=1, grants=2,
            claims_age=True, network=KEPT, registrations=1,
        ),
        ("renew",),
        page_progress,
    ),
    LeaderCase(
        "halted",
        "an orderly stop while a batch is under way, or none; nothing fails",
        GroupSetting(consumers=1, halts=1, asks_travel=True, roots=2, offsets=1, registrations=1, grants=1,
                     network=KEPT),
        ("heartbeat",),
        add_halt,
    ),
    LeaderCase(
        "needed",
        "a leader whose idle time ends while it has a member, or none",
        GroupSetting(consumers=1, unsubscribes=1, idles=True, roots=1, registrations=1, grants=1, network=KEPT),
    ),
    LeaderCase(
        "rebalanced",
        "a stream goes from one member to another; nothing is lost",
        GroupSetting(registrations=2, grants=2, offsets=1, network=KEPT),
        ("renew",),
    ),
    LeaderCase(
        "following",
        "two hosts are asked; one follows the other, passes borrowers on, and ends when nobody asks it",
        GroupSetting(hosts=2, grants=1, idles=True, registrations=1, network=Network(1, duplicating=False)),
        changed=lambda system: replace(system, properties=(*system.properties, _passed_on())),
    ),
    LeaderCase(
        "taken over",
        "somebody else's claim is written over that of a leader, over a store that fails",
        replace(ONE, roots=2, halts=1, grants=1, asks_travel=True, network=QUIET),
        ("heartbeat", "recheck"),
        lambda system: failing_once(add_overwritten_claim(system)),
        renews=False,
        live=True,
    ),
    LeaderCase(
        "in the grace",
        "a leader waits for leases of before; its members are given up, and copies of what they said come late",
        GroupSetting(consumers=1, timeouts=1, lives=2, registrations=2, epochs=2, grants=1,
                     network=Network(2, lossy=False)),
        changed=unclean,
    ),
    LeaderCase(
        "judged late",
        "one consumer lies before its grant was answered; nobody waits for that answer any longer",
        replace(ONE, lies=True, grant_timeouts=1, look_failures=1, lives=2, registrations=2, grants=2),
    ),
    LeaderCase(
        "answers again",
        "answers of stores come once more, whatever is asked by then",
        GroupSetting(consumers=1, registrations=1, grants=1, asks_travel=True, roots=2),
        ("heartbeat",),
        repeat_answers,
    ),
    LeaderCase(
        "judged again",
        "a consumer lies; what the store says of it, or that it fails, comes once more",
        GroupSetting(
            consumers=1, lies=True, look_failures=1, registrations=1, grants=1, network=KEPT,
        ),
        changed=lambda system: repeat_answers(with_slow_streams(without(system, "L8")), 3),
    ),
)  # fmt: skip


def _obligations(system: System) -> tuple[Eventually, ...]:
    """Its own, or those of all systems."""
    return system.obligations or obligations_of(system)


AGAIN: Final[dict[str, tuple[int, tuple[str, ...]]]] = {
    "failures again": (1, ("heartbeat", "recheck")),
    "followed again": (2, ("idle",)),
}
"""Name -> hosts, timers that fire."""

DIRECTED_SYSTEMS: Final = (
    *(
        DirectedSystem(one.name, one.about, partial(build_system, one), _obligations if one.live else None)
        for one in RARE
    ),
    DirectedSystem("loaded", ABOUT["loaded"], build_paged_load),
    DirectedSystem("doubted", ABOUT["doubted"], build_doubted),
    *(
        DirectedSystem(name, ABOUT[name], partial(build_repeated_look, name, hosts, fires))
        for name, (hosts, fires) in AGAIN.items()
    ),
)
