"""NodeLink: one connection of a client to a node, over TCP or within the process.

    link = await NodeLink.dial(("10.0.0.1", 7601), hear, ended)        # or NodeLink.local(node, hear, ended)
    link.say(Ping())
    await link.close()

`hear(message)` is called for each message of the node, `ended()` once, when the connection is gone without our doing.

NodeGuide: keeps a client connected to one of several nodes: where that dies or says nothing, to the next.

It dials, says what its client says first on each connection, and answers for the life of the connection with pings.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from enum import IntEnum
from typing import Any, Final

from statemachines.drivers.complaint_log import ComplaintLog
from statemachines.drivers.credentials import NONE, Credentials
from statemachines.drivers.identity import Identity
from statemachines.drivers.lives import chance_bits, chance_name
from statemachines.drivers.persistent_sessions.node_messages import CLIENT, DeliveryRun
from statemachines.drivers.persistent_sessions.session_node import SessionNode
from statemachines.drivers.tcp import Address, TcpTransport, parse_address
from statemachines.kernel import ConfigurationError, GaplessError, Message, incarnation
from statemachines.persistent_sessions.message import Farewell, Ping, Pong
from statemachines.wire import Hello, Packet

DIAL_S: Final = 2.0
"""A node that has not answered within this time is not there, unless nobody is."""

Hear = Callable[[Message], None]


class NodeUnreachable(GaplessError):
    """No node could be reached; `refusal`: why one has refused us, in its own words ("": none has)."""

    def __init__(self, text: str, refusal: str = "") -> None:
        self.refusal = refusal
        super().__init__(f"{text}; it was refused: {refusal}" if refusal else text)


class Lane:
    """Messages to `hear` within a process: later, in order, and all that are there at once; `settle` is called behind
    these; `defer` calls later (None: in the next turn of the loop)."""

    def __init__(
        self,
        hear: Callable[[Any], None],
        settle: Callable[[], None] = lambda: None,
        defer: Callable[[Callable[[], None]], object] | None = None,
    ) -> None:
        self._hear = hear
        self._settle = settle
        self._waiting: deque[Any] = deque()
        self._defer = asyncio.get_running_loop().call_soon if defer is None else defer

    def say(self, message: Any) -> bool:
        """There is always room."""
        if not self._waiting:
            self._defer(self._bring)
        self._waiting.append(message)
        return True

    def say_all(self, messages: Iterable[Any]) -> bool:
        """The same with each of these."""
        for one in messages:
            self.say(one)
        return True

    def _bring(self) -> None:
        """What is there now; one that fails, and is logged by the loop, keeps back none."""
        waiting, count = self._waiting, len(self._waiting)
        try:
            while count:
                count -= 1
                self._hear(waiting[0])
                waiting.popleft()
        except BaseException:
            waiting.popleft()
            raise
        finally:
            if waiting:
                self._defer(self._bring)
            self._settle()


class NodeLink:
    """An open connection; `dial` and `local` make one."""

    def __init__(self, say: Callable[[Any], bool], transport: TcpTransport | None, leave: Callable[[], None]) -> None:
        self.say: Callable[[Message], bool] = say
        """To the node; False: there was no room for it, and the connection is of no use any more."""
        self._transport = transport
        self.leave = leave
        """The client is gone; of a link within the process nothing is left then."""

    async def close(self) -> None:
        """End it; what was said before still goes out."""
        self.leave()
        if self._transport is not None:
            await self._transport.__aexit__(None, None, None)

    @classmethod
    def local(
        cls,
        node: SessionNode,
        hear: Hear,
        ended: Callable[[], None],
        identity: Identity | None = None,
        settle: Callable[[], None] = lambda: None,
        *,
        hears_runs: bool = False,
    ) -> NodeLink:
        """To a node of this process, for a client of this `identity` (None: it may do everything); `settle` is called
        behind messages that came together; with `hears_runs` they come as `DeliveryRun`."""
        reception, life = node.reception, incarnation(chance_name("local"), 1)
        is_left = False

        def say(message: Any) -> bool:
            if not is_left:
                reception.hear(life, message)
            return True

        def leave() -> None:
            nonlocal is_left
            is_left = True
            reception.lose(life)

        # Later: nobody hears an answer while it still speaks.
        lane = Lane(hear, settle, node.request_queue.deferred.defer)
        deliver = (lambda run: lane.say(DeliveryRun(tuple(run)))) if hears_runs else lane.say_all
        reception.enter(life, lane.say, identity, deliver)
        return cls(say, None, leave)

    @classmethod
    async def dial(
        cls,
        address: Address,
        hear: Hear,
        ended: Callable[[], None],
        *,
        name: str | None = None,
        credentials: Credentials = NONE,
        within_s: float = DIAL_S,
        complaints: ComplaintLog | None = None,
    ) -> NodeLink:
        """To the node that listens there; raises `NodeUnreachable` where none answers within so many seconds.  Who
        dials again and again gives the same `complaints`."""
        life = incarnation(name or chance_name("client"), 1, chance_bits())
        joined: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        closing = False

        def settle(refusal: str) -> None:
            if not joined.done():
                joined.set_result(refusal)

        def end(hello: Hello, dialled: bool) -> None:
            if not closing:
                ended()

        transport = TcpTransport(
            life=life,
            role=CLIENT,
            receive=lambda packet: hear(packet.message),
            dial={"node": address},
            credentials=credentials,
            joined=lambda hello: settle(""),
            left=end,
            refused=settle,
            complaints=complaints,
        )

        def leave() -> None:
            nonlocal closing
            closing = True

        def say(message: Message) -> bool:
            dropped = transport.dropped
            transport.send(Packet(life, "node", 0, message))
            return transport.dropped == dropped

        await transport.__aenter__()
        try:
            async with asyncio.timeout(within_s):
                refusal = await joined
            if refusal:
                raise NodeUnreachable("the node of sessions at {}:{} takes no connection".format(*address), refusal)
        except BaseException as error:
            leave()
            await transport.__aexit__(None, None, None)
            if isinstance(error, TimeoutError):
                where = "{}:{}".format(*address)
                raise NodeUnreachable(f"no node of sessions answers at {where} within {within_s:g} s") from error
            raise
        return cls(say, transport, leave)


logger = logging.getLogger("gapless")

PING_S: Final = 0.5
"""How often a node is asked whether it lives."""

SILENT_PINGS: Final = 4
"""A node that has said nothing behind so many of them is left: it may be stopped, and its connection look sound.  They
are counted, and no time is taken: where it is our own loop that stood still, nobody was asked."""

SPEAK_PINGS: Final = 8
"""A client that has said nothing for so many of them says one: its node gives up who is silent for 15 s."""

AGAIN_S: Final = (0.05, 1.0)
"""First and longest pause before the nodes are tried again."""

DIAL_MAX_S: Final = 10.0
"""So long a node has at most to answer: where none does they may be slow, or we; a crowd that begins anew every two
seconds would be answered never."""

Place = Address | SessionNode


class PlaceOutcome(IntEnum):
    """What came of a place; the lowest are tried first."""

    SERVED = 0
    NO_STORE = 1
    SILENT = 2
    """Nobody was there, or the node said nothing any more."""


def places_of(node: SessionNode | None, nodes: Sequence[str]) -> tuple[Place, ...]:
    """Where a client may connect to; raises `ConfigurationError` unless one of the two is given."""
    if (node is None) == (not nodes):
        raise ConfigurationError(
            "nodes", tuple(nodes), "give either `node`, of this process, or `nodes`, HOST:PORT each"
        )
    return (node,) if node is not None else tuple(parse_address(one) for one in nodes)


class NodeGuide:
    """`opened()` is called on each new connection, `heard(message)` for what the node says, `closed()` where the
    connection is gone; `say` is for the time between `opened` and `closed`."""

    def __init__(
        self,
        places: Sequence[Place],
        *,
        opened: Callable[[], None],
        heard: Callable[[Message], None],
        closed: Callable[[], None],
        name: str | None = None,
        credentials: Credentials = NONE,
    ) -> None:
        self._places = list(places)
        self._opened = opened
        self._heard = heard
        self._closed = closed
        self._name = name
        self._credentials = credentials
        self._complaints = ComplaintLog()
        self._link: NodeLink | None = None
        self._over = asyncio.Event()
        self._unanswered = 0
        self._unspoken = 0
        self._has_heard = False
        """Since the last ping was due."""
        self._outcome = PlaceOutcome.SERVED
        self._dial_s = DIAL_S
        self.refusal = ""
        """Why the last node that could be reached has refused us ("": none has since one served us)."""

    def say(self, message: Message) -> None:
        """To the node; what there is no room for ends the connection."""
        self._unspoken = 0
        if self._link is not None and not self._link.say(message):
            self._over.set()

    def leave_node(self) -> None:
        """This node is of no use: go to the next."""
        self._over.set()

    async def run(self) -> None:
        """Until it is cancelled; what is silent is tried last (PS-562)."""
        pause = AGAIN_S[0]
        while True:
            outcomes = {place: await self._serve(place) for place in self._places}
            self._places.sort(key=outcomes.__getitem__)
            best = min(outcomes.values())
            if best is PlaceOutcome.SERVED:
                pause = AGAIN_S[0]
            self._dial_s = min(2 * self._dial_s, DIAL_MAX_S) if best is PlaceOutcome.SILENT else DIAL_S
            await asyncio.sleep(pause)
            if best is not PlaceOutcome.SERVED:
                pause = min(2 * pause, AGAIN_S[1])

    async def _serve(self, place: Place) -> PlaceOutcome:
        """One connection from its beginning to its end."""
        self._over.clear()
        try:
            link = await self._connect(place)
        except NodeUnreachable as error:
            logger.info("%s", error)
            self.refusal = error.refusal or self.refusal
            return PlaceOutcome.SILENT
        self._link = link
        try:
            self._unanswered = 0
            self._outcome = PlaceOutcome.SERVED
            self._opened()
            await self._watch()
        finally:
            self._link = None
            self._closed()
            await link.close()
        if self._outcome is PlaceOutcome.NO_STORE:
            self._note_refusal(place)
        return self._outcome

    def _note_refusal(self, place: Place) -> None:
        """A node is there and has no store: say so, once (PS-563)."""
        where = place.name if isinstance(place, SessionNode) else "{}:{}".format(*place)
        refusal = f"the store of the node at {where} is busy or away; the log of the node says who holds it"
        if refusal != self.refusal:
            logger.warning("%s; trying the next", refusal)
        self.refusal = refusal

    async def _connect(self, place: Place) -> NodeLink:
        if isinstance(place, SessionNode):
            return NodeLink.local(place, self._take, self._over.set)
        return await NodeLink.dial(
            place,
            self._take,
            self._over.set,
            name=self._name,
            credentials=self._credentials,
            within_s=self._dial_s,
            complaints=self._complaints,
        )

    async def _watch(self) -> None:
        """Until the connection is over, or the node is silent."""
        while not self._over.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(PING_S):
                    await self._over.wait()
            if self._unanswered >= SILENT_PINGS:
                logger.warning("the node says nothing for %g s; trying the next", SILENT_PINGS * PING_S)
                self._outcome = PlaceOutcome.SILENT
                return
            if self._is_ping_due():
                self.say(Ping())

    def _is_ping_due(self) -> bool:
        """Whether to ask the node if it lives: one that has just said something does (PS-462)."""
        self._unanswered += 1
        self._unspoken += 1
        has_heard, self._has_heard = self._has_heard, False
        return not has_heard or self._unspoken > SPEAK_PINGS

    def _take(self, message: Message) -> None:
        if self._link is None:
            return
        self._unanswered = 0
        self._has_heard = True
        if isinstance(message, Pong):
            return
        if not isinstance(message, Farewell):
            self.refusal = ""
        elif message.why == "no_store":
            self._outcome = PlaceOutcome.NO_STORE
        self._heard(message)
