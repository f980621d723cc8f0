"""What cursor recovery says to the simulator: who takes part, the memory they share, what may go wrong, who judges."""

from __future__ import annotations

from statemachines_sim.cluster import Fixture, Role, SimCluster, Tolerance, Watch
from statemachines_sim.cursor_recovery.faults import FAULTS
from statemachines_sim.cursor_recovery.queue_memory import queue_memory
from statemachines_sim.cursor_recovery.queue_process import QueueReader, QueueWriter
from statemachines_sim.cursor_recovery.section import QueueSection, check
from statemachines_sim.cursor_recovery.watch import JUDGED, QueueWatch
from statemachines_sim.judge import Judge
from statemachines_sim.node_life import NodeLife
from statemachines_sim.protocol import SimProtocol
from statemachines_sim.scenario import Scenario
from statemachines_sim.units import S

OF_PROCESSES = ("crash", "cut", "pause", "long_pause", "drift", "jump", "apart_clock")
"""No timers, no messages: neither late ones nor partitions hit anybody."""


class QueueSim(SimProtocol[QueueSection]):
    """The value of the registration."""

    name = "cursor_recovery"
    section = QueueSection
    properties = JUDGED
    faults = FAULTS
    scenarios = "statemachines_sim:scenarios/cursor_recovery"

    def check(self, own: QueueSection, scenario: Scenario) -> None:
        check(own, scenario)

    def cast(self, own: QueueSection) -> tuple[Role, ...]:
        """A clock that leaps ahead makes its process's cursors look young, and those of others old."""

        def writer(world: SimCluster, node: str, number: int) -> NodeLife:
            return QueueWriter(world, node, number, own)

        def reader(world: SimCluster, node: str, number: int) -> NodeLife:
            return QueueReader(world, node, number, own)

        clock = Tolerance(drift_ppm=100_000, jump_ns=5 * S)
        return (
            Role("writer", writer, own.writers, faults=OF_PROCESSES, clock=clock),
            Role("reader", reader, own.readers, faults=OF_PROCESSES, clock=clock),
        )

    def devices(self, own: QueueSection) -> tuple[Fixture, ...]:
        return (queue_memory(own),)

    def longest_ns(self, own: QueueSection) -> int:
        """After the threshold a cursor is aged."""
        return own.queue.threshold_ns

    def watch(self, own: QueueSection, judge: Judge) -> Watch:
        return QueueWatch(own, judge)


SIM = QueueSim()
