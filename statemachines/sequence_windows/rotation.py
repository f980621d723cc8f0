"""Rotation: when a window turns, for publishers and receivers alike (source: "Publish sequence window").

One record for a whole window; the subjects stand in two generations at the host.  A tick says how late it is by the
host's clock, which does not step, and how much is kept.
"""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from statemachines.kernel import STAY, Call, ConfigurationError, Effects, Fsm, Ignore, Row, Status, Tell
from statemachines.sequence_windows.late_join import Converged
from statemachines.sequence_windows.publisher_window import Flip
from statemachines.sequence_windows.sequence import FIRST_FRAME

S = 1_000_000_000
PUBLISHER_OVERHEAD = 48
"""Bytes that the source reckons for a subject of a publisher, its name apart."""
SUBSCRIBER_OVERHEAD = 128
"""The same for a subject of a receiver, whatever the number of its publishers."""
WINDOW_NS_MIN = 10 * S
"""Longer than a frame, so that a subject that was dropped begins in a later one."""


class Window(msgspec.Struct, frozen=True):
    """Forget no sooner than after `time_ns`, and only while more than `size` bytes are kept, as the source reckons
    them.  `ConfigurationError` names the value that cannot be."""

    size: int = 4 << 20
    time_ns: int = 10 * S

    def __post_init__(self) -> None:
        if self.size < 1:
            raise ConfigurationError("size", self.size, "at least 1 byte")
        if self.time_ns < WINDOW_NS_MIN:
            raise ConfigurationError("time_ns", self.time_ns, f"at least {WINDOW_NS_MIN}, 10 seconds")


class Tick(Call, frozen=True, gc=False):
    """It is `at_ns` by the host's clock; `kept` bytes stand in both generations; `old_frame`: the highest frame of the
    old one (0: nothing is in it, or nobody asks)."""

    at_ns: int
    kept: int
    old_frame: int = 0


class RotationStatus(Status):
    """A window has one state: it turns."""

    TURNING = "turning"


TURNING = RotationStatus.TURNING


class RotationRecord(msgspec.Struct, frozen=True, gc=False):
    """`flipped_ns`: when the last flip was; `flips`: how many; `floor`: one more than the highest frame that was ever
    dropped; `converged_ns`: when the network converged last (0: nobody said)."""

    window: Window
    flipped_ns: int
    status: RotationStatus = TURNING
    flips: int = 0
    floor: int = FIRST_FRAME
    converged_ns: int = 0


Done = tuple[RotationRecord, Effects]


def is_due(record: RotationRecord, event: Tick) -> bool:
    """The time has passed and too much is kept, both strictly."""
    return event.at_ns - record.flipped_ns > record.window.time_ns and event.kept > record.window.size


def is_later(record: RotationRecord, event: Converged) -> bool:
    return event.t_ns > record.converged_ns


def flip(record: RotationRecord, event: Tick, now_ns: int) -> Done:
    floor = max(record.floor, event.old_frame + 1)
    record = replace(record, flipped_ns=event.at_ns, flips=record.flips + 1, floor=floor)
    return record, (Tell(Flip(floor)),)


def keep_convergence(record: RotationRecord, event: Converged, now_ns: int) -> Done:
    return replace(record, converged_ns=event.t_ns), ()


# fmt: off
ROWS = (
    #   on         from     to    do                when      clause
    Row(Tick,      TURNING, STAY, flip,             is_due,   "SW-10"),
    Row(Converged, TURNING, STAY, keep_convergence, is_later, "SW-06"),
    Ignore((Tick,), TURNING,                                  "SW-10"),
    Ignore((Converged,), TURNING,                             "SW-06"),
)
# fmt: on

ROTATION = Fsm(
    "rotation",
    protocol="sequence_windows",
    record=RotationRecord,
    states=RotationStatus,
    initial=TURNING,
    rows=ROWS,
)
