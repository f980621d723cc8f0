"""Books: what was stored for each session, and what its client has had of it, from nothing that a machine believes."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from statemachines.persistent_sessions.properties.delivered_messages import Copy, DeliveredMessages

Place = tuple[int, int]
"""(epoch, number) of a row."""


class PublishedMessage(msgspec.Struct):
    """A message as it is stored: its `name` is its payload; `at_ns` by the clock of the database, by which it is over
    at `until_ns` (0: it does not expire); `gone`: deleted."""

    name: str
    topic: str
    at_ns: int
    gone: bool = False
    until_ns: int = 0

    def is_over(self, now_ns: int) -> bool:
        """By the clock of the database."""
        return 0 < self.until_ns <= now_ns


class ExpectedRow(msgspec.Struct):
    """A row of a session."""

    writer: str
    place: Place
    message: str


class SessionBook(msgspec.Struct):
    """A session of `client`; `token`: the highest under which anything of it was done; `ended`: it is discarded, or
    forgotten.

    `rows`; what of them is `delivered`; `done`: what the committed state has no packet for any more; `packets` of the
    committed state; `taken` of each writer; `queued` of it.  `subscribed`: filter -> when the client knew it; `keys` of
    the rows by the ids of their messages.
    """

    client: str
    token: int
    ended: bool = False
    rows: dict[Copy, ExpectedRow] = {}
    delivered: DeliveredMessages = DeliveredMessages()
    done: set[Copy] = set()
    packets: dict[int, Copy] = {}
    taken: dict[str, Place] = {}
    queued: tuple[Copy, ...] = ()
    subscribed: dict[str, int] = {}
    keys: dict[str, list[Copy]] = {}

    def put(self, key: Copy, row: ExpectedRow, *, is_needed: bool) -> None:
        """A row is stored."""
        self.rows[key] = row
        self.keys.setdefault(row.message, []).append(key)
        publisher = f"{key[0]} {key[1].partition('~')[0]}"
        self.delivered = self.delivered.observe_stored(row.writer, key, publisher=publisher, is_needed=is_needed)

    def list_stored_between(self, writer: str, before: Place, until: Place) -> Iterator[Copy]:
        """The rows of a writer behind one place, up to another."""
        if until <= before:
            return
        for key in self.delivered.list_newest(writer):
            place = self.rows[key].place
            if place <= before:
                return
            if place <= until:
                yield key

    def is_taken(self, writer: str, place: Place) -> bool:
        """The committed state has it."""
        return place <= self.taken.get(writer, (0, 0))

    def is_needed(self, key: Copy) -> bool:
        """It must come."""
        return key not in self.delivered.excused and key not in self.delivered.over


class ClientBook(msgspec.Struct):
    """A client id: the session that it was told last; when it last heard its node (true time).
    `dropped`: it has said since what may have ended its session; `lapsed`: it heard nothing for so long that its
    session may have expired under it; `left_ns`: when it heard that it has left (-1: it has not); `clean`: the connect
    that is under way; `begun`: how many sessions had been opened by then."""

    told: str = ""
    seen_ns: int = -1
    left_ns: int = -1
    dropped: bool = False
    lapsed: bool = False
    clean: bool = False
    begun: int = 0
    dialled_ns: int = 0


def matches(topic: str, topic_filter: str) -> bool:
    """As MQTT has it, for topics that do not begin with '$'."""
    levels, wanted = topic.split("/"), topic_filter.split("/")
    for place, one in enumerate(wanted):
        if one == "#":
            return True
        if place >= len(levels) or one not in ("+", levels[place]):
            return False
    return len(levels) == len(wanted)
