"""Runtime: a host of machines on an asyncio loop.

It feeds the host, writes the rows of what happened, and only then performs the effects: sends, requests to stores,
tells.  Each answer of a store is an event.  Nothing re-enters: what comes up while effects are performed waits.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

from statemachines.drivers.clock import Clock
from statemachines.kernel import (
    Answer,
    Ask,
    Event,
    Host,
    Message,
    Node,
    Outgoing,
    RemoteProtocolError,
    Request,
    Send,
    Step,
    Tell,
    node_of,
)
from statemachines.kernel.node import Observer
from statemachines.trace import TraceRow, event_row, step_rows
from statemachines.trace.log import TraceLog, wall_offset_ns
from statemachines.wire import Packet, shown

logger = logging.getLogger("gapless")

Service = Callable[[str, Any], Awaitable[tuple[Answer, ...]]]
"""(party, request) -> the answers of a real store."""


class Transport(Protocol):
    """What carries packets; one for whom nobody is there is dropped."""

    def send(self, packet: Packet[Any]) -> None:
        """Send, or drop; never block, never raise."""
        ...


class Runtime:
    """`life` is the incarnation, `number` what its messages are numbered from, `log` where rows go (None: nowhere),
    `clock` the monotonic one, `offset_ns` what to add to it for the times of rows, `observe` sees every
    step, `refused` every message that is dropped because the protocol does not take it.

    `receive(packet)` is what a transport calls; `handle(sender, to, message, now_ns)` and `answered(party, answer,
    now_ns)` feed the host; `told(party, event)` is the application's side.
    """

    def __init__(
        self,
        life: str,
        number: int,
        services: Mapping[str, Service],
        *,
        handle: Callable[[str, str, Any, int], list[Outgoing]],
        answered: Callable[[str, Answer, int], list[Outgoing]],
        told: Callable[[str, Event], None],
        log: TraceLog | None = None,
        clock: Clock = time.monotonic_ns,
        offset_ns: int | None = None,
        observe: Observer | None = None,
        refused: Callable[[RemoteProtocolError], None] | None = None,
    ) -> None:
        self.life = life
        self.node = node_of(life)
        self.failed: BaseException | None = None
        self.on_failure: Callable[[], None] = lambda: None
        self._services = services
        self._handle = handle
        self._answered = answered
        self._told = told
        self._log = log
        self._rows: list[TraceRow] = []
        self._clock = clock
        self._offset = wall_offset_ns() if offset_ns is None else offset_ns
        self._observe = observe
        self._refused = refused
        self._msg = number << 40
        self._handled = -1
        self._running = False
        self._queue: deque[Callable[[int], list[Outgoing]]] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self._wake: asyncio.TimerHandle | None = None
        self._wake_at = 0
        self._host: Host | None = None
        self._transport: Transport | None = None

    def attach(self, host: Host, transport: Transport) -> None:
        """The host whose observer is `self.observe`, and what carries its messages."""
        self._host = host
        self._transport = transport

    # -- what comes in ------------------------------------------------------------------------------------------

    def run(self, act: Callable[[int], list[Outgoing]]) -> None:
        """Let `act(now_ns)` feed the host, and perform what comes out; called from within, it waits its turn."""
        if self._running:
            self._queue.append(act)
            return
        self._running = True
        try:
            self._perform(act(self._clock()))
            while self._queue:
                self._perform(self._queue.popleft()(self._clock()))
        finally:
            self._running = False
            self._flush()
        self._rearm()

    def receive(self, packet: Packet[Any]) -> None:
        """A message from the network; one that the protocol does not take is logged and dropped."""

        def act(now_ns: int) -> list[Outgoing]:
            self._note_message("deliver", now_ns, packet.to, packet.message, packet.sender, packet.msg)
            self._handled = packet.msg
            try:
                return self._handle(packet.sender, packet.to, packet.message, now_ns)
            except RemoteProtocolError as error:
                logger.warning("dropped a message of %s: %s", shown(packet.sender), shown(str(error)))
                if self._refused is not None:
                    self._refused(error)
                return []
            finally:
                self._handled = -1

        self._guarded(act)

    def observe(self, node: Node[Any], event: Event, before: Any, step: Step[Any], now_ns: int) -> None:
        """The observer of every node of the host."""
        if self._log is not None:
            self._rows.extend(step_rows(node, event, before, step, now_ns + self._offset, self._handled))
        if self._observe is not None:
            self._observe(node, event, before, step, now_ns)

    async def close(self) -> None:
        """Stop: no timer fires any more, no answer is waited for."""
        if self._wake is not None:
            self._wake.cancel()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # -- what goes out ------------------------------------------------------------------------------------------

    def _perform(self, out: list[Outgoing]) -> None:
        """Rows first, in one write; then the effects in their order."""
        packets = [self._packet(party, effect) for party, effect in out]
        self._flush()
        for (party, effect), packet in zip(out, packets, strict=True):
            if packet is not None:
                assert self._transport is not None
                self._transport.send(packet)
            elif isinstance(effect, Ask):
                self._ask(party, effect)
            elif isinstance(effect, Tell):
                self._told(party, effect.event)

    def _packet(self, party: str, effect: Any) -> Packet[Any] | None:
        """The packet of a `Send`; the row of anything."""
        now_ns = self._clock()
        if isinstance(effect, Send):
            msg, self._msg = self._msg, self._msg + 1
            self._note_message("send", now_ns, party, effect.message, effect.to, msg)
            return Packet(party, effect.to, msg, effect.message)
        if self._log is not None:
            if isinstance(effect, Ask):
                self._note(event_row(self._at(now_ns), self.node, party, "ask", effect.request, peer=effect.service))
            elif isinstance(effect, Tell):
                machine = self._machine(party)
                self._note(event_row(self._at(now_ns), self.node, party, "tell", effect.event, machine=machine))
        return None

    def _machine(self, party: str) -> str:
        node = None if self._host is None else self._host.nodes.get(party)
        return "" if node is None else node.fsm.full_name

    def _ask(self, party: str, effect: Ask) -> None:
        task = asyncio.get_running_loop().create_task(self._answer(party, effect.service, effect.request))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, party: str, service: str, request: Request) -> None:
        try:
            answers = await self._services[service](party, request)
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            self._fail(error)
            return
        for answer in answers:
            self._guarded(lambda now_ns, answer=answer: self._answered(party, answer, now_ns))  # type: ignore[misc]

    def _rearm(self) -> None:
        """One handle on the loop, for the earliest deadline."""
        assert self._host is not None
        deadline = self._host.deadline()
        if deadline is None or (self._wake is not None and self._wake_at == deadline):
            return
        if self._wake is not None:
            self._wake.cancel()
        delay = max(deadline - self._clock(), 0) / 1e9
        self._wake_at = deadline
        self._wake = asyncio.get_running_loop().call_later(delay, self._fire)

    def _fire(self) -> None:
        self._wake = None
        host = self._host
        assert host is not None
        self._guarded(host.fire)

    def _guarded(self, act: Callable[[int], list[Outgoing]]) -> None:
        """From the loop: an error that is nobody's fault but ours stops the node, and is raised where it is used."""
        try:
            self.run(act)
        except Exception as error:
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        if self.failed is None:
            logger.error("node %s stops: %s", self.life, error, exc_info=error)
            self.failed = error
            self.on_failure()

    # -- rows ---------------------------------------------------------------------------------------------------

    def note(self, row: TraceRow) -> None:
        """A row of the application's own, written with the next ones."""
        self._note(row)

    def _at(self, now_ns: int) -> int:
        return now_ns + self._offset

    def _note(self, row: TraceRow) -> None:
        if self._log is not None:
            self._rows.append(row)

    def _note_message(self, kind: str, now_ns: int, party: str, message: Message, peer: str, msg: int) -> None:
        if self._log is not None:
            self._note(event_row(self._at(now_ns), self.node, party, kind, message, peer=peer, msg=msg))

    def _flush(self) -> None:
        if self._rows and self._log is not None:
            rows, self._rows = self._rows, []
            self._log.write(rows)
