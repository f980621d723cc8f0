"""What the simulator is to know: who takes part, what the applications do, and what must hold."""

from __future__ import annotations

from typing import Any

import msgspec

from lock_service.holder import HOLDER, HOLDING, Drop, HolderRecord, Locked, Lost, Put, Want
from lock_service.message import Granted
from lock_service.server import SERVER, Begin, ServerRecord
from lock_service.store import VAULT, Fenced, Journal, JournalFailed, Vault, VaultFailed, Write, Wrote
from lock_service.times import Times
from statemachines.kernel import Answer, ConfigurationError, Event, Node, Request, Step
from statemachines_sim import (
    MS,
    OF_PROCESSES,
    Cluster,
    Fixture,
    Judge,
    MachineProcess,
    NodeLife,
    Role,
    Scenario,
    SimProtocol,
    Tolerance,
    Watch,
    machine_role,
    remote_store,
)


class Section(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`[lock_service]` of a scenario: how many `holders`; who has the lock writes `writes` times, one every `write_ms`,
    and wants it again `rest_ms` later; `tokens`: the vault honours them."""

    holders: int = 3
    writes: int = 5
    write_ms: int = 120
    rest_ms: int = 400
    tokens: bool = True
    times: Times = Times()


def application(own: Section) -> Any:
    """Who has the lock writes, gives it back, and wants it again; who loses it wants it again."""

    def play(process: MachineProcess, event: Event) -> None:
        if isinstance(event, Locked):
            write(process, event.token, own.writes)
        elif isinstance(event, Lost):
            process.after(own.rest_ms * MS, lambda: process.feed(Want()))

    def write(process: MachineProcess, token: int, left: int) -> None:
        if process.record.status is not HOLDING or process.record.token != token:
            return
        process.feed(Put(f"{process.life}, {left} left") if left else Drop())
        if left:
            process.after(own.write_ms * MS, lambda: write(process, token, left - 1))

    return play


class LockWatch(Watch):
    """S1, S2 and L1, from what happens; the records of the machines are not asked."""

    def __init__(self, judge: Judge) -> None:
        super().__init__(judge)
        self._holding: dict[str, str] = {}
        self._token = 0
        self._served: set[str] = set()
        self._counts = {"locked": 0, "written": 0, "fenced": 0}

    def begin(self, world: Cluster) -> None:
        self._world = world

    def step(self, node: Node[Any], event: Event, before: Any, step: Step[Any], now_ns: int) -> None:
        if node.fsm is not HOLDER:
            return
        name = node.name.partition("~")[0]
        if step.record.status is not HOLDING:
            self._holding.pop(name, None)
            return
        self._holding[name] = node.name
        if type(event) is not Granted and type(event) is not Put:
            return  # only who acts is judged
        others = [other for other in self._holding if other != name and not self._world.processes[other].is_paused]
        if others:
            self.judge.report_broken("S1", f"{node.name} has the lock, and so does {self._holding[others[0]]}")

    def tell(self, process: NodeLife, party: str, event: Event, now_ns: int) -> None:
        if isinstance(event, Locked):
            self._counts["locked"] += 1
            self._served.add(process.node)

    def observe_request(
        self, service: str, party: str, request: Request, answers: tuple[Answer, ...], now_ns: int
    ) -> None:
        if service != VAULT or not isinstance(request, Write):
            return
        self._counts["fenced"] += isinstance(answers[0], Fenced)
        if isinstance(answers[0], Wrote):
            self._counts["written"] += 1
            if request.token < self._token:
                self.judge.report_broken("S2", f"{party} writes under token {request.token}, after {self._token}")
            self._token = request.token

    def fault(self, kind: str, node: str, now_ns: int) -> None:
        if kind == "heal":
            self._served.clear()

    def observe_death(self, process: NodeLife, now_ns: int) -> None:
        self._holding.pop(process.node, None)

    def missing(self, world: Cluster) -> tuple[str, str] | None:
        waiting = [name for name in world.processes if name.startswith("holder") and name not in self._served]
        return ("L1", f"{', '.join(waiting)}: never got the lock") if waiting else None

    def tally(self) -> dict[str, int]:
        return self._counts


class LockSim(SimProtocol[Section]):
    """The part."""

    name = "lock_service"
    section = Section
    properties = ("S1", "S2", "L1")
    scenarios = "lock_service:scenarios"

    def check(self, own: Section, scenario: Scenario) -> None:
        own.times.check()
        for key, least in (("holders", 1), ("writes", 0), ("write_ms", 1), ("rest_ms", 1)):
            if not least <= getattr(own, key) <= 10_000:
                raise ConfigurationError(key, getattr(own, key), f"must lie between {least} and 10000")

    def cast(self, own: Section) -> tuple[Role, ...]:
        drift_ns = round(own.times.lease_ns * own.times.drift)
        within = Tolerance(drift_ppm=200, jump_ns=drift_ns // 8, jumps_ns=drift_ns // 2)
        return (
            machine_role(
                "server",
                SERVER,
                lambda life: ServerRecord(life, own.times),
                start=Begin(),
                count=1,
                talks_to=("holder",),
                clock=within,
            ),
            machine_role(
                "holder",
                HOLDER,
                lambda life: HolderRecord(life, "server-1", own.times),
                start=Want(),
                application=application(own),
                count=own.holders,
                faults=(*OF_PROCESSES, "lost_disk"),
                talks_to=("server",),
            ),
        )

    def devices(self, own: Section) -> tuple[Fixture, ...]:
        return (
            remote_store(Journal(), failed=lambda request: JournalFailed(request.n)),
            remote_store(Vault(own.tokens), failed=lambda request: VaultFailed(request.n)),
        )

    def watch(self, own: Section, judge: Judge) -> Watch:
        return LockWatch(judge)


SIM = LockSim()
