"""Borrower: one shared subscription of one session (source: "Shared Subscription Borrower", "Borrower's statuses").

`connecting -> connected -> unsubscribing -> destroyed`, with edges to destroyed from every status and no cycle: a
borrower that meets something inconsistent ends itself and asks the Agent for a new one with a new id.  It talks to
the leader, passes stream events on to its `Stream` machines (one per stream), and tells the session what to install,
finish and uninstall.  It may hand on messages only while its own lease holds: from an answered ping until the sending
time of that ping + ping_interval + ping_timeout, by its own clock.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

import msgspec
from msgspec.structs import replace

from statemachines.kernel import (
    STAY,
    Call,
    CancelTimer,
    ChildStep,
    Delegate,
    Effect,
    Effects,
    Event,
    Fifo,
    Fsm,
    Ignore,
    Invariant,
    Map,
    Row,
    Send,
    SetTimer,
    Status,
    Stop,
    Tell,
    Timer,
    TimerFired,
    TraceColumns,
    in_order,
    keys_in_order,
)
from statemachines.shared_subscriptions.acknowledged_ranges import limit_reports
from statemachines.shared_subscriptions.configuration import MS, Configuration
from statemachines.shared_subscriptions.message import (
    END_OF_STREAM,
    Disconnect,
    Grant,
    Invalidate,
    LeaderConnectResponse,
    LeaderWanted,
    Ping,
    PingResponse,
    Report,
    Revoke,
    Revoked,
    Undeclared,
)
from statemachines.shared_subscriptions.stream import (
    ABSENT,
    STREAM,
    Dropped,
    Finishing,
    Replaced,
    StreamLink,
    StreamProgress,
    StreamRecord,
)

REPORTS_PER_PING = 512
"""A ping carries at most so many reports, the others follow with the next, and a disconnect carries no more: with the
longest topics a frame still has room for them."""


# -- from and to the Agent ------------------------------------------------------------------------------------------


class Start(Call, frozen=True, gc=False):
    """Begin: look for the leader."""


class OnUnsubscribe(Call, frozen=True, gc=False):
    """The client unsubscribed."""


class OnDisconnect(Call, frozen=True, gc=False):
    """The session goes away."""


class GiveBack(Call, frozen=True, gc=False):
    """From the Handler: the session cannot read; let others have the streams."""


class LeaseBegan(Event, frozen=True, gc=False):
    """To the session: a ping was answered, deliver."""

    owner: str


class LeaseEnded(Event, frozen=True, gc=False):
    """To the session: deliver nothing until the lease begins again."""

    owner: str


class Destroyed(Event, frozen=True, gc=False):
    """To the Agent: this borrower is gone.  `recreate`: the subscription goes on under a new id; `epoch`: the highest
    seen, which the new one starts from; `reports`: what it said last, for a leader that has not heard it."""

    columns: ClassVar = TraceColumns(term="epoch")

    borrower: str
    recreate: bool
    epoch: int
    reports: tuple[Report, ...] = ()


class FindLeaderTimer(TimerFired, frozen=True, gc=False):
    """Nobody has answered yet."""


class PingTimer(TimerFired, frozen=True, gc=False):
    """Time for the next ping."""


class PingTimeout(TimerFired, frozen=True, gc=False):
    """The leader did not answer the ping."""


class LeaseEnd(TimerFired, frozen=True, gc=False):
    """No answered ping covers this moment."""


class UnsubscribeTimer(TimerFired, frozen=True, gc=False):
    """The session has not finished its streams in time."""


# -- record ---------------------------------------------------------------------------------------------------------


class BorrowerStatus(Status):
    """The source's statuses."""

    CONNECTING = "connecting"
    CONNECTED = "connected"
    UNSUBSCRIBING = "unsubscribing"
    DESTROYED = "destroyed"


CONNECTING, CONNECTED, UNSUBSCRIBING, DESTROYED = BorrowerStatus
LINKED = (CONNECTED, UNSUBSCRIBING)


