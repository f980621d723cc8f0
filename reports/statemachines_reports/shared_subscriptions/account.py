"""Account: what became of every message of a stream: published, delivered (again), acknowledged (L5).

Works on ranges of offsets: columns where everything was delivered once, a sweep over ranges where something was not.

Names: the machines of shared subscriptions as traces name them.

Liars: nodes that a fault had lie; what they say of streams that they were granted cannot be told from the truth.

Assignments: a leader gives a stream to one borrower at a time (S2).

Exclusivity: a stream is delivered by one session at a time (S5).
"""

from __future__ import annotations

from functools import cached_property
from typing import Final

import msgspec
import numpy as np

from statemachines.kernel import node_of
from statemachines_reports.columns import STEPS, Columns, find_overlaps
from statemachines_reports.protocol import CheckVerdict, Segment, verdict

PROTOCOL: Final = "shared_subscriptions"
ASSIGNMENT: Final = "shared_subscriptions/assignment"
BORROWER: Final = "shared_subscriptions/borrower"
LEADER: Final = "shared_subscriptions/leader"
MEMBER: Final = "shared_subscriptions/member"
SESSION: Final = "shared_subscriptions/session"
PUBLISHER: Final = ""
"""A publisher is no machine."""


LIES = ("forge",)
"""Faults that have a node say what is not so."""


def of_liars(columns: Columns) -> np.ndarray:
    """The streams, by run and key as `Ranges` has them, that a liar was granted in its run: nothing is promised of
    them.  Those of all others are judged."""
    told = columns.rows_of("fault", event=LIES)
    if not len(told):
        return np.zeros(0, np.int64)
    liars = {(int(columns["run"][row]), columns.text("node", row)) for row in told.tolist()}
    grants = columns.rows_of("send", event=("grant",))
    lied = np.array(
        [(int(columns["run"][row]), node_of(columns.text("peer", row))) in liars for row in grants.tolist()]
    )
    rows = grants[lied.astype(bool)]
    return np.unique(columns["run"][rows] * (len(columns.texts["key"]) + 1) + columns["key"][rows])


DROPPED = "message_dropped"
"""A leader acknowledges one message in the name of the group."""

PARKED = "stream_parked"
"""A leader grants a stream to nobody until its next message is dropped."""


class Stream(msgspec.Struct, frozen=True):
    """The account of one stream in one run, in messages.

    `delivered` counts every delivery, `duplicates` those of a message that was delivered before.  `missing` was
    published and never acknowledged, nor dropped by the group; `unknown` was delivered or acknowledged and never
    published.
    """

    run: int
    key: str
    published: int
    delivered: int
    duplicates: int
    acknowledged: int
    missing: int
    unknown: int


class OffsetRanges:
    """The ranges that one kind of tell names: `row` of the file, sorted by (run, key, row).  Several checks ask for
    the same: `of` keeps them."""

    @classmethod
    def of(cls, columns: Columns, *events: str) -> OffsetRanges:
        """Those of these events."""
        return columns.keep((cls, *events), lambda: cls(columns, *events))

    def __init__(self, columns: Columns, *events: str) -> None:
        row = columns.rows_of("tell", event=events, machine=(SESSION, PUBLISHER, LEADER))
        group = columns.groups("key", row)
        order = np.argsort(group, kind="stable")
        self.row = row[order]
        self.group = group[order]
        self.first = columns["first"][self.row]
        is_one = columns.is_one_of("event", (DROPPED,), self.row)
        self.last = np.where(is_one, self.first, columns["last"][self.row])

    def total(self) -> dict[int, int]:
        """Group -> sum of the lengths."""
        return _sums(self.group, self.last - self.first + 1)

    def least(self) -> dict[int, int]:
        """Group -> the first offset."""
        order = np.lexsort((self.first, self.group))
        group, place = np.unique(self.group[order], return_index=True)
        return dict(zip(group.tolist(), self.first[order][place].tolist(), strict=True))

    def find_reached(self) -> dict[int, int]:
        """Group -> the first offset behind its first that is not covered."""
        order = np.lexsort((self.first, self.group))
        group, first, last = self.group[order], self.first[order], self.last[order]
        before = latest_before(group, last)
        begins = np.concatenate(([True], group[1:] != group[:-1]))[: len(group)]
        hole = ~begins & (first > before + 1)
        ends = np.concatenate((group[1:] != group[:-1], [True]))[: len(group)]
        found: dict[int, int] = {}
        for one, end in zip(group[hole].tolist(), before[hole].tolist(), strict=True):
            found.setdefault(one, end + 1)
        reached = np.maximum(before, last)
        for one, end in zip(group[ends].tolist(), reached[ends].tolist(), strict=True):
            found.setdefault(one, end + 1)
        return found

    @cached_property
    def covered(self) -> dict[int, int]:
        """Group -> number of different offsets."""
        order = np.lexsort((self.first, self.group))
        group, first, last = self.group[order], self.first[order], self.last[order]
        before = latest_before(group, last)
        fresh = np.maximum(last - np.maximum(first - 1, before), 0)
        return _sums(group, fresh)


