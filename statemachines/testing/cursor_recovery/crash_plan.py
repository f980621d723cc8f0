"""Crash plan: what one run of the crash harness does, drawn from its seed: how many processes, what each writes, and
before which of its memory accesses each of its lives ends or stops."""

from __future__ import annotations

from random import Random
from typing import Literal

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
