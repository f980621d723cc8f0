"""DeliveryRows: level `deliveries`: publishes, deliveries and acknowledgements, without any machine.

Each check says what it counts (`found`), and how much of that no missing or doubled line explains (`certain`).
`by` says which rows it needs together: those of a message, or those of a stream.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

import numpy as np

from statemachines.kernel import ConfigurationError
from statemachines_reports.columns import find_overlaps
from statemachines_reports.foreign_log.log_mapping import DeliveryKind, LogMapping
from statemachines_reports.foreign_log.log_rows import LogRows, code_rows, group_rows
from statemachines_reports.foreign_log.log_verdict import SHOWN, LogTally

MESSAGE, STREAM = "message", "stream"
PER: Final = ("consumer", "group")
"""Columns of `same` whose values each get a copy of a message."""


class DeliveryRows:
    """The rows of a log by kind, and the codes of messages that they are about."""

    def __init__(self, log: LogRows, mapping: LogMapping) -> None:
        self.log, self.mapping, self.rules = log, mapping, mapping.rules
        codes = {text: code for code, text in enumerate(log.list_texts("kind"))}
        self.rows = {one: np.flatnonzero(log["kind"] == codes.get(one, -2)) for one in DeliveryKind}
        self.delivers = self.rows[DeliveryKind.DELIVER]
        self.per = [one for one in self.rules.same if one in PER and not self._is_published(one)]
        """Each value of these gets a copy: publishes do not say which."""
        same = [one for one in self.rules.same if one not in self.per]
        is_numbered = self.rules.order == "number"
        columns = [log["order"] if one == "id" and is_numbered else log[one] for one in same]
        self.message, self.messages = code_rows(*columns)
        """The message of a row, whoever gets it."""
        whose = [log[one] for one in self.per]
        self.receiver, _ = code_rows(np.full(log.size, -1), *whose)
        """Which of those that each get a copy the row is about."""
        self.is_named = np.all([one >= 0 for one in whose], axis=0) if whose else np.ones(log.size, bool)
        self.copy, self.copies = code_rows(self.message, self.receiver)
        """The message of a row, for each that gets it."""
        self.stream = log["stream"] + 1 if "stream" in log else np.zeros(log.size, np.int32)
        self.order = log.read_order(self.rules.order) if self.rules.order != "none" else None

    def _is_published(self, role: str) -> bool:
        """Whether publishes say the role; raises `ConfigurationError` where some do, and some do not."""
        published = self.rows[DeliveryKind.PUBLISH]
        says = self.log[role][published] >= 0
        if says.any() and not says.all():
            row, other = (self.log.name_place(int(published[where.argmax()])) for where in (says, ~says))
            rule = f"stands in the publish of {row}, and not in that of {other}; log it in all publishes, or in none"
            raise ConfigurationError(role, "/".join(self.mapping.roles[role]), rule)
        return bool(says.any())

    def name_message(self, row: int) -> str:
        """A message, for people."""
        log = self.log
        stream = f"{log.read_text('stream', row)} " if "stream" in log else ""
        of = "id" if "id" in log else "key"
        return f"{stream}{log.read_text(of, row)}"

    def name_receiver(self, row: int) -> str:
        """The receiver of a row, for people; "" where messages have no copies."""
        return "/".join(self.log.read_text(one, row) for one in self.per)

    def name_consumer(self, row: int) -> str:
        """Who got it, for people."""
        return self.log.read_text("consumer", row) if "consumer" in self.log else self.log.name_process(row)


class _Check(NamedTuple):
    by: str
    judge: Callable[[DeliveryRows], Iterator[LogTally]]


def judge_deliveries(log: LogRows, mapping: LogMapping, by: tuple[str, ...] = (MESSAGE, STREAM)) -> list[LogTally]:
    """What the checks find that need the rows of whole messages, or of whole streams."""
    deliveries = DeliveryRows(log, mapping)
    tallies = [one for check in CHECKS if check.by in by for one in check.judge(deliveries)]
    if MESSAGE in by:
        tallies += [LogTally(f"rows {kind}", len(rows)) for kind, rows in deliveries.rows.items()]
    return tallies


def _judge_duplicates(deliveries: DeliveryRows) -> Iterator[LogTally]:
    """Deliveries of a message beyond its first; equal lines at one time may be one delivery."""
    log, rows = deliveries.log, deliveries.delivers
    copy = deliveries.copy[rows]
    is_timed = "time" in log or "number" in log
    # A line that two files have is one line, if it says when it was written.
    full = [log[one][rows] for one in ("process", "consumer", "time", "number") if one in log]
    distinct, count = code_rows(copy, *full, *([] if is_timed else [log.process[rows]]))
    first = _find_first(distinct, count)
    unique = len(np.unique(copy))
    if is_timed:
        again = first[_is_repeated(copy[first])]
        equal = len(rows) - count
        yield LogTally("equal lines", len(rows), equal)
    else:
        again = np.flatnonzero(_is_repeated(copy))
    to_others = len(np.unique(code_rows(copy, log.process[rows])[0])) - unique if len(rows) else 0
    details = tuple(
        f"{log.name_place(row)}: {deliveries.name_message(row)} was delivered again, to {deliveries.name_consumer(row)}"
        for row in rows[again[:SHOWN]].tolist()
    )
    yield LogTally("duplicates", len(rows), len(again), count - unique if len(rows) else 0, details)
    yield LogTally("to another process", len(again), to_others)


def _find_first(codes: np.ndarray, count: int) -> np.ndarray:
    """Where each code stands first, in order."""
    if not len(codes):
        return codes
    first = np.full(count, len(codes))
    np.minimum.at(first, codes, np.arange(len(codes)))
    return np.sort(first)


def _is_repeated(codes: np.ndarray) -> np.ndarray:
    """Which values were there before."""
    again = np.ones(len(codes), bool)
    again[np.unique(codes, return_index=True)[1]] = False
    return again


def _judge_early_acks(deliveries: DeliveryRows) -> Iterator[LogTally]:
    """Acknowledged in the log of a process before that log has it delivered."""
    log, acks = deliveries.log, deliveries.rows[DeliveryKind.ACK]
    pair, count = code_rows(deliveries.copy, log.process)
    delivered, acked = np.full(count, log.size), np.full(count, log.size)
    np.minimum.at(delivered, pair[deliveries.delivers], deliveries.delivers)
    np.minimum.at(acked, pair[acks], acks)
    is_early = (acked < log.size) & (delivered < log.size) & (delivered > acked)
    early, later = acked[is_early], delivered[is_early]
    # Where its clock says otherwise, lines of one process may have been swapped.
    agrees = log["time"][early] <= log["time"][later] if "time" in log else np.ones(len(early), bool)
    certain = int(agrees.sum()) if deliveries.mapping.has_whole_past else 0
    details = tuple(
        f"{log.name_place(row)}: {deliveries.name_message(row)} is acknowledged, and delivered later in the same log"
        for row in np.sort(early)[:SHOWN].tolist()
    )
    yield LogTally("early acks", len(acks), len(early), certain, details)


def _judge_losses(deliveries: DeliveryRows) -> Iterator[LogTally]:
    """Published and in no delivery, and the other way round."""
    log, published = deliveries.log, deliveries.rows[DeliveryKind.PUBLISH]
    sent, got = np.zeros(deliveries.messages, bool), np.zeros(deliveries.messages, bool)
    sent[deliveries.message[published]] = True
    got[deliveries.message[deliveries.delivers]] = True
    published = published[~_is_repeated(deliveries.message[published])]
    lost = published[~got[deliveries.message[published]]]
    whole = deliveries.mapping.complete
    checked = len(lost) if deliveries.per else len(published)
    yield LogTally("lost", checked, len(lost), len(lost) if whole else 0, _say_lost(deliveries, lost))
    if deliveries.per:
        yield from _judge_lost_copies(deliveries, published[got[deliveries.message[published]]])
    strange = deliveries.delivers[~sent[deliveries.message[deliveries.delivers]]]
    strange = strange[~_is_repeated(deliveries.message[strange])]
    details = tuple(
        f"{log.name_place(row)}: {deliveries.name_message(row)} is in no publish" for row in strange[:SHOWN].tolist()
    )
    yield LogTally(
        "unpublished", int(got.sum()), len(strange), len(strange) if deliveries.mapping.complete else 0, details
    )


def _say_lost(deliveries: DeliveryRows, rows: np.ndarray, receiver: str = "") -> tuple[str, ...]:
    to = f" to {receiver}, and another has it" if receiver else ""
    return tuple(
        f"{deliveries.log.name_place(row)}: {deliveries.name_message(row)} is in no delivery{to}"
        for row in rows[:SHOWN].tolist()
    )


def _judge_lost_copies(deliveries: DeliveryRows, published: np.ndarray) -> Iterator[LogTally]:
    """Of messages that were delivered, what one of their receivers did not get, in streams of which it got something.

    Before its first message and behind its last a receiver may not have been subscribed.
    """
    delivers, stream = deliveries.delivers, deliveries.stream
    published = published[np.argsort(stream[published], kind="stable")]
    begins = np.searchsorted(stream[published], np.arange(int(stream.max(initial=0)) + 2))
    by_pair, pairs = code_rows(stream[delivers], deliveries.receiver[delivers])
    order, ends = group_rows(by_pair, pairs)
    for pair in range(pairs):
        own = delivers[order[ends[pair] : ends[pair + 1]]]
        rows = published[begins[stream[own[0]]] : begins[stream[own[0]] + 1]]
        has = np.isin(deliveries.message[rows], deliveries.message[own])
        lacking = rows[~has]
        between = np.maximum.accumulate(has) & np.maximum.accumulate(has[::-1])[::-1]
        certain = len(lacking) if deliveries.rules.copies else int((between & ~has).sum())
        details = _say_lost(deliveries, lacking, deliveries.name_receiver(int(own[0])))
        yield LogTally("lost", len(rows), len(lacking), certain if deliveries.mapping.complete else 0, details)


def _judge_receivers(deliveries: DeliveryRows) -> Iterator[LogTally]:
    """Streams with messages, and of how many of them each receiver got something."""
    rows = np.union1d(deliveries.rows[DeliveryKind.PUBLISH], deliveries.delivers)
    yield LogTally("streams", len(np.unique(deliveries.stream[rows])))
    if deliveries.per:
        rows = deliveries.delivers
        pair, _ = code_rows(deliveries.stream[rows], deliveries.receiver[rows])
        for row in rows[~_is_repeated(pair)].tolist():
            yield LogTally(f"receiver {deliveries.name_receiver(row)}", 1)


def _judge_gaps(deliveries: DeliveryRows) -> Iterator[LogTally]:
    """Numbers between the first and the last of a stream that no delivery has."""
    if not deliveries.rules.dense or deliveries.order is None:
        return
    rows = deliveries.delivers
    stream, number = deliveries.stream[rows], deliveries.order[rows]
    lane, lanes = code_rows(stream, deliveries.receiver[rows])
    order = np.lexsort((number, lane))
    rows, stream, number, lane = rows[order], stream[order], number[order], lane[order]
    step = np.diff(number)
    holes = np.flatnonzero((lane[1:] == lane[:-1]) & (step > 1))
    missing = int((step[holes] - 1).sum())
    details = []
    for place in holes[:SHOWN].tolist():
        low, high = int(number[place]) + 1, int(number[place + 1]) - 1
        said = f"{low} is" if low == high else f"{low} to {high} are"
        to = f" to {deliveries.name_receiver(int(rows[place]))}" if deliveries.per else ""
        details.append(
            f"{deliveries.log.read_text('stream', rows[place])}: {said} in no delivery{to}, and {high + 1} is"
        )
    # What others got of the stream before the first number of a receiver, and behind its last one.
    lowest, highest = _find_ends(stream, number)
    first, last = _find_ends(lane, number)
    of = np.zeros(lanes, np.int64)
    of[lane] = stream
    apart = int((first - lowest[of] + highest[of] - last).sum()) if lanes else 0
    certain = missing + (apart if deliveries.rules.copies else 0) if deliveries.mapping.complete else 0
    found = missing + apart
    yield LogTally("gaps", len(number) + found, found, certain, tuple(details))


def _find_ends(codes: np.ndarray, number: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The lowest and the highest number of each code."""
    count = int(codes.max(initial=-1)) + 1
    low, high = np.full(count, np.iinfo(np.int64).max), np.full(count, np.iinfo(np.int64).min)
    np.minimum.at(low, codes, number)
    np.maximum.at(high, codes, number)
    return low, high


