"""Written rows: what one writer has stored for one session, and what became of each of its rows.

A row stands at a position (epoch, number).  It is asked for, then stored; some owner takes it, commits that (and marks
the row), and sends its message.  Every position comes to a later state once.
"""

from __future__ import annotations

from statemachines_reports.persistent_sessions.findings import AGED, EPOCHS, GAP, ORDER, TWICE, Findings

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
