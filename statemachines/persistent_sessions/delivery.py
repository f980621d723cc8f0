"""Delivery: takes messages into the session state, commits it, and only then sends them (page: rule 8).

`ready <-> committing`.  What comes while a commit is open waits for the next one, which covers all of it.  Messages
go out in the order in which they were taken, as far as the client's receive maximum lets them; from the commit on the
state answers for them, so their rows are marked.  A message whose time was over when it was to be committed is passed
over: it is done, and is not sent.

DeliveryRecord: the session state in its owner's hands, and what of it is not committed yet.

What an event makes of a Delivery: the guards and actions of its table (`delivery`).
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sized

import msgspec
from msgspec.structs import replace

from statemachines.kernel import (
    STAY,
    Ask,
    Delegate,
    Effect,
    Effects,
    Event,
    Fsm,
    Ignore,
    Invariant,
    Map,
    Row,
    Send,
    Status,
    Tell,
)
from statemachines.kernel.row import ChildStep
from statemachines.persistent_sessions.in_flight import IN_FLIGHT, Over, Resend
from statemachines.persistent_sessions.in_flight_record import DONE, SENT, TAKEN, InFlightRecord
from statemachines.persistent_sessions.message import (
    MessageExpired,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Queued,
    is_over,
    time_left,
    unfold_row,
)
from statemachines.persistent_sessions.request import (
    DATABASE,
    CommitState,
    MarkDelivered,
    SessionState,
    StateChange,
    StateCommitted,
)
from statemachines.persistent_sessions.writer_flow import BlockRows, Take


class DeliveryStatus(Status):
    """`committing` waits for the database."""

    READY = "ready"
    COMMITTING = "committing"


READY, COMMITTING = DeliveryStatus


class Change(msgspec.Struct, frozen=True, gc=False):
    """What waits for the next commit: messages that are taken, or a packet that the client has received."""

    take: Take | None = None
    received: Pubrec | None = None


class Outgoing(msgspec.Struct, frozen=True, gc=False):
    """To be sent when it is committed: the message in flight under `packet`, or (0) one of QoS 0."""

    packet: int
    queued: Queued


class DeliveryRecord(msgspec.Struct, frozen=True, gc=False):
    """`state` as it is committed, or being committed, but for packets that have `ended` since; the `outgoing` messages
    of that commit, the packets that are `received` with it, and the rows that are done with it (`marks`); `inbox`: what
    waits for the next.  `lost`: how many were taken that retention had removed; `expired`: how many were over before
    they were sent.  `loaded_ns`: what the clock of the database showed when the state was loaded."""

    session: str
    client: str
    token: int
    receive_maximum: int
    state: SessionState = SessionState()
    status: DeliveryStatus = READY
    ended: Map[int, bool] = Map()
    outgoing: tuple[Outgoing, ...] = ()
    received: tuple[int, ...] = ()
    marks: tuple[Take, ...] = ()
    inbox: tuple[Change, ...] = ()
    lost: int = 0
    expired: int = 0
    loaded_ns: int = 0


Done = tuple[DeliveryRecord, Effects]
Delegated = tuple[DeliveryRecord, Effects, tuple[ChildStep, ...]]


PACKETS = 65_535

Acknowledgement = Puback | Pubrec | Pubcomp


def place_of(one: InFlightRecord) -> int:
    return one.place


def sort_by_sending(packets: Map[int, InFlightRecord]) -> list[InFlightRecord]:
    """What is in flight, in the order in which it was sent first."""
    return sorted(packets.values(), key=place_of)


def has_room(record: DeliveryRecord, packets: Sized) -> bool:
    """A message with a packet id may go out beside these."""
    return len(packets) < record.receive_maximum


def is_admitted(record: DeliveryRecord, state: SessionState) -> bool:
    """The first that is queued may go out: QoS 0 takes no packet id."""
    return bool(state.queued) and (state.queued[0].qos == 0 or has_room(record, state.packets))


def free_packet(packets: Container[int], places: int) -> int:
    """A packet id that is not in use; ids go round."""
    packet = places % PACKETS + 1
    while packet in packets:
        packet = packet % PACKETS + 1
    return packet


def packets_of(record: DeliveryRecord, event: Acknowledgement) -> list[InFlightRecord]:
    """What of it is in flight; of many packets the client may have been sent only some."""
    last = event.until if isinstance(event, Puback) else event.packet
    packets = record.state.packets
    if last - event.packet < len(packets):
        found = map(packets.get, range(event.packet, last + 1))
        return [one for one in found if one is not None]
    # Whatever it says that it means, the work is bounded by what is in flight.
    return [packets[packet] for packet in sorted(packets) if event.packet <= packet <= last]


# -- guards ---------------------------------------------------------------------------------------------------------


def may_send_more(record: DeliveryRecord, event: Event) -> bool:
    return is_admitted(record, record.state)


def has_more(record: DeliveryRecord, event: StateCommitted) -> bool:
    return bool(record.inbox) or is_admitted(record, record.state)


def has_over(record: DeliveryRecord, event: StateCommitted) -> bool:
    """Something was not to be sent any more when it was to be committed."""
    return any(is_over(one, event.time_ns) for one in [sent.queued for sent in record.outgoing if sent.queued.until_ns])


def has_over_and_more(record: DeliveryRecord, event: StateCommitted) -> bool:
    """The same; and what waits for a commit, or for the room that this leaves."""
    if not has_over(record, event):
        return False
    return has_more(finish_delivered(record, event, 0)[0], event)


def is_held(record: DeliveryRecord, event: Acknowledgement) -> bool:
    return event.packet in record.state.packets or bool(packets_of(record, event))


def is_first_receipt(record: DeliveryRecord, event: Pubrec) -> bool:
    one = record.state.packets.get(event.packet)
    return one is not None and one.status is SENT and one.queued.qos == 2


def waits_already(record: DeliveryRecord, event: Pubrec) -> bool:
    return any(change.received == event for change in record.inbox)


def makes_room(record: DeliveryRecord, event: Puback | Pubcomp) -> bool:
    """It ends a packet, and something is queued that may go out then."""
    held = packets_of(record, event) if record.state.queued else []
    for some in (held[:1], held):  # the first is nearly always enough, and the others only make more room
        after = step_packets(record, some, event, 0)[0]
        if some and is_admitted(after, after.state):
            return True
    return False


# -- the state ------------------------------------------------------------------------------------------------------


class PacketSteps:
    """Steps of packets that change together: there may be tens of thousands, so they are one change of the record."""

    def __init__(self, record: DeliveryRecord) -> None:
        self.effects: list[Effect] = []
        self.seen: list[ChildStep] = []
        self.packets = record.state.packets.mutate()
        self._ended = record.ended.mutate()

    def step(self, one: InFlightRecord, event: Event, now_ns: int) -> None:
        """One step; a packet that is done is not kept."""
        self.step_all((one,), event, now_ns)

    def step_all(self, several: Iterable[InFlightRecord], event: Event, now_ns: int) -> None:
        """The same of each of these, one behind the other."""
        step, packets, ended, effects, seen = IN_FLIGHT.child_step, self.packets, self._ended, self.effects, self.seen
        for one in several:
            after, more, how = step(one, event, now_ns, one.place)
            if after.status is DONE:
                del packets[one.packet]
                ended[one.packet] = True
            else:
                packets[one.packet] = after
            effects += more
            seen.append(how)

    def finish(self, record: DeliveryRecord) -> DeliveryRecord:
        """The record after all of them."""
        state = replace(record.state, packets=self.packets.finish())
        return replace(record, state=state, ended=self._ended.finish())


def step_packets(record: DeliveryRecord, several: Iterable[InFlightRecord], event: Event, now_ns: int) -> Delegated:
    """One step of each."""
    steps = PacketSteps(record)
    steps.step_all(several, event, now_ns)
    return steps.finish(record), tuple(steps.effects), tuple(steps.seen)


def take_rows(record: DeliveryRecord, event: Take) -> DeliveryRecord:
    """The rows are in the state, each copy for itself; one whose message retention has removed counts as lost."""
    state = record.state
    there = [row for row in event.rows if row.message]
    copies: list[Queued] = []
    for row in there:
        if row.more:
            copies += unfold_row(row)
        else:
            copies.append(Queued(row.number, row.message, row.filter, row.qos, row.until_ns))
    state = replace(
        state,
        taken=state.taken.set(event.writer, (event.epoch, event.rows[-1].number)),
        queued=(*state.queued, *copies),
    )
    lost = record.lost + len(event.rows) - len(there)
    return replace(record, state=state, marks=(*record.marks, event), lost=lost)


def receive(record: DeliveryRecord, changes: tuple[Change, ...], now_ns: int) -> Delegated:
    """What the client has received is in the state."""
    steps = PacketSteps(record)
    packets = [change.received.packet for change in changes if change.received is not None]
    for change in changes:
        if change.received is not None:
            steps.step(steps.packets[change.received.packet], change.received, now_ns)
    return replace(steps.finish(record), received=tuple(packets)), (), tuple(steps.seen)


def change_of(record: DeliveryRecord, began: Iterable[int] = ()) -> StateChange:
    """What is to be committed of packets: those that have ended, those that are received, and those that `began`."""
    packets = record.state.packets
    return StateChange(
        ended=tuple(sorted(record.ended)),
        packets=tuple([packets[packet] for packet in sorted({*record.received, *began})]),
        places=record.state.places,
    )


def change_with_receipts(record: DeliveryRecord) -> StateChange:
    """What the next commit would change, of what the client has: what it has received while one is open, too; and
    nothing more that is taken, which is not sent without it."""
    return change_of(receive(record, record.inbox, 0)[0])


def admit_queued(record: DeliveryRecord) -> DeliveryRecord:
    """What is queued goes out, in order, as far as the client receives it."""
    packets, places = record.state.packets.mutate(), record.state.places
    outgoing: list[Outgoing] = []
    for one in record.state.queued:
        packet = 0
        if one.qos:
            if not has_room(record, packets):
                break
            packet = free_packet(packets, places)
            packets[packet] = InFlightRecord(packet, record.client, one, places)
            places += 1
        outgoing.append(Outgoing(packet, one))
    queued = record.state.queued[len(outgoing) :]
    state = replace(record.state, queued=queued, packets=packets.finish(), places=places)
    return replace(record, state=state, outgoing=tuple(outgoing))


def commit(record: DeliveryRecord, changes: tuple[Change, ...], now_ns: int) -> Delegated:
    """Ask for a commit of what has changed, with these changes."""
    before = record.state.queued
    takes = [change.take for change in changes if change.take is not None]
    writers = {take.writer for take in takes}
    record, _, seen = receive(record, changes, now_ns)
    for take in takes:
        record = take_rows(record, take)
    record = admit_queued(record)
    admitted = len(record.outgoing)
    kept = max(0, len(before) - admitted)
    change = replace(
        change_of(record, [one.packet for one in record.outgoing if one.packet]),
        taken=Map({writer: at for writer, at in record.state.taken.items() if writer in writers}),
        dequeued=len(before) - kept,
        queued=record.state.queued[kept:],
    )
    record = replace(record, inbox=(), ended=Map())
    return record, (Ask(DATABASE, CommitState(record.session, record.token, change)),), seen


def finish_delivered(record: DeliveryRecord, event: StateCommitted, now_ns: int) -> Delegated:
    """What is over is done: nobody is sent it, its packet is free, and its row is marked with the others.  The
    committed state is without it."""
    steps = PacketSteps(record)
    over = [sent for sent in record.outgoing if is_over(sent.queued, event.time_ns)]
    for sent in over:
        one = sent.queued
        if sent.packet:
            steps.step(steps.packets[sent.packet], Over(), now_ns)
        steps.effects.append(Tell(MessageExpired(one.message, one.filter, one.qos, one.until_ns, event.time_ns)))
    outgoing = tuple(sent for sent in record.outgoing if not is_over(sent.queued, event.time_ns))
    after = steps.finish(record)
    record = replace(after, ended=record.ended, outgoing=outgoing, expired=record.expired + len(over))
    return record, tuple(steps.effects), tuple(steps.seen)


# -- actions --------------------------------------------------------------------------------------------------------


def resend(record: DeliveryRecord, event: Resend, now_ns: int) -> Delegated:
    return step_packets(record, sort_by_sending(record.state.packets), event, now_ns)


def resend_and_commit(record: DeliveryRecord, event: Resend, now_ns: int) -> Delegated:
    record, effects, seen = resend(record, event, now_ns)
    record, more, steps = commit(record, (), now_ns)
    return record, (*effects, *more), (*seen, *steps)


def commit_take(record: DeliveryRecord, event: Take, now_ns: int) -> Delegated:
    return commit(record, (Change(take=event),), now_ns)


def queue_take(record: DeliveryRecord, event: Take, now_ns: int) -> Done:
    return replace(record, inbox=(*record.inbox, Change(take=event))), ()


def commit_received(record: DeliveryRecord, event: Pubrec, now_ns: int) -> Delegated:
    return commit(record, (Change(received=event),), now_ns)


def queue_received(record: DeliveryRecord, event: Pubrec, now_ns: int) -> Done:
    return replace(record, inbox=(*record.inbox, Change(received=event))), ()


def send_committed(record: DeliveryRecord, event: StateCommitted, now_ns: int) -> Delegated:
    """Mark the rows, send the messages, release the packets that the client has received."""
    steps = PacketSteps(record)
    steps.effects += (
        Ask(DATABASE, MarkDelivered(record.session, one.writer, one.epoch, one.first_number, one.last_number))
        for one in record.marks
    )
    run: list[InFlightRecord] = []
    for sent in record.outgoing:
        if sent.packet:
            run.append(steps.packets[sent.packet])
            continue
        steps.step_all(run, event, now_ns)
        run, one = [], sent.queued
        left_ns = time_left(one, event.time_ns)
        steps.effects.append(Send(record.client, Publish(0, one.message, one.filter, 0, False, left_ns)))
    steps.step_all(run, event, now_ns)
    steps.step_all(sorted((steps.packets[packet] for packet in record.received), key=place_of), event, now_ns)
    record = replace(steps.finish(record), outgoing=(), received=(), marks=())
    return record, tuple(steps.effects), tuple(steps.seen)


def send_and_commit(record: DeliveryRecord, event: StateCommitted, now_ns: int) -> Delegated:
    record, effects, seen = send_committed(record, event, now_ns)
    record, more, steps = commit(record, record.inbox, now_ns)
    return record, (*effects, *more), (*seen, *steps)


def pass_over(record: DeliveryRecord, event: StateCommitted, now_ns: int) -> Delegated:
    record, effects, seen = finish_delivered(record, event, now_ns)
    record, more, steps = send_committed(record, event, now_ns)
    return record, (*effects, *more), (*seen, *steps)


def pass_over_and_commit(record: DeliveryRecord, event: StateCommitted, now_ns: int) -> Delegated:
    record, effects, seen = pass_over(record, event, now_ns)
    record, more, steps = commit(record, record.inbox, now_ns)
    return record, (*effects, *more), (*seen, *steps)


def acknowledge(record: DeliveryRecord, event: Acknowledgement, now_ns: int) -> Delegated:
    return step_packets(record, packets_of(record, event), event, now_ns)


def acknowledge_and_commit(record: DeliveryRecord, event: Puback | Pubcomp, now_ns: int) -> Delegated:
    record, effects, seen = acknowledge(record, event, now_ns)
    record, more, steps = commit(record, (), now_ns)
    return record, (*effects, *more), (*seen, *steps)


ALWAYS = (READY, COMMITTING)

# fmt: off
ROWS = (
    #   on              from        to          do                                when              clause
    Row(Resend,         READY,      COMMITTING, Delegate(resend_and_commit),      may_send_more,     "PS-41"),
    Row(Resend,         READY,      STAY,       Delegate(resend),                 None,              "PS-41"),
    Row(Take,           READY,      COMMITTING, Delegate(commit_take),            None,              "PS-42"),
    Row(Take,           COMMITTING, STAY,       queue_take,                       None,              "PS-43"),
    Row(BlockRows,      ALWAYS,     STAY,       None,                             None,              "PS-480"),
    Row(StateCommitted, COMMITTING, COMMITTING, Delegate(pass_over_and_commit),   has_over_and_more, "PS-208"),
    Row(StateCommitted, COMMITTING, READY,      Delegate(pass_over),              has_over,          "PS-208"),
    Row(StateCommitted, COMMITTING, COMMITTING, Delegate(send_and_commit),        has_more,          "PS-44"),
    Row(StateCommitted, COMMITTING, READY,      Delegate(send_committed),         None,              "PS-44"),
    Row(Pubrec,         READY,      COMMITTING, Delegate(commit_received),        is_first_receipt,  "PS-45"),
    Row(Pubrec,         COMMITTING, STAY,       None,                             waits_already,     "PS-45"),
    Row(Pubrec,         COMMITTING, STAY,       queue_received,                   is_first_receipt,  "PS-45"),
    Row(Puback,         READY,      COMMITTING, Delegate(acknowledge_and_commit), makes_room,        "PS-46"),
    Row(Pubcomp,        READY,      COMMITTING, Delegate(acknowledge_and_commit), makes_room,        "PS-46"),
    Row(Puback,         ALWAYS,     STAY,       Delegate(acknowledge),            is_held,           "PS-46"),
    Row(Pubrec,         ALWAYS,     STAY,       Delegate(acknowledge),            is_held,           "PS-45"),
    Row(Pubcomp,        ALWAYS,     STAY,       Delegate(acknowledge),            is_held,           "PS-46"),
    Ignore((Puback, Pubrec, Pubcomp), ALWAYS,                                                        "PS-47"),
    Ignore((StateCommitted,), READY,                                                                 "PS-48"),
    Ignore((Resend,),         COMMITTING,                                                            "PS-41"),
)
# fmt: on


# -- invariants -----------------------------------------------------------------------------------------------------


def holds_what_it_may(record: DeliveryRecord) -> bool:
    """No more is in flight than the client receives, and each packet is kept under its id."""
    packets = record.state.packets
    return len(packets) <= record.receive_maximum and all(packets[key].packet == key for key in packets)


def waits_for_one_commit(record: DeliveryRecord) -> bool:
    """Only an open commit has something to send; what is taken and not sent belongs to it."""
    if record.status is READY:
        return not (record.outgoing or record.received or record.marks or record.inbox)
    open_packets = {one.packet for one in record.outgoing}
    packets = record.state.packets
    return all(packets[key].status is not TAKEN or key in open_packets for key in packets)


DELIVERY = Fsm(
    "delivery",
    protocol="persistent_sessions",
    record=DeliveryRecord,
    states=DeliveryStatus,
    initial=READY,
    rows=ROWS,
    children=(IN_FLIGHT,),
    key=lambda record: record.session,
    invariants=(
        Invariant("holds-what-it-may", "PS-49", holds_what_it_may),
        Invariant("waits-for-one-commit", "PS-40", waits_for_one_commit),
    ),
)
