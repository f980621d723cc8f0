"""The judge of a run of sessions that share streams of groups: it knows what publishers published, and what clients
were given and acknowledged; it looks into no table, and shares nothing with what it judges.

What is promised only as long as nobody dies or stands still is judged where nothing was `Hurt` between the publishing
of a message and its coming: a longer run has as many calm hours as stormy ones.

The judge of a run of sessions: it knows what publishers were answered, what applications were given, and what has
been stored; it shares nothing with what it judges.

The judge of a group's run: it reads what consumers wrote down, and shares nothing with what it judges.

A line is (what, stream, grant, offset, digest of the payload, owner, time in ns); `what` is "got" or "ack", and a line
of the second kind ends with the offset.
"""

from __future__ import annotations

import hashlib
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


EXPIRIES = (0.5, None, None, None, 0.05, 3_600.0)
"""Seconds after which a message is over, by its number: some soon, some not before the run has ended."""
SOON_S = 1.0


class SessionsJudgeGot(NamedTuple):
    """What an application was given: `of` (publisher, its number), under which packet."""

    of: tuple[str, int]
    packet: int
    dup: bool
    expiry: float | None = None


def expiry_of(number):
    """Seconds; None: it does not expire."""
    return EXPIRIES[number % len(EXPIRIES)]


def may_be_missing(of):
    """It expires while the run goes on."""
    expiry = expiry_of(of[1])
    return expiry is not None and expiry < SOON_S


def must_come(answered):
    """Those of the answered messages that nobody may wait for in vain."""
    return {of for of in answered if not may_be_missing(of)}


def judge_of_sessions_judge(stored, answered, got, exactly=False):
    """What is wrong, in words; nothing: all is well.  `answered` as a `Publisher` has it."""
    missing = sorted(must_come(answered) - {one.of for one in got})
    wrong = [f"{of} was answered, and never came" for of in missing]
    firsts, packets, seen = Counter(), defaultdict(list), {}
    for place, one in enumerate(got):
        if one.of not in stored:
            wrong.append(f"{one.of} came, and nobody has stored it")
        wrong += out_of_time(one)
        seen.setdefault(one.of, place)
        firsts[one.of] += not one.dup
        if one.packet not in packets[one.of]:
            packets[one.of].append(one.packet)
    for of, copies in stored.items():
        if firsts[of] > len(copies):
            wrong.append(f"{of} came {firsts[of]} times unmarked, and was stored {len(copies)} times")
        if len(packets[of]) > len(copies):
            wrong.append(f"{of} came under packets {packets[of]}, and was stored {len(copies)} times")
    if exactly:
        often = Counter(one.of for one in got)
        wrong += [f"{of} came {often[of]} times" for of in often if often[of] > len(stored[of])]
    return wrong + out_of_order_of_sessions_judge(stored, seen) + overtaken(stored, answered, seen)


def out_of_time(one):
    """What comes says what is left of its time; that may be nothing only for one that comes again."""
    expiry = expiry_of(one.of[1])
    if expiry is None:
        return [] if one.expiry is None else [f"{one.of} does not expire, and came with {one.expiry} s left"]
    if one.expiry is None or not (0 <= one.expiry <= expiry) or not (one.expiry or one.dup):
        return [f"{one.of} expires after {expiry} s, and came with {one.expiry} s left, dup = {one.dup}"]
    return []


def out_of_order_of_sessions_judge(stored, seen):
    """Of one publisher through one life of a node, by when each was seen first; what was stored twice is of two."""
    last, wrong = {}, []
    for of, _ in sorted(seen.items(), key=lambda item: item[1]):
        if len(stored[of]) != 1:
            continue
        publisher, number = of
        before = last.get((publisher, stored[of][0]), 0)
        if number < before:
            wrong.append(f"{of} came behind {before}, over {stored[of][0]}")
        last[publisher, stored[of][0]] = max(before, number)
    return wrong


