"""MachineProcess: any machine, or any host of machines, as a simulated process, without glue.

A message goes to the party that it names; a message to the node's name goes to the machine of its life.  What a machine
asks goes to the device of that name; what it tells goes to the watch and to the application.

    role = machine_role("server", SERVER, lambda life: ServerRecord(life), count=1)
    role = machine_role("holder", HOLDER, HolderRecord, count=3, start=Begin(), application=work_while_it_holds)

An application is a callable `(process, event)`; it may `process.feed(...)` calls and `process.after(ns, do)`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from statemachines.kernel import Event, Fsm, Host, Message, Node, Outgoing
from statemachines_sim.cluster import Role, SimCluster
from statemachines_sim.node_life import NodeLife

Application = Callable[["MachineProcess", Event], None]


class MachineProcess(NodeLife):
    """One life of a node with `host`; `main`: the party that messages to the node go to; `heard`: what its machines
    have told so far."""

    world: SimCluster

    def __init__(
        self,
        world: SimCluster,
        node: str,
        number: int,
        host: Callable[[MachineProcess], Host],
        *,
        start: Event | None = None,
        application: Application | None = None,
    ) -> None:
        super().__init__(world, node, number)
        self.host = host(self)
        self.main = next(iter(self.host.nodes), self.life)
        self.heard: list[Event] = []
        self._start = start
        self._application = application

    def start(self) -> None:
        if self._start is not None:
            self.feed(self._start)
        else:
            self.perform([], self._env.now)

    def feed(self, event: Event, party: str = "") -> None:
        """Its application says something to a party ("" = the first): at once, or when it goes on."""
        self.run(lambda: self._feed(event, party or self.main))

    def handle(self, sender: str, to: str, message: Message, now_ns: int) -> list[Outgoing]:
        return self.host.feed(self.main if to == self.node else to, message, now_ns)

    def route_answer(self, party: str, answer: Any, now_ns: int) -> list[Outgoing]:
        return self.host.feed(party, answer, now_ns)

    def route_tell(self, party: str, event: Event) -> None:
        self.heard.append(event)
        machine = self.host.nodes[party].fsm.full_name if party in self.host.nodes else ""
        self._recorder.tell(self._env.now, self.node, party, machine, event)
        self.world.watch.tell(self, party, event, self._env.now)
        if self._application is not None:
            self._application(self, event)

    @property
    def record(self) -> Any:
        """The record of its first machine, as it is now."""
        return self.host.nodes[self.main].record

    def _feed(self, event: Event, party: str) -> None:
        self.perform(self.host.feed(party, event, self.local_now()), self._env.now)


def make_single_host(process: MachineProcess, fsm: Fsm[Any], record: msgspec.Struct) -> Host:
    """A host of one machine, which goes by the name of its life; recorded, and its invariants checked."""
    host, world = Host(), process.world
    now_ns = process.local_now()
    observe = world.recorder.step
    host.add(Node(fsm, record, name=process.life, now_ns=now_ns, observe=observe, check=world.judging))
    return host


def machine_role(
    name: str,
    fsm: Fsm[Any],
    record: Callable[[str], msgspec.Struct],
    *,
    start: Event | None = None,
    application: Application | None = None,
    count: int = 1,
    **of_role: Any,
) -> Role:
    """Nodes that run one machine each: `record(life)` is what it begins with, `life` its id ("server-1~1"); `start` is
    fed to it when it begins; the rest as for `Role`."""

    def make(world: SimCluster, node: str, number: int) -> NodeLife:
        def host(process: MachineProcess) -> Host:
            return make_single_host(process, fsm, record(process.life))

        return MachineProcess(world, node, number, host, start=start, application=application)

    return Role(name, make, count, **of_role)
