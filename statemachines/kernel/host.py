"""Host: the nodes of one process, which talk to each other without a network.

A driver (asyncio, simulator) holds one `Host`, feeds it what comes from outside, performs what comes out, and fires it
at `deadline()`, after what one turn of its loop brought.  Before an event the timers of authority that are due fire, of
all nodes, then what goes on at once (continuations); `fire` fires these and then all others that are due, each class in
(deadline, party, name) order.  Events that nodes tell each other are fed in the order in which they were told; no node
is re-entered.  The cost of an event does not grow with the number of nodes.

Deadlines: the earliest deadline of each of many, and which of them comes first.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from heapq import heappop, heappush
from typing import Any

from statemachines.kernel.effect import Ask, Effect, Send, Stop, Tell
from statemachines.kernel.errors import ProtocolError
from statemachines.kernel.event import Event
from statemachines.kernel.node import Node


class Deadlines:
    """One live entry for each name; the cost of a change does not grow with their number but by its logarithm.

    `heap` may hold entries that are over: its first is never later than the earliest deadline.
    """

    __slots__ = ("_at", "heap")

    def __init__(self) -> None:
        self.heap: list[tuple[int, str]] = []
        self._at: dict[str, int] = {}

    def move(self, name: str, deadline_ns: int | None) -> bool:
        """It is due then (None: never); whether that is a change."""
        at = self._at
        if deadline_ns == at.get(name):
            return False
        if deadline_ns is None:
            del at[name]
        else:
            at[name] = deadline_ns
            heappush(self.heap, (deadline_ns, name))
            if len(self.heap) > 64 and len(self.heap) > 4 * len(at):
                self.heap[:] = sorted((one, other) for other, one in at.items())
        return True

    def first(self) -> tuple[int, str] | None:
        """The earliest deadline and its name, of equal ones the least name."""
        heap, at = self.heap, self._at
        while heap:
            deadline, name = heap[0]
            if at.get(name) == deadline:
                return heap[0]
            heappop(heap)
        return None


Outgoing = tuple[str, Effect]
"""What a party (by its id) wants done: `Send`, `Ask`, or a `Tell` to the application."""

Inward = Iterable[tuple[str, Event]]
"""Events for parties of the same host."""


class Host:
    """Base of every host; `route_tell` says which `Tell` stays inside, and for whom.  A node that stops is forgotten.

    `moved` is set whenever `deadline()` may have changed: who asks for it clears it, and need not ask again before it
    is set.
    """

    def __init__(self) -> None:
        self.nodes: dict[str, Node[Any]] = {}
        self._fed = self.nodes
        self.moved = False
        self._due = Deadlines()
        self._authority = Deadlines()
        self._soon = Deadlines()
        self._owed: list[Outgoing] = []

    def route_tell(self, party: str, event: Event, now_ns: int) -> Inward | None:
        """What a `Tell` of `party` means: events for parties here, or None: it is for the application."""
        return None

    def add(self, node: Node[Any]) -> None:
        """Take in a node; its timers are armed already."""
        self._fed[node.name] = node
        self._schedule(node)

    def remove(self, party: str) -> None:
        """Forget a node."""
        self._fed.pop(party, None)
        for deadlines in (self._due, self._authority, self._soon):
            deadlines.move(party, None)
        self.moved = True

    def deadline(self) -> int | None:
        """When the earliest timer of any node is due, in nanoseconds; None: never; 0: `fire` has effects to give."""
        if self._owed:
            return 0
        first = self._due.first()
        return None if first is None else first[0]

    def fire(self, now_ns: int) -> list[Outgoing]:
        """Fire every timer that is due at `now_ns`; what comes of it, and what is owed since a refused event."""
        out = self.fire_first(now_ns)
        while (first := self._due.first()) is not None and first[0] <= now_ns:
            self._fire_one(first[1], now_ns, out)
            if self._is_first_due(now_ns):
                self._fire_first(now_ns, out)
        return out

    def fire_first(self, now_ns: int) -> list[Outgoing]:
        """Fire what comes before any event, and no other timer; what comes of it, and what is owed since a refused
        event."""
        out, self._owed = self._owed, []
        self.moved = True
        self._fire_first(now_ns, out)
        return out

    def feed(self, party: str, event: Event, now_ns: int) -> list[Outgoing]:
        """Fire what comes before any event, then feed `event` to `party`; nothing happens if there is no such party
        (any more)."""
        ends = self._authority.heap
        out = self.fire_first(now_ns) if self._owed or self._soon.heap or (ends and ends[0][0] <= now_ns) else []
        node = self._fed.get(party)
        if node is None or node.stopped:
            return out
        try:
            inward: list[tuple[str, Event]] = []
            # Nothing comes before it any more, unless an event was refused between a node's timers and their place.
            for effect in node.feed(event, now_ns) if node.moved else node.take(event, now_ns):
                if type(effect) is Send or type(effect) is Ask:
                    out.append((party, effect))
                else:
                    inward += self._sort_out(party, [effect], now_ns, out)
            if node.moved:
                self._schedule(node)
            if inward:
                self._run(inward, now_ns, out)
        except ProtocolError:
            self.moved = True
            self._owed = out  # the event is refused; what came before it has happened all the same
            raise
        return out

    def _is_first_due(self, now_ns: int) -> bool:
        ends = self._authority.heap
        return bool(self._soon.heap) or bool(ends and ends[0][0] <= now_ns)

    def _fire_first(self, now_ns: int, out: list[Outgoing]) -> None:
        while True:
            first = self._authority.first()
            if first is None or first[0] > now_ns:
                first = self._soon.first()
            if first is None:
                return
            self._fire_one(first[1], now_ns, out)

    def _fire_one(self, party: str, now_ns: int, out: list[Outgoing]) -> None:
        """The timer of this node whose turn it is, and what it makes others here do."""
        node = self._fed[party]
        inward = self._sort_out(party, node.fire_one(now_ns), now_ns, out)
        self._schedule(node)
        if inward:
            self._run(inward, now_ns, out)

    def _run(self, events: Iterable[tuple[str, Event]], now_ns: int, out: list[Outgoing]) -> None:
        queue = deque(events)
        while queue:
            party, event = queue.popleft()
            node = self._fed.get(party)
            if node is None or node.stopped:
                continue
            queue.extend(self._sort_out(party, node.feed(event, now_ns), now_ns, out))
            if node.moved:
                self._schedule(node)

    def _sort_out(self, party: str, effects: list[Effect], now_ns: int, out: list[Outgoing]) -> list[tuple[str, Event]]:
        inward: list[tuple[str, Event]] = []
        for effect in effects:
            kind = type(effect)
            if kind is Stop:
                self.remove(party)
                continue
            events = self.route_tell(party, effect.event, now_ns) if kind is Tell else None  # type: ignore[union-attr]
            if events is None:
                out.append((party, effect))
            else:
                inward.extend(events)
        return inward

    def _schedule(self, node: Node[Any]) -> None:
        """Keep its deadlines where they are looked up."""
        party = node.name
        if self._fed.get(party) is not node:
            return
        node.moved = False
        if self._due.move(party, node.deadline()):
            self.moved = True
        self._authority.move(party, node.authority_deadline())
        self._soon.move(party, node.continuation_deadline())
