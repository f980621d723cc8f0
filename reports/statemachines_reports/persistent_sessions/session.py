"""Session: the history of one session in a run: who wrote for it, who owned it, what its client was sent.

Written rows: what one writer has stored for one session, and what became of each of its rows.

A row stands at a position (epoch, number).  It is asked for, then stored; some owner takes it, commits that (and marks
the row), and sends its message.  Every position comes to a later state once.

Session owner: one owner of a session, from the first look at the database until its log ends, and its flows.
"""

from __future__ import annotations

from typing import Final

from statemachines.kernel import node_of
from statemachines_reports.protocol import Findings, MadeValues

GAP: Final = "gap"
TWICE: Final = "twice"
ORDER: Final = "order"
CUT: Final = "cut"
OWNER: Final = "owner"
EPOCHS: Final = "epochs"
AGED: Final = "aged"


Position = tuple[int, int]
"""(epoch, number)."""


class PutRequest:
    """What a writer asks to store `at` a position, in a `row` of the segment; `stale`: the epoch was known to be raised
    by then; `stored`: the row in which the writer was told that it is (-1: not so far), at `stored_ns` of the database;
    its publisher is at this node since `since_ns` (0: unknown); it comes in so many `copies`, of which so many are
    `left`, that were neither sent nor passed over."""

    __slots__ = (
        "at",
        "copies",
        "left",
        "message",
        "qos",
        "row",
        "since_ns",
        "stale",
        "stored",
        "stored_ns",
        "until_ns",
    )

    def __init__(
        self,
        at: Position,
        message: str,
        qos: int,
        row: int,
        stale: bool,
        until_ns: int = 0,
        since_ns: int = 0,
        copies: int = 1,
    ) -> None:
        self.at = at
        self.message = message
        self.qos = qos
        self.row = row
        self.stale = stale
        self.stored = -1
        self.until_ns = max(until_ns, 0)
        self.since_ns = max(since_ns, 0)
        self.stored_ns = 0
        self.copies = max(1, copies)
        self.left = self.copies

    def is_over(self, time_ns: int) -> bool:
        """At this time of the database."""
        return 0 < self.until_ns <= time_ns


