"""A process of a few lines: an office that begins a clerk for each visitor, up to a limit, and asks who is idle."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from statemachines import kernel

SECOND = 1_000_000_000


class Visit(kernel.Message, frozen=True, gc=False):
    visitor: str


class Question(kernel.Message, frozen=True, gc=False):
    n: int


class Reply(kernel.Message, frozen=True, gc=False):
    n: int


class Serve(kernel.Call, frozen=True, gc=False):
    visitor: str


class Check(kernel.Call, frozen=True, gc=False):
    pass


class GoHome(kernel.Call, frozen=True, gc=False):
    pass


class Served(kernel.Event, frozen=True, gc=False):
    clerk: str


class Busy(kernel.Event, frozen=True, gc=False):
    pass


class CheckClerk(kernel.LookAt, frozen=True, gc=False):
    pass


class ShiftEnd(kernel.TimerFired, frozen=True, gc=False):
    pass


class Soon(kernel.TimerFired, frozen=True, gc=False):
    pass


class ClerkStatus(kernel.Status):
    IDLE = "idle"
    BUSY = "busy"
    GONE = "gone"


class OfficeStatus(kernel.Status):
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
    clerks: kernel.Map[str, str] = kernel.Map()
    gone: int = 0


# -- a clerk --------------------------------------------------------------------------------------------------------


def welcome(record, event, now_ns):
    return replace(record, asked=0), (kernel.SetTimer("soon", now_ns), kernel.Send(event.visitor, Reply(0)))


def reply(record, event, now_ns):
    return replace(record, asked=record.asked + 1), (kernel.Send("v", Reply(event.n)),)


def say_busy(record, event, now_ns):
    return record, (kernel.Tell(Busy()),)


def leave(record, event, now_ns):
    return record, (kernel.Tell(Served(record.id)), kernel.Stop())


# fmt: off
CLERK = kernel.Fsm("clerk", record=ClerkRecord, states=ClerkStatus, initial=IDLE, final=(GONE,), rows=(
    kernel.Row(Serve,    IDLE,         BUSY, welcome,  None, "T-1"),
    kernel.Row(Question, BUSY,         kernel.STAY, reply,    lambda record, event: record.asked < 2, "T-2"),
    kernel.Row(Soon,     BUSY,         kernel.STAY, say_busy, None, "T-2"),
    kernel.Row(ShiftEnd, BUSY,         GONE, leave,    None, "T-3"),
    kernel.Row(GoHome,   (IDLE, BUSY), GONE, leave,    None, "T-3"),
    kernel.Ignore((Question, Soon, ShiftEnd), (IDLE, BUSY), "T-4"),
    kernel.Ignore((Serve,), BUSY, "T-4"),
), timers=(
    kernel.Timer("shift", ShiftEnd, (BUSY,), lambda record: SECOND, authority=True),
    kernel.Timer("soon", Soon, (BUSY,)),
))
# fmt: on


# -- the office -----------------------------------------------------------------------------------------------------


def begin_clerk(record, event, now_ns):
    number = record.number + 1
    clerk = f"{record.id}/{number}"
    record = replace(record, number=number, clerks=record.clerks.set(clerk, event.message.visitor))
    return record, (kernel.Begin(clerk, "clerk", ClerkRecord(clerk)), kernel.Feed(clerk, Serve(event.message.visitor)))


def forget_clerk(record, event, now_ns):
    return replace(record, clerks=record.clerks.delete(event.clerk), gone=record.gone + 1), ()


def look_at_all(record, event, now_ns):
    return record, tuple(kernel.Feed(record.id, CheckClerk(clerk)) for clerk in sorted(record.clerks))


def send_home(record, event, now_ns):
    return record, (kernel.Feed(event.party, GoHome()),)


def is_visit(record, event):
    return isinstance(event.message, Visit) and len(record.clerks) < record.limit


# fmt: off
OFFICE_ROWS = (
    kernel.Row(kernel.Arrived,    OPEN, kernel.STAY, begin_clerk,  is_visit, "T-5"),
    kernel.Ignore((kernel.Arrived,), OPEN, "T-6"),
    kernel.Row(Served,     OPEN, kernel.STAY, forget_clerk, None, "T-7"),
    kernel.Row(Check,      OPEN, kernel.STAY, look_at_all,  None, "T-8"),
    kernel.Row(CheckClerk, OPEN, kernel.STAY, send_home,    lambda record, event: event.seen > 0, "T-8"),
    kernel.Ignore((CheckClerk,), OPEN, "T-8"),
)
# fmt: on
OFFICE_MACHINE = kernel.Fsm("office", record=OfficeRecord, states=OfficeStatus, initial=OPEN, rows=OFFICE_ROWS)
CLERKS = kernel.PartyKind("clerk", CLERK, most=2, view=lambda record: record.asked)
ROUTES = (
    kernel.EventRoute((Question,), (kernel.OUTSIDE,), kernel.ADDRESSEE, "T-2"),
    kernel.EventRoute((Served,), ("clerk",), kernel.PROCESS, "T-7", copied=True),
)
OFFICE = kernel.Process("office", OFFICE_MACHINE, kinds=(CLERKS,), routes=ROUTES)


def declare(kinds=(CLERKS,), routes=ROUTES):
    return kernel.Process("office", OFFICE_MACHINE, kinds=kinds, routes=routes)
