"""PublisherTable: the window of one publisher: a `PublisherWindow` a subject, and a `Rotation`.

A thin host.  Of a subject it keeps its last number alone, and in which generation it stands; what the machine's record
is follows from that.  A message that has nothing to decide (the next of a stream that goes on) takes a short way; a
test holds it against the machines.
"""

from __future__ import annotations

from typing import TypeVar

from statemachines.kernel import ConfigurationError, Tell
from statemachines.sequence_windows.generations import Generations
from statemachines.sequence_windows.late_join import Converged
from statemachines.sequence_windows.publisher_window import (
    ABSENT,
    CURRENT,
    OLD,
    PUBLISHER_WINDOW,
    Exhausted,
    Publish,
    PublisherWindowRecord,
    Stamped,
)
from statemachines.sequence_windows.rotation import PUBLISHER_OVERHEAD, ROTATION, RotationRecord, Tick, Window
from statemachines.sequence_windows.sequence import BASE_BITS, BASE_MAX, frame_at, frame_of

K = TypeVar("K")
SUBJECT_MAX = 4096
"""Bytes of a subject."""


class FramesUsedUp(Exception):
    """There is no frame left for a stream of `subject`: the layout of numbers has ended (2116-02-20)."""

    def __init__(self, subject: str) -> None:
        self.subject = subject
        super().__init__(f"{subject!r}: no frame is left after 2^29 - 1, so no stream can begin; nothing was numbered")


class PublisherTable:
    """`window`: when to forget; `now_ns` of a clock that does not step, from which the window's time runs."""

    def __init__(self, window: Window | None = None, now_ns: int = 0) -> None:
        self.rotation = RotationRecord(window or Window(), now_ns)
        self.subjects: Generations[int] = Generations(PUBLISHER_OVERHEAD)
        self._restarts_below = 0
        self._frames: dict[int, int] = {}
        self._old_frames: dict[int, int] = {}

    def stamp(self, subject: str, t_ns: int) -> Stamped:
        """The number of the next message of the subject; `t_ns` of the wall's clock.

        Raises `ConfigurationError` for a subject of more than `SUBJECT_MAX` bytes, `FramesUsedUp` at the end.
        """
        last = self.subjects.current.get(subject)
        if last is not None:
            base = last & BASE_MAX
            frame = last >> BASE_BITS
            if base < BASE_MAX and frame >= self._restarts_below:
                self.subjects.current[subject] = last + 1
                return Stamped(frame, base + 1, base + 1)
        return self._stamp(subject, 1, t_ns)

    def stamp_many(self, subject: str, count: int, t_ns: int) -> tuple[Stamped, ...]:
        """The numbers of the next `count` messages, as ranges: one, or two where a base is used up in between."""
        told: list[Stamped] = []
        while count > 0:
            told.append(self._stamp(subject, count, t_ns))
            count -= told[-1].last - told[-1].first + 1
        return tuple(told)

    def converge(self, t_ns: int) -> None:
        """The network converged then: streams that are older begin anew with their next message."""
        self.rotation = ROTATION.step(self.rotation, Converged(t_ns), 0).record
        self._restarts_below = frame_at(self.rotation.converged_ns) if self.rotation.converged_ns else 0

    def tick(self, now_ns: int) -> bool:
        """Flip if it is time; whether it did."""
        if now_ns - self.rotation.flipped_ns <= self.rotation.window.time_ns:
            return False
        event = Tick(now_ns, self.subjects.size_bytes, max(self._old_frames, default=0))
        step = ROTATION.step(self.rotation, event, 0)
        self.rotation = step.record
        if step.effects:
            self.subjects.flip()
            self._old_frames, self._frames = self._frames, {}
        return bool(step.effects)

    def record(self, subject: str) -> PublisherWindowRecord:
        """What the machine of the subject has."""
        last = self.subjects.current.get(subject)
        if last is not None:
            return PublisherWindowRecord(subject, CURRENT, last)
        last = self.subjects.old.get(subject)
        return PublisherWindowRecord(subject) if last is None else PublisherWindowRecord(subject, OLD, last)

    def _stamp(self, subject: str, count: int, t_ns: int) -> Stamped:
        """All that the short way does not do: the machine."""
        if self.subjects.is_freeing:
            self.subjects.free()
        before = self.record(subject)
        if before.status is ABSENT and self.subjects.cost(subject) - PUBLISHER_OVERHEAD > SUBJECT_MAX:
            raise ConfigurationError("subject", f"{subject[:32]}...", f"at most {SUBJECT_MAX} bytes")
        event = Publish(count, t_ns, self.rotation.converged_ns, self.rotation.floor)
        step = PUBLISHER_WINDOW.step(before, event, 0)
        (told,) = (effect.event for effect in step.effects if isinstance(effect, Tell))
        if isinstance(told, Exhausted):
            raise FramesUsedUp(subject)
        assert isinstance(told, Stamped)
        self._keep(before, step.record)
        return told

    def _keep(self, before: PublisherWindowRecord, after: PublisherWindowRecord) -> None:
        """The record of a subject that has just been numbered, which is in the current generation by now."""
        if before.status is ABSENT:
            self.subjects.add(after.subject, after.last)
        else:
            if before.status is OLD:
                self.subjects.move(after.subject)
            self.subjects.current[after.subject] = after.last
            count_one(self._frames if before.status is CURRENT else self._old_frames, frame_of(before.last), -1)
        count_one(self._frames, frame_of(after.last), 1)


def count_one(counts: dict[K, int], key: K, by: int) -> None:
    """One more, or less, of these."""
    count = counts.get(key, 0) + by
    if count:
        counts[key] = count
    else:
        del counts[key]
