"""A scripted run of persistent sessions on the asyncio runtime: writers and owners on the drivers' runtime, live
messages and requests for markers as frames of the wire, and a SQLite file that each node asks through its own desk.

Client and publisher are the script's (`script_board`), and so is when a live message arrives, when a request that the
system calls slow comes to a desk, and when its answer comes back.  What a file does not do (lag behind, lose an answer)
is not done here: such a step ends the run, and says so.

MachineNode: a writer or an owner of a scripted run on the drivers' runtime: one machine, its transport, its desk.

ScriptStore: the database of a scripted run: a real SQLite file, with the session and the messages of the system in
it, and what lies in its tables as the explorer would have it.

What is asked is answered by what is committed: no replica lags behind a file.  Rows have times where those of the
system have.
"""

from __future__ import annotations

import asyncio
import sqlite3
import tempfile
from abc import abstractmethod
from collections.abc import Callable
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from statemachines.drivers.lives import begin_log, node_number
from statemachines.drivers.persistent_sessions.host_requests import Beat
from statemachines.drivers.persistent_sessions.node_messages import NODE, PROTOCOL
from statemachines.drivers.persistent_sessions.request_queue import RequestQueue
from statemachines.drivers.persistent_sessions.route_rows import PutMessage, Subscribe
from statemachines.drivers.persistent_sessions.sql import UNDELIVERED
from statemachines.drivers.persistent_sessions.store import SessionStore, open_session_store
from statemachines.drivers.port import Feed
from statemachines.drivers.runtime import Runtime
from statemachines.kernel import (
    Answer,
    ConfigurationError,
    Event,
    Host,
    Map,
    Node,
    Request,
    Step,
    incarnation,
    name_of,
    node_of,
)
from statemachines.persistent_sessions.in_flight_record import InFlightRecord, InFlightStatus
from statemachines.persistent_sessions.life_request import NEVER, ClientLocked, LockClient, OpenSession
from statemachines.persistent_sessions.message import Live, LiveMarker, Queued
from statemachines.persistent_sessions.request import (
    DATABASE,
    BeginEpoch,
    FencedRows,
    MarkDelivered,
    PendingRead,
    Polled,
    SessionState,
    SubscribeLive,
    UnsubscribeLive,
)
from statemachines.persistent_sessions.session_tables import SESSION, StoredEntry, StoredRows
from statemachines.persistent_sessions.writer_record import LiveGone, LiveKnown
from statemachines.trace.log import TraceLog
from statemachines.wire import Packet
from statemachines_sim.asyncio_stage import AsyncioNode, AsyncioStage
from statemachines_sim.machine_stage import local_of
from statemachines_sim.persistent_sessions.script_board import SERVE_NS, SERVES, BoardJudge, ScriptBoard
from statemachines_sim.replay_result import ReplayedScript, carry_out
from statemachines_spec.explorer.actor import Crash, Envelope, Restart
from statemachines_spec.explorer.fsm_actor import DOWN, RUNNING, FsmActor, FsmLocal
from statemachines_spec.explorer.system import System
from statemachines_spec.persistent_sessions.client import CLIENT, PUBLISHER, SessionPublisherActor
from statemachines_spec.persistent_sessions.clients import AttachedActor
from statemachines_spec.persistent_sessions.database import CarryOut, DatabaseLocal, DatabaseService, Lives, OpenRequest
from statemachines_spec.persistent_sessions.takeover_systems import HostedOwner
from statemachines_spec.script.origin import system_of
from statemachines_spec.script.script import Script
from statemachines_spec.script.script import ScriptStep as ScriptStep
from statemachines_spec.script.stage import CannotFollow

FILTER: Final = "t"
"""What the session subscribes, and what messages are about."""

LEASE_MS: Final = 24 * 3_600_000
"""A run is shorter: who is taken for dead has died."""

ROWS: Final = (
    "SELECT epoch, number, message, filter, qos FROM session_rows"
    f" WHERE session = ? AND writer = ? AND tag = {UNDELIVERED} ORDER BY epoch, number"
)
PACKETS: Final = "SELECT packet, place, status, number, message, filter, qos FROM packets WHERE session = ?"

TIMES: Final = ("stored_ns", "complete_ns", "seen_ns")
"""Fields of answers about rows."""


