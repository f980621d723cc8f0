"""Section: what a scenario file says of cursor recovery: the queue, who takes part, the load, how fast it goes.

An access takes as long as a slow machine would need under a debugger, so that most of the faults of a run fall amid an
operation: what matters is between which two accesses, not how many seconds those are apart.
"""

from __future__ import annotations

import msgspec

from statemachines.cursor_recovery.block import length_of
from statemachines.cursor_recovery.memory import CELL, SLOTS, Queue
from statemachines.kernel import ConfigurationError
from statemachines_sim.scenario import Range, Scenario, check_bounds, check_ranges
from statemachines_sim.units import MS


class QueueSection(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The keys below `[cursor_recovery]`."""

    writers: int = 3
    readers: int = 2
    capacity: int = 600
    """Bytes of the data area."""
    write_cursors: int = 2
    read_cursors: int = 2
    threshold_ms: int = 2_000
    threshold_only: bool = False
    """Whose cursor is aged is held for dead, as where the death of an owner cannot be told."""
    messages: int = 120
    """What each writer writes, over all its lives."""
    batch: int = 1
    """So many messages in a block, at most."""
    size: Range = (0, 60)
    """Bytes of a message, beside its name."""
    write_ms: Range = (0, 40)
    """How long a writer rests after a block."""
    poll_ms: Range = (10, 80)
    """How long one rests who could not do anything."""
    access_us: Range = (200, 4_000)
    """How long an access takes."""

    @property
    def queue(self) -> Queue:
        """Its shape; `ConfigurationError` where there is none such."""
        return Queue(
            capacity=self.capacity,
            read_cursors=self.read_cursors,
            write_cursors=self.write_cursors,
            threshold_ns=self.threshold_ms * MS,
            threshold_only=self.threshold_only,
        )

    @property
    def longest_block(self) -> int:
        """Bytes of the longest block that a writer may write."""
        return length_of(CELL + self.batch * (NAME + self.size[1]))


NAME = 12
"""Bytes that name a message, at most: writer:number; and what parts it from the next one."""


def check(own: QueueSection, scenario: Scenario) -> None:
    """Raises `ConfigurationError` where a value breaks a rule."""
    check_bounds(
        ("writers", own.writers, 0, SLOTS // 2),
        ("readers", own.readers, 0, SLOTS // 2),
        ("messages", own.messages, 0, 100_000),
        ("batch", own.batch, 1, 100),
        ("threshold_ms", own.threshold_ms, 1, 3_600_000),
        ("read_cursors", own.read_cursors, 1, 1_024),
        ("write_cursors", own.write_cursors, 1, 1_024),
    )
    ranges = ("size", "write_ms", "poll_ms", "access_us")
    check_ranges(*((key, getattr(own, key)) for key in ranges))
    if own.access_us[0] < 1 or own.poll_ms[0] < 1:
        key = "access_us" if own.access_us[0] < 1 else "poll_ms"
        raise ConfigurationError(key, list(getattr(own, key)), "must be at least 1: time has to pass")
    if own.longest_block > own.queue.capacity:
        rule = f"must hold the longest block, {own.longest_block} bytes (batch, size)"
        raise ConfigurationError("capacity", own.capacity, rule)
