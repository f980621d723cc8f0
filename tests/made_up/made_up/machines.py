"""Dispenser and taker: numbers are given out once, whoever dies."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from statemachines.kernel import (
    STAY,
    Answer,
    Ask,
    Call,
    Effects,
    Event,
    Fsm,
    Ignore,
    Message,
    Refuse,
    Request,
    Row,
    Send,
    Status,
    Tell,
    Timer,
    TimerFired,
)

JOURNAL = "journal"
RETRY_NS = 100_000_000


class Take(Message, frozen=True):
    """`taker` wants its number `n`."""

    taker: str
    n: int


class Ticket(Message, frozen=True):
    """What was asked for as `n`."""

    n: int
    number: int


class Next(Request, frozen=True):
    taker: str
    n: int


class Given(Answer, frozen=True):
    taker: str
    n: int
    number: int


class JournalState(msgspec.Struct, frozen=True):
    """`next` is free; `last`: taker -> its last n and the number that it got."""

    next: int = 1
    last: dict[str, tuple[int, int]] = {}


class Journal:
    """A number is given once: who asks again for the same gets the same."""

    name = JOURNAL

    def initial(self) -> JournalState:
        return JournalState()

    def apply(self, state: JournalState, request: Next, now_ns: int) -> tuple[JournalState, tuple[Answer, ...]]:
        n, number = state.last.get(request.taker, (0, 0))
        if request.n != n:
            number = state.next
            last = {**state.last, request.taker: (request.n, number)}
            state = JournalState(state.next + 1, last)
        return state, (Given(request.taker, request.n, number),)


class Open(Status):
    OPEN = "open"


class DispenserRecord(msgspec.Struct, frozen=True):
    id: str
    status: Open = Open.OPEN


def look_up(record: DispenserRecord, event: Take, now_ns: int) -> tuple[DispenserRecord, Effects]:
    return record, (Ask(JOURNAL, Next(event.taker, event.n)),)


def hand_out(record: DispenserRecord, event: Given, now_ns: int) -> tuple[DispenserRecord, Effects]:
    return record, (Send(event.taker, Ticket(event.n, event.number)),)


DISPENSER = Fsm(
    "dispenser",
    protocol="made_up",
    record=DispenserRecord,
    states=Open,
    initial=Open.OPEN,
    rows=(
        Row(Take, Open.OPEN, STAY, look_up, None, "MU-01"),
        Row(Given, Open.OPEN, STAY, hand_out, None, "MU-02"),
    ),
)


class Taking(Status):
    IDLE = "idle"
    ASKING = "asking"
    DONE = "done"


IDLE, ASKING, DONE = Taking


class Begin(Call, frozen=True):
    pass


class Retry(TimerFired, frozen=True):
    pass


class Got(Event, frozen=True):
    number: int


class TakerRecord(msgspec.Struct, frozen=True):
    id: str
    dispenser: str
    goal: int
    status: Taking = IDLE
    n: int = 0


def is_mine(record: TakerRecord, event: Ticket) -> bool:
    return event.n == record.n


def is_last(record: TakerRecord, event: Ticket) -> bool:
    return event.n == record.n == record.goal


def ask(record: TakerRecord, event: Event, now_ns: int) -> tuple[TakerRecord, Effects]:
    record = replace(record, n=record.n + 1)
    return again(record, event, now_ns)


def again(record: TakerRecord, event: Event, now_ns: int) -> tuple[TakerRecord, Effects]:
    return record, (Send(record.dispenser, Take(record.id, record.n)),)


def take(record: TakerRecord, event: Ticket, now_ns: int) -> tuple[TakerRecord, Effects]:
    record, asked = ask(record, event, now_ns)
    return record, (Tell(Got(event.number)), *asked)


def finish(record: TakerRecord, event: Ticket, now_ns: int) -> tuple[TakerRecord, Effects]:
    return record, (Tell(Got(event.number)),)


TAKER = Fsm(
    "taker",
    protocol="made_up",
    record=TakerRecord,
    states=Taking,
    initial=IDLE,
    rows=(
        Row(Begin, IDLE, ASKING, ask, None, "MU-03"),
        Row(Retry, ASKING, ASKING, again, None, "MU-03"),
        Row(Ticket, ASKING, DONE, finish, is_last, "MU-04"),
        Row(Ticket, ASKING, ASKING, take, is_mine, "MU-04"),
        Ignore((Ticket,), (IDLE, ASKING, DONE), "MU-05"),
        Ignore((Retry,), (IDLE, DONE), "MU-05"),
        Refuse((Begin,), (ASKING, DONE), "MU-03"),
    ),
    timers=(Timer("retry", Retry, (ASKING,), lambda record: RETRY_NS),),
)
