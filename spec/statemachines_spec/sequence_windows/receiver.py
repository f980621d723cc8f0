"""Receiver: a receiver of a few publishers as a component, and the judge of what it says.

The judge knows the ordinal of each message, and nothing else of it; when a receiver has forgotten a subject it knows by
a count of its own.  A limit is a loss that stays unseen, and is no fault: each has its name.
"""

from __future__ import annotations

from enum import Enum
from typing import Any

import msgspec
from msgspec.structs import replace

from statemachines.kernel import Event, Fsm
from statemachines.sequence_windows import subject_publishers
from statemachines.sequence_windows.late_join import LATE_JOIN, Converged, Join, Joined, LateJoinRecord
from statemachines.sequence_windows.message import Judged, Verdict
from statemachines.sequence_windows.properties.heard_messages import (
    ArrivedMessage,
    Broken,
    HeardMessages,
    judge_join,
    judge_ranges,
    remember_publisher,
)
from statemachines.sequence_windows.publisher_window import Flip
from statemachines.sequence_windows.sequence import FIRST_FRAME, FRAME_NS, frame_at, frame_of, start_of
from statemachines.sequence_windows.subject_publishers import (
    CROWDED,
    SUBJECT_PUBLISHERS,
    Arrival,
    SubjectForgotten,
    SubjectPublishersRecord,
)
from statemachines.sequence_windows.subscriber_window import (
    FLIPS,
    KEPT,
    OLD,
    SUBSCRIBER_WINDOW,
    Displace,
    Subscribe,
    SubscriberWindowRecord,
    Touched,
    Unsubscribe,
)
from statemachines_spec.explorer.actor import Actor, At, Envelope, Reaction, Watch
from statemachines_spec.explorer.property import View
from statemachines_spec.sequence_windows.forged_messages import strip_message
from statemachines_spec.sequence_windows.machine_step import step
from statemachines_spec.sequence_windows.publisher import RECEIVER, Carried, Rotate


class WindowViolation(Enum):
    """What was broken; the last two are limits."""

    ONCE = "a message is delivered twice, or dropped as if it had been"
    EXACT = "a known loss is not what was missed"
    NOFALSE = "a loss is told, and nothing was missed"
    DETECT = "something was missed, and is not told"
    JOIN = "something of a verified stream was missed"
    JOINED = "what could be known of a first message is not said"
    BEGAN = "when a stream began is not what its first message said"
    SAME = "a TIME or CHAIN that cannot be, or a number that nobody sent, changes what is said of others"
    CROWD = "a loss is hidden by a record that was forgotten for others, and not told as unknown"
    FORGOTTEN = "a loss is hidden by a record that was forgotten"
    CYCLED = "a loss is hidden by a stream that its publisher has forgotten"


PROMISES = (
    WindowViolation.ONCE,
    WindowViolation.EXACT,
    WindowViolation.NOFALSE,
    WindowViolation.DETECT,
    WindowViolation.JOIN,
    WindowViolation.JOINED,
    WindowViolation.BEGAN,
)
UNORDERED = (WindowViolation.ONCE, WindowViolation.JOINED)
"""What holds where messages overtake each other."""


class ReceivedMessage(msgspec.Struct, frozen=True, gc=False):
    """What the judge knows of one publisher and subject; `opened`: the ordinal of the last message that was delivered
    and began a stream (-1: none)."""

    seen: HeardMessages = HeardMessages()
    opened: int = -1


class WindowReceiverLocal(msgspec.Struct, frozen=True, gc=False):
    """`records` and `heard` by subject and publisher, sorted; `subscribed`: which subjects; `since`: the frame from
    which on a stream of each is heard from its beginning; `ages`: how often the
    window has turned since something came of each; `converged_ns`: the latest time that it was told; `told`: the last
    verdict, or verdicts.  Where there are places for few: `crowd`: who is remembered of the first subject; `spoke`: for
    the judge alone, who spoke, the last one last; `sober`: for the judge, the records without what was invented."""

    records: tuple[tuple[tuple[str, str], SubscriberWindowRecord], ...] = ()
    heard: tuple[tuple[tuple[str, str], ReceivedMessage], ...] = ()
    join: LateJoinRecord = LateJoinRecord()
    subscribed: tuple[bool, ...] = ()
    since: tuple[int, ...] = ()
    ages: tuple[int, ...] = ()
    place: int = 0
    converged_ns: int = 0
    told: str = ""
    broken: tuple[WindowViolation, ...] = ()
    crowd: SubjectPublishersRecord | None = None
    spoke: tuple[str, ...] = ()
    sober: tuple[tuple[tuple[str, str], SubscriberWindowRecord], ...] = ()