class BorrowerRecord(msgspec.Struct, frozen=True, gc=False):
    """One borrower.  `registries`: where leaders are found; `turn`: the one that is asked next.
    `epoch`: the highest the Agent has seen.  `link`: the pair adopted, once connected.
    `ping_n`, `ping_at_ns`: the last ping sent and when; `outstanding`: it is not answered yet.
    `changed`: streams whose report changed since the last ping, as many as a ping carries; `later`: the others in the
    order in which they changed (some may be over), `late`: the same as a set; `carried`: those in pings not yet
    answered.
    `unfinished`: number of streams held whose final progress is not known."""

    id: str
    group: str
    filter: str
    registries: Annotated[tuple[str, ...], msgspec.Meta(min_length=1)]
    configuration: Configuration
    status: BorrowerStatus = CONNECTING
    turn: int = 0
    epoch: int = 0
    link: StreamLink | None = None
    ping_n: int = 0
    ping_at_ns: int = 0
    outstanding: bool = False
    leased: bool = False
    streams: Map[str, StreamRecord] = Map()
    changed: Map[str, bool] = Map()
    carried: Map[str, bool] = Map()
    later: Fifo = Fifo()
    late: Map[str, bool] = Map()
    unfinished: int = 0


Paired = PingResponse | Grant | Revoke | Revoked | Invalidate | LeaderConnectResponse


def require_link(record: BorrowerRecord) -> StreamLink:
    """The link of a borrower that is connected."""
    assert record.link is not None
    return record.link


# -- guards ---------------------------------------------------------------------------------------------------------


def is_mine(record: BorrowerRecord, event: Paired) -> bool:
    link = require_link(record)
    return event.epoch == link.epoch and event.registration == link.registration


def is_above(record: BorrowerRecord, event: Paired) -> bool:
    link = require_link(record)
    return (event.epoch, event.registration) > (link.epoch, link.registration)


def is_mine_or_above(record: BorrowerRecord, event: Paired) -> bool:
    return not is_below(record, event)


def is_below(record: BorrowerRecord, event: Paired) -> bool:
    link = require_link(record)
    return (event.epoch, event.registration) < (link.epoch, link.registration)


def is_current(record: BorrowerRecord, event: LeaderConnectResponse) -> bool:
    """Of no epoch below the highest that the Agent has seen."""
    return event.epoch >= record.epoch


def is_outstanding(record: BorrowerRecord, event: PingResponse) -> bool:
    return record.outstanding and event.n == record.ping_n and is_mine(record, event)


def nothing_unfinished(record: BorrowerRecord, event: Event) -> bool:
    return record.unfinished == 0


def replaces(record: BorrowerRecord, event: Grant) -> bool:
    """Mine, and a higher number of a stream that is held."""
    if not is_mine(record, event):
        return False
    child = record.streams.get(event.stream)
    return child is not None and child.status is not ABSENT and event.grant > child.grant


def finishes_all(record: BorrowerRecord, event: StreamProgress) -> bool:
    """The last final progress that was missing."""
    child = record.streams.get(event.stream)
    return (
        child is not None
        and (event.finished or event.progress == END_OF_STREAM)
        and event.progress >= child.progress
        and record.unfinished == 1
        and event.grant == child.grant
        and child.is_unfinished
    )


def removes_last(record: BorrowerRecord, event: Revoked) -> bool:
    """Mine, and what it removes is the only thing not finished."""
    child = record.streams.get(event.stream)
    return (
        is_mine(record, event)
        and child is not None
        and event.grant >= child.grant
        and record.unfinished == 1
        and child.is_unfinished
    )


# -- actions --------------------------------------------------------------------------------------------------------


def ask_for_leader(record: BorrowerRecord, event: Start, now_ns: int) -> tuple[BorrowerRecord, Effects]:
    return make_leader_wanted(record)


def ask_again(record: BorrowerRecord, event: FindLeaderTimer, now_ns: int) -> tuple[BorrowerRecord, Effects]:
    again = SetTimer("find_leader", now_ns + record.configuration.find_leader_ms * MS)
    record, effects = make_leader_wanted(record)
    return record, (again, *effects)


def make_leader_wanted(record: BorrowerRecord) -> tuple[BorrowerRecord, Effects]:
    """Ask the registry whose turn it is."""
    ask = Send(record.registries[record.turn], LeaderWanted(record.id, record.group, record.filter))
    return replace(record, turn=(record.turn + 1) % len(record.registries)), (ask,)


def adopt(record: BorrowerRecord, event: LeaderConnectResponse, now_ns: int) -> tuple[BorrowerRecord, Effects]:
    link = StreamLink(record.id, event.leader, event.epoch, event.registration)
    record = replace(record, link=link, epoch=event.epoch)
    return send_ping(record, now_ns)


