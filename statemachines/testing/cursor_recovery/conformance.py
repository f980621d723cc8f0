"""Conformance: what others may do otherwise who implement a writer or a reader of the queue, and what they meet in the
shared memory.

The memory is a service: each access is an Ask, and its answer is the next input (`memory_scene`)."""

from __future__ import annotations

from typing import Any, Final

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
from statemachines.kernel import Event
from statemachines.testing.conformance.interface import Alphabet
from statemachines.testing.conformance.relation import Ranged, Relation
from statemachines.testing.conformance.role import ConformanceRole, Start
from statemachines.testing.cursor_recovery.memory_scene import Meanwhile, MemoryScene, Words, difference, played
from statemachines_spec.explorer.timing import Timing

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


def memory_of(queue: Queue = QUEUE, read_head: int = 0, write_head: int = 0) -> Words:
    """An empty queue, and who lives."""
    words = Memory(queue).initial().set(READ_HEAD, read_head).set(WRITE_HEAD, write_head)
    for slot in (US, THEM):
        words = words.set(lock_of(slot), 1).set(incarnation_of(slot), 1)
    return words


def with_cursor(words: Words, pool: str, cursor: int, slot: int, position: int = NONE, life: int = 1) -> Words:
    """The memory with a cursor that somebody took at 0; a reader's block holds two messages."""
    words = words.set(state_of(pool, cursor), token(slot, life, 0)).set(position_of(pool, cursor), position)
    return words.set(messages_of(cursor), 2) if pool == READ else words


def written(words: Words, event: Write, slot: int = THEM, accesses: int = 1_000) -> Words:
    """The memory after a write of somebody, who began at 0 and dies after so many accesses."""
    return played(WRITER, new_writer(QUEUE, slot, 1), event, words, 0, accesses)


RESERVED, SIZED, HALF_MARKED, MARKED = 11, 12, 14, 15
"""After so many accesses of an undisturbed write the head is moved, its block sized, half marked, marked."""


def with_left_block(accesses: int, slot: int = DEAD) -> Words:
    """The memory with a block that a writer has not finished, and a whole one behind it."""
    words = written(memory_of(), Write(b"AAAA"), slot, accesses)
    return written(words, Write(b"BBBB"))


def with_marks(*marks: tuple[int, int, int | None]) -> Words:
    """The memory with a block that was left unmarked, some of whose cells look like the begin of a block: for each its
    position, how many halves of the mark are there, and the size (None: as it was)."""
    words = written(memory_of(), Write(bytes(24)), DEAD, RESERVED).set(state_of(WRITE, 0), FREE)
    for position, halves, size in marks:
        cells = dict(zip((2, 3), commit_word(position)[:halves], strict=False)) | ({} if size is None else {0: size})
        for cell, value in cells.items():
            words = words.set(QUEUE.address(position + cell * CELL), value)
    return words


# -- what others do meanwhile ---------------------------------------------------------------------------------------


def takes(pool: str, cursor: int = 0) -> Meanwhile:
    """Somebody takes the cursor of the pool, or takes it away from us."""
    return Meanwhile((Store(state_of(pool, cursor), token(THEM, 1, AGED_NS)),))


def frees(pool: str) -> Meanwhile:
    """Somebody frees the first cursor of the pool."""
    return Meanwhile((Store(state_of(pool, 0), FREE),))


def moves_heads(read_head: int, write_head: int) -> Meanwhile:
    """Others read and write so far."""
    return Meanwhile((Store(READ_HEAD, read_head), Store(WRITE_HEAD, write_head)))


LOSES: Final = Meanwhile((Store(LOST, 5),))


def scene(
    name: str,
    record: Any,
    calls: tuple[Event, ...],
    words: Words,
    *others: Meanwhile,
    now_ns: int = AGED_NS,
) -> Start:
    """A system: our operation, the memory, and what others do."""
    return Start(
        name, record, MemoryScene(WRITER if record.pool == WRITE else READER, record, calls, words, others, now_ns).told
    )


def writes(
    name: str, words: Words, *others: Meanwhile, calls: int = 1, queue: Queue = QUEUE, now_ns: int = AGED_NS
) -> Start:
    """A write of ours."""
    return scene(name, new_writer(queue, US, 1), WRITES[:calls], words, *others, now_ns=now_ns)


def reads(
    name: str, words: Words, *others: Meanwhile, queue: Queue = QUEUE, slice_bytes: int = 1 << 18, now_ns: int = AGED_NS
) -> Start:
    """A read of ours."""
    return scene(name, new_reader(queue, US, 1, slice_bytes), READS, words, *others, now_ns=now_ns)


BEHIND: Final = memory_of(QUEUE, 20, 64)
"""A queue in which a reader at 0 is in the way of the next block, and one at 20 is not."""
CROWDED: Final = with_cursor(with_cursor(memory_of(), WRITE, 0, DEAD), WRITE, 1, THEM)
ONE: Final = written(memory_of(), Write(b"ABCD"))

