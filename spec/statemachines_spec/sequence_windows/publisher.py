"""Publisher: a publisher of a few subjects as a component; it may forget, begin anew, and lose what it sends.

Loss happens here, where a message leaves: on a path that keeps order a receiver cannot tell where it was lost.  What a
message carries besides its number (`Carried`) nobody of the product reads: it is for the judge at the receiver.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec.structs import replace

from statemachines.kernel import Event, Message
from statemachines.sequence_windows.late_join import Converged
from statemachines.sequence_windows.message import Numbered
from statemachines.sequence_windows.publisher_window import (
    ABSENT,
    CURRENT,
    OLD,
    PUBLISHER_WINDOW,
    Exhausted,
    Flip,
    Publish,
    PublisherWindowRecord,
)
from statemachines.sequence_windows.rotation import ROTATION, RotationRecord, Tick, Window
from statemachines.sequence_windows.sequence import frame_of
from statemachines_spec.explorer.actor import Actor, At, Envelope, Reaction, Restart, Watch
from statemachines_spec.explorer.property import View
from statemachines_spec.sequence_windows.rules import SHIPPED, Rules, step

RECEIVER = "receiver"
WINDOW = Window(1)


class Send(Event, frozen=True, gc=False):
    """The application publishes on this subject; `lost`: on the way."""

    subject: str
    lost: bool


class Rotate(Event, frozen=True, gc=False):
    """It is time, and too much is kept."""


class Carried(Message, frozen=True, gc=False):
    """A message on its way.  For the judge alone: its `ordinal` among those of this publisher and subject, from 0 on;
    that of the first of its stream; and that of the first since the publisher last forgot the subject."""

    publisher: str
    subject: str
    event: Numbered
    ordinal: int
    begin: int
    cut: int


class Line(msgspec.Struct, frozen=True, gc=False):
    """One subject: its record; how many were `sent`; the highest number; see `Carried` for the others."""

    record: PublisherWindowRecord
    sent: int = 0
    highest: int = 0
    begin: int = 0
    cut: int = 0


class PublisherLocal(msgspec.Struct, frozen=True, gc=False):
    """`life` of the publisher; `broken`: MONO is; `ended`: there was no frame for a stream; `place` of the clock."""

    rotation: RotationRecord
    lines: tuple[Line, ...]
    life: int = 1
    sent: int = 0
    place: int = 0
    broken: bool = False
    ended: bool = False


class Publisher(Actor):
    """`walls`: what its clock says at each instant of the system, in nanoseconds; `messages`: it sends no more than so
    many; `lives` it may have; `begin`: the last number of each subject at first (0: none); `careful`: nothing is lost
    once the network has converged, as the source assumes."""

    keeps_time = True

    def __init__(
        self,
        name: str,
        *,
        walls: tuple[int, ...],
        subjects: tuple[str, ...] = ("s",),
        messages: int = 4,
        lives: int = 1,
        rotates: bool = False,
        begin: int = 0,
        careful: bool = False,
        rules: Rules = SHIPPED,
    ) -> None:
        super().__init__(name)
        self.walls = walls
        self.subjects = subjects
        self.messages = messages
        self.lives = lives
        self.rotates = rotates
        self.careful = careful
        self.begin = begin
        self.rules = rules

    # -- the component ------------------------------------------------------------------------------------------

    def initial(self) -> PublisherLocal:
        return PublisherLocal(RotationRecord(WINDOW, 0), tuple(self._line(subject) for subject in self.subjects))

    def inputs(self, local: PublisherLocal) -> tuple[Any, ...]:
        found: list[Event] = []
        if local.sent < self.messages:
            lossy = not (self.careful and local.rotation.converged_ns)
            found += [
                Send(subject, lost) for subject in self.subjects for lost in ((False, True) if lossy else (False,))
            ]
            found += [Restart()] if local.life < self.lives else []
        if self.rotates and any(line.record.status is not ABSENT for line in local.lines):
            found.append(Rotate())
        return tuple(found)

    def react(self, local: PublisherLocal, envelope: Envelope, watch: Watch | None = None) -> Reaction | None:
        match envelope.event:
            case At(now_ns):
                return Reaction(replace(local, place=now_ns))
            case Converged() as event:
                return Reaction(self._turned(local, event, watch)[0])
            case Restart():
                fresh = tuple(self._line(subject) for subject in self.subjects)
                return Reaction(replace(local, rotation=RotationRecord(WINDOW, 0), lines=fresh, life=local.life + 1))
            case Rotate():
                return Reaction(self._rotated(local, watch))
            case Send(subject, lost):
                return self._sent(local, self.subjects.index(subject), lost, watch)
        raise TypeError(f"a publisher does not take a {type(envelope.event).__name__}")

    def _line(self, subject: str) -> Line:
        record = PublisherWindowRecord(subject)
        return Line(record if not self.begin else replace(record, status=CURRENT, last=self.begin))

    def _turned(self, local: PublisherLocal, event: Event, watch: Watch | None) -> tuple[PublisherLocal, bool]:
        """The rotation after the event, and whether it flips; when the last flip was nobody asks any more."""
        rotation, told = step(ROTATION, local.rotation, event, self.name, watch)
        return replace(local, rotation=replace(rotation, flipped_ns=0, flips=0)), bool(told)

    def _rotated(self, local: PublisherLocal, watch: Watch | None) -> PublisherLocal:
        old = [frame_of(line.record.last) for line in local.lines if line.record.status is OLD]
        local, _ = self._turned(local, Tick(WINDOW.time_ns + 1, WINDOW.size + 1, max(old, default=0)), watch)
        lines = []
        for line in local.lines:
            record, _ = step(PUBLISHER_WINDOW, line.record, Flip(), self.name, watch)
            lines.append(replace(line, record=record))
        return replace(local, lines=tuple(lines))

    def _sent(self, local: PublisherLocal, at: int, lost: bool, watch: Watch | None) -> Reaction:
        line, rotation = local.lines[at], local.rotation
        call = Publish(1, self.walls[local.place], rotation.converged_ns, rotation.floor)
        record, (told,) = self.rules.stamp(line.record, call, self.name, watch)
        if isinstance(told, Exhausted):
            return Reaction(replace(local, ended=True))
        cut = line.sent if line.record.status is ABSENT else line.cut
        begin = line.sent if told.first == 1 else line.begin
        after = Line(record, line.sent + 1, told.number, begin, cut)
        lines = (*local.lines[:at], after, *local.lines[at + 1 :])
        broken = local.broken or told.number <= line.highest
        local = replace(local, lines=lines, sent=local.sent + 1, broken=broken)
        event = Numbered(told.frame, told.first, told.last, told.time_ns, told.chain)
        who = f"{self.name}~{local.life}"
        carried = Carried(who, line.record.subject, event, line.sent, begin, cut)
        return Reaction(local, () if lost else (Envelope(self.name, RECEIVER, carried),))

    def describe(self, local: PublisherLocal) -> str:
        words = [f"{one.record.subject} {one.record.status.value} {one.record.last:#x}" for one in local.lines]
        return f"life {local.life}; {', '.join(words)}"

    def bounds(self) -> dict[str, str]:
        clocks = ", ".join(str(one) for one in self.walls)
        return {"messages": str(self.messages), "lives": str(self.lives), "its clock": f"{clocks} ns"}

    # -- reading it ---------------------------------------------------------------------------------------------

    def is_broken(self) -> View:
        """Whether MONO is."""
        return View(self.name, 2, lambda local: int(local.broken))

    def last_sent(self) -> View:
        """How many messages of its first subject it has sent, once it sends no more (0: it still may)."""

        def read(local: PublisherLocal) -> int:
            return local.lines[0].sent if local.sent >= self.messages else 0

        return View(self.name, self.messages + 1, read)
