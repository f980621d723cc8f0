"""Group store: small records with atomic preconditions (source: "General Idea", the DS for leaders).

Every record carries the stamp of its last commit: a number that no other commit has, and nobody reads as a time.  A
commit is one atomic batch: every `expect` holds exactly (value and stamp; None: there is no such record), or nothing of
it happens.  A read says the store's time, by which a group begins "now"; no age is judged by it.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import msgspec

from statemachines.kernel import Answer, Map, Request, TraceColumns, in_order
from statemachines.shared_subscriptions.message import Ranges, Reason
from statemachines.shared_subscriptions.names import CLAIM, FAILING, PROGRESS, PROPERTIES, ROOT
from statemachines.shared_subscriptions.names import record_key as record_key

SERVICE = "group_store"

Order = Literal["strict", "relaxed"]


class Claim(msgspec.Struct, frozen=True, gc=False, tag="claim"):
    """Who leads the group: `leader` ("" = released) under `epoch`; `clean`: released with nothing left in anybody's
    hands; `repeats`: and with streams of which messages behind the progress may have been handed over.  Its heartbeat
    is a new stamp of the record."""

    leader: str
    epoch: int
    clean: bool = False
    repeats: bool = False


class Properties(msgspec.Struct, frozen=True, gc=False, tag="properties"):
    """What a group was declared with, and all its leaders must agree on; a node with other values refuses the group.
    `destroyed`: it is not declared any more, and what is left of it is being removed.  `order`: whether a message that
    is given back with a delay keeps back those behind it."""

    start_ns: int
    ping_interval_ms: int
    ping_timeout_ms: int
    claim_ttl_ms: int
    destroyed: bool = False
    order: Order = "strict"


class FailingMessage(msgspec.Struct, frozen=True, gc=False, tag="failing"):
    """Beside the progress of a stream: the message at `progress` was handed over `count` times and not acknowledged.
    `parked`: it is given to nobody any more; `skip`: somebody said that the group is to go on behind it; `lost`: of one
    that is parked, whether it failed last since its member was lost.  `acked`: what is acknowledged behind it, where
    the group's order is relaxed; with a count of 0 that is all it says.  `reason`: why it was given back last, as its
    application said."""

    progress: int
    count: int
    parked: bool = False
    skip: bool = False
    lost: bool = False
    acked: Ranges = ()
    reason: Reason = ""


Value = Claim | Properties | FailingMessage | int


def is_value_of(name: str, value: Value) -> bool:
    """Whether a value is what the record `name` of a group holds."""
    if name == CLAIM:
        return isinstance(value, Claim)
    if name == PROPERTIES:
        return isinstance(value, Properties)
    if name.startswith(FAILING):
        return isinstance(value, FailingMessage)
    return isinstance(value, int) and (name == ROOT or name.startswith(PROGRESS))


class StoredRecord(msgspec.Struct, frozen=True, gc=False):
    """A record: its value, and the stamp of the commit that wrote it: a number that the store gives no other commit."""

    value: Value
    stamp: int


# -- requests -------------------------------------------------------------------------------------------------------


class Read(Request, frozen=True, gc=False):
    """Read `keys`; answered by `ReadDone`."""

    n: int
    keys: tuple[str, ...]


class Scan(Request, frozen=True, gc=False):
    """At most `limit` records whose key starts with `prefix` and is greater than `after`; answered by `Scanned`."""

    n: int
    prefix: str
    after: str
    limit: int


class Commit(Request, frozen=True, gc=False):
    """If every `expect` holds, put every `put` (None: delete): all or nothing; answered by `Committed` or `Refused`."""

    n: int
    expect: tuple[tuple[str, StoredRecord | None], ...]
    put: tuple[tuple[str, Value | None], ...]


# -- answers --------------------------------------------------------------------------------------------------------


class ReadDone(Answer, frozen=True, gc=False):
    """The records, in the order asked for (None: absent), and the store's time."""

    n: int
    records: tuple[StoredRecord | None, ...]
    time_ns: int


class Scanned(Answer, frozen=True, gc=False):
    """One page, by key; `more`: ask again after its last key."""

    n: int
    records: tuple[tuple[str, StoredRecord], ...]
    more: bool


class Committed(Answer, frozen=True, gc=False):
    """The batch is durable; its records carry `stamp`."""

    n: int
    stamp: int


class Refused(Answer, frozen=True, gc=False):
    """The precondition on `key` did not hold; nothing was written."""

    columns: ClassVar = TraceColumns(key="")  # a key of the store is not what a trace is about

    n: int
    key: str


class StoreFailed(Answer, frozen=True, gc=False):
    """The store did not answer request `n`: a read is to be repeated, the outcome of a commit is open."""

    n: int


# -- meaning --------------------------------------------------------------------------------------------------------


class GroupStore:
    """The pure service: a map of records."""

    name = SERVICE

    def initial(self) -> Map[str, StoredRecord]:
        """No records."""
        return Map()

    def apply(
        self, state: Map[str, StoredRecord], request: Request, now_ns: int
    ) -> tuple[Map[str, StoredRecord], tuple[Answer, ...]]:
        """The store's meaning; `now_ns` is its own time, later than at any commit before: so it serves as the stamp."""
        match request:
            case Read(n, keys):
                return state, (ReadDone(n, tuple(state.get(key) for key in keys), now_ns),)
            case Scan(n, prefix, after, limit):
                found = [(key, stored) for key, stored in in_order(state) if key.startswith(prefix) and key > after]
                return state, (Scanned(n, tuple(found[:limit]), len(found) > limit),)
            case Commit(n, expect, put):
                for key, stored in expect:
                    if state.get(key) != stored:
                        return state, (Refused(n, key),)
                for key, value in put:
                    if value is not None:
                        state = state.set(key, StoredRecord(value, now_ns))
                    elif key in state:
                        state = state.delete(key)
                return state, (Committed(n, now_ns),)
        raise TypeError(f"{self.name} does not take a {type(request).__name__}")
