"""Memory: the shared memory of one queue as a pure service on words, one access a request.

Words have names: the two heads; how many messages were lost; state and position of every cursor, and of a read cursor
how many messages its block holds; lock and incarnation of every slot (a slot is a process); and the data area, in cells
of four bytes.  An access to one word is atomic.  The data of a block is copied in one access, which is not: who dies in
it has copied some of the cells.  The operating system frees the lock of a slot the moment its process dies.

A state word is 0 (free) or, from the highest bit down, allocated (1 bit), slot (8), incarnation (12), stamp (43): owner
and time share it, so that one swap changes both.
"""

from __future__ import annotations

from typing import ClassVar
from zlib import crc32

import msgspec

from statemachines.kernel import Answer, ConfigurationError, InvariantViolated, Map, Request, TraceColumns

SERVICE = "memory"

READ_HEAD = "read_head"
WRITE_HEAD = "write_head"
LOST = "lost"
"""How many messages readers had taken when they died: at most so many."""
FREE = 0
NONE = 2**64 - 1
"""The position of a cursor that has none yet: it is in nobody's way."""
CELL = 4
HEADER = 4 * CELL
"""Bytes of a block before its data: size, checksum, and the two halves of the commit word."""

TICK_NS = 1 << 16
"""The unit of a stamp: 43 bits of it last for eighteen years of a monotonic clock."""
_ALLOCATED = 1 << 63
_STAMP = 43
_STAMPS = 1 << _STAMP
_SLOT = _STAMP + 12
INCARNATIONS = 1 << 12
SLOTS = 1 << 8
CAPACITY_MAX = 1 << 31
"""Bytes of the data area: the size of a block has a bit to spare, which says that it holds several messages."""


