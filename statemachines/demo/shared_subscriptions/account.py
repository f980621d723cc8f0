"""Account: what the consumers' own files say, apart from any trace.

A consumer writes a line for each message it got before it deals with it, and one for each it acknowledged.  From these
alone: every line of the input was acknowledged, with its own content; a message was got twice only after its first
owner was killed or stood still, or the leading host was killed, and then exactly from where the next grant of its
stream began.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import groupby, pairwise
from pathlib import Path

import msgspec

from statemachines.drivers.shared_subscriptions.consumer_file import ACK, digest, read_file


class Blow(msgspec.Struct, frozen=True):
    """What was done to a node at that time, after which what it had in hand comes again; "": to a leader host."""

    at_ns: int
    node: str = ""


class ConsumedRange(msgspec.Struct):
    """What one consumer got of a stream under one grant: offsets `first`..`last`."""

    stream: str
    begin_ns: int
    grant: int
    consumer: str
    first: int
    last: int


class GroupAccount(msgspec.Struct):
    """The result: `wrong` says what does not hold (empty: everything does)."""

    lines: int = 0
    acknowledged: int = 0
    got: int = 0
    duplicates: int = 0
    wrong: list[str] = []


def count_acknowledged(files: dict[str, Path]) -> int:
    """How many different messages have been acknowledged so far."""
    return len({(line.stream, line.offset) for path in files.values() for line in read_file(path) if line.what == ACK})


def check(topics: dict[str, list[bytes]], files: dict[str, Path], blows: list[Blow]) -> GroupAccount:
    """Judge the files of the consumers (name -> path) against the input; `blows`: what was done to nodes."""
    account = GroupAccount(lines=sum(len(lines) for lines in topics.values()))
    ranges: dict[tuple[str, str, str, int], ConsumedRange] = {}
    acked: dict[str, set[int]] = defaultdict(set)
    for consumer, path in files.items():
        for line in read_file(path):
            topic = line.stream.partition("/")[2]
            if line.what == ACK:
                acked[topic].add(line.offset)
                continue
            account.got += 1
            if line.digest not in map(digest, topics.get(topic, [])[line.offset : line.offset + 1]):
                account.wrong.append(f"{line.stream}: message {line.offset} is not that line of the input")
            begun = ConsumedRange(line.stream, line.at_ns, line.grant, consumer, line.offset, line.offset - 1)
            part = ranges.setdefault((consumer, line.stream, line.owner, line.grant), begun)
            if line.offset != part.last + 1:
                account.wrong.append(f"{consumer}: {line.stream} jumps from {part.last} to {line.offset}")
            part.last = line.offset
    ordered = sorted(ranges.values(), key=lambda part: (part.stream, part.begin_ns, part.grant))
    for _, parts in groupby(ordered, lambda part: part.stream):
        check_ranges(account, list(parts), blows)
    for topic, lines in topics.items():
        account.acknowledged += len(acked[topic])
        missing = len(lines) - len(acked[topic] & set(range(len(lines))))
        if missing:
            account.wrong.append(f"{topic}: {missing} of {len(lines)} lines were never acknowledged")
    return account


def check_ranges(account: GroupAccount, parts: list[ConsumedRange], blows: list[Blow]) -> None:
    """One owner after the other, each from where the one before ended; from further back only after a blow to it."""
    high = -1
    for before, part in pairwise((ConsumedRange("", 0, 0, "", 0, -1), *parts)):
        if part.first > before.last + 1:
            account.wrong.append(f"{part.stream}: nobody got {before.last + 1} to {part.first - 1}")
        elif part.first <= before.last and not any(
            blow.at_ns <= part.begin_ns and blow.node in (before.consumer, "") for blow in blows
        ):
            account.wrong.append(f"{part.stream}: {part.consumer} got again what {before.consumer} had finished")
        account.duplicates += max(0, min(high, part.last) - part.first + 1)
        high = max(high, part.last)