class ScriptStore:
    """The file `path`, whose clock is `clock`; `begin` first."""

    def __init__(self, system: System, path: Path, clock: Callable[[], int]) -> None:
        self.path = path
        self._clock = clock
        components = {one.name: one for one in system.actors}
        database, publisher = components["database"], components[PUBLISHER]
        assert isinstance(database, DatabaseService)
        assert isinstance(publisher, SessionPublisherActor)
        self.database = database
        self._messages = [(one, publisher.qos) for messages in publisher.messages.values() for one in messages]

    def open(self) -> SessionStore:
        """The store, as a node opens it."""
        return open_session_store(self.path, clock=self._clock)

    async def begin(self) -> None:
        """The client's session is there, and subscribes what is published; writers live, and have begun where the
        system has it so."""
        store = self.open()
        try:
            (locked,) = await store.ask(LockClient(CLIENT, "setup", 1))
            if not isinstance(locked, ClientLocked) or locked.token != 1:
                raise ConfigurationError("store", str(self.path), "must be new, so that the first token is 1")
            await store.ask(OpenSession(CLIENT, "setup", 1, SESSION, "", NEVER))
            await store.do(Subscribe(SESSION, 1, FILTER, 2))
            for message, qos in self._messages:
                await store.do(PutMessage(message, FILTER, b"", qos))
            for writer in self.database.writers:
                await store.begin_life(writer, LEASE_MS)
                for _ in range(self.database.service.begun):
                    await store.ask(BeginEpoch(SESSION, writer))
        finally:
            await store.close()

    async def live(self, node: str, up: bool) -> None:
        """The lease of a node that has died has ended; one that is there again has begun another itself."""
        store = self.open()
        try:
            if not up:
                await store.do(Beat(node, 0))
        finally:
            await store.close()

    # -- what lies there ------------------------------------------------------------------------------------------

    def read(self) -> DatabaseLocal:
        """What is committed, read from the tables and from nobody's memory."""
        with closing(sqlite3.connect(self.path)) as sql:
            ((owner, token),) = sql.execute("SELECT owner, token FROM sessions").fetchall()
            shelves = tuple(self._shelf(sql, writer) for writer in self.database.writers)
            packets = {row[0]: _packet(*row) for row in sql.execute(PACKETS, (SESSION.encode(),))}
        return DatabaseLocal(shelves, SessionState(packets=Map(packets)), token, owner.decode())

    def _shelf(self, sql: sqlite3.Connection, writer: str) -> StoredRows:
        keys = (SESSION.encode(), writer.encode())
        ((epoch,),) = sql.execute("SELECT coalesce(max(epoch), 0) FROM epochs WHERE session = ? AND writer = ?", keys)
        rows = sql.execute(ROWS, keys).fetchall()
        return StoredRows(writer, epoch, tuple(StoredEntry(row[0], _queued(*row[1:]), visible=True) for row in rows))


def without_times(answer: Answer) -> Answer:
    """The answer of a database whose rows have no times."""
    times: Any = {name: 0 for name in TIMES if hasattr(answer, name)}
    if isinstance(answer, Polled | PendingRead | FencedRows):
        times["found"] = tuple(
            replace(one, rows=tuple(replace(row, stored_ns=0) for row in one.rows)) for one in answer.found
        )
    return replace(answer, **times)


def _queued(number: int, message: bytes, topic: bytes, qos: int) -> Queued:
    return Queued(number, message.decode(), topic.decode(), qos)


def _packet(packet: int, place: int, status: bytes, *row: Any) -> InFlightRecord:
    return InFlightRecord(packet, CLIENT, _queued(*row), place, InFlightStatus(status.decode()))


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


UNDONE: Final = {
    "appear": "a file has no replica that shows entries later: what is committed is read by all",
    "spread": "a store tells who is live in the transaction that stores, so no writer can learn of it late",
    "blur": "the desk of a node asks again until it knows, so no answer is lost",
    "fail": "the desk of a node asks again until it is done",
}
"""What happens to the explorer's database, and why not to a file."""


