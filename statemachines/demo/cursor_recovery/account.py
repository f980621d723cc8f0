"""Account: what became of every line, from the files that writers and shippers wrote themselves."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import msgspec

from statemachines.demo.cursor_recovery.shipper import BLOCK


class QueueAccount(msgspec.Struct, frozen=True):
    """Lines `acknowledged` to their writers, `shipped`, shipped `twice`, and `missing` of the acknowledged ones, which
    lay in so many `blocks`; `foreign`: shipped lines that nobody has begun to write."""

    acknowledged: int
    shipped: int
    twice: int
    missing: int
    blocks: int
    foreign: int


def account_for(folder: Path) -> QueueAccount:
    """Of a run that is over."""
    begun: dict[bytes, tuple[int, int]] = {}
    acknowledged: set[bytes] = set()
    for path in sorted(folder.glob("told-*")):
        number = int(path.name.partition("-")[2])
        lines = (folder / f"lines-{number}").read_bytes().split(b"\n")
        for kind, first, last in (line.split() for line in path.read_text().splitlines()):
            for at in range(int(first), int(last)):
                line = b"%d %d %s" % (number, at, lines[at])
                begun[line] = (number, at // BLOCK)
                if kind == "a":
                    acknowledged.add(line)
    shipped = Counter(line for path in folder.glob("shipped-*") for line in path.read_bytes().split(b"\n")[:-1])
    missing = acknowledged - shipped.keys()
    return QueueAccount(
        len(acknowledged),
        shipped.total(),
        shipped.total() - len(shipped),
        len(missing),
        len({begun[line] for line in missing}),
        len(shipped.keys() - begun.keys()),
    )
