"""Memory access: one request of a machine, performed on the real words; and whole operations, access by access.

A `Words` holds every word of a queue as an object with `load`, `store` and `cas`, which both the declared machines (by
`Access`) and the short way use.  A `Hook` is called before each of their accesses: it sees where a process is, may
stop it there, and may cut a copy.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from statemachines.cursor_recovery.layout import READERS_WAIT, WRITERS_WAIT
from statemachines.cursor_recovery.memory import (
    CELL,
    FREE,
    LOST,
    NONE,
    READ_HEAD,
    SLOTS,
    TICK_NS,
    WRITE_HEAD,
    CompareAndSwap,
    Copied,
    CopyIn,
    CopyOut,
    Load,
    Loaded,
    Store,
    Stored,
    Swapped,
    incarnation_of,
    messages_of,
    position_of,
    state_of,
)
from statemachines.drivers.cursor_recovery.segment import MappedSegment
from statemachines.drivers.cursor_recovery.word import Word64
from statemachines.kernel import Answer, Ask, Call, Effect, Event, Node, Request, Tell

if TYPE_CHECKING:
    pass

Hook = Callable[[Request], int | None]
"""Called before an access.  To a `CopyIn` a number says: copy so many cells, then call the hook once more."""
IsLocked = Callable[[int], bool]
"""Whether a living process holds the lock of a slot."""
FUTURE_NS = 1_000_000_000
"""No stamp is further in the future than this: all processes share one clock."""
POSITION_MAX = 1 << 62
"""No queue ever gets here: a head beyond it was not written by a queue."""


class MappedMemory:
    """Every word of a queue, and its data area.

    `states`, `positions` by pool and cursor; `messages` by read cursor; `incarnations` by slot.
    """

    def __init__(self, segment: MappedSegment, hook: Hook | None = None) -> None:
        self.segment = segment
        self.layout = segment.layout
        queue = segment.queue
        self.capacity = queue.capacity
        self.hook = hook
        cursors = {"read": range(queue.read_cursors), "write": range(queue.write_cursors)}
        self.by_address: dict[str, Word64] = {}
        self.read_head = self._word(READ_HEAD)
        self.write_head = self._word(WRITE_HEAD)
        self.lost = self._word(LOST)
        self.states = {pool: [self._word(state_of(pool, i)) for i in each] for pool, each in cursors.items()}
        self.positions = {pool: [self._word(position_of(pool, i)) for i in each] for pool, each in cursors.items()}
        self.messages = [self._word(messages_of(i)) for i in cursors["read"]]
        self.incarnations = [self._word(incarnation_of(i)) for i in range(SLOTS)]
        self.readers_wait = self.plain(READERS_WAIT)
        self.writers_wait = self.plain(WRITERS_WAIT)
        self.memory = segment.mapped
        self.load_cell = segment.words.load_u32
        self.store_cell = segment.words.store_u32
        if hook is not None:
            self.load_cell, self.store_cell = self._hooked_cells(hook)

    def plain(self, address: str) -> Word64:
        """The word itself: no machine asks for it, and no hook is called."""
        return self.segment.words.cell_u64(self.layout.offset_of(address))

    def _word(self, address: str) -> Word64:
        word = self.plain(address)
        if self.hook is not None:
            word = HookedWord(address, word, self.hook)
        self.by_address[address] = word
        return word

    def _hooked_cells(self, hook: Hook) -> tuple[Callable[[int], int], Callable[[int, int], None]]:
        load, store, data = self.load_cell, self.store_cell, self.layout.data

        def load_cell(offset: int) -> int:
            hook(Load(f"data/{offset - data}"))
            return load(offset)

        def store_cell(offset: int, value: int) -> None:
            hook(Store(f"data/{offset - data}", value))
            store(offset, value)

        return load_cell, store_cell

    # -- the data of a block ----------------------------------------------------------------------------------------

    def copy_in(self, position: int, data: bytes) -> None:
        """Write data from a position on; in two parts where it crosses the end of the area (CR-21)."""
        if self.hook is not None:
            cells = self.hook(CopyIn(position, data))
            if cells is not None:
                self._copy_in(position, data[: cells * CELL])
                self.hook(CopyIn(position, data))
        self._copy_in(position, data)

    def _copy_in(self, position: int, data: bytes) -> None:
        done = 0
        for offset, size in self.layout.parts(position, len(data)):
            self.memory[offset : offset + size] = data[done : done + size]
            done += size

    def copy_out(self, position: int, size: int) -> bytes:
        """A copy of the bytes from a position on."""
        if self.hook is not None:
            self.hook(CopyOut(position, size))
        return b"".join(self.memory[offset : offset + part] for offset, part in self.layout.parts(position, size))


class HookedWord:
    """A word that tells of each access before it is made."""

    __slots__ = ("address", "hook", "word")

    def __init__(self, address: str, word: Word64, hook: Hook) -> None:
        self.address, self.word, self.hook = address, word, hook

    def load(self) -> int:
        """As `Word64`."""
        self.hook(Load(self.address))
        return self.word.load()

    def store(self, value: int, /) -> None:
        """As `Word64`."""
        self.hook(Store(self.address, value))
        self.word.store(value)

    def cas(self, expected: int, desired: int, /) -> int:
        """As `Word64`."""
        self.hook(CompareAndSwap(self.address, expected, desired))
        return self.word.cas(expected, desired)


class MemoryAccess:
    """Performs requests of one operation, each a single access (CR-D9); words that cannot be are named.

    Raises `DamagedQueue` for a head, position or state that no machine wrote, before anything rests on it.
    """

    def __init__(self, words: MappedMemory, is_locked: IsLocked, clock: Callable[[], int] = time.monotonic_ns) -> None:
        self.words = words
        self.is_locked = is_locked
        self.clock = clock
        self.in_the_way = FREE
        self._read_head = 0

    def perform(self, request: Request) -> Answer:
        """The answer of the memory, as `Memory.apply` defines it."""
        match request:
            case Load(address):
                return self._load(address)
            case Store(address, value):
                self._store(address, value)
                return Stored()
            case CompareAndSwap(address, expected, value):
                return Swapped(self.words.by_address[address].cas(expected, value) == expected)
            case CopyIn(position, data):
                self.words.copy_in(position, data)
                return Stored()
            case CopyOut(position, size):
                return Copied(self.words.copy_out(position, size))
        raise TypeError(f"shared memory does not take a {type(request).__name__}")

    def _load(self, address: str) -> Loaded:
        kind, _, number = address.partition("/")
        if kind == "data":
            return Loaded(self.words.load_cell(self.words.layout.data + int(number)), self.clock())
        if kind == "lock":
            return self._load_lock(address, int(number))
        value = self.words.by_address[address].load()
        now_ns = self.clock()
        self.check(address, value, now_ns)
        return Loaded(value, now_ns)

    def check(self, address: str, value: int, now_ns: int) -> None:
        """Raises `DamagedQueue` for what no machine wrote there."""
        if address == READ_HEAD:
            self._read_head = self._checked_position(address, value)
        elif address == WRITE_HEAD:
            self._check_write_head(self._checked_position(address, value))
        elif address.endswith("/state"):
            self._check_state(address, value, now_ns)
        elif address.endswith("/position") and value != NONE:
            self._checked_position(address, value)

    def _load_lock(self, address: str, slot: int) -> Loaded:
        if self.words.hook is not None:
            self.words.hook(Load(address))
        return Loaded(int(self.is_locked(slot)), self.clock())

    def _store(self, address: str, value: int) -> None:
        kind, _, number = address.partition("/")
        if kind == "data":
            self.words.store_cell(self.words.layout.data + int(number), value)
        else:
            self.words.by_address[address].store(value)

    def _checked_position(self, address: str, value: int) -> int:
        if value % CELL or value > POSITION_MAX:
            raise self.words.segment.damage_error(f"{address} = {value}", f"a multiple of {CELL} below 2**62")
        return value

    def _check_write_head(self, value: int) -> None:
        """The write head is never behind the read head that was loaded before it; nor, once the read head is loaded
        again, more than a capacity ahead of it (BOUND)."""
        found = f"write_head = {value}, read_head = {self._read_head}"
        if value < self._read_head:
            raise self.words.segment.damage_error(found, "a write head that is not behind the read head")
        furthest = self._read_head + self.words.capacity
        if value > furthest and value > self.words.plain(READ_HEAD).load() + self.words.capacity:
            raise self.words.segment.damage_error(found, f"at most {self.words.capacity} bytes between the heads")

    def _check_state(self, address: str, value: int, now_ns: int) -> None:
        if value == FREE:
            return
        if not value >> 63:
            raise self.words.segment.damage_error(f"{address} = {value:#x}", "0, or the mark of an owner")
        if value % (1 << 43) * TICK_NS > now_ns + FUTURE_NS:
            raise self.words.segment.damage_error(f"{address} = {value:#x}", "a time that is not in the future")


def run_operation(node: Node[Any], call: Call, access: MemoryAccess) -> list[Event]:
    """Feed `call` to a new machine and perform its accesses, one after the other, to its end; what it told."""
    return resume_operation(node, node.feed(call, 0), access)


def resume_operation(
    node: Node[Any], effects: list[Effect], access: MemoryAccess, ends: Callable[[Any], bool] = lambda record: False
) -> list[Event]:
    """As `run_operation`, of a machine that has asked already; no further than where `ends(record)`: there it has asked
    for an access that is not made."""
    told: list[Event] = []
    while True:
        request: Request | None = None
        for effect in effects:
            if isinstance(effect, Ask):
                request = effect.request
            elif isinstance(effect, Tell):
                told.append(effect.event)
        if request is None or ends(node.record):
            return told
        effects = node.feed(access.perform(request), 0)
