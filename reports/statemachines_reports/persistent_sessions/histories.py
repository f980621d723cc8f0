"""Histories: the sessions of a segment, read once from its rows.

What a row says of whom: a writer is a party of a node, and its first request (`begin_epoch`) says for which session; an
owner is a party, whose flows are PARTY:WRITER and whose session stands in `session_loaded`.

Writing: a party that writes for a session: what it is about to store, and what waits behind it.

Measured: what is told of resumes and takeovers, besides latencies.
"""

from __future__ import annotations

from collections import Counter, deque
from itertools import islice
from typing import Final, NamedTuple

import msgspec
import numpy as np

from statemachines.kernel import life_of, node_of
from statemachines_reports.columns import STEPS, Columns
from statemachines_reports.persistent_sessions.session import (
    EPOCHS,
    GAP,
    OwnerHistory,
    Position,
    PutRequest,
    SessionHistory,
    WrittenRows,
)
from statemachines_reports.protocol import Findings, Latency, MadeValues, Segment


class Resume(msgspec.Struct, frozen=True):
    """A resume that came to normal operation: how many messages were `pending` in the database, how many it `kept`
    behind markers, and how long it took."""

    run: int
    pending: int
    kept: int
    took_ns: int


class Takeover(msgspec.Struct, frozen=True):
    """A takeover that is over, and `why`: handed, refused, silent."""

    run: int
    why: str


RESUMING: Final = "resumes"
CALM: Final = "calm"


class HandedMessage(NamedTuple):
    """A message that a writer is handed, in this row; its publisher is at this node since `since_ns`; it comes in
    so many `copies`."""

    row: int
    message: str
    qos: int
    until_ns: int
    since_ns: int = 0
    copies: int = 1


class HandedRow(NamedTuple):
    """The same, and what the session did then."""

    of: HandedMessage
    cause: str


class WriterHistory:
    """`known`: the highest epoch that anybody knew of when it asked for its own; `puts`: the range of rows under way;
    `before`: what it has stored last; `handed`: messages that are not stored yet."""

    def __init__(self, session: SessionHistory, written: WrittenRows) -> None:
        self.session = session
        self.written = written
        self.known = written.epoch
        self.puts: tuple[PutRequest, ...] = ()
        self.before: Position = (0, 0)
        self.handed: deque[HandedRow] = deque()

    def hand(self, message: HandedMessage) -> None:
        """A message is handed over."""
        self.handed.append(HandedRow(message, RESUMING if self.session.resuming else CALM))


WRITER: Final = "persistent_sessions/writer"
RESUME: Final = "persistent_sessions/session_resume"
FLOW: Final = "persistent_sessions/writer_flow"
DELIVERY: Final = "persistent_sessions/delivery"
TAKES: Final = ("take", "block_rows")
MACHINES: Final = (WRITER, RESUME, FLOW, DELIVERY)
ASKS: Final = ("begin_epoch", "put_rows", "load_session", "commit_state", "mark_delivered", "fence")
ACKNOWLEDGED: Final = ("puback", "pubrec")
TOLD: Final = ("taken_over", "message_expired")
DEATHS: Final = ("crash", "cut", "kill", "lost_disk")


class SegmentRow(NamedTuple):
    """One row of the segment."""

    row: int
    node: str
    machine: str
    instance: str
    kind: str
    event: str
    source: str
    dest: str
    key: str
    term: int
    grant: int
    first: int
    last: int


class ResumedOwner(NamedTuple):
    """An owner comes to normal operation in this row."""

    row: int
    owner: OwnerHistory
    session: SessionHistory