class Queue(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The shape of a queue, the same for all its processes; `ConfigurationError` names the value that cannot be.

    `capacity` in bytes; `threshold_only`: staleness goes by age alone, where the death of an owner cannot be told.
    """

    capacity: int = 128
    read_cursors: int = 2
    write_cursors: int = 2
    threshold_ns: int = 2_000_000_000
    threshold_only: bool = False

    def __post_init__(self) -> None:
        if not HEADER <= self.capacity <= CAPACITY_MAX or self.capacity % CELL:
            rule = f"{HEADER} to {CAPACITY_MAX} bytes, and a multiple of {CELL}"
            raise ConfigurationError("capacity", self.capacity, rule)
        for key in ("read_cursors", "write_cursors"):
            if getattr(self, key) < 1:
                raise ConfigurationError(key, getattr(self, key), "at least 1")
        if self.threshold_ns < TICK_NS:
            # Within one tick a reclaimed cursor could be taken with the very same word, and its old owner release it.
            raise ConfigurationError("threshold_ns", self.threshold_ns, f"at least {TICK_NS}, the unit of a stamp")

    def address(self, position: int) -> str:
        """The cell of the data area at an absolute position."""
        return f"data/{position % self.capacity}"


def state_of(pool: str, cursor: int) -> str:
    """The state word of a cursor of the pool "read" or "write"."""
    return f"{pool}/{cursor}/state"


def position_of(pool: str, cursor: int) -> str:
    """The position word of a cursor."""
    return f"{pool}/{cursor}/position"


def messages_of(cursor: int) -> str:
    """How many messages the block of a read cursor holds."""
    return f"read/{cursor}/messages"


def lock_of(slot: int) -> str:
    """The lock of a slot: not 0 while its process lives."""
    return f"lock/{slot}"


def incarnation_of(slot: int) -> str:
    """How many processes have had the slot."""
    return f"incarnation/{slot}"


# -- state words ----------------------------------------------------------------------------------------------------


def token(slot: int, incarnation: int, now_ns: int) -> int:
    """What an owner puts into a cursor; the stamp is rounded up, so that no cursor looks older than it is."""
    stamp = -(-now_ns // TICK_NS) % _STAMPS
    return _ALLOCATED | slot << _SLOT | incarnation % INCARNATIONS << _STAMP | stamp


def slot_in(word: int) -> int:
    """The slot of the owner."""
    return word >> _SLOT & SLOTS - 1


def incarnation_in(word: int) -> int:
    """The incarnation of the owner, as far as the word holds it."""
    return word >> _STAMP & INCARNATIONS - 1


def is_aged(word: int, threshold_ns: int, now_ns: int) -> bool:
    """Allocated, and older than the threshold, strictly; a stamp in the future is not."""
    return word != FREE and now_ns - word % _STAMPS * TICK_NS > threshold_ns


# -- what a trace shows of words and bytes --------------------------------------------------------------------------


def sign_word(word: int) -> int:
    """The word as a column of a trace holds it: the same 64 bits with a sign, so NONE is -1."""
    return word - (1 << 64) if word >> 63 else word


def content(data: bytes) -> str:
    """What tells data from other data in a trace: how many bytes, and their checksum."""
    return f"{len(data)}:{crc32(data):08x}"


# -- requests and answers -------------------------------------------------------------------------------------------


class Load(Request, frozen=True, gc=False):
    """The word at `address`; answered by `Loaded`."""

    columns: ClassVar = TraceColumns(key="address")

    address: str


class Store(Request, frozen=True, gc=False):
    """Set the word at `address`; answered by `Stored`."""

    columns: ClassVar = TraceColumns(key="address", first="word")

    address: str
    value: int

    @property
    def word(self) -> int:
        """What it is set to, as a trace shows it."""
        return sign_word(self.value)


class CompareAndSwap(Request, frozen=True, gc=False):
    """Set the word at `address` if it is `expected`; answered by `Swapped`.

    In a trace: `first` is expected, `last` set; of the state of a cursor `grant` and `term` are slot and incarnation of
    the owner in whichever of the two is not free.
    """

    columns: ClassVar = TraceColumns(key="address", grant="slot", term="incarnation", first="before", last="after")

    address: str
    expected: int
    value: int

    @property
    def before(self) -> int:
        """What is expected, as a trace shows it."""
        return sign_word(self.expected)

    @property
    def after(self) -> int:
        """What it is set to, as a trace shows it."""
        return sign_word(self.value)

    @property
    def slot(self) -> int | None:
        """Of the owner, if it is the state of a cursor."""
        return slot_in(self.value or self.expected) if self.address.endswith("/state") else None

    @property
    def incarnation(self) -> int | None:
        """Of the owner, if it is the state of a cursor."""
        return incarnation_in(self.value or self.expected) if self.address.endswith("/state") else None


class CopyIn(Request, frozen=True, gc=False):
    """Write `data` into the cells from `position` on; answered by `Stored`."""

    columns: ClassVar = TraceColumns(key="content", first="position", last="end")

    position: int
    data: bytes

    @property
    def content(self) -> str:
        """The data, as a trace shows it."""
        return content(self.data)

    @property
    def end(self) -> int:
        """The last byte."""
        return self.position + len(self.data) - 1


class CopyOut(Request, frozen=True, gc=False):
    """The `size` bytes from `position` on; answered by `Copied`."""

    columns: ClassVar = TraceColumns(first="position", last="end")

    position: int
    size: int

    @property
    def end(self) -> int:
        """The last byte; before the first if there is none."""
        return self.position + self.size - 1


class Loaded(Answer, frozen=True, gc=False):
    """The word as it was at `time_ns` of the clock that all processes share."""

    columns: ClassVar = TraceColumns(first="word")

    value: int
    time_ns: int

    @property
    def word(self) -> int:
        """The value, as a trace shows it."""
        return sign_word(self.value)


class Stored(Answer, frozen=True, gc=False):
    """The word is written, or all the data."""


class Swapped(Answer, frozen=True, gc=False):
    """`done`: the word was as expected, and is replaced."""

    columns: ClassVar = TraceColumns(first="times")

    done: bool

    @property
    def times(self) -> int:
        """How often it was replaced: 1 or 0, as a trace shows it."""
        return int(self.done)


class Copied(Answer, frozen=True, gc=False):
    """The bytes that were there."""

    columns: ClassVar = TraceColumns(key="content")

    data: bytes

    @property
    def content(self) -> str:
        """The bytes, as a trace shows them."""
        return content(self.data)


class Memory:
    """The pure service: a map of words, 0 where nothing was written."""

    name = SERVICE

    def __init__(self, queue: Queue) -> None:
        self.queue = queue

    def initial(self) -> Map[str, int]:
        """An empty queue: heads 0, cursors free and nowhere."""
        pools = (("read", self.queue.read_cursors), ("write", self.queue.write_cursors))
        return Map({position_of(pool, cursor): NONE for pool, count in pools for cursor in range(count)})

    def apply(self, state: Map[str, int], request: Request, now_ns: int) -> tuple[Map[str, int], tuple[Answer, ...]]:
        """The meaning of one access; `now_ns` is the common clock."""
        match request:
            case Load(address):
                return state, (Loaded(state.get(address, 0), now_ns),)
            case Store(address, value):
                return state.set(address, check_word(address, value)), (Stored(),)
            case CompareAndSwap(address, expected, value):
                if state.get(address, 0) != expected:
                    return state, (Swapped(False),)
                return state.set(address, check_word(address, value)), (Swapped(True),)
            case CopyIn(position, data):
                return self.fill(state, position, data, len(data)), (Stored(),)
            case CopyOut(position, size):
                return state, (Copied(self.read(state, position, size)),)
        raise TypeError(f"{self.name} does not take a {type(request).__name__}")

    def fill(self, state: Map[str, int], position: int, data: bytes, size: int) -> Map[str, int]:
        """The memory after the first `size` bytes of `data`, in whole cells: a copy that somebody died in."""
        for at in range(0, min(size, len(data)), CELL):
            state = state.set(self.queue.address(position + at), int.from_bytes(data[at : at + CELL], "little"))
        return state

    def read(self, state: Map[str, int], position: int, size: int) -> bytes:
        """What lies there."""
        cells = (state.get(self.queue.address(at), 0) for at in range(position, position + size, CELL))
        return b"".join(cell.to_bytes(CELL, "little") for cell in cells)[:size]


def check_word(address: str, value: int) -> int:
    """`value`, if it fits the word."""
    bits = 8 * CELL if address.startswith("data/") else 64
    if not 0 <= value < 1 << bits:
        raise InvariantViolated(SERVICE, "fits_the_word", address, detail=f"{value} needs more than {bits} bits")
    return value
