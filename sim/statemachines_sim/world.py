"""World: one simulated run: a cluster and a nemesis; a safety phase, then a liveness phase.

Everything follows from the scenario, the seed and the fault schedule: the same three give the same run, byte for byte.

    outcome = World(named("storm"), seed=7).run()        # a scenario: faults, healing, goals

    world = World(seed=7)                                # or by hand, for a test
    world.add_device(remote_store(Table(), failed=TableFailed))
    server = world.add("server-1", machine_role("server", SERVER, ServerRecord))
    world.network.rule(drop("ping", nth=3))
    world.run(until_ns=5 * S)                            # a property that breaks raises `Violation`
    world.pause("server-1")

Data recorder: a recorder whose rows have all that a replay needs: events, local times, records.

Silent recorder: a recorder that makes no rows, for runs of which only the outcome counts; monitors hear
everything.

Nemesis: carries out a fault schedule, a SimPy process for each fault, and heals everything at the end of the safety
phase.
"""

from __future__ import annotations

import random
import traceback
from collections.abc import Generator, Mapping
from typing import Any

import msgspec

from statemachines.kernel import Event, GaplessError, Message, Node, Step
from statemachines.trace.row import record_row, step_rows, with_local_time
from statemachines_sim.clock import rest_collector
from statemachines_sim.cluster import SimCluster, Watch
from statemachines_sim.fault import Fault
from statemachines_sim.faults.kind import FaultKind
from statemachines_sim.judge import Judge, Violation
from statemachines_sim.protocol import NOTHING, Scenario, SimProtocol
from statemachines_sim.recorder import Entry, Recorder
from statemachines_sim.run_observer import RunObserver
from statemachines_sim.schedule import draw
from statemachines_sim.swarm import settle
from statemachines_sim.units import S


class DataRecorder(Recorder):
    """In place of `Recorder`: each machine's record is in the trace after its first step, and at the end."""

    def __init__(self, monitors: RunObserver | None) -> None:
        super().__init__(monitors, data=True)
        self._nodes: dict[str, Node[Any]] = {}

    def step(self, node: Node[Any], event: Event, before: Any, step: Step[Any], now_ns: int) -> None:
        """The observer of every node."""
        true_ns = now_ns if self.true_clock is None else self.true_clock.now
        own, *children = step_rows(node, event, before, step, true_ns, self.msg, True)
        self.note(own if true_ns == now_ns else with_local_time(own, now_ns))
        for row in children:
            self.note(row)
        if self._nodes.get(node.name) is not node:
            self._nodes[node.name] = node
            self.note(record_row(true_ns, node, "first"))
        if self._monitors is not None:
            self._monitors.step(node, event, before, step, true_ns)

    def end(self, now_ns: int) -> None:
        """The run is over."""
        for _, node in sorted(self._nodes.items()):
            self.note(record_row(now_ns, node, "last"))
        self._nodes.clear()


class SilentRecorder(Recorder):
    """In place of `Recorder`: `rows` stays empty."""

    def __init__(self, monitors: RunObserver | None, data: bool = False) -> None:
        super().__init__(monitors, data)
        self.note = self.note_parts = _let_go

    def step(self, node: Node[Any], event: Event, before: Any, step: Step[Any], now_ns: int) -> None:
        """Monitors only."""
        if self.true_clock is not None:
            now_ns = self.true_clock.now
        if self._watch_step is not None:
            self._watch_step(node, event, before, step, now_ns)

    def message(self, kind: str, now_ns: int, node: str, instance: str, peer: str, msg: int, message: Message) -> None:
        """No row."""

    def tell(self, now_ns: int, node: str, instance: str, machine: str, event: Event) -> None:
        """No row."""

    def ask(self, now_ns: int, node: str, instance: str, request: Any, service: str) -> None:
        """No row."""

    def fault(self, now_ns: int, node: str, fault: str, peer: str = "", **details: object) -> None:
        """Monitors only."""
        if self._monitors is not None:
            self._monitors.fault(fault, node, now_ns)


def _let_go(entry: Entry) -> None:
    """Nothing is kept."""


class Nemesis:
    """`done` counts the faults that took effect, by kind."""

    def __init__(self, world: SimCluster, kinds: Mapping[str, FaultKind], schedule: tuple[Fault, ...]) -> None:
        self._world = world
        self._kinds = kinds
        self._healed = False
        self.done: dict[str, int] = {}
        for fault in schedule:
            kind = self._kinds[fault.kind]
            kind.prepare(world, fault)
            if kind.from_start:
                self._begin_now(fault)  # no process has started
            else:
                world.env.process(self._carry_out(fault))

    def heal(self) -> None:
        """No more faults but those that last; what is down comes back, what stands still goes on, every other wire is
        whole, every clock runs at its true rate."""
        self._healed = True
        world = self._world
        world.network.heal()
        for device in world.devices.values():
            device.heal()
        world.note("heal", "")
        world.clocks.heal()
        for node in sorted(world.earlier_lives):
            world.note("end_twin", node)
            world.supersede(node)
        for node in world.dead:
            world.revive(node)
        for node in sorted(world.processes):
            world.processes[node].heal()

    def _carry_out(self, fault: Fault) -> Generator[Any]:
        """One fault: it begins at its time and ends after it, unless all is healed before."""
        env, kind = self._world.env, self._kinds[fault.kind]
        yield env.timeout(fault.at_ns)
        if self._healed or not self._begin_now(fault) or kind.lasting:
            return
        yield env.timeout(fault.for_ns)
        if not self._healed:
            kind.end(self._world, fault)

    def _begin_now(self, fault: Fault) -> bool:
        if not self._kinds[fault.kind].begin(self._world, fault):
            return False
        self.done[fault.kind] = self.done.get(fault.kind, 0) + 1
        return True


