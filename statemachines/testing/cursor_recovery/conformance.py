"""Conformance: what others may do otherwise who implement a writer or a reader of the queue, and what they meet in the
shared memory.

The memory is a service: each access is an Ask, and its answer is the next input (`memory_scene`).

MemoryScene: one operation over a shared memory, which others change meanwhile, as far as the operation can tell.

    scene = MemoryScene(READER, new_reader(QUEUE, 0, 1), (Read(),), memory, (Meanwhile(Store(READ_HEAD, 20)),))
    scene.list_inputs(record)                                  # every answer that the memory may give in this state

The memory is the pure service.  At any moment each change of others may happen, once.  All that can come of it is
tabulated: for each record the answers that follow.
"""

from __future__ import annotations

from collections import deque
from functools import cached_property
from typing import Any, Final

import msgspec

from statemachines.cursor_recovery.block import commit_word
from statemachines.cursor_recovery.memory import (
    CELL,
    FREE,
    LOST,
    NONE,
    READ_HEAD,
    WRITE_HEAD,
    CompareAndSwap,
    Copied,
    CopyIn,
    CopyOut,
    Load,
    Loaded,
    Memory,
    Queue,
    Store,
    Stored,
    Swapped,
    incarnation_of,
    lock_of,
    messages_of,
    position_of,
    state_of,
    token,
)
from statemachines.cursor_recovery.operation import READ, WRITE
from statemachines.cursor_recovery.reader import READER, Read, ReadDone, Skipped, Taken, new_reader
from statemachines.cursor_recovery.writer import WRITER, Reserved, Write, WriteDone, new_writer
from statemachines.kernel import Ask, Event, Fsm, Map, Request
from statemachines.testing.conformance.interface import Alphabet
from statemachines.testing.conformance.relation import Ranged, Relation
from statemachines.testing.conformance.role import ConformanceRole, Start
from statemachines_spec.explorer.actor import Timing

Words = Map[str, int]


class Meanwhile(msgspec.Struct, frozen=True):
    """What others do between two accesses of ours, at once."""

    requests: tuple[Request, ...]


class Moment(msgspec.Struct, frozen=True):
    """The `record`, what it has asked, the memory, and the changes that are still to come."""

    record: Any
    asked: Request | None
    words: tuple[tuple[str, int], ...]
    left: tuple[Meanwhile, ...]


class MemoryScene:
    """`record` of the machine `fsm`, told one of `calls`, over `words`, at `now_ns`; `others` may happen meanwhile."""

    def __init__(
        self,
        fsm: Fsm[Any],
        record: Any,
        calls: tuple[Event, ...],
        words: Words,
        others: tuple[Meanwhile, ...] = (),
        now_ns: int = 0,
    ) -> None:
        self.fsm = fsm
        self.record = record
        self.calls = calls
        self.memory = Memory(record.queue)
        self.now_ns = now_ns
        self._first = Moment(record, None, tuple(sorted(words.items())), others)

    def list_inputs(self, record: Any) -> tuple[Event, ...]:
        """What may be told in this state: the calls, or the answers; nothing where no run leads."""
        return self._answers.get(record, ())

    @cached_property
    def _answers(self) -> dict[Any, tuple[Event, ...]]:
        found: dict[Any, dict[Event, None]] = {}
        queue, seen = deque([self._first]), {self._first}
        while queue:
            for record, event, after in self._next(queue.popleft()):
                if event is not None:
                    found.setdefault(record, {})[event] = None
                if after not in seen:
                    seen.add(after)
                    queue.append(after)
        return {record: tuple(events) for record, events in found.items()}

    def _next(self, moment: Moment) -> list[tuple[Any, Event | None, Moment]]:
        """What may happen at a moment, and the moments after that."""
        if moment.record.status in self.fsm.final:
            return []
        found: list[tuple[Any, Event | None, Moment]] = []
        for other in moment.left:
            words = Map(moment.words)
            for request in other.requests:
                words, _ = self.memory.apply(words, request, self.now_ns)
            left = tuple(one for one in moment.left if one is not other)
            after = Moment(moment.record, moment.asked, tuple(sorted(words.items())), left)
            found.append((moment.record, None, after))
        if moment.asked is None:
            return found + [self._feed(moment, event, moment.words) for event in self.calls]
        words, (answer,) = self.memory.apply(Map(moment.words), moment.asked, self.now_ns)
        return [*found, self._feed(moment, answer, tuple(sorted(words.items())))]

    def _feed(
        self, moment: Moment, event: Event, words: tuple[tuple[str, int], ...]
    ) -> tuple[Any, Event | None, Moment]:
        step = self.fsm.step(moment.record, event, 0)
        asked = next((effect.request for effect in step.effects if isinstance(effect, Ask)), None)
        return moment.record, event, Moment(step.record, asked, words, moment.left)


