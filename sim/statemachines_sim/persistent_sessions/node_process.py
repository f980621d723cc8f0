"""SessionNodeProcess: one life of a node: the machines, the clients and the look-out of a real one, over a simulated
network and database.

What `SessionNode` does with a loop and sockets this does by the clock of the simulation; everything else is the same
code: `SessionHost`, `SessionServer`, `Outbox`, `LagMonitor`.

DatabaseQueue: the requests of one process to the database, in their order, in batches, each until it is answered.

What `RequestQueue` does in a real node, by the clock of the simulation.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

from statemachines.drivers.persistent_sessions.host_requests import Beat, Look, ReadNodes
from statemachines.drivers.persistent_sessions.node_messages import NodeMessage
from statemachines.drivers.persistent_sessions.request_queue import BATCH_MAX, Taker
from statemachines.drivers.persistent_sessions.session_server import SessionServer
from statemachines.drivers.persistent_sessions.store import StoredLife, is_read
from statemachines.drivers.persistent_sessions.upkeep import LagMonitor
from statemachines.kernel import (
    Answer,
    Ask,
    Event,
    GaplessError,
    Host,
    Message,
    Node,
    Outgoing,
    RemoteProtocolError,
    Request,
    Step,
    node_of,
)
from statemachines.persistent_sessions.life_record import SessionClosed
from statemachines.persistent_sessions.message import Publish, Pubrel
from statemachines.persistent_sessions.request import DATABASE
from statemachines.persistent_sessions.session_host_parties import owner_of
from statemachines.persistent_sessions.session_host_process import SessionHost
from statemachines.persistent_sessions.session_host_record import (
    LeaveClient,
    LoseClient,
    OwnerOpened,
    TakeAcknowledgements,
)
from statemachines.persistent_sessions.takeover_record import ANSWERED
from statemachines_sim.cluster import SimCluster
from statemachines_sim.network import Packet
from statemachines_sim.node_life import NodeLife
from statemachines_sim.persistent_sessions.database import Batch, BatchDone, BatchRefused, BeginLife, LifeBegun
from statemachines_sim.persistent_sessions.section import SessionSection
from statemachines_sim.persistent_sessions.watch import SessionWatch
from statemachines_sim.persistent_sessions.wires import wires_of
from statemachines_sim.units import MS

AGAIN_NS = (20 * MS, 1_000 * MS)
"""First and longest pause before something that failed is asked again."""


class DatabaseQueue:
    """Of a `process`; `refused(why)`: the database does not know it any more."""

    def __init__(self, process: NodeLife, refused: Callable[[GaplessError], None]) -> None:
        self.asked_ns: int | None = None
        """When the batch was given first that is not answered yet (None: everything is)."""
        self._process = process
        self._refused = refused
        self._life: StoredLife | None = None
        self._number = 0
        self._waiting: deque[tuple[Any, Taker]] = deque()
        self._busy = False

    def begin(self, lease_ms: int, begun: Callable[[StoredLife], None]) -> None:
        """Begin a life of the node, before anything else."""

        def take(answer: Any) -> None:
            self._life = answer.life
            begun(answer.life)

        self._ask(BeginLife(self._process.node, lease_ms), LifeBegun, take)

    def give(self, request: Any, take: Taker) -> None:
        """Ask; `take` hears the answer, behind those to whatever was asked before."""
        self._waiting.append((request, take))
        self._go_on()

    def give_first(self, request: Any, take: Taker) -> None:
        """The same, ahead of whatever waits."""
        self._waiting.appendleft((request, take))
        self._go_on()

    def _go_on(self) -> None:
        if self._busy or not self._waiting or self._life is None:
            return
        count = min(BATCH_MAX, len(self._waiting))
        batch = [self._waiting.popleft() for _ in range(count)]
        requests = tuple([request for request, _ in batch])
        number = 0
        if not all(map(is_read, requests)):
            self._number = number = self._number + 1

        def take(answer: Any) -> None:
            for (_, taker), one in zip(batch, answer.answers, strict=True):
                taker(one)
            self._busy, self.asked_ns = False, None
            self._go_on()

        self._busy, self.asked_ns = True, self._process.local_now()
        self._ask(Batch(self._life, number, requests), BatchDone, take)

    def _ask(
        self, request: Request, wanted: type[Answer], take: Callable[[Any], None], pause: int = AGAIN_NS[0]
    ) -> None:
        process = self._process

        def again() -> None:
            self._ask(request, wanted, take, min(2 * pause, AGAIN_NS[1]))

        def hear(answer: Answer) -> None:
            if isinstance(answer, BatchRefused):
                self._refused(answer.why)
            elif isinstance(answer, wanted):
                take(answer)
            else:
                process.after(pause, again)

        party = f"{process.life}/desk"
        process.world.devices[DATABASE].ask(process, party, request, lambda answer: process.run(lambda: hear(answer)))


COMMIT_NS = 250 * MS
SWEEP_NS = 1_000 * MS


class SessionNodeProcess(NodeLife):
    """It has machines as soon as the database knows its life; `forge`: what it sends in place of a message (None: it
    tells the truth)."""

    world: SimCluster

    def __init__(self, world: SimCluster, node: str, number: int, own: SessionSection) -> None:
        super().__init__(world, node, number)
        self.host: Host = Host()
        self.own = own
        self.wires = wires_of(world)
        self.desk = DatabaseQueue(self, self._refused)
        self.forge: Callable[[str, Message], Message] | None = None
        self.refused = 0
        """Messages of others that said what nobody may say."""
        self._alive: frozenset[str] = frozenset()
        self._real_network = world.network
        outlet: Any = self
        self._network = outlet

    def start(self) -> None:
        self.desk.begin(self.own.lease_ms, self._begin)

    @property
    def watch(self) -> SessionWatch:
        """Who judges it."""
        found: Any = self.world.watch
        return found  # type: ignore[no-any-return]

    @property
    def sessions(self) -> SessionHost | None:
        """Its machines, once its life has begun."""
        return self.host if isinstance(self.host, SessionHost) else None

    # -- its own work ---------------------------------------------------------------------------------------------

    def _begin(self, life: StoredLife) -> None:
        own, mine = self.own, self
        runtime: Any = mine  # of which the reception uses `act` alone
        desk: Any = self.desk  # and of this `give`
        self.machines = SessionHost(
            self.life,
            own.times,
            own.life_times,
            graces=own.graces,
            now_ns=self.local_now(),
            observe=self._observe,
            observe_own=self._observe_own if self.world.judging else None,
        )
        self.host = self.machines
        self.lookout = LagMonitor(self.machines)
        self.reception = SessionServer(self.machines, runtime, desk, self._say, self.local_now, own.lease_ms)
        self.perform([], self._env.now)
        self._beat()
        self._rest()
        self._commit()
        self._sweep()

    def _beat(self) -> None:
        every = self.own.lease_ms * MS // 3
        self.desk.give_first(Beat(self.node, self.own.lease_ms), lambda _: self.after(every, self._beat))

    def _rest(self) -> None:
        self.after(self.own.look_ms * MS, lambda: self.desk.give(ReadNodes(), self._look))

    def _look(self, found: tuple[str, ...]) -> None:
        alive = frozenset(found)
        for gone in sorted(self._alive - alive - {self.node}):
            self.act(partial(self.machines.lose_writer, gone))
        self._alive = alive
        watched = self.lookout.list_watched()
        if watched:
            self.desk.give(Look(self.node, watched), self._take_look)
        else:
            self._rest()

    def _take_look(self, seen: Any) -> None:
        self.act(partial(self.lookout.take, seen))
        self._rest()

    def _commit(self) -> None:
        self.act(self.machines.commit_acknowledged)
        self.after(COMMIT_NS, self._commit)

    def _sweep(self) -> None:
        self.reception.watch_store()
        self.reception.lose_silent()
        self.after(SWEEP_NS, self._sweep)

    def _refused(self, why: GaplessError) -> None:
        """The database does not know this process: nothing that happens here may end so."""
        raise why

    # -- messages -------------------------------------------------------------------------------------------------

    def receive(self, packet: Packet) -> None:
        if self.is_paused or self.wires.accepts(packet, self):
            super().receive(packet)

    def handle(self, sender: str, to: str, message: Message, now_ns: int) -> list[Outgoing]:
        if self.sessions is None:
            self.wires.refuse(sender, self.life)  # it does not listen yet
            return []
        if not isinstance(message, NodeMessage):
            heard: Any = message
            self.reception.hear(sender, heard)
            return []
        try:
            return self.machines.receive(sender, to, message, now_ns)
        except RemoteProtocolError:
            self.refused += 1
            return []

    def send(self, node: str, party: str, to: str, message: Message, now_ns: int) -> None:
        """In place of the network's: to the client, to a party here, or to another node."""
        if isinstance(message, Publish | Pubrel):
            self._real_network.note_sent(node, party, to, message, now_ns)
            self.watch.observe_send(party, message)
            self.reception.bring([(party, message)])
            return
        self.watch.says(party, message)
        if node_of(to) == node:
            packet = self._real_network.note_sent(node, party, to, message, now_ns)
            self.after(0, lambda: super(SessionNodeProcess, self).receive(packet))
            return
        if type(message) in ANSWERED and not self.wires.reaches(self, to):
            self.after(0, lambda: self.act(lambda at_ns: self.machines.fail_to_send(party, to, message, at_ns)))
            return
        if self.forge is not None:
            message = self.forge(to, message)
        self._real_network.send(node, party, to, message, now_ns)

    def _say(self, party: str, message: Message) -> bool:
        self._real_network.send(self.node, self.life, party, message, self._env.now)
        return True

    def lose_client(self, connection: str) -> None:
        """The connection is gone."""
        if self.sessions is not None:
            self.reception.lose(connection)

    def lose_link(self, node: str) -> None:
        """What another node has sent may be lost."""
        if self.sessions is not None:
            self.act(partial(self.machines.lose_link, node))

    # -- machines -------------------------------------------------------------------------------------------------

    def act(self, act: Callable[[int], list[Outgoing]]) -> None:
        """As the runtime of a real node."""
        self.perform(act(self.local_now()), self._env.now)

    def route_answer(self, party: str, answer: Any, now_ns: int) -> list[Outgoing]:
        return self.machines.feed(party, answer, now_ns)

    def route_tell(self, party: str, event: Event) -> None:
        node = self.host.nodes.get(party)
        machine = "" if node is None else node.fsm.full_name
        self._recorder.tell(self._env.now, self.node, party, machine, event)
        self.watch.tell(self, party, event, self._env.now)
        if isinstance(event, SessionClosed):
            self.watch.observe_owner(owner_of(party), event)
        self.reception.route_tell(party, event)

    def _ask(self, party: str, effect: Ask, now_ns: int) -> None:
        self._recorder.ask(now_ns, self.node, party, effect.request, effect.service)

        def take(found: Any) -> None:
            for answer in self.reception.answers_of(found):
                self._answer(party, answer)

        self.desk.give(self.reception.prepare_request(effect.request), take)

    def _observe(self, node: Node[Any], event: Event, before: Any, step: Step[Any], now_ns: int) -> None:
        self._recorder.step(node, event, before, step, now_ns)
        if self.world.judging:
            node.check()

    def _observe_own(self, node: Node[Any], event: Event, before: Any, step: Step[Any], now_ns: int) -> None:
        if isinstance(event, OwnerOpened | TakeAcknowledgements | LeaveClient | LoseClient):
            self.watch.observe_owner(event.owner, event)
