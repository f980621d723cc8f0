"""Replayed run: the machines of one run, stepped again from their records through the events of its trace."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Final

import msgspec

from statemachines.kernel import Ask, Send, Step, Tell, name_of, node_of
from statemachines.trace.row import LOCAL
from statemachines_reports.neutral.event_readers import READ_LOCAL, DataWriters, MachineReader, encode
from statemachines_reports.trace_roles import TraceRoles

MARK: Final = f'"{LOCAL}":'
WRITERS: Final = DataWriters()
LONG: Final = 120

READ_EFFECTS: Final[dict[type[Any], Callable[[Any], tuple[str, str, msgspec.Struct]]]] = {
    Send: lambda effect: ("send", effect.to, effect.message),
    Ask: lambda effect: ("ask", effect.service, effect.request),
    Tell: lambda effect: ("tell", "", effect.event),
}
"""Effects that a row tells of: kind of the row, peer ("": any), value."""


class TraceStep(msgspec.Struct, gc=False):
    """A row of the trace, as a replay reads it."""

    row: int
    t_ns: int
    machine: str
    instance: str
    kind: str
    event: str
    source: str
    dest: str
    number: int
    peer: str
    data: str


class ReplayedMachine:
    """A machine that is stepped along: its `record`, when it was first seen, and the effects that are `due`: rows must
    tell of them.  Each has the row of its step."""

    __slots__ = ("due", "machine", "record", "since_ns")

    def __init__(self, machine: MachineReader, record: Any, since_ns: int) -> None:
        self.machine = machine
        self.record = record
        self.since_ns = since_ns
        self.due: deque[tuple[Any, int]] = deque()


class ReplayedRun:
    """`wrong`: (row, what is wrong with it); `checked`: so many steps were stepped again.  A machine of which
    something is wrong is not judged any more.  `liars`: nodes that do not say what their machines say."""

    def __init__(
        self,
        readers: Mapping[str, MachineReader],
        children: frozenset[str],
        roles: Iterable[TraceRoles],
        liars: Collection[str] = (),
    ) -> None:
        self.checked = 0
        self.wrong: list[tuple[int, str]] = []
        self._readers = readers
        self._children = children
        self._unsent = frozenset(event for one in roles for event in (*one.unsent, *one.envelopes))
        self._unstepped = frozenset(event for one in roles for event in one.unstepped)
        self._envelopes = frozenset(event for one in roles for event in one.envelopes)
        self._liars = liars
        self._replicas: dict[str, ReplayedMachine] = {}
        self._unknown: set[str] = set()
        """Machines whose record no row has told so far."""
        self._broken: set[str] = set()
        self._latest = -1
        self._due_children: deque[tuple[str, Any]] = deque()

    def take(self, one: TraceStep) -> None:
        """The next row."""
        kind = one.kind
        if kind == "step" or kind == "timer":
            if one.machine in self._children and ":" in one.instance:
                self._take_child(one)
            else:
                self._take_step(one)
        elif kind == "record":
            self._end_children()
            self._take_record(one)
        else:
            self._take_effect(one)

    def end(self, deaths: Mapping[str, int]) -> None:
        """No row follows; `deaths`: node -> the row of its last death.  What was to be sent has been sent, unless the
        node died."""
        self._end_children()
        for instance, replica in self._replicas.items():
            for effect, row in replica.due:
                kind, _, value = READ_EFFECTS[type(effect)](effect)
                name, node = name_of(type(value)), node_of(instance)
                dead = deaths.get(node, -1) > row or node in self._liars
                if kind != "tell" and name not in self._unsent and not dead:
                    self.wrong.append((row, f"{kind} {name} of {instance} follows from it, and is in no row"))
                    break

    # -- rows -------------------------------------------------------------------------------------------------------

    def _take_step(self, one: TraceStep) -> None:
        if self._due_children:
            self._end_children()
        replica = self._replicas.get(one.instance)
        if replica is None:
            self._note_unknown(one)
            return
        data, record, now_ns = one.data, replica.record, one.t_ns
        try:
            event = replica.machine.events[one.event](data)
            if MARK in data:
                now_ns = READ_LOCAL(data).now_ns
            step: Step[Any] = replica.machine.step(record, event, now_ns)
        except Exception as error:  # whatever the data of a trace brings about is wrong with that trace
            self._break(one, f"is refused: {type(error).__name__}: {_shorten(str(error))}")
            return
        self.checked += 1
        self._latest = one.row
        begun, dest = record.status._value_, step.record.status._value_
        if step.row != one.number or dest != one.dest or begun != one.source:
            taken = f"from {begun} takes row {step.row} to {dest}"
            self._break(one, f"{taken}, and the trace says row {one.number} to {one.dest}")
            return
        replica.record = step.record
        for child in step.children:
            self._due_children.append((one.instance, child))
        for effect in step.effects:
            if type(effect) in READ_EFFECTS:
                replica.due.append((effect, one.row))

    def _note_unknown(self, one: TraceStep) -> None:
        """The first step of a machine comes before the row of its record."""
        if one.instance in self._unknown:
            self._unknown.discard(one.instance)
            self._break(one, "follows another one, and no row has the record of its machine")
        elif one.instance not in self._broken:
            self._unknown.add(one.instance)

    def _take_child(self, one: TraceStep) -> None:
        if not self._due_children:
            if one.instance.partition(":")[0] in self._replicas:
                self._break(one, "follows from no step of its parent")
            return
        self.checked += 1
        party, child = self._due_children.popleft()
        said = one.instance, one.event, one.source, one.dest, one.number
        expected = (
            f"{party}:{child.instance}",
            name_of(type(child.event)),
            child.source._value_,
            child.dest._value_,
            child.row,
        )
        if said != expected or WRITERS[type(child.event)](child.event) != one.data:
            self._break(one, f"is another than that of the replay: {' '.join(map(str, expected))}")

    def _take_effect(self, one: TraceStep) -> None:
        replica = self._replicas.get(one.instance)
        if replica is None or one.event in self._unstepped or one.t_ns == replica.since_ns:
            return
        if self._liars and node_of(one.instance) in self._liars:
            return
        due = replica.due
        if one.event in self._envelopes:
            self._open(one, due)
            return
        while due:
            effect, _ = due.popleft()
            kind, peer, value = READ_EFFECTS[type(effect)](effect)
            name = name_of(type(value))
            same = kind == one.kind and name == one.event and (not peer or peer == one.peer)
            if same and WRITERS[type(value)](value) == one.data:
                return
            if kind != "tell" and name not in self._unsent:
                self._break(one, f"comes where {kind} {name} must, with {_shorten(WRITERS[type(value)](value))}")
                return
        self._break(one, "follows from no step")

    def _open(self, one: TraceStep, due: deque[tuple[Any, int]]) -> None:
        """What is in the envelope may be what a step of its sender has to say, or of somebody for whom it relays."""
        for place, (effect, _) in enumerate(due):
            if type(effect) is Send and encode(effect.message) in one.data:
                del due[place]
                return

    def _take_record(self, one: TraceStep) -> None:
        reader = self._readers.get(one.machine)
        self._unknown.discard(one.instance)
        if reader is None:
            return
        try:
            record = reader.record(one.data)
        except Exception as error:  # as above
            self._break(one, f"is no record: {_shorten(str(error))}")
            return
        known = self._replicas.get(one.instance)
        if one.event == "first":
            self._replicas[one.instance] = ReplayedMachine(reader, record, one.t_ns)
            self._broken.discard(one.instance)
        elif known is not None and known.record != record:
            self._break(one, "differs from that of the replay")

    # -- what is wrong ----------------------------------------------------------------------------------------------

    def _end_children(self) -> None:
        """Another row comes where steps of children must."""
        for party, child in self._due_children:
            name = name_of(type(child.event))
            if party in self._replicas:
                self._replicas.pop(party)
                self._broken.add(party)
                self.wrong.append((self._latest, f"step {name} of {party}:{child.instance} is in no row"))
        self._due_children.clear()

    def _break(self, one: TraceStep, what: str) -> None:
        party = one.instance.partition(":")[0]
        self._replicas.pop(party, None)
        self._replicas.pop(one.instance, None)
        self._broken.add(party)
        self._due_children.clear()
        self.wrong.append((one.row, f"{one.kind} {one.event} of {one.instance} {what}"))


def _shorten(text: str) -> str:
    return text if len(text) <= LONG else f"{text[:LONG]}..."