def ping(record: BorrowerRecord, event: PingTimer, now_ns: int) -> tuple[BorrowerRecord, Effects]:
    record, effects = send_ping(record, now_ns)
    return record, (SetTimer("ping_timeout", now_ns + record.configuration.ping_timeout_ms * MS), *effects)


def send_ping(record: BorrowerRecord, now_ns: int) -> tuple[BorrowerRecord, Effects]:
    """Number, stamp and send the next ping; what it reports is carried until a ping is answered."""
    link = require_link(record)
    record = choose_reports(record)
    streams = record.streams
    reports = limit_reports(tuple([streams[name].report() for name in keys_in_order(record.carried)]))
    record = replace(record, ping_n=record.ping_n + 1, ping_at_ns=now_ns, outstanding=True)
    return record, (Send(link.leader, Ping(record.id, link.epoch, link.registration, record.ping_n, reports)),)


def choose_reports(record: BorrowerRecord) -> BorrowerRecord:
    """`carried` becomes what the next ping reports; streams that changed later move up.  The cost does not grow with
    the number of streams."""
    carried, changed = record.carried, record.changed
    if carried:
        names = keys_in_order(carried) + [name for name in keys_in_order(changed) if name not in carried]
        carried = Map(dict.fromkeys(names[:REPORTS_PER_PING], True))
        changed = Map(dict.fromkeys(names[REPORTS_PER_PING:], True))
    else:
        carried, changed = changed, carried
    later, late = record.later, record.late
    while later and len(changed) < REPORTS_PER_PING:
        name, later = later.pop()
        if name in late:
            late, changed = late.delete(name), changed.set(name, True)
    return replace(record, carried=carried, changed=changed, later=later, late=late)


def queue_change(record: BorrowerRecord, stream: str) -> BorrowerRecord:
    """A later ping reports the stream, since the next one is full."""
    late, later = record.late.set(stream, True), record.later.push(stream)
    if len(later) > 2 * len(late) + REPORTS_PER_PING:  # streams that were let go, and came back
        later = queue_of([name for name in dict.fromkeys(later) if name in late])
    return replace(record, late=late, later=later)


def queue_of(names: list[str]) -> Fifo:
    return Fifo(Map(enumerate(names)), 0, len(names))


def without(names: Map[str, bool], name: str) -> Map[str, bool]:
    return names.delete(name) if name in names else names


def accept_ping_response(record: BorrowerRecord, event: PingResponse, now_ns: int) -> tuple[BorrowerRecord, Effects]:
    """The ping is answered: its reports are confirmed, the lease reaches from its sending time."""
    configuration = record.configuration
    effects: tuple[Effect, ...] = (
        CancelTimer("ping_timeout"),
        SetTimer("ping", now_ns + configuration.ping_interval_ms * MS),
        SetTimer("lease", record.ping_at_ns + configuration.lease_ms * MS),
    )
    if not record.leased:
        effects = (*effects, Tell(LeaseBegan(record.id)))
    return replace(record, outstanding=False, leased=True, carried=Map()), effects


def accept_late_ping_response(
    record: BorrowerRecord, event: PingResponse, now_ns: int
) -> tuple[BorrowerRecord, Effects]:
    """As `answered`, without a lease: while unsubscribing nothing is delivered."""
    again = SetTimer("ping", now_ns + record.configuration.ping_interval_ms * MS)
    return replace(record, outstanding=False, carried=Map()), (CancelTimer("ping_timeout"), again)


def end_lease(record: BorrowerRecord, event: LeaseEnd, now_ns: int) -> tuple[BorrowerRecord, Effects]:
    return replace(record, leased=False), (Tell(LeaseEnded(record.id)),)


def pass_on(
    record: BorrowerRecord, event: Grant | Revoke | Revoked | StreamProgress, now_ns: int
) -> tuple[BorrowerRecord, Effects, tuple[ChildStep, ...]]:
    """To the Stream machine that the event is about: the instance that is held, else that of the event's grant."""
    child = record.streams.get(event.stream)
    if child is None:
        child = StreamRecord(require_link(record), event.stream)
    grant = event.grant if child.status is ABSENT else child.grant
    after, effects, seen = STREAM.child_step(child, event, now_ns, grant)
    if after is not child:
        record = keep(record, child, after)
    return record, effects, (seen,)


