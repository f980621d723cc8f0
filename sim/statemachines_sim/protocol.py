"""What a protocol says about itself to the simulator, and what the simulator is made of.

A protocol gives one value, a `SimProtocol`, at the place that its registration names as the area `sim`.  All of it has
defaults: a protocol without stores has no devices, one without liveness goals a watch that misses nothing.

    class LockSim(SimProtocol[Section]):
        name = "lock_service"
        section = Section                                    # its part of a scenario file
        properties = ("S1", "L1")
        def cast(self, own): return (machine_role("server", SERVER, ServerRecord), ...)
        def watch(self, own, judge): return LockWatch(judge)

    SIM = LockSim()
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import msgspec

from statemachines.kernel import Answer, Event, Message, Node, Request, Step
from statemachines_sim.judge import Judge
from statemachines_sim.local_clock import LocalClock
from statemachines_sim.units import S as SECOND

if TYPE_CHECKING:
    from statemachines_sim.faults.kind import FaultKind
    from statemachines_sim.node_life import NodeLife
    from statemachines_sim.scenario import Scenario
    from statemachines_sim.world import World
else:
    NodeLife = World = Any  # so that `inspect.signature` can read the structs below

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


class Nothing(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The section of a protocol that has none."""


S = TypeVar("S", bound=msgspec.Struct)


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
    make: Callable[[World, str, int], NodeLife]
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
    make: Callable[[World], Device]
    faults: tuple[str, ...] = OF_STORES
    clock: Tolerance = Tolerance()


Reply = Callable[[Answer], None]
"""Takes an answer to the machine that asked."""


class Device(Protocol):
    """Something that machines ask: a `RemoteStore`, a `SharedMemory`, a `QueryFabric`, or one of the protocol's own.

    `clock`: its own, where it is not the true one.
    """

    clock: LocalClock | None

    def ask(self, process: NodeLife, party: str, request: Request, reply: Reply) -> None:
        """`party` of `process` asks now; `reply` takes each answer, when it comes, to the process if it lives."""
        ...

    def heal(self) -> None:
        """No more faults."""
        ...


class Watch:
    """The properties of a protocol, judged from what happens; a base that judges nothing.

    What breaks is said with `self.judge.broken(property, what happened)`.  `judging` is False where only `missing` is
    wanted, for runs without monitors.
    """

    judging = True

    always_hears = True
    """Whether it hears of everything in runs without monitors, too: False where `missing` looks at the world alone."""

    def __init__(self, judge: Judge | None = None) -> None:
        self.judge = Judge() if judge is None else judge

    def begin(self, world: World) -> None:
        """The world is put together, and nothing has happened yet."""

    def step(self, node: Node[Any], event: Event, before: Any, step: Step[Any], now_ns: int) -> None:
        """A step of any machine, before its effects; `before`: the status it had."""

    def tell(self, process: NodeLife, party: str, event: Event, now_ns: int) -> None:
        """A machine told its application something."""

    def observe_request(
        self, service: str, party: str, request: Request, answers: tuple[Answer, ...], now_ns: int
    ) -> None:
        """A device carried `request` of `party` out, at `now_ns` by the device's own clock."""

    def hit(self, kind: str, node: str, sender: str, to: str, message: Message, now_ns: int) -> None:
        """The network loses (`kind` drop) what `sender` sent to `to` on its way to `node`, which may be dead; or it
        will arrive there twice (duplicate); or `sender` is about to send what is not so (forge)."""

    def fault(self, kind: str, node: str, now_ns: int) -> None:
        """A fault begins or ends, or something is done to a node (join, restart, resume)."""

    def observe_death(self, process: NodeLife, now_ns: int) -> None:
        """A process is dead, with all its parties."""

    def missing(self, world: World) -> Missing | None:
        """Once everything has healed: the first property that is not true yet, or None: it is the end of the run."""
        return None

    def tally(self) -> dict[str, int]:
        """What a run came to, in numbers, in the order in which people read them."""
        return {}


class SimProtocol(Generic[S]):
    """Base of what a protocol says to the simulator.

    `section`: the type of its part of a scenario file, with a default for every key; `properties`: the names its watch
    judges; `faults`: kinds of its own beside those of every protocol; `scenarios`: a folder of scenario files that come
    with it, `package:path`.
    """

    name: str = "nothing"
    section: type[S] = Nothing  # type: ignore[assignment]
    properties: tuple[str, ...] = ()
    faults: tuple[FaultKind, ...] = ()
    scenarios: str = ""

    def check(self, own: S, scenario: Scenario) -> None:
        """Raises `ConfigurationError` where a value of the section breaks a rule."""

    def settle(self, own: S, scenario: Scenario) -> S:
        """The section as it runs, after a swarm has drawn: bounded by what can be dealt with in the time there is."""
        return own

    def cast(self, own: S) -> tuple[Role, ...]:
        """Who takes part."""
        return ()

    def devices(self, own: S) -> tuple[Fixture, ...]:
        """What they ask."""
        return ()

    def longest_ns(self, own: S) -> int:
        """The longest timeout that a process may sleep through: a long pause is longer."""
        return 20 * SECOND

    def play(self, own: S, world: World, chance: Random) -> None:
        """Plan the load: `world.after(ns, do, ...)`."""

    def watch(self, own: S, judge: Judge) -> Watch:
        """Who judges a run."""
        return Watch(judge)

    def facts(self, own: S, scenario: Scenario) -> Mapping[str, object]:
        """What judges of the trace must know beside the settings."""
        return {}


NOTHING: SimProtocol[Nothing] = SimProtocol()
"""A protocol without roles or devices: what a world by hand begins with."""
