"""A process of a few lines: an office that begins a clerk for each visitor, up to a limit, and asks who is idle.

A door with a lock and a bell: the smallest machine that uses every kind of row.
"""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from statemachines.kernel import (
    ADDRESSEE,
    ANY,
    OUTSIDE,
    PROCESS,
    STAY,
    Arrived,
    Begin,
    Call,
    Effects,
    EventRoute,
    Feed,
    Fsm,
    Ignore,
    Invariant,
    LookAt,
    Map,
    Message,
    PartyKind,
    Process,
    Refuse,
    Row,
    Send,
    SetTimer,
    Status,
    Stop,
    Tell,
    Timer,
    TimerFired,
)
from statemachines.kernel.effect import Effect
from statemachines.kernel.event import Event

SECOND = 1_000_000_000


class Visit(Message, frozen=True, gc=False):
    visitor: str


class Question(Message, frozen=True, gc=False):
    n: int


class Reply(Message, frozen=True, gc=False):
    n: int


class Serve(Call, frozen=True, gc=False):
    visitor: str


class Check(Call, frozen=True, gc=False):
    pass


class GoHome(Call, frozen=True, gc=False):
    pass


class Served(Event, frozen=True, gc=False):
    clerk: str


class Busy(Event, frozen=True, gc=False):
    pass


class CheckClerk(LookAt, frozen=True, gc=False):
    pass


class ShiftEnd(TimerFired, frozen=True, gc=False):
    pass


class Soon(TimerFired, frozen=True, gc=False):
    pass


class ClerkStatus(Status):
    IDLE = "idle"
    BUSY = "busy"
    GONE = "gone"


class OfficeStatus(Status):
    OPEN = "open"


IDLE, BUSY, GONE = ClerkStatus
OPEN = OfficeStatus.OPEN


class ClerkRecord(msgspec.Struct, frozen=True, gc=False):
    id: str
    status: ClerkStatus = IDLE
    asked: int = 0


class OfficeRecord(msgspec.Struct, frozen=True, gc=False):
    id: str
    limit: int = 2
    status: OfficeStatus = OPEN
    number: int = 0
    clerks: Map[str, str] = Map()
    gone: int = 0


# -- a clerk --------------------------------------------------------------------------------------------------------


def welcome(record, event, now_ns):
    return replace(record, asked=0), (SetTimer("soon", now_ns), Send(event.visitor, Reply(0)))


def reply(record, event, now_ns):
    return replace(record, asked=record.asked + 1), (Send("v", Reply(event.n)),)


def say_busy(record, event, now_ns):
    return record, (Tell(Busy()),)


def leave(record, event, now_ns):
    return record, (Tell(Served(record.id)), Stop())


# fmt: off
CLERK = Fsm("clerk", record=ClerkRecord, states=ClerkStatus, initial=IDLE, final=(GONE,), rows=(
    Row(Serve,    IDLE,         BUSY, welcome,  None, "T-1"),
    Row(Question, BUSY,         STAY, reply,    lambda record, event: record.asked < 2, "T-2"),
    Row(Soon,     BUSY,         STAY, say_busy, None, "T-2"),
    Row(ShiftEnd, BUSY,         GONE, leave,    None, "T-3"),
    Row(GoHome,   (IDLE, BUSY), GONE, leave,    None, "T-3"),
    Ignore((Question, Soon, ShiftEnd), (IDLE, BUSY), "T-4"),
    Ignore((Serve,), BUSY, "T-4"),
), timers=(
    Timer("shift", ShiftEnd, (BUSY,), lambda record: SECOND, authority=True),
    Timer("soon", Soon, (BUSY,)),
))
# fmt: on


# -- the office -----------------------------------------------------------------------------------------------------


def begin_clerk(record, event, now_ns):
    number = record.number + 1
    clerk = f"{record.id}/{number}"
    record = replace(record, number=number, clerks=record.clerks.set(clerk, event.message.visitor))
    return record, (Begin(clerk, "clerk", ClerkRecord(clerk)), Feed(clerk, Serve(event.message.visitor)))


def forget_clerk(record, event, now_ns):
    return replace(record, clerks=record.clerks.delete(event.clerk), gone=record.gone + 1), ()


def look_at_all(record, event, now_ns):
    return record, tuple(Feed(record.id, CheckClerk(clerk)) for clerk in sorted(record.clerks))


def send_home(record, event, now_ns):
    return record, (Feed(event.party, GoHome()),)


