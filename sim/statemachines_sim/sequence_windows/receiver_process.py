"""ReceiverProcess: one life of a receiver, as bare machines: one for each subject and publisher, a rotation, a late
join and a notifier."""

from __future__ import annotations

from abc import abstractmethod
from functools import partial

from statemachines.kernel import Message, Outgoing
from statemachines.sequence_windows.late_join import LATE_JOIN, Converged, Joined, LateJoinRecord
from statemachines.sequence_windows.loss_notifier import LOSS_NOTIFIER, LossNotifierRecord, Lost
from statemachines.sequence_windows.message import Judged, Verdict
from statemachines.sequence_windows.rotation import ROTATION, SUBSCRIBER_OVERHEAD, RotationRecord, Tick
from statemachines.sequence_windows.sequence import frame_at
from statemachines.sequence_windows.subject_publishers import (
    CROWDED,
    SUBJECT_PUBLISHERS,
    Arrival,
    Displaced,
    SubjectForgotten,
    SubjectPublishersRecord,
)
from statemachines.sequence_windows.subscriber_window import (
    FLIPS,
    KEPT,
    SUBSCRIBER_WINDOW,
    Displace,
    Subscribe,
    SubscriberWindowRecord,
    Touched,
    Unsubscribe,
)
from statemachines_sim.sequence_windows.carried_message import Carried
from statemachines_sim.sequence_windows.peer import PeerProcess
from statemachines_sim.units import MS, S

WINDOW, JOIN, CLIENT, CROWD = "window", "join", "client", "crowd"


class SubjectReceiver(PeerProcess):
    """Base of both kinds: subscribes, and now and then gives a subject up for a while."""

    def begin(self) -> None:
        number = int(self.node.rpartition("-")[2]) if self.node[-1].isdigit() else 1
        self.subjects = self.own.list_subscriptions(number)
        self.watch.listen(self, self.subjects)
        self.make()
        self._plan()

    @abstractmethod
    def make(self) -> None:
        """Its machines."""

    @abstractmethod
    def subscribe(self, subject: str, wanted: bool) -> None:
        """It subscribes the subject, or (not `wanted`) does no more."""

    def _plan(self) -> None:
        low, high = self.own.resubscribe_s
        if high and self.subjects:
            self.after(self.chance.randint(low * S, high * S), self._leave)

    def _leave(self) -> None:
        if self.world.now >= self.end_ns:
            return
        subject = self.chance.choice(self.subjects)
        self._turn(subject, False)
        low, high = self.own.away_ms
        self.after(self.chance.randint(low * MS, high * MS), partial(self._come_back, subject))

    def _come_back(self, subject: str) -> None:
        self._turn(subject, True)
        self._plan()

    def _turn(self, subject: str, wanted: bool) -> None:
        self.watch.subscribe(self, subject, wanted)
        self.world.note("subscribe" if wanted else "unsubscribe", self.node, subject)
        self.subscribe(subject, wanted)


class ReceiverProcess(SubjectReceiver):
    """Does what `SequencedSubscriber` does, and every step is in the trace."""

    def make(self) -> None:
        self.subscribed = set(self.subjects)
        self.lines: dict[str, list[str]] = {}
        self.since = dict.fromkeys(self.subjects, frame_at(self.wall()))
        self.frame = self.old_frame = 0
        self.add(ROTATION, RotationRecord(self.own.receiver_window, self.local_now()), WINDOW)
        self.add(LATE_JOIN, LateJoinRecord(), JOIN)
        self.add(LOSS_NOTIFIER, LossNotifierRecord(self.life), CLIENT)
        for subject in self.own.names if self.own.places else ():
            self.add(SUBJECT_PUBLISHERS, SubjectPublishersRecord(subject, self.own.places), f"{CROWD}/{subject}")

    def converge(self, t_ns: int, at_ns: int) -> None:
        self.watch.converge(self, at_ns)
        self.feed(JOIN, Converged(t_ns))

    def subscribe(self, subject: str, wanted: bool) -> None:
        (self.subscribed.add if wanted else self.subscribed.discard)(subject)
        self.since[subject] = frame_at(self.wall())
        for name in self.lines.get(subject, ()):
            self.feed(name, self._subscription(subject) if wanted else Unsubscribe())
        if not wanted:
            self._forget_crowd(subject)

    def look(self) -> None:
        """As `SubscriberTable.tick` does it."""
        self.watch.look_at_window(self)
        kept = sum(SUBSCRIBER_OVERHEAD + len(subject) for subject, names in self.lines.items() if self._keeps(names))
        for flip in self.feed(WINDOW, Tick(self.local_now(), kept, self.old_frame)):
            self.old_frame = self.frame
            for names in self.lines.values():
                for name in names:
                    self.feed(name, flip)
            for subject, names in self.lines.items():
                if not self._keeps(names):
                    self._forget_crowd(subject)

    def handle(self, sender: str, to: str, message: Message, now_ns: int) -> list[Outgoing]:
        assert isinstance(message, Carried)
        self.look()
        name = self._line(message.subject, message.publisher)
        (told,) = self.feed(name, message.numbered_event)
        assert isinstance(told, Judged)
        if message.subject in self.subscribed:
            self.frame = max(self.frame, message.frame)
        for other in self.lines[message.subject]:
            if other != name and message.subject in self.subscribed:
                self.feed(other, Touched())
        if self.own.places and message.subject in self.subscribed:
            for one in self.feed(f"{CROWD}/{message.subject}", Arrival(message.publisher)):
                assert isinstance(one, Displaced)
                self.feed(f"{message.subject}/{one.publisher}", Displace())
        self.watch.judge_message(self, message, told)
        self.tell(f"{self.life}/{name}", told, message.publisher)
        if told.verdict is Verdict.FIRST:
            for joining in self.feed(JOIN, Joined(told.frame, self.wall())):
                self.tell(f"{self.life}/{JOIN}", joining, message.publisher)
        if told.lost:
            for advisory in self.feed(CLIENT, Lost(((message.subject, told.known_lost),))):
                self.tell(f"{self.life}/{CLIENT}", advisory)
        self.watch.end_message(self, message)
        return []

    def _line(self, subject: str, publisher: str) -> str:
        """The machine of a subject and a publisher; it is there from now on."""
        name = f"{subject}/{publisher}"
        names = self.lines.setdefault(subject, [])
        if name not in names:
            names.append(name)
            crowded = FLIPS if self._is_crowded(subject) else 0
            self.add(SUBSCRIBER_WINDOW, SubscriberWindowRecord(subject, publisher, crowded=crowded), name)
            if subject in self.subscribed:
                self.feed(name, self._subscription(subject))
        return name

    def _subscription(self, subject: str) -> Subscribe:
        return Subscribe(max(self.since[subject], self.record(WINDOW).floor))

    def _is_crowded(self, subject: str) -> bool:
        return bool(self.own.places) and self.record(f"{CROWD}/{subject}").status is CROWDED

    def _forget_crowd(self, subject: str) -> None:
        if self.own.places:
            self.feed(f"{CROWD}/{subject}", SubjectForgotten())

    def _keeps(self, names: list[str]) -> bool:
        return any(self.record(name).status in KEPT for name in names)
