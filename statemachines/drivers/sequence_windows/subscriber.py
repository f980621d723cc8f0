"""SequencedSubscriber: tells an application what each message is, what was lost before it, and advises of losses."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

import msgspec

from statemachines.drivers.clock import Clock, steady_ns
from statemachines.drivers.sequence_windows.datagram import VERSION, Datagram, MalformedDatagram, OtherLayout, decode
from statemachines.drivers.sequence_windows.loss_report import LossReport
from statemachines.drivers.sequence_windows.reorder import Line, ReorderBuffer
from statemachines.kernel import Effect, Node, Tell
from statemachines.sequence_windows.inbox_window import INBOX_WINDOW, Inboxed, InboxJudged, InboxWindowRecord
from statemachines.sequence_windows.late_join import LATE_JOIN, Converged, Join, Joined, LateJoinRecord
from statemachines.sequence_windows.loss_notifier import (
    ADVISED,
    LOSS_NOTIFIER,
    Advisory,
    LossNotifierRecord,
    Lost,
    fields_of,
    message_of,
)
from statemachines.sequence_windows.losses import PEERS_MAX, Losses
from statemachines.sequence_windows.message import Judged, Numbered, Verdict
from statemachines.sequence_windows.rotation import Window
from statemachines.sequence_windows.sequence import NUMBER_MAX
from statemachines.sequence_windows.subject_publishers import PLACES
from statemachines.sequence_windows.subscriber_table import (
    HELD,
    HORIZON_NS,
    NEXT,
    UNCLEAR,
    SubscriberTable,
    tell_short,
)

logger = logging.getLogger("gapless")


class Delivery(msgspec.Struct, frozen=True, gc=False):
    """A message for the application.  `lost`: how many of its publisher and subject are missing before it; where that
    is `unknown` they may be more; `join`: of a FIRST message, whether its stream is complete; None for others; `life`:
    which of its publisher's (0: it does not say)."""

    publisher: str
    subject: str
    payload: bytes
    number: int
    verdict: Verdict
    lost: int = 0
    unknown: bool = False
    join: Join | None = None
    life: int = 0


class Loss(msgspec.Struct, frozen=True, gc=False):
    """`lost` messages are missing before `number`; where that is `unknown` they may be more."""

    publisher: str
    subject: str
    number: int
    lost: int
    unknown: bool


