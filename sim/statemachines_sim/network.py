"""Network: one scheduled callback a message; it delays, reorders, and under faults loses, duplicates and cuts.

Every message draws once from the seed's stream, whatever faults are on, so that leaving a fault out of a schedule
disturbs the rest of the run as little as possible.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
import simpy
from simpy.events import NORMAL

from statemachines.kernel import Message, node_of
from statemachines.shared_subscriptions.configuration import MS
from statemachines_sim.clock import Clock
from statemachines_sim.fault import Fault, S
from statemachines_sim.recorder import Recorder
from statemachines_sim.scenario import Net

if TYPE_CHECKING:
    from statemachines_sim.process import Process

Packet = tuple[str, str, str, Message, int]
"""destination node, sending party, receiving party, message, msg"""

OVERTAKEN_NS = 400 * MS
"""A message that is reordered is at most so much late."""

UNIT = 2**20
"""A draw has three parts of 20 bits: for the delay, for the tail, for the faults."""

DRAWN_AT_ONCE = 1_024


def draws(net: Net, seed: int) -> Iterator[Iterable[tuple[int, int]]]:
    """For message after message its delay in nanoseconds, and a number below `UNIT` that says which fault hits it.

    They are worked out many at a time, by numpy: one by one they would be a tenth of what a message costs.
    """
    chance = random.Random(f"{seed}/network")
    low, high = (bound * MS for bound in net.delay_ms)
    while True:
        words = np.frombuffer(chance.randbytes(8 * DRAWN_AT_ONCE), "<u8")
        bits = words & 0xFFFFFFFF | words >> 36 << 32  # what `getrandbits(60)` gives
        first, second, third = bits & UNIT - 1, bits >> 20 & UNIT - 1, bits >> 40
        delay = low + (first * (high - low) >> 20)
        held_back = np.where(second < int(net.tail * UNIT), first * (net.tail_ms * MS) >> 20, 0)
        yield zip((delay + held_back).tolist(), third.tolist(), strict=True)


class Arrival(simpy.Timeout):
    """A packet arrives.  When it has, the same object is scheduled for another packet: to make a timeout for each costs
    a third of all that SimPy takes for it."""

    packet: Packet


class Network:
    """Between `processes`, by node; a packet for a node that is not there, or dead, is dropped."""

    def __init__(self, env: Clock, net: Net, seed: int, recorder: Recorder, processes: dict[str, Process]) -> None:
        self._env = env
        self._recorder = recorder
        self._keep = recorder.note
        self._processes = processes
        self._callbacks: list[Callable[[Any], None]] = [self._arrive]
        self._spent: list[Arrival] = []
        self._draws = chain.from_iterable(draws(net, seed))
        self._counts: dict[str, int] = {}
        self._nodes: dict[str, str] = {}
        self._faults: list[Fault] = []
        self._reach = 0
        self.cuts: dict[tuple[str, str], int] = {}
        self.sent = 0
        self.dropped = 0

    def attach(self, node: str, number: int) -> None:
        """A process starts: its messages are numbered from `number` << 40."""
        self._counts[node] = number << 40

    def begin(self, fault: Fault) -> None:
        """From now on a share `fault.rate` of the messages is hit."""
        self._set([*self._faults, fault])

    def end(self, fault: Fault) -> None:
        """No more."""
        self._set([one for one in self._faults if one is not fault])

    def heal(self) -> None:
        """No faults and no cuts."""
        self._set([])
        self.cuts.clear()

    def send(self, node: str, party: str, to: str, message: Message, now_ns: int) -> None:
        """From `party` on `node` to the party `to`, now."""
        msg = self._counts[node]
        self._counts[node] = msg + 1
        self.sent += 1
        self._keep(("send", now_ns, node, party, to, msg, message))
        dest = self._nodes.get(to)
        if dest is None:
            dest = self._nodes[to] = node_of(to)
        packet = (dest, party, to, message, msg)
        delay, share = next(self._draws)
        delays: tuple[int, ...] = (delay,)
        if self.cuts and (node, dest) in self.cuts:
            self.drop(packet)
            return
        if share < self._reach:
            delays = self._hit(packet, delay, share / UNIT)
        for delay in delays:
            if self._spent:
                arrival = self._spent.pop()
                self._env.schedule(arrival, NORMAL, delay)
            else:
                arrival = Arrival(self._env, delay)
            arrival.packet = packet
            arrival.callbacks = self._callbacks  # SimPy reads the list and lets go of it

    def in_flight(self) -> set[tuple[str, str]]:
        """(sender, receiver) of all messages that are on their way: looked up in what is scheduled, so that sending
        need not keep count."""
        packets = (event.packet for *_, event in self._env._queue if isinstance(event, Arrival))
        return {(packet[1], packet[2]) for packet in packets}

    def drop(self, packet: Packet) -> None:
        """The message never arrives."""
        self.dropped += 1
        self._note("drop", packet)

    def _set(self, faults: list[Fault]) -> None:
        self._faults = faults
        self._reach = int(max((fault.rate for fault in faults), default=0.0) * UNIT)

    def _hit(self, packet: Packet, delay: int, chance: float) -> tuple[int, ...]:
        """The first fault whose share the message falls into hits it: after what delays it arrives."""
        for fault in self._faults:
            if chance >= fault.rate:
                continue
            hit = chance / fault.rate
            if fault.kind == "loss":
                self.drop(packet)
                return ()
            if fault.kind == "duplicate":
                self._note("duplicate", packet)
                return (delay + int(hit * 3 * S), delay)
            if fault.kind == "reorder":
                return (delay + int(hit * OVERTAKEN_NS),)
            return (delay + int(hit**3 * 10 * S),)
        return (delay,)

    def _arrive(self, arrival: Arrival) -> None:
        packet = arrival.packet
        self._spent.append(arrival)
        process = self._processes.get(packet[0])
        if process is None or not process.alive:
            self.drop(packet)
        else:
            process.receive(packet)

    def _note(self, kind: str, packet: Packet) -> None:
        _, party, to, message, msg = packet
        self._recorder.message(kind, self._env.now, node_of(party), party, to, msg, message)
