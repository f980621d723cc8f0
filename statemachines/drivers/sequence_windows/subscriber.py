"""SequencedSubscriber: tells an application what each message is, what was lost before it, and advises of losses."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import msgspec

from statemachines.drivers.clock import Clock, steady_ns
from statemachines.drivers.sequence_windows.datagram import MalformedDatagram, decode
from statemachines.drivers.sequence_windows.loss_report import LossReport
from statemachines.kernel import Effect, Node, Tell
from statemachines.sequence_windows.inbox_window import INBOX_WINDOW, Inboxed, InboxJudged, InboxWindowRecord
from statemachines.sequence_windows.late_join import LATE_JOIN, Converged, Join, Joined, LateJoinRecord
from statemachines.sequence_windows.loss_notifier import (
    LOSS_NOTIFIER,
    Advisory,
    LossNotifierRecord,
    Lost,
    fields_of,
)
from statemachines.sequence_windows.losses import PEERS_MAX, Losses
from statemachines.sequence_windows.message import Judged, Numbered, Verdict
from statemachines.sequence_windows.rotation import Window
from statemachines.sequence_windows.subscriber_table import HORIZON_NS, SubscriberTable


class Delivery(msgspec.Struct, frozen=True, gc=False):
    """A message for the application.  `lost`: how many of its publisher and subject are missing before it, 1 where it
    is `unknown` how many; `join`: of a FIRST message, whether its stream is complete; None for others."""

    publisher: str
    subject: str
    payload: bytes
    number: int
    verdict: Verdict
    lost: int = 0
    unknown: bool = False
    join: Join | None = None


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
    `everything`: all subjects are subscribed; otherwise `subscribe` says which.  `window`: when to forget;
    `horizon_ns`: frames that begin so much later than our clock says are refused (0: none); `wall` and `now` as for
    publishers; `observe(publisher, subject, judged, t_ns)` sees every verdict.

    Not for several threads at a time.  What a callback raises comes out of `receive` or `poll`, when everything else
    that the message brought has been done: it counts as delivered.
    """

    def __init__(
        self,
        deliver: Callable[[Delivery], object],
        *,
        on_loss: Callable[[Loss], object] | None = None,
        on_advisory: Callable[[dict[str, str | int]], object] | None = None,
        client: int = 1,
        everything: bool = False,
        window: Window | None = None,
        horizon_ns: int = HORIZON_NS,
        wall: Clock = time.time_ns,
        now: Clock = steady_ns,
        observe: Callable[[str, str, Judged, int], object] | None = None,
    ) -> None:
        self.table = SubscriberTable(window, now(), everything=everything, horizon_ns=horizon_ns)
        self.malformed = 0
        self.failed = 0
        self._deliver = deliver
        self._on_loss = on_loss
        self._on_advisory = on_advisory
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

    def converged(self, t_ns: int | None = None) -> None:
        """The network has converged, at `t_ns` of the wall's clock (None: now).  Until somebody says so all late joins
        are UNKNOWN."""
        event = Converged(self._wall() if t_ns is None else t_ns)
        self._join = LATE_JOIN.step(self._join, event, 0).record

    # -- what comes ---------------------------------------------------------------------------------------------

    def receive(self, data: bytes) -> Delivery | None:
        """A message has arrived; what the application was given (None: nothing).

        What is malformed or cannot be is counted, and raises nothing.
        """
        try:
            one = decode(data)
        except MalformedDatagram:
            self.malformed += 1
            return None
        return self.receive_message(one.publisher, one.subject, one.number, one.payload, one.time_ns, one.chain)

    def receive_message(
        self, publisher: str, subject: str, number: int, payload: bytes, time_ns: int = 0, chain: int = 0
    ) -> Delivery | None:
        """The same, for a transport that has a format of its own."""
        self.table.tick(self._now())
        t_ns = self._wall()
        try:
            told = self.table.receive_one(subject, publisher, number, time_ns, chain, t_ns)
        except ValueError:  # `Refused` is one
            self._losses.of(publisher).refused += 1
            return None
        if told.verdict is not Verdict.NEXT:
            self._losses.of(publisher).count(told, t_ns)
        if (time_ns or chain) and Numbered(told.frame, told.first, told.last, time_ns, chain).strange:
            self._losses.of(publisher).strange += 1
        if self._observe is not None:
            self._observe(publisher, subject, told, t_ns)
        return self._tell(publisher, subject, number, payload, told, t_ns)

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
        return LossReport(self._losses.rows(), len(kept), kept.kept, self.malformed, evicted, self.failed)

    # -- inside -------------------------------------------------------------------------------------------------

    def _tell(
        self, publisher: str, subject: str, number: int, payload: bytes, told: Judged, t_ns: int
    ) -> Delivery | None:
        """The callbacks: all of them, whichever raises."""
        if not told.delivered:
            return None
        join = self._joined(told, t_ns) if told.verdict is Verdict.FIRST else None
        delivery = Delivery(publisher, subject, payload, number, told.verdict, told.lost, told.unknown, join)
        if not told.lost:
            self._call(self._deliver, delivery)
            return delivery
        try:
            self._call(self._on_loss, Loss(publisher, subject, number, told.lost, told.unknown))
        finally:
            try:
                self._call(self._deliver, delivery)
            finally:
                self._advise(self._notifier.feed(Lost(((subject, told.lost),)), self._now()))
        return delivery

    def _joined(self, told: Judged, t_ns: int) -> Join:
        (effect,) = LATE_JOIN.step(self._join, Joined(told.frame, t_ns), 0).effects
        join: Join = effect.event.join  # type: ignore[union-attr]
        return join

    def _advise(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Tell) and isinstance(effect.event, Advisory):
                self._call(self._on_advisory, fields_of(effect.event, self._client))

    def _call(self, callback: Callable[[Any], object] | None, value: Any) -> None:
        if callback is None:
            return
        try:
            callback(value)
        except BaseException:
            self.failed += 1
            raise