def step_child(
    record: BorrowerRecord, child: StreamRecord, event: Event, now_ns: int, grant: int
) -> tuple[BorrowerRecord, Effects, tuple[ChildStep, ...]]:
    after, effects, seen = STREAM.child_step(child, event, now_ns, grant)
    if after is not child:
        record = keep(record, child, after)
    return record, effects, (seen,)


def keep(record: BorrowerRecord, before: StreamRecord, after: StreamRecord) -> BorrowerRecord:
    """With the stream as it is now; the next ping reports it, if it is still held."""
    stream = after.stream
    streams, unfinished = record.streams.set(stream, after), record.unfinished
    if after.status is not before.status or after.finished is not before.finished:
        unfinished += after.is_unfinished - before.is_unfinished
    if after.status is ABSENT:
        changed, carried = without(record.changed, stream), without(record.carried, stream)
        late = without(record.late, stream)
        return replace(record, streams=streams, changed=changed, carried=carried, late=late, unfinished=unfinished)
    changed = record.changed
    if stream not in changed and stream not in record.late:
        if len(changed) < REPORTS_PER_PING:
            changed = changed.set(stream, True)
        else:
            record = queue_change(record, stream)
    return replace(record, streams=streams, changed=changed, unfinished=unfinished)


def replace_stream(
    record: BorrowerRecord, event: Grant, now_ns: int
) -> tuple[BorrowerRecord, Effects, tuple[ChildStep, ...]]:
    """The instance of the lower grant ends before that of the higher one begins."""
    old = record.streams[event.stream]
    record, first, ended = step_child(record, old, Replaced(), now_ns, old.grant)
    record, second, begun = pass_on(record, event, now_ns)
    return record, first + second, ended + begun


def finish_all(
    record: BorrowerRecord, event: OnUnsubscribe, now_ns: int
) -> tuple[BorrowerRecord, Effects, tuple[ChildStep, ...]]:
    return step_held(record, Finishing(), now_ns)


def step_held(
    record: BorrowerRecord, event: Event, now_ns: int
) -> tuple[BorrowerRecord, Effects, tuple[ChildStep, ...]]:
    """The event to every stream that is held, by name."""
    effects: list[Effect] = []
    children: list[ChildStep] = []
    for _, child in in_order(record.streams):
        if child.status is not ABSENT:
            record, more, steps = step_child(record, child, event, now_ns, child.grant)
            effects.extend(more)
            children.extend(steps)
    return record, tuple(effects), tuple(children)


def invalidate_itself(
    record: BorrowerRecord, event: Event, now_ns: int
) -> tuple[BorrowerRecord, Effects, tuple[ChildStep, ...]]:
    """Stop, hand the streams back, ask for a new borrower that knows the highest epoch seen."""
    epoch = max(record.epoch, getattr(event, "epoch", 0))
    record, effects, children = step_held(record, Dropped(), now_ns)
    return record, (*effects, Tell(Destroyed(record.id, True, epoch)), Stop()), children


def go(record: BorrowerRecord, event: Event, now_ns: int) -> tuple[BorrowerRecord, Effects]:
    """Nobody knows us yet: just end."""
    return record, (Tell(Destroyed(record.id, False, record.epoch)), Stop())


def go_again(record: BorrowerRecord, event: Invalidate, now_ns: int) -> tuple[BorrowerRecord, Effects]:
    epoch = max(record.epoch, event.epoch)
    return record, (Tell(Destroyed(record.id, True, epoch)), Stop())


def go_for_now(record: BorrowerRecord, event: GiveBack, now_ns: int) -> tuple[BorrowerRecord, Effects]:
    """Nobody knows us yet: end, and let the Agent wait."""
    return record, (Tell(Destroyed(record.id, True, record.epoch)), Stop())


def leave(record: BorrowerRecord, event: Event, now_ns: int) -> tuple[BorrowerRecord, Effects, tuple[ChildStep, ...]]:
    """Report what is known of the streams held, and end."""
    return say_farewell(record, False, now_ns)


def leave_for_now(
    record: BorrowerRecord, event: GiveBack, now_ns: int
) -> tuple[BorrowerRecord, Effects, tuple[ChildStep, ...]]:
    """The same; the subscription goes on under a new id."""
    return say_farewell(record, True, now_ns)


