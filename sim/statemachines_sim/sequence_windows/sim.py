"""What sequence windows say to the simulator: who takes part, what may go wrong, who judges.

Load: beside what publishers and receivers do by themselves: the routes, and the operator's words.

Kinds of faults that only sequence windows have: wall's clocks that somebody sets, and a network that settles.

PublisherProcess: one life of a publisher; its id is that of its life, so whoever starts again is another one.

ApplicationProcess: one life of a receiver that embeds the application interface, `SequencedSubscriber`, as it is.
"""

from __future__ import annotations

from functools import partial
from random import Random
from typing import Any

from statemachines.drivers.sequence_windows.subscriber import Delivery, SequencedSubscriber
from statemachines.kernel import Message, Outgoing
from statemachines.sequence_windows.late_join import Converged, Joining
from statemachines.sequence_windows.loss_notifier import Advisory
from statemachines.sequence_windows.message import Judged
from statemachines.sequence_windows.properties import PROPERTIES
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
from statemachines.sequence_windows.subject_publishers import PLACES
from statemachines_sim.cluster import Fixture, Role, SimCluster, Tolerance, Watch
from statemachines_sim.fault import Fault
from statemachines_sim.faults.clocks import OfClock
from statemachines_sim.faults.fault_sampler import FaultSampler
from statemachines_sim.faults.network import Loss
from statemachines_sim.judge import Judge
from statemachines_sim.node_life import NodeLife
from statemachines_sim.protocol import SimProtocol
from statemachines_sim.scenario import Scenario
from statemachines_sim.sequence_windows.carried_message import Carried
from statemachines_sim.sequence_windows.operator import NAME, operator
from statemachines_sim.sequence_windows.peer import PeerProcess
from statemachines_sim.sequence_windows.receiver_process import ReceiverProcess, SubjectReceiver
from statemachines_sim.sequence_windows.section import WindowSection, check
from statemachines_sim.sequence_windows.watch import CLOSING_NS, DRIFT_PPM, LossWatch
from statemachines_sim.units import MS, S

LISTENERS = ("receiver-", "application-")


def play(own: WindowSection, world: SimCluster) -> None:
    """Every message goes to every receiver, as in a multicast group: who does not want it drops it."""

    def route(to: str) -> list[str]:
        return [node for node in world.processes if node.startswith(LISTENERS)]

    world.network.route_by(route)
    operator: Any = world.devices[NAME]
    for at_s in own.converge_s:
        world.after(int(at_s * S), operator.converge)


STEP_NS = 3_600 * S
WRONG_NS = 12 * 3_600 * S
"""Two clocks that are wrong to both sides are a day apart, and a receiver believes two."""


class SetWall(OfClock):
    """Two small steps are as likely as two large ones: within a frame, over some, and by up to an hour."""

    name = "set_wall"
    about = "the wall's clock is set ahead or back, by up to an hour, while the one that never steps goes on"

    def draw(self, pot: FaultSampler) -> Fault:
        most = pot.chance.choice((5 * S, 60 * S, STEP_NS))
        return Fault(self.name, pot.at_ns, 0, pot.target(), amount=pot.chance.randint(-most, most))

    def begin(self, world: SimCluster, fault: Fault) -> bool:
        world.note(self.name, fault.target, by_ns=fault.amount)
        operator: Any = world.devices[NAME]
        operator.step_wall(fault.target, fault.amount)
        return True

    def end(self, world: SimCluster, fault: Fault) -> None:
        """Nobody sets it right."""


class WrongWall(SetWall):
    """From the beginning on."""

    name = "wrong_wall"
    about = "the wall's clock is wrong by a constant, by up to twelve hours to either side"
    from_start = True

    def draw(self, pot: FaultSampler) -> Fault:
        return Fault(self.name, 0, pot.end_ns, pot.target(), amount=pot.chance.randint(-WRONG_NS, WRONG_NS))


class Unsettled(Loss):
    """What JOIN assumes: a network that has converged loses nothing."""

    name = "unsettled"
    about = "a share of all messages is lost, until the operator says that the network has converged"

    def possible(self, pot: FaultSampler) -> bool:
        return bool(pot.scenario.own.converge_s)

    def draw(self, pot: FaultSampler) -> Fault:
        end = int(min(pot.scenario.own.converge_s) * S)
        return Fault(self.name, 1, end - 2, rate=pot.rate())


FAULTS = (SetWall(), WrongWall(), Unsettled())


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


OF_PEERS = ("crash", "pause", "long_pause", "skew", "drift", "jump", "far_jump", "partition", "set_wall", "wrong_wall")
"""No timer is ever taken back, so late ones hit nobody."""


class LossSim(SimProtocol[WindowSection]):
    """The value of the registration."""

    name = "sequence_windows"
    section = WindowSection
    properties = PROPERTIES
    faults = FAULTS
    scenarios = "statemachines_sim:scenarios/sequence_windows"

    def check(self, own: WindowSection, scenario: Scenario) -> None:
        check(own, scenario)

    def cast(self, own: WindowSection) -> tuple[Role, ...]:
        """Publishers talk to receivers."""

        def publisher(world: SimCluster, node: str, number: int) -> NodeLife:
            return WindowPublisherProcess(world, node, number, own)

        def receiver(world: SimCluster, node: str, number: int) -> NodeLife:
            return ReceiverProcess(world, node, number, own)

        def application(world: SimCluster, node: str, number: int) -> NodeLife:
            return ApplicationProcess(world, node, number, own)

        def times(some: tuple[float, ...]) -> tuple[int, ...]:
            return tuple(int(at * S) for at in some)

        clock = Tolerance(drift_ppm=DRIFT_PPM)
        late, later = times(own.join_publishers_s), times(own.join_receivers_s)
        to = ("receiver", "application")
        return (
            Role("publisher", publisher, own.publishers, late, faults=OF_PEERS, talks_to=to, clock=clock),
            Role("receiver", receiver, own.receivers, later, faults=OF_PEERS, clock=clock),
            Role("application", application, own.applications, faults=OF_PEERS, clock=clock),
        )

    def devices(self, own: WindowSection) -> tuple[Fixture, ...]:
        return (operator(own),)

    def longest_ns(self, own: WindowSection) -> int:
        """A window turns after this, and after twice this it has forgotten."""
        return 2 * max(own.pub_window_s, own.sub_window_s) * S

    def play(self, own: WindowSection, world: SimCluster, chance: Random) -> None:
        play(own, world)

    def watch(self, own: WindowSection, judge: Judge) -> Watch:
        return LossWatch(own, judge)


SIM = LossSim()