def overtaken(stored, answered, seen):
    """What came behind a message that its publisher sent when it had heard that the other is stored, over whichever
    nodes.  What expires soon and was stored twice is left out: the copy that was answered may be over."""
    last, wrong = defaultdict(lambda: (0, ())), []
    for of in sorted(seen, key=seen.get):
        publisher, number = of
        heard, later = last[publisher]
        if number <= heard and not (may_be_missing(of) and len(stored[of]) > 1):
            wrong.append(f"{of} was answered before {later} was sent, and came behind it")
        last[publisher] = max((answered.get(of, 0), of), last[publisher])
    return wrong


def count_moves(stored):
    """How often a message was stored by another node than the one before it of its publisher."""
    nodes = {of: lives[0].partition("~")[0] for of, lives in sorted(stored.items())}
    return sum(node != nodes.get((name, number - 1), node) for (name, number), node in nodes.items())


LATE_NS = 50_000_000
"""A process that is not given the processor between two lines of its own is at most so late, unless it was stopped."""


class Blow(NamedTuple):
    """A process was stopped for a time: what it had in hand it may write down late."""

    name: str
    from_ns: int
    to_ns: int


def judge_of_groups_judge(topics, lines, blows=()):
    """What is wrong, in words.  `topics`: name -> payloads as published, in order; `lines`: consumer -> lines."""
    missing = sum(map(len, topics.values())) - len(acknowledged(lines))
    wrong = [f"{missing} messages were never acknowledged"] if missing else []
    by_stream = defaultdict(list)
    for name, written in lines.items():
        wrong += not_in_hand(name, written)
        for what, stream, grant, offset, digest, owner, at_ns in written:
            if what == "got":
                by_stream[stream].append((at_ns, name, owner, grant, offset))
                if digest != digest_of(topics, stream, offset):
                    wrong.append(f"{stream} {offset} came with another content")
    for stream, got in by_stream.items():
        wrong += out_of_order_of_groups_judge(stream, got) + overlaps(stream, got, blows)
    return wrong


def acknowledged(lines):
    """(stream, offset) of every message that anybody acknowledged."""
    return {(one[1], one[3]) for written in lines.values() for one in written if one[0] == "ack"}


def twice(lines):
    """How many messages came again."""
    got = [(one[1], one[3]) for written in lines.values() for one in written if one[0] == "got"]
    return len(got) - len(set(got))


def digest_of(topics, stream, offset):
    """What a payload is written down as; "": there is none."""
    payloads = topics.get(stream.partition("/")[2], ())
    return hashlib.sha256(payloads[offset]).hexdigest()[:16] if 0 <= offset < len(payloads) else ""


def not_in_hand(name, written):
    """Nobody acknowledges what it did not get, under that grant."""
    had, wrong = set(), []
    for what, stream, grant, offset, *_ in written:
        if what == "got":
            had.add((stream, grant, offset))
        elif (stream, grant, offset) not in had:
            wrong.append(f"{name} acknowledged {stream} {offset} under grant {grant}, and had not got it")
    return wrong


def out_of_order_of_groups_judge(stream, got):
    """Under one grant of one owner offsets follow each other without a hole."""
    last, wrong = {}, []
    for _, _, owner, grant, offset in got:
        before = last.get((owner, grant))
        if before is not None and offset != before + 1:
            wrong.append(f"{stream}: {owner} got {offset} behind {before} under grant {grant}")
        last[owner, grant] = offset
    return wrong


def overlaps(stream, got, blows):
    """Nobody gets messages of a stream again after somebody else did, under the same grant; one that was stopped may
    have written down late what it had."""
    wrong, last = [], {}
    at, latest = 0, None
    for at_ns, name, owner, grant, offset in sorted(got):
        key = (owner, grant)
        if key in last and latest != key and at_ns - at > LATE_NS and not was_stopped(blows, name, last[key], at_ns):
            wrong.append(f"{stream}: {owner} got {offset} after {latest} had got others")
        last[key] = at_ns
        if latest != key:
            at, latest = at_ns, key
    return wrong


def was_stopped(blows, name, from_ns, to_ns):
    """Whether it was, at some time between the two."""
    return any(blow.name == name and blow.from_ns <= to_ns and blow.to_ns >= from_ns for blow in blows)