class WrittenRows:
    """`writer`: its name; `epoch`: the highest that anybody was told of; `puts`: what was asked for and not refused;
    `taken`, `lost`, `marked`, `sent`, `aged`: positions; `open`: what is stored and was not taken so far, `unsent` what
    of it is to be sent, in the order in which it was stored; `begun`: epochs whose writer has a log."""

    def __init__(self, writer: str, findings: Findings) -> None:
        self.writer = writer
        self.epoch = 0
        self.puts: dict[Position, PutRequest] = {}
        self.open: dict[Position, PutRequest] = {}
        self.unsent: dict[Position, PutRequest] = {}
        self.taken: dict[Position, str] = {}
        """Who took it last."""
        self.lost: set[Position] = set()
        self.marked: dict[Position, int] = {}
        """The token under which an owner has committed that it has taken it."""
        self.sent: set[Position] = set()
        self.aged: set[Position] = set()
        """What was passed over."""
        self.left_out: set[Position] = set()
        """What may have been, by a commit of which nobody has heard."""
        self.begun: set[int] = set()
        self._top: Position = (0, 0)
        self._last_sent: Position = (0, 0)
        self._findings = findings

    # -- the writer -------------------------------------------------------------------------------------------------

    def begin(self, row: int, epoch: int, known: int) -> None:
        """A writer begins under an epoch; `known` is the highest that anybody knew of when it asked."""
        self._look(EPOCHS, epoch > known, row, f"begins with epoch {epoch}, but {known} was there when it asked")
        self.hear(epoch)
        self.begun.add(epoch)

    def hear(self, epoch: int) -> None:
        """Somebody was told of an epoch."""
        self.epoch = max(self.epoch, epoch)

    def ask(self, put: PutRequest, before: Position) -> None:
        """A row is asked for; `before`: what this life of the writer has stored last."""
        epoch, number = put.at
        follows = number == (before[1] + 1 if before[0] == epoch else 1)
        self._look(EPOCHS, follows, put.row, f"numbers {number} under epoch {epoch}, which is not the next")
        self.begun.add(epoch)
        known = self.puts.get(put.at)
        if known is None:
            self.puts[put.at] = put
        else:
            same = known.message == put.message
            what = f"stores {put.message} as {_show(put.at)}, where {known.message} is"
            self._look(EPOCHS, same, put.row, what)

    def store(self, put: PutRequest, row: int, stored_ns: int = 0) -> None:
        """The writer is told that a row is stored, and since when."""
        what = f"stored {_show(put.at)} after epoch {self.epoch} had been told of"
        self._look(EPOCHS, not put.stale, row, what)
        put.stored, put.stored_ns = row, stored_ns
        if put.qos and stored_ns > 0 and not any(put.at in one for one in (self.sent, self.lost, self.aged)):
            self.unsent[put.at] = put
        if put.at not in self.taken:
            self.open[put.at] = put

    def refuse(self, put: PutRequest) -> None:
        """The row is not stored: its epoch was raised."""
        self.puts.pop(put.at, None)

    # -- owners -----------------------------------------------------------------------------------------------------

    def take(self, row: int, owner: str, token: int, epoch: int, first: int, last: int, lost: int) -> None:
        """An owner takes some rows into the session state; `lost`: retention has removed messages of some.

        An owner that stood still while another took the session over may take what the later owner has committed: it
        was sent that live meanwhile.  Nothing comes of it, since its commit is refused.
        """
        self._findings.looked[GAP] += last - first + 1
        for number in range(first, last + 1):
            at = epoch, number
            committed = self.marked.get(at)
            what = f"is taken again by {owner} under token {token}, and was committed under {committed}"
            self._look(TWICE, committed is None or token < committed, row, f"{_show(at)} {what}")
            if committed is not None:
                continue
            self.taken[at] = owner
            self.open.pop(at, None)
            if lost:
                self.lost.add(at)
                self.unsent.pop(at, None)
        self._top = max(self._top, (epoch, last))

    def has_message(self, at: Position) -> bool:
        """Whether an owner has taken the row, and its message was there."""
        return at in self.taken and at not in self.lost

    def mark(self, row: int, owner: str, token: int, at: Position) -> None:
        """An owner has committed that it has taken a row."""
        self._look(TWICE, at not in self.marked, row, f"{_show(at)} is committed a second time, by {owner}")
        self.marked.setdefault(at, token)

    def send(self, row: int, owner: str, put: PutRequest) -> None:
        """An owner sends a copy of a message to the client for the first time."""
        at = put.at
        behind = f"{_show(at)} is sent by {owner} behind {_show(self._last_sent)}"
        self._look(ORDER, at > self._last_sent or (at == self._last_sent and put.copies > 1), row, behind)
        self._last_sent = max(self._last_sent, at)
        if not put.left:
            self.sent.add(at)
            self.unsent.pop(at, None)

    def check_older(self, row: int, owner: str, before_ns: int, what: str) -> None:
        """An owner sends a row of another writer, whose publisher may have stored something here before that time."""
        first = next(iter(self.unsent.values()), None)
        is_older = first is not None and first.stored_ns < before_ns
        late = f"{what} is sent by {owner} before {_show(first.at)} ({first.message})" if first and is_older else ""
        self._look(ORDER, not is_older, row, late)

    def pass_over(self, row: int, owner: str, put: PutRequest, time_ns: int) -> None:
        """An owner leaves a message out, since it was over when that was to be committed."""
        what = f"{_show(put.at)} is passed over by {owner} at {time_ns}, and is over at {put.until_ns or 'no time'}"
        self._look(AGED, put.is_over(time_ns), row, what)
        if not put.left:
            self.aged.add(put.at)
            self.unsent.pop(put.at, None)

    def leave_out(self, loaded_ns: int) -> None:
        """A commit of which its owner did not hear may have taken out what was over when the state was loaded, behind
        what was sent: nobody waits for that."""
        over = {at for at, put in self.unsent.items() if at > self._last_sent and put.is_over(loaded_ns)}
        self.unsent = {at: put for at, put in self.unsent.items() if at not in over}
        self.left_out |= over

    def check_resumed(self, row: int, owner: str, since: int) -> None:
        """An owner comes to normal operation: what was stored before row `since`, when it loaded the state, is
        taken."""
        late = [at for at, put in self.open.items() if put.stored < since]
        what = f"{owner} is in normal operation without {_show(min(late))}" if late else ""
        self._look(GAP, not late, row, what)

    # -- the end ----------------------------------------------------------------------------------------------------

    def end(self, loaded_ns: int) -> None:
        """The run is over: what others have overtaken never comes.  Of what was over at `loaded_ns`, when an owner
        loaded the state last, the one before may have died before it could say so.  What it had committed before, only
        a further commit takes out."""
        for at, put in self.open.items():
            what = f"{_show(at)} ({put.message}) was never taken, {_show(self._top)} was"
            self._look(GAP, at > self._top, put.stored, what)
        for at in self.taken.keys() - self.sent - self.lost - self.aged - self.left_out:
            one = self.puts.get(at)
            if one is not None and one.qos and not (at not in self.marked and one.is_over(loaded_ns)):
                what = f"{_show(at)} ({one.message}) was taken and never sent, {_show(self._last_sent)} was"
                self._look(GAP, at >= self._last_sent, one.row, what)

    def strangers(self) -> set[Position]:
        """What was taken, and no log says who stored it."""
        return self.taken.keys() - self.puts.keys()

    def _look(self, check: str, holds: bool, row: int, detail: str) -> None:
        self._findings.look(check, holds, row, f"{self.writer}: {detail}")


