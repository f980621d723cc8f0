"""Systems: the closed systems of cursor recovery, their bounds, and what must hold in them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import msgspec
from msgspec.structs import replace

from statemachines.cursor_recovery.block import data_of, length_of
from statemachines.cursor_recovery.memory import (
    CELL,
    FREE,
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
from statemachines.cursor_recovery.properties import delivered_blocks, memory_rules
from statemachines.cursor_recovery.reader import READER, SLICE_BYTES, ReadOutcome, new_reader
from statemachines.cursor_recovery.writer import WRITER, Outcome, new_writer
from statemachines_spec import Always, Clock, Crash, Eventually, Network, Sometimes, System, View, at_most
from statemachines_spec.cursor_recovery.ledger import BROKEN, Ledger
from statemachines_spec.cursor_recovery.process import Cut, QueueActor, has_taken
from statemachines_spec.cursor_recovery.word import Word
from statemachines_spec.explorer.property import Property

THRESHOLD_NS = TICK_NS
Message = tuple[bytes, int]
"""The bytes of a block, and how many messages that is."""
DEAD, EARLIER = "a dead process", "an earlier life"


class QueueSetting(msgspec.Struct, frozen=True):
    """What bounds a system.  `messages` of each writer; `begin`: where the heads are at first; `left`: every cursor was
    left behind there by a process that is dead, or by the earlier life of one; `instants` of the clock; `by_age`: age
    alone decides who is stale, and what that cannot keep is not asked for; `slice_bytes` that a read looks through."""

    messages: tuple[tuple[Message, ...], ...]
    readers: int
    crashes: int = 0
    capacity: int = 32
    read_cursors: int = 0
    write_cursors: int = 0
    threshold_only: bool = False
    begin: int = 0
    left: str = ""
    instants: tuple[int, ...] = ()
    by_age: bool = False
    slice_bytes: int = SLICE_BYTES

    @property
    def queue(self) -> Queue:
        """The queue, with a cursor for each process unless said otherwise."""
        return Queue(
            capacity=self.capacity,
            read_cursors=self.read_cursors or self.readers,
            write_cursors=self.write_cursors or len(self.messages),
            threshold_ns=THRESHOLD_NS,
            threshold_only=self.threshold_only or self.by_age,
        )


LATER = (0, 2 * THRESHOLD_NS)
SLOW = (0, THRESHOLD_NS, THRESHOLD_NS + 1)
A, B, C = (b"AAAA", 1), (b"BBBB", 1), (b"CCCC", 1)
LONGER = (b"ccccCCCC", 1)
LONG, TWO, EMPTY, HUGE = (b"bbbbBBBB", 1), (b"bbbb", 2), (b"", 1), (bytes(60), 1)

VARIANTS = {
    "repaired": "the queue as it is shipped: who is dead is known",
    "by_age": "age alone decides, as in the source: who is slow is taken for dead",
}

SYSTEMS: dict[str, tuple[str, dict[str, QueueSetting]]] = {
    "pools": (
        "every cursor was left behind by processes that are dead by now",
        {
            "small": QueueSetting(((HUGE, EMPTY),), 1, left=DEAD, begin=32, instants=LATER),
            "ci": QueueSetting(((A,), (B,)), 2, left=DEAD, begin=32, instants=LATER),
        },
    ),
    "reborn": (
        "every cursor was left behind by an earlier life of a process that lives",
        {
            "small": QueueSetting(((A,),), 1, left=EARLIER, begin=32, write_cursors=2, instants=LATER),
            "ci": QueueSetting(((A,), (B,)), 2, left=EARLIER, begin=32, instants=LATER),
        },
    ),
    "few": (
        "two writers and two readers share a cursor each; one of them dies at any access",
        {
            "small": QueueSetting(((A,), (B,)), 2, crashes=1, read_cursors=1, write_cursors=1, instants=LATER),
            "ci": QueueSetting(((A, C), (B,)), 2, crashes=1, read_cursors=1, write_cursors=1, instants=LATER),
        },
    ),
    "one-each": (
        "a writer and a reader; a block lies across the end; one of them dies at any access, data after any cell",
        {
            "small": QueueSetting(((A, TWO),), 1, crashes=1, instants=LATER),
            "ci": QueueSetting(((A, LONG, C),), 1, crashes=2, instants=LATER),
        },
    ),
    "writers": (
        "two writers and a reader; one of them dies at any access",
        {
            "small": QueueSetting(((A,), (B,)), 1, crashes=1, instants=LATER, capacity=40),
            "ci": QueueSetting(((A, C), (B,)), 1, crashes=1, instants=LATER, capacity=40),
        },
    ),
    "readers": (
        "a writer and two readers; one of them dies at any access",
        {
            "small": QueueSetting(((A, B),), 2, crashes=1, instants=LATER),
            "ci": QueueSetting(((A, LONG, C),), 2, crashes=1, instants=LATER),
        },
    ),
    "slices": (
        "two writers and a reader that looks through a slice at a time; one of them dies at any access",
        {
            "small": QueueSetting(((A,), (EMPTY,)), 1, 1, 36, write_cursors=1, instants=LATER, slice_bytes=2 * CELL),
            "ci": QueueSetting(((A,), (B,)), 1, crashes=1, instants=LATER, capacity=40, slice_bytes=2 * CELL),
        },
    ),
    "many": (
        "two writers and two readers, who live",
        {
            "small": QueueSetting(((A,), (B,)), 2),
            "ci": QueueSetting(((A, C), (B,)), 2),
        },
    ),
    "fenced": (
        "two writers share a cursor, and a reader; age alone decides, and anybody may be slower than the threshold",
        {
            "small": QueueSetting(((A,), (EMPTY,)), 1, write_cursors=1, instants=LATER, by_age=True, capacity=40),
            "ci": QueueSetting(((A,), (EMPTY,)), 2, 0, 40, 1, 1, instants=LATER, by_age=True),
        },
    ),
    "slow": (
        "two writers and a reader; anybody may be slower than the threshold, and lives",
        {
            "small": QueueSetting(((A,), (B,)), 1, instants=SLOW),
            "ci": QueueSetting(((A, C), (B,)), 1, instants=SLOW),
        },
    ),
}
"""Name -> (about, size -> bounds)."""


def system(name: str, size: str = "small", variant: str = "repaired", without: tuple[str, ...] = ()) -> System:
    """The system called so."""
    about, sizes = SYSTEMS[name]
    return build(name, about, sizes[size], variant)


def build(name: str, about: str, setting: QueueSetting, variant: str = "repaired") -> System:
    """The system with these bounds."""
    setting = replace(setting, threshold_only=variant != "repaired")
    queue = setting.queue
    last_ns = setting.instants[-1] if setting.instants else 0
    life = 2 if setting.left == EARLIER else 1
    fresh_reader = partial(new_reader, slice_bytes=setting.slice_bytes)
    never = {pool: untrue(setting, queue, pool) for pool in (READ, WRITE)}
    writers = [
        QueueActor(
            f"writer-{n}",
            n,
            queue,
            WRITER,
            new_writer,
            incarnation=life,
            messages=messages,
            last_ns=last_ns,
            never=never[WRITE],
        )
        for n, messages in enumerate(setting.messages)
    ]
    readers = [
        QueueActor(
            f"reader-{n}",
            len(writers) + n,
            queue,
            READER,
            fresh_reader,
            incarnation=life,
            last_ns=last_ns,
            never=never[READ],
        )
        for n in range(setting.readers)
    ]
    ledger = Ledger(tuple(message for messages in setting.messages for message in messages), setting.begin)
    words = memory(queue, len(writers) + len(readers), setting)
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
            "cursors at first": f"left behind by {setting.left}" if setting.left else "free",
            "capacity": f"{queue.capacity} bytes",
            "cursors": f"{queue.write_cursors} for writers, {queue.read_cursors} for readers",
            "an owner is dead": "by age alone" if queue.threshold_only else "its lock is free",
            "crashes at the last instant": "none: nobody's cursor would ever be aged",
        },
    )


def memory(queue: Queue, processes: int, setting: QueueSetting) -> list[Word]:
    """Every word of the queue; the processes hold the locks of their slots, and one more slot is free."""
    left = {"": FREE, DEAD: token(processes, 1, 0), EARLIER: token(0, 1, 0)}[setting.left]
    words = [Word(READ_HEAD, setting.begin), Word(WRITE_HEAD, setting.begin), Word(LOST)]
    for pool, count in ((WRITE, queue.write_cursors), (READ, queue.read_cursors)):
        for cursor in range(count):
            words += [Word(state_of(pool, cursor), left), Word(position_of(pool, cursor), 0 if left else NONE)]
            words += [Word(messages_of(cursor), int(bool(left)))] if pool == READ else []
    for slot in range(processes + (setting.left == DEAD)):
        words += [Word(lock_of(slot), int(slot < processes)), Word(incarnation_of(slot), 1 + (setting.left == EARLIER))]
    return [*words, *(Word(queue.address(at)) for at in range(0, queue.capacity, CELL))]


def untrue(setting: QueueSetting, queue: Queue, pool: str) -> frozenset[Outcome | ReadOutcome]:
    """Outcomes that cannot be true: that others took a cursor, where only the dead lose theirs; that there is no room,
    where there is for everything; no cursor, where there is one for each of two."""
    found: set[Outcome | ReadOutcome] = set()
    if not queue.threshold_only:
        found |= {Outcome.FENCED, ReadOutcome.FENCED, ReadOutcome.DISCARDED}
    sizes = (length_of(len(data_of(*message))) for messages in setting.messages for message in messages)
    if not setting.left and sum(size for size in sizes if size <= queue.capacity) <= queue.capacity:
        found.add(Outcome.FULL)
    processes, cursors = len(setting.messages), queue.write_cursors
    if pool == READ:
        processes, cursors = setting.readers, queue.read_cursors
    if not setting.left and not queue.threshold_only and processes <= min(2, cursors):
        found |= {Outcome.NO_CURSOR, ReadOutcome.NO_CURSOR}
    return frozenset(found)


def obligations(writers: list[QueueActor], readers: list[QueueActor], ledger: Ledger) -> list[Eventually]:
    """READ and WRITE, sooner or later, as long as somebody reads."""
    lives = tuple(one.lives() for one in readers)

    def owed(owes: int, *reading: int) -> bool:
        return bool(owes and any(reading))

    reads = Eventually(
        delivered_blocks.READ,
        "what is acknowledged is delivered, or lost with a reader",
        (ledger.open(), *lives),
        owed,
    )
    writes = (
        Eventually(f"WRITE {one.name}", "who lives gets its messages out", (one.owes(), *lives), owed)
        for one in writers
    )
    return [reads, *writes]


def obligations_of(made: System) -> tuple[Eventually, ...]:
    """Those of one of these systems."""
    return made.obligations


def properties(
    queue: Queue, writers: list[QueueActor], readers: list[QueueActor], ledger: Ledger, setting: QueueSetting
) -> list[Property]:
    """What must hold, and what must happen sometimes."""
    many = sum(length_of(len(data_of(*message))) <= queue.capacity for message in ledger.messages)
    room = setting.begin // CELL + queue.capacity // CELL * (many + 1) + 2
    heads = (View(READ_HEAD, room, _cells), View(WRITE_HEAD, room, _cells))
    lap = queue.capacity // CELL
    found: list[Property] = [
        Always(name, text, (ledger.is_broken(name),), lambda broken: not broken)
        for name, text in BROKEN.items()
        if name != delivered_blocks.ACK or not setting.by_age
    ]
    bound = Always(
        memory_rules.BOUND,
        "the heads keep their distance",
        heads,
        lambda read, written: not memory_rules.check_heads(read, written, lap),
    )
    found += [bound, account_for_all(readers, ledger, room)]
    pools = ((WRITE, queue.write_cursors, writers), (READ, queue.read_cursors, readers))
    for pool, count, processes in pools:
        alone = len(processes) == 1 or setting.by_age
        found += [exclusive(pool, cursor, processes) for cursor in range(count) if not alone]
    if not queue.threshold_only:
        found += space(writers, readers, room, lap)
        owners = len(writers) + len(readers) + 2
        for pool, count, processes in pools:
            found += [check_ownership(pool, cursor, processes, owners) for cursor in range(count)]
        found.append(count_lost(queue, readers, ledger, owners))
    found.append(Sometimes("all delivered", "every message comes", (ledger.count("delivered"),), lambda n: n == many))
    if setting.crashes:
        found.append(Sometimes("lost", "a reader takes one along", (ledger.count("gone_blocks"),), bool))
    return found


def space(writers: list[QueueActor], readers: list[QueueActor], room: int, lap: int) -> Iterator[Always]:
    """SPACE: who writes a block is at most a lap ahead of the read head, and of every block that is being read."""

    def is_within_a_lap(needed: int, end: int) -> bool:
        return not memory_rules.check_lap(end, needed, lap)

    def is_within_a_lap_of_block(start: int, end: int) -> bool:
        return not start or is_within_a_lap(start - 1, end)

    for writer in writers:
        to = writer.view(_writes_to, room)
        name, text = f"{memory_rules.SPACE} {writer.name}", "nobody writes where somebody has to read"
        yield Always(name, text, (View(READ_HEAD, room, _cells), to), is_within_a_lap)
        for reader in readers:
            starts = reader.view(_reads_from, room)
            yield Always(f"{name}, {reader.name}", text, (starts, to), is_within_a_lap_of_block)


def account_for_all(readers: list[QueueActor], ledger: Ledger, room: int) -> Always:
    """TOLD: whatever the read head has passed was delivered, taken along by a reader, or is said to be skipped: there
    is no gap that nobody knows of, as soon as nobody is about to say so."""
    taking = tuple(one.view(has_taken) for one in readers)

    def holds(passed: int, head: int, *taken: int) -> bool:
        return any(taken) or passed == head + 1

    text = "what is passed is delivered, lost or skipped, and somebody is told"
    return Always("TOLD", text, (ledger.count_passed(room + 1), View(READ_HEAD, room, _cells), *taking), holds)


def exclusive(pool: str, cursor: int, processes: list[QueueActor]) -> Always:
    """EXCL: one process at a time uses the cursor."""
    uses = tuple(one.view(_uses(cursor)) for one in processes)
    name = f"{pool}/{cursor}"

    def holds(*using: int) -> bool:
        return not memory_rules.check_owner(name, None, [place for place, uses_it in enumerate(using) if uses_it])

    return Always(f"{memory_rules.EXCL} {name}", "a cursor has one owner", uses, holds)


def check_ownership(pool: str, cursor: int, processes: list[QueueActor], owners: int) -> Always:
    """EXCL, where the death of an owner is known: who uses the cursor has its word there, and nobody has freed it."""
    word = View(state_of(pool, cursor), owners, _owner)
    uses = tuple(one.view(_uses(cursor)) for one in processes)

    name = f"{pool}/{cursor}"

    def holds(owner: int, *using: int) -> bool:
        users = [one.slot + 1 for one, uses_it in zip(processes, using, strict=True) if uses_it]
        return not memory_rules.check_owner(name, owner, users)

    return Always(f"{memory_rules.EXCL} {name} owned", "nobody frees what the living use", (word, *uses), holds)


def count_lost(queue: Queue, readers: list[QueueActor], ledger: Ledger, owners: int) -> Always:
    """LOST: once the cursors of dead readers are free, all that they had taken is counted."""
    cursors = tuple(View(state_of(READ, cursor), owners, _owner) for cursor in range(queue.read_cursors))
    lives = tuple(one.lives() for one in readers)
    word = View(LOST, 16, lambda local: min(local.value, 15))

    def holds(taken: int, count: int, *rest: int) -> bool:
        dead = {one.slot + 1 for one, living in zip(readers, rest[len(cursors) :], strict=True) if not living}
        return not memory_rules.check_lost(taken, count, is_reclaimed=not dead & {*rest[: len(cursors)]})

    views = (ledger.count_taken_along(), word, *cursors, *lives)
    return Always(memory_rules.LOST, "what the dead had taken is counted", views, holds)


def _cells(local: Any) -> int:
    return int(local.value) // CELL


def _owner(local: Any) -> int:
    return slot_in(local.value) + 1 if local.value else 0


def _uses(cursor: int) -> Callable[[Any], int]:
    """It has taken the cursor, and not yet tried to give it back."""

    def uses(record: Any) -> int:
        judges_other = record.status.value[0] == "r" and record.recovers
        has = record.status.value[0] in "2345678" or record.status.value == "1_clear_position" or judges_other
        return int(has and record.own == cursor)

    return uses


def _writes_to(record: Any) -> int:
    return record.end // CELL if record.status.value[0] in "67" else 0


def _reads_from(record: Any) -> int:
    return record.at // CELL + 1 if has_taken(record) else 0
