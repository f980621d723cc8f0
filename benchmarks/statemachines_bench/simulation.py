"""Rows about the simulator: what one message costs from its send to the trace row of its step.

The shape is the same on both sides: so many messages under way at any time, each followed by another when it arrives.
"""

from __future__ import annotations

import random
from typing import Any

from statemachines_bench.measure import ns_per_event
from statemachines_bench.rally import PLAYER, Ball, PlayerRecord

MESSAGES = 100_000
UNDER_WAY = 1_000
DELAY_NS = (1_000_000, 5_000_000)


def bare() -> float:
    """Nanoseconds a callback of plain SimPy: `timeout(d).callbacks.append(f)`, each followed by the next."""
    import simpy

    env = simpy.Environment()
    chance = random.Random(1)
    delays = [chance.randrange(*DELAY_NS) for _ in range(4_096)]
    left = MESSAGES

    def arrived(event: object) -> None:
        nonlocal left
        left -= 1
        if left > 0:
            env.timeout(delays[left & 4_095]).callbacks.append(arrived)

    for delay in delays[:UNDER_WAY]:
        env.timeout(delay).callbacks.append(arrived)
    return ns_per_event(lambda: run_until(env, lambda: left <= 0), MESSAGES)


def run_until(env: Any, done: Any) -> None:
    """A thousand events at a time."""
    while not done():
        for _ in range(1_000):
            if env.peek() == float("inf"):
                return
            env.step()


class Court:
    """A world of players and nothing else: the simulator's network, processes and recorder, under network faults."""

    def __init__(self) -> None:
        from statemachines_sim.clock import Clock
        from statemachines_sim.fault import Fault, S
        from statemachines_sim.network import Network
        from statemachines_sim.recorder import Recorder
        from statemachines_sim.scenario import Net

        self.env = Clock()
        self.recorder = Recorder(None)
        net = Net(delay_ms=(1, 5), tail=0.01, tail_ms=10)
        self.network = Network(self.env, net, 1, self.recorder, self.arrive)
        self.network.faults = [Fault("loss", 0, S, rate=0.001), Fault("duplicate", 0, S, rate=0.001)]
        self.processes = {name: player(self, name, number) for number, name in enumerate(("east", "west"), 1)}

    def arrive(self, packet: Any) -> None:
        dest, party, to, message, msg = packet
        self.processes[dest].receive(party, to, message, msg)

    def play(self) -> float:
        """Nanoseconds a message."""
        for number in range(UNDER_WAY):
            self.network.send("east", "east~1", "west~1", Ball("east~1", "west~1", number))
        network = self.network
        return ns_per_event(lambda: run_until(self.env, lambda: network.sent >= MESSAGES), MESSAGES)


def player(court: Court, name: str, number: int) -> Any:
    """A process with one player."""
    from statemachines.kernel import Host, Node
    from statemachines_sim.process import Process

    class Player(Process):
        def handle(self, sender: str, to: str, message: Any) -> Any:
            return self.host.feed(to, message, self._env.now)

    process = Player(court, name, 1)  # type: ignore[arg-type]
    process.host = Host()
    process.host.add(
        Node(PLAYER, PlayerRecord(process.life), name=process.life, now_ns=0, observe=court.recorder.step)
    )
    court.network.attach(name, number)
    return process
