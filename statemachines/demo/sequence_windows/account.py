"""Account: what receivers wrote into their own files, against what the forwarder says it dropped."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import msgspec


class ForwardedMessage(msgspec.Struct, frozen=True):
    """A message at the forwarder, which handed it over so many times (0: it dropped it)."""

    publisher: str
    payload: str
    copies: int


class WindowAccount(msgspec.Struct, frozen=True):
    """Of one receiver: messages that were `dropped` on the way to it, losses that it `told` (`unknown`: of unknown
    size), those that its advisories came to (`advised`), and those that `show_loss` counts (-1: nobody asked);
    messages that `came`, that were `missing` although nobody dropped them, came `twice`, or that nobody sent
    (`foreign`); `wrong`: publishers of whom another number was told than dropped."""

    receiver: str
    dropped: int
    told: int
    unknown: int
    advised: int
    shown: int
    came: int
    missing: int
    twice: int
    foreign: int
    wrong: tuple[str, ...]


def account_for(path: Path, passed: list[ForwardedMessage], shown: int = -1) -> WindowAccount:
    """Of the receiver whose lines of JSON these are."""
    told: Counter[str] = Counter()
    came: Counter[tuple[str, str]] = Counter()
    advised = unknown = 0
    for line in path.read_bytes().splitlines():
        said = msgspec.json.decode(line)
        if "advisory" in said:
            advised += said["advisory"]["lost"]
        elif "payload" in said:
            came[said["from"], said["payload"]] += 1
            lost = said.get("lost", 0)
            unknown += lost == "unknown"
            told[said["from"]] += 1 if lost == "unknown" else lost
    dropped = Counter(one.publisher for one in passed if not one.copies)
    handed = {(one.publisher, one.payload) for one in passed if one.copies}
    return WindowAccount(
        path.stem,
        dropped.total(),
        told.total(),
        unknown,
        advised,
        shown,
        came.total(),
        len(handed - came.keys()),
        came.total() - len(came),
        len(came.keys() - handed),
        tuple(sorted(who for who in {*told, *dropped} if told[who] != dropped[who])),
    )


def wrong_in(accounts: list[WindowAccount]) -> list[str]:
    """What does not hold, in words."""
    wrong = []
    for one in accounts:
        who = one.receiver
        wrong += [f"{who} tells another number of {name} than was dropped" for name in one.wrong]
        wrong += [f"{who}: {one.unknown} losses of unknown size"] if one.unknown else []
        wrong += [f"{who}: advised of {one.advised}, told {one.told}"] if one.advised != one.told else []
        wrong += [f"{who}: show-loss says {one.shown}, told {one.told}"] if one.shown not in (-1, one.told) else []
        for count, what in ((one.missing, "did not come"), (one.twice, "came twice"), (one.foreign, "nobody sent")):
            wrong += [f"{who}: {count} messages {what}"] if count else []
    return wrong
