"""SubscriberTable: the window of one receiver: a `SubscriberWindow` for each subject and publisher, and a `Rotation`.

A thin host.  A subject has one entry with all its publishers, which is moved, dropped and reckoned as one.  A message
that has nothing to decide (the next of its stream, or of a range one that is a little further on) takes a short way; a
test holds it against the machines.
"""

from __future__ import annotations

from collections import Counter

from statemachines.kernel import Tell
from statemachines.sequence_windows.gaps import last_before, take
from statemachines.sequence_windows.generations import Generations
from statemachines.sequence_windows.message import LOSS_MAX, Judged, Numbered, Verdict
from statemachines.sequence_windows.publisher_table import SUBJECT_MAX, count_one
from statemachines.sequence_windows.rotation import ROTATION, SUBSCRIBER_OVERHEAD, RotationRecord, Tick, Window
from statemachines.sequence_windows.sequence import BASE_BITS, BASE_MAX, frame_at, frame_of, start_of
from statemachines.sequence_windows.subject_publishers import (
    LIVES_MAX,
    PLACE_BYTES,
    PLACES,
    SubjectPublishersRecord,
    line_of,
)
from statemachines.sequence_windows.subscriber_window import (
    CURRENT,
    FLIPS,
    FRESH,
    NEVER,
    OLD,
    SUBSCRIBER_WINDOW,
    UNSUBSCRIBED,
    SubscriberWindowRecord,
)

HORIZON_NS = 2 * 24 * 3600 * 1_000_000_000
"""A frame that begins so much later than our clock says, or more, is not believed: two days."""

PLACES_BYTES_MAX = 64 << 20
"""With so many bytes kept, one more publisher of a subject takes the place of one that the subject has."""
NEXT, SKIP, REPEAT = Verdict.NEXT, Verdict.SKIP, Verdict.REPEAT
UNCLEAR, HELD, REPEATED = -1, -2, -3


class ImpossibleMessage(ValueError):
    """A message that cannot be: it is dropped, and counted."""


NO_LIVES: dict[str, int] = {}
"""Lives of a publisher are counted where there may be too many."""
Line = tuple[str, int]
"""A publisher's id, and which of its lives (0: it does not say)."""


class PublisherEntry:
    """One life of a publisher of a subject: what its machine has."""

    __slots__ = ("alone", "gaps", "last", "life", "publisher", "time_ns")

    def __init__(self, publisher: str, life: int, after: SubscriberWindowRecord) -> None:
        self.publisher = publisher
        self.life = life
        self.take(after)

    def take(self, after: SubscriberWindowRecord) -> None:
        """What the machine has now."""
        self.last = after.last
        self.time_ns = after.time_ns
        self.gaps = after.gaps
        self.alone = after.alone

    def judge(self, number: int, patience: int) -> int:
        """How many messages are missing before one that does not follow the last, where that is clear: else (`UNCLEAR`)
        the machine judges it.  `HELD`: no more than `patience` are, and nothing is judged; `REPEATED`: it has come."""
        last = self.last
        since = last_before(last, self.gaps, number)
        lost = number - since - 1
        if lost < 0:
            return REPEATED
        if lost > LOSS_MAX or number >> BASE_BITS != since >> BASE_BITS:
            return UNCLEAR
        if lost <= patience and number > last:
            return HELD
        self.last, self.gaps, self.alone = take(last, self.gaps, self.alone, number, number)
        return lost


class Subject:
    """The publishers of a subject, who was silent longest first; the `newest` spoke last.  `crowded`: some were
    forgotten for others (the machine of this is `SUBJECT_PUBLISHERS`)."""

    __slots__ = ("crowded", "lines", "lives", "newest")

    def __init__(self, newest: PublisherEntry) -> None:
        self.newest = newest
        self.lines: dict[Line, PublisherEntry] = {(newest.publisher, newest.life): newest}
        self.crowded = False
        self.lives = NO_LIVES

    def __len__(self) -> int:
        return len(self.lines)

    def move_to_the_end(self, entry: PublisherEntry) -> None:
        """It has spoken."""
        line = (entry.publisher, entry.life)
        self.lines[line] = self.lines.pop(line)
        self.newest = entry

    def add(self, entry: PublisherEntry, places: int) -> bool:
        """One more; whether another had to go for it: an earlier life of its own, or who was silent longest."""
        lines, publisher, gone = self.lines, entry.publisher, None
        if len(lines) == LIVES_MAX:
            self.lives = dict(Counter(one for one, _ in lines))
        if self.lives.get(publisher, 0) >= LIVES_MAX:
            gone = next(line for line in lines if line[0] == publisher)
        elif len(lines) >= places:
            gone = next(iter(lines))
        if gone is not None:
            del lines[gone]
            self.crowded = True
            if self.lives:
                count_one(self.lives, gone[0], -1)
        if self.lives:
            count_one(self.lives, publisher, 1)
        self.newest = lines[publisher, entry.life] = entry
        return gone is not None


