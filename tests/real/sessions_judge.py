"""The judge of a run of sessions: it knows what publishers were answered, what applications were given, and what has
been stored; it shares nothing with what it judges."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import NamedTuple

EXPIRIES = (0.5, None, None, None, 0.05, 3_600.0)
"""Seconds after which a message is over, by its number: some soon, some not before the run has ended."""
SOON_S = 1.0


class Got(NamedTuple):
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


def judge(stored, answered, got, exactly=False):
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
    return wrong + out_of_order(stored, seen) + overtaken(stored, answered, seen)


def out_of_time(one):
    """What comes says what is left of its time; that may be nothing only for one that comes again."""
    expiry = expiry_of(one.of[1])
    if expiry is None:
        return [] if one.expiry is None else [f"{one.of} does not expire, and came with {one.expiry} s left"]
    if one.expiry is None or not (0 <= one.expiry <= expiry) or not (one.expiry or one.dup):
        return [f"{one.of} expires after {expiry} s, and came with {one.expiry} s left, dup = {one.dup}"]
    return []


def out_of_order(stored, seen):
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