class SequencedSubscriber:
    """Feed it what arrives (`receive`), and call `poll` when `deadline` has come, or now and then.

    `reorder_max`: where no more messages than these are missing before one it waits for them, for 50 ms at most (0:
    none waits).  Set it where the transport does not keep order, as UDP, and call `poll` when `deadline` says so.

    `deliver(delivery)` gets each message once; `on_loss(loss)` each loss, before the message that showed it;
    `on_advisory(fields)` the advisories, the first loss at once and then one a second, with `client` as their `scid`.
    `publish(subject, payload)` gets each advisory as a message in JSON, for the subject that the source names: a
    `SequencedPublisher.publish` brings it to all who subscribe that subject.  Its own losses are not advised.
    `everything`: all subjects are subscribed; otherwise `subscribe` says which.  `window`: when to forget;
    `publishers_max`: so many publishers of a subject are remembered, each life of one apart; for one more the one is
    forgotten that was silent longest, and if that speaks again it is FIRST, with a loss that is unknown.
    `horizon_ns`: frames that begin so much later than our clock says are refused (0: none); `wall` and `now` as for
    publishers; `observe(publisher, subject, judged, t_ns)` sees every verdict, as the window has it.

    Not for several threads at a time.  What a callback raises comes out of `receive` or `poll`, when everything else
    that the message brought has been done: it counts as delivered.
    """

    def __init__(
        self,
        deliver: Callable[[Delivery], object],
        *,
        on_loss: Callable[[Loss], object] | None = None,
        on_advisory: Callable[[dict[str, str | int]], object] | None = None,
        publish: Callable[[str, bytes], object] | None = None,
        client: int = 1,
        everything: bool = False,
        window: Window | None = None,
        publishers_max: int = PLACES,
        horizon_ns: int = HORIZON_NS,
        wall: Clock = time.time_ns,
        now: Clock = steady_ns,
        observe: Callable[[str, str, Judged, int], object] | None = None,
        reorder_max: int = 0,
    ) -> None:
        bounds = {"horizon_ns": horizon_ns, "publishers_max": publishers_max, "t_ns": wall()}
        self.table = SubscriberTable(window, now(), everything=everything, **bounds)
        self.malformed = 0
        self.other_layout = 0
        self.refused = 0
        self.failed = 0
        self._deliver = deliver
        self._on_loss = on_loss
        self._on_advisory = on_advisory
        self._publish = publish
        self._client = client
        self._wall = wall
        self._now = now
        self._observe = observe
        self._held = ReorderBuffer(reorder_max)
        self._losses = Losses()
        self._join = LateJoinRecord()
        self._inboxes: dict[str, InboxWindowRecord] = {}
        self._forgotten = 0
        self._notifier = Node(LOSS_NOTIFIER, LossNotifierRecord(str(client)), name=str(client), now_ns=now())

    # -- what the application says ------------------------------------------------------------------------------

    def subscribe(self, subject: str) -> None:
        """Messages of this subject are wanted."""
        self.table.subscribe(subject, self._wall())

    def unsubscribe(self, subject: str) -> None:
        """They are not any more: what comes of them is counted, and not delivered."""
        self.table.unsubscribe(subject)

    def note_convergence(self, t_ns: int | None = None) -> None:
        """The network has converged, at `t_ns` of the wall's clock (None: now).  Until somebody says so all late joins
        are UNKNOWN."""
        event = Converged(self._wall() if t_ns is None else t_ns)
        self._join = LATE_JOIN.step(self._join, event, 0).record

    # -- what comes ---------------------------------------------------------------------------------------------

    def receive(self, data: bytes) -> Delivery | None:
        """A message has arrived; what the application was given (None: nothing).

        What is malformed or cannot be is counted, and raises nothing.
        """
        one = self.decode_datagram(data)
        if one is None:
            return None
        return self.receive_message(
            one.publisher, one.subject, one.number, one.payload, one.time_ns, one.chain, one.life
        )

    def decode_datagram(self, data: bytes) -> Datagram | None:
        """The message in these bytes; None: there is none, and that is counted.  Who sends another version's layout is
        named in the log, the 1st, 2nd, 4th time and so on."""
        try:
            return decode(data)
        except OtherLayout as error:
            self.other_layout += 1
            if self.other_layout.bit_count() == 1:
                logger.warning("refused, %d times so far: %s", self.other_layout, error)
        except MalformedDatagram:
            self.malformed += 1
        return None

    def receive_message(
        self, publisher: str, subject: str, number: int, payload: bytes, time_ns: int = 0, chain: int = 0, life: int = 0
    ) -> Delivery | None:
        """The same, for a transport that has a format of its own."""
        now_ns = self._now()
        self.table.tick(now_ns)
        lost, patience = UNCLEAR, self._held.most
        if self._held.lines and (publisher, subject, life) in self._held.lines:
            patience = NUMBER_MAX
        if not (time_ns or chain):
            lost = self.table.receive_next(subject, publisher, number, life, patience)
            if not (lost or self._observe or self._held.lines):
                delivery = Delivery(publisher, subject, payload, number, NEXT, 0, False, None, life)
                self._call(self._deliver, delivery)
                return delivery
        line = (publisher, subject, life)
        one = Datagram(VERSION, publisher, life, subject, number, time_ns, chain, payload)
        if lost == HELD and self._held.hold(line, one, now_ns):
            return None
        if lost < 0:
            self._release(line, number - 1)
        try:
            return self._judge(one, lost)
        finally:
            self._release(line, number + 1)

    def _release(self, line: Line, number: int) -> None:
        """What waits of the line up to this number, and what follows that in sequence."""
        while self._held.lines and (one := self._held.pop(line, number)) is not None:
            number = max(number, one.number + 1)
            self._judge(one, UNCLEAR)

    def _judge(self, one: Datagram, lost: int) -> Delivery | None:
        """Say what the message is, if the short way has not, and deliver it."""
        publisher, subject, number, t_ns = one.publisher, one.subject, one.number, self._wall()
        try:
            if lost in (UNCLEAR, HELD):
                parts = (number, one.time_ns, one.chain, t_ns, one.life)
                told = self.table.receive_one(subject, publisher, *parts)
            else:
                told = tell_short(number, lost)
        except ValueError as error:  # `ImpossibleMessage` is one
            self._losses.of(publisher).refused += 1
            self.refused += 1
            if self.refused.bit_count() == 1:
                logger.warning("refused a message of %.64r, %d times so far: %s", publisher, self.refused, error)
            return None
        if (one.time_ns or one.chain) and Numbered(told.frame, told.first, told.last, one.time_ns, one.chain).strange:
            self._losses.of(publisher).strange += 1
        if told.verdict is not NEXT:
            self._losses.of(publisher).count(told, t_ns)
        if self._observe is not None:
            self._observe(publisher, subject, told, t_ns)
        if not told.is_delivered:
            return None
        join = self._joined(told, t_ns) if told.verdict is Verdict.FIRST else None
        delivery = Delivery(
            publisher, subject, one.payload, number, told.verdict, told.lost, told.unknown, join, one.life
        )
        self._tell(delivery)
        return delivery

    def receive_inbox(self, peer: str, number: int) -> bool:
        """A message to us alone has come under this number; whether it is new.  ValueError for what is no number."""
        before = self._inboxes.get(peer)
        if before is None:
            if len(self._inboxes) >= PEERS_MAX:
                del self._inboxes[next(iter(self._inboxes))]
                self._forgotten += 1
            before = InboxWindowRecord(peer)
        step = INBOX_WINDOW.step(before, Inboxed(number), 0)
        self._inboxes[peer] = step.record
        (told,) = (effect.event for effect in step.effects if isinstance(effect, Tell))
        assert isinstance(told, InboxJudged)
        self._losses.of(peer).count_inbox(told, self._wall())
        return told.new

    def poll(self) -> None:
        """Advise of what is due, let the window turn, and free for up to a millisecond what it has dropped."""
        now_ns = self._now()
        self.table.tick(now_ns)
        end = now_ns + 1_000_000
        while self.table.subjects.free() and self._now() < end:
            pass
        for line in self._held.find_due(now_ns):
            self._release(line, NUMBER_MAX)
        self._advise(self._notifier.fire(now_ns))

    def deadline(self) -> int | None:
        """When `poll` is to be called next, by the clock `now`, so that no advisory and no message is late; None:
        nothing waits."""
        waits = (self._held.deadline(), self._notifier.deadline())
        return min((one for one in waits if one is not None), default=None)

    def losses(self) -> LossReport:
        """What was counted so far."""
        kept = self.table.subjects
        evicted = self.table.evicted + self._forgotten
        counts = (self.malformed, evicted, self.failed, self.other_layout)
        return LossReport(self._losses.rows(), len(kept), kept.size_bytes, *counts)

    # -- inside -------------------------------------------------------------------------------------------------

    def _tell(self, one: Delivery) -> None:
        """The callbacks: all of them, whichever raises."""
        if not one.lost:
            self._call(self._deliver, one)
            return
        try:
            self._call(self._on_loss, Loss(one.publisher, one.subject, one.number, one.lost, one.unknown))
        finally:
            try:
                self._call(self._deliver, one)
            finally:
                if one.subject != ADVISED:
                    self._advise(
                        self._notifier.feed(Lost(((one.subject, 0 if one.unknown else one.lost),)), self._now())
                    )

    def _joined(self, told: Judged, t_ns: int) -> Join:
        (effect,) = LATE_JOIN.step(self._join, Joined(told.frame, t_ns), 0).effects
        join: Join = effect.event.join  # type: ignore[union-attr]
        return join

    def _advise(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Tell) and isinstance(effect.event, Advisory):
                fields = fields_of(effect.event, self._client)
                try:
                    self._call(self._on_advisory, fields)
                finally:
                    if self._publish is not None:
                        self._publish(ADVISED, msgspec.json.encode(message_of(fields)))

    def _call(self, callback: Callable[[Any], object] | None, value: Any) -> None:
        if callback is None:
            return
        try:
            callback(value)
        except BaseException:
            self.failed += 1
            raise
