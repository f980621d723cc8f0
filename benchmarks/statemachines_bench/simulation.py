"""Rows about the simulator: what one message costs from its send to the trace row of its step, what a trace costs, and
what a second process gains.

In `sim-message` the shape is the same on all sides: so many messages under way at any time, each answered by another
when it arrives.  The runs of the other rows are stormy ones, with every monitor on.
"""

from __future__ import annotations

import multiprocessing
import random
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import cache, partial
from pathlib import Path
from time import perf_counter
from typing import Any, Final

import msgspec
import pyarrow.compute as pc
import pyarrow.parquet as pq
import simpy
from msgspec.structs import replace

from statemachines.kernel import STAY, Effects, Fsm, Message, Row, Send, Status
from statemachines.trace.parquet import TraceWriter
from statemachines_bench.harness import compare, open_folder
from statemachines_bench.measure import ns_per_event
from statemachines_bench.row import BenchRow, RatioKind, Size, TurnPair
from statemachines_sim import Fault, Net, S, Scenario, World, machine_role
from statemachines_sim.campaign import campaign, run_row
from statemachines_sim.clock import rest_collector
from statemachines_sim.protocol import NOTHING
from statemachines_sim.scenario import find_scenario

MESSAGES = 100_000
UNDER_WAY = 1_000
DELAY_NS = (1_000_000, 5_000_000)
SEEDS = range(6)
STEP_BYTES: Final = 10.0
"""The room that a step may take, everything else of its run included."""

CAMPAIGN_SEEDS: Final = 80
"""Four jobs of a campaign, two for each process: enough that their start weighs little."""

TURNS: Final = 100_000_000
"""Turns of the empty loop: some seconds."""

PROCESSES: Final = 2


class Ball(Message, frozen=True, gc=False):
    """To `to`, from `sender`: hit number `n`."""

    sender: str
    to: str
    n: int


class PlayerStatus(Status):
    """It plays."""

    PLAYING = "playing"


(PLAYING,) = PlayerStatus


class PlayerRecord(msgspec.Struct, frozen=True):
    """How many balls it has hit."""

    id: str
    hits: int = 0
    status: PlayerStatus = PLAYING


def hit(record: PlayerRecord, event: Ball, now_ns: int) -> tuple[PlayerRecord, Effects]:
    back = Send(event.sender, Ball(record.id, event.sender, event.n + 1))
    return replace(record, hits=record.hits + 1), (back,)


PLAYER = Fsm(
    "player",
    record=PlayerRecord,
    states=PlayerStatus,
    initial=PLAYING,
    rows=(Row(Ball, PLAYING, STAY, hit, None, "bench"),),
)


def measure_bare(messages: int) -> float:
    """Nanoseconds a callback of plain SimPy: `timeout(d).callbacks.append(f)`, each followed by the next."""
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
    with rest_collector():
        while not done():
            env.run(until=env.now + DELAY_NS[1])


class Court:
    """Two players in the simulator's own network, processes and recorder, under network faults; the trace is on."""

    def __init__(self) -> None:
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


def whole_runs(monitors: bool, seeds: range) -> float:
    """Nanoseconds a packet of whole stormy runs: borrowers, leader, stores, applications, everything."""
    worlds = [World(find_scenario("storm"), seed, monitors=monitors) for seed in seeds]

    def run() -> None:
        for world in worlds:
            world.run()

    spent = ns_per_event(run, 1)
    return spent / sum(world.network.sent_count for world in worlds)


# -- traces ---------------------------------------------------------------------------------------------------------


def measure_runs(traced: bool, seeds: range) -> float:
    """Milliseconds a run: without a row, or with its trace written as Parquet."""
    scenario = find_scenario("storm")

    def write(folder: Path) -> None:
        with TraceWriter(folder, "storm") as writer:
            for number, seed in enumerate(seeds):
                world = World(scenario, seed)
                writer.add(run_row(scenario, world.run(), number), world.rows)

    def run() -> None:
        for seed in seeds:
            World(scenario, seed, trace=False).run()

    with open_folder() as folder:
        return ns_per_event(partial(write, folder) if traced else run, len(seeds)) / 1e6