def run_live(script: Script, variant: str = "", trace: Path | None = None) -> ReplayedScript:
    """Follow the script on the asyncio runtime, by the rules of `variant` ("" = its own); the nodes' logs go to the
    directory `trace`.  Raises `ConfigurationError` for a system with takeovers, or with a collector."""
    system = system_of(script, variant)
    if not any(type(one) is DatabaseService for one in system.actors):
        rule = "has a collector, or connections, and what only their database can do; leave --runtime out"
        raise ConfigurationError("script", script.system, rule)
    if any(isinstance(one, HostedOwner) for one in system.actors):
        rule = (
            "has takeovers, in which a host answers for owners that are gone, or not there yet, on its own and at once"
        )
        raise ConfigurationError("script", script.system, f"{rule}; leave --runtime out")
    with ExitStack() as stack:
        stack.enter_context(script.part.rules(script, variant))
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gapless-")))
        stage = SessionStage(script, system, directory, trace)
        stack.callback(stage.close)
        return carry_out(stage, stage.conductor, stage.judged.broken, stage.check, stage.refused)


class SessionStage(NodeStage):
    """Machines as nodes, paths and client and publisher on a board, and the store."""

    def __init__(self, script: Script, system: System, directory: Path, trace: Path | None) -> None:
        super().__init__(script)
        self.actors = {one.name: one for one in system.actors if isinstance(one, AttachedActor)}
        self.board = ScriptBoard(system, self._put_off, (DATABASE,))
        self.judged = BoardJudge(system, self.board)
        self.store = ScriptStore(system, directory / "sessions.db", self.time.read_ns)
        self.trace = trace
        self.held: list[HeldSession] = []
        self._calls: list[Envelope] = []
        self._frames: list[tuple[str, Any, Callable[[], None]]] = []
        self._lives: dict[str, int] = {}
        self.store_loop.run_until_complete(self.store.begin())
        self._seen = self.store.read()
        self.judged.look(DATABASE, self._seen)
        self.judged.begin(self.local)
        for name, actor in self.actors.items():
            if actor.start is None:
                self.launch(name)
        self.settle()

    def local(self, name: str) -> FsmLocal:
        """The component as the explorer would have it."""
        one = self.nodes.get(name)
        if one is None or not one.alive:
            return FsmLocal(DOWN, self._lives.get(name, 0), None)
        node: SessionMachineNode = one.node
        return node.local()

    # -- the stage ------------------------------------------------------------------------------------------------

    def settle(self) -> None:
        """What nodes have to do, and what is called meanwhile, in turn."""
        super().settle()
        while self._calls:
            self._take(self._calls.pop(0))
            super().settle()

    def start(self, node: str) -> None:
        raise CannotFollow(f"{node} begins by a restart")

    def restart(self, node: str) -> None:
        if node in self.nodes and self.nodes[node].alive:
            raise CannotFollow(f"{node} is running")
        before = self.local(node)
        self.launch(node)  # it begins when its loop runs; whom its client is connected to is known before
        life = self._lives[node]
        self.judged.step(node, before, Restart(), FsmLocal(RUNNING, life, None, incarnation(node, life)))
        for _ in range(len(self._calls)):
            self._take(self._calls.pop(0))
        self.settle()

    def crash(self, node: str) -> None:
        one, before = self.live(node), self.local(node)
        super().crash(node)
        self.held = [held for held in self.held if held.node is not one.node]
        self.judged.step(node, before, Crash(), self.local(node))

    def do(self, step: ScriptStep) -> None:
        if step.node == DATABASE:
            self._go_on(step)
            return
        if step.do == "call":
            self._call(step)
        else:
            self.board.carry_out(step)

    def end(self, release: Callable[[], None]) -> None:
        """As in the simulator."""
        if self.judged.broken:
            return
        release()
        for _ in range(SERVES):
            self.advance(self.time.now_ns + SERVE_NS)
            self.settle()
            while self.board.serve() or self.held:
                for held in list(self.held):
                    self._advance(held)
                self.settle()
        self.check()
        self.judged.check(quiet=True)
        self.judged.ends()

    def check(self) -> None:
        super().check()
        waiting = tuple(OpenRequest(held.node.life, name_of(type(held.request))) for held in self.held)
        self.judged.look(DATABASE, replace(self._seen, owed=waiting))
        for name in self.actors:
            self.judged.look(name, self.local(name))
        self.judged.check(quiet=not self.conductor.in_flight)

    def _call(self, step: ScriptStep) -> None:
        node: SessionMachineNode = self.live(step.node).node
        kinds = {name_of(kind): kind for kind in node.actor.fsm.alphabet}
        if step.what not in kinds:
            raise CannotFollow(f"{step.node} knows no call {step.what!r}")
        try:
            event = msgspec.json.decode(step.fields or b"{}", type=kinds[step.what])
        except msgspec.MsgspecError as error:
            raise CannotFollow(f"{step.what}: {error}") from error
        node.feed(Envelope("", node.life, event))

    def _go_on(self, step: ScriptStep) -> None:
        """The first thing that a party waits for is done, or it hears of it."""
        if step.what in UNDONE:
            raise CannotFollow(UNDONE[step.what])
        party = msgspec.json.decode(step.fields, type=CarryOut).party
        held = next((one for one in self.held if party in (one.node.actor.name, one.node.life)), None)
        if held is None or (held.answers is None) != (step.what == name_of(CarryOut)):
            raise CannotFollow(f"{party} does not wait for that")
        self._advance(held)

    def _advance(self, held: HeldSession) -> None:
        if held.answers is None:
            held.answers = []
            held.node.carry_out(held.request, held.answers)
            return
        self.held.remove(held)
        for answer in held.answers:
            held.node.feed(Envelope(DATABASE, held.node.life, answer))

    # -- nodes and the store --------------------------------------------------------------------------------------

    def observe_commit(self, request: Request) -> None:
        """A node's request is carried out: whoever watches the tables sees what lies there now; writers hear who is
        live."""
        before, self._seen = self._seen, self.store.read()
        self.judged.look(DATABASE, self._seen)
        self.board.saw(DATABASE, before, request, self._seen)
        if isinstance(request, SubscribeLive):
            self._tell_writers(LiveKnown(self._seen.owner, self._seen.token))
        elif isinstance(request, UnsubscribeLive) and not self._seen.owner:
            self._tell_writers(LiveGone(request.token))
        elif isinstance(request, BeginEpoch) and self._seen.owner:
            self._put_off(Envelope(DATABASE, request.writer, LiveKnown(self._seen.owner, self._seen.token)))

    def route_tell(self, node: str, party: str, event: Event) -> None:
        """A machine tells something that is for another component."""
        component = self.actors[node].tells.get(type(event))
        if component is not None:
            self._put_off(Envelope(party, component, event))

    def send_near(self, node: str, packet: Packet[Any]) -> bool:
        """A message for somebody beside the sender; False: it travels.  What a path carries waits as a frame."""
        actor = self.actors[node]
        if type(packet.message) not in actor.beside:
            return False
        self._put_off(actor.near(Envelope(packet.sender, packet.to, packet.message)))
        return not isinstance(packet.message, Live | LiveMarker)

    def _tell_writers(self, event: Event) -> None:
        for writer in self.store.database.writers:
            self._put_off(Envelope(DATABASE, writer, event))

    def launch(self, node: str) -> None:
        self._lives[node] = self._lives.get(node, 0) + 1
        self.enter(node, AsyncioNode(SessionMachineNode(self, self.actors[node], self._lives[node]), self.time))

    def _gate(self, node: str, to: str, packet: Packet[Any], arrive: Callable[[], None]) -> None:
        if isinstance(packet.message, Live | LiveMarker):
            self._frames.append((packet.to, packet.message, arrive))
        else:
            super()._gate(node, to, packet, arrive)

    # -- calls ----------------------------------------------------------------------------------------------------

    def _put_off(self, envelope: Envelope) -> None:
        self._calls.append(envelope)

    def _take(self, envelope: Envelope) -> None:
        event, name = envelope.event, node_of(envelope.to)
        if name in self.board.actors:
            self.board.take(envelope)
        elif name == DATABASE:
            if isinstance(event, Lives):
                self.store_loop.run_until_complete(self.store.live(event.who, event.up))
        elif isinstance(event, Live | LiveMarker):
            self._hand_over(envelope)
        elif name in self.nodes and self.nodes[name].alive:
            self.nodes[name].node.feed(envelope)

    def _hand_over(self, envelope: Envelope) -> None:
        """The frame arrives, if there is anybody whom it was sent to."""
        place = next((at for at, one in enumerate(self._frames) if one[:2] == (envelope.to, envelope.event)), None)
        if place is not None:
            self._frames.pop(place)[2]()

    # -- what happens ---------------------------------------------------------------------------------------------

    def watch_step(self, node: Node[Any], event: Event, before: Any, step: Step[Any], now_ns: int) -> None:
        one: SessionMachineNode = self.nodes[node_of(node.name)].node
        was, one.seen = one.seen, one.local(step)
        self.judged.step(one.actor.name, was, event, one.seen)
