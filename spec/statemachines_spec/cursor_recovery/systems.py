"""Systems: the closed systems of cursor recovery, their bounds, and what must hold in them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec
from msgspec.structs import replace

from statemachines.cursor_recovery.memory import (
    CELL,
    LOST,
    NONE,
    READ_HEAD,
    TICK_NS,
    WRITE_HEAD,
    Queue,
    incarnation_of,
    lock_of,
    messages_of,
    position_of,
    slot_in,
    state_of,
    token,
)
from statemachines.cursor_recovery.operation import READ, WRITE
from statemachines.cursor_recovery.reader import OWNING as READER_OWNING
from statemachines.cursor_recovery.reader import READER, new_reader
from statemachines.cursor_recovery.writer import OWNING as WRITER_OWNING
from statemachines.cursor_recovery.writer import WRITER, new_writer
from statemachines_spec import Always, Clock, Crash, Eventually, Network, Sometimes, System, View, at_most
from statemachines_spec.cursor_recovery.ledger import Broken, Ledger
from statemachines_spec.cursor_recovery.process import Cut, Process, has_taken
from statemachines_spec.cursor_recovery.word import Word
from statemachines_spec.explorer.property import Property

THRESHOLD_NS = TICK_NS
OWNING = (*WRITER_OWNING, *READER_OWNING)


class Setting(msgspec.Struct, frozen=True):
    """What bounds a system.  `messages` of each writer; `dead_pools`: every cursor was left behind by a dead process;
    `instants` of the clock."""

    messages: tuple[tuple[bytes, ...], ...]
    readers: int
    crashes: int = 0
    capacity: int = 32
    read_cursors: int = 0
    write_cursors: int = 0
    threshold_only: bool = False
    dead_pools: bool = False
    instants: tuple[int, ...] = ()

    @property
    def queue(self) -> Queue:
        """The queue, with a cursor for each process unless said otherwise."""
        return Queue(
            capacity=self.capacity,
            read_cursors=self.read_cursors or self.readers,
            write_cursors=self.write_cursors or len(self.messages),
            threshold_ns=THRESHOLD_NS,
            threshold_only=self.threshold_only,
        )


LATER = (0, 2 * THRESHOLD_NS)
SLOW = (0, THRESHOLD_NS, THRESHOLD_NS + 1)
A, B, C = b"AAAA", b"BBBB", b"CCCC"

VARIANTS = {
    "repaired": "the queue as it is shipped: who is dead is known",
    "by_age": "age alone decides, as in the source: who is slow is taken for dead",
}

SYSTEMS: dict[str, tuple[str, dict[str, Setting]]] = {
    "writers": (
        "two writers and a reader; one of them dies at any access",
        {
            "small": Setting(((A,), (B,)), 1, crashes=1, instants=LATER),
        },
    ),
    "readers": (
        "a writer and two readers; one of them dies at any access",
        {
            "small": Setting(((A, B),), 2, crashes=1, instants=LATER),
        },
    ),
    "one-each": (
        "a writer and a reader; a block lies across the end; one of them dies at any access, data after any cell",
        {
            "small": Setting(((A, b"bbbbbbbb"),), 1, crashes=1, instants=LATER),
        },
    ),
    "many": (
        "two writers and two readers, who live",
        {
            "small": Setting(((A,), (B,)), 2, instants=()),
        },
    ),
    "slow": (
        "two writers and a reader; anybody may be slower than the threshold, and lives",
        {
            "small": Setting(((A,), (B,)), 1, instants=SLOW),
        },
    ),
    "pools": (
        "every cursor was left behind by processes that are dead by now",
        {
            "small": Setting(((A,),), 1, dead_pools=True, instants=LATER),
        },
    ),
}


def system(name: str, size: str = "small", variant: str = "repaired", without: tuple[str, ...] = ()) -> System:
    """The system called so."""
    about, sizes = SYSTEMS[name]
    return build(name, about, replace(sizes.get(size, sizes["small"]), threshold_only=variant == "by_age"))


def build(name: str, about: str, setting: Setting) -> System:
    """The system with these bounds."""
    queue = setting.queue
    last_ns = setting.instants[-1] if setting.instants else 0
    writers = [
        Process(f"writer-{n}", n, queue, WRITER, new_writer, messages=messages, last_ns=last_ns)
        for n, messages in enumerate(setting.messages)
    ]
    readers = [
        Process(f"reader-{n}", len(writers) + n, queue, READER, new_reader, last_ns=last_ns)
        for n in range(setting.readers)
    ]
    ledger = Ledger(tuple(message for messages in setting.messages for message in messages))
    words = memory(queue, len(writers) + len(readers), setting.dead_pools)
    clock = (Clock(*setting.instants),) if setting.instants else ()
    return System(
        name,
        about,
        (*writers, *readers, ledger, *clock, *words),
        Network(1, lossy=False, duplicating=False),
        properties=tuple(properties(queue, writers, readers, ledger, setting)),
        budgets=(at_most("crashes", setting.crashes, Crash, Cut),),
        obligations=tuple(obligations(writers, readers, ledger)),
        bounds={
            "capacity": f"{queue.capacity} bytes",
            "cursors": f"{queue.write_cursors} for writers, {queue.read_cursors} for readers",
            "an owner is dead": "by age alone" if queue.threshold_only else "its lock is free",
            "crashes at the last instant": "none: nobody's cursor would ever be aged",
        },
    )


def memory(queue: Queue, processes: int, dead_pools: bool) -> list[Word]:
    """Every word of the queue; the processes hold the locks of their slots."""
    words = [Word(READ_HEAD), Word(WRITE_HEAD), Word(LOST)]
    for pool, count in ((WRITE, queue.write_cursors), (READ, queue.read_cursors)):
        for cursor in range(count):
            left = token(processes, 1, 0) if dead_pools else 0
            words += [Word(state_of(pool, cursor), left), Word(position_of(pool, cursor), 0 if dead_pools else NONE)]
            words += [Word(messages_of(cursor))] if pool == READ else []
    for slot in range(processes + dead_pools):
        words += [Word(lock_of(slot), int(slot < processes)), Word(incarnation_of(slot), 1)]
    return [*words, *(Word(queue.address(at)) for at in range(0, queue.capacity, CELL))]


def obligations(writers: list[Process], readers: list[Process], ledger: Ledger) -> list[Eventually]:
    """READ and WRITE, sooner or later, as long as somebody reads."""
    lives = tuple(one.lives() for one in readers)

    def owed(owes: int, *reading: int) -> bool:
        return bool(owes and any(reading))

    reads = Eventually(
        "READ", "what is acknowledged is delivered, or lost with a reader", (ledger.open(), *lives), owed
    )
    writes = (
        Eventually(f"WRITE {one.name}", "who lives gets its messages out", (one.owes(), *lives), owed)
        for one in writers
    )
    return [reads, *writes]


def properties(
    queue: Queue, writers: list[Process], readers: list[Process], ledger: Ledger, setting: Setting
) -> list[Property]:
    """What must hold, and what must happen sometimes."""
    many = len(ledger.messages)
    room = queue.capacity // CELL * (many + 1) + 2
    heads = (View(READ_HEAD, room, _cells), View(WRITE_HEAD, room, _cells))
    lap = queue.capacity // CELL
    found: list[Property] = [
        Always(how.name, how.value, (ledger.is_broken(how),), lambda broken: not broken)
        for how in Broken
        if how is not Broken.NOTHING
    ]
    found.append(
        Always("BOUND", "the heads keep their distance", heads, lambda read, written: read <= written <= read + lap)
    )
    if not queue.threshold_only:
        found += space(writers, readers, room, lap)
        for pool, count, processes in ((WRITE, queue.write_cursors, writers), (READ, queue.read_cursors, readers)):
            owners = len(writers) + len(readers) + 2
            found += [exclusive(pool, cursor, processes, owners) for cursor in range(count)]
    found.append(Sometimes("all delivered", "every message comes", (ledger.count("delivered"),), lambda n: n == many))
    if setting.crashes:
        found.append(Sometimes("lost", "a reader takes one along", (ledger.count("lost"),), bool))
    return found


def space(writers: list[Process], readers: list[Process], room: int, lap: int) -> Iterator[Always]:
    """SPACE: who writes a block is at most a lap ahead of the read head, and of every block that is being read."""
    for writer in writers:
        to = writer.view(_writes_to, room)
        text = "nobody writes where somebody has to read"
        yield Always(f"SPACE {writer.name}", text, (View(READ_HEAD, room, _cells), to), lambda at, end: end <= at + lap)
        for reader in readers:
            starts = reader.view(_reads_from, room)
            name = f"SPACE {writer.name}, {reader.name}"
            yield Always(name, text, (starts, to), lambda at, end: not at or end <= at - 1 + lap)


def exclusive(pool: str, cursor: int, processes: list[Process], owners: int) -> Always:
    """EXCL: who uses the cursor has put its word there."""
    word = View(state_of(pool, cursor), owners, _owner)
    uses = tuple(one.view(_uses(cursor)) for one in processes)

    def holds(owner: int, *using: int) -> bool:
        return all(owner == one.slot + 1 for one, uses_it in zip(processes, using, strict=True) if uses_it)

    return Always(f"EXCL {pool}/{cursor}", "a cursor has one owner", (word, *uses), holds)


def _cells(local: Any) -> int:
    return int(local.value) // CELL


def _owner(local: Any) -> int:
    return slot_in(local.value) + 1 if local.value else 0


def _uses(cursor: int) -> Callable[[Any], int]:
    return lambda record: int(record.status in OWNING and record.own == cursor)


def _writes_to(record: Any) -> int:
    return record.end // CELL if record.status.value[0] in "67" else 0


def _reads_from(record: Any) -> int:
    return record.at // CELL + 1 if has_taken(record) else 0
