"""Sql: a transaction on whatever database is behind it, in the words that SQLite and PostgreSQL have in common."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeVar

if TYPE_CHECKING:
    from statemachines.drivers.persistent_sessions.stored_batch import StoredBatch
    from statemachines.drivers.persistent_sessions.time_watch import TimeWatch
    from statemachines.drivers.shared_subscriptions.guest_streams import GuestStreams

T = TypeVar("T")

Change = tuple[str, dict[str, Any]]
"""A statement that changes rows, and its values."""

PIECE: Final = 200
"""So many keys go into one statement."""


class Sql(Protocol):
    """One transaction.  Statements name their values `:name` and their tables `@table`; `now_ns`: its time, greater
    than that of every commit before it where it writes; `seen_ns`: that of the last commit that it sees, its own
    included; `aged_ns`: up to when ages count; `clock_ns`: what lasts from now on begins then."""

    @property
    def now_ns(self) -> int:
        """Its time."""

    @property
    def seen_ns(self) -> int:
        """Of the last commit that it sees."""

    @property
    def aged_ns(self) -> int:
        """Up to when ages count."""

    @property
    def clock_ns(self) -> int:
        """When what lasts begins."""

    def expect(self, statement: str, **values: Any) -> None:
        """This query comes, and nothing that this transaction writes before changes its rows: it may go out now."""

    def all(self, statement: str, **values: Any) -> list[tuple[Any, ...]]:
        """The rows of a query."""

    def run(self, statement: str, **values: Any) -> None:
        """Have it carried out before the next query, or the commit, at the latest."""

    def count(self, statement: str, **values: Any) -> int:
        """Have it carried out: how many rows it changed."""

    def counts(self, changes: Sequence[Change]) -> list[int]:
        """Have them carried out, one behind the other: how many rows each changed."""

    def put_many(self, statement: str, rows: Sequence[tuple[Any, ...]]) -> None:
        """An `INSERT ... VALUES (:name, ...)` for each row: its values in the order in which the statement names
        them."""

    def streams(self) -> GuestStreams:
        """The streams of groups in this database; they are there."""


class StoredBatches(Protocol):
    """What a database does with a batch in one statement, in a turn that others share."""

    async def store_batch(self, batch: StoredBatch) -> int | None:
        """Store it in a shared turn, in one statement: its number; None: nothing is written, since something is not as
        the batch expects, or there is no such statement."""

    async def check_routes(self, batch: StoredBatch) -> int | None:
        """Whether the node, its routes and its last batch are as `batch` says: a number above that of every row that is
        acknowledged; None: they are not.  It writes nothing."""


class SessionDatabase(Protocol):
    """A database, opened; its requests are carried out in a thread of its own."""

    where: str

    @property
    def batches(self) -> StoredBatches | None:
        """What stores a batch in a turn that others share (None: each transaction is alone)."""

    def writing(
        self, watch: TimeWatch | None = None, *, may_lose: bool = False, may_share: bool = False
    ) -> AbstractContextManager[Sql]:
        """All or nothing, and alone: nobody else's transaction is committed in between.  `watch`: who compares its
        time with a steady clock (None: nobody); `may_lose`: a later one is flushed before anybody is told;
        `may_share`: others that may share their turn are committed in between.

        Raises `TurnNeeded` where it may not share its turn, whatever it does; nothing is written.
        """

    def reading(self, watch: TimeWatch | None = None, *, is_complete: bool = False) -> AbstractContextManager[Sql]:
        """Several reads of one state that is committed; `is_complete`: with everything that was stored before they
        were asked for."""

    def count_changes(self) -> int | None:
        """A number that is another one when another connection has committed something; None: nobody can say."""

    def last_commit_ns(self) -> int:
        """When something was committed last: a look that costs little."""

    async def run(self, work: Callable[[], T], *, is_short: bool = False, is_read: bool = False) -> T:
        """`work()` in the thread, or at once if it `is_short`; `is_read`: it writes nothing.  Raises
        `StoreUnavailable`, `OutcomeOpen` or `StoreDamaged`."""

    async def close(self) -> None:
        """No more requests."""


class TurnNeeded(Exception):
    """A transaction has to be alone."""


def read_one(sql: Sql, statement: str, **values: Any) -> tuple[Any, ...] | None:
    """The row of a query that has one at most."""
    found = sql.all(statement, **values)
    return found[0] if found else None


def read_number(sql: Sql, statement: str, **values: Any) -> int:
    """The number of a query that has one row with one number."""
    ((number,),) = sql.all(statement, **values)
    return int(number)


def has_row(query: str) -> str:
    """A condition: `query`, a SELECT that names the row around it, finds something.

    It is looked up by a key for each row around it.  An EXISTS is a join for PostgreSQL, which may read the whole table
    for one page.
    """
    return f"(({query} LIMIT 1) IS NOT NULL)"


class ManyRows(NamedTuple):
    """An `INSERT ... VALUES (:name, ...) ...`, taken apart: what stands before its values, their names, and what stands
    behind them."""

    head: str
    names: tuple[str, ...]
    tail: str

    @classmethod
    @cache
    def of(cls, statement: str) -> ManyRows:
        head, separator, rest = statement.partition("VALUES (")
        values, _, tail = rest.partition(")")
        assert separator, f"not an INSERT of values: {statement}"
        return cls(f"{head}VALUES ", tuple(one.strip().removeprefix(":") for one in values.split(",")), tail)


def cut_pieces(values: Sequence[T], most: int) -> Iterator[Sequence[T]]:
    """64, 32, 16, ... of them, so that there are few statements to prepare."""
    begin = 0
    while begin < len(values):
        count = 1 << (min(most, len(values) - begin).bit_length() - 1)
        yield values[begin : begin + count]
        begin += count


def all_of(sql: Sql, statement: str, keys: Sequence[Any], **values: Any) -> list[tuple[Any, ...]]:
    """The rows of a query in which `{keys}` stands for many, piece by piece."""
    rows: list[tuple[Any, ...]] = []
    for query, names in _pieces(statement, keys):
        rows += sql.all(query, **names, **values)
    return rows


def expect_all_of(sql: Sql, statement: str, keys: Sequence[Any], **values: Any) -> None:
    """`Sql.expect` of the same."""
    for query, names in _pieces(statement, keys):
        sql.expect(query, **names, **values)


def _pieces(statement: str, keys: Sequence[Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for begin in range(0, len(keys), PIECE):
        names = {f"key{place}": key for place, key in enumerate(keys[begin : begin + PIECE])}
        yield statement.format(keys=", ".join([f":{name}" for name in names])), names
