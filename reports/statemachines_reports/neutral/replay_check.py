"""Replay check: the shipped machines step again through the events of a trace, and everything must come out the same.

It takes a trace with `data` (`gapless simulate --data`), whose rows have the events and the records of machines.  A
step is wrong if the machine takes another row, comes to another state, steps other children, or does something else.

Event readers: what turns the `data` of a step into the event that the machine took, and a record into a value.

Replayed run: the machines of one run, stepped again from their records through the events of its trace.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import cache, cached_property, partial
from itertools import repeat
from typing import Any, Final, get_type_hints

import msgspec
import numpy as np
import pyarrow as pa
from msgspec.structs import astuple

from statemachines.kernel import Ask, Fsm, Send, Step, Tell, name_of, node_of
from statemachines.kernel.pmap import dec_hook, enc_hook
from statemachines.trace.row import LOCAL, data_of
from statemachines_reports.columns import STEPS, Columns, Segment
from statemachines_reports.neutral.run_checks import DEATHS
from statemachines_reports.protocol import Check, CheckVerdict, TraceRoles, verdict

Read = Callable[[str], Any]


class StepLocalTime(msgspec.Struct):
    """The time of a step by the clock of its node, where the data names one."""

    now_ns: int = msgspec.field(name=LOCAL, default=-1)


READ_LOCAL: Final = msgspec.json.Decoder(StepLocalTime).decode
_ENCODE: Final = msgspec.json.Encoder(enc_hook=enc_hook).encode


class MachineReader:
    """One machine: what reads its record, and its events by their names; `reader_of` makes it, once."""

    def __init__(self, fsm: Fsm[Any]) -> None:
        self.fsm = fsm
        self.step = fsm.step

    @cached_property
    def record(self) -> Read:
        """Reads a record."""
        return msgspec.json.Decoder(self.fsm.record_type, dec_hook=dec_hook).decode

    @cached_property
    def events(self) -> dict[str, Read]:
        """Name of an event -> what reads it."""
        return {name_of(kind): event_reader(kind) for kind in self.fsm.alphabet}


reader_of: Final = cache(MachineReader)
"""Of a machine."""


def event_reader(kind: type[msgspec.Struct]) -> Read:
    """Reads the fields of an event, as `data_of` writes them."""
    if _is_plain(kind):
        return msgspec.json.Decoder(kind, dec_hook=dec_hook).decode
    hints = get_type_hints(kind, include_extras=True)
    fields = msgspec.defstruct(kind.__name__, [(name, hints[name]) for name in kind.__struct_fields__])
    decode = msgspec.json.Decoder(fields, dec_hook=dec_hook).decode
    return lambda data: kind(*astuple(decode(data)))


def _is_plain(kind: type[msgspec.Struct]) -> bool:
    """Whether its own form in JSON is an object of its fields, and of nothing else."""
    config = kind.__struct_config__
    return not config.array_like and not config.tag and kind.__struct_fields__ == kind.__struct_encode_fields__


class DataWriters(dict[type[msgspec.Struct], Callable[[Any], str]]):
    """`writers[type(event)](event)` is `data_of(event)`, sooner where the event has a plain form."""

    def __missing__(self, kind: type[msgspec.Struct]) -> Callable[[Any], str]:
        plain = _is_plain(kind) and not kind.__struct_config__.omit_defaults
        self[kind] = encode if plain else data_of
        return self[kind]


def encode(value: Any) -> str:
    """The own form of a value in JSON."""
    return _ENCODE(value).decode()


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


LEVEL: Final = "replay"
ROWS: Final = ("record", *STEPS, "send", "ask", "tell")
COLUMNS: Final = ("machine", "instance", "kind", "event", "source", "dest")


def judge_replay(segment: Segment, roles: Iterable[TraceRoles]) -> CheckVerdict:
    """What is wrong with the steps of a segment, as far as its rows have data."""
    columns = segment.columns
    readers = {fsm.full_name: reader_of(fsm) for fsm in segment.lookup.family}
    children = frozenset(child.full_name for fsm in segment.lookup.family for child in fsm.children)
    words: dict[int, str] = {}
    checked = 0
    told = np.unique(columns["run"][columns.rows_of("record")]) if columns.data is not None else ()
    lies = tuple(event for one in roles for event in one.lies)
    for run in told:
        replayed = ReplayedRun(readers, children, roles, _find_faults(columns, int(run), lies))
        for one in _read_steps(columns, int(run)):
            replayed.take(one)
        replayed.end(_find_faults(columns, int(run), DEATHS))
        checked += replayed.checked
        for row, what in replayed.wrong:
            words.setdefault(row, what)
    return verdict(columns, checked, np.array(sorted(words), np.int64), words.__getitem__)


def _read_steps(columns: Columns, run: int) -> Iterable[TraceStep]:
    """The rows of a run that say something of steps."""
    rows = columns.rows_of(*ROWS)
    rows = rows[columns["run"][rows] == run]
    texts = [np.array([*columns.texts[name], ""], object)[columns[name][rows]].tolist() for name in (*COLUMNS, "peer")]
    data = columns.data.take(pa.array(rows)).fill_null("{}").to_pylist() if columns.data is not None else repeat("{}")
    return map(
        TraceStep,
        rows.tolist(),
        columns["t_ns"][rows].tolist(),
        *texts[:6],
        columns["row"][rows].tolist(),
        texts[6],
        data,
    )


def _find_faults(columns: Columns, run: int, events: tuple[str, ...]) -> dict[str, int]:
    """Node -> the row of the last of these faults that hit it."""
    rows = columns.rows_of("fault", event=events) if events else columns.rows_of("fault")[:0]
    return {columns.text("node", row): row for row in rows[columns["run"][rows] == run].tolist()}


def replay_check(roles: Iterable[TraceRoles]) -> Check:
    """The check, for protocols with these roles."""
    claim = "the shipped machines take the same steps from the same events, and do the same"
    judge = partial(judge_replay, roles=tuple(roles))
    # a run whose rows have data is not cut: the record of a machine follows from all steps before
    return Check("replay", claim, judge, LEVEL, rows=lambda segment: segment.columns.rows_of("record")[:0])
