"""HeldHost: a receiver around its held streams: its window before them, its application behind them, and the judge.

It does what a driver does: it addresses a message to the stream that it was told of, keeps what is held, and hands it
over.  It has no short way: the process sees every message.  The judge knows the ordinal of each message.
"""

from __future__ import annotations

from enum import Enum
from typing import Any

import msgspec
from msgspec.structs import replace

from statemachines.kernel import Event, Fsm
from statemachines.missed_samples.message import QUERY
from statemachines.sequence_windows.held_stream_actions import judge_released
from statemachines.sequence_windows.held_stream_record import (
    DropStream,
    MessageHeld,
    MessagePassed,
    MessageRepeated,
    MessagesReleased,
    RecoveredMessage,
    ReplyRepeated,
    ReplyUnexpected,
    StreamGivenUp,
    StreamMessage,
)
from statemachines.sequence_windows.held_streams import PlaceRefused, StreamBegun, StreamEnded
from statemachines.sequence_windows.message import Judged, Verdict
from statemachines.sequence_windows.properties.handed_messages import HandedMessages
from statemachines.sequence_windows.sequence import base_of, frame_of
from statemachines.sequence_windows.subscriber_window import (
    SUBSCRIBED,
    SUBSCRIBER_WINDOW,
    Subscribe,
    SubscriberWindowRecord,
    Unsubscribe,
)
from statemachines_spec.explorer.actor import Actor, Envelope, Reaction, Watch
from statemachines_spec.explorer.party import PartyInput
from statemachines_spec.explorer.property import View
from statemachines_spec.sequence_windows.held_publisher import HOST, OrdinalMessage, OrdinalReply
from statemachines_spec.sequence_windows.rules import step

RECEIVER = "receiver"
TOLD = (StreamBegun, StreamEnded, MessageHeld, MessagesReleased, MessagePassed, MessageRepeated, ReplyRepeated,
        ReplyUnexpected, PlaceRefused, StreamGivenUp)  # fmt: skip
"""What the process tells its host, but for queries that are due."""


class HeldViolation(Enum):
    """What was broken."""

    TWICE = "a message is handed over twice"
    ORDER = "a message is handed over behind a later one of its stream"
    LATE = "a message that counts as lost is handed over"
    REPORT = "what counts as lost is not what is missing"
    NOGAP = "a message that is here counts as lost"
    DROPPED = "a message is dropped as a repeat, and is missing"
    LEFT = "a stream ends, and something of it is held"
    UNWANTED = "a message is handed over that is not held, or not wanted any more"


class LeaveSubject(Event, frozen=True, gc=False):
    """The application unsubscribes."""


class WaitingMessage(msgspec.Struct, frozen=True, gc=False):
    """A message that is held, or has just come."""

    ordinal: int
    told: Judged
    filled: bool = False


class HeldHostLocal(msgspec.Struct, frozen=True, gc=False):
    """`window`: of the one publisher; `stream`: the id of the stream that is held (""); `came`: what has just come;
    `held`, by number.  For the judge: what was `handed` over; what was `broken`; what has `happened`."""

    window: SubscriberWindowRecord
    stream: str = ""
    came: WaitingMessage | None = None
    held: tuple[tuple[int, WaitingMessage], ...] = ()
    handed: HandedMessages = HandedMessages(remembers=True)
    broken: tuple[HeldViolation, ...] = ()
    happened: tuple[str, ...] = ()


