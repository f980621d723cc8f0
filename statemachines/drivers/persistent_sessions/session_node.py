"""SessionNode: serves persistent sessions: clients connect to it, publishers hand it messages, other nodes share its
store.

    here, there = ("10.0.0.1", 7601), ("10.0.0.2", 7601)
    async with SessionNode("sessions.db", name="node-1", listen=here, peers=[there]) as node:
        await node.wait_for_failure()

Each process under a name begins a life of it in the store, and ends when the store knows a newer one.  A node whose
process dies is no loss but of time: its clients go to another, and everything else is in the store.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from statemachines.drivers.authority import AUTHORIZE_S, Authority, Authorize
from statemachines.drivers.clock import steady_ns
from statemachines.drivers.complaint_log import RateLimitedLog
from statemachines.drivers.credentials import NONE, Credentials
from statemachines.drivers.identity import Identity
from statemachines.drivers.lives import begin_log, chance_bits, node_number
from statemachines.drivers.loop_watchdog import LoopWatchdog
from statemachines.drivers.metrics_endpoint import Metric
from statemachines.drivers.permission_file import PermissionFile
from statemachines.drivers.persistent_sessions.collector_requests import Backlog, SessionBounds
from statemachines.drivers.persistent_sessions.host_requests import Beat, Look, ReadNodes
from statemachines.drivers.persistent_sessions.node_messages import NODE, PROTOCOL, DirectMessage, NodeMessage
from statemachines.drivers.persistent_sessions.request_queue import RequestQueue
from statemachines.drivers.persistent_sessions.route_rows import ReadUnfinished
from statemachines.drivers.persistent_sessions.session_server import SessionServer
from statemachines.drivers.persistent_sessions.store import SessionStore, StoredLife, open_session_store
from statemachines.drivers.persistent_sessions.upkeep import (
    LagMonitor,
    WillSender,
    drop_rows,
    list_backlog,
    serve_metrics,
)
from statemachines.drivers.port import Feed
from statemachines.drivers.runtime import Runtime, TraceStep
from statemachines.drivers.sql.awaited import retry_while_unavailable
from statemachines.drivers.sql.durability import Durability
from statemachines.drivers.tcp import BUFFER_MAX, CONNECTIONS_MAX, Address, TcpTransport
from statemachines.kernel import (
    ConfigurationError,
    Event,
    Message,
    Outgoing,
    RemoteProtocolError,
    Request,
    incarnation,
    life_of,
    name_of,
    node_of,
)
from statemachines.kernel.node import Observer
from statemachines.persistent_sessions.collector import GRACES, Graces, MessageLost
from statemachines.persistent_sessions.life_record import SessionClosed
from statemachines.persistent_sessions.life_times import LifeTimes
from statemachines.persistent_sessions.message import (
    Delivered,
    Puback,
    Publish,
    PublishStored,
    PublishWanted,
    PublishWithHead,
    Pubrel,
)
from statemachines.persistent_sessions.request import DATABASE
from statemachines.persistent_sessions.session_host_process import SessionHost
from statemachines.persistent_sessions.session_tables import measure_load
from statemachines.persistent_sessions.takeover_record import ANSWERED
from statemachines.persistent_sessions.times import MS, Times
from statemachines.trace.log import TraceLog
from statemachines.wire import FRAME_MAX, Hello, Packet, PacketCodec

if TYPE_CHECKING:
    from statemachines.drivers.persistent_sessions.group_host import Groups
    from statemachines.drivers.persistent_sessions.group_membership import GroupMembership

logger = logging.getLogger("gapless")

SWEEP_S: Final = 1.0

SESSIONS_MAX: Final = 1_000_000
"""Sessions that a store keeps; each has a few rows, and an attacker could make ever more."""

ACKNOWLEDGED_S: Final = 0.25
"""So long what a client has acknowledged may wait for a commit."""

HALT_TURNS: Final = 200
HALT_TURN_S: Final = 0.01
"""A node that ends in good order waits for its sessions to be left, for so many turns of its loop: 2 s, or more where
it is not given the processor."""

UNFINISHED_LEASES: Final = 2
"""A message of QoS 2 whose rows are not all stored for so many leases is finished by any node."""

GIVE_IT_TIME: Final = (
    "its clients go to other nodes meanwhile, and others read what it had; give it a process and processor time of its "
    "own, or a longer --lease-ms"
)
"""What an operator does about a node that stands still."""

NODE_FRAME_MAX: Final = 2 * FRAME_MAX
"""A direct message has as many bytes as the longest packet of MQTT by default, and its receivers."""

KNOWN_MAX: Final = 1_000
"""Lives of nodes that are remembered to be such."""


WITHOUT_TURN: Final = frozenset({Puback, PublishWanted, PublishWithHead})
"""Messages of clients that go to no machine when they come."""


class SessionNode:
    """`store`: a file, or the URL of a database, that all nodes share; `name`: of this node, its own; `listen`: where
    it accepts nodes and clients (None: clients of this process alone, and it hears nothing of other nodes but through
    the store); `peers`: where the other nodes listen; `times`, `life_times`: how long its parties wait; `graces`: how
    long it leaves alone what nobody seems to need (None: it deletes nothing); `max_sessions`: beyond
    so many that the store keeps, whoever has them, this node opens none for a client without one; `max_connections`: of
    clients and nodes together, that it has at a time; `bounds`: what may
    wait for a session, beyond which its oldest messages are dropped (None: `SessionBounds()`); `lease_ms`: a
    node that has said nothing to the store for so long is dead for the others; `look_ms`: how often it looks there for
    what it was not told; `groups`: where the groups are that its sessions may share streams with (None: they share with
    nobody); `credentials`: what others must prove; `authorize`: a hook, or a `PermissionFile`, that says what clients
    may do (None: everything; one with a certificate connects under a name of that), and `authorize_s`: how long a hook
    may take, in seconds; `durability`: what a message that is stored survives; `trace`: directory for its log;
    `observe` sees every step.

    Entering it waits for a store that is not there, starts or is busy.  Raises `ConfigurationError` for values that
    cannot be, and for a store that cannot be opened.
    """

    def __init__(
        self,
        store: str | Path,
        *,
        name: str,
        listen: Address | None = None,
        peers: Sequence[Address] = (),
        times: Times | None = None,
        life_times: LifeTimes | None = None,
        graces: Graces | None = GRACES,
        lease_ms: int = 5_000,
        look_ms: int = 1_000,
        max_sessions: int = SESSIONS_MAX,
        max_connections: int = CONNECTIONS_MAX,
        bounds: SessionBounds | None = None,
        groups: Groups | None = None,
        credentials: Credentials = NONE,
        authorize: Authorize | PermissionFile | None = None,
        authorize_s: float = AUTHORIZE_S,
        durability: Durability = Durability.PROCESS,
        trace: Path | None = None,
        observe: Observer | None = None,
    ) -> None:
        bounded = {"max_sessions": max_sessions, "max_connections": max_connections}
        for key, value in {"lease_ms": lease_ms, "look_ms": look_ms, **bounded}.items():
            if isinstance(value, bool) or value < 1:
                raise ConfigurationError(key, value, "at least 1" if key in bounded else "at least 1 millisecond")
        incarnation(name, 1)
        credentials.check_peers(peers, NODE.name)
        self.name = name
        self._where = store
        self._durability = durability
        self._listen = listen
        self._peers = {f"peer:{place}": address for place, address in enumerate(peers, 1)}
        self._times = times or Times()
        self._life_times = life_times or LifeTimes()
        self._graces = graces
        self._lease_ms = lease_ms
        self._look_ms = look_ms
        self._max_sessions = max_sessions
        self._max_connections = max_connections
        self._bounds = bounds or SessionBounds()
        self.messages_dropped = 0
        """Of sessions that had more waiting than they may, dropped by this node."""
        self.groups = groups
        """May be set until the node is entered."""
        self._carrier: GroupMembership | None = None
        self.shares_streams = False
        """What is published to this node goes to groups, too: their streams are in its database."""
        self._refused = RateLimitedLog(steady_ns)
        self._credentials = credentials
        self.authority = Authority(authorize, limit_s=authorize_s, who=name)
        """What clients may do; its `reload()` has all of them asked again."""
        self._trace = trace
        self._traced_protocols = [PROTOCOL]
        self._observe = observe
        self._log: TraceLog | None = None
        self._alive: set[str] = set()
        self._nodes: set[str] = set()
        self._brought: list[tuple[str, Publish | Pubrel]] = []
        """What the turn that is under way has for clients, by their owners."""
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def address(self) -> Address:
        """Where it listens."""
        return self._transport.address

    @property
    def life(self) -> str:
        """This life of the node."""
        return self._runtime.life

    @property
    def backlog(self) -> Backlog | None:
        """What waits in the store, as its collector has found last (None: it has not, or it has none)."""
        return self._store.backlog

    def trace_protocol(self, protocol: str) -> None:
        """The log of the node is to have rows of this protocol, too.  It cannot once its head is written."""
        if self._log is None:
            self._traced_protocols.append(protocol)

    def find_tracer(self, protocol: str) -> TraceStep | None:
        """What writes a step of this protocol to the log of the node (None: there is no log, or none for it)."""
        is_traced = self._log is not None and protocol in self._traced_protocols
        return self._runtime.trace_step if is_traced else None

    async def __aenter__(self) -> Self:
        self._store, held = await retry_while_unavailable(self._open, who=self.name)
        try:
            await self._begin(held)
        except BaseException:
            await self._store.close()
            raise
        return self

    async def _open(self) -> tuple[SessionStore, StoredLife]:
        """The store, and a life of this node in it; or neither."""
        store = await asyncio.to_thread(open_session_store, self._where, durability=self._durability)
        try:
            return store, await store.begin_life(self.name, self._lease_ms)
        except BaseException:
            await store.close()
            raise

    async def _begin(self, held: StoredLife) -> None:
        life = incarnation(self.name, held.number, chance_bits())
        number = node_number(life)
        if self._trace is not None:
            self._log = begin_log(self._trace, life, self._traced_protocols, stores={PROTOCOL: held.identity.hex()})
        self.request_queue = RequestQueue(self._store, held)
        if self._graces is not None:
            self._store.bound_sessions(self._bounds, self._graces.retention_ms)
        self._runtime = Runtime(
            life,
            number,
            {DATABASE: self._serve},
            handle=self._hear,
            answered=lambda party, answer, now_ns: self.machines.feed(party, answer, now_ns),
            route_tell=self._route_tell,
            log=self._log,
            observe=self._observe,
            standing=LoopWatchdog(self.name, self._lease_ms * MS, steady_ns, GIVE_IT_TIME),
        )
        self.machines = SessionHost(
            life,
            self._times,
            self._life_times,
            graces=self._graces,
            sessions_max=self._max_sessions,
            now_ns=steady_ns(),
            observe=self._runtime.observe,
        )
        self._lookout = LagMonitor(self.machines)
        self.reception = SessionServer(
            self.machines,
            self._runtime,
            self.request_queue,
            self._say,
            steady_ns,
            self._lease_ms,
            self.request_queue.call_soon,
            self.authority,
            lambda party: Identity(self._transport.names_of(party), self._credentials.mutual),
            self._say_directly,
            self._say_all,
        )
        self._transport = TcpTransport(
            life=life,
            role=NODE,
            receive=self._receive,
            codec=PacketCodec(NODE.takes, NODE_FRAME_MAX),
            listen=self._listen,
            dial=self._peers,
            credentials=self._credentials,
            store=held.identity.hex(),
            left=self._lose_peer,
            connections_max=self._max_connections,
        )
        self._runtime.attach(self.machines, self)
        await self._begin_carrier()
        await self._transport.__aenter__()
        wills = WillSender(self.request_queue, self.reception, self.authority)
        for work in (self.request_queue.run, self._look, self._finish, self._commit, self._sweep, wills.run):
            self._tasks.append(asyncio.ensure_future(self._work(work)))
        self._beats = asyncio.ensure_future(self._work(self._beat))
        self._tasks.append(self._beats)

    async def _begin_carrier(self) -> None:
        if self.groups is None:
            return
        from statemachines.drivers.persistent_sessions.group_host import share_database
        from statemachines.drivers.persistent_sessions.group_membership import (
            GroupMembership,  # a node without groups needs none of it
            GroupUpkeep,
        )

        self.shares_streams = await share_database(self._where, self.groups)
        if self.shares_streams:
            self._store.share_streams()
        server = self.reception
        server.carrier = self._carrier = GroupMembership(
            self.groups,
            self.name,
            self.request_queue,
            server.messages,
            server.is_denied,
            server.refuse_group,
            self._runtime.fail,
        )
        upkeep = GroupUpkeep(self._carrier, self.groups, self.request_queue)
        for work in (self._carrier.run, upkeep.give_returned, upkeep.end_idle):
            self._tasks.append(asyncio.ensure_future(self._work(work)))

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        if self._runtime.failed is None:
            halted = asyncio.ensure_future(self._halt())
            for _ in range(HALT_TURNS):
                if (await asyncio.wait({halted}, timeout=HALT_TURN_S))[0]:
                    break
            halted.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await halted
            self.reception.farewell()  # else, over a dead store, a client of this process would never hear of it
        await self.abort()

    async def abort(self) -> None:
        """Stop as if the process had died: no session is left.  In place of leaving the `async with`."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.authority.close()
        await self._runtime.close()
        await self._transport.__aexit__(None, None, None)
        await self._store.close()
        if self._log is not None:
            self._log.close()

    def fail(self, error: BaseException) -> None:
        """It cannot go on: something of its process that it needs has failed."""
        self._runtime.fail(error)

    async def wait_for_failure(self) -> None:
        """Wait until the node cannot go on, and raise why."""
        await self._runtime.wait_for_failure()

    async def _halt(self) -> None:
        """Everybody goes elsewhere, and others need not wait for the end of our lease."""
        self.reception.close()
        while self.machines.owners:
            await asyncio.sleep(HALT_TURN_S)
        if self._carrier is not None:
            await self._carrier.close()
        self.reception.farewell()
        self._beats.cancel()  # the last word is that we are gone
        await self.request_queue.ask(Beat(self.name, 0))

    # -- its own work ---------------------------------------------------------------------------------------------

    async def _work(self, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
        except Exception as error:
            self._runtime.fail(error)

    async def _beat(self) -> None:
        """Say to the store that we live; a store that does not answer is asked once, and not again and again."""
        while True:
            done = asyncio.Event()
            self.request_queue.give_first(Beat(self.name, self._lease_ms), lambda answer, done=done: done.set())  # type: ignore[misc]
            await done.wait()
            await asyncio.sleep(self._lease_ms / 3_000)

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(self._look_ms / 1_000)
            alive = {*await self.request_queue.ask(ReadNodes())}
            for gone in sorted(self._alive - alive - {self.name}):
                self._runtime.act(partial(self.machines.lose_writer, gone))
            self._alive = alive
            watched = self._lookout.list_watched()
            if watched:
                seen = await self.request_queue.ask(Look(self.name, watched))
                self._runtime.act(partial(self._lookout.take, seen))

    async def _finish(self) -> None:
        """Finish what another node has begun, and not for long."""
        while True:
            await asyncio.sleep(self._look_ms / 1_000)
            found = await self.request_queue.ask(ReadUnfinished(UNFINISHED_LEASES * self._lease_ms))
            done = asyncio.Event()
            self.reception.messages.finish(found, done.set)
            await done.wait()

    async def _commit(self) -> None:
        while True:
            await asyncio.sleep(ACKNOWLEDGED_S)
            self._runtime.act(self.machines.commit_acknowledged)

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_S)
            self._watch_store()
            self.reception.lose_silent()
            self.messages_dropped += await drop_rows(self._store.take_drops(), self.request_queue.ask)

    def _watch_store(self) -> None:
        clients = len(self.reception.visitors)
        if not self.reception.watch_store():
            return
        if self.reception.is_cut_off:
            what = "%s: the store has not answered for %g s; its %d clients are sent to other nodes until it answers"
            logger.warning(what, self.name, self._lease_ms / 1_000, clients)
        else:
            logger.warning("%s: the store answers again; clients are served again", self.name)

    # -- messages -------------------------------------------------------------------------------------------------

    def _receive(self, packet: Packet[Any]) -> None:
        """What comes over the transport.  What a client has acknowledged or publishes waits for what comes with it, so
        it makes no turn of the machines; a log has a row of each."""
        if self._log is not None or type(packet.message) not in WITHOUT_TURN:
            self._runtime.receive(packet)
            return
        try:
            self.reception.hear(packet.sender, packet.message)
        except RemoteProtocolError as error:
            self._runtime.drop(packet, error)
        except Exception as error:
            self._runtime.fail(error)

    def send(self, packet: Packet[Any]) -> None:
        """What a machine sends: to its client, to a party here, or to another node."""
        message = packet.message
        if type(message) is Publish or type(message) is Pubrel:
            self._brought.append((packet.sender, message))
            if len(self._brought) == 1:
                self._runtime.run(self._bring)
        elif node_of(packet.to) == self.name:
            self._runtime.receive(packet)
        elif type(message) in ANSWERED and not self._transport.is_peer_of(NODE.name, packet.to):
            self._runtime.act(partial(self.machines.fail_to_send, packet.sender, packet.to, message))
        else:
            self._transport.send(packet)

    def _bring(self, now_ns: int = 0) -> list[Outgoing]:
        """What a turn has for clients is one run for each of them."""
        brought, self._brought = self._brought, []
        self.reception.bring(brought)
        return []

    def _serve(self, party: str, request: Request, feed: Feed) -> None:
        """What a machine asks, with what the clients need beside it."""
        reception = self.reception
        self.request_queue.serve(party, reception.prepare_request(request), feed, reception.answers_of)

    def _say(self, party: str, message: Message) -> bool:
        dropped = self._transport.dropped
        self._transport.send(Packet(self.life, party, 0, message))
        return self._transport.dropped == dropped

    def _say_all(self, party: str, messages: Sequence[Delivered | Pubrel | PublishStored]) -> bool:
        life = self.life
        left = [Packet(life, party, 0, one) for one in messages]
        while left:
            left = left[self._transport.send_all(left) :]
            if left and getattr(left.pop(0).message, "packet", True):  # an answer has none, and may not be missing
                return False
        return True

    def _say_directly(self, party: str, message: Message) -> bool:
        """What may be lost leaves room for what other nodes wait for."""
        is_slow = self._transport.count_waiting(party) > BUFFER_MAX // 2
        return not is_slow and self._say(party, message)

    def _hear(self, sender: str, to: str, message: Any, now_ns: int) -> list[Outgoing]:
        if not isinstance(message, NodeMessage):
            self.reception.hear(sender, message)
            return []
        if life_of(sender) != self.life and not self._is_node(sender):
            raise RemoteProtocolError("session_node", "-", name_of(type(message)), "", "only nodes say that")
        if isinstance(message, DirectMessage):
            self.reception.direct.take(message)
            return []
        return self.machines.receive(sender, to, message, now_ns)

    def _is_node(self, party: str) -> bool:
        life = life_of(party)
        if life in self._nodes:
            return True
        if not self._transport.is_peer_of(NODE.name, party):
            return False
        if len(self._nodes) >= KNOWN_MAX:
            self._nodes.clear()
        self._nodes.add(life)
        return True

    def _route_tell(self, party: str, event: Event) -> None:
        if self._brought:
            self._bring()  # what came before goes out before
        if isinstance(event, MessageLost):
            what = "message %s is older than the retention and was deleted: %d sessions have not had it"
            logger.warning(what, event.message, event.rows)
        elif isinstance(event, SessionClosed) and event.why == "full":
            self._say_full()
        self.reception.route_tell(party, event)

    def _say_full(self) -> None:
        """Once in a while, however many are refused."""
        if not self._refused.count_event():
            return
        what = "the store keeps %d sessions or more (--max-sessions): %d clients without one refused so far; "
        what += "let sessions expire or be discarded, or allow more"
        logger.warning(what, self._max_sessions, self._refused.count)

    def _lose_peer(self, hello: Hello, dialled: bool) -> None:
        """A client is gone; or a node can send us nothing any more: what was on its way is lost."""
        if hello.role != NODE.full_name:
            self.reception.lose(hello.life)
        elif not dialled:
            self._runtime.act(lambda now_ns: self.machines.lose_link(hello.node, now_ns))


