"""Stats: what a queue looks like from outside, while its processes go on."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import msgspec

from statemachines.cursor_recovery.layout import holder_of
from statemachines.cursor_recovery.memory import FREE, SLOTS, TICK_NS, incarnation_in, slot_in

if TYPE_CHECKING:
    from statemachines.drivers.cursor_recovery.attachment import Attachment


class TakenCursor(msgspec.Struct, frozen=True):
    """A cursor that somebody has: `pool` read or write, its owner, and how long ago it was taken, in seconds."""

    pool: str
    cursor: int
    slot: int
    incarnation: int
    age_s: float


class Participant(msgspec.Struct, frozen=True):
    """A process that takes part: its slot, the life of it, and its process number."""

    slot: int
    incarnation: int
    pid: int


class Stats(msgspec.Struct, frozen=True):
    """Each word as it was at some moment between the call and the return.

    `used`: bytes between the heads, of `capacity`; `lost`: messages that readers had taken when they died, at most so
    many; `processes`: who has a slot (with `threshold_only` elsewhere than on Linux: who had it last).
    """

    capacity: int
    used: int
    read_head: int
    write_head: int
    lost: int
    cursors: tuple[TakenCursor, ...]
    processes: tuple[Participant, ...]


def stats_of(here: Attachment) -> Stats:
    """The words of the queue that this process is attached to."""
    words = here.words
    read_head = words.read_head.load()
    write_head = words.write_head.load()
    return Stats(
        capacity=words.capacity,
        used=write_head - read_head,
        read_head=read_head,
        write_head=write_head,
        lost=words.lost.load(),
        cursors=_cursors(here),
        processes=_processes(here),
    )


def _cursors(here: Attachment) -> tuple[TakenCursor, ...]:
    now_ns = time.monotonic_ns()
    return tuple(
        TakenCursor(pool, cursor, slot_in(word), incarnation_in(word), (now_ns - word % (1 << 43) * TICK_NS) / 1e9)
        for pool, states in here.words.states.items()
        for cursor, state in enumerate(states)
        if (word := state.load()) != FREE
    )


def _processes(here: Attachment) -> tuple[Participant, ...]:
    return tuple(
        Participant(slot, here.words.incarnations[slot].load(), here.words.plain(holder_of(slot)).load())
        for slot in range(SLOTS)
        if here.is_locked(slot)
    )