def _judge_order(deliveries: DeliveryRows) -> Iterator[LogTally]:
    """First deliveries in the log of a process that come after a later one of their stream, for one who gets them."""
    log, rows = deliveries.log, deliveries.delivers
    if deliveries.order is None:
        return
    whose = [log[one][rows] for one in ("consumer", "group") if one in log]
    lane, _ = code_rows(log.process[rows], log["stream"][rows], *whose)
    own, _ = code_rows(lane, deliveries.message[rows])
    first = np.flatnonzero(~_is_repeated(own))
    again = len(rows) - len(first)
    order = first[np.argsort(lane[first], kind="stable")]
    value = np.unique(deliveries.order[rows], return_inverse=True)[1][order].astype(np.int64)
    size = int(value.max()) + 1 if len(value) else 1
    lift = lane[order] * size
    latest = np.maximum.accumulate(lift + value) - lift if len(value) else value
    late = order[value < latest]
    # Who gets a message that another process had before gets it again, and need not have it in order.
    message, messages = code_rows(deliveries.message[rows], log["stream"][rows])
    holders = np.bincount(message[first], minlength=messages)
    alone = (holders[message[late]] == 1) & ~_has_set_back(log, rows, lane)[late]
    certain = int(alone.sum()) if deliveries.mapping.has_whole_past else 0
    details = tuple(
        f"{log.name_place(row)}: {deliveries.name_message(row)} came to {deliveries.name_consumer(row)} out of order"
        for row in rows[np.sort(late)[:SHOWN]].tolist()
    )
    yield LogTally("order", len(rows) - again, len(late), certain, details)


