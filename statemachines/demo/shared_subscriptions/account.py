"""Account: what the consumers' own files say, apart from any trace.

A consumer writes a line for each message it got before it deals with it, and one for each it acknowledged.  From these
alone: every line of the input was acknowledged, with its own content; a message was got twice only after its first
owner was killed or stood still, or the leading host was killed, and then exactly from where the next grant of its
stream began.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import msgspec

from statemachines.drivers.shared_subscriptions.consumer_file import ACK, ConsumerLine, digest, read_file


class Blow(msgspec.Struct, frozen=True):
    """What was done to a node at that time, after which what it had in hand comes again; "": to a leader host."""

    at_ns: int
    node: str = ""


class ConsumedRange(msgspec.Struct):
    """What one consumer got of a stream under one grant: offsets `first`..`last`."""

    consumer: str
    grant: int
    first: int
    last: int
    begin_ns: int = 0


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
    segments: dict[str, list[ConsumedRange]] = defaultdict(list)
    acked: dict[str, set[int]] = defaultdict(set)
    for consumer, path in files.items():
        open_segments: dict[tuple[str, str, int], ConsumedRange] = {}
        for line in read_file(path):
            if line.what == ACK:
                acked[line.stream].add(line.offset)
                continue
            account.got += 1
            check_content(account, topics, line)
            key = (line.stream, line.owner, line.grant)
            segment = open_segments.get(key)
            if segment is None:
                segment = open_segments[key] = ConsumedRange(
                    consumer, line.grant, line.offset, line.offset - 1, line.at_ns
                )
                segments[line.stream].append(segment)
            if line.offset != segment.last + 1:
                account.wrong.append(f"{consumer}: {line.stream} jumps from {segment.last} to {line.offset}")
            segment.last = line.offset
    for stream, parts in segments.items():
        check_segments(account, stream, sorted(parts, key=lambda part: (part.begin_ns, part.grant)), blows)
    by_topic = {stream.partition("/")[2]: offsets for stream, offsets in acked.items()}
    for topic, lines in topics.items():
        offsets = by_topic.get(topic, set())
        account.acknowledged += len(offsets)
        missing = len(lines) - len(offsets & set(range(len(lines))))
        if missing:
            account.wrong.append(f"{topic}: {missing} of {len(lines)} lines were never acknowledged")
    return account


def check_content(account: GroupAccount, topics: dict[str, list[bytes]], line: ConsumerLine) -> None:
    """The payload is the line of the file at that offset."""
    lines = topics.get(line.stream.partition("/")[2], [])
    if line.offset >= len(lines) or digest(lines[line.offset]) != line.digest:
        account.wrong.append(f"{line.stream}: message {line.offset} is not that line of the input")


def check_segments(account: GroupAccount, stream: str, parts: list[ConsumedRange], blows: list[Blow]) -> None:
    """One owner after the other, each from where the one before ended; from further back only after a blow to it."""
    high = -1
    for number, part in enumerate(parts):
        before = parts[number - 1] if number else ConsumedRange("", 0, 0, -1)
        if part.first > before.last + 1:
            account.wrong.append(f"{stream}: nobody got {before.last + 1} to {part.first - 1}")
        elif part.first <= before.last and not any(
            blow.at_ns <= part.begin_ns and blow.node in (before.consumer, "") for blow in blows
        ):
            account.wrong.append(f"{stream}: {part.consumer} got again what {before.consumer} had finished")
        account.duplicates += max(0, min(high, part.last) - part.first + 1)
        high = max(high, part.last)
