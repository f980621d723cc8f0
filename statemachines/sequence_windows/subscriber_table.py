"""SubscriberTable: the window of one receiver: a `SubscriberWindow` for each subject and publisher, and a `Rotation`.

A thin host.  A subject has one entry with all its publishers, which is moved, dropped and reckoned as one.  A message
that has nothing to decide (the next of its stream, or of a range one that is a little further on) takes a short way; a
test holds it against the machines.
"""

from __future__ import annotations

from statemachines.kernel import ConfigurationError, Tell
from statemachines.sequence_windows.generations import Generations
from statemachines.sequence_windows.jump import JUMP
from statemachines.sequence_windows.message import Judged, Numbered, Verdict
from statemachines.sequence_windows.publisher_table import SUBJECT_MAX
from statemachines.sequence_windows.rotation import ROTATION, SUBSCRIBER_OVERHEAD, RotationRecord, Tick, Window
from statemachines.sequence_windows.sequence import BASE_BITS, BASE_MAX, frame_at
from statemachines.sequence_windows.subject_publishers import PLACES, PLACES_MAX, line_of
from statemachines.sequence_windows.subscriber_window import (
    CURRENT,
    FLIPS,
    FRESH,
    OLD,
    SUBSCRIBER_WINDOW,
    UNSUBSCRIBED,
    SubscriberWindowRecord,
)

HORIZON_NS = 2 * 24 * 3600 * 1_000_000_000
"""A frame that begins so much later than our clock says, or more, is not believed: two days."""

NEXT, SKIP = Verdict.NEXT, Verdict.SKIP


class ImpossibleMessage(ValueError):
    """A message that cannot be: it is dropped, and counted."""


Line = tuple[str, int]
"""A publisher's id, and which of its lives (0: it does not say)."""


class PublisherEntry:
    """One life of a publisher of a subject: the last number, when its stream began, and the run beyond a jump."""

    __slots__ = ("jumped", "last", "life", "other", "publisher", "time_ns")

    def __init__(self, publisher: str, life: int, after: SubscriberWindowRecord) -> None:
        self.publisher = publisher
        self.life = life
        self.take(after)

    def take(self, after: SubscriberWindowRecord) -> None:
        """What the machine has now."""
        self.last = after.last
        self.time_ns = after.time_ns
        self.other = after.other
        self.jumped = after.jumped

    def judge(self, first: int, last: int) -> Verdict | None:
        """What messages are that come without a time, where that is clear: else (None) the machine judges them."""
        lost = first - self.last - 1
        if not lost:
            return None if first <= self.jumped <= last else NEXT
        is_of_frame = first >> BASE_BITS == self.last >> BASE_BITS
        return SKIP if 0 < lost < JUMP and not self.other and is_of_frame else None


class Subject:
    """The publishers of a subject, who was silent longest first; the `newest` spoke last.  `crowded`: some were
    forgotten for others (the machine of this is `SUBJECT_PUBLISHERS`)."""

    __slots__ = ("crowded", "lines", "newest")

    def __init__(self, newest: PublisherEntry) -> None:
        self.newest = newest
        self.lines: dict[Line, PublisherEntry] = {(newest.publisher, newest.life): newest}
        self.crowded = False

    def __len__(self) -> int:
        return len(self.lines)

    def move_to_the_end(self, entry: PublisherEntry) -> None:
        """It has spoken."""
        line = (entry.publisher, entry.life)
        self.lines[line] = self.lines.pop(line)
        self.newest = entry

    def add(self, entry: PublisherEntry, places: int) -> bool:
        """One more; whether another had to go for it."""
        self.newest = self.lines[entry.publisher, entry.life] = entry
        if len(self.lines) <= places:
            return False
        del self.lines[next(iter(self.lines))]
        self.crowded = True
        return True


