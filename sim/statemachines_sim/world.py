"""World: one simulated run: a cluster and a nemesis; a safety phase, then a liveness phase.

Everything follows from the scenario, the seed and the fault schedule: the same three give the same run, byte for byte.

    outcome = World(named("storm"), seed=7).run()        # a scenario: faults, healing, goals

    world = World(seed=7)                                # or by hand, for a test
    world.add_device(remote_store(Table(), failed=TableFailed))
    server = world.add("server-1", machine_role("server", SERVER, ServerRecord))
    world.network.rule(drop("ping", nth=3))
    world.run(until_ns=5 * S)                            # a property that breaks raises `Violation`
    world.pause("server-1")
"""

from __future__ import annotations

import random
import traceback
from typing import Any

import msgspec

from statemachines.kernel import GaplessError
from statemachines_sim.clock import rest_collector
from statemachines_sim.cluster import SimCluster, Watch
from statemachines_sim.data_recorder import DataRecorder
from statemachines_sim.fault import Fault
from statemachines_sim.judge import Judge, Violation
from statemachines_sim.nemesis import Nemesis
from statemachines_sim.protocol import NOTHING, Scenario, SimProtocol
from statemachines_sim.recorder import Recorder
from statemachines_sim.schedule import draw
from statemachines_sim.silent_recorder import SilentRecorder
from statemachines_sim.swarm import settle
from statemachines_sim.units import S

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
