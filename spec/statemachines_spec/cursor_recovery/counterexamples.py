"""Counterexamples: small systems in which the source, word for word, loses, repeats, mixes or blocks for ever."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from statemachines_spec.cursor_recovery.systems import (
    DEAD,
    EMPTY,
    LATER,
    LONG,
    LONGER,
    SLOW,
    A,
    B,
    C,
    QueueSetting,
    build,
)
from statemachines_spec.explorer.property import Eventually
from statemachines_spec.explorer.system import System


class QueueCounterexample(msgspec.Struct, frozen=True):
    """`about`: what goes wrong; `breaks`: the property, one of liveness where it is READ or WRITE.  The shipped queue
    keeps it in the same system."""

    name: str
    about: str
    setting: QueueSetting
    breaks: str

    def system(self, variant: str = "as_written") -> System:
        """The system in a variant, and of its properties the one that is to break."""
        made = build(self.name, self.about, self.setting, variant)
        kept = (*made.properties, *made.obligations)
        wanted = tuple(one for one in kept if one.name.partition(" ")[0] == self.breaks)
        safe = tuple(one for one in wanted if not isinstance(one, Eventually))
        return replace(made, properties=safe, obligations=tuple(one for one in wanted if isinstance(one, Eventually)))


COUNTEREXAMPLES = (
    QueueCounterexample(
        "size-before-header",
        "a reader that has read the size before the header was written moves into the middle of a block; nobody dies",
        QueueSetting(((A,),), 1, capacity=40),
        "INTEG",
    ),
    QueueCounterexample(
        "scan-passes-a-writer",
        "of two writers the scan finds the mark of the second, and skips the block of the first, which is acknowledged",
        QueueSetting(((A,), (EMPTY,)), 1, capacity=64, instants=LATER),
        "ACK",
    ),
    QueueCounterexample(
        "previous-lap",
        "a writer dies between steps 5 and 6: the message of the lap before is delivered again",
        QueueSetting(((A, B, C),), 1, capacity=40, crashes=1, instants=LATER),
        "ONCE",
    ),
    QueueCounterexample(
        "late-writer",
        "a slow writer is taken for dead when its mark is there: what it goes on to write, and is acknowledged, "
        "has come before, as bytes that were not its own",
        QueueSetting(((LONG,), (LONGER,)), 1, capacity=28, instants=LATER),
        "KEPT",
    ),
    QueueCounterexample(
        "cursor-reassigned",
        "a slow owner releases the cursor, which has another owner by now",
        QueueSetting(((A,), (B,)), 1, capacity=64, instants=SLOW, write_cursors=1),
        "EXCL",
    ),
    QueueCounterexample(
        "exactly-full",
        "a queue that is exactly full looks empty to readers, for ever",
        QueueSetting(((A,),), 1, capacity=20),
        "READ",
    ),
    QueueCounterexample(
        "stale-tail",
        "the last block is stale, and leaves no room: nobody writes behind it, so nobody passes it",
        QueueSetting(((A,), (EMPTY,)), 1, capacity=24, crashes=1, instants=LATER),
        "WRITE",
    ),
    QueueCounterexample(
        "dead-pool",
        "all write cursors were left behind by the dead: on an empty queue nobody meets them",
        QueueSetting(((A,),), 1, left=DEAD, instants=LATER),
        "WRITE",
    ),
)
"""Found by exploring, shortest first."""