def _has_set_back(log: LogRows, rows: np.ndarray, lane: np.ndarray) -> np.ndarray:
    """Rows of lanes in which the time goes back somewhere: their lines may have been swapped."""
    found = np.zeros(int(lane.max()) + 1 if len(lane) else 0, bool)
    if "time" in log and len(lane):
        order = np.argsort(lane, kind="stable")
        time = log["time"][rows][order]
        back = (lane[order][1:] == lane[order][:-1]) & (time[1:] < time[:-1])
        found[lane[order][1:][back]] = True
    return np.asarray(found[lane])


def _judge_unacknowledged(deliveries: DeliveryRows) -> Iterator[LogTally]:
    """Delivered, and acknowledged by nobody."""
    log, acks, commits = deliveries.log, deliveries.rows[DeliveryKind.ACK], deliveries.rows[DeliveryKind.COMMIT]
    rows = deliveries.delivers[~_is_repeated(deliveries.copy[deliveries.delivers])]
    open_rows = rows[~np.isin(deliveries.copy[rows], deliveries.copy[acks])]
    if len(commits) and deliveries.order is not None:
        lane, lanes = code_rows(deliveries.stream, deliveries.receiver)
        upto = np.full(lanes, np.iinfo(np.int64).min)
        np.maximum.at(upto, lane[commits], deliveries.order[commits])
        open_rows = open_rows[deliveries.order[open_rows] >= upto[lane[open_rows]]]
    # An acknowledgement that does not say whose it is may be that of any receiver.
    unnamed = np.concatenate((acks, commits))
    unnamed = unnamed[~deliveries.is_named[unnamed]]
    accused = open_rows[~np.isin(deliveries.stream[open_rows], deliveries.stream[unnamed])]
    details = tuple(
        f"{log.name_place(row)}: {deliveries.name_message(row)} is never acknowledged"
        for row in (accused if len(accused) else open_rows)[:SHOWN].tolist()
    )
    certain = len(accused) if deliveries.mapping.complete else 0
    yield LogTally("unacknowledged", len(rows), len(open_rows), certain, details)