def account_for(columns: Columns) -> list[Stream]:
    """The account of every stream of every run in the segment."""
    return columns.keep((account_for,), lambda: _account_for(columns))


def _account_for(columns: Columns) -> list[Stream]:
    keys, texts = len(columns.texts["key"]) + 1, [*columns.texts["key"], ""]
    published = OffsetRanges.of(columns, "published").covered
    delivered = OffsetRanges.of(columns, "deliver")
    total, different = delivered.total(), delivered.covered
    acknowledged = OffsetRanges.of(columns, "acknowledged").covered
    done = OffsetRanges.of(columns, "acknowledged", DROPPED).covered
    wanted = OffsetRanges.of(columns, "published", "acknowledged", DROPPED).covered
    known = OffsetRanges.of(columns, "published", "acknowledged", "deliver", DROPPED).covered
    return [
        Stream(
            run=group // keys,
            key=texts[group % keys],
            published=published.get(group, 0),
            delivered=total.get(group, 0),
            duplicates=total.get(group, 0) - different.get(group, 0),
            acknowledged=acknowledged.get(group, 0),
            missing=wanted.get(group, 0) - done.get(group, 0),
            unknown=known[group] - published.get(group, 0),
        )
        for group in sorted(known)
    ]


def judge_acknowledged(segment: Segment) -> CheckVerdict:
    """L5: every published message was acknowledged, or dropped by the group, and nothing else was.  Of what a liar was
    granted it may have said that it acknowledged it.  What is parked waits, and so does all behind it."""
    columns = segment.columns
    streams = account_for(columns)
    keys = len(columns.texts["key"]) + 1
    lied = {(group // keys, columns.texts["key"][group % keys]) for group in of_liars(columns).tolist()}
    excused = lied | {(group // keys, columns.texts["key"][group % keys]) for group in find_parked(columns)}
    missing = [
        stream for stream in streams if stream.unknown or (stream.missing and (stream.run, stream.key) not in excused)
    ]

    def describe(place: int) -> str:
        stream = missing[place]
        return (
            f"{stream.key}: {stream.published} published, {stream.acknowledged} acknowledged, {stream.missing} "
            f"missing, {stream.unknown} that nobody published"
        )

    runs = np.array([stream.run for stream in missing], np.int64)
    return CheckVerdict(sum(stream.published for stream in streams), runs, np.full(len(runs), -1), describe)


def find_parked(columns: Columns) -> set[int]:
    """The groups of streams, as `Ranges` has them, of which all was done up to a message at which they are parked."""
    rows = columns.rows_of("tell", event=(PARKED,))
    if not len(rows):
        return set()
    group = columns["run"][rows] * (len(columns.texts["key"]) + 1) + columns["key"][rows]
    done = OffsetRanges.of(columns, "acknowledged", DROPPED)
    begins, reached, least = OffsetRanges.of(columns, "published").least(), done.find_reached(), done.least()
    found = set()
    for stream, offset in zip(group.tolist(), columns["first"][rows].tolist(), strict=True):
        begin = begins.get(stream, offset)
        if offset == (reached[stream] if least.get(stream, begin + 1) <= begin else begin):
            found.add(stream)
    return found


def absent_publishers(segment: Segment) -> list[tuple[int, str]]:
    """(run, whose log it is) of streams that somebody got messages of before all that is known to be published."""
    columns = segment.columns
    keys, texts = len(columns.texts["key"]) + 1, [*columns.texts["key"], ""]
    published = OffsetRanges.of(columns, "published").least()
    taken = OffsetRanges.of(columns, "deliver", "acknowledged").least()
    found = []
    for group, first in taken.items():
        begin = published.get(group)
        if begin is None or first < begin:
            before = "" if begin is None else f" before {begin}"
            found.append((group // keys, f"who published {texts[group % keys]}{before}"))
    return found


def latest_before(group: np.ndarray, last: np.ndarray) -> np.ndarray:
    """For rows sorted by group: the greatest `last` before this row within its group (-1: it is the first)."""
    if not len(group):
        return np.zeros(0, np.int64)
    new = np.concatenate(([True], group[1:] != group[:-1]))
    lift = (np.cumsum(new) - 1) * 2**40
    latest = np.maximum.accumulate(lift + last) - lift
    return np.where(new, -1, np.concatenate(([-1], latest[:-1])))


def _sums(group: np.ndarray, values: np.ndarray) -> dict[int, int]:
    names, where = np.unique(group, return_inverse=True)
    sums = np.zeros(len(names), np.int64)
    np.add.at(sums, where, values)
    return {int(name): int(total) for name, total in zip(names, sums, strict=True)}


def judge_assignments(segment: Segment) -> CheckVerdict:
    """S2: of the assignments of a stream by a leader, one ends before the next begins."""
    columns, steps = segment.columns, segment.steps
    texts = columns.texts["instance"]
    streams = [text.rpartition("#")[0] for text in texts]
    names = {name: code for code, name in enumerate(dict.fromkeys(streams))}
    stream_of = np.array([names[name] for name in streams] + [-1], np.int64)
    is_assignment = columns.is_one_of("machine", (ASSIGNMENT,), steps.index)
    order = steps.order[is_assignment[steps.order]]
    if not len(order):
        return verdict(columns, 0, order, str)
    begins = np.flatnonzero(steps.first[is_assignment[steps.order]])
    ends = np.concatenate((begins[1:] - 1, [len(order) - 1]))
    begin, end = steps.index[order[begins]], steps.index[order[ends]]
    end = np.where(columns.is_one_of("dest", ("none",), end), end, columns.rows)
    owner = steps.run[order[begins]] * (len(names) + 1) + stream_of[steps.instance[order[begins]]]
    overlapping = find_overlaps(owner, begin, end)
    positions = order[begins][overlapping]

    def describe(row: int) -> str:
        return f"{columns.text('instance', row)} begins while another assignment of the stream stands"

    return verdict(columns, len(begins), steps.index[positions], describe)


def judge_exclusivity(segment: Segment) -> CheckVerdict:
    """S5: the deliveries of a stream by one owner lie before or after those by another.

    An owner is a session from one install of the stream to the next.  What a liar was granted is not judged: it may
    have said that it let a stream go, and gone on.
    """
    columns = segment.columns
    told = columns.rows_of("tell", event=("deliver",), machine=(SESSION,))
    installed = columns.rows_of(*STEPS, event=("install",), machine=(SESSION,))
    index = np.concatenate((told, installed))
    stream = columns.groups("key", index)
    instance = columns["instance"][index]
    order = np.lexsort((index, instance, stream))
    index, stream, instance = index[order], stream[order], instance[order]
    deliveries = columns.is_one_of("kind", ("tell",), index)
    changed = np.concatenate(([True], (stream[1:] != stream[:-1]) | (instance[1:] != instance[:-1])))[: len(index)]
    owner = np.cumsum(changed | ~deliveries)[deliveries]
    index, stream = index[deliveries], stream[deliveries]
    if not len(index):
        return verdict(columns, 0, index, str)
    begins = np.flatnonzero(np.concatenate(([True], owner[1:] != owner[:-1])))
    stream, first, last = stream[begins], index[begins], index[np.concatenate((begins[1:] - 1, [len(index) - 1]))]
    amid = find_overlaps(stream, first, last)
    amid = amid[~np.isin(stream[amid], of_liars(columns))]

    def describe(place: int) -> str:
        return _describe_overlap(columns, stream, first, last, int(amid[place]))

    return CheckVerdict(len(index), columns["run"][first[amid]], columns["seq"][first[amid]], describe)


def _describe_overlap(columns: Columns, stream: np.ndarray, first: np.ndarray, last: np.ndarray, place: int) -> str:
    """Who delivers, and who else still does."""
    row = first[place]
    others = np.flatnonzero((stream == stream[place]) & (first < row) & (last >= row))
    end = last[others[np.argmax(last[others])]]
    names = [columns.text("instance", one) for one in (row, end)]
    return (
        f"{names[0]} delivers {columns['first'][row]} to {columns['last'][row]} of {columns.text('key', row)}"
        f" amid {names[1]}, which goes on to deliver {columns['first'][end]} at seq {columns['seq'][end]}"
    )