@cache
def bytes_per_step(seeds: range) -> float:
    """Bytes of the trace files of a stormy campaign, over its steps: the same each time, so found once."""
    with open_folder() as folder:
        campaign(find_scenario("storm"), seeds, out=folder, processes=1)
        room = steps = 0
        for path in folder.glob("trace-*.parquet"):
            room += path.stat().st_size
            column = pq.read_table(path, columns=["kind"]).column("kind").cast("string")
            kinds = {str(one["values"]): one["counts"] for one in pc.value_counts(column).to_pylist()}
            steps += kinds["step"] + kinds["timer"]
    return room / steps


# -- two processes --------------------------------------------------------------------------------------------------


class Gains:
    """How many times sooner two processes are done than one: `campaign`, their start included; `loop`, an empty one in
    processes that run already.  Both are found together, in turns."""

    def __init__(self, size: Size) -> None:
        self._loop = 1.0
        self._seeds, self._turns = size.pick((CAMPAIGN_SEEDS, TURNS), (2, 1_000))

    def campaign(self) -> float:
        """Measure both; the gain of the campaign."""
        spent: list[tuple[float, float]] = []
        with ProcessPoolExecutor(PROCESSES, mp_context=multiprocessing.get_context("spawn")) as pool:
            list(pool.map(spin, [1_000_000] * PROCESSES))
            for processes in (1, PROCESSES):
                shares = [self._turns // processes] * processes
                loop = measure_seconds(lambda shares=shares: list(pool.map(spin, shares)))  # type: ignore[misc]
                spent.append((loop, measure_seconds(lambda processes=processes: run_campaign(self._seeds, processes))))  # type: ignore[misc]
        alone, together = spent
        self._loop = alone[0] / together[0]
        return alone[1] / together[1]

    def loop(self) -> float:
        """The gain of the loop in the same turns."""
        return self._loop


def run_campaign(seeds: int, processes: int) -> None:
    """A campaign, as `gapless campaign` runs it."""
    campaign(find_scenario("storm"), range(seeds), processes=processes)


def measure_seconds(work: Callable[[], object]) -> float:
    """How long it takes."""
    began = perf_counter()
    work()
    return perf_counter() - began


def spin(turns: int) -> None:
    """An empty loop."""
    for _ in range(turns):
        pass


def prepare_campaign(size: Size) -> TurnPair:
    """Ours measures both."""
    gains = Gains(size)
    return TurnPair(gains.campaign, gains.loop)


ROWS = (
    BenchRow(
        name="sim-message",
        about="a message: send, network with faults, deliver, step, three trace rows; against one bare SimPy callback",
        unit="ns / message",
        baseline_name="SimPy timeout + callback",
        prepare=compare(lambda messages: Court().play(messages), measure_bare, (MESSAGES,), (2 * UNDER_WAY,)),
        ratio=RatioKind.OURS_OVER_BASELINE,
        at_most=4,
        aim="3",
    ),
    BenchRow(
        name="sim-monitored",
        about="whole stormy runs with every monitor and invariant on, against the same runs without",
        unit="ns / packet",
        baseline_name="monitors off",
        prepare=compare(partial(whole_runs, True), partial(whole_runs, False), (SEEDS,), (range(1),)),
        ratio=RatioKind.OURS_OVER_BASELINE,
        at_most=2,
    ),
    BenchRow(
        name="trace-cost",
        about="whole stormy runs with their trace made and written as Parquet, against the same runs without a row",
        unit="ms / run",
        baseline_name="no trace",
        prepare=compare(partial(measure_runs, True), partial(measure_runs, False), (range(3),), (range(1),)),
        ratio=RatioKind.OURS_OVER_BASELINE,
        at_most=1.4,
    ),
    BenchRow(
        name="trace-size",
        about="the trace files of 20 stormy runs, without data, sends and everything else included",
        unit="bytes / step",
        baseline_name=f"{STEP_BYTES:g} bytes",
        prepare=compare(bytes_per_step, lambda seeds: STEP_BYTES, (range(20),), (range(1),)),
        ratio=RatioKind.OURS_OVER_BASELINE,
        at_most=1.0,
    ),
    BenchRow(
        name="campaign-scale",
        about=f"a campaign of {CAMPAIGN_SEEDS} stormy runs on two processes against one; beside it two empty loops "
        "against one",
        unit="times sooner",
        baseline_name="two empty loops",
        prepare=prepare_campaign,
        ratio=RatioKind.OURS_OVER_BASELINE,
        at_least=0.9,
        aim="2",
    ),
)