def play_accesses(fsm: Fsm[Any], record: Any, call: Event, words: Words, now_ns: int, accesses: int = 1_000) -> Words:
    """The memory after so many accesses of an operation that nobody disturbs: it ends, or dies there."""
    memory = Memory(record.queue)
    step = fsm.step(record, call, 0)
    for _ in range(accesses):
        asked = next((effect.request for effect in step.effects if isinstance(effect, Ask)), None)
        if asked is None:
            break
        words, (answer,) = memory.apply(words, asked, now_ns)
        step = fsm.step(step.record, answer, 0)
    return words


def change_words(before: Words, after: Words) -> Meanwhile:
    """The change of the memory from one state to another, at once."""
    return Meanwhile(tuple(Store(word, value) for word, value in sorted(after.items()) if before.get(word, 0) != value))


QUEUE: Final = Queue(capacity=64)
BY_AGE: Final = Queue(capacity=64, threshold_only=True)
YOUNG_NS: Final = 1_000_000_000
AGED_NS: Final = 10_000_000_000
"""What the common clock says: cursors that were taken at 0 are young, or aged."""
US, THEM, DEAD = 0, 1, 2
"""Slots: ours, that of a process that lives, that of one that does not."""
WRITES: Final = (Write(b"ABCD"), Write(b""), Write(b"some text", 2), Write(bytes(49)))
READS: Final = (Read(),)

# -- what lies in the memory ------------------------------------------------------------------------------------------


def make_memory(queue: Queue = QUEUE, read_head: int = 0, write_head: int = 0) -> Words:
    """An empty queue, and who lives."""
    words = Memory(queue).initial().set(READ_HEAD, read_head).set(WRITE_HEAD, write_head)
    for slot in (US, THEM):
        words = words.set(lock_of(slot), 1).set(incarnation_of(slot), 1)
    return words


def with_cursor(words: Words, pool: str, cursor: int, slot: int, position: int = NONE, life: int = 1) -> Words:
    """The memory with a cursor that somebody took at 0; a reader's block holds two messages."""
    words = words.set(state_of(pool, cursor), token(slot, life, 0)).set(position_of(pool, cursor), position)
    return words.set(messages_of(cursor), 2) if pool == READ else words


def write_block(words: Words, event: Write, slot: int = THEM, accesses: int = 1_000) -> Words:
    """The memory after a write of somebody, who began at 0 and dies after so many accesses."""
    return play_accesses(WRITER, new_writer(QUEUE, slot, 1), event, words, 0, accesses)


RESERVED, SIZED, HALF_MARKED, MARKED = 11, 12, 14, 15
"""After so many accesses of an undisturbed write the head is moved, its block sized, half marked, marked."""


def with_left_block(accesses: int, slot: int = DEAD) -> Words:
    """The memory with a block that a writer has not finished, and a whole one behind it."""
    words = write_block(make_memory(), Write(b"AAAA"), slot, accesses)
    return write_block(words, Write(b"BBBB"))


def with_marks(*marks: tuple[int, int, int | None]) -> Words:
    """The memory with a block that was left unmarked, some of whose cells look like the begin of a block: for each its
    position, how many halves of the mark are there, and the size (None: as it was)."""
    words = write_block(make_memory(), Write(bytes(24)), DEAD, RESERVED).set(state_of(WRITE, 0), FREE)
    for position, halves, size in marks:
        cells = dict(zip((2, 3), commit_word(position)[:halves], strict=False)) | ({} if size is None else {0: size})
        for cell, value in cells.items():
            words = words.set(QUEUE.address(position + cell * CELL), value)
    return words


# -- what others do meanwhile ---------------------------------------------------------------------------------------


def take_cursor(pool: str, cursor: int = 0) -> Meanwhile:
    """Somebody takes the cursor of the pool, or takes it away from us."""
    return Meanwhile((Store(state_of(pool, cursor), token(THEM, 1, AGED_NS)),))


def free_cursor(pool: str) -> Meanwhile:
    """Somebody frees the first cursor of the pool."""
    return Meanwhile((Store(state_of(pool, 0), FREE),))