class SubscriberTable:
    """`window`: when to forget; `now_ns` of a clock that does not step, from which the window's time runs;
    `everything`: all subjects are subscribed but those that were taken back; `horizon_ns`: see `HORIZON_NS` (0: any
    frame is believed); `publishers_max`: so many of a subject are remembered.  `evicted`: publishers that were
    forgotten because a subject had too many.  `ConfigurationError` for a bound that is none."""

    def __init__(
        self,
        window: Window | None = None,
        now_ns: int = 0,
        *,
        everything: bool = False,
        horizon_ns: int = HORIZON_NS,
        publishers_max: int = PLACES,
    ) -> None:
        if not 0 < publishers_max <= PLACES_MAX:
            raise ConfigurationError("publishers_max", publishers_max, f"must be 1 to {PLACES_MAX}")
        self.rotation = RotationRecord(window or Window(), now_ns)
        self.subjects: Generations[Subject] = Generations(SUBSCRIBER_OVERHEAD)
        self.evicted = 0
        self._places = publishers_max
        self._everything = everything
        self._listed: set[str] = set()
        self._horizon_ns = horizon_ns

    # -- who subscribes -----------------------------------------------------------------------------------------

    def is_subscribed(self, subject: str) -> bool:
        """Whether messages of the subject are wanted."""
        return (subject in self._listed) is not self._everything

    def subscribe(self, subject: str) -> None:
        """They are wanted; what is subscribed already stays as it is."""
        (self._listed.discard if self._everything else self._listed.add)(subject)

    def unsubscribe(self, subject: str) -> None:
        """They are not, and what was known of them is forgotten."""
        (self._listed.add if self._everything else self._listed.discard)(subject)
        self.subjects.remove(subject)

    # -- what comes ---------------------------------------------------------------------------------------------

    def receive(self, subject: str, publisher: str, event: Numbered, t_ns: int, life: int = 0) -> tuple[Judged, ...]:
        """What the messages are; `t_ns` of the wall's clock.  Several: some of them are repeated, and others are not.

        Raises `Refused` for a frame that is too far ahead of our clock, and for a subject that is too long.
        """
        kept = self.subjects.current.get(subject)
        if kept is not None:
            entry = kept.lines.get((publisher, life))
            if entry is not None and not event.time_ns:
                number = event.frame << BASE_BITS | event.first
                end = number + event.last - event.first
                lost = number - entry.last - 1
                verdict = entry.judge(number, end)
                if verdict is not None:
                    entry.last = end
                    if entry is not kept.newest:
                        kept.move_to_the_end(entry)
                    return (Judged(verdict, event.frame, event.first, event.last, lost),)
        return self._receive(subject, (publisher, life), event, t_ns)

    def receive_one(
        self, subject: str, publisher: str, number: int, time_ns: int, chain: int, t_ns: int, life: int = 0
    ) -> Judged:
        """The same for one message with the number `number`; ValueError (`Refused` is one) where it is none."""
        base = number & BASE_MAX
        kept = self.subjects.current.get(subject)
        if kept is not None:
            entry: PublisherEntry | None = kept.newest
            if entry.publisher != publisher or entry.life != life:  # type: ignore[union-attr]
                entry = kept.lines.get((publisher, life))
            if entry is not None and base and not time_ns and not chain:
                lost = number - entry.last - 1
                verdict = entry.judge(number, number)
                if verdict is not None:
                    entry.last = number
                    if entry is not kept.newest:
                        kept.move_to_the_end(entry)
                    return Judged(verdict, number >> BASE_BITS, base, base, lost)
        event = Numbered(number >> BASE_BITS, base, base, time_ns, chain)
        return self._receive(subject, (publisher, life), event, t_ns)[0]

    def tick(self, now_ns: int) -> bool:
        """Flip if it is time; whether it did."""
        step = ROTATION.step(self.rotation, Tick(now_ns, self.subjects.size_bytes), 0)
        self.rotation = step.record
        if step.effects:
            self.subjects.flip()
        return bool(step.effects)

    def record(self, subject: str, publisher: str, life: int = 0) -> SubscriberWindowRecord:
        """What the machine of the subject and of this life of the publisher has."""
        name = line_of(publisher, life)
        if not self.is_subscribed(subject):
            return SubscriberWindowRecord(subject, name)
        flips = FLIPS
        for status, generation in ((CURRENT, self.subjects.current), (OLD, self.subjects.old)):
            kept = generation.get(subject)
            if kept is not None:
                entry = kept.lines.get((publisher, life))
                if entry is not None:
                    last, time_ns, other, jumped = entry.last, entry.time_ns, entry.other, entry.jumped
                    return SubscriberWindowRecord(subject, name, status, last, time_ns, other, jumped)
                crowded = flips if kept.crowded else 0
                return SubscriberWindowRecord(subject, name, FRESH, crowded=crowded)
            flips -= 1
        return SubscriberWindowRecord(subject, name, FRESH)

    def _receive(self, subject: str, line: Line, event: Numbered, t_ns: int) -> tuple[Judged, ...]:
        """All that the short way does not do: the machine."""
        if self.subjects.is_freeing:
            self.subjects.free()
        self._check(subject, event, t_ns)
        before = self.record(subject, *line)
        step = SUBSCRIBER_WINDOW.step(before, event, 0)
        if before.status is not UNSUBSCRIBED:
            self._keep(line, step.record)
        return tuple(effect.event for effect in step.effects if isinstance(effect, Tell))  # type: ignore[misc]

    def _check(self, subject: str, event: Numbered, t_ns: int) -> None:
        ahead = self._horizon_ns
        if ahead and event.frame >= frame_at(t_ns + ahead):
            raise ImpossibleMessage(f"{subject[:64]!r}: frame {event.frame} is more than {ahead} ns ahead of our clock")
        if self.subjects.cost(subject) - SUBSCRIBER_OVERHEAD > SUBJECT_MAX:
            raise ImpossibleMessage(f"{subject[:32]!r}...: a subject has at most {SUBJECT_MAX} bytes")

    def _keep(self, line: Line, after: SubscriberWindowRecord) -> None:
        """The record of a publisher of whom something has just come; the subject is in the current generation then."""
        kept = self.subjects.current.get(after.subject) or self.subjects.move(after.subject)
        if kept is None:
            self.subjects.add(after.subject, Subject(PublisherEntry(*line, after)))
            return
        entry = kept.lines.get(line)
        if entry is None:
            self.evicted += kept.add(PublisherEntry(*line, after), self._places)
            return
        entry.take(after)
        if entry is not kept.newest:
            kept.move_to_the_end(entry)
