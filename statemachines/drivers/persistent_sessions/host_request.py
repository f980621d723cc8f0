"""What a node asks of the database beside its machines: names, client ids, subscriptions, messages, what others did."""

from __future__ import annotations

import msgspec

from statemachines.drivers.persistent_sessions.route_trie import Route
from statemachines.persistent_sessions.message import Queued

NEVER: int = -1
"""The expiry of a session that does not expire."""


class HostRequest(msgspec.Struct, frozen=True):
    """Base of all."""


class Connect(HostRequest, frozen=True):
    """Lock the client id for `holder`, and find or make its session; with `clean` whatever was there is discarded.
    Answered with `Connected` or `Locked`."""

    client: str
    holder: str
    node: str
    life: int
    session: str
    clean: bool
    expiry_ms: int
    lock_ms: int


class Connected(msgspec.Struct, frozen=True):
    """The client id is locked under `token`; `present`: the session was there before."""

    token: int
    session: str
    present: bool


class Locked(msgspec.Struct, frozen=True):
    """Somebody else connects under this client id; for `left_ms` at most."""

    holder: str
    left_ms: int


class Unlock(HostRequest, frozen=True):
    """The lock under `token` is not needed any more."""

    client: str
    token: int


class Disconnect(HostRequest, frozen=True):
    """The owner leaves: the session ends after its expiry, or `expiry_ms` (only 0, or what is not more)."""

    session: str
    token: int
    expiry_ms: int | None = None


class Subscribe(HostRequest, frozen=True):
    """Answered with True, or False: a higher token has been here."""

    session: str
    token: int
    filter: str
    qos: int


class Unsubscribe(HostRequest, frozen=True):
    """As `Subscribe`."""

    session: str
    token: int
    filter: str


class PutMessage(HostRequest, frozen=True):
    """Store a message, if any session subscribes it; answered with the routes that it matches, a tuple of `Route`."""

    id: str
    topic: str
    payload: bytes
    qos: int


class ReadMessages(HostRequest, frozen=True):
    """Answered with id -> (topic, payload) of those that are there."""

    ids: tuple[str, ...]


class Beat(HostRequest, frozen=True):
    """The node lives for `lease_ms` from now on."""

    node: str
    lease_ms: int


class ReadNodes(HostRequest, frozen=True):
    """Answered with a tuple of the names of nodes that live, by the clock of the database."""


class ShowMarker(HostRequest, frozen=True):
    """Store a marker in the place of a writer of another node, at the end of what it has stored; answered with
    `Shown`, or None: there is no such writer."""

    session: str
    writer: str
    token: int
    n: int


class Shown(msgspec.Struct, frozen=True):
    """The marker stands before number `k` of `epoch`."""

    epoch: int
    k: int


class Watched(msgspec.Struct, frozen=True):
    """A session that is live here: what is followed of each writer of other nodes, as (writer, epoch, number)."""

    session: str
    token: int
    followed: tuple[tuple[str, int, int], ...]


class Look(HostRequest, frozen=True):
    """What have others done?  `node` is ours; answered with a `Seen` for each."""

    node: str
    watched: tuple[Watched, ...]


class Seen(msgspec.Struct, frozen=True):
    """`superseded`: a higher token has been there, or the session is gone; `writers` of other nodes that have begun;
    `rows` behind what is followed, as (writer, epoch, row)."""

    session: str
    superseded: bool
    writers: tuple[str, ...] = ()
    rows: tuple[tuple[str, int, Queued], ...] = ()


Routes = tuple[Route, ...]
