"""The judge of a group's run: it reads what consumers wrote down, and shares nothing with what it judges.

A line is (what, stream, grant, offset, digest of the payload, owner, time in ns); `what` is "got" or "ack", and a line
of the second kind ends with the offset.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from typing import NamedTuple

LATE_NS = 50_000_000
"""A process that is not given the processor between two lines of its own is at most so late, unless it was stopped."""


class Blow(NamedTuple):
    """A process was stopped for a time: what it had in hand it may write down late."""

    name: str
    from_ns: int
    to_ns: int


def judge(topics, lines, blows=()):
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
        wrong += out_of_order(stream, got) + overlaps(stream, got, blows)
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


def out_of_order(stream, got):
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