WRITER_STARTS: Final = (
    writes("an empty queue", memory_of(), takes(WRITE), moves_heads(0, 20), calls=4),
    writes("a full queue", memory_of(QUEUE, 0, 64), takes(WRITE), moves_heads(20, 64)),
    writes("a queue that goes on", memory_of(), moves_heads(84, 104)),
    writes("the end of the area", memory_of(QUEUE, 44, 52), calls=3),
    writes("readers that leave room", with_cursor(with_cursor(BEHIND, READ, 0, THEM, 20), READ, 1, THEM)),
    writes("a young reader in the way", with_cursor(BEHIND, READ, 0, THEM, 0), takes(WRITE), now_ns=YOUNG_NS),
    writes("a living reader in the way", with_cursor(BEHIND, READ, 1, THEM, 0), takes(WRITE)),
    writes("a dead reader in the way", with_cursor(BEHIND, READ, 0, DEAD, 0), frees(READ), LOSES),
    writes("a reborn reader in the way", with_cursor(BEHIND, READ, 0, THEM, 0, 2), takes(READ)),
    writes("a dead writer", CROWDED, frees(WRITE), takes(WRITE)),
    writes(
        "a dead last writer", with_cursor(with_cursor(memory_of(), WRITE, 0, THEM), WRITE, 1, DEAD), takes(WRITE, 1)
    ),
    writes("a free last cursor", with_cursor(memory_of(), WRITE, 0, THEM), takes(WRITE, 1)),
    writes("reborn writers", with_cursor(with_cursor(memory_of(), WRITE, 0, THEM), WRITE, 1, THEM, NONE, 2)),
    writes("living writers", with_cursor(with_cursor(memory_of(), WRITE, 0, THEM), WRITE, 1, THEM)),
    writes("young writers", with_cursor(with_cursor(memory_of(), WRITE, 0, DEAD), WRITE, 1, DEAD), now_ns=YOUNG_NS),
    writes("writers by age", with_cursor(memory_of(BY_AGE), WRITE, 0, THEM), queue=BY_AGE),
    writes("readers by age", with_cursor(memory_of(BY_AGE, 20, 64), READ, 0, THEM, 0), queue=BY_AGE),
)

READER_STARTS: Final = (
    reads("an empty queue", memory_of(), difference(memory_of(), ONE), takes(READ)),
    reads("a message", ONE, takes(READ), moves_heads(20, 20)),
    reads("several messages", written(memory_of(), Write(b"some text", 2)), takes(READ)),
    reads("the end of the area", written(memory_of(QUEUE, 52, 52), Write(b"ABCD"))),
    reads("a queue that goes on", ONE, moves_heads(84, 104)),
    reads("a dead writer", with_left_block(RESERVED), frees(WRITE), moves_heads(20, 40)),
    reads("a block without marks", with_left_block(SIZED).set(state_of(WRITE, 0), FREE), takes(READ)),
    reads("half a mark", with_left_block(HALF_MARKED)),
    reads("a block without data", with_left_block(MARKED), takes(READ)),
    reads("a young writer", with_left_block(RESERVED), takes(READ), now_ns=YOUNG_NS),
    reads("a living writer", with_left_block(RESERVED, THEM)),
    reads("a living writer behind", with_cursor(with_left_block(RESERVED), WRITE, 1, THEM, 20)),
    reads("a living writer ahead", with_cursor(ONE, WRITE, 1, THEM, 20)),
    reads("a living writer ahead, and another", with_cursor(ONE, WRITE, 0, THEM, 20)),
    reads("a reborn writer", with_cursor(with_left_block(RESERVED), WRITE, 0, THEM, 0, 2)),
    reads("a mark at the head", with_marks((0, 2, 400))),
    reads("cells that look like blocks", with_marks((0, 2, 400), (4, 2, 4), (20, 2, 400)), moves_heads(40, 40)),
    reads("half a mark at the end", with_marks((24, 1, None))),
    reads("a mark at the end", with_marks((24, 2, 400))),
    reads("a broken block at the end", with_marks((24, 2, 0))),
    reads("half marks in slices", with_marks((4, 1, None), (8, 1, None)), slice_bytes=8),
    reads("a mark at the end of a slice", with_marks((4, 2, 400)), slice_bytes=8),
    reads("a mark behind a slice", with_marks((8, 2, 400)), slice_bytes=8),
    reads("a broken block at the end of a slice", with_marks((4, 2, 4)), slice_bytes=8),
    reads("slices", with_left_block(SIZED).set(state_of(WRITE, 0), FREE), moves_heads(20, 40), slice_bytes=8),
    reads(
        "a dead reader",
        with_cursor(with_cursor(memory_of(QUEUE, 20, 20), READ, 0, DEAD, 0), READ, 1, THEM),
        LOSES,
        frees(READ),
    ),
    reads("a dead reader that took nothing", with_cursor(with_cursor(ONE, READ, 0, DEAD, 0), READ, 1, DEAD)),
    reads("reborn readers", with_cursor(with_cursor(memory_of(QUEUE, 20, 20), READ, 0, THEM, 0, 2), READ, 1, THEM)),
    reads("a dead last reader", with_cursor(with_cursor(memory_of(), READ, 0, THEM), READ, 1, DEAD), takes(READ, 1)),
    reads("a free last cursor", with_cursor(ONE, READ, 0, THEM), takes(READ, 1)),
    reads("living readers", with_cursor(with_cursor(memory_of(), READ, 0, THEM), READ, 1, THEM)),
    reads("young readers", with_cursor(with_cursor(memory_of(), READ, 0, DEAD), READ, 1, DEAD), now_ns=YOUNG_NS),
    reads("readers by age", with_cursor(memory_of(BY_AGE, 20, 20), READ, 0, THEM, 0), queue=BY_AGE),
    reads("writers by age", with_left_block(RESERVED, THEM), queue=BY_AGE),
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
