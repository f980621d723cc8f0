"""A desk that lends a tool to two workers: the protocol of docs/tutorials/protocol.md.

cd examples
gapless check desk:CALM
gapless check desk:COPIES      the network copies messages: two workers work at a time
gapless check desk:NUMBERED    each loan has a number: they do not
"""

from __future__ import annotations

from functools import partial

import msgspec
from msgspec.structs import replace

from statemachines.kernel import Call, Fsm, Ignore, Message, Row, Send, Status
from statemachines_spec import Always, FsmActor, Network, Sometimes, System

TURNS = 2
"""A worker takes the tool at most so often: what is numbered must end for an exhaustive search."""


class TakeTool(Message, frozen=True):
    """To the desk: this worker wants the tool, for its turn of this number."""

    who: str
    turn: int


class ToolGiven(Message, frozen=True):
    """To a worker: the tool is yours for this turn."""

    turn: int


class ToolBack(Message, frozen=True):
    """To the desk: this worker has finished this turn."""

    who: str
    turn: int


class WantTool(Call, frozen=True):
    """A worker wants the tool."""


class FinishWork(Call, frozen=True):
    """A worker has finished."""


class DeskStatus(Status):
    FREE = "free"
    LENT = "lent"


class WorkerStatus(Status):
    IDLE = "idle"
    WAITING = "waiting"
    WORKING = "working"


FREE, LENT = DeskStatus
IDLE, WAITING, WORKING = WorkerStatus


class DeskRecord(msgspec.Struct, frozen=True):
    """`loan`: the worker and the turn that the tool was lent for last; `done`: (worker, turn) that are over."""

    status: DeskStatus = FREE
    loan: tuple[str, int] = ("", 0)
    done: tuple[tuple[str, int], ...] = ()


class WorkerRecord(msgspec.Struct, frozen=True):
    """`turn`: how often it has wanted the tool."""

    name: str
    status: WorkerStatus = IDLE
    turn: int = 0


def lend(record, event, now_ns):
    return replace(record, loan=(event.who, event.turn)), (Send(event.who, ToolGiven(event.turn)),)


def take_back(record, event, now_ns):
    return replace(record, done=tuple(sorted({*record.done, record.loan}))), ()


def ask(record, event, now_ns):
    turn = record.turn + 1
    return replace(record, turn=turn), (Send("desk", TakeTool(record.name, turn)),)


def give_back(record, event, now_ns):
    return record, (Send("desk", ToolBack(record.name, record.turn)),)


def is_new(record, event):
    return (event.who, event.turn) not in record.done


def is_lent(record, event):
    return (event.who, event.turn) == record.loan


def is_this_turn(record, event):
    return event.turn == record.turn


def declare_desk(numbered):
    """The desk; `numbered`: it looks at the numbers of turns."""
    new, lent = (is_new, is_lent) if numbered else (None, None)
    rows = (
        #   on    from  to    do         when  clause
        Row(TakeTool, FREE, LENT, lend, new, "D-1"),
        Row(ToolBack, LENT, FREE, take_back, lent, "D-2"),
        Ignore((TakeTool,), (FREE, LENT) if numbered else LENT, "D-3"),
        Ignore((ToolBack,), (FREE, LENT) if numbered else FREE, "D-3"),
    )
    return Fsm("desk", record=DeskRecord, states=DeskStatus, initial=FREE, rows=rows)


def declare_worker(numbered):
    """The worker; `numbered`: it looks at the numbers of turns."""
    rows = (
        Row(WantTool, IDLE, WAITING, ask, None, "D-4"),
        Row(ToolGiven, WAITING, WORKING, None, is_this_turn if numbered else None, "D-5"),
        Row(FinishWork, WORKING, IDLE, give_back, None, "D-6"),
        Ignore((ToolGiven,), tuple(WorkerStatus) if numbered else (IDLE, WORKING), "D-3"),
        Ignore((WantTool,), (WAITING, WORKING), "D-3"),
        Ignore((FinishWork,), (IDLE, WAITING), "D-3"),
    )
    return Fsm("worker", record=WorkerRecord, states=WorkerStatus, initial=IDLE, rows=rows)


def list_calls(record):
    """What the application of a worker may call now."""
    if record.status is IDLE and record.turn < TURNS:
        return (WantTool(),)
    return (FinishWork(),) if record.status is WORKING else ()


def build_system(network, numbered):
    """Two workers, a desk, and what must hold."""
    worker = partial(FsmActor, calls=list_calls)
    workers = [worker(name, declare_worker(numbered), WorkerRecord(name)) for name in ("w1", "w2")]
    working = tuple(one.view(lambda record: record.status is WORKING, 2) for one in workers)
    turns = tuple(one.view(lambda record: record.turn, TURNS + 1) for one in workers)
    properties = (
        Always("one works", "two workers never work at a time", working, lambda *seen: sum(seen) <= 1),
        Sometimes("each wants", "both workers have wanted it", turns, lambda *seen: min(seen) > 0),
    )
    actors = (*workers, FsmActor("desk", declare_desk(numbered), DeskRecord()))
    return System("desk", "two workers share a tool", actors, network, properties=properties)


DESK = declare_desk(True)
CALM = build_system(Network(4, lossy=False, duplicating=False), numbered=False)
COPIES = build_system(Network(3, lossy=False), numbered=False)
NUMBERED = build_system(Network(3, lossy=False), numbered=True)
