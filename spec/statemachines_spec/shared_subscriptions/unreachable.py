"""Systems in which one way between two roles stops working at some instant and never works again.

Two leader hosts serve one consumer.  The way is cut at the first host alone, so a serving path is left: through the
second host.  Leader hosts do not relay here (SS-274): a relay is a part of the host, outside of the tables, and the
scenario `unreachable_leaders` covers it.  In one system two consumers share one host, and the first of them loses the
stream store.

What works is in time: a deadline that waits for somebody who is there and reached does not pass (`WORKS_IN_TIME`).
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
from msgspec.structs import replace

from statemachines.kernel import ConfigurationError, Event, Request, in_order, node_of
from statemachines.shared_subscriptions.assignment import RevokeTimeout
from statemachines.shared_subscriptions.borrower import UNSUBSCRIBING, GiveBack, PingTimeout
from statemachines.shared_subscriptions.claim import ClaimEnd, HeartbeatTimer
from statemachines.shared_subscriptions.configuration import Configuration
from statemachines.shared_subscriptions.group_store import SERVICE as GROUP_STORE
from statemachines.shared_subscriptions.group_store import GroupStore
from statemachines.shared_subscriptions.leader import IdleTimer
from statemachines.shared_subscriptions.leader_record import SERVING
from statemachines.shared_subscriptions.member import ExpiryTimer
from statemachines.shared_subscriptions.stream import ABSENT, StreamProgress
from statemachines.shared_subscriptions.stream_store import SERVICE as STREAM_STORE
from statemachines.shared_subscriptions.stream_store import StreamStore
from statemachines_spec.explorer.actor import Envelope, Reaction, Watch
from statemachines_spec.explorer.network import Network
from statemachines_spec.explorer.order import Order
from statemachines_spec.explorer.property import Always, Eventually, Property, Sometimes, View
from statemachines_spec.explorer.system import System, at_most
from statemachines_spec.shared_subscriptions import properties, quiescent_properties
from statemachines_spec.shared_subscriptions.consumer import ENDED, Consumer, ConsumerLocal
from statemachines_spec.shared_subscriptions.leader_host import QUIET_TIMERS, LeaderHost, LeaderHostLocal
from statemachines_spec.shared_subscriptions.orders import ORDERS, is_kept
from statemachines_spec.shared_subscriptions.stores import (
    Store,
    StoreLocal,
    make_declared_store,
    make_failed_answer,
    streams,
)
from statemachines_spec.shared_subscriptions.variants import borrower, configuration

FIRST, SECOND = HOSTS = ("leader-1", "leader-2")
CONSUMER: Final = "consumer-1"
OTHER: Final = "consumer-2"
STREAM: Final = "0.0/a"


REQUESTS, ANSWERS = BOTH = ("requests", "answers")
"""Which way does not work: to the one that answers, or back."""
READS: Final = "reads of the stream store"
"""Or the way between a consumer and the stream store."""


class Cut(Event, frozen=True, gc=False):
    """From now on nothing arrives that is sent on this `way`."""

    way: str


class CutConsumerLocal(ConsumerLocal, frozen=True, gc=False):
    """`cut`: which way does not work ("": all do)."""

    cut: str = ""


class CutConsumer(Consumer):
    """A consumer that may lose these `ways` between it and the first host, at any instant, one of them in a run.

    Pings have no bound: they are numbered anew whenever none is outstanding, since nothing is doubled here.
    """

    def __init__(
        self, *arguments: Any, ways: tuple[str, ...], registries: tuple[str, ...] = HOSTS, **options: Any
    ) -> None:
        super().__init__(*arguments, registries=registries, **options)
        self.ways = ways

    def initial(self) -> CutConsumerLocal:
        local = super().initial()
        return CutConsumerLocal(local.mode, local.number, local.parts)

    def inputs(self, local: ConsumerLocal) -> tuple[Any, ...]:
        assert isinstance(local, CutConsumerLocal)
        return (*super().inputs(local), *(() if local.cut else map(Cut, self.ways)))

    def react(self, local: ConsumerLocal, envelope: Envelope, watch: Watch | None = None) -> Reaction | None:
        assert isinstance(local, CutConsumerLocal)
        if isinstance(envelope.event, Cut):
            return Reaction(replace(local, cut=envelope.event.way))
        if local.cut == ANSWERS and envelope.sender and node_of(envelope.sender) == FIRST:
            return Reaction(local)
        reaction = super().react(local, envelope, watch)
        if reaction is None:
            return None
        sends = tuple(one for one in reaction.sends if local.cut != REQUESTS or node_of(one.to) != FIRST)
        return replace(reaction, sends=sends)

    def canonical(self, local: ConsumerLocal) -> ConsumerLocal:
        if local.parts is None or local.party is None or local.party.record.outstanding:
            return local
        unnumbered = self.steps.changed(local.party, "pings from 0", lambda record: replace(record, ping_n=0))
        return replace(local, parts=local.parts.put(unnumbered))


class BlindConsumer(CutConsumer):
    """A consumer that may lose the stream store: it reads nothing more, and gives its streams back (SS-290, SS-292).

    A standby takes the place of its borrower (SS-293).  It asks for nothing and stays, since the way never works again:
    the consumer has ended.
    """

    def inputs(self, local: ConsumerLocal) -> tuple[Any, ...]:
        assert isinstance(local, CutConsumerLocal)
        inputs = super().inputs(local)
        if local.cut != READS:
            return inputs
        assert local.party is None or local.party.record.status is not UNSUBSCRIBING
        read = (one for one in inputs if not isinstance(one, StreamProgress) or one.finished)
        return (*read, *((GiveBack(),) if is_reading(local) else ()))


def is_reading(local: ConsumerLocal) -> bool:
    """The session of the consumer reads a stream."""
    held = () if local.party is None else in_order(local.party.record.streams)
    return any(child.status is not ABSENT for _, child in held)


class CutHost(LeaderHost):
    """A host that takes no claim again once its leader gave one up because it could not serve (SS-281).

    The shipped host waits for `claim_ttl` and `find_leader`; in this time the other host takes the claim.  So that
    timer of the registry never fires here.
    """

    def react(self, local: LeaderHostLocal, envelope: Envelope, watch: Watch | None = None) -> Reaction | None:
        return Reaction(local) if self.is_lost(envelope) else super().react(local, envelope, watch)

    def is_lost(self, envelope: Envelope) -> bool:
        """Leader hosts do not hear each other in this system, and this is what one of them sends."""
        return False


class SeparateHost(CutHost):
    """A host that does not hear the other one."""

    def is_lost(self, envelope: Envelope) -> bool:
        return envelope.sender != "" and node_of(envelope.sender) in HOSTS


class CutStoreLocal(StoreLocal, frozen=True, gc=False):
    """`cut`: which way between the first host and the store does not work ("": both do)."""

    cut: str = ""


class CutStore(Store):
    """A store that the first host may lose, at any instant: its driver says that each request has failed.

    `ways`: the requests are lost, or the answers to requests that were carried out.
    """

    def __init__(self, service: Any, *, ways: tuple[str, ...], **options: Any) -> None:
        super().__init__(service, **options)
        self.ways = ways

    def initial(self) -> CutStoreLocal:
        return CutStoreLocal(self.state)

    def inputs(self, local: StoreLocal) -> tuple[Any, ...]:
        assert isinstance(local, CutStoreLocal)
        return (*super().inputs(local), *(() if local.cut else map(Cut, self.ways)))

    def react(self, local: StoreLocal, envelope: Envelope, watch: Watch | None = None) -> Reaction | None:
        assert isinstance(local, CutStoreLocal)
        event = envelope.event
        if isinstance(event, Cut):
            return Reaction(replace(local, cut=event.way))
        is_cut = local.cut and isinstance(event, Request) and envelope.sender and node_of(envelope.sender) == FIRST
        if not is_cut:
            return super().react(local, envelope, watch)
        back = (Envelope(self.name, envelope.sender, make_failed_answer(event)),)
        if local.cut == REQUESTS:
            return Reaction(local, (), back)
        reaction = super().react(local, envelope, watch)
        assert reaction is not None
        return replace(reaction, calls=back)


# -- deadlines ------------------------------------------------------------------------------------------------------


class UnreachableParty(msgspec.Struct, frozen=True):
    """A `party` at the other end of a way to the first host, the borrower of the moment or a store, and which way is
    `cut`."""

    party: str
    cut: str


class PartyDeadline(msgspec.Struct, frozen=True):
    """A deadline of `host`, or of a borrower that follows it: it waits for `party` ("": for any borrower), and passes
    only if one of these `ways` is cut."""

    host: str
    ways: tuple[str, ...]
    party: str = ""


def find_reach(actor: str, local: Any) -> UnreachableParty | None:
    """What the consumer, or the group store, reaches."""
    if isinstance(local, CutConsumerLocal):
        return None if local.party is None else UnreachableParty(local.party.record.id, local.cut)
    return UnreachableParty(actor, local.cut) if isinstance(local, CutStoreLocal) and actor == GROUP_STORE else None


def find_wait(actor: str, local: Any, event: Any) -> PartyDeadline | None:
    """What a deadline waits for.

    A leader that does not reach a borrower hears its requests, so it does not expire; and it is asked before it is
    idle.  A follower does not end here.
    """
    match event:
        case PingTimeout():
            return PartyDeadline(node_of(local.party.record.link.leader), BOTH, local.party.record.id)
        case ExpiryTimer():
            return PartyDeadline(actor, (REQUESTS,), event.key)
        case RevokeTimeout() if event.key in local.party.record.assignments:
            return PartyDeadline(actor, BOTH, local.party.record.assignments[event.key].link.borrower)
        case IdleTimer() if local.party.record.status not in SERVING:
            return PartyDeadline(actor, ())
        case IdleTimer():
            return PartyDeadline(actor, BOTH if local.party.record.asked else (REQUESTS,))
        case ClaimEnd() | HeartbeatTimer():
            return PartyDeadline(actor, BOTH, GROUP_STORE)
    return None


def is_in_time(reach: UnreachableParty, wait: PartyDeadline) -> bool:
    """What the deadline waits for comes before it."""
    if wait.party != reach.party and (wait.party or reach.party == GROUP_STORE):
        return False
    return wait.host != FIRST or reach.cut not in wait.ways


WORKS_IN_TIME = Order(
    "what works is in time",
    "a ping and its answer take less than ping_timeout, validity and idle_stop, a commit less than claim_ttl",
    find_reach,
    find_wait,
    is_in_time,
)

# -- properties -----------------------------------------------------------------------------------------------------


def reachable_properties(cutter: str) -> tuple[Property, ...]:
    """What holds besides the properties of every system; `cutter`: the component that knows of the cut."""
    cut = View(cutter, 2, is_cut)
    held_back = View(FIRST, 2, leads_held_back)
    second = View(SECOND, 2, properties.leads)
    served = (View(CONSUMER, 4, is_cut_and_served), second, *(() if cutter == CONSUMER else (cut,)))
    return (
        Always("L8", "one borrower ends itself, no second one", (View(CONSUMER, 2, has_ended),), _is_false),
        Always("L6 held back", "a host that could not serve leads no more", (held_back,), _is_false),
        Sometimes("cut", "the way is cut while the first host leads", _cut_and_first(cutter), _both),
        Sometimes("served", "the second host serves the consumer after the cut", served, _is_served_by_second),
    )


def obligations(consumer: Consumer, cutter: str) -> tuple[Eventually, ...]:
    """L1, L2, L3, L4, L6, L7, L9 as elsewhere, and that the path that is left is used."""
    cut = View(cutter, 2, is_cut)
    return (
        *properties.obligations((CONSUMER,), HOSTS),
        *quiescent_properties.obligations((consumer,), HOSTS),
        Eventually(
            "L6 reachable",
            "a host that every way reaches leads, once a way of the other is cut",
            (cut, View(SECOND, 2, properties.leads), View(FIRST, 2, properties.leads)),
            lambda is_cut, second, first: not second and (is_cut or not first),
        ),
        Eventually(
            "L2 served",
            "the consumer holds its stream under a lease",
            (View(CONSUMER, 2, is_unserved),),
            bool,
        ),
        Eventually(
            "L5",
            "the leader that serves the consumer knows that its message is acknowledged",
            (View(FIRST, 2, knows_all_is_read), View(SECOND, 2, knows_all_is_read)),
            lambda *known: not any(known),
        ),
    )


def is_cut(local: Any) -> int:
    """1: the way does not work."""
    return int(bool(local.cut))


def is_unserved(local: ConsumerLocal) -> int:
    """1: the consumer may deliver nothing."""
    return int(not properties.may_deliver((STREAM,))(local))


def is_cut_and_served(local: ConsumerLocal) -> int:
    """1: the way of the consumer is cut; 2: the second host serves it; 3: both."""
    record = None if local.party is None else local.party.record
    link = None if record is None else record.link
    is_served = link is not None and node_of(link.leader) == SECOND and not is_unserved(local)
    return is_cut(local) + 2 * is_served


def is_cut_and_unserved(local: ConsumerLocal) -> int:
    """Not 0: the consumer delivers nothing, or cannot read what it holds."""
    return is_cut(local) + 2 * is_unserved(local)


def is_cut_or_ended(local: ConsumerLocal) -> int:
    """1: the way of the consumer is cut; 2: it has no borrower any more; 3: both."""
    return is_cut(local) + 2 * has_ended(local)


def _is_given_back(first: int, other: int) -> bool:
    return first != 2 and not other


def has_ended(local: ConsumerLocal) -> int:
    """1: the consumer has no borrower any more."""
    return int(local.mode is ENDED)


def leads_held_back(local: LeaderHostLocal) -> int:
    """1: a leader serves at a host that gave a claim up because it could not serve."""
    return int(bool(local.parts.own.record.let_go) and properties.leads(local))


def knows_all_is_read(local: LeaderHostLocal) -> int:
    """1: a leader serves, and its consumer has read the stream."""
    if not properties.leads(local):
        return 0
    assert local.party is not None
    record = local.party.record
    assignment, known = record.assignments.get(STREAM), record.streams.get(STREAM)
    at = max(0 if assignment is None else assignment.progress, 0 if known is None else known.progress)
    return int(at > 0)


def _cut_and_first(cutter: str) -> tuple[View, View]:
    return View(cutter, 2, is_cut), View(FIRST, 2, properties.leads)


def _is_false(value: int) -> bool:
    return not value


def _both(*values: int) -> bool:
    return all(values)


def _is_served_by_second(served: int, second: int, cut: int = 0) -> bool:
    return bool(second and served & 2 and (cut or served & 1))


# -- systems --------------------------------------------------------------------------------------------------------


SIZES: Final[dict[str, Network]] = {
    "small": Network(2, lossy=False, duplicating=False, ordered=True),
    "ci": Network(2, lossy=False, duplicating=False),
    "large": Network(3, lossy=False, duplicating=False),
}
"""Size -> the network; all else is the same."""


class UnreachablePair(msgspec.Struct, frozen=True):
    """A system: what it is `about`; the component `far` from the first host, and which `ways` between them may be cut;
    the kind of both hosts; `fires`: timers of leaders that other systems leave silent."""

    about: str
    far: str
    ways: tuple[str, ...]
    host: type[CutHost] = CutHost
    fires: tuple[str, ...] = ("idle",)


PAIRS: Final[dict[str, UnreachablePair]] = {
    "leader-to-member": UnreachablePair(
        "a member hears no more of the first of two hosts, which hears it", CONSUMER, (ANSWERS,)
    ),
    "member-to-leader": UnreachablePair(
        "the first of two hosts hears no more of a member, which hears it", CONSUMER, (REQUESTS,), SeparateHost
    ),
    "leader-to-group-store": UnreachablePair(
        "the first of two hosts loses the group store: its requests, or the answers to them",
        GROUP_STORE,
        BOTH,
        fires=("idle", "claim_end", "heartbeat", "recheck"),
    ),
    "leader-to-stream-store": UnreachablePair(
        "the first of two hosts loses the stream store: it lists no streams any more",
        STREAM_STORE,
        (REQUESTS,),
        fires=("idle", "renew"),
    ),
}
BLIND: Final = "member-to-stream-store"
ABOUT: Final[dict[str, str]] = {
    **{name: pair.about for name, pair in PAIRS.items()},
    BLIND: "the first of two members loses the stream store; the other one reads in its place",
}
"""Name -> about."""


def build(name: str, size: str = "small", variant: str = "settled", without: tuple[str, ...] = ()) -> System:
    """The closed system called so; `without` these deadline orders."""
    pair = PAIRS[name]
    ours = configuration(variant)
    consumer = CutConsumer(
        CONSUMER,
        ours,
        ways=pair.ways if pair.far == CONSUMER else (),
        fsm=borrower(variant),
        lives=2,
        pings=1,
        offsets=1,
    )
    orders = tuple(one for one in ORDERS if is_kept(one, ours))
    return System(
        name,
        pair.about,
        (consumer, *(_host(host, pair, ours) for host in HOSTS), *_stores(pair, ours)),
        SIZES[size],
        (
            properties.exclusive((CONSUMER,), (STREAM,)),
            properties.one_leader(HOSTS),
            *properties.sometimes_served((CONSUMER,), (STREAM,)),
            quiescent_properties.make_balanced(HOSTS),
            quiescent_properties.at_rest(HOSTS),
            *reachable_properties(pair.far),
            *properties.STEPWISE,
        ),
        (at_most("way that is cut for good", 1, Cut),),
        tuple(one for one in (*orders, WORKS_IN_TIME) if one.name not in without),
        _bounds(pair, variant),
        obligations=obligations(consumer, pair.far),
    )


def build_blind(size: str = "small", variant: str = "settled", without: tuple[str, ...] = ()) -> System:
    """The closed system of two members of one leader; the first may lose the stream store."""
    ours = configuration(variant)
    options: dict[str, Any] = {"fsm": borrower(variant), "registries": (FIRST,), "lives": 1, "pings": 1, "offsets": 1}
    members = (
        BlindConsumer(CONSUMER, ours, ways=(READS,), **options),
        CutConsumer(OTHER, ours, ways=(), **options),
    )
    host = LeaderHost(FIRST, ours, registrations=4, grants=6, silent=QUIET_TIMERS)
    names = (CONSUMER, OTHER)
    blind, served = View(CONSUMER, 4, is_cut_and_unserved), View(OTHER, 2, is_unserved)
    orders = tuple(one for one in ORDERS if is_kept(one, ours))
    return System(
        BLIND,
        ABOUT[BLIND],
        (
            *members,
            host,
            Store(GroupStore(), state=make_declared_store(ours)),
            Store(StreamStore(1), state=streams(("a",), 1)),
        ),
        SIZES[size],
        (
            properties.exclusive(names, (STREAM,)),
            *properties.sometimes_served(names, (STREAM,)),
            quiescent_properties.make_balanced((FIRST,)),
            quiescent_properties.at_rest((FIRST,)),
            Always("L8", "no borrower ends but the one that gives its streams back",
                   (View(CONSUMER, 4, is_cut_or_ended), View(OTHER, 2, has_ended)), _is_given_back),
            Sometimes("given back", "the other member reads once the first has given its streams back",
                      (View(CONSUMER, 2, has_ended), served), lambda ended, unserved: bool(ended and not unserved)),
            *properties.STEPWISE,
        ),
        (at_most("way that is cut for good", 1, Cut),),
        tuple(one for one in (*orders, WORKS_IN_TIME) if one.name not in without),
        {
            "variant": variant,
            "way that is cut": f"between {CONSUMER} and the stream store",
            "streams": "1, with one message",
            "borrowers": "1 of each consumer; any number of pings",
            "leaders": "4 registrations and 6 grants in 1 epoch",
            "standby": f"that of {CONSUMER} stays: the way never works again (SS-293)",
            "stores": "answer within the step that asks",
        },
        obligations=(
            *properties.obligations(names, (FIRST,)),
            *quiescent_properties.obligations(members, (FIRST,)),
            Eventually("L2 served", "a member that reaches the stream store holds the stream under a lease",
                       (blind, served), lambda first, other: bool(first and other)),
            Eventually("L5", "the leader knows that the message is acknowledged",
                       (View(FIRST, 2, knows_all_is_read),), lambda known: not known),
        ),
    )  # fmt: skip


def _host(name: str, pair: UnreachablePair, ours: Configuration) -> CutHost:
    return pair.host(
        name,
        ours,
        leaders=3,
        registrations=3,
        grants=4,
        epochs=4,
        silent=(*(timer for timer in QUIET_TIMERS if timer not in pair.fires), "let_go_end"),
        ages="claim_end" in pair.fires,
        alone=False,
    )


def _stores(pair: UnreachablePair, ours: Configuration) -> tuple[Store, Store]:
    group: dict[str, Any] = {"state": make_declared_store(ours), "roots": 4}
    messages: dict[str, Any] = {"state": streams(("a",), 1)}
    if pair.far == GROUP_STORE:
        return CutStore(GroupStore(), ways=pair.ways, **group), Store(StreamStore(1), **messages)
    if pair.far == STREAM_STORE:
        return Store(GroupStore(), **group), CutStore(StreamStore(1), ways=pair.ways, **messages)
    return Store(GroupStore(), **group), Store(StreamStore(1), **messages)


def _bounds(pair: UnreachablePair, variant: str) -> dict[str, str]:
    heard = "nothing" if pair.host is SeparateHost else "a leader_wanted that a follower passes on"
    return {
        "variant": variant,
        "way that is cut": f"between {FIRST} and {pair.far}: {', or '.join(pair.ways)}",
        "streams": "1, with one message",
        "borrowers": "2 in turn; any number of pings",
        "leaders": "3 of each host, 4 epochs; a claim is renewed in time while its leader reaches the store",
        "hosts": f"of each other they hear {heard}; they relay nothing (SS-274)",
        "held back": "a host that could not serve takes no claim again (SS-281: for claim_ttl + find_leader)",
        "stores": "answer within the step that asks; of a store that is not reached its driver says that it failed",
    }


def system(name: str, size: str = "small", variant: str = "settled", without: tuple[str, ...] = ()) -> System:
    """The system called so.  Raises `ConfigurationError` for an unknown size."""
    if size not in SIZES:
        raise ConfigurationError("size", size, f"unknown; there are: {', '.join(SIZES)}")
    arguments: dict[str, Any] = {"name": name, "size": size, "variant": variant, "without": without}
    made = build_blind(size, variant, without) if name == BLIND else build(name, size, variant, without)
    return replace(made, origin=(f"{__name__}:system", arguments))
