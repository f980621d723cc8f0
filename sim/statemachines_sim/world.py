"""World: one simulated run: processes, devices, a network, a nemesis, a watch; a safety phase, then a liveness phase.

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
from collections.abc import Callable
from typing import Any

import msgspec

from statemachines.kernel import ConfigurationError, GaplessError
from statemachines.trace import TraceRow
from statemachines_sim.clock import Clock, rest_collector
from statemachines_sim.clocks import Clocks
from statemachines_sim.data_recorder import DataRecorder
from statemachines_sim.fault import Fault, draw
from statemachines_sim.judge import Judge, Violation
from statemachines_sim.nemesis import Nemesis
from statemachines_sim.network import Network
from statemachines_sim.node_life import NodeLife
from statemachines_sim.protocol import NOTHING, Device, Fixture, Role, SimProtocol, Watch
from statemachines_sim.recorder import Recorder
from statemachines_sim.scenario import Scenario
from statemachines_sim.silent_recorder import Silent
from statemachines_sim.swarm import settle
from statemachines_sim.units import S

TICK = S // 4
"""How often the liveness phase looks whether it is done."""


class Outcome(msgspec.Struct, frozen=True):
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


class World:
    """`of`: a scenario, a protocol with its section `own`, or nothing: a world by hand.

    `rows` is the trace (empty without `trace`); `bits`: of chance, in the life of a node (0: none).  `schedule`:
    another than the seed draws; `monitors`: whether what breaks is looked for (`judging`; `watching`: whether the watch
    hears of what happens all the same); `data`: fill the trace's data column.
    """

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
        self.scenario = scenario = settle(scenario, seed)
        self.seed = seed
        self.env = Clock()
        self.judging = monitors
        self.watch: Watch = scenario.sim.watch(scenario.own, Judge(scenario.out_of_scope, judging=monitors))
        self.watch.judging = monitors
        self.watching = monitors or self.watch.always_hears
        heard = self.watch if self.watching else None
        self.recorder = Silent(heard) if not trace else DataRecorder(heard) if data else Recorder(heard)
        self.processes: dict[str, NodeLife] = {}
        self.devices: dict[str, Device] = {}
        self.fixtures: dict[str, Fixture] = {}
        self.clocks = Clocks(self)
        self.network = Network(self.env, scenario.network, seed, self.recorder, self.processes)
        self._roles: dict[str, Role] = {}
        self._lives: dict[str, int] = {}
        self.bits: dict[str, int] = {}
        self._numbers = 0
        self._buried: list[str] = []
        for fixture in scenario.sim.devices(scenario.own):
            self.add_device(fixture)
        self.nemesis = Nemesis(self, self.schedule)
        self.watch.begin(self)
        self.populate()

    def populate(self) -> None:
        """Plan who takes part, and what they have to do."""
        scenario = self.scenario
        for role in scenario.sim.cast(scenario.own):
            self.add_role(role)
        scenario.sim.play(scenario.own, self, random.Random(f"{self.seed}/load"))

    # -- running ------------------------------------------------------------------------------------------------

    @property
    def now(self) -> int:
        """Nanoseconds since the run began, by the true clock."""
        return self.env.now

    def run(self, until_ns: int | None = None) -> Outcome:
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

    def after(self, delay_ns: int, run: Callable[..., object], *args: Any) -> None:
        """Call `run(*args)` so much later."""

        def call(event: object) -> None:
            run(*args)

        self.env.timeout(delay_ns).callbacks.append(call)

    @property
    def rows(self) -> list[TraceRow]:
        """The trace so far."""
        return self.recorder.rows

    # -- who takes part -----------------------------------------------------------------------------------------

    def add_device(self, fixture: Fixture) -> Any:
        """Put a device up, which machines ask by its name; returns it."""
        self.fixtures[fixture.name] = fixture
        device = self.devices[fixture.name] = fixture.make(self)
        return device

    def add_role(self, role: Role) -> None:
        """Its first nodes start now, the others join when it says."""
        for node in role.nodes:
            self._roles[node] = role
        for node in role.nodes[: role.count]:
            self._launch(node)
        for node, at in zip(role.nodes[role.count :], role.joins_ns, strict=True):
            self.after(at, self.join, node)

    def add(self, node: str, role: Role) -> Any:
        """One node of this role starts now, under any name; returns its process."""
        self._roles[node] = role
        self.join(node)
        return self.processes[node]

    def join(self, node: str) -> None:
        """The node starts; `consumer-9` is of the role `consumer`, however many that had in the beginning."""
        self.note("join", node)
        self._launch(node)

    def _launch(self, node: str) -> None:
        self._lives[node] = self._lives.get(node, 0) + 1
        self.bits[node] = 0
        self._start(node)

    def _start(self, node: str) -> None:
        self._numbers += 1
        self.network.attach(node, self._numbers)
        process = self.processes[node] = self.role_of(node).make(self, node, self._lives[node])
        process.start()

    def role_of(self, node: str) -> Role:
        """By the name of the node; raises `ConfigurationError` for one of no role."""
        role = self._roles.get(node)
        if role is None:
            cast = {one.name: one for one in self.scenario.sim.cast(self.scenario.own)}
            name = max((name for name in cast if node.startswith(f"{name}-")), key=len, default="")
            if not name:
                raise ConfigurationError("node", node, f"must be ROLE-NUMBER; roles are: {', '.join(cast) or 'none'}")
            role = self._roles[node] = cast[name]
        return role

    # -- what is done to them -----------------------------------------------------------------------------------

    def living(self, node: str) -> NodeLife | None:
        """The process of the node, if it lives."""
        process = self.processes.get(node)
        return process if process is not None and process.alive else None

    def crash(self, node: str, kind: str = "crash") -> None:
        """The process dies with its memory; nothing happens to a dead one."""
        process = self.living(node)
        if process is not None:
            self.note(kind, node, lost=["memory"])
            process.crash()

    def restart(self, node: str) -> None:
        """The node comes back as its next life."""
        self.note("restart", node)
        self._launch(node)

    def pause(self, node: str) -> None:
        """The process stands still."""
        process = self.living(node)
        if process is not None and not process.is_paused:
            self.note("pause", node)
            process.pause()

    def resume(self, node: str) -> None:
        """The process goes on with what has waited."""
        process = self.living(node)
        if process is not None and process.is_paused:
            self.note("resume", node)
            process.resume()

    def lose_disk(self, node: str) -> None:
        """Its disk is gone, and with it the number of its lives: nobody may come back under its name."""
        del self.processes[node]
        self.network.forget_receiver(node)
        self._buried.append(node)

    def start_duplicate(self, node: str) -> None:
        """Another process begins as the life that the node's process is: under its number, with other bits of chance.
        The first goes on beside it."""
        elder = self.processes[node]
        self.earlier_lives.setdefault(node, []).append(elder)
        self.bits[node] = random.Random(f"{self.seed}/{elder.life}/bits").getrandbits(64) | 1
        self._start(node)

    def supersede(self, node: str) -> None:
        """Whoever went on beside a newer process of the node ends."""
        for elder in self.earlier_lives.pop(node, ()):
            if elder.alive:
                elder.crash()
        self.network.forget_receiver(node)

    @property
    def earlier_lives(self) -> dict[str, list[NodeLife]]:
        """By node: processes beside which a newer one goes by the same name."""
        return self.network.elders

    def revive(self, node: str) -> None:
        """If the node is dead it comes back; without a disk, a new node in its place."""
        if node in self._buried:
            self._buried.remove(node)
            self._roles[f"{node}-new"] = self.role_of(node)
            self.join(f"{node}-new")
        elif node in self.processes and not self.processes[node].alive:
            self.restart(node)

    @property
    def dead(self) -> list[str]:
        """The names of all nodes that are dead."""
        return sorted([*self._buried, *(node for node, process in self.processes.items() if not process.alive)])

    def cut(self, one: str, other: str, fault: str = "partition") -> None:
        """What `one` sends to `other` never arrives; either may be a node or a device.  Cuts add up.  `fault`: what the
        trace calls it."""
        self.note(fault, one, other)
        cuts = self.network.cuts
        cuts[one, other] = cuts.get((one, other), 0) + 1

    def cut_for_good(self, one: str, other: str, fault: str) -> None:
        """The same from now on to the end, whatever heals; either may be a role, and then all its nodes are meant."""
        self.note(fault, one, other)
        for left in self._nodes_called(one):
            for right in self._nodes_called(other):
                if left != right and (left, right) not in self.network.lasting:
                    self.network.lasting.add((left, right))
                    self.network.cuts[left, right] = self.network.cuts.get((left, right), 0) + 1

    def _nodes_called(self, name: str) -> tuple[str, ...]:
        """All nodes of the role, those too that are to come; or the node or device itself."""
        cast = {role.name: role for role in self.scenario.sim.cast(self.scenario.own)}
        return cast[name].nodes if name in cast else (name,)

    def mend(self, one: str, other: str, fault: str = "partition") -> None:
        """One such cut less."""
        cuts = self.network.cuts
        left = cuts[one, other] - 1
        if left:
            cuts[one, other] = left
        else:
            del cuts[one, other]
        self.note(f"end_{fault}", one, other)

    def note(self, fault: str, node: str, peer: str = "", **details: object) -> None:
        """Something is done to a node (or, "", to the network or all stores): for the trace and the watch."""
        self.recorder.fault(self.now, node, fault, peer, **details)

    # -- inside -------------------------------------------------------------------------------------------------

    def _outcome(self, monitor: str, detail: str) -> Outcome:
        return Outcome(
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