def _show(at: Position) -> str:
    return f"{at[0]}/{at[1]}"


FROM_DATABASE = ("polled", "handed")
KEEPING = ("behind", "syncing", "finalizing")
STARVED = ("behind", "draining")


class OwnedFlow:
    """One writer of an owner: `k` of the marker that is shown, or of a cut without one, under `epoch` (0: none), so
    many messages `kept` behind it; `taken`: the last position that this owner took (None: nothing yet); `event`: what
    the flow has heard last; `status`: its state; `blocked`: the last position that waited for other writers, and
    `released`: the last of those that wait no more."""

    __slots__ = (
        "_findings",
        "_name",
        "blocked",
        "epoch",
        "event",
        "expects",
        "k",
        "kept",
        "released",
        "status",
        "taken",
    )

    def __init__(self, name: str, findings: Findings) -> None:
        self._name = name
        self._findings = findings
        self.taken: Position | None = None
        self.blocked: Position = (0, 0)
        self.released: Position = (0, 0)
        self.k = self.epoch = self.kept = 0
        self.event = self.status = ""
        self.expects: tuple[int, int] | None = None
        """What was kept, and is to be taken at once."""

    def step(self, row: int, event: str, source: str, dest: str, epoch: int, first: int) -> None:
        """The flow has heard something; `epoch` and `first`: what it says, a number or the marker's."""
        self.check_kept(row)
        self.event, self.status = event, dest
        if event == "starve" or (event == "live_marker" and source == "waiting" and dest == "syncing"):
            self.k, self.epoch, self.kept = first, epoch, 0
        elif event == "live" and source in KEEPING and first == self.k + self.kept:
            self.kept += 1
        elif event == "settled" and dest == "done":
            self._finish(row)
        if dest in ("waiting", "fencing"):
            self.k = self.kept = 0

    def _finish(self, row: int) -> None:
        """What is below the marker is taken, all of it; what was kept follows."""
        number = 0 if self.taken is None or self.taken[0] != self.epoch else self.taken[1]
        below = self.taken is None or number == self.k - 1
        self._look(CUT, below, row, f"takes what was kept from {self.k} on, and has taken up to {number}")
        self.expects = (self.k, self.k + self.kept - 1) if self.kept else None

    def take(self, row: int, epoch: int, first: int, last: int) -> None:
        """Rows are taken: those of a flow follow each other."""
        before = self.taken
        if before is not None:
            follows = first == before[1] + 1 if epoch == before[0] else epoch > before[0] and first == 1
            self._look(GAP, follows, row, f"takes {epoch}/{first} behind {before[0]}/{before[1]}")
        if self.event in FROM_DATABASE and self.k:
            self._look(CUT, last < self.k, row, f"takes {last} from the database, and the marker says {self.k}")
        elif self.expects is not None:
            kept, self.expects = self.expects, None
            self._look(CUT, (first, last) == kept, row, f"takes {first} to {last}, and has kept {kept[0]} to {kept[1]}")
        self.taken = epoch, last

    def check_kept(self, row: int) -> None:
        """Nothing that was kept is forgotten."""
        if self.expects is not None:
            kept, self.expects = self.expects, None
            self._look(CUT, False, row, f"has kept {kept[0]} to {kept[1]}, and does not take it")

    def _look(self, check: str, holds: bool, row: int, detail: str) -> None:
        self._findings.look(check, holds, row, f"{self._name} {detail}")


