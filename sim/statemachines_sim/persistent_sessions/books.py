"""Books: what was stored for each session, and what its client has had of it; kept by who judges, from the words of the
protocol's page, and from nothing that a machine believes."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

Key = tuple[str, str]
"""(filter, name of a message): what a client can tell a delivery by."""
Place = tuple[int, int]
"""(epoch, number) of a row."""


class Message(msgspec.Struct):
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


class Row(msgspec.Struct):
    """A row of a session; `needed`: it must come to the client."""

    writer: str
    place: Place
    message: str
    needed: bool


class Line(msgspec.Struct):
    """The rows of one writer in the order in which they were stored; all before `next` have come, or need not;
    `highest`: the last that has come (-1: none)."""

    rows: list[Key] = []
    next: int = 0
    highest: int = -1
    places: dict[Key, int] = {}


class SessionBook(msgspec.Struct):
    """A session of `client`; `token`: the highest under which anything of it was done; `ended`: it is discarded, or
    forgotten.

    `rows`, and by writer the `lines` of them; `had`: the packet of each that has come; `done`: what the committed state
    has no packet for any more; `packets` of the committed state, and whatever was `carried` under each; `taken` of each
    writer; `queued` of it.  `over`: what had expired before it was in flight, or to be sent.  `subscribed`:
    filter -> when the client knew it; `orders`: (filter, connection of a publisher) -> the last number that came;
    `awaited`: (filter, publisher) -> what of it has not come, in the order in which it was stored;
    `keys` of the rows by the ids of their messages.
    """

    client: str
    token: int
    ended: bool = False
    rows: dict[Key, Row] = {}
    lines: dict[str, Line] = {}
    had: dict[Key, int] = {}
    done: set[Key] = set()
    packets: dict[int, Key] = {}
    carried: dict[int, set[Key]] = {}
    taken: dict[str, Place] = {}
    queued: tuple[Key, ...] = ()
    over: set[Key] = set()
    subscribed: dict[str, int] = {}
    orders: dict[tuple[str, str], int] = {}
    awaited: dict[tuple[str, str], dict[Key, None]] = {}
    keys: dict[str, list[Key]] = {}

    def put(self, key: Key, row: Row) -> None:
        """A row is stored."""
        self.rows[key] = row
        self.awaited.setdefault((key[0], publisher_of(key)), {})[key] = None
        self.keys.setdefault(row.message, []).append(key)
        line = self.lines.setdefault(row.writer, Line())
        line.places[key] = len(line.rows)
        line.rows.append(key)

    def find_missed_before(self, key: Key) -> Key | None:
        """The first row before this one that should have come, and has not."""
        line = self.lines[self.rows[key].writer]
        while line.next < len(line.rows) and self._settled(line.rows[line.next]):
            line.next += 1
        place = line.places[key]
        return line.rows[line.next] if line.next < place else None

    def is_overtaken(self, key: Key) -> bool:
        """A later row of its writer has come."""
        line = self.lines[self.rows[key].writer]
        return line.places[key] < line.highest

    def take(self, key: Key, packet: int) -> None:
        """It has come."""
        self.had[key] = packet
        self.awaited[key[0], publisher_of(key)].pop(key, None)
        line = self.lines[self.rows[key].writer]
        line.highest = max(line.highest, line.places[key])

    def find_awaited(self, key: Key) -> Iterator[Key]:
        """What must come of the same publisher, by the same filter, and has not."""
        awaited = self.awaited[key[0], publisher_of(key)]
        return (one for one in awaited if one != key and self.rows[one].needed and one not in self.over)

    def outstanding(self) -> Iterator[Key]:
        """What must come, and has not."""
        return (key for key, row in self.rows.items() if row.needed and key not in self.had)

    def list_stored_between(self, writer: str, before: Place, until: Place) -> Iterator[Key]:
        """The rows of a writer behind one place, up to another."""
        if until <= before:
            return
        line = self.lines.get(writer)
        for key in reversed(line.rows if line is not None else []):
            place = self.rows[key].place
            if place <= before:
                return
            if place <= until:
                yield key

    def is_taken(self, writer: str, place: Place) -> bool:
        """The committed state has it."""
        return place <= self.taken.get(writer, (0, 0))

    def _settled(self, key: Key) -> bool:
        return key in self.had or not self.rows[key].needed


class ClientBook(msgspec.Struct):
    """A client id: the session that it was told last, and of the database; when it last heard its node (true time).
    `dropped`: it has said since what may have ended its session; `lapsed`: it heard nothing for so long that its
    session may have expired under it; `left_ns`: when it heard that it has left (-1: it has not); `clean`: the connect
    that is under way; `begun`: how many sessions had been opened by then."""

    told: str = ""
    current: str = ""
    seen_ns: int = -1
    left_ns: int = -1
    dropped: bool = False
    lapsed: bool = False
    clean: bool = False
    begun: int = 0
    dialled_ns: int = 0


def publisher_of(key: Key) -> str:
    """Whose message it is, over whichever connection."""
    return key[1].partition("~")[0]


def matches(topic: str, topic_filter: str) -> bool:
    """As MQTT has it, for topics that do not begin with '$'."""
    levels, wanted = topic.split("/"), topic_filter.split("/")
    for place, one in enumerate(wanted):
        if one == "#":
            return True
        if place >= len(levels) or one not in ("+", levels[place]):
            return False
    return len(levels) == len(wanted)
