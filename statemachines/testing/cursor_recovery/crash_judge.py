"""Crash judge: what a run left behind, judged from outside: the files that its processes wrote, and the segment.

It knows the properties (spec/cursor_recovery/properties.md) and nothing of how the queue keeps them.

Crash plan: what one run of the crash harness does, drawn from its seed: how many processes, what each writes, and
before which of its memory accesses each of its lives ends or stops.
"""

from __future__ import annotations

from random import Random
from typing import Literal, NamedTuple

import msgspec

from statemachines.cursor_recovery.memory import Queue

PATIENCE_S = 30.0
"""What lasts longer is stuck; a busy machine may need a while."""
NAME = 10
"""Bytes, at most, by which a message says which one it is."""
Kind = Literal["none", "kill", "stop"]


class PlannedFate(msgspec.Struct, frozen=True):
    """What befalls a process before its access number `access` (from 1, once it is attached), of a copy after so many
    `cells`: SIGKILL, or SIGSTOP for several thresholds."""

    kind: Kind = "none"
    access: int = 0
    cells: int | None = None


class Plan(msgspec.Struct, frozen=True):
    """One run.  `writers`: for each the sizes of its messages, by block; `fates_of_writers`, `fates_of_readers`: one a
    life, in order; after those a life is undisturbed.  `declared`: processes run the declared machines;
    `patience_s`: what lasts longer is stuck."""

    seed: int
    capacity: int
    read_cursors: int
    write_cursors: int
    writers: tuple[tuple[tuple[int, ...], ...], ...]
    fates_of_writers: tuple[tuple[PlannedFate, ...], ...]
    fates_of_readers: tuple[tuple[PlannedFate, ...], ...]
    declared: bool
    threshold_ms: int = 5
    patience_s: float = PATIENCE_S

    @property
    def queue(self) -> Queue:
        """The shape of its queue."""
        return Queue(
            capacity=self.capacity,
            read_cursors=self.read_cursors,
            write_cursors=self.write_cursors,
            threshold_ns=self.threshold_ms * 1_000_000,
        )


def draw_plan(seed: int) -> Plan:
    """The plan of a seed, always the same."""
    chance = Random(seed)
    capacity = chance.choice((96, 128, 256, 1024))
    writers = chance.randint(1, 3)
    readers = chance.randint(1, 2)
    return Plan(
        seed=seed,
        capacity=capacity,
        read_cursors=chance.randint(1, 3),
        write_cursors=chance.randint(1, 3),
        writers=tuple(_draw_blocks(chance, capacity) for _ in range(writers)),
        fates_of_writers=tuple(_draw_fates(chance) for _ in range(writers)),
        fates_of_readers=tuple(_draw_fates(chance) for _ in range(readers)),
        declared=chance.random() < 0.5,
    )


def _draw_blocks(chance: Random, capacity: int) -> tuple[tuple[int, ...], ...]:
    """Sizes of the messages, block by block; a block of three fits in any of the capacities."""
    single, one_of_three = capacity // 2 - NAME, (capacity - 32) // 3 - NAME
    return tuple(
        tuple(chance.randint(0, one_of_three if count > 1 else single) for _ in range(count))
        for count in (chance.choice((1, 1, 1, 3)) for _ in range(chance.randint(3, 12)))
    )


def _draw_fates(chance: Random) -> tuple[PlannedFate, ...]:
    return tuple(
        PlannedFate(
            kind=chance.choice(("kill", "kill", "kill", "stop")),
            access=chance.randint(1, 90),
            cells=chance.choice((None, 0, 1, 3)),
        )
        for _ in range(chance.randint(0, 2))
    )


def message_of(writer: int, number: int, size: int) -> bytes:
    """The bytes of a message: which one it is, and then what only that one has; never less than its name."""
    name = f"{writer}:{number}:{size}:".encode()
    return name + Random(f"{writer}/{number}").randbytes(size)


class ReadMessage(msgspec.Struct, frozen=True):
    """A message that a reader says it got: which life of which reader, the position of its block, the bytes."""

    reader: int
    life: int
    position: int
    message: bytes


class HeldBlock(msgspec.Struct, frozen=True):
    """A life, by name, that had the cursor for certain from `since_ns` to `until_ns`: after it had taken it, and before
    it gave it back, or died."""

    cursor: str
    who: str
    since_ns: int
    until_ns: int


