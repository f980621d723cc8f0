"""Account: what subscribers wrote into their own files, against the lines that each publisher had."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

import msgspec

Lines = Mapping[str, list[str]]
"""The id of a publisher -> its lines, in the order in which it publishes them."""


class SampleAccount(msgspec.Struct, frozen=True):
    """Of one subscriber: samples that were `delivered`, of them asked for (`recovered`); `undelivered` ones, of which
    some are reported (`missed`) and others not (`silent`); delivered again (`twice`) or after a later one (`late`), and
    those that are not the line of that number (`foreign`)."""

    subscriber: str
    delivered: int
    recovered: int
    undelivered: int
    missed: int
    silent: int
    twice: int
    late: int
    foreign: int


class _Numbers:
    """Of one publisher, at one subscriber."""

    def __init__(self) -> None:
        self.delivered: set[int] = set()
        self.missed: set[int] = set()  # zenoh's own says how many, and not which
        self.top = -1
        self.twice = self.late = 0

    def deliver(self, number: int) -> None:
        self.twice += number in self.delivered
        self.late += number < self.top and number not in self.delivered
        self.delivered.add(number)
        self.top = max(self.top, number)


def account_for(path: Path, lines: Lines, dead: frozenset[str] = frozenset()) -> SampleAccount:
    """Of the subscriber whose lines of JSON these are.  Of publishers that are `dead` nobody knows how much they have
    published: what it was told counts, up to the last."""
    found: dict[str, _Numbers] = defaultdict(_Numbers)
    recovered = foreign = unnamed = 0
    for line in path.read_bytes().splitlines():
        said = msgspec.json.decode(line)
        if "missed" in said:
            found[said["missed"]].missed.update(range(said["first"], said["last"] + 1))
        elif "lost" in said:
            unnamed += said["lost"]
        elif "payload" in said:
            given, number = lines.get(said["from"], []), said["number"]
            foreign += not 0 <= number < len(given) or given[number] != said["payload"]
            recovered += said.get("recovered", False)
            found[said["from"]].deliver(number)
    undelivered = sum(
        max(one.top, *one.missed, -1) + 1 - len(one.delivered)
        if source in dead
        else len(set(range(len(lines[source]))) - one.delivered)
        for source, one in ((source, found[source]) for source in lines)
    )
    missed = sum(len(one.missed - one.delivered) for one in found.values()) + unnamed
    return SampleAccount(
        path.stem,
        sum(len(one.delivered) for one in found.values()),
        recovered,
        undelivered,
        missed,
        max(undelivered - missed, 0),
        sum(one.twice for one in found.values()),
        sum(one.late for one in found.values()),
        foreign,
    )


def wrong_in(accounts: list[SampleAccount]) -> list[str]:
    """What does not hold, in words."""
    kinds = {"silent": "neither came nor are reported", "twice": "came twice", "late": "came after a later one",
             "foreign": "are not what was published"}  # fmt: skip
    return [
        f"{one.subscriber}: {count} samples {words}"
        for one in accounts
        for kind, words in kinds.items()
        if (count := getattr(one, kind))
    ]
