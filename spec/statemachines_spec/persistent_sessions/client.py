"""Client: takes what is sent to it, and judges it by what was stored and committed; it knows no machine.

Each writer's messages must come in the order in which their rows were stored, none left out and none twice.  One that
comes again is right only as a redelivery: marked, and under the same packet id.  What comes must have been committed
before, and what a publisher is told is stored must be.  What was over, as its publisher has said, when it was taken out
of what waits is not put in flight, and must not come; nothing else may be left out for its age.  A client has one
connection; what an owner of before sends is lost.

Publisher: hands messages to the writers, and is told which of them are stored.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from statemachines.kernel import BrokenProperty, Event, Map
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
from statemachines.persistent_sessions.properties.delivered_messages import (
    Copy,
    CopyDelivered,
    DeliveredMessages,
    PublishedMessages,
    WriterRows,
    judge_rest,
    judge_room,
)
from statemachines.persistent_sessions.request import DATABASE
from statemachines.persistent_sessions.session_tables import StoredRows
from statemachines.persistent_sessions.writer_record import Hand, HandRange, RangeWritten
from statemachines_spec.explorer.actor import Actor, Crash, Envelope, Observer, Reaction, Restart, Watch
from statemachines_spec.explorer.property import View
from statemachines_spec.persistent_sessions.database import DatabaseLocal

PUBLISHER = "publisher"


class PublishTo(Event, frozen=True, gc=False):
    """A message matches the session's subscription, and goes to this writer; `also`: another, together with it."""

    writer: str
    message: str
    also: str = ""


class SessionPublisherLocal(msgspec.Struct, frozen=True, gc=False):
    """The messages that were handed over."""

    handed: tuple[str, ...] = ()


class SessionPublisherActor(Actor):
    """`messages`: what each writer gets, in any order if `jumbled` (their ids were stamped before), of this `qos`, and
    several at once if `together`; `untils`: from when on those are over that expire."""

    def __init__(
        self,
        messages: dict[str, tuple[str, ...]],
        *,
        jumbled: bool = False,
        together: bool = False,
        qos: int = 1,
        untils: Mapping[str, int] | None = None,
        filters: int = 1,
    ) -> None:
        super().__init__(PUBLISHER)
        self.more = tuple(f"t{n}" for n in range(2, filters + 1))
        self.messages = messages
        self.jumbled = jumbled
        self.together = together
        self.qos = qos
        self.untils = dict(untils or {})

    def initial(self) -> SessionPublisherLocal:
        return SessionPublisherLocal()

    def inputs(self, local: SessionPublisherLocal) -> tuple[Any, ...]:
        found: list[Any] = []
        for writer, messages in self.messages.items():
            left = [one for one in messages if one not in local.handed]
            found += [PublishTo(writer, one) for one in (left if self.jumbled else left[:1])]
            if self.together and len(left) > 1:
                found.append(PublishTo(writer, left[0], left[1]))
        return tuple(found)

    def react(self, local: SessionPublisherLocal, envelope: Envelope, watch: Watch | None = None) -> Reaction | None:
        event = envelope.event
        if isinstance(event, Written):
            return Reaction(local)
        messages = (event.message, event.also) if event.also else (event.message,)
        hands = tuple(Hand(one, "t", self.qos, self.untils.get(one, 0), more=self.more) for one in messages)
        call = Envelope(self.name, event.writer, HandRange(hands) if event.also else hands[0])
        return Reaction(replace(local, handed=tuple(sorted((*local.handed, *messages)))), (), (call,))

    def describe(self, local: SessionPublisherLocal) -> str:
        return f"has handed over {', '.join(local.handed) or 'nothing'}"

    def bounds(self) -> dict[str, str]:
        lines = {"messages": "; ".join(f"{len(messages)} to {writer}" for writer, messages in self.messages.items())}
        if self.untils:
            lines["expiry"] = ", ".join(f"{message} at {until}" for message, until in self.untils.items())
        return lines


class CommitSeen(Event, frozen=True, gc=False):
    """So many rows were committed; or this writer has `died`, or is `up` again."""

    commits: int = 0
    died: str = ""
    up: str = ""


class PublisherCourse(msgspec.Struct, frozen=True, gc=False):
    """`sent`: so many messages; `since_ns`: when it sent the first of them to the writer that it is at; `waits`: for
    the answer to the last; `commits` of rows, so far; writers that are `down`."""

    sent: int = 0
    since_ns: int = 0
    waits: bool = False
    commits: int = 0
    down: tuple[str, ...] = ()


