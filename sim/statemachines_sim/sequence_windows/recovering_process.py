"""RecoveringProcess: one life of a receiver that embeds `SequencedSubscriber` with recovery, as it is."""

from __future__ import annotations

from statemachines.drivers.sequence_windows.recovery_query import RecoveryQuery
from statemachines.drivers.sequence_windows.subscriber import Delivery, Loss, SequencedSubscriber
from statemachines.kernel import Message, Outgoing
from statemachines.sequence_windows.sequence import base_of
from statemachines.sequence_windows.subject_publishers import PLACES
from statemachines_sim.sequence_windows.application_process import ApplicationProcess
from statemachines_sim.sequence_windows.carried_message import Carried
from statemachines_sim.sequence_windows.recovery_answer import AnswerEnded, Asked, GivenUp, Returned
from statemachines_sim.units import MS


class RecoveringProcess(ApplicationProcess):
    """Its questions, their answers and their ends are messages like others: lost, late, and there twice."""

    def make(self) -> None:
        self.watch.recovery.listen(self)
        self._open: dict[tuple[str, int], tuple[RecoveryQuery, set[int], int]] = {}
        self._number = 0
        self._wakes = None
        self.subscriber = SequencedSubscriber(
            self._deliver,
            on_loss=self._lose,
            on_advisory=self._advise,
            window=self.own.receiver_window,
            publishers_max=self.own.places or PLACES,
            wall=self.wall,
            now=self.local_now,
            observe=self._observe,
            recovery=self.own.recover,
            ask=self._ask_publisher,
        )
        self.tell(f"{self.life}/recovery", GivenUp("", 0))
        for subject in self.subjects:
            self.subscriber.subscribe(subject)

    def subscribe(self, subject: str, wanted: bool) -> None:
        self.watch.recovery.forget(self, subject)
        super().subscribe(subject, wanted)

    def handle(self, sender: str, to: str, message: Message, now_ns: int) -> list[Outgoing]:
        if isinstance(message, Carried):
            self._number = message.numbered_event.number
            self.watch.recovery.arrive(self, message)
            super().handle(sender, to, message, now_ns)
            self.watch.recovery.look(self)
        elif to == self.life:  # and of no former life
            self._take(message)
            self.watch.end_turn(self)
            self._set_alarm()
        return []

    # -- questions and answers ------------------------------------------------------------------------------------

    def _ask_publisher(self, query: RecoveryQuery) -> None:
        self.watch.recovery.ask(self, query)
        self._open = {place: one for place, one in self._open.items() if place[0] != query.run}
        self._open[query.run, query.n] = (query, set(), self.local_now())
        bases = (base_of(query.first), base_of(query.last))
        asked = Asked(self.life, query.publisher, query.subject, query.frame, *bases, query.run, query.n)
        self.send(query.publisher, asked)

    def _take(self, message: Message) -> None:
        assert isinstance(message, Returned | AnswerEnded)
        found = self._open.get((message.run, message.n))
        self._number = 0
        if isinstance(message, Returned):
            in_time = found is not None and self.local_now() - found[2] < self.own.ask_timeout_ms * MS
            if found is not None:
                found[1].add(message.ordinal)
            self.watch.recovery.bring(self, message, in_time)
            self.subscriber.receive_recovered(bytes.fromhex(message.data))
        elif found is not None:
            query, came, _ = found
            del self._open[message.run, message.n]
            self.subscriber.close_query(query, len(came) == message.count)

    # -- what it says -----------------------------------------------------------------------------------------------

    def _deliver(self, one: Delivery) -> None:
        self.watch.recovery.deliver(self, one)
        if one.number == self._number:
            super()._deliver(one)

    def _lose(self, loss: Loss) -> None:
        self.watch.recovery.lose(self, loss)
        self.tell(f"{self.life}/recovery", GivenUp(loss.subject, loss.lost), loss.publisher)
        self.watch.lose(self, loss.subject, loss.lost)

    def _wake_up(self) -> None:
        self._number = 0
        self.watch.look_at_window(self)
        super()._wake_up()
        self.watch.end_turn(self)
