"""Outcomes: what became of every message that was lost, and what every message that came said: the confusion table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import msgspec

from statemachines_reports.columns import Columns
from statemachines_reports.protocol import Segment
from statemachines_reports.sequence_windows.network import LostPacket, PublisherSubject
from statemachines_reports.sequence_windows.receiver_log import JudgedMessage, hearing_of, read_hearing

S = 1_000_000_000
TOLD, UNKNOWN, WRONG, MISSED = "told", "unknown", "wrong", "missed"
FORGOTTEN, CYCLED, LAST = "limit-forgotten", "limit-cycled", "limit-last"
BEFORE_FIRST, UNWANTED = "before the first", "not subscribed"
OUTCOMES = (TOLD, UNKNOWN, WRONG, MISSED, FORGOTTEN, LAST, CYCLED, BEFORE_FIRST, UNWANTED)
"""Of a lost message: told with the exact number; as unknown; with a wrong number; not told at all; hidden by a limit;
before anything of the line was heard; on a subject that was not subscribed."""
CLAIMS = {"next": "nothing missing", "skip": "missing", "skip unknown": "missing, unknown", "first": "no claim",
          "first unknown": "no claim", "cycle": "no claim"}  # fmt: skip


class Loss(msgspec.Struct, frozen=True):
    """So many messages of a publisher and subject were lost in a second of a run (from 0 on), by receiver."""

    run: int
    second: int
    publisher: str
    subject: str
    outcome: str
    count: int


class Case(msgspec.Struct, frozen=True):
    """So many delivered messages of a run before which the network had `lost` something, or had not; `said`: what the
    receiver claimed of it; `right`: whether that is so (no claim is neither right nor wrong, and counts as right)."""

    run: int
    lost: bool
    said: str
    right: bool
    count: int


def outcome_of(said: JudgedMessage) -> str:
    """Of what was lost before a message."""
    match said.verdict:
        case "skip":
            return TOLD if said.exact else WRONG
        case "skip unknown" | "first unknown":
            return UNKNOWN
        case "cycle":
            return CYCLED
        case "first":
            return FORGOTTEN if said.heard else BEFORE_FIRST
        case "not_subscribed":
            return UNWANTED
    return MISSED


def is_right(said: JudgedMessage) -> bool:
    """What was claimed is so."""
    match said.verdict:
        case "next":
            return not said.lost
        case "skip":
            return bool(said.lost) and said.exact
        case "skip unknown":
            return bool(said.lost)
    return True


def find_losses(segment: Segment) -> Iterator[Loss]:
    """What became of all that was lost."""
    return losses_of(segment.columns)


def losses_of(columns: Columns) -> Iterator[Loss]:
    """The same of columns; seconds count from the first row of the run."""
    hearing = read_hearing(columns)
    began = {run: int(columns["t_ns"][columns["run"] == run].min()) // S for run, _ in columns.runs()}
    found: Counter[tuple[int, int, str, str, str]] = Counter()

    def count(place: PublisherSubject, one: LostPacket, outcome: str) -> None:
        second = int(columns["t_ns"][one.row]) // S - began[place.run]
        found[place.run, second, place.publisher, place.subject, outcome] += 1

    for said in hearing.said:
        for one in said.lost:
            count(said.place, one, outcome_of(said))
    for place, one in hearing.silent:
        count(place, one, LAST)
    for key, number in sorted(found.items()):
        yield Loss(*key, number)


def find_cases(segment: Segment) -> Iterator[Case]:
    """What was said, against what had happened."""
    columns = segment.columns
    found = Counter(
        (int(columns["run"][said.row]), bool(said.lost), CLAIMS[said.verdict], is_right(said))
        for said in hearing_of(segment).said
        if said.verdict in CLAIMS
    )
    for key, number in sorted(found.items()):
        yield Case(*key, number)
