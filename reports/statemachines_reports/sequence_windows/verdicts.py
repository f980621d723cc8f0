"""Verdicts: the checks of what receivers say (ONCE, EXACT, NOFALSE, DETECT), of its limits, of joins and of numbers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from statemachines_reports.columns import Columns
from statemachines_reports.protocol import CheckVerdict, Parameters, Segment, verdict
from statemachines_reports.sequence_windows.network import BASE_BITS, PublisherSubject
from statemachines_reports.sequence_windows.receiver_log import (
    CROWDED_OUT,
    FIRSTS,
    KNOWN,
    WINDOW_NS,
    JudgedMessage,
    hearing_of,
    odd_clocks,
    stamps_of,
)


def _judge(
    segment: Segment, which: Callable[[JudgedMessage], bool], wrong: Callable[[JudgedMessage], bool], what: str
) -> CheckVerdict:
    """Of what was said, `which` is looked at, and what is wrong with it."""
    looked = [said for said in hearing_of(segment).said if which(said)]
    found = {said.row: said for said in looked if wrong(said)}

    def describe(row: int) -> str:
        said = found[row]
        last = f"{said.last >> BASE_BITS}.{said.last & (1 << BASE_BITS) - 1}" if said.heard else "none"
        number = f"{said.number >> BASE_BITS}.{said.number & (1 << BASE_BITS) - 1}"
        return (
            f"{said.life}: {number} of {said.place.publisher} on {said.place.subject} is {said.verdict}, "
            f"{said.told} told, {len(said.lost)} lost, last delivered {last}: {what}"
        )

    return verdict(segment.columns, len(looked), np.array(sorted(found), np.int64), describe)


def judge_numbers(segment: Segment) -> CheckVerdict:
    """MONO: the numbers of a publisher and subject increase."""
    columns = segment.columns
    highest: dict[PublisherSubject, int] = {}
    wrong, checked = [], 0
    for row, place, number in stamps_of(columns):
        checked += 1
        if number <= highest.get(place, 0):
            wrong.append(row)
        highest[place] = max(number, highest.get(place, 0))

    def describe(row: int) -> str:
        return f"{columns.text('instance', row)} numbers {columns['first'][row]} of frame {columns['term'][row]} again"

    return verdict(columns, checked, np.array(wrong, np.int64), describe)


def judge_once(segment: Segment) -> CheckVerdict:
    """ONCE: what is delivered as known is later than what was delivered before, or a jump has passed over it, and a
    repeat is not later."""

    def wrong(said: JudgedMessage) -> bool:
        return said.heard and not (said.fits if said.verdict in KNOWN else said.number <= said.last)

    return _judge(segment, lambda said: said.verdict in (*KNOWN, "repeat"), wrong, "delivered twice, or not at all")


def judge_exact(segment: Segment) -> CheckVerdict:
    """EXACT: a known loss is how many the network lost."""

    def wrong(said: JudgedMessage) -> bool:
        return bool(said.lost) and not said.exact

    return _judge(segment, lambda said: said.verdict == "skip", wrong, "another number was lost")


def judge_alarms(segment: Segment) -> CheckVerdict:
    """NOFALSE: where a loss is told the network lost something."""
    told = ("skip", "skip unknown")
    return _judge(segment, lambda said: said.verdict in told, lambda said: not said.lost, "nothing was lost")


def judge_detected(segment: Segment) -> CheckVerdict:
    """DETECT: where nothing is told nothing was lost."""
    return _judge(segment, lambda said: said.verdict == "next", lambda said: bool(said.lost), "it is not told")


def judge_crowds(segment: Segment) -> CheckVerdict:
    """CROWD: a publisher counts as forgotten for others only where others have spoken since it last did."""
    return _judge(
        segment, lambda said: said.verdict == CROWDED_OUT, lambda said: not said.others, "no other has spoken since"
    )


def judge_limits(segment: Segment) -> CheckVerdict:
    """DETECT: what claims nothing may do so: the receiver had been left alone for as long as its window takes to
    forget, or had unsubscribed, or had forgotten the publisher for others, before whose first message there is none; or
    the publisher had been silent for as long."""
    columns = segment.columns
    silence = _silences(segment)
    odd = odd_clocks(columns)
    displaced = columns.rows_of("step", event=("displace",))
    crowded = set(columns["run"][displaced].tolist())  # receivers say so; applications have no rows of it
    crowded |= {run for run, _ in columns.runs() if _places(segment.parameters(run))}

    def wrong(said: JudgedMessage) -> bool:
        run = said.place.run
        if said.verdict == "first":
            begins = said.others and said.number & (1 << BASE_BITS) - 1 == 1 and run in crowded
            return said.heard and not said.forgettable and not begins and (run, said.node) not in odd
        speaker = said.place.publisher.partition("~")[0]
        since = silence.get((said.place, said.number), WINDOW_NS)
        return bool(said.lost) and since < WINDOW_NS and (run, speaker) not in odd

    return _judge(segment, lambda said: said.verdict in ("first", "cycle"), wrong, "nobody can have forgotten")


def _places(parameters: Parameters) -> int:
    """Of so many publishers a receiver of a simulated run knows where it stands (0: of all)."""
    return int(parameters.get("settings", {}).get("places", 0))


def _silences(segment: Segment) -> dict[tuple[PublisherSubject, int], int]:
    """How long a publisher had been silent on a subject before each message with base 1, in nanoseconds."""
    columns = segment.columns
    found: dict[tuple[PublisherSubject, int], int] = {}
    last: dict[PublisherSubject, int] = {}
    for row, place, number in stamps_of(columns):
        t_ns = int(columns["t_ns"][row])
        if columns["first"][row] == 1 and place in last:
            found[place, number] = t_ns - last[place]
        last[place] = t_ns
    return found


def judge_joins(segment: Segment) -> CheckVerdict:
    """JOIN: of a verified stream nothing was lost, where the network has lost nothing since the convergence that the
    receiver was told of last, and the publisher's clock was right."""
    columns, hearing = segment.columns, hearing_of(segment)
    odd, first = odd_clocks(columns), {said.row: said for said in hearing.said if said.verdict in FIRSTS}
    rows = columns.rows_of("tell", event=("joining",))
    verified = rows[columns.is_one_of("key", ("verified",), rows)].tolist()
    converged = _convergences(columns)
    wrong, checked = [], 0
    for row in verified:
        run, node = int(columns["run"][row]), columns.text("node", row)
        said = _said_before(first, row, columns.text("peer", row), node)
        known = [at for told, at in converged.get((run, node), []) if told < row]
        if said is None or (run, said.place.publisher.partition("~")[0]) in odd or not known:
            continue
        checked += 1
        begin = said.number >> BASE_BITS << BASE_BITS
        lost = hearing.network.between(said.place, node, begin, said.number)
        missing = [one for one in lost if not one.down]
        if missing and not hearing.network.loses_since(run, node, max(known), row):
            wrong.append(row)

    def describe(row: int) -> str:
        return (
            f"{columns.text('instance', row)} verifies a stream of {columns.text('peer', row)}, and some of it was lost"
        )

    return verdict(columns, checked, np.array(wrong, np.int64), describe)


def _convergences(columns: Columns) -> dict[tuple[int, str], list[tuple[int, int]]]:
    """(run, node) -> (row in which the node was told, row of the convergence that it was told of)."""
    found: dict[tuple[int, str], list[tuple[int, int]]] = {}
    at: dict[int, int] = {}
    for row in columns.rows_of("fault", "step", event=("converged",)).tolist():
        run, node = int(columns["run"][row]), columns.text("node", row)
        if not node:
            at[run] = row
        elif run in at:
            found.setdefault((run, node), []).append((row, at[run]))
    return found


def _said_before(first: dict[int, JudgedMessage], row: int, publisher: str, node: str) -> JudgedMessage | None:
    """The first message that a join is told of: the last one before it, some rows of steps apart."""
    for before in range(row - 1, max(-1, row - 9), -1):
        said = first.get(before)
        if said is not None and (said.place.publisher, said.node) == (publisher, node):
            return said
    return None
