"""Network: one scheduled callback a message; it delays, reorders, and under faults loses, duplicates and cuts.

Every message draws once from the seed's stream, whatever faults are on, so that leaving a fault out of a schedule
disturbs the rest of the run as little as possible.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from statemachines.kernel import Message, node_of
from statemachines.shared_subscriptions.configuration import MS
from statemachines_sim.clock import Clock
from statemachines_sim.fault import Fault, S
from statemachines_sim.recorder import Recorder, Tail
from statemachines_sim.scenario import Net

Packet = tuple[str, str, str, Message, int, str, Tail]
"""destination node, sending party, receiving party, message, msg, name and tail of its rows"""

OVERTAKEN_NS = 400 * MS
"""A message that is reordered is at most so much late."""

UNIT = 2**20
"""A draw has three parts of 20 bits: for the delay, for the tail, for the faults."""


class Network:
    """`deliver(event)` is called when a packet arrives: the packet is the event's value."""

    def __init__(self, env: Clock, net: Net, seed: int, recorder: Recorder, deliver: Callable[[Any], None]) -> None:
        self._env = env
        self._recorder = recorder
        self._deliver = deliver
        self._bits = random.Random(f"{seed}/network").getrandbits
        low, high = net.delay_ms
        self._base = low * MS
        self._spread = (high - low) * MS
        self._tail = int(net.tail * UNIT)
        self._tail_ns = net.tail_ms * MS
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
        env = self._env
        msg = self._counts[node]
        self._counts[node] = msg + 1
        self.sent += 1
        name, tail = self._recorder.sent(now_ns, node, party, message, to, msg)
        dest = self._nodes.get(to)
        if dest is None:
            dest = self._nodes[to] = node_of(to)
        packet = (dest, party, to, message, msg, name, tail)
        bits = self._bits(60)
        delay = self._base + ((bits & 0xFFFFF) * self._spread >> 20)
        if (bits >> 20 & 0xFFFFF) < self._tail:
            delay += (bits & 0xFFFFF) * self._tail_ns >> 20
        if self.cuts and (node, dest) in self.cuts:
            self.drop(packet)
        elif bits >> 40 < self._reach:
            self._send_faulty(packet, delay, (bits >> 40) / UNIT)
        else:
            env.timeout(delay, packet).callbacks.append(self._deliver)

    def in_flight(self) -> set[tuple[str, str]]:
        """(sender, receiver) of all messages that are on their way: looked up in what is scheduled, so that sending
        need not keep count."""
        packets = (event._value for *_, event in self._env._queue if self._deliver in (event.callbacks or ()))
        return {(packet[1], packet[2]) for packet in packets}

    def drop(self, packet: Packet) -> None:
        """The message never arrives."""
        self.dropped += 1
        self._note("drop", packet)

    def _set(self, faults: list[Fault]) -> None:
        self._faults = faults
        self._reach = int(max((fault.rate for fault in faults), default=0.0) * UNIT)

    def _send_faulty(self, packet: Packet, delay: int, chance: float) -> None:
        """The first fault whose share the message falls into hits it."""
        for fault in self._faults:
            if chance >= fault.rate:
                continue
            hit = chance / fault.rate
            if fault.kind == "loss":
                self.drop(packet)
                return
            if fault.kind == "duplicate":
                self._note("duplicate", packet)
                self._schedule(packet, delay + int(hit * 3 * S))
            elif fault.kind == "reorder":
                delay += int(hit * OVERTAKEN_NS)
            else:
                delay += int(hit**3 * 10 * S)
            break
        self._schedule(packet, delay)

    def _schedule(self, packet: Packet, delay: int) -> None:
        self._env.timeout(delay, packet).callbacks.append(self._deliver)

    def _note(self, kind: str, packet: Packet) -> None:
        _, party, to, _, msg, name, tail = packet
        self._recorder.message(kind, self._env.now, node_of(party), party, name, to, msg, tail)