class HeldHost(Actor):
    """`shows`: what is remembered if it happens; `leaves`: it may unsubscribe while something is held."""

    def __init__(self, shows: tuple[str, ...], *, leaves: bool) -> None:
        super().__init__(HOST)
        self.shows = shows
        self.leaves = leaves

    @property
    def machines(self) -> tuple[Fsm[Any], ...]:
        return (SUBSCRIBER_WINDOW,)

    def initial(self) -> HeldHostLocal:
        record = SubscriberWindowRecord("s", "p", in_order=True)
        return HeldHostLocal(step(SUBSCRIBER_WINDOW, record, Subscribe(), self.name, None)[0])

    def inputs(self, local: HeldHostLocal) -> tuple[Any, ...]:
        return (LeaveSubject(),) if self.leaves and local.stream else ()

    def react(self, local: HeldHostLocal, envelope: Envelope, watch: Watch | None = None) -> Reaction | None:
        match envelope.event:
            case OrdinalMessage():
                return self._receive(local, envelope.event, watch)
            case OrdinalReply(ordinal, number):
                told = Judged(Verdict.NEXT, frame_of(number), base_of(number), base_of(number))
                return self._ask_process(replace(local, came=WaitingMessage(ordinal, told)), RecoveredMessage(number))
            case LeaveSubject():
                return self._leave(local, watch)
        return Reaction(self._hear(local, envelope.event))

    # -- its part -----------------------------------------------------------------------------------------------

    def _receive(self, local: HeldHostLocal, message: OrdinalMessage, watch: Watch | None) -> Reaction:
        last, event = local.window.last, message.event
        window, (told,) = step(SUBSCRIBER_WINDOW, local.window, event, self.name, watch)
        local = replace(local, window=window, came=WaitingMessage(message.ordinal, told))
        return self._ask_process(local, StreamMessage(event.number, told.verdict, told.unknown, last, event.before))

    def _leave(self, local: HeldHostLocal, watch: Watch | None) -> Reaction:
        window, _ = step(SUBSCRIBER_WINDOW, local.window, Unsubscribe(), self.name, watch)
        dropped = PartyInput(local.stream, DropStream())
        return Reaction(replace(local, window=window, held=()), (), (Envelope("", RECEIVER, dropped),))

    @staticmethod
    def _ask_process(local: HeldHostLocal, message: StreamMessage | RecoveredMessage) -> Reaction:
        return Reaction(local, (), (Envelope(QUERY, local.stream or RECEIVER, message),))

    def _hear(self, local: HeldHostLocal, event: Event) -> HeldHostLocal:
        came = local.came
        match event:
            case StreamBegun(stream):
                return replace(local, stream=stream)
            case StreamEnded():
                local = self._break(local, {HeldViolation.LEFT} if local.held else set())
                return replace(local, stream="", held=())
            case PlaceRefused():
                return self._note(local, "no place")
            case StreamGivenUp():
                return self._note(local, "given up")
            case MessagesReleased():
                return self._release(local, event)
        assert came is not None
        local = replace(local, came=None)
        match event:
            case MessageHeld(number, filled):
                held = {**dict(local.held), number: replace(came, filled=filled)}
                return replace(local, held=tuple(sorted(held.items())))
            case MessagePassed():
                return self._hand_over(local, came.ordinal, came.told)
        return self._drop(local, came.ordinal)

    def _release(self, local: HeldHostLocal, event: MessagesReleased) -> HeldHostLocal:
        lost, own = event.lost, event.own
        for number in range(event.first, event.last + 1):
            held = dict(local.held)
            one = held.pop(number, None)
            if one is None:
                return self._break(local, {HeldViolation.UNWANTED})
            local = replace(local, held=tuple(sorted(held.items())))
            if one.filled:
                local = self._note(local, "recovered")
            local = self._hand_over(local, one.ordinal, judge_released(one.told, one.filled, lost, own))
            lost, own = 0, False
        return local

    # -- the judge ----------------------------------------------------------------------------------------------

    def _hand_over(self, local: HeldHostLocal, ordinal: int, told: Judged) -> HeldHostLocal:
        if told.verdict is Verdict.NOT_SUBSCRIBED:
            return local
        if not told.is_delivered:
            return self._drop(local, ordinal)
        if local.handed.list_missing(ordinal):
            local = self._note(local, "lost unknown" if told.unknown else "lost")
        here = [one.ordinal for _, one in local.held]
        handed, broken = local.handed.observe(ordinal, told.verdict, told.lost, told.unknown, here)
        return self._break(replace(local, handed=handed), {HeldViolation[one.name] for one in broken})

    def _drop(self, local: HeldHostLocal, ordinal: int) -> HeldHostLocal:
        """What was before the first message is of no interest.  What is missing before a message with an unknown loss
        counts with that one."""
        given, lost = local.handed.given, local.handed.lost
        here = {*given, *lost, *(one.ordinal for _, one in local.held)}
        behind = next((one for _, one in local.held if one.ordinal > ordinal), None)
        missing = ordinal not in here and ordinal >= min(given, default=0)
        missing = missing and local.window.status in SUBSCRIBED and (behind is None or not behind.told.unknown)
        return self._break(self._note(local, "repeated"), {HeldViolation.DROPPED} if missing else set())

    def _note(self, local: HeldHostLocal, what: str) -> HeldHostLocal:
        if what not in self.shows or what in local.happened:
            return local
        return replace(local, happened=tuple(sorted({*local.happened, what})))

    @staticmethod
    def _break(local: HeldHostLocal, found: set[HeldViolation]) -> HeldHostLocal:
        broken = tuple(one for one in HeldViolation if one in local.broken or one in found)
        return replace(local, broken=broken) if found else local

    # -- reading it ---------------------------------------------------------------------------------------------

    def describe(self, local: HeldHostLocal) -> str:
        held = ", ".join(str(one.ordinal) for _, one in local.held)
        words = [f"given {local.handed.given}", f"lost {local.handed.lost}", *([f"holds {held}"] if held else [])]
        return "; ".join([*words, *(one.value for one in local.broken)])

    def is_broken(self, how: HeldViolation) -> View:
        """Whether this was broken."""
        return View(HOST, 2, lambda local: int(how in local.broken))

    def has_happened(self, what: str) -> View:
        """Whether this has happened."""
        return View(HOST, 2, lambda local: int(what in local.happened))

    def holds_something(self) -> View:
        """Whether a message waits, or a stream that may bring one."""

        def read(local: HeldHostLocal) -> int:
            waits = local.handed.list_open(one.ordinal for _, one in local.held)
            return int(bool(waits or local.stream))

        return View(HOST, 2, read)
