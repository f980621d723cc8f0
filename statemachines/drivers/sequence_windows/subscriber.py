"""SequencedSubscriber: tells an application what each message is, what was lost before it, and advises of losses."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

import msgspec

from statemachines.drivers.clock import Clock, steady_ns
from statemachines.drivers.sequence_windows.datagram import Datagram, MalformedDatagram, OtherLayout, decode
from statemachines.drivers.sequence_windows.loss_report import LossReport
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
from statemachines.sequence_windows.subject_publishers import PLACES
from statemachines.sequence_windows.subscriber_table import HORIZON_NS, SubscriberTable

logger = logging.getLogger("gapless")


class Delivery(msgspec.Struct, frozen=True, gc=False):
    """A message for the application.  `lost`: how many of its publisher and subject are missing before it, 1 where it
    is `unknown` how many; `join`: of a FIRST message, whether its stream is complete; None for others; `life`: which of
    its publisher's (0: it does not say)."""

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
    """`lost` messages are missing before `number`; 1 where it is `unknown` how many."""

    publisher: str
    subject: str
    number: int
    lost: int
    unknown: bool


class SequencedSubscriber:
    """Feed it what arrives (`receive`), and call `poll` when `deadline` has come, or now and then.

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
    ) -> None:
        bounds = {"horizon_ns": horizon_ns, "publishers_max": publishers_max}
        self.table = SubscriberTable(window, now(), everything=everything, **bounds)
        self.malformed = 0
        self.other_layout = 0
        self.failed = 0
        self._deliver = deliver
        self._on_loss = on_loss
        self._on_advisory = on_advisory
        self._publish = publish
        self._client = client
        self._wall = wall
        self._now = now
        self._observe = observe
        self._losses = Losses()
        self._join = LateJoinRecord()
        self._inboxes: dict[str, InboxWindowRecord] = {}
        self._forgotten = 0
        self._notifier = Node(LOSS_NOTIFIER, LossNotifierRecord(str(client)), name=str(client), now_ns=now())

    # -- what the application says ------------------------------------------------------------------------------

    def subscribe(self, subject: str) -> None:
        """Messages of this subject are wanted."""
        self.table.subscribe(subject)

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
        parts = (one.payload, one.time_ns, one.chain, one.life)
        return self.receive_message(one.publisher, one.subject, one.number, *parts)

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
        self.table.tick(self._now())
        t_ns = self._wall()
        try:
            told = self.table.receive_one(subject, publisher, number, time_ns, chain, t_ns, life)
        except ValueError:  # `Refused` is one
            self._losses.of(publisher).refused += 1
            return None
        if (time_ns or chain) and Numbered(told.frame, told.first, told.last, time_ns, chain).strange:
            self._losses.of(publisher).strange += 1
        if told.verdict is not Verdict.NEXT:
            self._losses.of(publisher).count(told, t_ns)
        if self._observe is not None:
            self._observe(publisher, subject, told, t_ns)
        if not told.is_delivered:
            return None
        join = self._joined(told, t_ns) if told.verdict is Verdict.FIRST else None
        parts = (told.verdict, told.lost, told.unknown, join, life)
        delivery = Delivery(publisher, subject, payload, number, *parts)
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
        self._advise(self._notifier.fire(now_ns))

    def deadline(self) -> int | None:
        """When `poll` is to be called next, by the clock `now`, so that no advisory is late; None: nothing waits."""
        return self._notifier.deadline()

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
                    self._advise(self._notifier.feed(Lost(((one.subject, one.lost),)), self._now()))

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
