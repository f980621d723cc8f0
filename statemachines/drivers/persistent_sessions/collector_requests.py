"""Collector requests: everything in `persistent_sessions.collector_record`, carried out in a transaction.

Ages count from the commit of a row, or message, by the time of the store.  What a deletion depends on is a part of the
statement that deletes.  Rows of a page that follow each other are one statement.

Backlog: what waits for each session, added up while a collector walks the rows (`waiting_rows` says what of it is
dropped).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

import msgspec
from msgspec.structs import replace

from statemachines.drivers.persistent_sessions.host_requests import DropRows
from statemachines.drivers.persistent_sessions.life_requests import abandon
from statemachines.drivers.persistent_sessions.request_batch import runs_of
from statemachines.drivers.persistent_sessions.session_row import SessionRow
from statemachines.drivers.persistent_sessions.sql import (
    ABANDONED,
    DELIVERED,
    END_MS,
    IS_HELD,
    IS_LEFT,
    MARKER,
    UNDELIVERED,
    Sql,
    has_row,
    read_number,
    read_one,
)
from statemachines.kernel import Answer, ConfigurationError, Request
from statemachines.persistent_sessions.collector import (
    ClientForgotten,
    ClientsRead,
    DeletePage,
    ForgetClient,
    MessagesRead,
    Only,
    PageDeleted,
    ReadClients,
    ReadMessages,
    ReadRows,
    RowDeletion,
    RowKey,
    RowsRead,
    StoredClient,
    StoredMessage,
    StoredRow,
    Tag,
)
from statemachines.persistent_sessions.resume_record import (
    Firsts,
    MessageRun,
    Piece,
    Place,
    WaitingMessages,
    add_up,
    choose_dropped,
    list_large,
    list_others,
    list_within,
)
from statemachines.persistent_sessions.times import MS

PIECES: Final = 100
"""In so many pieces the bound is divided: rows are dropped by whole pieces."""

PIECE_MAX: Final = 1_000
"""Rows of the largest piece: it is dropped in one transaction."""


FIRST: Final = (b"", b"", 0, 0)
"""Before all rows."""

KNOWN_MIN: Final = 100
"""Rows of a piece that is remembered until the next walk: fewer are as soon read again."""


class SessionBounds(msgspec.Struct, frozen=True):
    """What may wait for a session: `messages`, and `size_bytes` of their payloads.

    `ConfigurationError` names the value that cannot be.
    """

    messages: int = 1_000_000
    size_bytes: int = 2**30

    def __post_init__(self) -> None:
        for key in ("messages", "size_bytes"):
            value = getattr(self, key)
            if isinstance(value, bool) or value < 1:
                raise ConfigurationError(f"session_{key}", value, "must be at least 1")


class WaitingRow(NamedTuple):
    """A row that its session has not taken, and the bytes of its payload."""

    session: bytes
    writer: bytes
    epoch: int
    number: int
    time_ns: int
    size_bytes: int


class Backlog(NamedTuple):
    """What waits in a store: `messages` and `size_bytes` of their payloads, of all sessions, and the most `messages`
    of one."""

    messages: int = 0
    size_bytes: int = 0
    largest: int = 0

    def include(self, rows: int, size_bytes: int) -> Backlog:
        """And those of one more session."""
        return Backlog(self.messages + rows, self.size_bytes + size_bytes, max(self.largest, rows))


class BacklogTally:
    """`add` each row that waits, in the order of the table, and `finish` at its end; `take_drops` is what is to be
    dropped of the sessions that were walked through meanwhile.  Rows that waited in the walk before, and wait still,
    are added as its pieces."""

    def __init__(self, bounds: SessionBounds) -> None:
        self._bounds = bounds
        self._rows_max = min(PIECE_MAX, max(1, bounds.messages // PIECES))
        self._session = b""
        self._pieces: list[Piece] = []
        self._drops: list[DropRows] = []
        self._known: dict[tuple[bytes, bytes, int], list[Piece]] = {}
        """(session, writer, epoch) -> pieces of the last walk that came to its end."""
        self._walked: dict[tuple[bytes, bytes, int], list[Piece]] = {}
        self._reused = 0
        """Pieces of this session that are known from the walk before."""
        self._sum = Backlog()
        self._last: tuple[bytes, bytes, int, int] = FIRST
        """The row that was counted last: a page may begin before it, and have it once more."""
        self.backlog: Backlog | None = None
        """As of the last walk that came to its end, at most: what pieces of before have lost since is not known."""

    def begin(self) -> None:
        """A walk begins: what was added of one that did not come to its end counts for nothing."""
        self._pieces.clear()
        self._walked = {}
        self._reused = 0
        self._sum = Backlog()
        self._last = FIRST

    def list_known(self, session: bytes, writer: bytes, epoch: int, first: int, last: int) -> list[Piece]:
        """Pieces of the walk before that lie between these numbers: their rows wait still."""
        known = self._known.get((session, writer, epoch), ())
        return list_within(known, first, last)

    def add_piece(self, session: bytes, piece: Piece) -> None:
        """The next rows that wait are those of a piece of the walk before."""
        is_new = self._enter(session, (session, piece.writer, piece.epoch, piece.last))
        if is_new:
            self._pieces.append(piece)
            self._reused += 1

    def add(self, row: WaitingRow) -> None:
        """The next row that waits."""
        is_new = self._enter(row.session, row[:4])
        if not is_new:
            return
        last = self._pieces[-1] if self._pieces else None
        if last is None or self._is_full(last) or (last.writer, last.epoch) != (row.writer, row.epoch):
            last = Piece(row.writer, row.epoch, row.number, row.number, row.time_ns)
            self._pieces.append(last)
        last.last, last.time_ns = row.number, row.time_ns
        last.rows += 1
        last.size_bytes += row.size_bytes

    def finish(self) -> None:
        """There are no more rows."""
        self._end_session()
        self._known = self._walked
        self.backlog = self._sum

    def _enter(self, session: bytes, place: tuple[bytes, bytes, int, int]) -> bool:
        """Whether the row at this place was not counted yet."""
        if place <= self._last:
            return False
        self._last = place
        if session != self._session:
            self._end_session()
            self._session = session
        return True

    def _end_session(self) -> None:
        """What has grown less since a piece was counted is not known: where pieces of before say that something is to
        be dropped, the next walk counts the session anew."""
        session = self._session.decode()
        left = self._pieces
        dropped = list(choose_dropped(self._pieces, self._bounds.messages, self._bounds.size_bytes))
        if not dropped:
            for piece in list_large(self._pieces, KNOWN_MIN):
                self._walked.setdefault((self._session, piece.writer, piece.epoch), []).append(piece)
        elif not self._reused:
            left = list_others(left, dropped)
            for piece in dropped:
                self._drops.append(DropRows(session, piece.writer.decode(), piece.epoch, piece.first, piece.last))
        if left:
            self._sum = self._sum.include(*add_up(left))
        self._pieces.clear()
        self._reused = 0

    def take_drops(self) -> list[DropRows]:
        """What is to be dropped, once."""
        drops, self._drops = self._drops, []
        return drops

    def _is_full(self, piece: Piece) -> bool:
        return piece.rows >= self._rows_max or piece.size_bytes * PIECES >= self._bounds.size_bytes


TAGS: Final = {
    Tag.UNDELIVERED: UNDELIVERED,
    Tag.DELIVERED: DELIVERED,
    Tag.MARKER: MARKER,
    Tag.ABANDONED: ABANDONED,
}
TAG_OF: Final = {number: tag for tag, number in TAGS.items()}


_CLIENTS: Final = (
    "SELECT clients.client, clients.holder, clients.until_ns, sessions.session, sessions.connection,"
    " sessions.expiry_ms, sessions.seen_ns FROM @clients AS clients"
)
_SESSIONS: Final = f"{_CLIENTS} JOIN @sessions AS sessions ON sessions.client = clients.client"
# Each is found by an index of its own: a session that stays is not read.
LEFT: Final = (
    f"{_SESSIONS} WHERE {IS_LEFT} AND {END_MS} <= :end_ms AND (clients.holder = :nobody OR clients.until_ns <= :now_ns)"
    f" ORDER BY {END_MS} LIMIT :limit"
)
HELD: Final = f"{_SESSIONS} WHERE {IS_HELD} AND sessions.client > :after ORDER BY sessions.client LIMIT :limit"
ALONE: Final = (
    "SELECT client, holder, until_ns, NULL, NULL, NULL, NULL FROM @clients WHERE session IS NULL AND client > :after"
    " ORDER BY client LIMIT :limit"
)
PLACE: Final = "\0"
"""Begins what is no client: an end follows, up to which sessions that nobody has in hand are read."""

_TWIN: Final = f"CASE found.tag WHEN {UNDELIVERED} THEN {DELIVERED} WHEN {DELIVERED} THEN {UNDELIVERED} ELSE -1 END"
_HAS_TWIN: Final = has_row(
    "SELECT 1 FROM @session_rows AS twin WHERE twin.session = found.session AND twin.writer = found.writer"
    f" AND twin.epoch = found.epoch AND twin.number = found.number AND twin.tag = {_TWIN}"
)
_IS_ABANDONED: Final = has_row(
    "SELECT 1 FROM @session_rows AS gone WHERE gone.session = found.session AND gone.writer = :none"
    f" AND gone.epoch = 0 AND gone.number = 0 AND gone.tag = {ABANDONED}"
)
_IS_TAKEN: Final = has_row(
    "SELECT 1 FROM @taken AS taken WHERE taken.session = found.session AND taken.writer = found.writer"
    " AND (taken.epoch, taken.number) >= (found.epoch, found.number)"
)
# What says that a session is abandoned has no writer, and all its other rows have one.
_HAS_OTHERS: Final = has_row(
    "SELECT 1 FROM @session_rows AS rest WHERE rest.session = found.session AND rest.writer > :none"
)
ROWS: Final = (
    "SELECT found.session, found.writer, found.epoch, found.number, found.tag, found.token, found.n, found.time_ns,"
    f" {_IS_ABANDONED}, {_HAS_TWIN}, found.tag IN ({UNDELIVERED}, {DELIVERED}) AND {_IS_TAKEN},"
    f" found.tag = {ABANDONED} AND NOT {_HAS_OTHERS}"
    " FROM @session_rows AS found WHERE (found.session, found.writer, found.epoch, found.number, found.tag)"
    " > (:session, :writer, :epoch, :number, :tag)"
    " ORDER BY found.session, found.writer, found.epoch, found.number, found.tag LIMIT :limit"
)
_OF_EPOCH: Final = "FROM @session_rows AS found WHERE session = :session AND writer = :writer AND epoch = :epoch"
NUMBER_MAX: Final = 2**62
COUNTED_MAX: Final = 1_000
"""Rows that are counted for one page, and ..."""
STEPS_MAX: Final = 100
"""... statements of a page: as long a page keeps others waiting."""
_UNDELIVERED_TWIN: Final = has_row(
    "SELECT 1 FROM @session_rows AS twin WHERE twin.session = found.session AND twin.writer = found.writer"
    f" AND twin.epoch = found.epoch AND twin.number = found.number AND twin.tag = {UNDELIVERED}"
)
_REST: Final = has_row("SELECT 1 FROM @session_rows AS rest WHERE rest.session = :session AND rest.writer > :writer")
# The tag is no value of the statement: with one SQLite plans it anew each time, as an index may be for that tag.
DELETIONS: Final = {
    (tag, only): "DELETE FROM @session_rows AS found WHERE found.session = :session AND found.writer = :writer"
    f" AND found.epoch = :epoch AND found.number BETWEEN :number AND :last AND found.tag = {tag}"
    f" AND found.token = :token AND found.n = :n{condition}"
    for tag in TAGS.values()
    for only, condition in {
        Only.ALWAYS: "",
        Only.UNPAIRED: f" AND NOT {_UNDELIVERED_TWIN}",
        Only.ALONE: f" AND NOT {_REST}",
    }.items()
}
"""By the tag of the rows, and on what they depend."""
_REFERRED: Final = has_row(
    f"SELECT 1 FROM @session_rows AS found WHERE found.message = id AND found.tag = {UNDELIVERED}"
)
_HOLDERS: Final = (f"SELECT 1 FROM @{it} AS {it} WHERE {it}.message = id" for it in ("packets", "queued", "fan_out"))
_HELD: Final = f"({' OR '.join(map(has_row, _HOLDERS))})"
# All rows of a message are over at one moment; one that is not ends the look at once.
_LASTS: Final = has_row(
    f"SELECT 1 FROM @session_rows AS found WHERE found.message = id AND found.tag = {UNDELIVERED}"
    " AND NOT (found.until_ns > 0 AND found.until_ns <= :now_ns)"
)
_OVER: Final = f"{_REFERRED} AND NOT {_LASTS}"
MESSAGES: Final = (
    f"SELECT id, time_ns, {_REFERRED}, {_HELD}, {_OVER} FROM @messages WHERE (time_ns, id) > (:time_ns, :id)"
    " AND time_ns <= :last_ns ORDER BY time_ns, id LIMIT :limit"
)
FIRST_ROW: Final = (
    "SELECT session, writer, epoch, number FROM @session_rows"
    f" WHERE message = :id AND tag = {UNDELIVERED} AND until_ns = 0 LIMIT 1"
)
IS_THERE: Final = (
    "SELECT 1 FROM @session_rows WHERE session = :session AND writer = :writer AND epoch = :epoch AND number = :number"
    f" AND tag = {UNDELIVERED}"
)
DELETE_MESSAGE: Final = {
    only: f"DELETE FROM @messages WHERE id = :id{condition}"
    for only, condition in {
        Only.ALWAYS: "",
        Only.UNHELD: f" AND NOT {_HELD}",
        Only.UNREFERENCED: f" AND NOT {_HELD} AND NOT {_REFERRED}",
        Only.OVER: f" AND NOT {_HELD} AND {_OVER}",
    }.items()
}
"""On what it depends."""
LOSES_NOTHING: Final = (Only.UNREFERENCED, Only.OVER)
"""Where a deletion depends on that, no row is still to be taken that refers to the message."""


def read_clients(sql: Sql, asked: ReadClients) -> Answer:
    """Clients whose session stays are left out (PS-600).  Sessions that nobody has in hand come first, by their ends:
    those that are over when a round begins.  The last of such a page is no client, and says where it goes on."""
    after = asked.after.encode()
    if not after or (asked.after[0] == PLACE and asked.after[1:].isdecimal()):
        end_ms, after = int(asked.after[1:] or sql.aged_ns // MS), b""
        left = sql.all(LEFT, end_ms=end_ms, now_ns=sql.now_ns, nobody=b"", limit=asked.limit)
        if over := [one for one in _stored_clients(sql, left, asked.dead_ms) if one.over]:
            return ClientsRead((*over, StoredClient(f"{PLACE}{end_ms}", False)))
    found = [row for query in (HELD, ALONE) for row in sql.all(query, after=after, limit=asked.limit)]
    found.sort(key=lambda row: bytes(row[0]))
    return ClientsRead(_stored_clients(sql, found[: asked.limit], asked.dead_ms))


def _stored_clients(sql: Sql, found: Sequence[tuple[Any, ...]], dead_ms: int) -> tuple[StoredClient, ...]:
    return tuple(StoredClient(row[0].decode(), _is_over(sql, row, dead_ms)) for row in found)


def _is_over(sql: Sql, row: tuple[Any, ...], dead_ms: int) -> bool:
    """A client without a session is over, too; one that somebody has locked is not."""
    _, holder, until_ns, *session = row
    if holder and until_ns > sql.now_ns:
        return False
    return session[0] is None or SessionRow(*session).is_over(sql, dead_ms)


def forget_client(sql: Sql, asked: ForgetClient) -> Answer:
    """Tokens are of the store: whoever still has one of this client finds nothing."""
    client = asked.client.encode()
    found = read_one(
        sql,
        f"{_CLIENTS} LEFT JOIN @sessions AS sessions ON sessions.session = clients.session WHERE clients.client"
        " = :client",
        client=client,
    )
    if found is None or not _is_over(sql, found, asked.dead_ms):
        return ClientForgotten(False)
    if found[3] is not None:
        abandon(sql, found[3])
    return ClientForgotten(bool(sql.count("DELETE FROM @clients WHERE client = :client", client=client)))


def read_rows(sql: Sql, asked: ReadRows, tally: BacklogTally | None = None) -> Answer:
    """A page; whatever was deleted since the last one, it goes on behind.  `tally` is told of rows that are left out,
    since they wait."""
    if asked.waiting:
        found = sql.all(ROWS, limit=asked.limit, none=b"", **_place(asked.after))
        return RowsRead(tuple([_stored_row(row, sql.aged_ns) for row in found]))
    if tally is not None and asked.after is None:
        tally.begin()
    rows = _RowWalk(sql, tally, asked).read()
    if tally is not None and not rows:
        tally.finish()
    return RowsRead(tuple(rows))


class _RowWalk:
    """A page without rows that wait.  Such rows of one epoch are a run, whose end is found by two keys: they are passed
    over, or read for the tally, as far as it does not know them yet."""

    def __init__(self, sql: Sql, tally: BacklogTally | None, asked: ReadRows) -> None:
        self._sql = sql
        self._tally = tally
        self._asked = asked
        self._most = asked.limit
        self._to_count = COUNTED_MAX

    def read(self) -> list[StoredRow]:
        """The rows; none: there are no more."""
        rows: list[StoredRow] = []
        place, limit = _place(self._asked.after), 1
        for _ in range(STEPS_MAX):
            found = self._sql.all(ROWS, limit=min(limit, self._most - len(rows)), none=b"", **place)
            limit = self._most
            passed = None
            for row in found:
                stored = _stored_row(row, self._sql.aged_ns)
                if stored.waits:
                    passed, limit = self._pass_run(stored), 1
                    break
                rows.append(stored)
            if not found or len(rows) == self._most:
                return rows
            place = _place(passed.key if passed else rows[-1].key)
            if self._to_count <= 0:
                break
        return [*rows, passed] if passed else rows

    def _pass_run(self, row: StoredRow) -> StoredRow:
        """The last row of its run, or the last one that was counted."""
        key = row.key
        where = {"session": key.session.encode(), "writer": key.writer.encode(), "epoch": key.epoch}
        mark = read_one(
            self._sql,
            f"SELECT number {_OF_EPOCH} AND number > :number AND tag = {DELIVERED} ORDER BY number LIMIT 1",
            number=key.number,
            **where,
        )
        until = mark[0] if mark else NUMBER_MAX
        (last,) = read_one(
            self._sql,
            f"SELECT number {_OF_EPOCH} AND number >= :number AND number < :until ORDER BY number DESC, tag"
            " DESC LIMIT 1",
            number=key.number,
            until=until,
            **where,
        ) or (key.number,)
        if self._tally is not None:
            last = self._count_run(self._tally, key.number, last, where)
        return replace(row, key=replace(key, number=last))

    def _count_run(self, tally: BacklogTally, number: int, last: int, where: dict[str, Any]) -> int:
        for piece in tally.list_known(**where, first=number, last=last):
            number = self._count_rows(tally, number, piece.first - 1, where)
            if self._to_count <= 0:
                return number - 1
            tally.add_piece(where["session"], piece)
            number = piece.last + 1
        return self._count_rows(tally, number, last, where) - 1

    def _count_rows(self, tally: BacklogTally, number: int, last: int, where: dict[str, Any]) -> int:
        """The number of the first that was not counted."""
        if number > last:
            return number
        limit = max(self._to_count, 1)
        found = self._sql.all(
            "SELECT number, time_ns, length(message) > 0,"
            " coalesce((SELECT length(payload) FROM @messages WHERE id = found.message), 0)"
            f" {_OF_EPOCH} AND number BETWEEN :number AND :last ORDER BY number LIMIT :limit",
            number=number,
            last=last,
            limit=limit,
            **where,
        )
        self._to_count -= len(found)
        for at, time_ns, is_counted, size in found:
            if is_counted:
                tally.add(WaitingRow(**where, number=at, time_ns=time_ns, size_bytes=size))
        return last + 1 if len(found) < limit else found[-1][0] + 1


def _place(key: RowKey | None) -> dict[str, Any]:
    """Of a row in the table; of None: before the first."""
    if key is None:
        return {"session": b"", "writer": b"", "epoch": -1, "number": -1, "tag": -1}
    values = {"epoch": key.epoch, "number": key.number, "tag": TAGS[key.tag]}
    return {"session": key.session.encode(), "writer": key.writer.encode(), **values}


def _stored_row(row: tuple[Any, ...], aged_ns: int) -> StoredRow:
    session, writer, epoch, number, tag, token, n, time_ns, *facts = row
    key = RowKey(session.decode(), writer.decode(), epoch, number, TAG_OF[tag], token, n)
    return StoredRow(key, (aged_ns - time_ns) // MS, *map(bool, facts))


def _next_of(one: RowDeletion) -> RowDeletion:
    return replace(one, row=replace(one.row, number=one.row.number + 1))


def delete_page(sql: Sql, asked: DeletePage) -> Answer:
    """Undelivered rows are deleted first, and what says that a session is abandoned last of all.  A marker that another
    has replaced since is another row."""
    changes = []
    for run in runs_of(
        sorted(asked.rows, key=lambda one: TAGS[one.row.tag]), lambda one, other: _next_of(one) == other
    ):
        first, only = run[0].row, run[0].only
        values = {**_place(first), "last": run[-1].row.number, "token": first.token, "n": first.n}
        changes.append((DELETIONS[values.pop("tag"), only], values))
    rows = sum(sql.counts(changes))
    # What sessions that are there have not taken, and is not over.
    lost = {
        one.message: read_number(
            sql,
            f"SELECT count(*) FROM @session_rows AS found WHERE found.message = :id AND found.tag = {UNDELIVERED}"
            f" AND NOT {_IS_ABANDONED} AND NOT {_IS_TAKEN} AND NOT (found.until_ns > 0 AND found.until_ns <= :now_ns)",
            id=one.message, none=b"", now_ns=sql.aged_ns,
        )
        for one in asked.messages
        if one.only not in LOSES_NOTHING
    }  # fmt: skip
    deletions = [(DELETE_MESSAGE[one.only], {"id": one.message, "now_ns": sql.aged_ns}) for one in asked.messages]
    counts = zip(asked.messages, sql.counts(deletions), strict=True)
    return PageDeleted(rows, tuple((one.message, lost.get(one.message, 0)) for one, count in counts if count))


def read_messages(sql: Sql, asked: ReadMessages, waiting: WaitingMessages | None = None) -> Answer:
    """By the index of their times: those that are too young are not looked at.  `waiting` is told of those that wait,
    and passes over them in the next round."""
    begin, _, after = asked.after.partition(" ")
    place = int(begin or -1), after.encode()
    if waiting is not None:
        if not begin:
            waiting.begin()
        passed = waiting.pass_over(place, sql.aged_ns, partial(_are_there, sql))
        if passed != place:
            return _messages_read(sql, [(passed[1], passed[0], True, False, False)])
    found = sql.all(
        MESSAGES, time_ns=place[0], id=place[1], last_ns=sql.aged_ns - asked.age_ms * MS, limit=asked.limit,
        now_ns=sql.aged_ns,
    )  # fmt: skip
    if waiting is not None:
        found = list(_cut_page(waiting, found))
        _note_waiting(sql, waiting, place, found)
    return _messages_read(sql, found)


def _messages_read(sql: Sql, found: Sequence[tuple[Any, ...]]) -> MessagesRead:
    messages = tuple(
        StoredMessage(message.decode(), (sql.aged_ns - time_ns) // MS, *map(bool, facts))
        for message, time_ns, *facts in found
    )
    return MessagesRead(messages, f"{found[-1][1]} {messages[-1].message}" if found else "")


def _are_there(sql: Sql, firsts: Firsts) -> bool:
    """Whether all these rows are undelivered still."""
    asked = [
        {"session": session, "writer": writer, "epoch": epoch, "number": number}
        for (session, writer, epoch), number in firsts.items()
    ]
    for values in asked:
        sql.expect(IS_THERE, **values)
    found = [sql.all(IS_THERE, **values) for values in asked]
    return all(found)


def _cut_page(waiting: WaitingMessages, found: Iterable[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
    """Up to where a run begins that may be passed over."""
    for row in found:
        yield row
        if waiting.is_known((row[1], row[0])):
            return


def _note_waiting(sql: Sql, waiting: WaitingMessages, place: Place, found: Sequence[tuple[Any, ...]]) -> None:
    """Of messages that wait as long as the sessions that live: rows refer to them, of which one is never over."""
    waits = [message for message, _, is_referred, _, is_over in found if is_referred and not is_over]
    for message in waits:
        sql.expect(FIRST_ROW, id=message)
    rows = {message: read_one(sql, FIRST_ROW, id=message) for message in waits}
    for message, time_ns, *_ in found:
        row = rows.get(message)
        if row is not None:
            session, writer, epoch, number = row
            firsts = {(session, writer, epoch): number}
            waiting.note(MessageRun(place, (time_ns, message), 1, time_ns, firsts))
        place = time_ns, message
    if not found:
        waiting.finish()


ANSWERS: Final[Mapping[type[Request], Callable[[Sql, Any], Answer | None]]] = {
    ReadClients: read_clients,
    ForgetClient: forget_client,
    ReadRows: read_rows,
    DeletePage: delete_page,
    ReadMessages: read_messages,
}
