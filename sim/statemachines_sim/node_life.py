"""NodeLife: one incarnation of a node: its host, its wake-up, and what happens to it when it pauses or dies.

While a process is paused, everything that is for it waits.  When it resumes, what ends a right comes first (a host sees
to it), then it hears what waited, and then the other timers that are due fire, as in a real process that was stopped
and continued.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Any, Final, Protocol

from statemachines.kernel import (
    Answer,
    Ask,
    ConfigurationError,
    Event,
    Host,
    Message,
    Outgoing,
    Request,
    Send,
    incarnation,
)  # fmt: skip
from statemachines_sim.clock import SimulatedClock
from statemachines_sim.clocks import Clocks
from statemachines_sim.forged_message import Forger, ForgingTransport, Sends
from statemachines_sim.local_clock import LocalClock
from statemachines_sim.network import Packet, SimulatedNetwork
from statemachines_sim.recorder import DELIVER, Recorder
from statemachines_sim.run_settings import RunSettings
from statemachines_sim.units import MS, S

Armed = tuple[str, str, str]
"""A timer of a node: party, name, key."""

LOOK_AGAIN_NS: Final = S
"""A loop looks at the time at least so often by its own clock, which stands still while its machine sleeps."""


Reply = Callable[[Answer], None]
"""Takes an answer to the machine that asked."""


class Device(Protocol):
    """Something that machines ask: a `RemoteStore`, a `SharedMemory`, a `QueryFabric`, or one of the protocol's own.

    `clock`: its own, where it is not the true one.
    """

    clock: LocalClock | None

    def ask(self, process: NodeLife, party: str, request: Request, reply: Reply) -> None:
        """`party` of `process` asks now; `reply` takes each answer, when it comes, to the process if it lives."""

    def heal(self) -> None:
        """No more faults."""


class Surroundings(Protocol):
    """What a life needs of the world that it is in: a `SimCluster` has it all."""

    seed: int
    scenario: RunSettings
    bits: dict[str, int]
    env: SimulatedClock
    clocks: Clocks
    network: SimulatedNetwork
    recorder: Recorder
    devices: dict[str, Device]

    def note(self, fault: str, node: str, peer: str = "", **details: object) -> None:
        """Something is done to a node."""

    def observe_death(self, process: NodeLife) -> None:
        """A life has ended."""


class NodeLife(ABC):
    """Base of the processes; `life` is the incarnation; `clock`: its own, where it is not the true one."""

    host: Host

    def __init__(self, world: Surroundings, node: str, number: int) -> None:
        self.world = world
        self.node = node
        self.life = incarnation(node, number, world.bits.get(node, 0))
        self.alive = True
        self.clock: LocalClock | None = world.clocks.of(node)
        self._env = world.env
        self._recorder = world.recorder
        self._keep_parts = world.recorder.note_parts
        self._network: Sends = world.network
        self._waiting: list[Callable[[], None]] | None = None
        self._out: list[Outgoing] | None = None
        self._in_turn: Packet | None = None
        self._wake_at: int | None = None
        self._fires_late = False
        self._sleeps = False
        self._event_ns = round(world.scenario.event_ms * MS)
        self._free_at = 0
        self._late_rate = 0.0
        self._late = random.Random(f"{world.seed}/{self.life}/late")
        self._armed: dict[Armed, int] = {}

    # -- what subclasses say; `MachineProcess` says it for any machine --------------------------------------------

    @abstractmethod
    def start(self) -> None:
        """Begin."""

    @abstractmethod
    def handle(self, sender: str, to: str, message: Message, now_ns: int) -> list[Outgoing]:
        """A message for one of the host's parties; `now_ns` by the process's own clock."""

    @abstractmethod
    def route_answer(self, party: str, answer: Any, now_ns: int) -> list[Outgoing]:
        """An answer of a device to one of the host's parties."""

    @abstractmethod
    def route_tell(self, party: str, event: Event) -> None:
        """Something for the application."""

    # -- from the world -----------------------------------------------------------------------------------------

    def receive(self, packet: Packet) -> None:
        """A message arrives.  One that arrives while the process stands still is looked at when it goes on: a subclass
        that refuses messages refuses it then."""
        if (self._waiting is not None or self._event_ns) and self._put_off(packet):
            return
        recorder, clock = self._recorder, self.clock
        now_ns = self._env._now
        self._keep_parts((DELIVER, now_ns, packet))
        recorder.msg = packet[5]
        out = self.handle(packet[3], packet[4], packet[6], now_ns if clock is None else clock.local(now_ns))
        recorder.msg = -1
        self.perform(out, now_ns)

    def _put_off(self, packet: Packet) -> bool:
        """Let the packet wait for the end of a pause, or for the loop.  False: it is its turn."""
        if self._waiting is not None:
            self._waiting.append(partial(self.receive, packet))
            return True
        if self._in_turn is packet:
            self._in_turn = None
            return False
        self._run(partial(self._receive_in_turn, packet))
        return True

    def _receive_in_turn(self, packet: Packet) -> None:
        self._in_turn = packet
        NodeLife.receive(self, packet)

    def perform(self, out: list[Outgoing], now_ns: int) -> None:
        """Send, ask, tell; and see to the next wake-up.  `now_ns` is true time.

        As `kernel.HostLoop` has it: what comes of a tell is performed after the effects before it.  The loop itself is
        not used here: a closure an event and a frame an effect cost an eighth of all that a message does.
        """
        if self._out is not None:
            self._out.extend(out)  # the loop below goes on with them
            return
        self._out = out
        try:
            for party, effect in out:
                if type(effect) is Send:
                    self._network.send(self.node, party, effect.to, effect.message, now_ns)
                elif type(effect) is Ask:
                    self._ask(party, effect, now_ns)
                else:
                    self.route_tell(party, effect.event)  # type: ignore[union-attr]
        finally:
            self._out = None
        if self._late_rate:
            self._fire_late()
        if self.host.moved:
            self._rearm(now_ns)

    def local_now(self) -> int:
        """What its own clock shows: the only time that its machines ever see."""
        now_ns = self._env.now
        return now_ns if self.clock is None else self.clock.local(now_ns)

    def handle_clock_change(self) -> None:
        """Its clock runs otherwise from now on: see to the next wake-up anew."""
        self._wake_at = None
        if self.alive:
            self._rearm(self._env.now)

    def after(self, delay_ns: int, run: Callable[[], None]) -> None:
        """Call `run` later, in this life, when not paused."""
        self._env.timeout(delay_ns, run).callbacks.append(self._run_due)

    def pause(self) -> None:
        """Stand still."""
        if self._waiting is None:
            self._waiting = []

    def sleep(self) -> None:
        """Stand still with the whole machine: no timer of its loop comes nearer meanwhile."""
        self.pause()
        self._sleeps = True

    def resume(self) -> None:
        """Go on with what has waited; timers that came up meanwhile have patience, and fire after it.  After a sleep
        nothing wakes the loop before it looks at the time again, but what it hears."""
        waiting, self._waiting = self._waiting or [], None
        fires, self._fires_late = self._fires_late, False
        if self._sleeps:
            fires = self._sleeps = False
            self._wake_at = None
            self.after(LOOK_AGAIN_NS, self._fire)
        if fires:
            waiting.append(partial(self._run, self._fire))
        for run in waiting:
            if self.alive:
                run()

    def begin_late(self, rate: float) -> None:
        """From now on so large a share of the timers that are taken back fires all the same, once, as if its firing had
        stood in the queue of an event loop already."""
        self._late_rate = rate
        self._armed = self._armed_now()

    def end_late(self) -> None:
        """What is taken back stays so."""
        self._late_rate = 0.0
        self._armed = {}

    def begin_forging(self, forger: Forger, rate: float) -> None:
        """From now on so large a share of what it sends has a field that says something else."""
        chance = random.Random(f"{self.world.seed}/{self.life}/{self._env.now}/forge")
        self._network = ForgingTransport(self._network, self._recorder, forger, rate, chance)

    def end_forging(self) -> None:
        """It says what is so."""
        if isinstance(self._network, ForgingTransport):
            self._network = self._network.beneath

    @property
    def forges(self) -> bool:
        """It lies."""
        return isinstance(self._network, ForgingTransport)

    @property
    def is_paused(self) -> bool:
        """It stands still."""
        return self._waiting is not None

    def crash(self) -> None:
        """Die with everything it knew."""
        self.alive = False
        self._waiting = None
        self.world.observe_death(self)

    def heal(self) -> None:
        """Nothing is wrong with it any more."""
        self.end_late()
        self.end_forging()
        if self.is_paused:
            self.world.note("resume", self.node)
            self.resume()

    # -- timers that were taken back ----------------------------------------------------------------------------

    def _fire_late(self) -> None:
        """Those that were armed after the last event, are not now, and were not due."""
        before, self._armed = self._armed, self._armed_now()
        now_ns = self.local_now()
        for timer, deadline in before.items():
            if timer not in self._armed and deadline > now_ns and self._late.random() < self._late_rate:
                self.after(0, partial(self._feed_late, *timer))

    def _feed_late(self, party: str, timer: str, key: str) -> None:
        """Unless the node has ended, or has armed the timer again."""
        node = self.host.nodes.get(party)
        if node is not None and (timer, key) not in node.armed_timers():
            event = node.fsm.timer_registry()[timer](key)
            self.perform(self.host.feed(party, event, self.local_now()), self._env.now)

    def _armed_now(self) -> dict[Armed, int]:
        return {
            (party, timer, key): deadline
            for party, node in self.host.nodes.items()
            for (timer, key), deadline in node.armed_timers().items()
        }

    # -- inside -------------------------------------------------------------------------------------------------

    def _ask(self, party: str, effect: Ask, now_ns: int) -> None:
        self._recorder.ask(now_ns, self.node, party, effect.request, effect.service)
        device = self.world.devices.get(effect.service)
        if device is None:
            known = ", ".join(self.world.devices) or "none"
            rule = f"{party} asks it, and there is no such device ({known}); add a `Fixture` of that name"
            raise ConfigurationError("service", effect.service, rule)
        device.ask(self, party, effect.request, lambda answer: self._run(lambda: self._answer(party, answer)))

    def _answer(self, party: str, answer: Any) -> None:
        self.perform(self.route_answer(party, answer, self.local_now()), self._env.now)

    def _run_due(self, event: Any) -> None:
        self._run(event._value)

    def _run_done(self, event: Any) -> None:
        """The loop has come to it."""
        self._run_now(event._value)

    def run(self, run: Callable[[], None]) -> None:
        """Now, or when it goes on, if it stands still; never, if it is dead."""
        self._run(run)

    def _run(self, run: Callable[[], None]) -> None:
        """Where loops take time for an event, `run` is done when those before it are."""
        if self._event_ns and self.alive:
            now_ns = self._env.now
            self._free_at = max(self._free_at, now_ns) + self._event_ns
            self._env.timeout(self._free_at - now_ns, run).callbacks.append(self._run_done)
        else:
            self._run_now(run)

    def _run_now(self, run: Callable[[], None]) -> None:
        if not self.alive:
            return
        if self._waiting is not None:
            self._waiting.append(partial(self._run, run))
        else:
            run()

    def _rearm(self, now_ns: int) -> None:
        """One wake-up is enough: an earlier deadline makes a new one, a later one is found when the old comes up."""
        deadline = self.host.deadline()
        self.host.moved = False
        if deadline is None or (self._wake_at is not None and self._wake_at <= deadline):
            return
        self._wake_at = deadline
        when = deadline if self.clock is None else self.clock.true(deadline)
        delay = max(when - now_ns, 0)
        self._env.timeout(delay, deadline).callbacks.append(self._wake)

    def _wake(self, event: Any) -> None:
        if self.alive and self._wake_at == event._value:
            self._wake_at = None
            if self._waiting is None:
                self._run(self._fire)
            else:
                self._fires_late = True

    def _fire(self) -> None:
        self.perform(self.host.fire(self.local_now()), self._env.now)
