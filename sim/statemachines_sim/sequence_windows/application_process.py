"""ApplicationProcess: one life of a receiver that embeds the application interface, `SequencedSubscriber`, as it is."""

from __future__ import annotations

from statemachines.drivers.sequence_windows.subscriber import Delivery, SequencedSubscriber
from statemachines.kernel import Message, Outgoing
from statemachines.sequence_windows.late_join import Joining
from statemachines.sequence_windows.loss_notifier import Advisory
from statemachines.sequence_windows.message import Judged
from statemachines.sequence_windows.subject_publishers import PLACES
from statemachines_sim.sequence_windows.carried_message import Carried
from statemachines_sim.sequence_windows.receiver_process import SubjectReceiver

MACHINE = "sequence_windows/subscriber_window"


class ApplicationProcess(SubjectReceiver):
    """Feeds it what arrives, polls it when it says, and hands on what it says."""

    def make(self) -> None:
        self.subscriber = SequencedSubscriber(
            self._deliver,
            on_advisory=self._advise,
            window=self.own.receiver_window,
            publishers_max=self.own.places or PLACES,
            wall=self.wall,
            now=self.local_now,
            observe=self._observe,
        )
        self._wakes: int | None = None
        for subject in self.subjects:
            self.subscriber.subscribe(subject)

    def converge(self, t_ns: int, at_ns: int) -> None:
        self.watch.converge(self, at_ns)
        self.world.note("converged", self.node)  # no machine of it has rows that say so
        self.subscriber.note_convergence(t_ns)

    def subscribe(self, subject: str, wanted: bool) -> None:
        (self.subscriber.subscribe if wanted else self.subscriber.unsubscribe)(subject)

    def look(self) -> None:
        self.watch.look_at_window(self)
        self.subscriber.poll()
        self._set_alarm()

    def handle_clock_change(self) -> None:
        super().handle_clock_change()
        self._wakes = None
        self._set_alarm()

    def handle(self, sender: str, to: str, message: Message, now_ns: int) -> list[Outgoing]:
        assert isinstance(message, Carried)
        self.watch.look_at_window(self)
        self._message = message
        number = message.numbered_event.number
        parts = (number, b"", message.time_ns, message.chain)
        self.subscriber.receive_message(message.publisher, message.subject, *parts)
        self.watch.end_message(self, message)
        self._set_alarm()
        return []

    # -- what it says -----------------------------------------------------------------------------------------------

    def _observe(self, publisher: str, subject: str, told: Judged, t_ns: int) -> None:
        self.watch.judge_message(self, self._message, told)
        self.tell(f"{self.life}/{subject}/{publisher}", told, publisher, MACHINE)

    def _deliver(self, one: Delivery) -> None:
        if one.join is not None:
            self.tell(f"{self.life}/join", Joining(one.join), one.publisher)

    def _advise(self, fields: dict[str, str | int]) -> None:
        count = sum(name.startswith("sub") for name in fields) - 1
        listed = tuple((str(fields[f"sub{n}"]), int(fields[f"lost{n}"])) for n in range(1, count + 1))
        self.tell(f"{self.life}/client", Advisory(int(fields["lost"]), int(fields["sub_cnt"]), listed))

    def _set_alarm(self) -> None:
        deadline = self.subscriber.deadline()
        if deadline is None or deadline == self._wakes or not self.alive:
            return
        self._wakes = deadline
        when = deadline if self.clock is None else self.clock.true(deadline)
        self.after(max(0, when - self.world.now), self._wake_up)

    def _wake_up(self) -> None:
        self._wakes = None
        self.subscriber.poll()
        self._set_alarm()