class OwnerHistory:
    """`party` owns a session under `token`; rows of the segment: `begun` when its client connected, `loaded` when it
    asked for the state.  `pending` and `buffered`: how many rows it took from the database, and from behind markers,
    on its way to normal operation; `stale`: it asks for a commit, and somebody has loaded the state after it."""

    def __init__(self, party: str, node: str, row: int, findings: Findings) -> None:
        self.party = party
        self.node = node
        self.begun = row
        self.loaded = row
        self.token = 0
        self.flows: MadeValues[str, OwnedFlow] = MadeValues(
            lambda writer: OwnedFlow(f"{party}, writer {writer},", findings)
        )
        self.pending = self.buffered = 0
        self.stale = self.is_yielding = False
        self.committed_ns = 0
        """When it has committed last, by the clock of the database."""

    def is_starved(self, writer: str) -> bool:
        """What this writer has stored is read when the client has room for it."""
        found = self.flows.get(writer)
        return found is not None and found.status in STARVED


Kind = tuple[str, bool]
"""A message, and whether it comes under a packet (QoS 1 and 2)."""


class SessionHistory:
    """`name`: its id; `writers` by name; `resuming`: owners that are on their way to normal operation; `died`: the row
    in which the node of its owner died (-1: it lives)."""

    def __init__(self, name: str, findings: Findings) -> None:
        self.name = name
        self.writers: MadeValues[str, WrittenRows] = MadeValues(lambda name: WrittenRows(name, findings))
        self.resuming: set[str] = set()
        self.normal: OwnerHistory | None = None
        self.died = -1
        self.loaded_ns = 0
        """When its state was loaded last, by the clock of the database."""
        self._committing: set[str] = set()
        """Owners that have asked for a commit, and have not heard of it."""
        self._findings = findings
        self._loaded: list[tuple[int, int]] = [(-1, 0)]
        """The rows in which it was loaded under a token that was higher than all before, and the tokens."""
        self._begun = 0
        """The highest token of whom an owner of before has yielded to, as that one was told."""
        self._puts: dict[Kind, list[tuple[WrittenRows, PutRequest]]] = {}
        self._packets: dict[int, str] = {}
        self._senders: dict[tuple[str, int], int] = {}
        """(message, packet) -> the highest token under which an owner has sent it so."""

    def put(self, written: WrittenRows, put: PutRequest) -> None:
        """A row is asked for, or asked for again."""
        if written.puts.get(put.at) is put:
            self._puts.setdefault((put.message, put.qos > 0), []).append((written, put))

    def refuse(self, written: WrittenRows, put: PutRequest) -> None:
        """It was not stored."""
        known = written.puts.get(put.at)
        written.refuse(put)
        if known is not None:
            self._puts[known.message, known.qos > 0].remove((written, known))

    # -- owners -----------------------------------------------------------------------------------------------------

    def load(self, row: int, owner: OwnerHistory, time_ns: int) -> None:
        """An owner has its state, as of this time of the database, which refuses those before it from now on."""
        self.loaded_ns = max(self.loaded_ns, time_ns)
        if self._committing:
            self._committing.clear()
            for written in self.writers.values():
                written.leave_out(self.loaded_ns)
        known = max(token for at, token in self._loaded if at < owner.loaded)
        self._look(owner.token >= known, row, f"{owner.party} loads it under {owner.token}, and {known} was there")
        if owner.token > self._loaded[-1][1]:
            self._loaded.append((row, owner.token))
        self.resuming.add(owner.party)

    def ask_commit(self, row: int, owner: OwnerHistory, is_answered: bool) -> None:
        """An owner asks for a commit, and hears of it."""
        self._look(not owner.is_yielding, row, f"{owner.party} asks for a commit, and has yielded")
        if is_answered:
            owner.stale = owner.token < self._loaded[-1][1]

    def ask_state_commit(self, row: int, owner: OwnerHistory, token: int) -> None:
        """An owner asks under the token under which it has loaded the state."""
        self._committing.add(owner.party)
        what = f"{owner.party} asks for a commit under token {token}, and has loaded the state under {owner.token}"
        self._look(token == owner.token, row, what)

    def acknowledge(self, row: int, owner: OwnerHistory, packet: int) -> None:
        """The client says that it has a packet, which some owner has sent it."""
        what = f"{owner.party} is told that packet {packet} came, which nobody has sent"
        self._look(packet in self._packets, row, what)

    def commit(self, row: int, owner: OwnerHistory, time_ns: int) -> None:
        """It is told that it has committed, at this time of the database."""
        owner.committed_ns = time_ns
        self._committing.discard(owner.party)
        token = self._loaded[-1][1]
        what = f"{owner.party} commits under token {owner.token}, and it had been loaded under {token}"
        self._look(not owner.stale, row, what)

    def begin_takeover(self, owner: OwnerHistory) -> None:
        """The owner of before has said that it yields to this one."""
        self._begun = max(self._begun, owner.token)

    def resume(self, row: int, owner: OwnerHistory) -> None:
        """An owner is in normal operation."""
        for name, written in self.writers.items():
            if not owner.is_starved(name):
                written.check_resumed(row, owner.party, owner.loaded)
        self.resuming.discard(owner.party)
        self.normal = owner

    def yield_(self, owner: OwnerHistory) -> None:
        """An owner falls silent."""
        owner.is_yielding = True
        self.stop(owner)

    def stop(self, owner: OwnerHistory) -> None:
        """An owner ends."""
        self.resuming.discard(owner.party)
        if self.normal is owner:
            self.normal = None

    def die(self, node: str) -> bool:
        """A node has died; whether the session was in normal operation there."""
        self.resuming = {party for party in self.resuming if node_of(party) != node}
        if self.normal is None or self.normal.node != node:
            return False
        self.normal = None
        return True

    # -- the client -------------------------------------------------------------------------------------------------

    def send(self, row: int, owner: OwnerHistory, message: str, packet: int, again: bool) -> bool:
        """An owner sends a message to the client; whether it is sent for the first time.

        An owner that stood still between its commit and its first sending sends when it continues. A later owner, which
        loaded that commit, may have sent the message before, marked and under the same packet. The client has left the
        earlier owner by then (PS-D85).
        """
        self._look(not owner.is_yielding, row, f"{owner.party} sends {message}, and has yielded")
        what = f"{owner.party} sends {message} under token {owner.token}, and {self._begun} has taken over"
        self._look(owner.token >= self._begun, row, what)
        if packet and owner.token < self._senders.get((message, packet), 0):
            return False
        if packet:
            self._senders[message, packet] = owner.token
        if again and self._packets.get(packet) == message:
            return False
        self._packets[packet] = message
        self._send_first(row, owner, message, packet > 0)
        return True

    def _send_first(self, row: int, owner: OwnerHistory, message: str, has_packet: bool) -> None:
        kind = message, has_packet
        puts = self._puts.get(kind)
        if puts is None:
            return  # nobody's log says where it comes from
        found = self._next_put(kind)
        what = f"{message} is sent by {owner.party} as new, and was sent before"
        self._findings.look(TWICE, found is not None, row, what)
        if found is None:
            return
        written, put = found
        late = f"{message} is sent by {owner.party} as new at {owner.committed_ns}, and was over at {put.until_ns}"
        if put.until_ns:
            self._findings.look(AGED, not put.is_over(owner.committed_ns), row, late)
        committed = put.at in written.marked or written.taken.get(put.at, owner.party) != owner.party
        self._look(committed, row, f"{owner.party} sends {message}, and has not committed that it has taken it")
        written.send(row, owner.party, put)
        for other in self.writers.values() if put.since_ns else ():
            if other is not written:
                other.check_older(row, owner.party, put.since_ns, message)

    def pass_over(self, row: int, owner: OwnerHistory, message: str, has_packet: bool, time_ns: int) -> None:
        """An owner says that a message was over before it was sent."""
        kind = message, has_packet
        puts = self._puts.get(kind)
        if puts is None:
            return  # nobody's log says where it comes from
        found = self._next_put(kind)
        what = f"{message} is passed over by {owner.party}, and was sent before"
        self._findings.look(AGED, found is not None, row, what)
        if found is not None:
            written, put = found
            written.pass_over(row, owner.party, put, time_ns)

    def _next_put(self, kind: Kind) -> tuple[WrittenRows, PutRequest] | None:
        """The row that is sent, of those of a message: the first that an owner has taken with its message.  Of others
        the message may have been deleted, because it was too old."""
        left = [one for one in self._puts[kind] if one[1].left]
        found = next((one for one in left if one[0].has_message(one[1].at)), left[0] if left else None)
        if found is not None:
            found[1].left -= 1
        return found

    # -- the end ----------------------------------------------------------------------------------------------------

    def end(self) -> None:
        """The run is over."""
        for written in self.writers.values():
            written.end(self.loaded_ns)

    def strangers(self) -> list[tuple[WrittenRows, Position]]:
        """What owners took, and no log says who stored it."""
        return [(one, at) for one in self.writers.values() for at in sorted(one.strangers())]

    def _look(self, holds: bool, row: int, detail: str) -> None:
        self._findings.look(OWNER, holds, row, detail)
