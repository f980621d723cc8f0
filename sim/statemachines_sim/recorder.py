"""Recorder: the trace of a run; monitors hear what they watch as it happens.

What a message does is kept as entries, which cost little more than being appended; their rows are put together when
somebody reads them, or the file is written.  Of everything else the row is made at once: an entry would keep alive what
a store has answered, and the records of children.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from statemachines.kernel import Event, Message, Node, Step, node_of
from statemachines.trace import TraceRow, child_row, event_makers, event_row, fault_row, part_rows, step_makers
from statemachines_sim.clock import SimulatedClock
from statemachines_sim.run_observer import RunObserver

Entry = tuple[Any, ...]
"""What a row is made of: "send", "drop" or "duplicate", now_ns, node, party, peer, msg, message, and of a send the node
that it goes to ("" of others).  Or (a number, its time, comes first) it is the row itself."""

DELIVER: Final = object()
"""`DELIVER_PARTS` stand behind it: now_ns, the entry of the send."""

DELIVER_PARTS: Final = 2

STEP: Final = object()
"""`STEP_PARTS` stand behind it: now_ns, party, machine, state before, state after, row, msg, event."""

STEP_PARTS: Final = 8


class NodesByParty(dict[str, str]):
    """`nodes[party]`: the node that the party lives on, computed at the first look."""

    def __missing__(self, party: str) -> str:
        node = self[party] = node_of(party)
        return node


class Recorder:
    """`rows` is the trace so far; `msg` the message that is being handled; `data`: fill the data column; `true_clock`:
    what steps are stamped by where some node's own clock is not the true one.

    `note(entry)` keeps an entry.  `note_parts(parts)` keeps one as a mark and its parts, side by side: a tuple for each
    costs a tenth more memory and time.  The network and the processes note a send and a deliver themselves: a call
    between for each costs a fiftieth of all that a message does.
    """

    def __init__(self, monitors: RunObserver | None, data: bool = False) -> None:
        self.msg = -1
        self.true_clock: SimulatedClock | None = None
        self._monitors = monitors
        self._data = data
        self._rows: list[TraceRow] = []
        self._entries: list[Any] = []
        self._steps = step_makers(data)
        self._nodes_by_party = NodesByParty()
        self._watch_step = None if monitors is None or type(monitors).step is RunObserver.step else monitors.step
        self.note: Callable[[Entry], None] = self._entries.append
        self.note_parts: Callable[[Entry], None] = self._entries.extend

    @property
    def rows(self) -> list[TraceRow]:
        """The trace so far."""
        if self._entries:
            self._rows.extend(self._put_together())
            self._entries.clear()
        return self._rows

    @property
    def count(self) -> int:
        """So many rows there are; none of them is made for it."""
        entries = self._entries
        return (
            len(self._rows) + len(entries) - DELIVER_PARTS * entries.count(DELIVER) - STEP_PARTS * entries.count(STEP)
        )

    def step(self, node: Node[Any], event: Event, before: Any, step: Step[Any], now_ns: int) -> None:
        """The observer of every node."""
        if self.true_clock is not None:
            now_ns = self.true_clock.now
        msg = self.msg
        if msg >= 0:
            keep_parts = self.note_parts
            keep_parts((STEP, now_ns, node.name, node.fsm, before, step.record.status, step.row, msg, event))
        else:
            name, dest = node.name, step.record.status._value_
            make, host = self._steps[type(event)], self._nodes_by_party[name]
            self.note(make(now_ns, host, node.fsm.full_name, name, before._value_, dest, step.row, msg, event))
        if step.children:
            host = self._nodes_by_party[node.name]
            for child in step.children:
                self.note(child_row(now_ns, host, node.name, child, self._data))
        if event.parts:
            for row in part_rows(node, event, now_ns, self._data):
                self.note(row)
        watch_step = self._watch_step
        if watch_step is not None:
            watch_step(node, event, before, step, now_ns)

    def message(self, kind: str, now_ns: int, node: str, instance: str, peer: str, msg: int, message: Message) -> None:
        """A drop or a duplicate."""
        self.note((kind, now_ns, node, instance, peer, msg, message, ""))

    def hit(self, kind: str, node: str, party: str, to: str, message: Message, now_ns: int) -> None:
        """The same, for who watches."""
        if self._monitors is not None:
            self._monitors.hit(kind, node, party, to, message, now_ns)

    def tell(self, now_ns: int, node: str, instance: str, machine: str, event: Event) -> None:
        """Something for the application, or something that a publisher has done."""
        self.note(event_row(now_ns, node, instance, "tell", event, machine=machine, data=self._data))

    def ask(self, now_ns: int, node: str, instance: str, request: Any, service: str) -> None:
        """A request to a store."""
        self.note(event_row(now_ns, node, instance, "ask", request, peer=service, data=self._data))

    def fault(self, now_ns: int, node: str, fault: str, peer: str = "", **details: object) -> None:
        """Something the nemesis did, or took back; `details` (numbers with their unit, what was lost) go to `data`."""
        data = msgspec.json.encode(details).decode() if details else None
        self.note(fault_row(now_ns, node, fault, peer, data))
        if self._monitors is not None:
            self._monitors.fault(fault, node, now_ns)

    def end(self, now_ns: int) -> None:
        """The run is over: nothing more is noted."""

    def _put_together(self) -> list[TraceRow]:
        events, steps, hosts = event_makers(self._data), self._steps, self._nodes_by_party
        rows: list[TraceRow] = []
        entries = iter(self._entries)
        of_deliver = zip(*[entries] * DELIVER_PARTS, strict=False)
        of_step = zip(*[entries] * STEP_PARTS, strict=False)
        for entry in entries:
            if entry is STEP:
                now_ns, name, fsm, before, after, row, msg, event = next(of_step)
                source, dest = before._value_, after._value_
                rows.append(steps[type(event)](now_ns, hosts[name], fsm.full_name, name, source, dest, row, msg, event))
            elif entry is DELIVER:
                now_ns, (_, _, _, peer, party, msg, message, node) = next(of_deliver)
                rows.append(events[type(message)](now_ns, node, "", party, "deliver", peer, msg, message))
            elif type(entry[0]) is int:
                rows.append(entry)
            else:
                kind, now_ns, node, party, peer, msg, message, _ = entry
                rows.append(events[type(message)](now_ns, node, "", party, kind, peer, msg, message))
        return rows