def move_heads(read_head: int, write_head: int) -> Meanwhile:
    """Others read and write so far."""
    return Meanwhile((Store(READ_HEAD, read_head), Store(WRITE_HEAD, write_head)))


LOSES: Final = Meanwhile((Store(LOST, 5),))


def make_scene(
    name: str,
    record: Any,
    calls: tuple[Event, ...],
    words: Words,
    *others: Meanwhile,
    now_ns: int = AGED_NS,
) -> Start:
    """A system: our operation, the memory, and what others do."""
    return Start(
        name,
        record,
        MemoryScene(WRITER if record.pool == WRITE else READER, record, calls, words, others, now_ns).list_inputs,
    )


def start_write(
    name: str, words: Words, *others: Meanwhile, calls: int = 1, queue: Queue = QUEUE, now_ns: int = AGED_NS
) -> Start:
    """A write of ours."""
    return make_scene(name, new_writer(queue, US, 1), WRITES[:calls], words, *others, now_ns=now_ns)


def start_read(
    name: str, words: Words, *others: Meanwhile, queue: Queue = QUEUE, slice_bytes: int = 1 << 18, now_ns: int = AGED_NS
) -> Start:
    """A read of ours."""
    return make_scene(name, new_reader(queue, US, 1, slice_bytes), READS, words, *others, now_ns=now_ns)


BEHIND: Final = make_memory(QUEUE, 20, 64)
"""A queue in which a reader at 0 is in the way of the next block, and one at 20 is not."""
CROWDED: Final = with_cursor(with_cursor(make_memory(), WRITE, 0, DEAD), WRITE, 1, THEM)
ONE: Final = write_block(make_memory(), Write(b"ABCD"))

WRITER_STARTS: Final = (
    start_write("an empty queue", make_memory(), take_cursor(WRITE), move_heads(0, 20), calls=4),
    start_write("a full queue", make_memory(QUEUE, 0, 64), take_cursor(WRITE), move_heads(20, 64)),
    start_write("a queue that goes on", make_memory(), move_heads(84, 104)),
    start_write("the end of the area", make_memory(QUEUE, 44, 52), calls=3),
    start_write("readers that leave room", with_cursor(with_cursor(BEHIND, READ, 0, THEM, 20), READ, 1, THEM)),
    start_write(
        "a young reader in the way", with_cursor(BEHIND, READ, 0, THEM, 0), take_cursor(WRITE), now_ns=YOUNG_NS
    ),
    start_write("a living reader in the way", with_cursor(BEHIND, READ, 1, THEM, 0), take_cursor(WRITE)),
    start_write("a dead reader in the way", with_cursor(BEHIND, READ, 0, DEAD, 0), free_cursor(READ), LOSES),
    start_write("a reborn reader in the way", with_cursor(BEHIND, READ, 0, THEM, 0, 2), take_cursor(READ)),
    start_write("a dead writer", CROWDED, free_cursor(WRITE), take_cursor(WRITE)),
    start_write(
        "a dead last writer",
        with_cursor(with_cursor(make_memory(), WRITE, 0, THEM), WRITE, 1, DEAD),
        take_cursor(WRITE, 1),
    ),
    start_write("a free last cursor", with_cursor(make_memory(), WRITE, 0, THEM), take_cursor(WRITE, 1)),
    start_write("reborn writers", with_cursor(with_cursor(make_memory(), WRITE, 0, THEM), WRITE, 1, THEM, NONE, 2)),
    start_write("living writers", with_cursor(with_cursor(make_memory(), WRITE, 0, THEM), WRITE, 1, THEM)),
    start_write(
        "young writers", with_cursor(with_cursor(make_memory(), WRITE, 0, DEAD), WRITE, 1, DEAD), now_ns=YOUNG_NS
    ),
    start_write("writers by age", with_cursor(make_memory(BY_AGE), WRITE, 0, THEM), queue=BY_AGE),
    start_write("readers by age", with_cursor(make_memory(BY_AGE, 20, 64), READ, 0, THEM, 0), queue=BY_AGE),
)