TICK = S // 4
"""How often the liveness phase looks whether it is done."""


class RunOutcome(msgspec.Struct, frozen=True):
    """What a run came to.  `monitor` and `detail`: the property that broke ("" = everything held).

    `tally`: what the watch counted; `sent`, `dropped` count packets; `faults` by kind; `lasted_ns` of simulated time;
    `noted`: how often a property that the scenario puts out of scope was broken.
    """

    scenario: str
    seed: int
    monitor: str
    detail: str
    tally: dict[str, int]
    sent: int
    dropped: int
    faults: dict[str, int]
    lasted_ns: int
    rows: int
    noted: dict[str, int] = {}

    @property
    def is_held(self) -> bool:
        """Every property held."""
        return not self.monitor


class World(SimCluster):
    """`of`: a scenario, a protocol with its section `own`, or nothing: a world by hand.

    `rows` is the trace (empty without `trace`).  `schedule`: another than the seed draws; `monitors`: whether what
    breaks is looked for; `data`: fill the trace's data column.
    """

    scenario: Scenario

    def __init__(
        self,
        of: Scenario | SimProtocol[Any] | None = None,
        seed: int = 0,
        *,
        own: msgspec.Struct | None = None,
        schedule: tuple[Fault, ...] | None = None,
        monitors: bool = True,
        data: bool = False,
        trace: bool = True,
    ) -> None:
        scenario = of if isinstance(of, Scenario) else Scenario("by hand", of or NOTHING, own)
        self.schedule = draw(scenario, seed) if schedule is None else schedule
        scenario = settle(scenario, seed)
        cast = scenario.sim.cast(scenario.own)
        watch: Watch = scenario.sim.watch(scenario.own, Judge(scenario.out_of_scope, judging=monitors))
        watch.judging = monitors
        heard = watch if monitors or watch.always_hears else None
        recorder = SilentRecorder(heard) if not trace else DataRecorder(heard) if data else Recorder(heard)
        super().__init__(scenario, seed, cast, watch, recorder, monitors)
        for fixture in scenario.sim.devices(scenario.own):
            self.add_device(fixture)
        self.nemesis = Nemesis(self, scenario.kinds, self.schedule)
        self.watch.begin(self)
        for role in cast:
            self.add_role(role)
        scenario.sim.play(scenario.own, self, random.Random(f"{seed}/load"))

    # -- running ------------------------------------------------------------------------------------------------

    def run(self, until_ns: int | None = None) -> RunOutcome:
        """Both phases, until every goal is reached; what breaks, or any error, is the outcome.

        With `until_ns` time only passes until then, and what breaks is raised: for tests that go step by step.
        """
        if until_ns is not None:
            self.env.run(until=until_ns)
            return self._outcome("", "")
        monitor = detail = ""
        try:
            with rest_collector():
                self.env.run(until=int(self.scenario.phases.safety_s * S))
                self.nemesis.heal()
                self.finish()
        except Violation as violation:
            monitor, detail = violation.monitor, violation.detail
        except GaplessError as error:
            monitor, detail = type(error).__name__, str(error)
        except Exception as error:  # a bug of ours is a result, with its place, not the end of a campaign
            where = traceback.extract_tb(error.__traceback__)[-1]
            monitor, detail = type(error).__name__, f"{error} ({where.filename.rpartition('/')[2]}:{where.lineno})"
        self.recorder.end(self.now)
        return self._outcome(monitor, detail)

    def finish(self) -> None:
        """Time passes until every goal of the watch is reached; raises `Violation` when the time is up."""
        end = self.now + int(self.scenario.phases.liveness_s * S)
        while (missing := self.watch.missing(self)) is not None:
            if self.now >= end:
                raise Violation(*missing)
            self.env.run(until=self.now + TICK)
        self.check()

    def check(self) -> None:
        """Every invariant of every machine, in full."""
        for _, process in sorted(self.processes.items()):
            if process.alive:
                for _, node in sorted(process.host.nodes.items()):
                    node.check()

    # -- inside -------------------------------------------------------------------------------------------------

    def _outcome(self, monitor: str, detail: str) -> RunOutcome:
        return RunOutcome(
            self.scenario.name,
            self.seed,
            monitor,
            detail,
            self.watch.tally(),
            self.network.sent_count,
            self.network.dropped,
            dict(sorted(self.nemesis.done.items())),
            self.now,
            self.recorder.count,
            dict(sorted(self.watch.judge.noted.items())),
        )
