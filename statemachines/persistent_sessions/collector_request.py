"""What the collector asks of the database, and what it answers (page: "Garbage collection", "Connect, clean start,
expiry")."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from statemachines.kernel import Answer, Request, Status, TraceColumns


class Tag(Status):
    """What a row of the table of session messages is."""

    ABANDONED = "abandoned"
    UNDELIVERED = "undelivered"
    DELIVERED = "delivered"
    MARKER = "marker"


class Only(Status):
    """On what a deletion depends, in the transaction of the deletion: what was read of others may have changed since.

    `unpaired`: the undelivered row of the same place is gone; `alone`: the session has no other row; `unreferenced`:
    no row and no session state refers to the message; `unheld`: no session state does; `over`: no session state does,
    and every row that refers to it says that it is over.
    """

    ALWAYS = "always"
    UNPAIRED = "unpaired"
    ALONE = "alone"
    UNREFERENCED = "unreferenced"
    UNHELD = "unheld"
    OVER = "over"


class RowKey(msgspec.Struct, frozen=True, gc=False):
    """The key of a row, in the order in which a table is read: `session`, `writer` ("": abandoned), `epoch`, `number`
    (0: a marker), `tag`, and `token` and `n` of a marker."""

    session: str
    writer: str = ""
    epoch: int = 0
    number: int = 0
    tag: Tag = Tag.UNDELIVERED
    token: int = 0
    n: int = 0


class StoredRow(msgspec.Struct, frozen=True, gc=False):
    """A row as it was read.  `age_ms` since its commit; `abandoned`: its session is; `paired`: of an undelivered and a
    delivered row of one place both are there; `taken`: the session state has it; `alone`: the session has no other."""

    key: RowKey
    age_ms: int
    abandoned: bool = False
    paired: bool = False
    taken: bool = False
    alone: bool = False

    @property
    def waits(self) -> bool:
        """Whether it is still to be delivered."""
        return self.key.tag is Tag.UNDELIVERED and not (self.abandoned or self.paired or self.taken)


class StoredMessage(msgspec.Struct, frozen=True, gc=False):
    """A message as it was read: `referenced` by a row, or `held` by the state of a session, in flight or queued;
    `over`: rows refer to it, and it is over, as they say, by the clock of the database."""

    message: str
    age_ms: int
    referenced: bool = False
    held: bool = False
    over: bool = False


class StoredClient(msgspec.Struct, frozen=True, gc=False):
    """A client as it was read; it is `over` if it has no session, or one that has expired, and nobody has it locked."""

    client: str
    over: bool


class ReadClients(Request, frozen=True, gc=False):
    """The next `limit` clients behind the id `after` ("": from the first on), in their order.  An owner that has not
    said for `dead_ms` that its session lives is none any more."""

    columns: ClassVar = TraceColumns(key="after")

    after: str
    limit: int
    dead_ms: int


class ClientsRead(Answer, frozen=True, gc=False):
    """To `ReadClients`; none: there are no more."""

    clients: tuple[StoredClient, ...]


class ReadRows(Request, frozen=True, gc=False):
    """The next `limit` rows behind the key `after` (None: from the first on), in their order.  Not `waiting`: rows that
    wait are left out, but for one that may be the last of the answer: it says where the next page begins."""

    after: RowKey | None
    limit: int
    waiting: bool = True


class RowsRead(Answer, frozen=True, gc=False):
    """To `ReadRows`; none: there are no more."""

    rows: tuple[StoredRow, ...]


class ReadMessages(Request, frozen=True, gc=False):
    """The next `limit` messages behind the place `after` ("": from the first on) that are `age_ms` old or older, in an
    order of the database."""

    columns: ClassVar = TraceColumns(key="after")

    after: str
    limit: int
    age_ms: int = 0


class MessagesRead(Answer, frozen=True, gc=False):
    """To `ReadMessages`; none: there are no more.  `place` of the last one: the next page is behind it."""

    messages: tuple[StoredMessage, ...]
    place: str = ""


class ForgetClient(Request, frozen=True, gc=False):
    """Forget the client if it still is over: its session is abandoned, and whoever has a token of it is superseded.
    One transaction."""

    columns: ClassVar = TraceColumns(key="client")

    client: str
    dead_ms: int


class RowDeletion(msgspec.Struct, frozen=True, gc=False):
    """Delete the row, if what `only` says is so."""

    row: RowKey
    only: Only


class MessageDeletion(msgspec.Struct, frozen=True, gc=False):
    """Delete the message, if what `only` says is so."""

    message: str
    only: Only


class DeletePage(Request, frozen=True, gc=False):
    """Delete what is to go of a page of rows, or of messages, as if one after the other: one transaction."""

    rows: tuple[RowDeletion, ...] = ()
    messages: tuple[MessageDeletion, ...] = ()


class PageDeleted(Answer, frozen=True, gc=False):
    """To `DeletePage`: how many rows were deleted; of each message that was deleted its id, and how many rows were
    still to be taken that refer to it."""

    rows: int = 0
    messages: tuple[tuple[str, int], ...] = ()


class ClientForgotten(Answer, frozen=True, gc=False):
    """To `ForgetClient`: whether it was `done`."""

    done: bool


class CollectFailed(Answer, frozen=True, gc=False):
    """To whatever the collector asks: perhaps it was done, perhaps not."""
