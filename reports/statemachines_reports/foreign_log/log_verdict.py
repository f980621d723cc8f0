"""Log verdict: what the tallies of a log come to, under what its mapping promises.

Log tally: what a check counted in some of the rows; tallies of all parts of a log are added up.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import msgspec

from statemachines_reports.foreign_log.log_mapping import DeliveryKind, LogMapping

SHOWN: Final = 5
"""Of each check so many places are described."""


class LogTally(msgspec.Struct, frozen=True):
    """`found` of the `checked` are against the claim; `certain`: those that no missing or doubled line explains."""

    check: str
    checked: int = 0
    found: int = 0
    certain: int = 0
    details: tuple[str, ...] = ()


def add_tallies(tallies: Iterable[LogTally]) -> dict[str, LogTally]:
    """One tally a check."""
    sums: dict[str, LogTally] = {}
    for one in tallies:
        was = sums.get(one.check, LogTally(one.check))
        details = (*was.details, *one.details)
        sums[one.check] = LogTally(
            one.check, was.checked + one.checked, was.found + one.found, was.certain + one.certain, details
        )
    return sums


HELD: Final = "held"
VIOLATED: Final = "VIOLATED"
INCONCLUSIVE: Final = "inconclusive"
COUNTED: Final = "counted"
NOT_JUDGED: Final = "not judged"
"""Nothing was promised, or said, that could be judged: it changes no verdict."""


class LogCheck(msgspec.Struct, frozen=True):
    """A check and its verdict; `why`: in words, where it is not plainly held or violated."""

    name: str
    claim: str
    verdict: str
    checked: int
    found: int
    why: str = ""
    details: tuple[str, ...] = ()


class LogVerdict(msgspec.Struct, frozen=True):
    """What the judge says of some logs: `rows` of `counts` each kind; `torn`: last lines that were not ended."""

    level: str
    verdict: str
    files: tuple[str, ...]
    rows: int
    torn: int
    counts: dict[str, int]
    checks: tuple[LogCheck, ...]


CLAIMS: Final = {
    "steps": "every step is in the table of the machine",
    "continuity": "every step begins where the one before ended",
    "events": "some run of the machine has these events",
    "duplicates": "no message is delivered twice",
    "order": "a log has the messages of a stream in order, those apart that come again",
    "gaps": "every number of a stream is delivered",
    "lost": "every published message is delivered",
    "copies": "every receiver gets something of every stream",
    "unpublished": "every delivered message was published",
    "early acks": "no log has an acknowledgement before the delivery",
    "unacknowledged": "every delivered message is acknowledged",
    "owners": "a stream has one owner at a time",
    "lines": "no line is missing",
    "unordered": "the lines of an instance are ordered",
    "bounds": "the sets of possible states stay within sets_max",
    "equal lines": "no two lines are equal",
}
APART: Final = (
    '{}; nobody knows whether it had subscribed: say copies = "all" (to every stream), or "seen" (to those alone of '
    "which it got something)"
)
ENDS: Final = "the log may go on; say complete = true if it does not"
EARLIER: Final = "an earlier line may be missing; say complete = true if none is, or map number with from_start = true"
MISSING: Final = "equal lines or times that go back: one may be there twice, or two swapped"


def conclude(mapping: LogMapping, tallies: Mapping[str, LogTally], files: tuple[str, ...], torn: int) -> LogVerdict:
    """The verdict of a log from the tallies of all its parts."""
    lines = tallies.get("lines", LogTally("lines"))
    if not lines.checked:
        return LogVerdict(mapping.level, INCONCLUSIVE, files, 0, torn, {}, ())
    judged = _delivery_checks(mapping, tallies) if mapping.level == "deliveries" else _machine_checks(tallies)
    checks = [*judged, *_line_checks(mapping, tallies)]
    has_holes = lines.found > 0
    if has_holes and mapping.level == "deliveries":
        doubt = {"verdict": INCONCLUSIVE, "why": "lines are missing (see lines), and may explain it"}
        checks = [
            msgspec.structs.replace(one, **doubt)
            if one.verdict == VIOLATED and one.name not in ("duplicates", "owners")
            else one
            for one in checks
        ]
    if torn and mapping.complete:
        why = "the last line of a log was not ended, so complete = true is not so"
        checks.append(LogCheck("ends", "every log is whole", INCONCLUSIVE, len(files), torn, why))
    verdicts = {one.verdict for one in checks}
    verdict = next((one for one in (VIOLATED, INCONCLUSIVE) if one in verdicts), HELD)
    if not any(one.checked for one in judged):
        verdict = INCONCLUSIVE
    counts = {name.partition(" ")[2]: one.checked for name, one in tallies.items() if name.startswith("rows ")}
    return LogVerdict(mapping.level, verdict, files, lines.checked, torn, counts, tuple(checks))


def _check(tally: LogTally, verdict: str, why: str = "") -> LogCheck:
    return LogCheck(tally.check, CLAIMS[tally.check], verdict, tally.checked, tally.found, why, tally.details[:SHOWN])


def _promised(tally: LogTally, why: str) -> LogCheck:
    """Violated where some of it is certain; inconclusive, and `why`, where something may explain it."""
    if tally.certain:
        return _check(tally, VIOLATED)
    return _check(tally, INCONCLUSIVE, why) if tally.found else _check(tally, HELD)


def _machine_checks(tallies: Mapping[str, LogTally]) -> list[LogCheck]:
    found = [_promised(tallies[name], MISSING) for name in ("steps", "continuity", "events") if name in tallies]
    unclear = {"unordered": "nothing orders their lines", "bounds": "their sets of states go beyond sets_max"}
    found += [_check(tallies[name], INCONCLUSIVE, why) for name, why in unclear.items() if name in tallies]
    return found


def _line_checks(mapping: LogMapping, tallies: Mapping[str, LogTally]) -> Iterator[LogCheck]:
    lines = tallies["lines"]
    if "number" in mapping.roles:
        yield _check(
            lines, INCONCLUSIVE if lines.found else HELD, "log them, or judge what is there" if lines.found else ""
        )
    equal = tallies.get("equal lines")
    if equal is not None and equal.found:
        yield _check(equal, COUNTED, "they count as one delivery; map columns.number to tell them apart")


def _delivery_checks(mapping: LogMapping, tallies: Mapping[str, LogTally]) -> list[LogCheck]:
    rules = mapping.rules
    count = {kind: tallies[f"rows {kind}"].checked if f"rows {kind}" in tallies else 0 for kind in DeliveryKind}
    checks = [_duplicates_check(mapping, tallies)]
    if "order" in tallies:
        why = "another process had them before, or the clock was set back" if mapping.has_whole_past else EARLIER
        order = tallies["order"]
        checks.append(_promised(order, why) if rules.ordered else _check(order, COUNTED, "no order is promised"))
    if count[DeliveryKind.PUBLISH]:
        checks.append(_promised(tallies["lost"], _doubt_copies(mapping, tallies["lost"])))
        checks.append(
            _promised(tallies["unpublished"], "the log of publishes may be cut; say complete = true if it is not")
        )
    elif "gaps" in tallies:
        checks.append(_promised(tallies["gaps"], _doubt_copies(mapping, tallies["gaps"])))
    else:
        why = "numbers may have holes: say dense = true if they have none, or give the log of publishes"
        checks.append(LogCheck("gaps", CLAIMS["gaps"], NOT_JUDGED, 0, 0, why))
    checks += _copies_check(mapping, tallies)
    if count[DeliveryKind.ACK] or count[DeliveryKind.COMMIT]:
        if count[DeliveryKind.ACK]:
            why = "the clock was set back" if mapping.has_whole_past else EARLIER
            checks.append(_promised(tallies["early acks"], why))
        why = "an acknowledgement does not say whose it is; log that, too" if mapping.complete else ENDS
        checks.append(_promised(tallies["unacknowledged"], why))
    if "owners" in tallies:
        checks.append(_promised(tallies["owners"], ""))
    elif "owner" in mapping.roles:
        why = "clocks differ: map columns.time, and declare clock_error_ms"
        checks.append(LogCheck("owners", CLAIMS["owners"], NOT_JUDGED, 0, 0, why))
    return checks


def _doubt_copies(mapping: LogMapping, tally: LogTally) -> str:
    if not mapping.complete:
        return f"they may still come; {ENDS}"
    return 'a receiver may have subscribed later, or ended before; say copies = "whole" if none did'


def _copies_check(mapping: LogMapping, tallies: Mapping[str, LogTally]) -> Iterator[LogCheck]:
    """Streams of which a receiver got nothing, where others may have got something."""
    got = {name.partition(" ")[2]: one.checked for name, one in tallies.items() if name.startswith("receiver ")}
    if not got or mapping.rules.copies == "seen":
        return
    streams = tallies["streams"].checked
    details = tuple(f"{name} got nothing of {streams - own:,} streams" for name, own in got.items() if own < streams)
    missing = sum(streams - own for own in got.values())
    certain = missing if mapping.complete and mapping.rules.copies == "all" else 0
    tally = LogTally("copies", streams * len(got), missing, certain, details)
    yield _promised(tally, ENDS if mapping.rules.copies else APART.format(details[0] if details else ""))


def _duplicates_check(mapping: LogMapping, tallies: Mapping[str, LogTally]) -> LogCheck:
    tally = tallies["duplicates"]
    moved = tallies["to another process"].found
    again = f"came again, {moved:,} of them to another process; " if tally.found else ""
    if mapping.rules.promise == "exactly-once":
        return _promised(tally, "equal lines may have been written twice; map columns.time or columns.number")
    return _check(tally, COUNTED, f"{again}at-least-once allows it")