class WindowReceiver(Actor):
    """`walls`: what its clock says at each instant; `late`: it subscribes at some time (otherwise from the beginning);
    `leaves`: it may unsubscribe; `rotates`: its window may turn; `places` for publishers of the first subject (0: for
    all); `invents`: messages come that nobody has sent; `ordered`: none overtakes another one."""

    keeps_time = True

    def __init__(
        self,
        *,
        walls: tuple[int, ...],
        subjects: tuple[str, ...] = ("s",),
        rotates: bool = False,
        late: bool = False,
        leaves: bool = False,
        places: int = 0,
        invents: bool = False,
        by_publisher: bool = True,
        ordered: bool = True,
    ) -> None:
        super().__init__(RECEIVER)
        self.invents = invents
        self.unheard = ReceivedMessage(HeardMessages(ordered=ordered))
        self.places = places
        self.walls = walls
        self.subjects = subjects
        self.rotates = rotates
        self.late = late
        self.leaves = leaves
        self.by_publisher = by_publisher

    # -- the component ------------------------------------------------------------------------------------------

    @property
    def machines(self) -> tuple[Fsm[Any], ...]:
        return (SUBSCRIBER_WINDOW, LATE_JOIN, SUBJECT_PUBLISHERS)

    def initial(self) -> WindowReceiverLocal:
        count = len(self.subjects)
        crowd = SubjectPublishersRecord(self.subjects[0], self.places) if self.places else None
        since = (frame_at(self.walls[0]),) * count
        return WindowReceiverLocal(subscribed=(not self.late,) * count, since=since, ages=(2,) * count, crowd=crowd)

    def inputs(self, local: WindowReceiverLocal) -> tuple[Any, ...]:
        found: list[Event] = []
        if self.rotates and any(one.seen.known for _, one in local.heard):
            found.append(Rotate())
        if self.late and not local.subscribed[0]:
            found.append(Subscribe())
        if self.leaves and local.subscribed[0]:
            found.append(Unsubscribe())
        return tuple(found)

    def react(self, local: WindowReceiverLocal, envelope: Envelope, watch: Watch | None = None) -> Reaction | None:
        match envelope.event:
            case At(now_ns):
                return Reaction(replace(local, place=now_ns))
            case Converged() as event:
                join, _ = step(LATE_JOIN, local.join, event, self.name, watch)
                return Reaction(replace(local, join=join, converged_ns=max(local.converged_ns, event.t_ns)))
            case Rotate():
                return Reaction(self._rotated(local, watch))
            case Subscribe() | Unsubscribe() as event:
                return Reaction(self._subscribed(local, event, watch))
            case Carried() as carried:
                return Reaction(self._take_message(local, carried, watch))
        raise TypeError(f"a receiver does not take a {type(envelope.event).__name__}")

    def _rotated(self, local: WindowReceiverLocal, watch: Watch | None) -> WindowReceiverLocal:
        ages = tuple(min(2, age + 1) for age in local.ages)
        floor = max((frame_of(one.last) + 1 for _, one in local.records if one.status is OLD), default=FIRST_FRAME)
        since = tuple(max(one, floor) for one in local.since)
        local = self._feed_records(replace(local, since=since), Flip(floor), watch)
        gone = {subject for subject, age in zip(self.subjects, ages, strict=True) if age == 2}
        heard = tuple((place, _forgotten(one) if place[0] in gone else one) for place, one in local.heard)
        if self.subjects[0] in gone:
            local = replace(local, spoke=())
        if local.crowd is not None and not any(one.status in KEPT for _, one in local.records):
            crowd, _ = step(SUBJECT_PUBLISHERS, local.crowd, SubjectForgotten(), self.name, watch)
            local = replace(local, crowd=crowd)
        return replace(local, ages=ages, heard=heard)

    def _subscribed(self, local: WindowReceiverLocal, event: Event, watch: Watch | None) -> WindowReceiverLocal:
        """The first subject is the one that comes and goes."""
        first = self.subjects[0]
        if isinstance(event, Subscribe):
            since = max(frame_at(self.walls[local.place]), local.since[0])
            local, event = replace(local, since=(since, *local.since[1:])), Subscribe(since)
        local = self._feed_records(local, event, watch, first)
        heard = tuple((place, _forgotten(one) if place[0] == first else one) for place, one in local.heard)
        subscribed = (isinstance(event, Subscribe), *local.subscribed[1:])
        return replace(local, subscribed=subscribed, heard=heard)

    def _feed_records(
        self, local: WindowReceiverLocal, event: Event, watch: Watch | None, subject: str = "", but: str = ""
    ) -> WindowReceiverLocal:
        """Every record of the subject ("": of all), but that of one publisher, takes the event."""
        records = []
        for place, record in local.records:
            if (not subject or place[0] == subject) and place[1] != but:
                record = step(SUBSCRIBER_WINDOW, record, event, self.name, watch)[0]
            records.append((place, record))
        return replace(local, records=tuple(records))

    def _take_message(self, local: WindowReceiverLocal, carried: Carried, watch: Watch | None) -> WindowReceiverLocal:
        """The receiver's part, then the judge's."""
        at = self.subjects.index(carried.subject)
        publisher, _, life = carried.publisher.rpartition("~")
        who = subject_publishers.line_of(publisher, int(life)) if self.by_publisher else "anybody"
        place, truth_place = (carried.subject, who), (carried.subject, carried.publisher)
        record = dict(local.records).get(place)
        if record is None:
            crowded = local.crowd is not None and local.crowd.status is CROWDED
            record = SubscriberWindowRecord(*place, crowded=FLIPS if crowded else 0)
            if local.subscribed[at]:
                record = step(SUBSCRIBER_WINDOW, record, Subscribe(local.since[at]), self.name, None)[0]
        before = record
        if carried.invented:
            if not record.last:
                return local  # it is the first contact: there is nothing to compare it with
            record, _ = step(SUBSCRIBER_WINDOW, before, carried.event, self.name, watch)
            return replace(local, records=_with(local.records, place, record))
        record, told = step(SUBSCRIBER_WINDOW, before, carried.event, self.name, watch)
        local = replace(local, records=_with(local.records, place, record))
        local = self._feed_records(local, Touched(), watch, carried.subject, who)
        local = self._crowded(local, carried.subject, who, watch)
        heard = dict(local.heard).get(truth_place, self.unheard)
        found = _violations(judge_ranges(carried.event, told))
        begins = carried.event.first == 1 and not carried.event.before
        crowded = any(one.seen.displaced for other, one in local.heard if other[0] == carried.subject)
        awaited = frame_of(carried.event.before or carried.event.number) >= local.since[at]
        for one in told:
            first = carried.ordinal + one.first - carried.event.first
            last = carried.ordinal + one.last - carried.event.first
            missed, wanted = heard.seen.count_since(first), local.subscribed[at]
            message = ArrivedMessage(first, last, missed, carried.cut, begins, wanted, crowded, awaited)
            seen, faults = heard.seen.observe(message, one)
            found |= _violations(faults) or _limits(heard.seen, message, one)
            if one.verdict is Verdict.FIRST:
                local, of_join = self._joined(local, heard.seen, carried, watch)
                found |= of_join
            opens = one.is_delivered and first == carried.begin
            heard = ReceivedMessage(seen, carried.begin if opens else heard.opened)
        if any(one.is_delivered for one in told):
            found |= self._began_faults(heard, carried, record)
        if self.invents:
            sober, expected = step(
                SUBSCRIBER_WINDOW, dict(local.sober).get(place, before), carried.event, self.name, None
            )
            local = replace(local, sober=_with(local.sober, place, sober))
            found |= set() if expected == told else {WindowViolation.SAME}
        if carried.forged:
            found |= (
                set()
                if step(SUBSCRIBER_WINDOW, before, strip_message(carried.event), self.name, None) == (record, told)
                else {WindowViolation.SAME}
            )
        if local.subscribed[at]:
            ages = tuple(0 if n == at else age for n, age in enumerate(local.ages))
            local = replace(local, ages=ages)
        broken = tuple(one for one in WindowViolation if one in local.broken or one in found)
        told_as = ", ".join(one.verdict_text for one in told)
        local = replace(local, heard=_with(local.heard, truth_place, heard), told=told_as, broken=broken)
        return self._spoken(local, truth_place) if self.places and local.subscribed[at] else local

    def _crowded(self, local: WindowReceiverLocal, subject: str, who: str, watch: Watch | None) -> WindowReceiverLocal:
        """Who speaks has a place, and perhaps another one has none any more."""
        if local.crowd is None:
            return local
        publisher, _, life = who.partition("#")
        event = Arrival(publisher, int(life or "0", 16))
        crowd, told = step(SUBJECT_PUBLISHERS, local.crowd, event, self.name, watch)
        records = dict(local.records)
        for one in told:
            place = (subject, subject_publishers.line_of(one.publisher, one.life))
            records[place] = step(SUBSCRIBER_WINDOW, records[place], Displace(), self.name, watch)[0]
        return replace(local, crowd=crowd, records=tuple(sorted(records.items(), key=lambda pair: pair[0])))

    def _spoken(self, local: WindowReceiverLocal, place: tuple[str, str]) -> WindowReceiverLocal:
        """The judge's part of that."""
        spoke, gone = remember_publisher(local.spoke, place[1], self.places)
        if not gone:
            return replace(local, spoke=spoke)
        heard = dict(local.heard)
        heard[place[0], gone] = ReceivedMessage(heard[place[0], gone].seen.displace())
        return replace(local, spoke=spoke, heard=tuple(sorted(heard.items(), key=lambda pair: pair[0])))

    # -- the judge ----------------------------------------------------------------------------------------------

    def _joined(
        self, local: WindowReceiverLocal, heard: HeardMessages, carried: Carried, watch: Watch | None
    ) -> tuple[WindowReceiverLocal, set[WindowViolation]]:
        """What the receiver says of a first message, and whether something of a stream that it calls verified did not
        arrive."""
        now_ns, begins_ns = self.walls[local.place], start_of(carried.event.frame)
        event = Joined(carried.event.frame, now_ns)
        join, (told,) = step(LATE_JOIN, local.join, event, self.name, watch)
        missing = carried.ordinal - max(heard.arrived + 1, carried.begin)
        found = _violations(judge_join(told.join, max(0, missing)))
        untold = not local.converged_ns or begins_ns - now_ns > FRAME_NS
        known = Join.VERIFIED if begins_ns > local.converged_ns else Join.UNVERIFIED
        if told.join is not (Join.UNKNOWN if untold else known):
            found.add(WindowViolation.JOINED)
        return replace(local, join=join), found

    def _began_faults(
        self, heard: ReceivedMessage, carried: Carried, record: SubscriberWindowRecord
    ) -> set[WindowViolation]:
        """Whether the receiver knows when the stream began, if that came and it need not have forgotten."""
        known = carried.began_ns if heard.opened == carried.begin else 0
        return set() if record.time_ns == known else {WindowViolation.BEGAN}

    # -- reading it ---------------------------------------------------------------------------------------------

    def describe(self, local: WindowReceiverLocal) -> str:
        words = [f"{place[0]} of {place[1]} {one.status.value} {one.last:#x}" for place, one in local.records]
        words += [local.told] if local.told else []
        return "; ".join([*words, *(one.value for one in local.broken)])

    def is_broken(self, how: WindowViolation) -> View:
        """Whether this was broken."""
        return View(RECEIVER, 2, lambda local: int(how in local.broken))

    def is_told(self, verdict: str) -> View:
        """Whether this was the last verdict."""
        return View(RECEIVER, 2, lambda local: int(local.told == verdict))

    def find_arrived(self, place: tuple[str, str], size: int) -> View:
        """How far the messages of one publisher and subject have come: the last ordinal and 1 (0: nothing has)."""
        return View(RECEIVER, size, lambda local: dict(local.heard).get(place, ReceivedMessage()).seen.arrived + 1)


def _forgotten(heard: ReceivedMessage) -> ReceivedMessage:
    return ReceivedMessage(heard.seen.forget())


def _violations(broken: Broken) -> set[WindowViolation]:
    return {WindowViolation[one.name] for one in broken}


def _limits(heard: HeardMessages, message: ArrivedMessage, told: Judged) -> set[WindowViolation]:
    """What hides a loss, if something does, where nothing is broken."""
    if not message.wanted:
        return set()
    if not heard.known:
        return {WindowViolation.FORGOTTEN} if 0 <= heard.arrived < message.first - 1 else set()
    hidden = told.verdict is Verdict.CYCLE and message.missed and heard.is_hidden(message)
    return {WindowViolation.CYCLED} if hidden else set()


def _with(pairs: tuple[Any, ...], place: tuple[str, str], value: Any) -> tuple[Any, ...]:
    return tuple(sorted({**dict(pairs), place: value}.items(), key=lambda pair: pair[0]))
