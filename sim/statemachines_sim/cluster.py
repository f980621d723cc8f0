"""Cluster: the nodes and devices of a run, the network between them, and everything that can be done to them.

A protocol says by a `Role` what nodes do, by a `Fixture` what they ask, and by a `Watch` what must hold.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import msgspec

from statemachines.kernel import Answer, ConfigurationError, Event, Request
from statemachines.trace import TraceRow
from statemachines_sim.clock import SimulatedClock
from statemachines_sim.clocks import Clocks
from statemachines_sim.fault import Fault
from statemachines_sim.judge import Judge
from statemachines_sim.local_clock import LocalClock
from statemachines_sim.network import SimulatedNetwork
from statemachines_sim.node_life import Device, NodeLife
from statemachines_sim.recorder import Recorder
from statemachines_sim.run_observer import RunObserver
from statemachines_sim.run_settings import RunSettings
from statemachines_sim.units import S as SECOND

Missing = tuple[str, str]
"""A property that is not true yet, and what is still missing."""

OF_PROCESSES = (
    "crash",
    "pause",
    "long_pause",
    "sleep",
    "late_timer",
    "skew",
    "drift",
    "jump",
    "partition",
    "store_cut",
)
"""The kinds of faults that hit a role, unless it says otherwise; `lost_disk` and `far_jump` it must ask for."""

OF_STORES = ("store", "slow_store", "store_cut", "store_crash")
"""The kinds of faults that hit a remote store, unless it says otherwise; `torn_write`, `power_loss` and those of clocks
it must ask for."""


class Tolerance(msgspec.Struct, frozen=True):
    """How wrong a clock may be: `drift_ppm`, its rate, in millionths; `jump_ns`, each leap ahead; `jumps_ns`, all leaps
    of a run together (0: no bound beside that on each)."""

    drift_ppm: int = 200
    jump_ns: int = 60 * SECOND
    jumps_ns: int = 0


class Role(msgspec.Struct, frozen=True):
    """Who takes part: nodes `name-1`, `name-2`, ..., each a process that `make(world, node, number of its life)` gives.

    `count` of them are there before anything happens, one more joins at each of `joins_ns`.  `faults`: the kinds that
    hit them; `talks_to`: the roles (or devices) that they exchange messages with, () = everybody, which is where
    partitions fall; `clock`: what their clocks may do.
    """

    name: str
    make: Callable[[SimCluster, str, int], NodeLife]
    count: int = 0
    joins_ns: tuple[int, ...] = ()
    faults: tuple[str, ...] = OF_PROCESSES
    talks_to: tuple[str, ...] = ()
    clock: Tolerance = Tolerance()

    @property
    def nodes(self) -> tuple[str, ...]:
        """All its nodes, by number."""
        return tuple(f"{self.name}-{number + 1}" for number in range(self.count + len(self.joins_ns)))

    @property
    def exposed_nodes(self) -> tuple[str, ...]:
        """The nodes that faults may hit: those that are there when faults begin, after the first second."""
        there = self.count + sum(at < SECOND for at in self.joins_ns)
        return self.nodes[:there]


class Fixture(msgspec.Struct, frozen=True):
    """A device that machines ask by `name` (`Ask.service`); `make(world)` gives it, `faults` hit it."""

    name: str
    make: Callable[[SimCluster], Device]
    faults: tuple[str, ...] = OF_STORES
    clock: Tolerance = Tolerance()


class Watch(RunObserver):
    """The properties of a protocol, judged from what happens; a base that judges nothing.

    What breaks is said with `self.judge.broken(property, what happened)`.  `judging` is False where only `missing` is
    wanted, for runs without monitors.
    """

    judging = True

    always_hears = True
    """Whether it hears of everything in runs without monitors, too: False where `missing` looks at the world alone."""

    def __init__(self, judge: Judge | None = None) -> None:
        self.judge = Judge() if judge is None else judge

    def begin(self, world: SimCluster) -> None:
        """The world is put together, and nothing has happened yet."""

    def tell(self, process: NodeLife, party: str, event: Event, now_ns: int) -> None:
        """A machine told its application something."""

    def observe_request(
        self, service: str, party: str, request: Request, answers: tuple[Answer, ...], now_ns: int
    ) -> None:
        """A device carried `request` of `party` out, at `now_ns` by the device's own clock."""

    def observe_death(self, process: NodeLife, now_ns: int) -> None:
        """A process is dead, with all its parties."""

    def missing(self, world: SimCluster) -> Missing | None:
        """Once everything has healed: the first property that is not true yet, or None: it is the end of the run."""
        return None

    def tally(self) -> dict[str, int]:
        """What a run came to, in numbers, in the order in which people read them."""
        return {}


class SimCluster:
    """`processes`, by node: its newest life; `earlier_lives`: those beside which a newer one goes by the same name.
    `devices`, by the name that machines ask them by; `cast`: the roles of nodes that may come.

    `judging`: whether what breaks is looked for; `watching`: whether the watch hears of what happens; `bits`: of
    chance, in the life of a node (0: none).
    """

    schedule: tuple[Fault, ...] = ()
    """What goes wrong in the run, and when."""

    def __init__(
        self, scenario: RunSettings, seed: int, cast: tuple[Role, ...], watch: Watch, recorder: Recorder, judging: bool
    ) -> None:
        self.scenario = scenario
        self.seed = seed
        self.env = SimulatedClock()
        self.judging = judging
        self.watch = watch
        self.watching = judging or watch.always_hears
        self.recorder = recorder
        self.processes: dict[str, NodeLife] = {}
        self.earlier_lives: dict[str, list[NodeLife]] = {}
        self.devices: dict[str, Device] = {}
        self.fixtures: dict[str, Fixture] = {}
        self.clocks = Clocks(self.env, self._set_clock)
        self.network = SimulatedNetwork(self.env, scenario.network, seed, recorder, self.processes, self.earlier_lives)
        self.bits: dict[str, int] = {}
        self._cast = {role.name: role for role in cast}
        self._roles: dict[str, Role] = {}
        self._lives: dict[str, int] = {}
        self._numbers = 0
        self._buried: list[str] = []

    @property
    def now(self) -> int:
        """Nanoseconds since the run began, by the true clock."""
        return self.env.now

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
            cast = self._cast
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
        return self._cast[name].nodes if name in self._cast else (name,)

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

    def observe_death(self, process: NodeLife) -> None:
        """A process is dead: nothing reaches it any more."""
        self.network.forget_receiver(process.node)
        self.watch.observe_death(process, self.now)

    def _set_clock(self, name: str, clock: LocalClock) -> None:
        if name in self.devices:
            self.devices[name].clock = clock
        elif name in self.processes:
            for process in (self.processes[name], *self.earlier_lives.get(name, ())):
                process.clock = clock
                process.handle_clock_change()
