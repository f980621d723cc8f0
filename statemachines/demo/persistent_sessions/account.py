"""Account: what became of every line, from the files that the publisher and the client wrote themselves."""

from __future__ import annotations

from pathlib import Path

import msgspec

PUBLISHED, GOT = "published", "got"
"""A line `NUMBER` each when a message is stored; `NUMBER new|again PAYLOAD` when one has come."""


class SessionAccount(msgspec.Struct, frozen=True):
    """Messages that were `stored` as their publisher was told, those that came (`delivered`), came `again` and were
    marked so; came `twice` and were not; that were stored and are `missing`; that came behind a later one (`late`);
    that are not what was published (`foreign`)."""

    stored: int
    delivered: int
    again: int
    twice: int
    missing: int
    late: int
    foreign: int


def account_for(folder: Path, lines: list[bytes]) -> SessionAccount:
    """Of a run that is over, in which `lines` were published in their order."""
    stored = {int(number) for number in (folder / PUBLISHED).read_bytes().split()}
    delivered: set[int] = set()
    again = twice = late = foreign = 0
    for said in (folder / GOT).read_bytes().split(b"\n")[:-1]:
        number_said, how, payload = said.split(b" ", 2)
        number = int(number_said)
        foreign += not 0 <= number < len(lines) or lines[number] != payload
        again += how == b"again"
        if number in delivered:
            twice += how == b"new"
        else:
            late += number < max(delivered, default=-1)
            delivered.add(number)
    return SessionAccount(len(stored), len(delivered), again, twice, len(stored - delivered), late, foreign)


def wrong_in(account: SessionAccount) -> list[str]:
    """What does not hold, in words."""
    kinds = {
        "missing": "lines were stored and never came",
        "twice": "lines came twice and were not marked as repetitions",
        "late": "lines came behind a later one",
        "foreign": "lines are not what was published",
    }
    return [f"{count} {words}" for kind, words in kinds.items() if (count := getattr(account, kind))]
