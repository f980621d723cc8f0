"""Machine requests: everything in `persistent_sessions.request`, carried out in a transaction.

Reads are of what is committed, so nothing is ever invisible here.  What is below the last number that a committed state
has taken is not read any more, whether it is marked or not; a read of pending rows gives a page of each writer.

Ranges of rows are stored in few statements, whatever sessions they are for.  A message that 1 000 sessions have
subscribed is 1 000 rows, which differ in the session, the epoch and the number.  What they have in common is a hand.
One statement names each session once and each hand once, and the database multiplies them (`RowProduct`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Final, NamedTuple

import msgspec
from msgspec.structs import replace

from statemachines.drivers.persistent_sessions.payloads import Payload, SharedOrigin
from statemachines.drivers.persistent_sessions.route_rows import note_stored, read_open_rows
from statemachines.drivers.persistent_sessions.session_row import (
    PacketRow,
    epoch_of,
    is_current,
    is_owned,
    is_there,
    list_packet_rows,
    read_state,
    session_of,
    write_change,
)
from statemachines.drivers.persistent_sessions.sql import (
    DELIVERED,
    MARKER,
    UNDELIVERED,
    Sql,
    StoreRequest,
    all_of,
    cut_pieces,
    has_row,
    read_one,
)
from statemachines.drivers.sql.failure import StoreDamaged
from statemachines.kernel import Answer, Request
from statemachines.persistent_sessions.message import Queued, find_duplicates, rows_once
from statemachines.persistent_sessions.request import (
    BeginEpoch,
    CommitState,
    ConfirmRows,
    EpochBegun,
    EpochRows,
    Fence,
    FencedRows,
    LoadSession,
    MarkDelivered,
    NotOwner,
    PendingRead,
    Polled,
    PutMarker,
    PutRows,
    ReadPending,
    ReadRow,
    RowFenced,
    RowRead,
    RowsConfirmed,
    RowsDuplicate,
    RowStored,
    SessionAbsent,
    SessionLoaded,
    StateCommitted,
    SubscribedLive,
    SubscribeLive,
    UnsubscribeLive,
    without_message,
)
from statemachines.persistent_sessions.takeover_record import FindOwner, OwnerFound


class Page(msgspec.Struct, frozen=True):
    """`answers`, as to the request for the rows alone; `payloads` by the ids of their messages; `gone`: messages
    that bring nothing, since another session has them."""

    answers: tuple[Answer, ...]
    payloads: dict[str, Payload] = {}
    gone: frozenset[str] = frozenset()


class ReadPage(StoreRequest["Page"], frozen=True):
    """Read rows, and with them the payloads that are no larger than their share of `bytes_max`: they need not be read
    again to be delivered.  Answered with a `Page`."""

    rows: ReadPending | Fence
    bytes_max: int


class StoreRows(StoreRequest["Page | tuple[Answer, ...]"], frozen=True):
    """Store a range of rows, and again those of their messages that are gone: nobody referred to them until now.
    `payloads` by the ids of the messages; `once`: those that come to each subscription once; `origins` of those that
    are of groups.  Answered as `PutRows` is, or with a `Page` that says which messages some session has already: their
    rows bring nothing."""

    put: PutRows
    payloads: dict[str, Payload]
    once: frozenset[str] = frozenset()
    origins: dict[str, SharedOrigin] = msgspec.field(default_factory=dict)


Hand = tuple[bytes, bytes, int, int, bytes]
"""(message, filter, QoS, until_ns, more), as a row has them."""

_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(tuple[str, ...])


def encode_hand(row: Queued) -> Hand:
    """What is the same for all sessions that get it."""
    more = _encoder.encode(row.more) if row.more else b""
    return row.message.encode(), row.filter.encode(), row.qos, row.until_ns, more


def decode_more(more: bytes | None) -> tuple[str, ...]:
    """The other filters of a row."""
    return _decoder.decode(more) if more else ()


PUT_ROW: Final = (
    "INSERT INTO @session_rows VALUES (:session, :writer, :epoch, :number, :tag, :message, :filter, :qos, :token, :n,"
    " :k, :time_ns, :until_ns, :more)"
)

SESSIONS_MIN: Final = 8
"""For fewer sessions each row is named: a statement of its own costs more than it saves."""

SESSIONS_MAX: Final = 128
HANDS_MAX: Final = 64
"""So many of each go into one statement: SQLite before 3.32 takes 999 values."""

Place = tuple[bytes, int, int]
"""(session, epoch, number of its first row)."""


class RowProduct:
    """Rows of `writer`: each of the `hands`, in their order, for each of the sessions that `starts` says."""

    def __init__(self, writer: bytes, hands: tuple[Hand, ...]) -> None:
        self.writer = writer
        self.hands = hands
        self.starts: list[Place] = []


def put_product(sql: Sql, product: RowProduct) -> None:
    """Insert all rows of it, stored at the time of the transaction."""
    hands = [(number, *hand) for number, hand in enumerate(product.hands)]
    if len(product.starts) < SESSIONS_MIN:
        rows = [
            (session, product.writer, epoch, first + number, UNDELIVERED, message, topic_filter, qos, 0, 0, 0,
             sql.now_ns, until_ns, more)
            for session, epoch, first in product.starts
            for number, message, topic_filter, qos, until_ns, more in hands
        ]  # fmt: skip
        sql.put_many(PUT_ROW, rows)
        return
    fixed = {"writer": product.writer, "time_ns": sql.now_ns}
    named = [_name_values("h", piece) for piece in cut_pieces(hands, HANDS_MAX)]
    for places in cut_pieces(product.starts, SESSIONS_MAX):
        values = fixed | _name_values("p", places)
        for piece in named:
            sql.run(_statement(len(places), len(piece) // 6), **values, **piece)


def _name_values(prefix: str, rows: Sequence[tuple[Any, ...]]) -> dict[str, Any]:
    return {f"{prefix}{place}": value for place, value in enumerate(value for row in rows for value in row)}


@cache
def _statement(places: int, hands: int) -> str:
    return (
        f"WITH places (session, epoch, number) AS (VALUES {_list_names('p', places, 3)}),"
        f" hands (place, message, filter, qos, until_ns, more) AS (VALUES {_list_names('h', hands, 6)})"
        " INSERT INTO @session_rows SELECT places.session, :writer, places.epoch, places.number + hands.place,"
        f" {UNDELIVERED}, hands.message, hands.filter, hands.qos, 0, 0, 0, :time_ns, hands.until_ns, hands.more"
        " FROM places CROSS JOIN hands"
    )


def _list_names(prefix: str, rows: int, columns: int) -> str:
    """`(:p0, :p1, :p2), (:p3, ...), ...`."""
    places = range(0, rows * columns, columns)
    return ", ".join(f"({', '.join(f':{prefix}{begin + one}' for one in range(columns))})" for begin in places)


LEAVE_EPOCHS: Final = "DELETE FROM @epochs WHERE session = :session AND writer = :writer AND epoch < :epoch"
EPOCHS: Final = (
    "SELECT sessions.session, coalesce(epochs.epoch, 0), coalesce(epochs.last, 0) FROM @sessions AS sessions"
    " LEFT JOIN @epochs AS epochs ON epochs.session = sessions.session AND epochs.writer = :writer"
    " WHERE sessions.session IN ({keys})"
)

Key = tuple[bytes, bytes]
"""(session, writer)."""


class WriterPlace(NamedTuple):
    """The epoch of a writer and the number of its last row; whether it has `older` epochs."""

    epoch: int
    last: int
    older: bool = False


def put_ranges(sql: Sql, ranges: Sequence[PutRows], where: str, once: frozenset[str] = frozenset()) -> list[Answer]:
    """Store ranges in their order, each all or not at all; `where`: the database, for errors; `once`: messages that
    come to each subscription once.

    Nothing is stored for a session that is gone: nobody will ever read it.
    """
    writing = _RangeWriter(sql, where, once)
    for writer, sessions in group_sessions(ranges).items():
        writing.read_places(writer.encode(), sessions)
    answers = [writing.put(asked) for asked in ranges]
    writing.write()
    return answers


def group_sessions(ranges: Sequence[PutRows]) -> dict[str, list[bytes]]:
    """Writer -> the sessions that it stores rows for."""
    sessions: dict[str, dict[bytes, None]] = {}
    for asked in ranges:
        sessions.setdefault(asked.writer, {})[asked.session.encode()] = None
    return {writer: list(its) for writer, its in sessions.items()}


class _RangeWriter:
    def __init__(self, sql: Sql, where: str, once: frozenset[str]) -> None:
        self._sql = sql
        self._where = where
        self._once = once
        self._products: dict[tuple[bytes, Any], RowProduct] = {}
        self._places: dict[Key, WriterPlace] = {}
        self._changed: dict[Key, None] = {}

    def read_places(self, writer: bytes, sessions: Sequence[bytes]) -> None:
        for session, epoch, last in all_of(self._sql, EPOCHS, sessions, writer=writer):
            key = (bytes(session), writer)
            known = self._places.get(key)
            if known is None:
                self._places[key] = WriterPlace(epoch, last)
            else:
                self._places[key] = max(known, WriterPlace(epoch, last))._replace(older=True)

    def put(self, asked: PutRows) -> Answer:
        key = session, writer = asked.session.encode(), asked.writer.encode()
        place = self._places.get(key)
        if place is None:
            return RowStored()
        if place.epoch != asked.epoch:
            return RowFenced(place.epoch)
        if asked.first_number <= place.last:
            return RowStored(self._check_there(asked, place.last))
        if asked.first_number != place.last + 1:
            number = asked.first_number
            raise self._damage(f"{asked.writer} stores number {number} for {asked.session} after {place.last}")
        once = rows_once(asked.rows, self._once)
        duplicates = find_duplicates(once, read_open_rows(self._sql, session, once))
        if duplicates:
            return RowsDuplicate(duplicates)
        note_stored(self._sql, session, once)
        if place.older and not place.last:
            self._sql.run(LEAVE_EPOCHS, session=session, writer=writer, epoch=asked.epoch)
        hands = tuple(map(encode_hand, asked.rows))
        product = self._products.get((writer, hands))
        if product is None:
            product = self._products[writer, hands] = RowProduct(writer, hands)
        product.starts.append((session, asked.epoch, asked.first_number))
        self._places[key] = place._replace(last=asked.last_number)
        self._changed[key] = None
        return RowStored(self._sql.now_ns)

    def _check_there(self, asked: PutRows, last: int) -> int:
        """Rows that are there, or have been: the same ones, or somebody has numbered two alike; since when (0: none is
        there any more)."""
        self.write()
        if asked.last_number > last:
            number = asked.last_number
            raise self._damage(f"{asked.writer} stores up to {number} for {asked.session}, of which {last} is the last")
        found = self._sql.all(
            "SELECT number, message, time_ns FROM @session_rows WHERE session = :session AND writer = :writer"
            f" AND epoch = :epoch AND number BETWEEN :first AND :last AND tag = {UNDELIVERED}",
            session=asked.session.encode(), writer=asked.writer.encode(), epoch=asked.epoch,
            first=asked.first_number, last=asked.last_number,
        )  # fmt: skip
        there = {number: message.decode() for number, message, _ in found}
        for row in asked.rows:
            known = there.get(row.number, row.message)
            if known not in (row.message, ""):  # its message may have been dropped since
                raise self._damage(f"{asked.writer} stores {row.message} for {asked.session} where {known} is")
        return min((time_ns for _, _, time_ns in found), default=0)

    def write(self) -> None:
        """The rows, and how far each writer has come."""
        for product in self._products.values():
            put_product(self._sql, product)
        self._sql.put_many(
            "INSERT INTO @epochs VALUES (:session, :writer, :epoch, :last)"
            " ON CONFLICT (session, writer, epoch) DO UPDATE SET last = excluded.last",
            [(*key, self._places[key].epoch, self._places[key].last) for key in self._changed],
        )
        self._products.clear()
        self._changed.clear()

    def _damage(self, what: str) -> StoreDamaged:
        rule = "two processes under one name, or a database put back from a copy while they ran; stop them all"
        return StoreDamaged(f"{self._where}: {what}: {rule}, and start them anew")


PAGE: Final = 5_000
"""Rows of one writer that are read at once."""


# The state answers for a row that it has taken: such a row goes at once, and needs no mark.  A comparison of rows as an
# upper bound ends no scan of PostgreSQL: it would read all rows behind.
DELETE_TAKEN: Final = (
    "DELETE FROM @session_rows WHERE session = :session AND writer = :writer AND epoch = :epoch"
    f" AND number BETWEEN :first AND :last AND tag = {UNDELIVERED} AND number <="
    " (SELECT CASE WHEN taken.epoch > :epoch THEN :last WHEN taken.epoch = :epoch THEN taken.number ELSE 0 END"
    " FROM @taken AS taken WHERE taken.session = :session AND taken.writer = :writer)"
)
# A payload that is too large is left where it is: the database need not even look at it.
SMALL: Final = (
    "CASE WHEN length(messages.topic) + length(messages.payload) + coalesce(length(messages.head), 0) <= :small THEN"
)
ROWS: Final = (
    "SELECT found.epoch, found.number, found.message, found.filter, found.qos, found.until_ns,"
    f" {SMALL} messages.topic END, {SMALL} messages.payload END, {SMALL} messages.head END,"
    " messages.id IS NULL, found.time_ns, found.more"
    " FROM @session_rows AS found LEFT JOIN @messages AS messages ON messages.id = found.message"
    " WHERE found.session = :session AND found.writer = :writer AND found.tag = 0"
    " AND (found.epoch, found.number) > (:epoch, :number) AND found.epoch < :below"
)
TIME_OF_ROW: Final = 10
MORE_OF_ROW: Final = 11
"""The place of that in a row of `ROWS`."""
_IS_DONE: Final = has_row(
    "SELECT 1 FROM @session_rows AS done WHERE done.session = found.session AND done.writer = found.writer"
    f" AND done.epoch = found.epoch AND done.number = found.number AND done.tag = {DELIVERED}"
)
FOLLOWING: Final = f"{ROWS} ORDER BY found.epoch, found.number LIMIT :page"
MARKERS: Final = (
    "SELECT epoch, token, n FROM @session_rows WHERE session = :session AND writer = :writer"
    f" AND tag = {MARKER} ORDER BY epoch, token, n"
)
PUT_EPOCH: Final = "INSERT INTO @epochs VALUES (:session, :writer, :epoch, 0)"
LAST_EPOCH: Final = 2**62
NO_PAYLOADS: Final = -1
"""The bound of payloads that are not read."""


class PayloadBound(NamedTuple):
    """Payloads of rows that are read: those that are no larger than their share of `bytes_max`."""

    bytes_max: int
    found: dict[str, Payload]

    def share(self, rows: int) -> int:
        """Of one of so many rows."""
        return self.bytes_max // rows

    def keep(self, rows: list[tuple[Any, ...]]) -> None:
        """Those that came."""
        self.found.update(
            {
                row[2].decode(): Payload(row[6].decode(), bytes(row[7]), None if row[8] is None else bytes(row[8]))
                for row in rows
                if row[7] is not None
            }
        )


class MachineRequests:
    """`page`: rows of a writer that are read at once."""

    def __init__(self, page: int = PAGE) -> None:
        self._page = page
        self._prepared: dict[int, tuple[CommitState, list[PacketRow]]] = {}
        """By the id of a request, which lives as long as it is here."""
        self.answers: dict[type[Request], Callable[[Sql, Any], Answer | None]] = {
            BeginEpoch: self._begin_epoch,
            ReadRow: self._read_row,
            PutMarker: self._put_marker,
            FindOwner: self._find_owner,
            LoadSession: self._load,
            ReadPending: self._read_pending,
            SubscribeLive: self._subscribe,
            UnsubscribeLive: self._unsubscribe,
            Fence: self._fence,
            ConfirmRows: self._confirm,
            CommitState: self._commit,
            MarkDelivered: lambda sql, asked: self.mark_run(sql, asked, asked.until),
        }

    def page(self, sql: Sql, asked: ReadPage) -> Page:
        """The rows, and the payloads that are small enough."""
        small = PayloadBound(asked.bytes_max, {})
        if isinstance(asked.rows, ReadPending):
            return Page((self._read_pending(sql, asked.rows, small),), small.found)
        return Page((self._fence(sql, asked.rows, small),), small.found)

    # -- of a writer ----------------------------------------------------------------------------------------------

    def _begin_epoch(self, sql: Sql, asked: BeginEpoch) -> Answer:
        session, writer = asked.session, asked.writer
        epoch = epoch_of(sql, session, writer)[0] + 1
        if is_there(sql, session):
            sql.run(PUT_EPOCH, session=session, writer=writer, epoch=epoch)
            sql.run(LEAVE_EPOCHS, session=session, writer=writer, epoch=epoch)
        return EpochBegun(epoch)

    def prepare(self, requests: Sequence[object]) -> None:
        """Make the rows of their packets before the transaction begins: nobody else can write a file within it."""
        self._prepared = {
            id(one): (one, list_packet_rows(one.session.encode(), one.change.packets))
            for one in requests
            if isinstance(one, CommitState)
        }

    def _read_row(self, sql: Sql, asked: ReadRow) -> Answer:
        """Numbers have no hole, so the last one says it, even of rows that were collected since, and of a range."""
        found = read_one(
            sql,
            "SELECT last FROM @epochs WHERE session = :session AND writer = :writer AND epoch = :epoch",
            session=asked.session, writer=asked.writer, epoch=asked.epoch,
        )  # fmt: skip
        if found is None or asked.number > found[0]:
            return RowRead(False)
        row = read_one(
            sql, "SELECT time_ns FROM @session_rows WHERE session = :session AND writer = :writer AND epoch = :epoch"
            f" AND number = :number AND tag = {UNDELIVERED}",
            session=asked.session, writer=asked.writer, epoch=asked.epoch, number=asked.number,
        )  # fmt: skip
        return RowRead(True, 0 if row is None else row[0])

    def _put_marker(self, sql: Sql, asked: PutMarker) -> Answer:
        """It takes the place of those before it, for which nobody waits any more, unless it or a later one is there."""
        session, writer, mark = asked.session, asked.writer, (asked.token, asked.n)
        if not is_there(sql, session):
            return RowStored()
        epoch, _ = epoch_of(sql, session, writer)
        if epoch != asked.epoch:
            return RowFenced(epoch)
        there = sql.all(MARKERS, session=session, writer=writer)
        if any(found[0] == epoch and found[1:] >= mark for found in there):
            return RowStored()
        sql.run(
            f"DELETE FROM @session_rows WHERE session = :session AND writer = :writer AND tag = {MARKER}",
            session=session, writer=writer,
        )  # fmt: skip
        sql.run(
            PUT_ROW,
            session=session, writer=writer, epoch=epoch, number=0, tag=MARKER, message=b"", filter=b"",
            qos=0, token=asked.token, n=asked.n, k=asked.k, time_ns=sql.now_ns, until_ns=0, more=b"",
        )  # fmt: skip
        return RowStored()

    def _find_owner(self, sql: Sql, asked: FindOwner) -> Answer:
        found = read_one(sql, "SELECT owner, token FROM @sessions WHERE session = :session", session=asked.session)
        owner, token = ("", 0) if found is None else (found[0].decode(), found[1])
        return OwnerFound(owner, token, asked.session, asked.look)

    # -- of an owner ----------------------------------------------------------------------------------------------

    def _load(self, sql: Sql, asked: LoadSession) -> Answer:
        highest = read_one(sql, "SELECT token FROM @clients WHERE client = :client", client=asked.client)
        if highest is None:
            return SessionAbsent()
        found = session_of(sql, asked.client)
        session = b"" if found is None else found.session
        if asked.token < highest[0] or (found is not None and not is_owned(sql, session, asked.token)):
            return NotOwner()
        if found is None or (not found.connection and found.is_over(sql, 0)):
            return SessionAbsent()
        sql.run("UPDATE @clients SET token = :token WHERE client = :client", client=asked.client, token=asked.token)
        sql.run("UPDATE @sessions SET token = :token WHERE session = :session", session=session, token=asked.token)
        return SessionLoaded(session.decode(), read_state(sql, session, asked.client), sql.aged_ns)

    def _read_pending(self, sql: Sql, asked: ReadPending, small: PayloadBound | None = None) -> Answer:
        small = small or PayloadBound(NO_PAYLOADS, {})
        if asked.writer:
            return Polled(asked.writer, *self._pending(sql, asked.writer, asked, small))
        statement = "SELECT DISTINCT writer FROM @epochs WHERE session = :session ORDER BY 1"
        writers = sql.all(statement, session=asked.session)
        if writers:
            small = small._replace(bytes_max=small.share(len(writers)))
        found = [self._pending(sql, writer.decode(), asked, small) for (writer,) in writers]
        complete_ns = min((until_ns for _, until_ns in found), default=sql.seen_ns + 1)
        return PendingRead(tuple(one for rows, _ in found for one in rows), complete_ns, sql.seen_ns + 1)

    def _pending(
        self, sql: Sql, writer: str, asked: ReadPending, small: PayloadBound
    ) -> tuple[tuple[EpochRows, ...], int]:
        """The rows; no row that was stored before this time is missing."""
        epoch, number = max(asked.behind, _taken_of(sql, asked.session, writer))
        page = min(self._page, asked.rows or self._page)
        rows = sql.all(
            f"{ROWS} AND NOT {_IS_DONE} ORDER BY found.epoch, found.number LIMIT :page",
            session=asked.session, writer=writer, epoch=epoch, number=number, below=LAST_EPOCH,
            page=page, small=small.share(page),
        )  # fmt: skip
        small.keep(rows)
        kept = limit_copies(rows, page)
        found = _by_epoch(writer, kept, sql.all(MARKERS, session=asked.session, writer=writer), sql.aged_ns)
        is_all = len(kept) == len(rows) < page
        return found, sql.seen_ns + 1 if is_all else kept[-1][TIME_OF_ROW]

    def _subscribe(self, sql: Sql, asked: SubscribeLive) -> Answer:
        """Every node reads routes in the transaction that stores a message: what is committed is known everywhere."""
        if not is_current(sql, asked):
            return NotOwner()
        sql.run(
            "UPDATE @sessions SET owner = :owner WHERE session = :session", session=asked.session, owner=asked.owner
        )
        found = sql.all(
            "SELECT DISTINCT epochs.writer, coalesce(nodes.until_ns, 0) FROM @epochs AS epochs"
            " LEFT JOIN @nodes AS nodes ON nodes.name = epochs.writer WHERE epochs.session = :session ORDER BY 1",
            session=asked.session,
        )
        writers = tuple(writer.decode() for writer, until_ns in found if until_ns > sql.now_ns)
        gone = tuple(writer.decode() for writer, until_ns in found if until_ns <= sql.now_ns)
        return SubscribedLive(writers, gone, sql.seen_ns)

    def _unsubscribe(self, sql: Sql, asked: UnsubscribeLive) -> None:
        if is_current(sql, asked):
            sql.run("UPDATE @sessions SET owner = :owner WHERE session = :session", session=asked.session, owner=b"")

    def _fence(self, sql: Sql, asked: Fence, small: PayloadBound | None = None) -> Answer:
        """The rows of the epochs below; where these are not all, that is said: a hole would be taken for the end."""
        small = small or PayloadBound(NO_PAYLOADS, {})
        if not is_current(sql, asked):
            return NotOwner()
        epoch, _ = epoch_of(sql, asked.session, asked.writer)
        below = asked.below or epoch + 1
        if epoch < below:
            sql.run(PUT_EPOCH, session=asked.session, writer=asked.writer, epoch=below)
            # Whether a row is there that its writer may still ask for is not known without its epoch; of none it is.
            sql.run(f"{LEAVE_EPOCHS} AND last = 0", session=asked.session, writer=asked.writer, epoch=below)
        begin = max(asked.behind, _taken_of(sql, asked.session, asked.writer))
        count = min(self._page, asked.rows or self._page)
        rows = sql.all(
            FOLLOWING, session=asked.session, writer=asked.writer, epoch=begin[0], number=begin[1], below=below,
            page=count + 1, small=small.share(count),
        )  # fmt: skip
        small.keep(rows[:count])
        kept = limit_copies(rows[:count], count)
        found = _by_epoch(asked.writer, kept, (), sql.aged_ns)
        is_all = not asked.below and len(kept) == len(rows)  # an epoch that was raised elsewhere may have rows
        complete_ns = sql.seen_ns + 1 if is_all else kept[-1][TIME_OF_ROW] if kept else 0
        return FencedRows(asked.writer, below, asked.n, found, len(kept) < len(rows), complete_ns)

    def _confirm(self, sql: Sql, asked: ConfirmRows) -> Answer:
        if not is_current(sql, asked):
            return NotOwner()
        return RowsConfirmed(tuple(self._same(sql, asked.session, found) for found in asked.found))

    def _same(self, sql: Sql, session: str, found: EpochRows) -> EpochRows:
        """Those that follow the first, as many as there are: what has holes is confirmed in part, which costs time."""
        first = min((row.number for row in found.rows), default=1)
        rows = sql.all(
            FOLLOWING, session=session, writer=found.writer, epoch=found.epoch, number=first - 1,
            below=found.epoch + 1, page=len(found.rows), small=NO_PAYLOADS,
        )  # fmt: skip
        stored = {replace(one, stored_ns=0): one for one in (_as_read(row, sql.aged_ns) for row in rows)}
        same = (stored.get(replace(row, stored_ns=0)) for row in found.rows)
        return EpochRows(found.writer, found.epoch, tuple(row for row in same if row is not None))

    def _commit(self, sql: Sql, asked: CommitState) -> Answer:
        if not is_current(sql, asked):
            return NotOwner()
        _, rows = self._prepared.get(id(asked), (asked, None))
        write_change(sql, asked.session.encode(), asked.change, rows)
        return StateCommitted(sql.aged_ns)

    def mark_run(self, sql: Sql, first: MarkDelivered, last: int) -> None:
        """Delete this row and those behind it, up to number `last`, as far as the state has them; mark the others."""
        rows = {
            "session": first.session, "writer": first.writer, "epoch": first.epoch,
            "first": first.number, "last": last,
        }  # fmt: skip
        sql.run(DELETE_TAKEN, **rows)
        sql.run(
            f"INSERT INTO @session_rows SELECT session, writer, epoch, number, {DELIVERED}, message, filter, qos, 0, 0,"
            " 0, :time_ns, until_ns, NULL FROM @session_rows WHERE session = :session AND writer = :writer"
            f" AND epoch = :epoch AND number BETWEEN :first AND :last AND tag = {UNDELIVERED} ON CONFLICT DO NOTHING",
            **rows,
            time_ns=sql.now_ns,
        )


def _by_epoch(writer: str, rows: list[tuple[Any, ...]], markers: Any, now_ns: int) -> tuple[EpochRows, ...]:
    """Rows of `ROWS`, of which nearly all have a message and one subscription: no call for each of those."""
    epochs = sorted({row[0] for row in rows} | {found[0] for found in markers})
    return tuple(
        EpochRows(
            writer,
            epoch,
            tuple(
                [
                    _as_read(row, now_ns)
                    if row[9] or row[MORE_OF_ROW]
                    else Queued(row[1], row[2].decode(), row[3].decode(), row[4], row[5], row[TIME_OF_ROW])
                    for row in rows
                    if row[0] == epoch
                ]
            ),
            tuple((token, n) for at, token, n in markers if at == epoch),
        )
        for epoch in epochs
    )


def limit_copies(rows: list[tuple[Any, ...]], most: int) -> list[tuple[Any, ...]]:
    """The first of these rows of `ROWS`, as many as have so many copies, and one if there is any."""
    for place, row in enumerate(rows):
        most -= 1 + len(decode_more(row[MORE_OF_ROW])) if row[MORE_OF_ROW] else 1
        if most < 0:
            return rows[: max(1, place)]
    return rows


def _as_read(row: tuple[Any, ...], now_ns: int) -> Queued:
    """A row of `ROWS`; it says whether its message is there."""
    _, number, message, topic_filter, qos, until_ns, _, _, _, is_gone, stored_ns, more = row
    others = decode_more(more) if more else ()
    queued = Queued(number, message.decode(), topic_filter.decode(), qos, until_ns, stored_ns, others)
    return without_message(queued, now_ns) if is_gone else queued


def _taken_of(sql: Sql, session: str, writer: str) -> tuple[int, int]:
    """What the committed state has taken: (epoch, number); (0, 0): nothing."""
    statement = "SELECT epoch, number FROM @taken WHERE session = :session AND writer = :writer"
    return read_one(sql, statement, session=session, writer=writer) or (0, 0)
