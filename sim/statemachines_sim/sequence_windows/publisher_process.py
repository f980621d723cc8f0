"""PublisherProcess: one life of a publisher; its id is that of its life, so whoever starts again is another one."""

from __future__ import annotations

from functools import partial

from statemachines.sequence_windows.late_join import Converged
from statemachines.sequence_windows.publisher_window import (
    ABSENT,
    OLD,
    PUBLISHER_WINDOW,
    Flip,
    Publish,
    PublisherWindowRecord,
    Stamped,
)
from statemachines.sequence_windows.rotation import PUBLISHER_OVERHEAD, ROTATION, RotationRecord, Tick
from statemachines.sequence_windows.sequence import BASE_MAX, frame_of
from statemachines_sim.sequence_windows.carried_message import Carried
from statemachines_sim.sequence_windows.peer import PeerProcess
from statemachines_sim.sequence_windows.watch import CLOSING_NS
from statemachines_sim.units import MS, S

WINDOW = "window"


class WindowPublisherProcess(PeerProcess):
    """Publishes on every subject, each at a pace of its own, until the faults are over; then once more."""

    def begin(self) -> None:
        self.watch.speak(self)
        self.add(ROTATION, RotationRecord(self.own.publisher_window, self.local_now()), WINDOW)
        for subject in self.own.names:
            self.add(PUBLISHER_WINDOW, PublisherWindowRecord(subject), subject)
            if self.own.bases_left:  # as if all the others had been sent, and nobody had listened
                self.feed(subject, Publish(BASE_MAX - self.own.bases_left, self.wall()))
            self.after(self._pace(), partial(self._go_on, subject))
        if self.own.closing:
            self.after(max(0, self.end_ns - self.world.now) + CLOSING_NS, self._close)

    def converge(self, t_ns: int, at_ns: int) -> None:
        self.feed(WINDOW, Converged(t_ns))

    def look(self) -> None:
        """As `PublisherTable.tick` does it."""
        self.watch.look_at_own_window(self)
        records = [self.record(subject) for subject in self.own.names]
        kept = sum(PUBLISHER_OVERHEAD + len(one.subject) for one in records if one.status is not ABSENT)
        old = max((frame_of(one.last) for one in records if one.status is OLD), default=0)
        if self.feed(WINDOW, Tick(self.local_now(), kept, old)):
            for subject in self.own.names:
                self.feed(subject, Flip())

    def publish(self, subject: str) -> None:
        """Number a message, and send it to whoever listens."""
        self.look()
        rotation = self.record(WINDOW)
        call = Publish(1, self.wall(), rotation.converged_ns, rotation.floor)
        (told,) = self.feed(subject, call)
        if isinstance(told, Stamped):
            ordinal = self.watch.publish(self, subject, told)
            self.tell(f"{self.life}/{subject}", told)
            parts = (told.frame, told.first, told.time_ns, told.chain)
            self.send(subject, Carried(self.life, subject, ordinal, *parts))
        else:
            self.tell(f"{self.life}/{subject}", told)

    def _pace(self) -> int:
        own, chance = self.own, self.chance
        if own.rest and chance.random() < own.rest:
            return chance.randint(own.rest_s[0] * S, own.rest_s[1] * S)
        return chance.randint(own.publish_ms[0] * MS, own.publish_ms[1] * MS)

    def _go_on(self, subject: str) -> None:
        if self.world.now < self.end_ns:
            self.publish(subject)
            self.after(self._pace(), partial(self._go_on, subject))

    def _close(self) -> None:
        for subject in sorted(self.watch.speaking[self.life].sent):
            self.publish(subject)