class MovingPublisher(Observer):
    """One publisher, which sends each message, and to which writer, when the one before it is answered.  A message that
    is on its way when its writer dies is given up."""

    def __init__(self, course: tuple[tuple[str, str], ...]) -> None:
        super().__init__(PUBLISHER)
        self.course = course

    def initial(self) -> PublisherCourse:
        return PublisherCourse()

    def sees(self, actor: str, before: Any, event: Any, after: Any) -> Event | None:
        if actor == DATABASE and before.commits != after.commits:
            return CommitSeen(after.commits)
        if isinstance(event, Restart):
            return CommitSeen(up=actor)
        return CommitSeen(died=actor) if isinstance(event, Crash) else None

    def inputs(self, local: PublisherCourse) -> tuple[Any, ...]:
        if local.waits or local.sent == len(self.course):
            return ()
        to = self.course[local.sent]
        return () if to[0] in local.down else (PublishTo(*to),)

    def react(self, local: PublisherCourse, envelope: Envelope, watch: Watch | None = None) -> Reaction | None:
        event = envelope.event
        last = self.course[local.sent - 1] if local.sent else ("", "")
        match event:
            case CommitSeen(commits, died, up):
                gives_up = bool(died) and died == last[0]
                down = tuple(sorted({*local.down, died} - {up, ""}))
                commits = max(commits, local.commits)
                return Reaction(replace(local, commits=commits, waits=local.waits and not gives_up, down=down))
            case Written(message):
                return Reaction(replace(local, waits=local.waits and message != last[1]))
        is_new = event.writer != last[0]
        since_ns = local.commits + 1 if is_new else local.since_ns
        hand = Hand(event.message, "t", since_ns=since_ns)
        local = replace(local, sent=local.sent + 1, since_ns=since_ns, waits=True)
        return Reaction(local, (), (Envelope(self.name, event.writer, hand),))

    def describe(self, local: PublisherCourse) -> str:
        return f"has sent {local.sent} messages{', and waits for an answer' if local.waits else ''}"

    def bounds(self) -> dict[str, str]:
        return {"messages": ", then ".join(f"{message} to {writer}" for writer, message in self.course)}


CLIENT = "client"


class Changed(Event, frozen=True, gc=False):
    """What the database holds now: each writer's messages in the order of their commits, and what of them is in
    flight; `over`: what has gone out of what waits, being over; `late`: what was put in flight, being over."""

    stored: tuple[tuple[Copy, ...], ...]
    committed: tuple[tuple[Copy, int], ...]
    over: tuple[Copy, ...] = ()
    late: tuple[Copy, ...] = ()


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


class ReconnectingClientLocal(msgspec.Struct, frozen=True, gc=False):
    """What is `delivered`, and the answers to a publisher that moves (`published`); the `owner` it is connected to.
    `open`: packets of QoS 2 that it keeps in mind; `due`: acknowledgements that it has not sent yet; properties that
    are `broken`."""

    delivered: DeliveredMessages = DeliveredMessages()
    published: PublishedMessages = PublishedMessages()
    owner: str = ""
    open: tuple[int, ...] = ()
    due: tuple[Puback | Pubrec | Pubcomp, ...] = ()
    broken: tuple[str, ...] = ()