class Evidence(msgspec.Struct, kw_only=True):
    """What was seen.  A message is (writer, number).

    `begun`: a writer was about to write it; `acknowledged`: and was told WRITTEN; `lost`: the queue's own count;
    `held`: cursors that somebody had; `readers_killed`: how many; `heads`: samples of (read head, write head, read head
    again); `guards`: the bytes beside the data area are as they were; `stuck`: what did not end, or was refused,
    although it must not.
    """

    begun: dict[tuple[int, int], bytes] = msgspec.field(default_factory=dict)
    acknowledged: set[tuple[int, int]] = msgspec.field(default_factory=set)
    deliveries: list[ReadMessage] = msgspec.field(default_factory=list)
    held: list[HeldBlock] = msgspec.field(default_factory=list)
    lost: int = 0
    readers_killed: int = 0
    heads: list[tuple[int, int, int]] = msgspec.field(default_factory=list)
    guards: bool = True
    stuck: list[tuple[str, str]] = msgspec.field(default_factory=list)


class CrashViolation(NamedTuple):
    """A property that a run broke, and how."""

    name: str
    text: str


def messages_in(plan: Plan) -> dict[tuple[int, int], bytes]:
    """Every message of a plan."""
    return {
        (writer, number): message_of(writer, number, size)
        for writer, blocks in enumerate(plan.writers)
        for number, size in enumerate(size for block in blocks for size in block)
    }


def judge(plan: Plan, seen: Evidence) -> list[CrashViolation]:
    """Every property that does not hold."""
    found = [CrashViolation(name, text) for name, text in seen.stuck]
    found += _judge_bytes(messages_in(plan), seen)
    found += _judge_order(seen)
    found += _judge_acknowledged(plan, seen)
    found += _judge_owners(seen)
    for read, written, later in seen.heads:
        if not read <= written <= later + plan.capacity:
            found.append(
                CrashViolation("BOUND", f"read head {read}, then write head {written}, then read head {later}")
            )
    if not seen.guards:
        found.append(CrashViolation("SPACE", "bytes beside the data area have changed"))
    return found


def _judge_bytes(messages: dict[tuple[int, int], bytes], seen: Evidence) -> list[CrashViolation]:
    """INTEG and ONCE."""
    names = {message: name for name, message in messages.items()}
    found = []
    came: dict[tuple[int, int], ReadMessage] = {}
    for one in seen.deliveries:
        name = names.get(one.message)
        if name is None or name not in seen.begun:
            found.append(CrashViolation("INTEG", f"reader {one.reader} got {one.message!r}, which nobody wrote"))
        elif name in came:
            found.append(CrashViolation("ONCE", f"{name} came to {came[name].reader} and to {one.reader}"))
        else:
            came[name] = one
    return found


def _judge_order(seen: Evidence) -> list[CrashViolation]:
    """ORDER: positions of each reader's life increase, and so do the messages of each writer."""
    found = []
    last: dict[tuple[int, int], int] = {}
    for one in seen.deliveries:
        consumer = (one.reader, one.life)
        if one.position < last.get(consumer, -1):
            found.append(CrashViolation("ORDER", f"reader {consumer} got {one.position} after {last[consumer]}"))
        last[consumer] = one.position
    return found


def _judge_acknowledged(plan: Plan, seen: Evidence) -> list[CrashViolation]:
    """ACK: what did not come was taken by readers that were killed: a block each, and all of it counted."""
    messages = messages_in(plan)
    came = {one.message for one in seen.deliveries}
    missing = sorted(name for name in seen.acknowledged if messages[name] not in came)
    found = []
    if len(missing) > seen.lost:
        found.append(CrashViolation("ACK", f"{missing} were acknowledged and never came; counted as lost: {seen.lost}"))
    blocks = {_block_of(plan, name) for name in missing}
    if len(blocks) > seen.readers_killed:
        found.append(CrashViolation("ACK", f"{missing} are missing; readers killed: {seen.readers_killed}"))
    if seen.lost and not seen.readers_killed:
        found.append(CrashViolation("ACK", f"{seen.lost} messages counted as lost although no reader was killed"))
    return found


def _judge_owners(seen: Evidence) -> list[CrashViolation]:
    """EXCL: nobody had a cursor while another one had it for certain."""
    found = []
    last: dict[str, HeldBlock] = {}
    for one in sorted(seen.held, key=lambda one: one.since_ns):
        before = last.get(one.cursor)
        if before is not None and one.since_ns < before.until_ns:
            found.append(CrashViolation("EXCL", f"{one.who} had {one.cursor} while {before.who} had it"))
        if before is None or one.until_ns > before.until_ns:
            last[one.cursor] = one
    return found


def _block_of(plan: Plan, name: tuple[int, int]) -> tuple[int, int]:
    """The block that a message was written in: writer, and its number there."""
    writer, number = name
    ends, total = [], 0
    for block in plan.writers[writer]:
        total += len(block)
        ends.append(total)
    return writer, next(index for index, end in enumerate(ends) if number < end)
