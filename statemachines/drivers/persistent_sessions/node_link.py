"""NodeLink: one connection of a client to a node, over TCP or within the process.

    link = await NodeLink.dial(("10.0.0.1", 7601), hear, ended)        # or NodeLink.local(node, hear, ended)
    link.say(Ping())
    await link.close()

`hear(message)` is called for each message of the node, `ended()` once, when the connection is gone without our doing.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Final

from statemachines.drivers.complaint_log import ComplaintLog
from statemachines.drivers.credentials import NONE, Credentials
from statemachines.drivers.identity import Identity
from statemachines.drivers.lives import chance_bits, chance_name
from statemachines.drivers.persistent_sessions.front_message import DeliveryRun
from statemachines.drivers.persistent_sessions.node_roles import CLIENT
from statemachines.drivers.persistent_sessions.session_node import SessionNode
from statemachines.drivers.tcp import Address, TcpTransport
from statemachines.kernel import GaplessError, Message, incarnation
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