class ReconnectingClient(Observer):
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

    def initial(self) -> ReconnectingClientLocal:
        return ReconnectingClientLocal(*self.begin())

    def begin(self) -> tuple[DeliveredMessages, PublishedMessages]:
        """Nothing is stored; a publisher that moves sends each message when those before it are answered."""
        handed = Map({message: place for place, message in enumerate(self.course)})
        return DeliveredMessages(forgets=self.loses), PublishedMessages(handed)

    def sees(self, actor: str, before: Any, event: Any, after: Any) -> Event | None:
        if actor in self.owners and isinstance(event, Restart):
            return Connected(after.id)
        if actor != DATABASE:
            return None
        was, now, over = _list_held(before), _list_held(after), self._passed_over(before, after)
        late = self._late(before, after)
        return None if was == now and not over else replace(now, over=over, late=late)

    def inputs(self, local: ReconnectingClientLocal) -> tuple[Any, ...]:
        together = (AcknowledgeTogether(),) if self.folds and len(_first_run(local.due)) > 1 else ()
        return (Acknowledge(), AcknowledgeTwice(), *together) if local.due else ()

    def react(self, local: ReconnectingClientLocal, envelope: Envelope, watch: Watch | None = None) -> Reaction | None:
        event = envelope.event
        match event:
            case Changed():
                return Reaction(note_broken(self._take_change(local, event), local.delivered.judge_late(event.late)))
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
            case MessageExpired(message, topic_filter):
                return Reaction(note_broken(local, local.delivered.judge_expiry(copy_of(message, topic_filter))))
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

    def describe(self, local: ReconnectingClientLocal) -> str:
        rows = [(writer, local.delivered.writers.get(writer, WriterRows())) for writer in self.writers]
        words = [f"{writer}: {one.last + 1} of {len(one.copies)}" for writer, one in rows]
        return "; ".join((*words, *local.broken))

    def _is_later(self, owner: str, before: str) -> bool:
        names = [one.partition("~")[0] for one in (owner, before)]
        return not before or self.owners.index(names[0]) >= self.owners.index(names[1])

    def _note_written(self, local: ReconnectingClientLocal, stored: tuple[Written, ...]) -> Reaction:
        """Publishers are answered."""
        answers = []
        for one in stored:
            local = note_broken(local, local.delivered.judge_answer(copy_of(one.message)))
            if one.message in self.course:
                local = replace(local, published=local.published.observe_answered(one.message))
                answers.append(Envelope(self.name, PUBLISHER, one))
        return Reaction(local, (), tuple(answers))

    def _answered(self, local: ReconnectingClientLocal, ack: Puback | Pubrec | Pubcomp) -> Reaction:
        kept = sum(isinstance(one, Puback) for one in (*local.due, ack)) + len(local.open)
        local = note_broken(local, judge_room(kept, self.window))
        if self.later:
            return Reaction(replace(local, due=(*local.due, ack)))
        return Reaction(local, (), (Envelope(self.name, local.owner, ack),))

    # -- the judge ----------------------------------------------------------------------------------------------

    def _take_change(self, local: Any, event: Changed) -> Any:
        """What is stored, in flight and over now."""
        seen = local.delivered
        publisher = PUBLISHER if self.course else ""
        for writer, copies in zip(self.writers, event.stored, strict=True):
            for copy in copies[len(seen.writers.get(writer, WriterRows()).copies) :]:
                seen = seen.observe_stored(writer, copy, publisher=publisher, is_needed=not self.loses)
        return replace(local, delivered=seen.observe_committed(event.committed).observe_over(event.over))

    def _judged(self, local: Any, event: Publish) -> Any:
        is_released = event.qos == 2 and event.packet not in local.open
        delivered = CopyDelivered(copy_of(event.message, event.filter), event.packet, event.dup, is_released)
        seen, broken = local.delivered.observe_delivery(delivered, local.published)
        return note_broken(replace(local, delivered=seen), broken)

    def _passed_over(self, before: DatabaseLocal, after: DatabaseLocal) -> tuple[Copy, ...]:
        """What waited before this transaction, does not any more, is not in flight, and is over by now."""
        waited = set(map(name_copy, (*before.state.queued, *_newly_taken(before, after))))
        waits = set(map(name_copy, after.state.queued))
        return self._over(waited - waits - _in_flight(after), after.time_ns)

    def _late(self, before: DatabaseLocal, after: DatabaseLocal) -> tuple[Copy, ...]:
        """What this transaction has put in flight, and is over."""
        return self._over(_in_flight(after) - _in_flight(before), after.time_ns)

    def _over(self, copies: set[Copy], now_ns: int) -> tuple[Copy, ...]:
        return tuple(sorted(one for one in copies if 0 < self.untils.get(one[1], 0) <= now_ns))

    # -- reading it ---------------------------------------------------------------------------------------------

    def has_broken(self, name: str) -> View:
        """The property of this name does not hold."""
        return View(self.name, 2, lambda local: int(name in local.broken))

    def has_all(self) -> View:
        """Everything that is stored has come, or the client has something to say."""

        def read(local: ReconnectingClientLocal) -> int:
            return int(bool(local.due) or not judge_rest(local.delivered.find_outstanding(), local.open))

        return View(self.name, 2, read)

    def has_got(self, count: int) -> View:
        """So many messages have come, or more."""
        return View(self.name, 2, lambda local: int(len(local.delivered.had) >= count))

    def has_missed(self, count: int) -> View:
        """So many messages were over before they came, or more."""
        return View(self.name, 2, lambda local: int(len(local.delivered.over) >= count))


def note_broken(local: Any, broken: tuple[BrokenProperty, ...]) -> Any:
    """It keeps which properties are broken."""
    if not broken:
        return local
    return replace(local, broken=tuple(sorted({*local.broken, *(one.name for one in broken)})))


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


def name_copy(queued: Queued) -> Copy:
    """The copy that it brings."""
    return copy_of(queued.message, queued.filter)


def copy_of(message: str, topic_filter: str = "") -> Copy:
    """One copy of a message; of the first its filter is left out."""
    return ("" if topic_filter == "t" else topic_filter), message


def _in_flight(local: DatabaseLocal) -> set[Copy]:
    return {name_copy(one.queued) for one in local.state.packets.values()}


def _newly_taken(before: DatabaseLocal, after: DatabaseLocal) -> tuple[Queued, ...]:
    found: list[Queued] = []
    for shelf in after.shelves:
        was, now = (one.state.taken.get(shelf.writer, (0, 0)) for one in (before, after))
        rows = ((one.epoch, one.queued) for one in shelf.entries if one.queued is not None)
        found += [row for epoch, row in rows if was < (epoch, row.number) <= now]
    return tuple(found)
