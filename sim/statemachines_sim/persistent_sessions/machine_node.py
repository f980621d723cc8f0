"""MachineNode: a writer or an owner of a scripted run on the drivers' runtime: one machine, its transport, its desk."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from statemachines.drivers.lives import begin_log, node_number
from statemachines.drivers.persistent_sessions.node_roles import NODE, PROTOCOL
from statemachines.drivers.persistent_sessions.request_queue import RequestQueue
from statemachines.drivers.port import Feed
from statemachines.drivers.runtime import Runtime
from statemachines.kernel import Answer, Event, Host, Node, Request, Step, incarnation
from statemachines.persistent_sessions.request import DATABASE, MarkDelivered
from statemachines.trace.log import TraceLog
from statemachines.wire import Packet
from statemachines_sim.asyncio_stage import AsyncioStage
from statemachines_sim.machine_stage import local_of
from statemachines_sim.persistent_sessions.script_store import LEASE_MS, ScriptStore, without_times
from statemachines_spec.explorer.actor import Envelope
from statemachines_spec.explorer.fsm_actor import FsmActor, FsmLocal
from statemachines_spec.persistent_sessions.attached import AttachedActor

PORT = 7421
"""Nodes listen at this port and the next ones; no socket is opened."""


class HeldSession(msgspec.Struct):
    """What `node` has asked and the script keeps from its desk, or (`answers`) from itself."""

    node: SessionMachineNode
    request: Request
    answers: list[Answer] | None = None


class NodeStage(AsyncioStage):
    """The stage of such nodes: `actors` are their machines; `held` stays with the script; logs go to `trace`."""

    actors: dict[str, AttachedActor]
    store: ScriptStore
    trace: Path | None
    held: list[HeldSession]

    def address(self, node: str) -> tuple[str, int]:
        """Where it listens."""
        return ("memory", PORT + list(self.actors).index(node))

    @abstractmethod
    def observe_commit(self, request: Request) -> None:
        """A node's request is carried out."""

    @abstractmethod
    def route_tell(self, node: str, party: str, event: Event) -> None:
        """A machine tells something that is for another component."""

    @abstractmethod
    def send_near(self, node: str, packet: Packet[Any]) -> bool:
        """A message for somebody beside the sender; False: it travels."""


class SessionMachineNode:
    """One life of a writer or an owner: one machine on the drivers' runtime, its transport, its desk at the store."""

    def __init__(self, stage: NodeStage, actor: FsmActor, number: int) -> None:
        self.actor = actor
        self.number = number
        self.life = incarnation(actor.name, number)
        self.machines = Host()
        self._stage = stage
        self._log: TraceLog | None = None

    async def __aenter__(self) -> SessionMachineNode:
        stage, actor = self._stage, self.actor
        self._loop = asyncio.get_running_loop()
        self._store = stage.store.open()
        held = await self._store.begin_life(actor.name, LEASE_MS)
        self._desk = RequestQueue(self._store, held)
        if stage.trace is not None:
            self._log = begin_log(stage.trace, self.life, [PROTOCOL])
        read_ns = stage.time.read_ns
        self._runtime = Runtime(
            self.life, node_number(self.life), {DATABASE: self._serve},
            handle=lambda sender, to, message, now_ns: self.machines.feed(self.life, message, now_ns),
            answered=self.machines.feed,
            route_tell=partial(stage.route_tell, actor.name),
            log=self._log, clock=read_ns, offset_ns=0, observe=stage.observe, refused=stage.refused.append,
        )  # fmt: skip
        self._node: Node[Any] = Node(
            actor.fsm, actor.fresh(self.number), name=self.life, now_ns=read_ns(), observe=self._runtime.observe,
            check=True,
        )  # fmt: skip
        self.seen = self.local()
        self.machines.add(self._node)
        self._transport = stage.network.transport(
            life=self.life, role=NODE, receive=self._runtime.receive, listen=stage.address(actor.name),
            dial={name: stage.address(name) for name in stage.actors if name != actor.name},
            store=held.identity.hex(),
        )  # fmt: skip
        self._runtime.on_failure = self._fail
        self._runtime.attach(self.machines, self)
        await self._transport.__aenter__()
        self._works = self._loop.create_task(self._desk.run())
        if actor.start is not None:
            self._runtime.run(lambda now_ns: self.machines.feed(self.life, actor.start, now_ns))  # type: ignore[arg-type]
        return self

    async def abort(self) -> None:
        """Stop as if the process had died."""
        self._works.cancel()
        await self._runtime.close()
        await self._transport.__aexit__(None, None, None)
        await self._store.close()
        if self._log is not None:
            self._log.close()

    def local(self, step: Step[Any] | None = None) -> FsmLocal:
        """As the explorer would have it."""
        return local_of(self._node, self.number, self.life, step)

    def send(self, packet: Packet[Any]) -> None:
        """What the machine sends."""
        if not self._stage.send_near(self.actor.name, packet):
            self._transport.send(packet)

    def feed(self, envelope: Envelope) -> None:
        """What the machine is told, if it is meant, and not one before it."""
        if envelope.to in (self.actor.name, self.life):
            act = partial(self.machines.feed, self.life, envelope.event)
            self._loop.call_soon(self._runtime.act, act)

    def _fail(self) -> None:
        assert self._runtime.failed is not None
        self._stage.failed.append(self._runtime.failed)

    def _serve(self, party: str, request: Request, feed: Feed) -> None:
        """The desk; marks that the system keeps from all readers are those of a last batch that is never sent."""
        database = self._stage.store.database
        if isinstance(request, MarkDelivered) and not database.service.hides:
            return
        if isinstance(request, database.slow):
            self._stage.held.append(HeldSession(self, request))
        else:
            self._desk.serve(party, request, feed, partial(self._answers_of, request))

    def carry_out(self, request: Request, answers: list[Answer]) -> None:
        """What was kept comes to the desk; its answers are put there."""
        take = partial(self._keep, answers)
        self._desk.serve(self.life, request, take, partial(self._answers_of, request))

    def _keep(self, answers: list[Answer], party: str, answer: Any) -> None:
        answers.append(answer)

    def _answers_of(self, request: Request, found: Any) -> Any:
        self._stage.observe_commit(request)
        return found if self._stage.store.database.service.stamps else tuple(without_times(one) for one in found)