class Histories:
    """`findings`; what is measured; `absent`: (run, whose log)."""

    def __init__(self, columns: Columns) -> None:
        self.columns = columns
        self.findings = Findings()
        self.measured: list[msgspec.Struct] = []
        self.sums: Counter[tuple[int, str]] = Counter()
        self.absent: dict[tuple[int, str], None] = {}
        self._run = -1
        self._begin()
        self._read()

    def _begin(self) -> None:
        self._sessions: MadeValues[str, SessionHistory] = MadeValues(lambda name: SessionHistory(name, self.findings))
        self._writing: dict[str, WriterHistory] = {}
        self._handed: dict[str, list[HandedMessage]] = {}
        """Messages that a writer was handed before it has said for which session it writes."""
        self._owned: dict[str, OwnerHistory] = {}
        self._session_of: dict[str, SessionHistory] = {}
        self._fences: dict[tuple[str, str], int] = {}
        """The epoch that was known when an owner asked first to fence a writer: answers may overtake each other."""
        self._wanted: dict[str, None] = {}
        """Owners that writers were told of."""
        self._nodes: set[str] = set()
        self._resumed: dict[str, ResumedOwner] = {}
        """Node -> an owner that has come to normal operation by the step whose rows are being read: those of its
        children follow its own."""

    def _read(self) -> None:
        columns = self.columns
        steps, asks = columns.rows_of(*STEPS, machine=MACHINES), columns.rows_of("ask", event=ASKS)
        parts = columns.rows_of("part", event=("hand",))
        sends, tells = columns.rows_of("send", event=("publish",)), columns.rows_of("tell", event=TOLD)
        faults = columns.rows_of("fault", event=DEATHS)
        texts = [columns.texts[name] + [""] for name in ("node", "machine", "instance", "kind", "event", "source",
                                                         "dest", "key")]  # fmt: skip
        names = ("run", "node", "machine", "instance", "kind", "event", "source", "dest", "key", "term", "grant",
                 "first", "last")  # fmt: skip
        rows = np.sort(np.concatenate((steps, parts, asks, sends, tells, faults)))
        cells = (columns[name][rows].tolist() for name in names)
        for row, run, *values in zip(rows.tolist(), *cells, strict=True):
            if run != self._run:
                self._end()
                self._run = run
            said = (names[code] for names, code in zip(texts, values[:8], strict=True))
            self._take(SegmentRow(row, *said, *values[8:]))
        self._end()

    def _take(self, cells: SegmentRow) -> None:
        self._nodes.add(cells.node)
        resumed = self._resumed.get(cells.node)
        if resumed is not None and not cells.instance.startswith(f"{resumed.owner.party}:"):
            self._resume(self._resumed.pop(cells.node))
        match cells.kind:
            case "ask":
                self._ask(cells)
            case "send":
                self._send(cells)
            case "tell":
                self._tell(cells)
            case "fault":
                self._die(cells)
            case _:
                self._step(cells)

    # -- writers ----------------------------------------------------------------------------------------------------

    def _ask(self, cells: SegmentRow) -> None:
        match cells.event:
            case "begin_epoch":
                session = self._sessions[cells.key]
                writing = self._writing[cells.instance] = WriterHistory(session, session.writers[cells.node])
                for message in self._handed.pop(cells.instance, ()):
                    writing.hand(message)
            case "put_rows":
                self._put(cells)
            case "load_session":
                owner = self._owner(cells)
                owner.token, owner.loaded = cells.term, cells.row
            case _:
                self._ask_of_owner(cells)

    def _put(self, cells: SegmentRow) -> None:
        writing = self._writing.get(cells.instance)
        if writing is None:
            return
        written, epoch, row = writing.written, cells.term, cells.row
        handed = [one.of for one in islice(writing.handed, max(0, cells.last - cells.first + 1))]
        named = f"{written.writer}: asks for {cells.key or 'nothing'} as {epoch}/{cells.first} to {cells.last}"
        first = handed[0].message if handed else "nothing"
        numbers = range(cells.first, cells.last + 1)
        is_next = first == cells.key and 0 < len(numbers) == len(handed)
        self.findings.look(EPOCHS, is_next, row, f"{named}, and {first} is next of {len(handed)} that it was handed")
        puts: list[PutRequest] = []
        before = writing.before
        for number, one in zip(numbers, handed, strict=False):
            message = one.message if puts else cells.key
            put = PutRequest(
                (epoch, number), message, one.qos, row, epoch < written.epoch, one.until_ns, one.since_ns, one.copies
            )
            written.ask(put, before)
            writing.session.put(written, put)
            puts.append(put)
            before = put.at
        writing.puts = tuple(puts)

    def _step_of_writer(self, cells: SegmentRow) -> None:
        writing = self._writing.get(cells.instance)
        if cells.event == "live_known" and cells.key:
            self._wanted[cells.key] = None
        if writing is None:
            if cells.event == "hand":
                self._handed.setdefault(cells.instance, []).append(_handed_in(cells))
            return
        written = writing.written
        if cells.event == "epoch_begun":
            written.begin(cells.row, cells.term, writing.known)
        elif cells.event == "hand":
            writing.hand(_handed_in(cells))
        elif cells.event == "row_fenced":
            written.hear(cells.term)
            for put in writing.puts:
                writing.session.refuse(written, put)
        elif writing.puts and _is_stored(cells):
            for put in writing.puts:
                written.store(put, cells.row, cells.last)
                self._measure_store(cells.row, writing)
                writing.before = put.at
            writing.puts = ()

    def _measure_store(self, row: int, writing: WriterHistory) -> None:
        self.sums[self._run, "stored"] += 1
        if writing.handed:
            handed, cause = writing.handed.popleft()
            self.measured.append(Latency("store", self._run, self._between(handed.row, row), cause))

    # -- owners -----------------------------------------------------------------------------------------------------

    def _ask_of_owner(self, cells: SegmentRow) -> None:
        party = cells.instance.removesuffix("/acknowledged")
        owner, session = self._owned.get(party), self._session_of.get(party)
        if owner is None or session is None:
            return
        if cells.event == "mark_delivered":
            written = session.writers[cells.key]
            for number in range(cells.first, max(cells.first, cells.last) + 1):
                written.mark(cells.row, party, owner.token, (cells.term, number))
        elif cells.event == "fence":
            self.sums[self._run, "fences"] += 1
            self._fences.setdefault((party, cells.key), cells.term or session.writers[cells.key].epoch)
        else:
            if cells.event == "commit_state":
                session.ask_state_commit(cells.row, owner, cells.term)
            session.ask_commit(cells.row, owner, is_answered=party == cells.instance)

    def _step(self, cells: SegmentRow) -> None:
        if cells.machine == WRITER:
            self._step_of_writer(cells)
        elif cells.machine == RESUME:
            self._step_of_resume(cells)
        else:
            party, _, name = cells.instance.partition(":")
            owner, session = self._owned.get(party), self._session_of.get(party)
            if owner is None or session is None:
                return
            if cells.machine == FLOW:
                self._step_of_flow(cells, owner, session, name)
            elif cells.event in TAKES:
                self._take_rows(cells, owner, session)
            elif cells.event == "state_committed":
                session.commit(cells.row, owner, cells.first)

    def _step_of_resume(self, cells: SegmentRow) -> None:
        owner = self._owner(cells)
        session = self._session_of.get(owner.party)
        if cells.event == "session_loaded" and cells.source == "loading":
            session = self._session_of[owner.party] = self._sessions[cells.key]
            session.load(cells.row, owner, cells.first)
        if session is None:
            return
        if cells.event == "takeover_begun" and cells.dest == "subscribing":
            session.begin_takeover(owner)
        if cells.event in ACKNOWLEDGED and cells.source == cells.dest == "normal":
            session.acknowledge(cells.row, owner, cells.first)
        if cells.dest == "normal" and cells.source != "normal":
            self._resumed[cells.node] = ResumedOwner(cells.row, owner, session)
        elif cells.dest == "yielding":
            session.yield_(owner)
        elif cells.dest == "stopped":
            session.stop(owner)

    def _resume(self, resumed: ResumedOwner) -> None:
        row, owner, session = resumed
        session.resume(row, owner)
        took = self._between(owner.begun, row)
        self.measured.append(Resume(self._run, owner.pending, owner.buffered, took))
        self.measured.append(Latency("resume", self._run, took))
        if session.died >= 0:
            waited, cause = self._between(session.died, row), self.columns.text("event", session.died)
            self.measured.append(Latency("fail_over", self._run, waited, cause))
            session.died = -1

    def _step_of_flow(self, cells: SegmentRow, owner: OwnerHistory, session: SessionHistory, writer: str) -> None:
        flow = owner.flows[writer]
        flow.step(cells.row, cells.event, cells.source, cells.dest, cells.term, cells.first)
        if cells.event == "fenced_rows":
            known = self._fences.pop((owner.party, writer), 0)
            what = f"fenced below {cells.term}, and epoch {known} was there, or wanted, when {owner.party} asked"
            self.findings.look(EPOCHS, cells.term >= known, cells.row, f"{writer}: {what}")
            session.writers[writer].hear(cells.term)

    def _take_rows(self, cells: SegmentRow, owner: OwnerHistory, session: SessionHistory) -> None:
        flow = owner.flows[cells.key]
        if cells.event == "take" and flow.released < (cells.term, cells.last) <= flow.blocked:
            flow.released = cells.term, cells.last
            return  # these have waited for older rows of other writers
        if cells.event == "block_rows":
            flow.blocked = cells.term, cells.last
        flow.take(cells.row, cells.term, cells.first, cells.last)
        written = session.writers[cells.key]
        written.take(cells.row, owner.party, owner.token, cells.term, cells.first, cells.last, cells.grant)
        count = cells.last - cells.first + 1
        self.sums[self._run, "taken"] += count
        owner.pending += count * (flow.event not in ("live", "settled"))
        owner.buffered += count * (flow.event == "settled")

    def _send(self, cells: SegmentRow) -> None:
        owner, session = self._owned.get(cells.instance), self._session_of.get(cells.instance)
        if owner is not None and session is not None:
            # An owner that died between its commit and its sending leaves what comes marked and for the first time.
            is_marked = cells.grant == 1
            self.sums[self._run, "sent_new"] += session.send(cells.row, owner, cells.key, cells.first, is_marked)
            self.sums[self._run, "sent_again"] += is_marked

    def _tell(self, cells: SegmentRow) -> None:
        if cells.event == "taken_over":
            self.measured.append(Takeover(self._run, cells.key))
            return
        owner, session = self._owned.get(cells.instance), self._session_of.get(cells.instance)
        if owner is not None and session is not None:
            self.sums[self._run, "expired"] += 1
            session.pass_over(cells.row, owner, cells.key, cells.grant > 0, cells.last)

    def _die(self, cells: SegmentRow) -> None:
        for session in self._sessions.values():
            if session.die(cells.node):
                session.died = cells.row

    # -- who is who -------------------------------------------------------------------------------------------------

    def _owner(self, cells: SegmentRow) -> OwnerHistory:
        found = self._owned.get(cells.instance)
        if found is None:
            found = self._owned[cells.instance] = OwnerHistory(cells.instance, cells.node, cells.row, self.findings)
        return found

    def _between(self, since: int, until: int) -> int:
        return max(int(self.columns["t_ns"][until] - self.columns["t_ns"][since]), 0)

    # -- the end ----------------------------------------------------------------------------------------------------

    def _end(self) -> None:
        """Of a run."""
        for resumed in self._resumed.values():
            self._resume(resumed)
        for session in self._sessions.values():
            session.end()
            self.sums[self._run, "waiting"] += sum(len(one.open) for one in session.writers.values())
            for written, (epoch, number) in session.strangers():
                if epoch in written.begun:
                    what = f"{written.writer}: {epoch}/{number} was taken, and nobody has stored it"
                    self.findings.look(GAP, False, self._last_row(), what)
                else:
                    name = written.writer
                    self.absent[self._run, f"a life of {name}" if name in self._nodes else name] = None
        for party in self._wanted.keys() - self._owned.keys():
            life, node = life_of(party), node_of(party)
            self.absent[self._run, life if node in self._nodes else node] = None
        self._begin()

    def _last_row(self) -> int:
        """The last of the run."""
        return int(np.searchsorted(self.columns["run"], self._run, "right")) - 1


def _handed_in(cells: SegmentRow) -> HandedMessage:
    return HandedMessage(cells.row, cells.key, cells.grant, cells.last, cells.first, max(1, cells.term))


def _is_stored(cells: SegmentRow) -> bool:
    """The writer is told that its rows are stored."""
    return cells.event == "row_stored" or (cells.event == "row_read" and cells.first == 1)


def histories_of(segment: Segment) -> Histories:
    """Those of a segment, read once."""
    return segment.columns.keep((Histories,), lambda: Histories(segment.columns))
