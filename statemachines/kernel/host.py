"""Host: the nodes of one process, which talk to each other without a network.

A driver (asyncio, simulator) holds one `Host`, feeds it what comes from outside, performs what comes out, and fires it
at `deadline()`.  Due timers of all nodes fire first: those of authority, then the others, each class in (deadline,
party) order; events that nodes tell each other are fed in the order in which they were told; no node is re-entered.
The cost of an event does not grow with the number of nodes.
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

Outgoing = tuple[str, Effect]
"""What a party (by its id) wants done: `Send`, `Ask`, or a `Tell` to the application."""

Inward = Iterable[tuple[str, Event]]
"""Events for parties of the same host."""


class Host:
    """Base of every host; `told` says which `Tell` stays inside, and for whom.  A node that stops is forgotten.

    `moved` is set whenever `deadline()` may have changed: who asks for it clears it, and need not ask again before it
    is set.
    """

    def __init__(self) -> None:
        self.nodes: dict[str, Node[Any]] = {}
        self.moved = False
        self._heap: list[tuple[int, str]] = []
        self._due: dict[str, int] = {}
        self._owed: list[Outgoing] = []

    def told(self, party: str, event: Event, now_ns: int) -> Inward | None:
        """What a `Tell` of `party` means: events for parties here, or None: it is for the application."""
        return None

    def add(self, node: Node[Any]) -> None:
        """Take in a node; its timers are armed already."""
        self.nodes[node.name] = node
        self._schedule(node)

    def remove(self, party: str) -> None:
        """Forget a node."""
        self.nodes.pop(party, None)
        self._due.pop(party, None)
        self.moved = True

    def deadline(self) -> int | None:
        """When the earliest timer of any node is due, in nanoseconds; None: never; 0: `fire` has effects to give."""
        if self._owed:
            return 0
        heap, due = self._heap, self._due
        while heap:
            deadline, party = heap[0]
            if due.get(party) == deadline:
                return deadline
            heappop(heap)
        return None

    def fire(self, now_ns: int) -> list[Outgoing]:
        """Fire every timer that is due at `now_ns`; what comes of it, and what is owed since a refused event."""
        out, self._owed = self._owed, []
        self.moved = True
        self._fire_due(now_ns, out)
        return out

    def feed(self, party: str, event: Event, now_ns: int) -> list[Outgoing]:
        """Fire what is due, then feed `event` to `party`; nothing happens if there is no such party (any more)."""
        heap = self._heap
        out = self.fire(now_ns) if self._owed or (heap and heap[0][0] <= now_ns) else []
        node = self.nodes.get(party)
        if node is None or node.stopped:
            return out
        try:
            inward: list[tuple[str, Event]] = []
            # Nothing is due any more, unless an event was refused between a node's timers and their place in the heap.
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

    def _fire_due(self, now_ns: int, out: list[Outgoing]) -> None:
        self._fire_authority(now_ns, out)
        while (deadline := self.deadline()) is not None and deadline <= now_ns:
            _, party = heappop(self._heap)
            node = self.nodes[party]
            del self._due[party]
            inward = self._sort_out(party, node.fire(now_ns), now_ns, out)
            self._schedule(node)
            if inward:
                self._run(inward, now_ns, out)

    def _fire_authority(self, now_ns: int, out: list[Outgoing]) -> None:
        """Where several nodes have something due; of one alone the node sees to it."""
        due = self._due_parties(now_ns)
        if len(due) < 2:
            return
        ends = ((self.nodes[party].authority_deadline(), party) for party in due)
        for _, party in sorted((at, party) for at, party in ends if at is not None and at <= now_ns):
            node = self.nodes.get(party)
            if node is None:
                continue
            inward = self._sort_out(party, node.fire_authority(now_ns), now_ns, out)
            self._schedule(node)
            if inward:
                self._run(inward, now_ns, out)

    def _due_parties(self, now_ns: int) -> set[str]:
        """The nodes that have something due, found without a look at the others."""
        heap, places, due = self._heap, [0], set()
        while places:
            place = places.pop()
            if place < len(heap) and heap[place][0] <= now_ns:
                deadline, party = heap[place]
                if self._due.get(party) == deadline:
                    due.add(party)
                places += (2 * place + 1, 2 * place + 2)
        return due

    def _run(self, events: Iterable[tuple[str, Event]], now_ns: int, out: list[Outgoing]) -> None:
        queue = deque(events)
        while queue:
            party, event = queue.popleft()
            node = self.nodes.get(party)
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
            told = self.told(party, effect.event, now_ns) if kind is Tell else None  # type: ignore[union-attr]
            if told is None:
                out.append((party, effect))
            else:
                inward.extend(told)
        return inward

    def _schedule(self, node: Node[Any]) -> None:
        """Keep one live entry per node in the heap."""
        party = node.name
        if self.nodes.get(party) is not node:
            return
        deadline = node.deadline()
        node.moved = False
        if deadline == self._due.get(party):
            return
        self.moved = True
        if deadline is None:
            del self._due[party]
        else:
            self._due[party] = deadline
            heappush(self._heap, (deadline, party))
