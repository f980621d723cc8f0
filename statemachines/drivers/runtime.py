"""Runtime: a host of machines on an asyncio loop.

It is the `Port` of the host's loop: a message leaves over the transport, a request goes to its service, what is told
goes to the application.  The rows of a turn are written before any of its effects is performed.  Nothing re-enters:
what comes up while effects are performed waits its turn.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from statemachines.drivers.clock import LOOK_AGAIN_S, Clock, steady_ns, wall_offset_ns
from statemachines.drivers.complaint_log import RateLimitedLog
from statemachines.drivers.loop_watchdog import LoopWatchdog
from statemachines.drivers.port import Service, Transport
from statemachines.drivers.sql.failure import StoreDamaged
from statemachines.kernel import (
    Answer,
    Ask,
    ConfigurationError,
    Event,
    Host,
    HostLoop,
    Message,
    Node,
    Outgoing,
    RemoteProtocolError,
    Send,
    Step,
    Superseded,
    Tell,
    node_of,
)
from statemachines.kernel.node import Observer
from statemachines.trace import TracedParty, TraceRow, event_row, step_rows
from statemachines.trace.log import TraceLog
from statemachines.wire import Packet, quote_for_log

logger = logging.getLogger("gapless")

DROPPED_LINES: Final = 20
"""Messages that were dropped, of which the log says so within a minute."""

HEARD_TURNS = 3
"""Timers that have patience fire when the loop has turned so often since they were found due: what was there is heard
by then.  Packets are read in the turn itself; an answer of a store that has a thread of its own takes two more."""


UNREAD_S = 0.02
"""So often it is looked whether what came before a timer was due has been read."""


TraceStep = Callable[[TracedParty, Event, Any, Step[Any], int], None]
"""Writes the rows of a step: (party, event, status before, step, now_ns)."""


class Runtime:
    """`life` is the incarnation, `number` what its messages are numbered from, `services` what carries requests out, by
    the name in `Ask`; `log` where rows go (None: nowhere), `clock` the steady one, `offset_ns` what to add to it for
    the times of rows, `observe` sees every step, `refused` every message that is dropped because the protocol does not
    take it, `standing` watches whether the loop turns (for hosts with a lease).

    Where things wait before they are fed, `came()` of them are there so far, and `taken()` were looked at: timers that
    have patience wait for what came before they were due.

    `receive(packet)` is what a transport calls; `handle(sender, to, message, now_ns)` and `answered(party, answer,
    now_ns)` feed the host; `route_tell(party, event)` is the application's side.
    """

    def __init__(
        self,
        life: str,
        number: int,
        services: Mapping[str, Service],
        *,
        handle: Callable[[str, str, Any, int], list[Outgoing]],
        answered: Callable[[str, Answer, int], list[Outgoing]],
        route_tell: Callable[[str, Event], None],
        log: TraceLog | None = None,
        clock: Clock = steady_ns,
        offset_ns: int | None = None,
        observe: Observer | None = None,
        refused: Callable[[RemoteProtocolError], None] | None = None,
        standing: LoopWatchdog | None = None,
    ) -> None:
        self._standing = standing
        self._dropped = RateLimitedLog(clock, burst=DROPPED_LINES)
        self._look_again_s = LOOK_AGAIN_S if standing is None else min(LOOK_AGAIN_S, standing.look_again_s)
        self.came: Callable[[], int] = lambda: 0
        self.taken: Callable[[], int] = lambda: 0
        self._came = 0
        self.life = life
        self.node = node_of(life)
        self.failed: BaseException | None = None
        self.on_failure: Callable[[], None] = lambda: None
        self._has_failed = asyncio.Event()
        self.route_tell = route_tell
        self._services = services
        self._handle = handle
        self._answered = answered
        self._log = log
        self._rows: list[TraceRow] = []
        self._clock = clock
        self._offset = wall_offset_ns() if offset_ns is None else offset_ns
        self._observe = observe
        self._refused = refused
        self._msg = number << 40
        self._numbers: deque[int] = deque()
        self._handled = -1
        self._tasks: set[asyncio.Future[None]] = set()
        self._wake: asyncio.Handle | None = None
        self._hears = False
        self._wake_at = 0
        self._comes_by_ns = 0

    def attach(self, host: Host, transport: Transport) -> None:
        """The host whose observer is `self.observe`, and what carries its messages."""
        self._host = host
        self._transport = transport
        self._loop = HostLoop(host, self, self._clock, before=self._write_rows)

    # -- what comes in ------------------------------------------------------------------------------------------

    def run(self, act: Callable[[int], list[Outgoing]]) -> None:
        """Let `act(now_ns)` feed the host, and perform what comes out; called from within, it waits its turn."""
        try:
            self._loop.run(act)
        finally:
            self._settle()

    def act(self, act: Callable[[int], list[Outgoing]]) -> None:
        """The same from the asyncio loop: an error that is nobody's fault but ours stops the node, and is raised where
        it is used."""
        try:
            self._loop.run(act)
        except Exception as error:
            self.fail(error)
        self._settle()

    def receive(self, packet: Packet[Any]) -> None:
        """A message from the network; one that the protocol does not take is logged and dropped."""
        if self._standing is not None:
            self._standing.note_turn()
        try:
            self._loop.run(partial(self._hear, packet))
        except Exception as error:
            self.fail(error)
        self._settle()

    def feed(self, party: str, event: Event) -> None:
        """An answer of a service."""
        self._note_turn()
        self.act(lambda now_ns: self._answered(party, event, now_ns))  # type: ignore[arg-type]

    def _hear(self, packet: Packet[Any], now_ns: int) -> list[Outgoing]:
        if self._log is not None:
            self._note_message("deliver", now_ns, packet.to, packet.message, packet.sender, packet.msg)
        self._handled = packet.msg
        try:
            return self._handle(packet.sender, packet.to, packet.message, now_ns)
        except RemoteProtocolError as error:
            self.drop(packet, error)
            return []
        finally:
            self._handled = -1

    def drop(self, packet: Packet[Any], error: RemoteProtocolError) -> None:
        """The protocol does not take it."""
        if self._dropped.count_event():
            who, why = quote_for_log(packet.sender), quote_for_log(str(error))
            logger.warning("dropped a message of %s: %s (%d so far)", who, why, self._dropped.count)
        if self._refused is not None:
            self._refused(error)

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

    def perform(self, party: str, effect: Send | Ask, feed: object = None) -> None:
        """A message leaves under its number; a service is asked, and what it answers is fed when it comes."""
        if type(effect) is Send:
            self._transport.send(Packet(party, effect.to, self._numbers.popleft(), effect.message))
        else:
            self._ask(party, effect)  # type: ignore[arg-type]

    def _ask(self, party: str, effect: Ask) -> None:
        """A service that takes its time is a task of its own; one that has answered when it returns is none."""
        service = self._services.get(effect.service)
        if service is None:
            known = ", ".join(sorted(self._services)) or "none"
            rule = f"is asked by {party}, and this node has no such service ({known}); give it in `services`"
            raise ConfigurationError("service", effect.service, rule)
        work = service(party, effect.request, self.feed)
        if work is not None:
            task = asyncio.ensure_future(work)
            self._tasks.add(task)
            task.add_done_callback(self._answered_all)

    def _answered_all(self, task: asyncio.Future[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self.fail(error)

    def _settle(self) -> None:
        """After a turn: rows that came up beside it, and the next timer."""
        if self._rows:
            self._flush()
        self._rearm()

    def _rearm(self) -> None:
        """One handle on the loop, for the earliest deadline; it may be that the loop's clock stands still while ours
        goes on (a machine that sleeps), so it never waits for long."""
        if not self._hears and (self._host.moved or self._wake is None):
            self._host.moved = False
            self._set_wake(self._host.deadline())
        if self._standing is not None and self._wake is not None:
            self._standing.plan(self._comes_by_ns)

    def _set_wake(self, deadline: int | None) -> None:
        if deadline is not None and (self._wake is None or self._wake_at != deadline):
            if self._wake is not None:
                self._wake.cancel()
            now_ns = self._clock()
            delay_s = min(max(deadline - now_ns, 0) / 1e9, self._look_again_s)
            self._wake_at = deadline
            self._wake = asyncio.get_running_loop().call_later(delay_s, self._fire)
            self._comes_by_ns = now_ns + round(delay_s * 1e9)

    def _note_turn(self) -> None:
        if self._standing is not None:
            self._standing.note_turn()

    def _fire(self) -> None:
        """What ends a right, or goes on at once, fires now; for other timers the loop turns a few times more."""
        self._note_turn()
        self._wake = None
        now_ns = self._clock()
        if now_ns < self._wake_at:
            self._rearm()
            return
        self._hears = True
        self._came = self.came()
        self.act(self._host.fire_first)
        self._hear_first(now_ns, HEARD_TURNS)

    def _hear_first(self, now_ns: int, turns: int) -> None:
        """What was due then and is due still fires when the loop has turned so many times."""
        deadline = self._host.deadline()
        is_due = deadline is not None and deadline <= now_ns
        if turns and is_due:
            self._wake = asyncio.get_running_loop().call_soon(self._hear_first, now_ns, turns - 1)
            return
        if is_due and self.taken() < self._came:
            self._wake = asyncio.get_running_loop().call_later(UNREAD_S, self._hear_first, now_ns, 0)
            return
        self._wake = None
        self._hears = False
        if is_due:
            self.act(self._host.fire)
        else:
            self._rearm()

    def fail(self, error: BaseException) -> None:
        """The node cannot go on, for this reason, unless there is one already."""
        if self.failed is None:
            # Of these a traceback would say nothing more.
            known = isinstance(error, Superseded | StoreDamaged | ConfigurationError)
            logger.error("node %s stops: %s", self.life, error, exc_info=None if known else error)
            self.failed = error
            self.on_failure()
            self._has_failed.set()

    async def wait_for_failure(self) -> None:
        """Wait until the node cannot go on, and raise why."""
        await self._has_failed.wait()
        assert self.failed is not None
        raise self.failed

    # -- rows ---------------------------------------------------------------------------------------------------

    def note(self, row: TraceRow) -> None:
        """A row of the application's own, written with the next ones."""
        if self._log is not None:
            self._rows.append(row)

    def trace_step(self, party: TracedParty, event: Event, before: Any, step: Step[Any], now_ns: int) -> None:
        """Write the rows of a step that the application made beside the host; its effects come after."""
        at_ns = now_ns + self._offset
        self._rows.extend(step_rows(party, event, before, step, at_ns))
        told = (one.event for one in step.effects if isinstance(one, Tell))
        name, machine = party.name, party.fsm.full_name
        self._rows.extend(event_row(at_ns, self.node, name, "tell", one, machine=machine) for one in told)
        self._flush()

    def _write_rows(self, out: list[Outgoing]) -> None:
        """Number the messages of a turn, and write its rows in one go; its effects come after."""
        self._numbers.clear()  # of a turn that an error broke off
        for party, effect in out:
            if type(effect) is Send:
                self._numbers.append(self._msg)
                if self._log is not None:
                    self._note_message("send", self._clock(), party, effect.message, effect.to, self._msg)
                self._msg += 1
            elif self._log is not None:
                self._note_other(party, effect)
        if self._rows:
            self._flush()

    def _note_other(self, party: str, effect: Any) -> None:
        at_ns = self._clock() + self._offset
        if isinstance(effect, Ask):
            self._rows.append(event_row(at_ns, self.node, party, "ask", effect.request, peer=effect.service))
        elif isinstance(effect, Tell):
            node = self._host.nodes.get(party)
            machine = "" if node is None else node.fsm.full_name
            self._rows.append(event_row(at_ns, self.node, party, "tell", effect.event, machine=machine))

    def _note_message(self, kind: str, now_ns: int, party: str, message: Message, peer: str, msg: int) -> None:
        self._rows.append(event_row(now_ns + self._offset, self.node, party, kind, message, peer=peer, msg=msg))

    def _flush(self) -> None:
        if self._rows and self._log is not None:
            rows, self._rows = self._rows, []
            self._log.write(rows)
