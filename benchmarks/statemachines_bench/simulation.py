"""Rows about the simulator: what one message costs from its send to the trace row of its step.

The shape is the same on all sides: so many messages under way at any time, each answered by another when it arrives.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from statemachines_bench.measure import ns_per_event
from statemachines_bench.rally import PLAYER, Ball, PlayerRecord
from statemachines_bench.row import BenchRow, RatioKind, Size, TurnPair

MESSAGES = 100_000
UNDER_WAY = 1_000
DELAY_NS = (1_000_000, 5_000_000)
SEEDS = range(6)


def measure_bare(messages: int) -> float:
    """Nanoseconds a callback of plain SimPy: `timeout(d).callbacks.append(f)`, each followed by the next."""
    import simpy

    env = simpy.Environment()
    delays = draw_delays()
    left = messages

    def arrived(event: object) -> None:
        nonlocal left
        left -= 1
        if left > 0:
            env.timeout(delays[left & 4_095]).callbacks.append(arrived)

    for delay in delays[:UNDER_WAY]:
        env.timeout(delay).callbacks.append(arrived)
    return ns_per_event(lambda: run_until(env, lambda: left <= 0), messages)


def draw_delays() -> list[int]:
    """Delays as the network draws them."""
    chance = random.Random(1)
    return [chance.randrange(*DELAY_NS) for _ in range(4_096)]


def run_until(env: Any, done: Callable[[], bool]) -> None:
    """A few milliseconds of simulated time, again and again; the collector of cycles rests, as in `World.run`."""
    from statemachines_sim.clock import rest_collector

    with rest_collector():
        while not done():
            env.run(until=env.now + DELAY_NS[1])


class Court:
    """Two players in the simulator's own network, processes and recorder, under network faults; the trace is on."""

    def __init__(self) -> None:
        from statemachines_sim import Fault, Net, S, Scenario, World, machine_role
        from statemachines_sim.protocol import NOTHING

        net = Net(delay_ms=(1, 5), tail=0.01, tail_ms=10)
        schedule = tuple(Fault(kind, 0, 10_000 * S, rate=0.001) for kind in ("duplicate", "loss"))
        world = World(Scenario("court", NOTHING, network=net), 1, schedule=schedule, monitors=False)
        role = machine_role("player", PLAYER, PlayerRecord)
        for name in ("east", "west"):
            world.add(name, role)
        world.run(until_ns=1)
        self.env, self.network = world.env, world.network

    def play(self, messages: int) -> float:
        """Nanoseconds a message."""
        for number in range(UNDER_WAY):
            self.network.send("east", "east~1", "west~1", Ball("east~1", "west~1", number), 0)
        network = self.network
        return ns_per_event(lambda: run_until(self.env, lambda: network.sent_count >= messages), messages)


def whole_runs(seeds: range, monitors: bool) -> float:
    """Nanoseconds a packet of whole stormy runs: borrowers, leader, stores, applications, everything."""
    from statemachines_sim.scenario import find_scenario
    from statemachines_sim.world import World

    worlds = [World(find_scenario("storm"), seed, monitors=monitors) for seed in seeds]

    def run() -> None:
        for world in worlds:
            world.run()

    spent = ns_per_event(run, 1)
    return spent / sum(world.network.sent_count for world in worlds)


def prepare_message(size: Size) -> TurnPair:
    messages = messages_of(size)
    return TurnPair(lambda: Court().play(messages), lambda: measure_bare(messages))


def prepare_monitored(size: Size) -> TurnPair:
    seeds = size.pick(SEEDS, range(1))
    return TurnPair(lambda: whole_runs(seeds, True), lambda: whole_runs(seeds, False))


def messages_of(size: Size) -> int:
    """How many are sent; more than are under way at any time."""
    return size.pick(MESSAGES, 2 * UNDER_WAY)


ROWS = (
    BenchRow(
        name="sim-message",
        about="a message: send, network with faults, deliver, step, three trace rows; against one bare SimPy callback",
        unit="ns / message",
        baseline_name="SimPy timeout + callback",
        prepare=prepare_message,
        ratio=RatioKind.OURS_OVER_BASELINE,
        at_most=4,
        aim="3",
    ),
    BenchRow(
        name="sim-monitored",
        about="whole stormy runs with every monitor and invariant on, against the same runs without",
        unit="ns / packet",
        baseline_name="monitors off",
        prepare=prepare_monitored,
        ratio=RatioKind.OURS_OVER_BASELINE,
        at_most=2,
    ),
)