def read_metrics(node: SessionNode) -> list[Metric]:
    """What it has in hand, and what it has counted since it began."""
    host = node.machines
    load = measure_load(map(host.resume_of, host.owners))
    writing = sum(len(host.nodes[party].record.inbox) for party in host.writers.values())
    return [
        Metric("sessions_connected", "gauge", "clients whose sessions this node has", len(host.owners)),
        Metric("sessions_resumed", "gauge", "sessions that this node delivers", load.resumed),
        Metric("messages_in_flight", "gauge", "sent and not acknowledged", load.in_flight),
        Metric("messages_queued", "gauge", "read, and waiting for a client", load.queued),
        Metric("rows_blocked", "gauge", "read, and waiting for older rows", load.blocked),
        Metric("rows_unwritten", "gauge", "handed over, and waiting for a writer", writing),
        Metric("requests_waiting", "gauge", "requests that wait for the store", len(node.request_queue)),
        Metric("store_silent_seconds", "gauge", "how long the store owes an answer", node.request_queue.silent_s),
        *list_backlog(node.backlog, node.messages_dropped),
        Metric(
            "direct_messages_dropped",
            "counter",
            "messages of QoS 0 for clients that were gone, or whose node was out of reach or slow",
            node.reception.direct.dropped,
        ),
    ]


def find_trouble(node: SessionNode) -> str:
    """Why it serves nobody ("": it does)."""
    return f"the store has not answered for {node.request_queue.silent_s:.1f} s" if node.reception.is_cut_off else ""


def watch_node(node: SessionNode, address: str) -> AbstractAsyncContextManager[None]:
    """Its counters and its health can be read at `address` meanwhile ("": nowhere)."""
    return serve_metrics(address, lambda: read_metrics(node), lambda: find_trouble(node))
