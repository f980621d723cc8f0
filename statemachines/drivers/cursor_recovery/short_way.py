"""The short way: reads and writes that nothing disturbs, written out; the declared machines take over wherever it ends.

Both make the same accesses in the same order.  As soon as an answer is not the ordinary one (a cursor that is aged, a
block that is none, a word that cannot be), the record that the declared machine would have by now is made, and the
machine is fed that answer.  A test gives both the same memory, the same disturbances, and a crash before every access.

The functions are long because an operation is: a call costs as much as an access, so what `block` says of lengths,
sizes and commit words stands here once more.  Numbers are the steps of the source.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import TYPE_CHECKING, Any
from zlib import crc32

from msgspec.structs import replace

from statemachines.cursor_recovery.block import MAGIC, MARKS, SEVERAL, data_of
from statemachines.cursor_recovery.memory import (
    CELL,
    FREE,
    HEADER,
    NONE,
    READ_HEAD,
    TICK_NS,
    WRITE_HEAD,
    Copied,
    Loaded,
    position_of,
    state_of,
    token,
)
from statemachines.cursor_recovery.reader import ReadDone, ReaderRecord, ReaderStatus, ReadOutcome
from statemachines.cursor_recovery.writer import Outcome, QueueWriterRecord, QueueWriterStatus, WriteDone
from statemachines.drivers.cursor_recovery.memory_access import FUTURE_NS, POSITION_MAX, MemoryAccess

if TYPE_CHECKING:
    from statemachines.kernel import Event

W, R = QueueWriterStatus, ReaderStatus
pack = Struct("<QI").pack
"""Position and size word, as the checksum covers them (`block.checksum`)."""
WORD, HALF = (1 << 64) - 1, (1 << 32) - 1
WRITTEN, DELIVERED = Outcome.WRITTEN, ReadOutcome.DELIVERED
ALLOCATED = 1 << 63
STAMP_MASK = (1 << 43) - 1
Seen = tuple[str, int, int]
"""A word, its value, and when."""


class TakeOver(Exception):
    """The declared machine goes on: with `record`, fed `answer`, once the words in `seen` are found to be sound."""

    def __init__(self, record: Any, answer: Event, *seen: Seen) -> None:
        super().__init__()
        self.record = record
        self.answer = answer
        self.seen = seen


Take = Callable[[], tuple[int, int]]


def _taker(empty: QueueWriterRecord | ReaderRecord, access: MemoryAccess) -> Take:
    """Step 1: the number of a cursor that was free, and our word in it, its position not cleared yet; (-1, 0): there is
    none."""
    pool, threshold_ns, clock = empty.pool, empty.queue.threshold_ns, access.clock
    cursors = [(own, state.load, state.cas) for own, state in enumerate(access.words.states[pool])]
    owner = token(empty.slot, empty.incarnation, 0)
    looking = W.LOAD_CURSOR if isinstance(empty, QueueWriterRecord) else R.LOAD_CURSOR

    def take() -> tuple[int, int]:
        for own, load, cas in cursors:
            seen = load()
            now_ns = clock()
            if seen == FREE:
                word = owner | -(-now_ns // TICK_NS) & STAMP_MASK
                if cas(FREE, word) == FREE:
                    return own, word
            elif seen < ALLOCATED or not -FUTURE_NS <= now_ns - (seen & STAMP_MASK) * TICK_NS <= threshold_ns:
                found = replace(empty, status=looking, own=own)
                raise TakeOver(found, Loaded(seen, now_ns), (state_of(pool, own), seen, now_ns))
        return -1, FREE

    return take


def short_write(empty: QueueWriterRecord, access: MemoryAccess) -> Callable[[bytes, int], WriteDone]:
    """Writes of the owner in `empty`: a function of payload and messages, which may raise `TakeOver`."""
    words, clock, capacity = access.words, access.clock, empty.queue.capacity
    area, is_plain = words.layout.data, words.hook is None
    memory, store_cell, copy_in = words.memory, words.store_cell, words.copy_in
    load_read_head, load_write_head, move_write_head = words.read_head.load, words.write_head.load, words.write_head.cas
    pairs = zip(words.states["write"], words.positions["write"], strict=True)
    cursors = [(state.load, state.cas, position.store) for state, position in pairs]
    pairs = zip(words.states["read"], words.positions["read"], strict=True)
    readers = [(other, state.load, position.load) for other, (state, position) in enumerate(pairs)]
    threshold_ns = empty.queue.threshold_ns
    take = _taker(empty, access)

    def write(payload: bytes, messages: int) -> WriteDone:
        data = payload if messages == 1 else data_of(payload, messages)
        size = len(data)
        length = HEADER + (size + 3 & -CELL)
        if length > capacity:
            return WriteDone(Outcome.OVERSIZE)
        try:
            own, word = take()  # 1
        except TakeOver as over:
            over.record = replace(over.record, data=data, messages=messages)
            raise
        if own < 0:
            return WriteDone(Outcome.NO_CURSOR)
        load_own, swap_own, set_position = cursors[own]
        set_position(NONE)
        while True:
            first = load_read_head()  # 2
            head = load_write_head()
            end = head + length
            if not first <= head <= first + capacity or (first | head) % CELL or head > POSITION_MAX:
                found = replace(empty, data=data, messages=messages, own=own, token=word, read_head=first)
                found = replace(found, status=W.LOAD_WRITE_HEAD)
                raise TakeOver(found, Loaded(head, 0), (READ_HEAD, first, 0), (WRITE_HEAD, head, 0))
            if end > first + capacity:  # 3
                return WriteDone(Outcome.FULL if swap_own(word, FREE) == word else Outcome.FENCED)
            for other, load_state, load_position in readers:
                seen = load_state()
                if seen == FREE:
                    continue
                seen_ns = clock()
                if seen < ALLOCATED:
                    found = replace(empty, data=data, messages=messages, own=own, token=word, read_head=first)
                    found = replace(found, status=W.CHECK_CURSOR, other=other, write_head=head)
                    raise TakeOver(found, Loaded(seen, seen_ns), (state_of("read", other), seen, seen_ns))
                at = load_position()
                if at != NONE and (end > at + capacity or at % CELL):
                    if not at % CELL and -FUTURE_NS <= seen_ns - (seen & STAMP_MASK) * TICK_NS <= threshold_ns:
                        access.in_the_way = seen
                        return WriteDone(Outcome.FULL if swap_own(word, FREE) == word else Outcome.FENCED)
                    found = replace(empty, data=data, messages=messages, own=own, token=word, read_head=first)
                    found = replace(found, status=W.CHECK_POSITION, other=other, write_head=head)
                    found = replace(found, seen=seen, seen_ns=seen_ns, recovers=True)
                    words_seen = (state_of("read", other), seen, seen_ns), (position_of("read", other), at, 0)
                    raise TakeOver(found, Loaded(at, clock()), *words_seen)
            if load_own() != word:
                return WriteDone(Outcome.FENCED)
            set_position(head)  # 4
            if load_own() != word:
                return WriteDone(Outcome.FENCED)
            if move_write_head(head, end) == head:  # 5
                break
        if messages != 1:
            size |= SEVERAL
        mark = (head * MARKS ^ MAGIC) & WORD
        at = head % capacity
        if at + length <= capacity:
            at += area
            store_cell(at, size)  # 6
            store_cell(at + 4, crc32(data, crc32(pack(head, size))))
            store_cell(at + 8, mark & HALF)
            store_cell(at + 12, mark >> 32)
        else:
            store_cell(area + at, size)
            store_cell(area + (at + 4) % capacity, crc32(data, crc32(pack(head, size))))
            store_cell(area + (at + 8) % capacity, mark & HALF)
            store_cell(area + (at + 12) % capacity, mark >> 32)
            at = 0
        if data:  # 7
            if at and is_plain:
                at += HEADER
                memory[at : at + len(data)] = data
            else:
                copy_in(head + HEADER, data)
        if swap_own(word, FREE) == word:  # 8
            return WriteDone(WRITTEN, head)
        return WriteDone(Outcome.FENCED)

    return write


def short_read(empty: ReaderRecord, access: MemoryAccess) -> Callable[[], ReadDone]:
    """Reads of the owner in `empty`: a function that may raise `TakeOver`."""
    words, clock, capacity = access.words, access.clock, empty.queue.capacity
    area, is_plain = words.layout.data, words.hook is None
    memory, load_cell, copy_out = words.memory, words.load_cell, words.copy_out
    load_read_head, load_write_head, move_read_head = words.read_head.load, words.write_head.load, words.read_head.cas
    triples = zip(words.states["read"], words.positions["read"], words.messages, strict=True)
    cursors = [(state.load, state.cas, place.store, count.store) for state, place, count in triples]
    pairs = zip(words.states["write"], words.positions["write"], strict=True)
    writers = [(other, state.load, position.load) for other, (state, position) in enumerate(pairs)]
    last = len(writers) - 1
    threshold_ns = empty.queue.threshold_ns
    take = _taker(empty, access)

    def begin(own: int, word: int, head: int, limit: int) -> ReaderRecord:
        """The record once the writers at the read head have been looked at."""
        heads = replace(empty, read_head=head, write_head=limit, at=head, limit=head)
        return replace(heads, own=own, token=word, other=last)

    def read() -> ReadDone:
        own, word = take()  # 1
        if own < 0:
            return ReadDone(ReadOutcome.NO_CURSOR)
        load_own, swap_own, set_position, set_messages = cursors[own]
        set_position(NONE)
        while True:
            head = load_read_head()  # 2
            limit = load_write_head()
            if not head <= limit <= head + capacity or (head | limit) % CELL or limit > POSITION_MAX:
                found = replace(empty, status=R.LOAD_WRITE_HEAD, own=own, token=word, read_head=head)
                raise TakeOver(found, Loaded(limit, 0), (READ_HEAD, head, 0), (WRITE_HEAD, limit, 0))
            if head == limit:
                return ReadDone(ReadOutcome.EMPTY if swap_own(word, FREE) == word else ReadOutcome.FENCED)
            for other, load_state, load_position in writers:  # 3
                seen = load_state()
                if seen == FREE:
                    continue
                seen_ns = clock()
                if seen < ALLOCATED:
                    found = replace(begin(own, word, head, limit), status=R.CHECK_CURSOR, other=other)
                    raise TakeOver(found, Loaded(seen, seen_ns), (state_of("write", other), seen, seen_ns))
                place = load_position()
                if place != NONE and (place <= head or place % CELL):
                    if not place % CELL and -FUTURE_NS <= seen_ns - (seen & STAMP_MASK) * TICK_NS <= threshold_ns:
                        access.in_the_way = seen
                        return ReadDone(ReadOutcome.EMPTY if swap_own(word, FREE) == word else ReadOutcome.FENCED)
                    found = replace(begin(own, word, head, limit), status=R.CHECK_POSITION, other=other)
                    found = replace(found, seen=seen, seen_ns=seen_ns, recovers=True)
                    words_seen = (state_of("write", other), seen, seen_ns), (position_of("write", other), place, 0)
                    raise TakeOver(found, Loaded(place, clock()), *words_seen)
            at = head % capacity
            is_whole = at + HEADER + CELL <= capacity
            mark = (head * MARKS ^ MAGIC) & WORD
            found_low = load_cell(area + (at + 8 if is_whole else (at + 8) % capacity))
            if found_low != mark & HALF:
                raise TakeOver(replace(begin(own, word, head, limit), status=R.LOAD_COMMIT_LOW), Loaded(found_low, 0))
            found_high = load_cell(area + (at + 12 if is_whole else (at + 12) % capacity))
            if found_high != mark >> 32:
                raise TakeOver(replace(begin(own, word, head, limit), status=R.LOAD_COMMIT_HIGH), Loaded(found_high, 0))
            size = load_cell(area + at)
            length = size & SEVERAL - 1
            end = head + HEADER + (length + 3 & -CELL)
            if end > limit or (size & SEVERAL and length < CELL):
                raise TakeOver(replace(begin(own, word, head, limit), status=R.LOAD_SIZE), Loaded(size, 0))
            check = load_cell(area + (at + 4 if is_whole else (at + 4) % capacity))
            messages = load_cell(area + (at + 16 if is_whole else (at + 16) % capacity)) if size & SEVERAL else 1
            if load_own() != word:
                return ReadDone(ReadOutcome.FENCED)
            set_messages(messages)  # 5
            set_position(head)
            if load_own() != word:
                return ReadDone(ReadOutcome.FENCED)
            if move_read_head(head, end) == head:  # 6
                break
        at += area + HEADER
        if is_plain and at + length <= area + capacity:  # 7
            data = memory[at : at + length]
        else:
            data = copy_out(head + HEADER, length)
        if crc32(data, crc32(pack(head, size))) != check:
            found = replace(begin(own, word, head, limit), size=size, checksum=check, messages=messages)
            found = replace(found, status=R.COPY_DATA)
            raise TakeOver(found, Copied(data))
        if swap_own(word, FREE) != word:  # 8
            return ReadDone(ReadOutcome.DISCARDED, head, messages)
        return ReadDone(DELIVERED, head, messages, data[CELL:] if size & SEVERAL else data)

    return read


def is_scan(record: Any) -> bool:
    """The machine looks for the next block behind the read head, cell by cell (CR-46)."""
    return record.status is R.LOAD_COMMIT_LOW and record.limit != record.read_head


def short_scan(record: ReaderRecord, access: MemoryAccess) -> tuple[ReaderRecord, Loaded]:
    """A scan, as far as nothing is found: the record of the machine at the first cell where a block may begin, or at
    the last one of its slice, and what is there.

    The cells are loaded in the order in which the machine would, each once; that there is no other access in between
    changes nothing, since no living writer is behind the write head.
    """
    words = access.words
    cells, at = words.capacity // CELL, record.at
    last = min(record.write_head - HEADER, record.read_head + record.slice_bytes - CELL)
    mark, step, mask = at * MARKS & HALF, CELL * MARKS & HALF, MAGIC & HALF
    found = 0
    area = slice(words.layout.data, words.layout.guard_after)
    with memoryview(words.memory) as whole, whole[area] as data, data.cast("I") as view:
        while at <= last:
            begin = (at + 2 * CELL) % words.capacity // CELL
            count = min(cells - begin, (last - at) // CELL + 1)
            with view[begin : begin + count] as part:
                for number, found in enumerate(part):
                    if found == mark ^ mask:
                        return replace(record, at=at + number * CELL), Loaded(found, 0)
                    mark = mark + step & HALF
            at += count * CELL
    return replace(record, at=at - CELL), Loaded(found, 0)