class SubscriberTable:
    """`window`: when to forget; `now_ns` of a clock that does not step, from which the window's time runs;
    `everything`: all subjects are subscribed but those that were taken back, since `t_ns` of the wall's clock (0: the
    host does not say); `horizon_ns`: see `HORIZON_NS` (0: any frame is believed); `publishers_max`: so many of a
    subject are remembered.  `evicted`: publishers that were forgotten because a subject had too many.
    `ConfigurationError` for a bound that is none."""

    def __init__(
        self,
        window: Window | None = None,
        now_ns: int = 0,
        *,
        everything: bool = False,
        horizon_ns: int = HORIZON_NS,
        publishers_max: int = PLACES,
        t_ns: int = 0,
    ) -> None:
        SubjectPublishersRecord("", publishers_max)
        self.rotation = RotationRecord(window or Window(), now_ns)
        self.subjects: Generations[Subject] = Generations(
            SUBSCRIBER_OVERHEAD, lambda subject: (len(subject) - 1) * PLACE_BYTES
        )
        self.evicted = 0
        self._places = publishers_max
        self._everything = everything
        self._begun = find_since(t_ns)
        self._since: dict[str, int] = {}
        self._horizon_ns = horizon_ns
        self._frame = self._old_frame = 0

    # -- who subscribes -----------------------------------------------------------------------------------------

    def is_subscribed(self, subject: str) -> bool:
        """Whether messages of the subject are wanted."""
        return self._since.get(subject, self._everything) > 0

    def subscribe(self, subject: str, t_ns: int = 0) -> None:
        """They are wanted, since `t_ns` of the wall's clock (0: the host does not say); what is subscribed already
        stays as it is."""
        if not self.is_subscribed(subject):
            self._since[subject] = find_since(t_ns)

    def unsubscribe(self, subject: str) -> None:
        """They are not, and what was known of them is forgotten."""
        if self._everything:
            self._since[subject] = 0
        else:
            self._since.pop(subject, None)
        self.subjects.remove(subject)

    # -- what comes ---------------------------------------------------------------------------------------------

    def receive(self, subject: str, publisher: str, event: Numbered, t_ns: int, life: int = 0) -> tuple[Judged, ...]:
        """What the messages are; `t_ns` of the wall's clock.  Several: some of them are repeated, and others are not.

        Raises `ImpossibleMessage` for a frame that is too far ahead of our clock, and for a subject that is too long.
        """
        if self.subjects.is_freeing:
            self.subjects.free()
        self._check(subject, event, t_ns)
        before = self.record(subject, publisher, life)
        step = SUBSCRIBER_WINDOW.step(before, event, 0)
        if before.status is not UNSUBSCRIBED:
            self._keep((publisher, life), step.record)
        return tuple(effect.event for effect in step.effects if isinstance(effect, Tell))  # type: ignore[misc]

    def receive_one(
        self, subject: str, publisher: str, number: int, time_ns: int, chain: int, t_ns: int, life: int = 0
    ) -> Judged:
        """The same for one message; ValueError (`ImpossibleMessage` is one) where `number` is none."""
        base = number & BASE_MAX
        lost = UNCLEAR if time_ns or chain else self.receive_next(subject, publisher, number, life)
        if not lost:
            return Judged(NEXT, number >> BASE_BITS, base, base)
        if lost != UNCLEAR:
            return tell_short(number, lost)
        event = Numbered(number >> BASE_BITS, base, base, time_ns, chain)
        return self.receive(subject, publisher, event, t_ns, life)[0]

    def receive_next(self, subject: str, publisher: str, number: int, life: int, patience: int = 0) -> int:
        """The short way of a message without a time: how many are missing before it.  `UNCLEAR`: `receive_one` says
        what it is; `HELD`: no more than `patience` are missing, and nothing is judged; `REPEATED`: it has come."""
        kept = self.subjects.current.get(subject)
        if kept is None:
            return UNCLEAR
        entry: PublisherEntry | None = kept.newest
        if entry.publisher != publisher or entry.life != life:  # type: ignore[union-attr]
            entry = kept.lines.get((publisher, life))
        if entry is None or not number & BASE_MAX:
            return UNCLEAR
        lost = 0
        if number == entry.last + 1:
            entry.last = number
        else:
            lost = entry.judge(number, patience)
        if entry is not kept.newest and lost not in (UNCLEAR, HELD):
            kept.move_to_the_end(entry)
        return lost

    def tick(self, now_ns: int) -> bool:
        """Flip if it is time; whether it did."""
        if now_ns - self.rotation.flipped_ns <= self.rotation.window.time_ns:
            return False
        step = ROTATION.step(self.rotation, Tick(now_ns, self.subjects.size_bytes, self._old_frame), 0)
        self.rotation = step.record
        if step.effects:
            self.subjects.flip()
            self._old_frame = self._frame
        return bool(step.effects)

    def record(self, subject: str, publisher: str, life: int = 0) -> SubscriberWindowRecord:
        """What the machine of the subject and of this life of the publisher has."""
        name = line_of(publisher, life)
        if not self.is_subscribed(subject):
            return SubscriberWindowRecord(subject, name)
        since = max(self._since.get(subject, self._begun), self.rotation.floor)
        flips = FLIPS
        for status, generation in ((CURRENT, self.subjects.current), (OLD, self.subjects.old)):
            kept = generation.get(subject)
            if kept is not None:
                entry = kept.lines.get((publisher, life))
                if entry is not None:
                    had = (entry.last, entry.time_ns, entry.gaps, entry.alone)
                    return SubscriberWindowRecord(subject, name, status, *had, since=since)
                crowded = flips if kept.crowded else 0
                return SubscriberWindowRecord(subject, name, FRESH, crowded=crowded, since=since)
            flips -= 1
        return SubscriberWindowRecord(subject, name, FRESH, since=since)

    def _check(self, subject: str, event: Numbered, t_ns: int) -> None:
        ahead = self._horizon_ns
        if ahead and event.frame >= frame_at(t_ns + ahead):
            by_s = (start_of(event.frame) - t_ns) // 1_000_000_000
            rule = f"at most {ahead // 1_000_000_000} s (horizon_ns)"
            raise ImpossibleMessage(
                f"{subject[:64]!r}: its number begins {by_s} s ahead of our clock, expected {rule}: set either clock"
            )
        if self.subjects.cost(subject) - SUBSCRIBER_OVERHEAD > SUBJECT_MAX:
            raise ImpossibleMessage(f"{subject[:32]!r}...: a subject has at most {SUBJECT_MAX} bytes")

    def _keep(self, line: Line, after: SubscriberWindowRecord) -> None:
        """The record of a publisher of whom something has just come; the subject is in the current generation then."""
        self._frame = max(self._frame, frame_of(after.last))
        kept = self.subjects.current.get(after.subject) or self.subjects.move(after.subject)
        if kept is None:
            self.subjects.add(after.subject, Subject(PublisherEntry(*line, after)))
            return
        entry = kept.lines.get(line)
        if entry is not None:
            entry.take(after)
            kept.move_to_the_end(entry)
            return
        is_full = self.subjects.size_bytes >= PLACES_BYTES_MAX
        if kept.add(PublisherEntry(*line, after), len(kept) if is_full else self._places):
            self.evicted += 1
        else:
            self.subjects.grow(PLACE_BYTES)


def tell_short(number: int, lost: int) -> Judged:
    """What the short way says of one message."""
    verdict = REPEAT if lost == REPEATED else SKIP if lost else NEXT
    base = number & BASE_MAX
    return Judged(verdict, number >> BASE_BITS, base, base, max(0, lost))


def find_since(t_ns: int) -> int:
    """The frame from which on a stream that begins is heard from its beginning."""
    return frame_at(t_ns) if t_ns else NEVER