def _judge_owners(deliveries: DeliveryRows) -> Iterator[LogTally]:
    """A stream has deliveries by one owner, from the first to the last, while another has it."""
    log, rows = deliveries.log, deliveries.delivers
    if "owner" not in log or "time" not in log or deliveries.mapping.clock_error_ms is None:
        return
    rows = rows[log["owner"][rows] >= 0]
    of, _ = code_rows(log["stream"], *(log[one] for one in ("group",) if one in log))
    pair, count = code_rows(of[rows], log["owner"][rows])
    if not len(rows):
        return
    time = log["time"][rows]
    begin, end = _find_ends(pair, time)
    one = np.zeros(count, np.int64)
    one[pair] = rows
    error = int(deliveries.mapping.clock_error_ms * 1e6)
    ranks = np.unique(np.concatenate([begin + error + 1, end]), return_inverse=True)[1]
    wrong = find_overlaps(of[one], ranks[:count], np.maximum(ranks[count:], 0))
    details = tuple(
        f"{log.read_text('stream', row)}: {log.read_text('owner', row)} begins while another owner still has it"
        for row in one[wrong[:SHOWN]].tolist()
    )
    yield LogTally("owners", count, len(wrong), len(wrong), details)


CHECKS: Final = (
    _Check(MESSAGE, _judge_duplicates),
    _Check(MESSAGE, _judge_early_acks),
    _Check(MESSAGE, _judge_losses),
    _Check(STREAM, _judge_receivers),
    _Check(STREAM, _judge_gaps),
    _Check(STREAM, _judge_order),
    _Check(MESSAGE, _judge_unacknowledged),
    _Check(STREAM, _judge_owners),
)
