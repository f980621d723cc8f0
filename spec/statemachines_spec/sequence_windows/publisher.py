"""Publisher: a publisher of a few subjects as a component; it may forget, begin anew, and lose what it sends.

What it numbers is judged here (`numbering`), by a count of its own of how often the window has turned.  Loss happens
here, where a message leaves: on a path that keeps order a receiver cannot tell where it was lost.  What a message
carries besides its number (`Carried`) nobody of the product reads: it is for the judge at the receiver.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec.structs import replace

from statemachines.kernel import Event, Fsm, Message
from statemachines.sequence_windows.late_join import Converged
from statemachines.sequence_windows.message import Numbered
from statemachines.sequence_windows.properties.published_numbers import PublishedNumbers
from statemachines.sequence_windows.publisher_window import (
    CURRENT,
    OLD,
    PUBLISHER_WINDOW,
    Exhausted,
    Flip,
    Publish,
    PublisherWindowRecord,
    Stamped,
)
from statemachines.sequence_windows.rotation import ROTATION, RotationRecord, Tick, Window
from statemachines.sequence_windows.sequence import BASE_BITS, BASE_MAX, frame_of
from statemachines_spec.explorer.actor import Actor, At, Envelope, Reaction, Restart, Watch
from statemachines_spec.explorer.property import View
from statemachines_spec.sequence_windows.forged_messages import FORGERIES, INVENTIONS, forge_message, invent_message
from statemachines_spec.sequence_windows.machine_step import step
from statemachines_spec.sequence_windows.numbering import FORGOTTEN, NumberFault, NumberingFacts

RECEIVER = "receiver"
WINDOW = Window(1)


class Send(Event, frozen=True, gc=False):
    """The application publishes on this subject; `lost`: on the way; `again`: the message before comes once more, with
    this one, as one range; `forged`: which of the forgeries takes its place (0: none); `invented`: which message
    that nobody sent comes in its name, and it sends nothing (0: none)."""

    subject: str
    lost: bool
    again: bool = False
    forged: int = 0
    invented: int = 0


class Rotate(Event, frozen=True, gc=False):
    """It is time, and too much is kept."""


class Carried(Message, frozen=True, gc=False):
    """A message on its way, or a range of some.  For the judge alone: the `ordinal` of the first of them among those of
    this publisher and subject, from 0 on; that of the first of its stream, and when it began; that of the first since
    the publisher last forgot the subject; whether its TIME or CHAIN is `forged`, or all of it `invented`."""

    publisher: str
    subject: str
    event: Numbered
    ordinal: int
    begin: int
    cut: int
    began_ns: int = 0
    forged: bool = False
    invented: bool = False


class SubjectLine(msgspec.Struct, frozen=True, gc=False):
    """One subject: its record; what was `numbered`; `age`: how often the window has turned since; see `Carried` for the
    others."""

    record: PublisherWindowRecord
    numbered: PublishedNumbers = PublishedNumbers()
    age: int = FORGOTTEN
    begin: int = 0
    cut: int = 0
    began_ns: int = 0


class WindowPublisherLocal(msgspec.Struct, frozen=True, gc=False):
    """`life` of the publisher; `dropped`: the highest frame that it has forgotten; `converged_ns`: the latest time that
    it was told; `ended`: there was no frame for a stream; `place` of the clock."""

    rotation: RotationRecord
    lines: tuple[SubjectLine, ...]
    life: int = 1
    sent: int = 0
    place: int = 0
    dropped: int = 0
    converged_ns: int = 0
    broken: tuple[NumberFault, ...] = ()
    ended: bool = False


class WindowPublisher(Actor):
    """`walls`: what its clock says at each instant of the system, in nanoseconds; `messages`: it sends no more than so
    many; `lives` it may have; `begin`: the last number of each subject at first (0: none); `careful`: nothing is lost
    once the network has converged, as the source assumes; `ranges`: a message may come with the one before; `forges`:
    with a TIME or CHAIN that cannot be; `invents`: somebody sends messages in its name."""

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
        ranges: bool = False,
        forges: bool = False,
        invents: bool = False,
    ) -> None:
        super().__init__(name)
        self.walls = walls
        self.subjects = subjects
        self.messages = messages
        self.lives = lives
        self.rotates = rotates
        self.careful = careful
        self.begin = begin
        self.ranges = ranges
        self.forges = forges
        self.invents = invents

    # -- the component ------------------------------------------------------------------------------------------

    @property
    def machines(self) -> tuple[Fsm[Any], ...]:
        return (PUBLISHER_WINDOW, ROTATION)

    def initial(self) -> WindowPublisherLocal:
        return WindowPublisherLocal(RotationRecord(WINDOW, 0), tuple(self._line(subject) for subject in self.subjects))

    def inputs(self, local: WindowPublisherLocal) -> tuple[Any, ...]:
        found: list[Event] = []
        if local.sent < self.messages:
            lossy = not (self.careful and local.converged_ns)
            for subject, line in zip(self.subjects, local.lines, strict=True):
                found += [Send(subject, lost) for lost in ((False, True) if lossy else (False,))]
                found += (
                    [Send(subject, False, again=True)] if self.ranges and line.numbered.highest & BASE_MAX > 1 else []
                )
                found += [Send(subject, False, forged=n) for n in range(1, FORGERIES + 1) if self.forges]
            found += [Restart()] if local.life < self.lives else []
        if self.invents and local.sent:
            found += [Send(self.subjects[0], False, invented=n) for n in range(1, INVENTIONS + 1)]
        if self.rotates and any(line.age < FORGOTTEN for line in local.lines):
            found.append(Rotate())
        return tuple(found)

    def react(self, local: WindowPublisherLocal, envelope: Envelope, watch: Watch | None = None) -> Reaction | None:
        match envelope.event:
            case At(now_ns):
                return Reaction(replace(local, place=now_ns))
            case Converged() as event:
                latest = max(local.converged_ns, event.t_ns)
                return Reaction(replace(self._step_rotation(local, event, watch)[0], converged_ns=latest))
            case Restart():
                kept = {"sent": local.sent, "place": local.place, "broken": local.broken}
                return Reaction(replace(self.initial(), life=local.life + 1, **kept))
            case Rotate():
                return Reaction(self._rotated(local, watch))
            case Send(invented=0) as event:
                return self._stamp_message(local, event, watch)
            case Send() as event:
                line = local.lines[0]
                made = invent_message(line.numbered.highest, event.invented)
                who = f"{self.name}~{local.life}"
                carried = Carried(who, event.subject, made, line.numbered.count, line.begin, line.cut, invented=True)
                return Reaction(local, (Envelope(self.name, RECEIVER, carried),))
        raise TypeError(f"a publisher does not take a {type(envelope.event).__name__}")

    def _line(self, subject: str) -> SubjectLine:
        record = PublisherWindowRecord(subject)
        if not self.begin:
            return SubjectLine(record)
        return SubjectLine(replace(record, status=CURRENT, last=self.begin), PublishedNumbers(0, self.begin), age=0)

    def _step_rotation(
        self, local: WindowPublisherLocal, event: Event, watch: Watch | None
    ) -> tuple[WindowPublisherLocal, bool]:
        """The rotation after the event, and whether it flips; when the last flip was nobody asks any more."""
        rotation, told = step(ROTATION, local.rotation, event, self.name, watch)
        return replace(local, rotation=replace(rotation, flipped_ns=0, flips=0)), bool(told)

    def _rotated(self, local: WindowPublisherLocal, watch: Watch | None) -> WindowPublisherLocal:
        """The window turns, if its machine says so; that it must is known here."""
        old = [frame_of(line.record.last) for line in local.lines if line.record.status is OLD]
        event = Tick(WINDOW.time_ns + 1, WINDOW.size + 1, max(old, default=0))
        local, turns = self._step_rotation(local, event, watch)
        dropped = [
            local.dropped,
            *(line.numbered.highest >> BASE_BITS for line in local.lines if line.age == FORGOTTEN - 1),
        ]
        lines = []
        for line in local.lines:
            record = step(PUBLISHER_WINDOW, line.record, Flip(), self.name, watch)[0] if turns else line.record
            lines.append(replace(line, record=record, age=min(FORGOTTEN, line.age + 1)))
        return replace(local, lines=tuple(lines), dropped=max(dropped))

    def _stamp_message(self, local: WindowPublisherLocal, event: Send, watch: Watch | None) -> Reaction:
        at = self.subjects.index(event.subject)
        line, rotation = local.lines[at], local.rotation
        call = Publish(1, self.walls[local.place], rotation.converged_ns, rotation.floor)
        record, (told,) = step(PUBLISHER_WINDOW, line.record, call, self.name, watch)
        sent, last = line.numbered.count, line.numbered.highest
        known = NumberingFacts(last if line.age < FORGOTTEN else 0, local.dropped, call.t_ns, local.converged_ns)
        if isinstance(told, Exhausted):
            local = self._put(local, at, replace(line, record=record), known.faults_of_refusal())
            return Reaction(replace(local, ended=True))
        numbered, broken = line.numbered.observe(told.number, told.number)
        faults = known.faults(told) | {NumberFault[one.name] for one in broken}
        after = SubjectLine(
            record,
            numbered,
            0,
            sent if told.first == 1 else line.begin,
            sent if line.age == FORGOTTEN else line.cut,
            told.time_ns if told.first == 1 else line.began_ns,
        )
        local = replace(self._put(local, at, after, faults), sent=local.sent + 1)
        carried = self._carried(local, after, event, told)
        return Reaction(local, () if event.lost else (Envelope(self.name, RECEIVER, carried),))

    def _put(
        self, local: WindowPublisherLocal, at: int, line: SubjectLine, faults: set[NumberFault]
    ) -> WindowPublisherLocal:
        broken = tuple(one for one in NumberFault if one in local.broken or one in faults)
        return replace(local, lines=(*local.lines[:at], line, *local.lines[at + 1 :]), broken=broken)

    def _carried(self, local: WindowPublisherLocal, line: SubjectLine, sending: Send, told: Stamped) -> Carried:
        """What goes to the receiver; a range that begins with the first of its stream has neither TIME nor CHAIN."""
        event = Numbered(told.frame, told.first, told.last, told.time_ns, told.chain)
        again = int(sending.again and told.first > 2)
        if again:
            event = Numbered(told.frame, told.first - 1, told.last)
        if sending.forged:
            event = forge_message(event, sending.forged)
        who = f"{self.name}~{local.life}"
        ordinal = line.numbered.count - 1 - again
        return Carried(who, sending.subject, event, ordinal, line.begin, line.cut, line.began_ns, sending.forged > 0)

    def describe(self, local: WindowPublisherLocal) -> str:
        words = [f"{one.record.subject} {one.record.status.value} {one.record.last:#x}" for one in local.lines]
        return f"life {local.life}; {', '.join(words)}"

    def bounds(self) -> dict[str, str]:
        clocks = ", ".join(str(one) for one in self.walls)
        return {"messages": str(self.messages), "lives": str(self.lives), "its clock": f"{clocks} ns"}

    # -- reading it ---------------------------------------------------------------------------------------------

    def is_broken(self, how: NumberFault) -> View:
        """Whether this was broken."""
        return View(self.name, 2, lambda local: int(how in local.broken))

    def has_refused(self) -> View:
        """Whether nothing was numbered, since no frame was left."""
        return View(self.name, 2, lambda local: int(local.ended))

    def last_sent(self) -> View:
        """How many messages of its first subject it has sent, once it sends no more (0: it still may)."""

        def read(local: WindowPublisherLocal) -> int:
            return local.lines[0].numbered.count if local.sent >= self.messages else 0

        return View(self.name, self.messages + 1, read)
