"""Access judge: the logs of all processes of a run, fed to the machines that watch cursors and blocks (`observers`).

A log tells of an access before it is made and after, so the order between processes is known only so far.  It is put so
that it cannot contradict what happened: whoever takes a cursor, or moves a head, did so before the step that follows;
whoever frees a cursor did so after asking for it.  What a process was about to do when it was killed happened if what
others did afterwards says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any, NamedTuple

from statemachines.cursor_recovery.memory import (
    FREE,
    HEADER,
    READ_HEAD,
    WRITE_HEAD,
    CompareAndSwap,
    CopyIn,
    Queue,
    Store,
    Stored,
    Swapped,
)
from statemachines.cursor_recovery.observers import Observers
from statemachines.kernel import Answer, InvariantViolated, ProtocolError, Request
from statemachines.testing.cursor_recovery.crash_judge import CrashViolation
from statemachines.trace import COLUMNS
from statemachines.trace.log import Log

_PLACE = {name: place - 2 for place, name in enumerate(COLUMNS)}
_CHANGES = ("store", "compare_and_swap", "copy_in")
_MARKED = HEADER - 4
"""The cell with which a block is marked, from its beginning."""


class Made(NamedTuple):
    """An access that changes something, or (without a request) the death of an owner, at `time_ns` at the latest, of a
    cursor that is freed at the earliest; `answer` None: its process was killed before it said."""

    time_ns: int
    life: str
    number: int
    slot: int
    incarnation: int
    request: Request | None
    answer: Answer | None
    source: str


def judge_accesses(queue: Queue, logs: Iterable[Log]) -> list[CrashViolation]:
    """What was done that must never be: the first of it, since what follows rests on it."""
    observers = Observers(queue)
    for one in sorted(_settle(queue, [made for log in logs for made in _list_made(log)]), key=lambda one: one[:3]):
        try:
            if one.request is None:
                observers.observe_death(one.slot, one.incarnation)
            elif one.answer is not None:
                observers.observe_access(one.slot, one.incarnation, one.request, one.answer, one.time_ns)
        except (ProtocolError, InvariantViolated) as error:
            return [CrashViolation("EXCL", f"{one.life}: {one.request or 'died'}: {error}")]
    return []


def _list_made(log: Log) -> Iterator[Made]:
    """What a life did, in its order."""
    rows = [row for row in map(_Row, log.rows) if row["event"] not in ("pause", "resume")]
    owner = (-1, 0)
    for number, (row, after) in enumerate(pairwise([*rows, None])):
        assert row is not None
        if row["event"] == "attached":
            owner = (row["grant"], row["term"])
        elif row["kind"] == "fault" and row["event"] == "kill":
            yield Made(row["t_ns"], log.head.life, number, *owner, None, None, "")
        elif row["kind"] == "ask" and row["event"] in _CHANGES:
            request, ended = _request_of(row), _end_of(after)
            answer = None if ended is None else _answer_of(ended)
            frees = isinstance(request, CompareAndSwap) and request.address.endswith("/state") and request.value == FREE
            time_ns = row["t_ns"] if frees or ended is None else ended["t_ns"]
            source = row["event"] if ended is None else ended["source"]
            yield Made(time_ns, log.head.life, number, *owner, request, answer, source)


class _Row:
    """A row by the names of its columns."""

    def __init__(self, row: tuple[Any, ...]) -> None:
        self._row = row

    def __getitem__(self, name: str) -> Any:
        return self._row[_PLACE[name]]


def _end_of(after: _Row | None) -> _Row | None:
    return after if after is not None and after["kind"] == "step" else None


def _request_of(row: _Row) -> Request:
    if row["event"] == "copy_in":
        return CopyIn(row["first"], bytes(row["last"] + 1 - row["first"]))
    word = row["first"] % (1 << 64)
    if row["event"] == "store":
        return Store(row["key"], word)
    return CompareAndSwap(row["key"], word, row["last"] % (1 << 64))


def _answer_of(row: _Row) -> Answer:
    return Swapped(bool(row["first"])) if row["event"] == "swapped" else Stored()


def _settle(queue: Queue, made: list[Made]) -> Iterator[Made]:
    """All that happened; of what the killed were about to do, that which others came upon."""
    swaps = [
        (one, one.request)
        for one in made
        if isinstance(one.request, CompareAndSwap) and isinstance(one.answer, Swapped) and one.answer.done
    ]
    for one in made:
        if one.request is None or one.answer is not None:
            yield one
        elif isinstance(one.request, CompareAndSwap) and _was_swapped(one, one.request, swaps):
            yield one._replace(answer=Swapped(True))
        elif isinstance(one.request, Store) and _was_marked(queue, one.request, swaps):
            yield one._replace(answer=Stored())


Swaps = list[tuple[Made, CompareAndSwap]]


def _was_swapped(one: Made, request: CompareAndSwap, swaps: Swaps) -> bool:
    same = [(other, swap) for other, swap in swaps if swap.address == request.address]
    if request.address in (READ_HEAD, WRITE_HEAD):  # in the end all is taken, so what was reserved was passed
        passed = any(swap.address == READ_HEAD and swap.value > request.expected for _, swap in swaps)
        return all(swap.expected != request.expected for _, swap in same) and (request.address == READ_HEAD or passed)
    if request.value != FREE:
        return any(swap.expected == request.value for _, swap in same)
    is_reclaimed = any(swap.expected == request.expected for _, swap in same)
    return not is_reclaimed and any(other.time_ns > one.time_ns and swap.expected == FREE for other, swap in same)


def _was_marked(queue: Queue, request: Store, swaps: Swaps) -> bool:
    """A reader took the block whose mark this store completes: it saw it."""
    return any(
        swap.address == READ_HEAD
        and other.source == "6_move_head"
        and request.address == queue.address(swap.expected + _MARKED)
        for other, swap in swaps
    )
