"""Network: one scheduled callback a message; it delays, reorders, and under faults loses, duplicates and cuts.

Every message draws the same number of random values whatever faults are on, so that leaving a fault out of a schedule
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
from statemachines_sim.recorder import Recorder
from statemachines_sim.scenario import Net

Packet = tuple[str, str, str, Message, int]
"""destination node, sending party, receiving party, message, msg"""


class Network:
    """`deliver(packet)` is called when a packet arrives."""

    def __init__(self, env: Clock, net: Net, seed: int, recorder: Recorder, deliver: Callable[[Packet], None]) -> None:
        self._env = env
        self._recorder = recorder
        self._deliver = deliver
        self._random = random.Random(f"{seed}/network").random
        low, high = net.delay_ms
        self._base = low * MS
        self._spread = (high - low) * MS
        self._tail = net.tail
        self._tail_ns = net.tail_ms * MS
        self._counts: dict[str, int] = {}
        self.cuts: dict[tuple[str, str], int] = {}
        self.faults: list[Fault] = []
        self.sent = 0
        self.dropped = 0

    def attach(self, node: str, number: int) -> None:
        """A process starts: its messages are numbered from `number` << 40."""
        self._counts[node] = number << 40

    def send(self, node: str, party: str, to: str, message: Message) -> None:
        """From `party` on `node` to the party `to`."""
        now = self._env.now
        msg = self._counts[node]
        self._counts[node] = msg + 1
        self.sent += 1
        self._recorder.message("send", now, node, party, message, to, msg)
        draw = self._random
        first, second = draw(), draw()
        delay = self._base + int(first * self._spread)
        if second < self._tail:
            delay += int(first * self._tail_ns)
        dest = node_of(to)
        packet = (dest, party, to, message, msg)
        if self.cuts and (node, dest) in self.cuts:
            self.drop(packet)
        elif self.faults:
            self._send_faulty(packet, delay, draw())
        else:
            self._env.timeout(delay, packet).callbacks.append(self._arrive)

    def _send_faulty(self, packet: Packet, delay: int, chance: float) -> None:
        """The first fault whose share the message falls into hits it."""
        for fault in self.faults:
            if chance >= fault.rate:
                continue
            hit = chance / fault.rate
            if fault.kind == "loss":
                self.drop(packet)
                return
            if fault.kind == "duplicate":
                self._note("duplicate", packet)
                self._schedule(packet, delay + int(hit * 3 * S))
            else:
                delay += int(hit**3 * 10 * S)
            break
        self._schedule(packet, delay)

    def _schedule(self, packet: Packet, delay: int) -> None:
        self._env.timeout(delay, packet).callbacks.append(self._arrive)

    def _arrive(self, event: Any) -> None:
        self._deliver(event._value)

    def drop(self, packet: Packet) -> None:
        """The message never arrives."""
        self.dropped += 1
        self._note("drop", packet)

    def _note(self, kind: str, packet: Packet) -> None:
        _, party, to, message, msg = packet
        self._recorder.message(kind, self._env.now, node_of(party), party, message, to, msg)