def is_visit(record, event):
    return isinstance(event.message, Visit) and len(record.clerks) < record.limit


# fmt: off
OFFICE_ROWS = (
    Row(Arrived,    OPEN, STAY, begin_clerk,  is_visit, "T-5"),
    Ignore((Arrived,), OPEN, "T-6"),
    Row(Served,     OPEN, STAY, forget_clerk, None, "T-7"),
    Row(Check,      OPEN, STAY, look_at_all,  None, "T-8"),
    Row(CheckClerk, OPEN, STAY, send_home,    lambda record, event: event.seen > 0, "T-8"),
    Ignore((CheckClerk,), OPEN, "T-8"),
)
# fmt: on


def make_machine(rows):
    return Fsm("office", record=OfficeRecord, states=OfficeStatus, initial=OPEN, rows=rows)


OFFICE_MACHINE = make_machine(OFFICE_ROWS)
CLERKS = PartyKind("clerk", CLERK, most=2, view=lambda record: record.asked)
ROUTES = (
    EventRoute((Question,), (OUTSIDE,), ADDRESSEE, "T-2"),
    EventRoute((Served,), ("clerk",), PROCESS, "T-7", copied=True),
)
OFFICE = Process("office", OFFICE_MACHINE, kinds=(CLERKS,), routes=ROUTES)


def declare(kinds=(CLERKS,), routes=ROUTES, rows=OFFICE_ROWS):
    return Process("office", make_machine(rows), kinds=kinds, routes=routes)


class Door(Status):
    OPEN = "open"
    CLOSED = "closed"
    GONE = "gone"


class Push(Call, frozen=True):
    force: int = 1


class Pull(Call, frozen=True):
    pass


class Knock(Message, frozen=True):
    who: str


class Remove(Call, frozen=True):
    pass


class Draught(TimerFired, frozen=True):
    pass


class Bell(TimerFired, frozen=True):
    pass


class Rang(Event, frozen=True):
    count: int


class DoorRecord(msgspec.Struct, frozen=True):
    status: Door = Door.OPEN
    knocks: int = 0
    pushes: int = 0


def count_push(record: DoorRecord, event: Push, now_ns: int) -> tuple[DoorRecord, Effects]:
    return replace(record, pushes=record.pushes + 1), ()


def answer(record: DoorRecord, event: Knock, now_ns: int) -> tuple[DoorRecord, Effects]:
    record = replace(record, knocks=record.knocks + 1)
    return record, (Send(event.who, Knock("door")), SetTimer("bell", now_ns + 5))


def ring(record: DoorRecord, event: Bell, now_ns: int) -> tuple[DoorRecord, Effects]:
    return record, (Tell(Rang(record.knocks)),)


def stop(record: DoorRecord, event: Remove, now_ns: int) -> tuple[DoorRecord, Effects]:
    effect: Effect = Stop()
    return record, (effect,)


def is_strong(record: DoorRecord, event: Push) -> bool:
    return event.force > 1


# fmt: off
ROWS = (
    #   on       from         to           do          when       clause
    Row(Push,    Door.OPEN,   Door.CLOSED, count_push, is_strong, "T-1"),
    Row(Push,    Door.OPEN,   STAY,        count_push, None,      "T-2"),
    Row(Pull,    Door.OPEN,   Door.OPEN,   None,       None,      "T-3"),
    Row(Pull,    Door.CLOSED, Door.OPEN,   None,       None,      "T-4"),
    Row(Draught, Door.OPEN,   Door.CLOSED, None,       None,      "T-5"),
    Row(Knock,   Door.CLOSED, STAY,        answer,     None,      "T-6"),
    Row(Bell,    Door.CLOSED, STAY,        ring,       None,      "T-7"),
    Row(Remove,  ANY,         Door.GONE,   stop,       None,      "T-8"),
    Ignore((Bell, Knock),     Door.OPEN,   "T-9"),
    Ignore((Draught,),        Door.CLOSED, "T-9"),
    Refuse((Push,),           Door.CLOSED, "T-10"),
)
# fmt: on

DOOR = Fsm(
    "door",
    record=DoorRecord,
    states=Door,
    initial=Door.OPEN,
    final=(Door.GONE,),
    rows=ROWS,
    timers=(
        Timer("draught", Draught, (Door.OPEN,), lambda record: 100),
        Timer("bell", Bell, (Door.CLOSED,)),
    ),
    invariants=(Invariant("few-knocks", "T-6", lambda record: record.knocks < 3),),
)
