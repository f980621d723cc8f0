"""Client: takes what is sent to it, and judges it by what was stored and committed; it knows no machine.

Each writer's messages must come in the order in which their rows were stored, none left out and none twice.  One that
comes again is right only as a redelivery: marked, and under the same packet id.  What comes must have been committed
before, and what a publisher is told is stored must be.  What was over, as its publisher has said, when it was taken out
of what waits is not put in flight, and must not come; nothing else may be left out for its age.  A client has one
connection; what an owner of before sends is lost.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any

import msgspec
from msgspec.structs import replace

from statemachines.kernel import Event
from statemachines.persistent_sessions.message import (
    MessageExpired,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Queued,
    Written,
    unfold_row,
)
from statemachines.persistent_sessions.request import DATABASE
from statemachines.persistent_sessions.writer_record import RangeWritten
from statemachines_spec.explorer.actor import Envelope, Observer, Reaction, Restart, Watch
from statemachines_spec.explorer.property import View
from statemachines_spec.persistent_sessions.database import DatabaseLocal, StoredRows
from statemachines_spec.persistent_sessions.publisher import PUBLISHER

CLIENT = "client"
NEVER = -1


class SessionViolation(Enum):
    """What was broken; the value says it."""

    GAP = "a message is left out"
    TWICE = "a message comes twice, and not as a redelivery under its packet id"
    UNCOMMITTED = "what comes was not committed"
    UNSTORED = "a publisher is answered, and nothing is stored"
    MAXIMUM = "more is in flight than the client receives"
    STRANGER = "a message comes that was never stored"
    ORDER = "a message comes before one that its publisher saw answered before it sent it"
    AGED = "a message comes that was over before it was sent, or is said to be over and was not"


class Changed(Event, frozen=True, gc=False):
    """What the database holds now: each writer's messages in the order of their commits, and what of them is in
    flight; `over`: what has gone out of what waits, being over; `late`: what was put in flight, being over."""

    stored: tuple[tuple[str, ...], ...]
    committed: tuple[tuple[str, int], ...]
    over: tuple[str, ...] = ()
    late: tuple[str, ...] = ()


class Connected(Event, frozen=True, gc=False):
    """The client is connected at this owner."""

    owner: str


class Acknowledge(Event, frozen=True, gc=False):
    """The client sends the first acknowledgement that it has not sent yet."""


class AcknowledgeTwice(Event, frozen=True, gc=False):
    """The client sends the first acknowledgement, and will send it again."""


class AcknowledgeTogether(Event, frozen=True, gc=False):
    """The first that it has not sent yet, of packets that follow each other, come in one turn, and its node folds
    them."""


class ClientLocal(msgspec.Struct, frozen=True, gc=False):
    """`stored`, `committed`, `over`: see `Changed` (packets that ever were committed); `got` of each writer: the packet
    id under which each of its messages came (`NEVER`: it was over); the `owner` it is connected to.  `open`: packets of
    QoS 2 that it keeps in mind; `due`: acknowledgements that it has not sent yet; `answered` to a publisher that
    moves."""

    stored: tuple[tuple[str, ...], ...]
    got: tuple[tuple[int, ...], ...]
    committed: tuple[tuple[str, int], ...] = ()
    owner: str = ""
    open: tuple[int, ...] = ()
    due: tuple[Puback | Pubrec | Pubcomp, ...] = ()
    broken: tuple[str, ...] = ()
    over: tuple[str, ...] = ()
    answered: tuple[str, ...] = ()


class Client(Observer):
    """`owners` that it may connect to, the later ones last; it acknowledges at once, or (`later`) some time; `loses`:
    messages of QoS 0 may be left out;
    it receives `window` at once; what it acknowledges may come together (`folds`); `untils`: when messages are over, as
    their publisher says; `course`: the messages of a publisher that moves, each sent when the one before it was
    answered."""

    def __init__(
        self,
        writers: tuple[str, ...],
        owners: tuple[str, ...],
        *,
        later: bool = False,
        loses: bool = False,
        window: int = 9,
        folds: bool = False,
        untils: Mapping[str, int] | None = None,
        course: tuple[str, ...] = (),
    ) -> None:
        super().__init__(CLIENT)
        self.course = course
        self.untils = dict(untils or {})
        self.loses = loses
        self.folds = folds
        self.window = window
        self.later = later
        self.writers = writers
        self.owners = owners

    def initial(self) -> ClientLocal:
        nothing = tuple(() for _ in self.writers)
        return ClientLocal(nothing, nothing)

    def sees(self, actor: str, before: Any, event: Any, after: Any) -> Event | None:
        if actor in self.owners and isinstance(event, Restart):
            return Connected(after.id)
        if actor != DATABASE:
            return None
        was, now, over = _list_held(before), _list_held(after), self._passed_over(before, after)
        late = self._late(before, after)
        return None if was == now and not over else replace(now, over=over, late=late)

    def inputs(self, local: ClientLocal) -> tuple[Any, ...]:
        together = (AcknowledgeTogether(),) if self.folds and len(_first_run(local.due)) > 1 else ()
        return (Acknowledge(), AcknowledgeTwice(), *together) if local.due else ()

    def react(self, local: ClientLocal, envelope: Envelope, watch: Watch | None = None) -> Reaction | None:
        event = envelope.event
        match event:
            case Changed():
                ever = tuple(sorted({*local.committed, *event.committed}))
                over = tuple(sorted({*local.over, *event.over}))
                local = _broken(local, SessionViolation.AGED) if event.late else local
                return Reaction(replace(local, stored=event.stored, committed=ever, over=over))
            case Connected(owner):
                return Reaction(replace(local, owner=owner, due=()) if self._is_later(owner, local.owner) else local)
            case Acknowledge():
                first, rest = local.due[0], local.due[1:]
                return Reaction(replace(local, due=rest), (), (Envelope(self.name, local.owner, first),))
            case AcknowledgeTwice():
                return Reaction(local, (), (Envelope(self.name, local.owner, local.due[0]),))
            case AcknowledgeTogether():
                run = _first_run(local.due)
                folded = Puback(run[0].packet, run[-1].packet)
                left = replace(local, due=local.due[len(run) :])
                return Reaction(left, (), (Envelope(self.name, local.owner, folded),))
            case Pubrel(packet):
                if envelope.sender != local.owner:
                    return Reaction(local)
                kept = tuple(one for one in local.open if one != packet)
                return self._answered(replace(local, open=kept), Pubcomp(packet))
            case Written(message, topic_filter):
                return self._note_written(local, (Written(message, topic_filter),))
            case RangeWritten(hands):
                return self._note_written(local, tuple(Written(one.message, one.filter) for one in hands))
            case MessageExpired(message):
                return Reaction(local if message in local.over else _broken(local, SessionViolation.AGED))
            case Publish():
                if envelope.sender != local.owner:
                    return Reaction(local)
                after = self._judged(local, event)
                if event.qos == 0:
                    return Reaction(after)
                if event.qos == 1:
                    return self._answered(after, Puback(event.packet))
                after = replace(after, open=tuple(sorted({*after.open, event.packet})))
                return self._answered(after, Pubrec(event.packet))
        raise TypeError(f"a client does not take {event!r}")

    def describe(self, local: ClientLocal) -> str:
        words = [
            f"{writer}: {len(got)} of {len(stored)}"
            for writer, stored, got in zip(self.writers, local.stored, local.got, strict=True)
        ]
        return "; ".join((*words, *local.broken))

    def _is_later(self, owner: str, before: str) -> bool:
        names = [one.partition("~")[0] for one in (owner, before)]
        return not before or self.owners.index(names[0]) >= self.owners.index(names[1])

    def _note_written(self, local: ClientLocal, stored: tuple[Written, ...]) -> Reaction:
        """Publishers are answered."""
        answers = []
        for one in stored:
            there = any(one.message in messages for messages in local.stored)
            local = local if there else _broken(local, SessionViolation.UNSTORED)
            if one.message in self.course:
                local = replace(local, answered=(*local.answered, one.message))
                answers.append(Envelope(self.name, PUBLISHER, one))
        return Reaction(local, (), tuple(answers))

    def _answered(self, local: ClientLocal, ack: Puback | Pubrec | Pubcomp) -> Reaction:
        kept = sum(isinstance(one, Puback) for one in (*local.due, ack)) + len(local.open)
        if kept > self.window:
            local = _broken(local, SessionViolation.MAXIMUM)
        if self.later:
            return Reaction(replace(local, due=(*local.due, ack)))
        return Reaction(local, (), (Envelope(self.name, local.owner, ack),))

    # -- the judge ----------------------------------------------------------------------------------------------

    def _judged(self, local: ClientLocal, event: Publish) -> ClientLocal:
        name = name_copy(event)
        at = next((at for at, stored in enumerate(local.stored) if name in stored), -1)
        if at < 0:
            return _broken(local, SessionViolation.STRANGER)
        if event.qos == 2 and event.packet in local.open:
            return local if event.dup else _broken(local, SessionViolation.TWICE)
        place, got = local.stored[at].index(name), local.got[at]
        if event.qos and (name, event.packet) not in local.committed:
            local = _broken(local, SessionViolation.UNCOMMITTED)
        if event.message in local.over:
            return _broken(local, SessionViolation.AGED)
        left_out = local.stored[at][len(got) : place]
        if not self.loses and any(one not in local.over for one in left_out):
            return _broken(local, SessionViolation.GAP)
        got = (*got, *(NEVER if one in local.over else 0 for one in left_out))
        if place < len(got):
            again = event.qos == 1 and event.dup and got[place] == event.packet
            return local if again else _broken(local, SessionViolation.TWICE)
        if self._comes_too_early(local, event.message):
            local = _broken(local, SessionViolation.ORDER)
        after = (*local.got[:at], (*got, event.packet), *local.got[at + 1 :])
        return replace(local, got=after)

    def _comes_too_early(self, local: ClientLocal, message: str) -> bool:
        """Something that was answered before it was sent has not come."""
        if message not in self.course:
            return False
        come = {one for stored, got in zip(local.stored, local.got, strict=True) for one in stored[: len(got)]}
        before = self.course[: self.course.index(message)]
        return any(one in local.answered and one not in come for one in before)

    def _passed_over(self, before: DatabaseLocal, after: DatabaseLocal) -> tuple[str, ...]:
        """What waited before this transaction, does not any more, is not in flight, and is over by now."""
        waited = {one.message for one in (*before.state.queued, *_newly_taken(before, after))}
        waits = {one.message for one in after.state.queued}
        return self._over(waited - waits - _in_flight(after), after.now_ns)

    def _late(self, before: DatabaseLocal, after: DatabaseLocal) -> tuple[str, ...]:
        """What this transaction has put in flight, and is over."""
        return self._over(_in_flight(after) - _in_flight(before), after.now_ns)

    def _over(self, messages: set[str], now_ns: int) -> tuple[str, ...]:
        return tuple(sorted(one for one in messages if 0 < self.untils.get(one, 0) <= now_ns))

    # -- reading it ---------------------------------------------------------------------------------------------

    def is_broken(self, how: SessionViolation) -> View:
        """Whether this is."""
        return View(self.name, 2, lambda local: int(how.name in local.broken))

    def has_all(self) -> View:
        """Everything that is stored has come, or the client has something to say."""

        def read(local: ClientLocal) -> int:
            missing = any(
                one not in local.over
                for stored, got in zip(local.stored, local.got, strict=True)
                for one in stored[len(got) :]
            )
            return int((not missing and not local.open) or bool(local.due))

        return View(self.name, 2, read)

    def has_got(self, count: int) -> View:
        """So many messages have come, or more."""
        return View(self.name, 2, lambda local: int(sum(one != NEVER for got in local.got for one in got) >= count))

    def has_missed(self, count: int) -> View:
        """So many messages were over before they came, or more."""
        return View(self.name, 2, lambda local: int(len(local.over) >= count))


def _broken(local: ClientLocal, how: SessionViolation) -> ClientLocal:
    return replace(local, broken=tuple(sorted({*local.broken, how.name})))


def _first_run(due: tuple[Puback | Pubrec | Pubcomp, ...]) -> tuple[Puback | Pubrec | Pubcomp, ...]:
    """As many of the first as are of QoS 1 and follow each other."""
    run: tuple[Puback | Pubrec | Pubcomp, ...] = ()
    for place, one in enumerate(due):
        if not isinstance(one, Puback) or one.packet != due[0].packet + place:
            break
        run = (*run, one)
    return run


def _list_held(local: DatabaseLocal) -> Changed:
    stored = tuple(tuple(map(name_copy, list_copies(shelf))) for shelf in local.shelves)
    packets = local.state.packets.values()
    return Changed(stored, tuple(sorted((name_copy(one.queued), one.packet) for one in packets)))


def list_copies(shelf: StoredRows) -> list[Queued]:
    """What must come of its rows, in this order."""
    return [copy for one in shelf.entries if one.queued for copy in unfold_row(one.queued)]


def name_copy(copy: Queued | Publish) -> str:
    """One copy of a message; the first is named as the message."""
    return copy.message if copy.filter in ("", "t") else f"{copy.message} by {copy.filter}"


def _in_flight(local: DatabaseLocal) -> set[str]:
    return {one.queued.message for one in local.state.packets.values()}


def _newly_taken(before: DatabaseLocal, after: DatabaseLocal) -> tuple[Queued, ...]:
    found: list[Queued] = []
    for shelf in after.shelves:
        was, now = (one.state.taken.get(shelf.writer, (0, 0)) for one in (before, after))
        rows = ((one.epoch, one.queued) for one in shelf.entries if one.queued is not None)
        found += [row for epoch, row in rows if was < (epoch, row.number) <= now]
    return tuple(found)