def say_farewell(
    record: BorrowerRecord, recreate: bool, now_ns: int
) -> tuple[BorrowerRecord, Effects, tuple[ChildStep, ...]]:
    link = require_link(record)
    reports = last_reports(record)
    farewell = Send(link.leader, Disconnect(record.id, link.epoch, link.registration, reports))
    record, effects, children = step_held(record, Dropped(), now_ns)
    return record, (farewell, *effects, Tell(Destroyed(record.id, recreate, record.epoch, reports)), Stop()), children


def last_reports(record: BorrowerRecord) -> tuple[Report, ...]:
    """Of every stream held; of too many for one message, of those whose report no answered ping has confirmed, as many
    as it takes.  All were reported when they changed: what a leader has not heard of them is delivered again."""
    held = [child for _, child in in_order(record.streams) if child.status is not ABSENT]
    if len(held) > REPORTS_PER_PING:
        unconfirmed = (record.carried, record.changed, record.late)
        held = [child for child in held if any(child.stream in names for names in unconfirmed)][:REPORTS_PER_PING]
    return limit_reports(tuple(child.report() for child in held))


def pass_on_and_leave(
    record: BorrowerRecord, event: StreamProgress | Revoked, now_ns: int
) -> tuple[BorrowerRecord, Effects, tuple[ChildStep, ...]]:
    record, first, stepped = pass_on(record, event, now_ns)
    record, second, dropped = leave(record, event, now_ns)
    return record, first + second, stepped + dropped


def end_unsubscribed(
    record: BorrowerRecord, event: Event, now_ns: int
) -> tuple[BorrowerRecord, Effects, tuple[ChildStep, ...]]:
    """Invalidated while unsubscribing: end, and never come back."""
    record, effects, children = step_held(record, Dropped(), now_ns)
    return record, (*effects, Tell(Destroyed(record.id, False, record.epoch)), Stop()), children


