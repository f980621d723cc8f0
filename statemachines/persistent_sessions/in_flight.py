"""InFlight: one message of QoS 1 or 2 on its way to the client (page: "Subscriber-resume machine", rule 8).

`taken -> sent -> done` with QoS 1, `taken -> sent -> received -> released -> done` with QoS 2.  Nothing goes out of
`taken` or `received` before the session state was committed: a packet that was sent and not committed could come
again under another id, and one that was released and not committed could come again as new.  What is over in `taken`
is done; what was sent goes on to its end, however long it takes.
"""

from __future__ import annotations

from statemachines.kernel import STAY, Call, Effects, Event, Fsm, Ignore, Row, Send
from statemachines.persistent_sessions.in_flight_record import (
    DONE,
    RECEIVED,
    RELEASED,
    SENT,
    TAKEN,
    InFlightRecord,
    InFlightStatus,
)
from statemachines.persistent_sessions.message import Puback, Pubcomp, Publish, Pubrec, Pubrel, time_left
from statemachines.persistent_sessions.request import StateCommitted

Done = tuple[InFlightRecord, Effects]


class Resend(Call, frozen=True, gc=False):
    """The client is connected anew; `time_ns`: what the clock of the database showed last."""

    time_ns: int = 0


class Over(Call, frozen=True, gc=False):
    """Its time was over when it was to be committed; the committed state is without it."""


# -- guards ---------------------------------------------------------------------------------------------------------


def is_at_least_once(record: InFlightRecord, event: Event) -> bool:
    return record.queued.qos == 1


def is_exactly_once(record: InFlightRecord, event: Event) -> bool:
    return record.queued.qos == 2


# -- actions --------------------------------------------------------------------------------------------------------


def send(record: InFlightRecord, event: StateCommitted | Resend, now_ns: int) -> Done:
    one, is_again = record.queued, isinstance(event, Resend)
    left_ns = time_left(one, event.time_ns) if one.until_ns else None
    return record, (Send(record.client, Publish(record.packet, one.message, one.filter, one.qos, is_again, left_ns)),)


def send_again(record: InFlightRecord, event: Resend, now_ns: int) -> Done:
    return send(record, event, now_ns)


def release(record: InFlightRecord, event: Event, now_ns: int) -> Done:
    return record, (Send(record.client, Pubrel(record.packet)),)


# fmt: off
ROWS = (
    #   on              from               to        do          when              clause
    Row(StateCommitted, TAKEN,             SENT,     send,       None,             "PS-50"),
    Row(Over,           TAKEN,             DONE,     None,       None,             "PS-208"),
    Row(StateCommitted, RECEIVED,          RELEASED, release,    None,             "PS-52"),
    Row(Puback,         SENT,              DONE,     None,       is_at_least_once, "PS-51"),
    Row(Pubrec,         SENT,              RECEIVED, None,       is_exactly_once,  "PS-52"),
    Row(Pubrec,         RELEASED,          STAY,     release,    None,             "PS-54"),
    Row(Pubcomp,        RELEASED,          DONE,     None,       None,             "PS-53"),
    Row(Resend,         (TAKEN, SENT),     SENT,     send_again, None,             "PS-55"),
    Row(Resend,         (RECEIVED, RELEASED), RELEASED, release, None,             "PS-55"),
    Ignore((StateCommitted,), (SENT, RELEASED),                                    "PS-50"),
    Ignore((Over,),           (SENT, RECEIVED, RELEASED),                          "PS-209"),
    Ignore((Puback,),         (TAKEN, SENT, RECEIVED, RELEASED),                   "PS-56"),
    Ignore((Pubrec,),         (TAKEN, SENT, RECEIVED),                             "PS-56"),
    Ignore((Pubcomp,),        (TAKEN, SENT, RECEIVED),                             "PS-56"),
)
# fmt: on

IN_FLIGHT = Fsm(
    "in_flight_message",
    protocol="persistent_sessions",
    record=InFlightRecord,
    states=InFlightStatus,
    initial=TAKEN,
    final=(DONE,),
    rows=ROWS,
    key=lambda record: str(record.packet),
)