READER_STARTS: Final = (
    start_read("an empty queue", make_memory(), change_words(make_memory(), ONE), take_cursor(READ)),
    start_read("a message", ONE, take_cursor(READ), move_heads(20, 20)),
    start_read("several messages", write_block(make_memory(), Write(b"some text", 2)), take_cursor(READ)),
    start_read("the end of the area", write_block(make_memory(QUEUE, 52, 52), Write(b"ABCD"))),
    start_read("a queue that goes on", ONE, move_heads(84, 104)),
    start_read("a dead writer", with_left_block(RESERVED), free_cursor(WRITE), move_heads(20, 40)),
    start_read("a block without marks", with_left_block(SIZED).set(state_of(WRITE, 0), FREE), take_cursor(READ)),
    start_read("half a mark", with_left_block(HALF_MARKED)),
    start_read("a block without data", with_left_block(MARKED), take_cursor(READ)),
    start_read("a young writer", with_left_block(RESERVED), take_cursor(READ), now_ns=YOUNG_NS),
    start_read("a living writer", with_left_block(RESERVED, THEM)),
    start_read("a living writer behind", with_cursor(with_left_block(RESERVED), WRITE, 1, THEM, 20)),
    start_read("a living writer ahead", with_cursor(ONE, WRITE, 1, THEM, 20)),
    start_read("a living writer ahead, and another", with_cursor(ONE, WRITE, 0, THEM, 20)),
    start_read("a reborn writer", with_cursor(with_left_block(RESERVED), WRITE, 0, THEM, 0, 2)),
    start_read("a mark at the head", with_marks((0, 2, 400))),
    start_read("cells that look like blocks", with_marks((0, 2, 400), (4, 2, 4), (20, 2, 400)), move_heads(40, 40)),
    start_read("half a mark at the end", with_marks((24, 1, None))),
    start_read("a mark at the end", with_marks((24, 2, 400))),
    start_read("a broken block at the end", with_marks((24, 2, 0))),
    start_read("half marks in slices", with_marks((4, 1, None), (8, 1, None)), slice_bytes=8),
    start_read("a mark at the end of a slice", with_marks((4, 2, 400)), slice_bytes=8),
    start_read("a mark behind a slice", with_marks((8, 2, 400)), slice_bytes=8),
    start_read("a broken block at the end of a slice", with_marks((4, 2, 4)), slice_bytes=8),
    start_read("slices", with_left_block(SIZED).set(state_of(WRITE, 0), FREE), move_heads(20, 40), slice_bytes=8),
    start_read(
        "a dead reader",
        with_cursor(with_cursor(make_memory(QUEUE, 20, 20), READ, 0, DEAD, 0), READ, 1, THEM),
        LOSES,
        free_cursor(READ),
    ),
    start_read("a dead reader that took nothing", with_cursor(with_cursor(ONE, READ, 0, DEAD, 0), READ, 1, DEAD)),
    start_read(
        "reborn readers", with_cursor(with_cursor(make_memory(QUEUE, 20, 20), READ, 0, THEM, 0, 2), READ, 1, THEM)
    ),
    start_read(
        "a dead last reader",
        with_cursor(with_cursor(make_memory(), READ, 0, THEM), READ, 1, DEAD),
        take_cursor(READ, 1),
    ),
    start_read("a free last cursor", with_cursor(ONE, READ, 0, THEM), take_cursor(READ, 1)),
    start_read("living readers", with_cursor(with_cursor(make_memory(), READ, 0, THEM), READ, 1, THEM)),
    start_read("young readers", with_cursor(with_cursor(make_memory(), READ, 0, DEAD), READ, 1, DEAD), now_ns=YOUNG_NS),
    start_read("readers by age", with_cursor(make_memory(BY_AGE, 20, 20), READ, 0, THEM, 0), queue=BY_AGE),
    start_read("writers by age", with_left_block(RESERVED, THEM), queue=BY_AGE),
)

# -- roles ------------------------------------------------------------------------------------------------------------

ACCESSES: Final = (Load, Store, CompareAndSwap, CopyIn, CopyOut)
ANSWERS: Final = (Loaded, Stored, Swapped, Copied)


def comes_from_memory(record: Any, event: Event) -> bool:
    """Nothing is drawn: an answer that no memory gives says nothing of an implementation."""
    return False


ROLES: Final = {
    "writer": ConformanceRole(
        WRITER,
        WRITER_STARTS,
        Timing(1),
        given=("queue", "slot", "incarnation"),
        alphabet=Alphabet((Write, *ANSWERS), (), ACCESSES, (Reserved, WriteDone)),
        legal=comes_from_memory,
    ),
    "reader": ConformanceRole(
        READER,
        READER_STARTS,
        Timing(1),
        Relation(ranged=(Ranged("skipped", "first", "last", "CR-60"),)),
        given=("queue", "slot", "incarnation", "slice_bytes"),
        alphabet=Alphabet((Read, *ANSWERS), (), ACCESSES, (Taken, Skipped, ReadDone)),
        legal=comes_from_memory,
    ),
}