# fmt: off
ROWS = (
    #   on                     from           to             do                           when                clause
    Row(Start,                 CONNECTING,    STAY,          ask_for_leader,              None,               "SS-01"),
    Row(FindLeaderTimer,       CONNECTING,    STAY,          ask_again,                   None,               "SS-02"),
    Row(LeaderConnectResponse, CONNECTING,    CONNECTED,     adopt,                       is_current,         "SS-03"),
    Row(Invalidate,            CONNECTING,    DESTROYED,     go_again,                    None,               "SS-16"),
    Row(OnUnsubscribe,         CONNECTING,    DESTROYED,     go,                          None,               "SS-05"),
    Row(OnDisconnect,          CONNECTING,    DESTROYED,     go,                          None,               "SS-05"),

    Row(LeaderConnectResponse, CONNECTED,     DESTROYED,     Delegate(invalidate_itself), is_above,           "SS-06"),
    Row(PingTimer,             LINKED,        STAY,          ping,                        None,               "SS-07"),
    Row(PingResponse,          CONNECTED,     STAY,          accept_ping_response,        is_outstanding,     "SS-08"),
    Row(PingResponse,          CONNECTED,     DESTROYED,     Delegate(invalidate_itself), is_above,           "SS-15"),
    Row(PingTimeout,           CONNECTED,     DESTROYED,     Delegate(invalidate_itself), None,               "SS-09"),
    Row(LeaseEnd,              CONNECTED,     STAY,          end_lease,                   None,               "SS-10"),
    Row(Grant,                 CONNECTED,     STAY,          Delegate(replace_stream),    replaces,           "SS-32"),
    Row(Grant,                 CONNECTED,     STAY,          Delegate(pass_on),           is_mine,            "SS-11"),
    Row(Grant,                 CONNECTED,     DESTROYED,     Delegate(invalidate_itself), is_above,           "SS-15"),
    Row(Revoke,                CONNECTED,     STAY,          Delegate(pass_on),           is_mine,            "SS-11"),
    Row(Revoke,                CONNECTED,     DESTROYED,     Delegate(invalidate_itself), is_above,           "SS-15"),
    Row(Revoked,               CONNECTED,     STAY,          Delegate(pass_on),           is_mine,            "SS-11"),
    Row(Revoked,               CONNECTED,     DESTROYED,     Delegate(invalidate_itself), is_above,           "SS-15"),
    Row(Invalidate,            CONNECTED,     DESTROYED,     Delegate(invalidate_itself), is_mine_or_above,   "SS-16"),
    Row(StreamProgress,        CONNECTED,     STAY,          Delegate(pass_on),           None,               "SS-12"),
    Row(OnUnsubscribe,         CONNECTED,     DESTROYED,     Delegate(leave),             nothing_unfinished, "SS-13"),
    Row(OnUnsubscribe,         CONNECTED,     UNSUBSCRIBING, Delegate(finish_all),        None,               "SS-14"),
    Row(OnDisconnect,          LINKED,        DESTROYED,     Delegate(leave),             None,               "SS-17"),

    Row(PingResponse,          UNSUBSCRIBING, STAY,          accept_late_ping_response,   is_outstanding,     "SS-08"),
    Row(PingTimeout,           UNSUBSCRIBING, DESTROYED,     Delegate(leave),             None,               "SS-18"),
    Row(Revoked,               UNSUBSCRIBING, DESTROYED,     Delegate(pass_on_and_leave), removes_last,       "SS-19"),
    Row(Revoked,               UNSUBSCRIBING, STAY,          Delegate(pass_on),           is_mine,            "SS-20"),
    Row(StreamProgress,        UNSUBSCRIBING, DESTROYED,     Delegate(pass_on_and_leave), finishes_all,       "SS-19"),
    Row(StreamProgress,        UNSUBSCRIBING, STAY,          Delegate(pass_on),           None,               "SS-12"),
    Row(UnsubscribeTimer,      UNSUBSCRIBING, DESTROYED,     Delegate(leave),             None,               "SS-21"),
    Row(Invalidate,            UNSUBSCRIBING, DESTROYED,     Delegate(end_unsubscribed),  is_mine_or_above,   "SS-22"),

    Row(GiveBack,              CONNECTING,    DESTROYED,     go_for_now,                  None,               "SS-292"),
    Row(GiveBack,              CONNECTED,     DESTROYED,     Delegate(leave_for_now),     None,               "SS-292"),

    Ignore((LeaderConnectResponse, PingResponse, Grant, Revoke, Revoked, StreamProgress, Undeclared),
                               CONNECTING,    "SS-04"),
    Ignore((PingTimer, PingTimeout, LeaseEnd, UnsubscribeTimer),
                               CONNECTING,    "SS-23"),
    Ignore((LeaderConnectResponse, PingResponse, Grant, Revoke, Revoked, Invalidate, Undeclared),
                               CONNECTED,     "SS-24"),
    Ignore((FindLeaderTimer, UnsubscribeTimer),
                               CONNECTED,     "SS-23"),
    Ignore((LeaderConnectResponse, PingResponse, Grant, Revoke, Revoked, Invalidate, Undeclared, OnUnsubscribe),
                               UNSUBSCRIBING, "SS-25"),
    Ignore((FindLeaderTimer, LeaseEnd),
                               UNSUBSCRIBING, "SS-23"),
    Ignore((Start,),           LINKED,        "SS-01"),
    Ignore((GiveBack,),        UNSUBSCRIBING, "SS-292"),
)

TIMERS = (
    Timer("find_leader",  FindLeaderTimer,  (CONNECTING,),    lambda record: record.configuration.find_leader_ms * MS),
    Timer("ping_timeout", PingTimeout,      LINKED,           lambda record: record.configuration.ping_timeout_ms * MS),
    Timer("ping",         PingTimer,        LINKED),
    Timer("lease",        LeaseEnd,         (CONNECTED,), authority=True),
    Timer("unsubscribe",  UnsubscribeTimer, (UNSUBSCRIBING,),
          lambda record: record.configuration.unsubscribe_timeout_ms * MS),
)
# fmt: on


# -- invariants -----------------------------------------------------------------------------------------------------


def counts_unfinished(record: BorrowerRecord) -> bool:
    """`unfinished` is what counting says."""
    return record.unfinished == sum(child.is_unfinished for _, child in in_order(record.streams))


def is_leased_connected(record: BorrowerRecord) -> bool:
    """A borrower that never connected has no lease and holds nothing."""
    return record.status is not CONNECTING or not (record.leased or record.streams)


BORROWER = Fsm(
    "borrower",
    protocol="shared_subscriptions",
    record=BorrowerRecord,
    states=BorrowerStatus,
    initial=CONNECTING,
    final=(DESTROYED,),
    rows=ROWS,
    timers=TIMERS,
    children=(STREAM,),
    invariants=(
        Invariant("counts-unfinished", "SS-19", counts_unfinished, lambda record, event: record.unfinished >= 0),
        Invariant("connected-before-leased", "SS-03", is_leased_connected),
    ),
)
