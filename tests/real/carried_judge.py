"""The judge of a run of sessions that share streams of groups: it knows what publishers published, and what clients
were given and acknowledged; it looks into no table, and shares nothing with what it judges.

What is promised only as long as nobody dies or stands still is judged where nothing was `Hurt` between the publishing
of a message and its coming: a longer run has as many calm hours as stormy ones.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import NamedTuple

SLACK_S = 3.0
"""So long after somebody was hurt others may not have noticed: leases end, and what was in hand is written down."""


class Handed(NamedTuple):
    """A publisher began to publish a message; `stored_at`: it was answered (None: never)."""

    at: float
    topic: str
    number: int
    stored_at: float | None


class Got(NamedTuple):
    """A client was given a message over its connection `connection`, one of the run; `packet` 0: QoS 0."""

    at: float
    client: str
    connection: tuple
    filter: str
    topic: str
    number: int
    packet: int
    dup: bool

    @property
    def message(self):
        """Which message of which subscription, whoever gets it."""
        return self.filter, self.topic, self.number


class Acked(NamedTuple):
    """The client acknowledged what it was given."""

    at: float
    got: Got


class Ended(NamedTuple):
    """A connection is over; `how`: left (and the node has heard it), aborted, taken, closed."""

    at: float
    client: str
    connection: tuple
    how: str


class Hurt(NamedTuple):
    """Somebody was killed, or stood still, from `at` to `to`.  `what`: closed, where a node was ended in good order,
    which only publishers notice."""

    at: float
    to: float
    what: str


class Run(NamedTuple):
    """`groups`: filter -> topics that it matches; `own`: filter of one client -> its topics; `most`: client -> its
    receive maximum."""

    handed: list[Handed]
    events: list[Got | Acked | Ended]
    hurts: list[Hurt]
    groups: dict[str, set[str]]
    own: dict[str, set[str]]
    most: dict[str, int]

    @property
    def gots(self):
        return [one for one in self.events if isinstance(one, Got)]


def judge(run):
    """What is wrong, in words; nothing: all is well."""
    wrong = missing(run) + made_up(run) + beyond_the_maximum(run)
    return wrong + came_twice(run) + out_of_order(run) + came_again(run)


def wanted(run):
    """What somebody has to be given: (filter, topic, number)."""
    every = run.groups | run.own
    stored = [(one.topic, one.number) for one in run.handed if one.stored_at is not None]
    return {(each, *of) for each, topics in every.items() for of in stored if of[0] in topics}


def missing(run):
    came = {one.message for one in run.gots}
    return [f"{of} was published, and never came" for of in sorted(wanted(run) - came)]


def made_up(run):
    """What came is of the filter that it came by, and was published; what was only handed over may be there, too."""
    every = run.groups | run.own
    handed = {(one.topic, one.number): one.at for one in run.handed}
    wrong = []
    for one in run.gots:
        at = handed.get((one.topic, one.number))
        if at is None or at > one.at or one.topic not in every.get(one.filter, ()):
            wrong.append(f"{one.message} came to {one.client}, and nobody has published it for that")
    return wrong


def beyond_the_maximum(run):
    """Of what came over a connection no more is unacknowledged than its client said."""
    held, wrong = defaultdict(int), []
    for one in run.events:
        if isinstance(one, Got) and one.packet:
            held[one.connection] += 1
            if held[one.connection] > run.most[one.client]:
                wrong.append(f"{one.client} holds {held[one.connection]} messages, and receives {run.most[one.client]}")
        elif isinstance(one, Acked) and one.got.packet:
            held[one.got.connection] -= 1
    return wrong


def was_hurt(run, begin, end, closed=False):
    """Whether anybody was at some time between the two; `closed`: or ended in good order."""
    hurts = [one for one in run.hurts if closed or one.what != "closed"]
    return any(one.at <= end and one.to + SLACK_S >= begin for one in hurts)


def published(run):
    """(topic, number) -> when somebody began to."""
    return {(one.topic, one.number): one.at for one in run.handed}


def came_twice(run):
    """Unmarked, to whomever: it was stored twice.  A message of a group has one row, whoever dies or lapses (PS-470);
    one of a publisher may have two, since its node did not answer it any more."""
    begun, before, wrong = published(run), {}, []
    for one in run.gots:
        if one.dup:
            continue
        other = before.setdefault(one.message, one)
        if other is one:
            continue
        twice = f"{one.message} came to {other.client}, and then to {one.client}"
        if one.filter in run.groups:
            wrong.append(f"{twice}, and has one row")
        elif not was_hurt(run, begun[one.message[1:]], one.at, closed=True):
            wrong.append(f"{twice}, and nobody was hurt")
    return wrong


def moves_of(run):
    """Client -> when it came to another connection."""
    found, last = defaultdict(list), {}
    for one in run.gots:
        if last.get(one.client) not in (None, one.connection):
            found[one.client].append(one.at)
        last[one.client] = one.connection
    return found


def out_of_order(run):
    """What a client is given of a topic ascends; what is behind was given to somebody before, or somebody was hurt."""
    begun, moves = published(run), moves_of(run)
    last, seen, wrong = {}, set(), []
    for one in run.gots:
        of = (one.client, one.filter, one.topic)
        if not one.dup and one.number < last.get(of, -1) and one.message not in seen:
            at = begun[one.message[1:]]
            moved = one.filter in run.own and any(at <= move <= one.at for move in moves[one.client])
            if not moved and not was_hurt(run, at, one.at, one.filter not in run.groups):
                wrong.append(f"{one.message} came to {one.client} behind {last[of]}, and nobody was hurt")
        last[of] = max(last.get(of, -1), one.number)
        seen.add(one.message)
    return wrong


def came_again(run):
    """What a client has acknowledged over a connection that it left in good order does not come again to it under its
    packet, even marked; over one that ended otherwise the acknowledgement may have been lost."""
    how = {one.connection: one.how for one in run.events if isinstance(one, Ended)}
    acked, wrong = {}, []
    for one in run.events:
        if isinstance(one, Acked):
            acked[one.got.client, *one.got.message, one.got.packet] = one
        if not isinstance(one, Got) or not one.dup:
            continue
        before = acked.get((one.client, *one.message, one.packet))
        if before is None:
            continue
        ended = how.get(before.got.connection, "")
        if one.connection == before.got.connection:
            wrong.append(f"{one.message} came to {one.client} again over the connection that had acknowledged it")
        elif ended == "left" and not was_hurt(run, before.at, one.at):
            wrong.append(f"{one.message} came to {one.client} again, which had acknowledged it and left")
    return wrong


def tally(run):
    """What there was, for who reads the outcome."""
    unmarked = Counter(one.message for one in run.gots if not one.dup)
    hurts = [one for one in run.hurts if one.what not in ("closed", "lapsed")]
    calm = [one for one in run.handed if not was_hurt(run, one.at, one.at)]
    return {
        "published": len(run.handed),
        "of them in calm": len(calm),
        "given": len(run.gots),
        "marked": sum(one.dup for one in run.gots),
        "stored twice": sum(1 for count in unmarked.values() if count > 1),
        "hurt": len(hurts),
        "connections": len({one.connection for one in run.gots}),
        "ends": dict(Counter(one.how for one in run.events if isinstance(one, Ended))),
    }
