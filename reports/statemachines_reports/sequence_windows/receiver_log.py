"""Receiver log: what receivers said of the messages that came, beside what the network had lost before each of them.

A receiver is one life; of each publisher and subject it hears a line.  No record of a machine is asked: what was
delivered last, when something of a subject last came, and who unsubscribed follow from the rows.

Network: the messages that a network lost, by its own rows, and when hosts were not there to miss any.

A row of kind drop says which publisher's message it was (instance), on which subject (key), under which number (term,
first), and to which node it was not brought (peer; "": to none).

Verdicts: the checks of what receivers say (ONCE, EXACT, NOFALSE, DETECT), of its limits, of joins and of numbers.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from statemachines_reports.columns import Columns
from statemachines_reports.protocol import CheckVerdict, Parameters, Segment, verdict

BASE_BITS = 35
DEATHS = ("crash", "lost_disk", "kill")
COMINGS = ("join", "restart")
LATE = 1 << 64
"""More than any number."""


class PublisherSubject(NamedTuple):
    """What a publisher (its id) sends on a subject, in a run."""

    run: int
    publisher: str
    subject: str


class LostPacket(NamedTuple):
    """A message that was lost; `number`: frame and base as one, so that numbers compare; `down`: its receiver was
    dead."""

    number: int
    row: int
    down: bool = False


def number_at(columns: Columns, row: int) -> int:
    """The number of the message of a row."""
    return int(columns["term"][row]) << BASE_BITS | int(columns["first"][row])


class NetworkLosses:
    """All losses of a segment.  `dead`: (run, node) -> the rows in which it died."""

    def __init__(self, columns: Columns) -> None:
        self.columns = columns
        self.dead: dict[tuple[int, str], list[int]] = {}
        self.lost: dict[tuple[PublisherSubject, str], list[LostPacket]] = {}
        self.last_lost: dict[tuple[int, str], list[int]] = {}
        down: set[tuple[int, str]] = set()
        rows = columns.rows_of("drop", "fault")
        for row in rows.tolist():
            run = int(columns["run"][row])
            if columns.text("kind", row) == "drop":
                self._drop(run, row, down)
                continue
            who, event = (run, columns.text("node", row)), columns.text("event", row)
            if event in DEATHS:
                down.add(who)
                self.dead.setdefault(who, []).append(row)
            elif event in COMINGS:
                down.discard(who)

    def _drop(self, run: int, row: int, down: set[tuple[int, str]]) -> None:
        columns = self.columns
        node = columns.text("peer", row)
        if columns["first"][row] < 1:
            return  # no message of ours
        is_down = (run, node) in down
        place = PublisherSubject(run, columns.text("instance", row), columns.text("key", row))
        insort(self.lost.setdefault((place, node), []), LostPacket(number_at(columns, row), row, is_down))
        if not is_down:
            self.last_lost.setdefault((run, node), []).append(row)

    def between(self, place: PublisherSubject, node: str, after: int, before: int) -> list[LostPacket]:
        """What was lost on the way to a node, with numbers greater than the one and lower than the other."""
        found: list[LostPacket] = []
        for to in (node, ""):
            some = self.lost.get((place, to), [])
            found += some[bisect_right(some, (after, LATE)) : bisect_right(some, (before, -1))]
        return found

    def loses_since(self, run: int, node: str, row: int, until: int) -> bool:
        """Whether anything was lost on the way to a node between two rows."""
        for to in (node, ""):
            rows = self.last_lost.get((run, to), [])
            place = bisect_right(rows, row)
            if place < len(rows) and rows[place] < until:
                return True
        return False


KNOWN = ("next", "skip", "skip unknown", "cycle")
"""Verdicts on messages of a stream that is known, and delivered."""
CROWDED_OUT = "first unknown"
"""The verdict on a message of a publisher that may have been forgotten for others."""
FIRSTS = ("first", CROWDED_OUT)
CLOCKS = ("skew", "drift", "jump", "far_jump", "set_wall", "wrong_wall")
"""Faults after which a clock may say anything."""


WINDOW_NS = 10_000_000_000
"""No window turns sooner; to be forgotten a subject must be left alone for so long at least."""


class ReceiverLine:
    """`seen`: up to which number something is known of what was lost, `delivered`: the highest that was (-1: none);
    `at_ns`: when something last came; `left`: its subject was unsubscribed since; `turn`: that of its subject when
    something last came; `gaps`: from the last number below each to the first one above it."""

    __slots__ = ("at_ns", "delivered", "gaps", "left", "seen", "turn")

    def __init__(self) -> None:
        self.seen = -1
        self.delivered = -1
        self.at_ns = -1
        self.left = False
        self.turn = 0
        self.gaps: dict[int, int] = {}

    def deliver(self, number: int, *, anew: bool) -> bool:
        """The number is delivered, `anew`: of a line that nothing is known of; whether it may be: it is above all that
        was, or in a gap (SW-81)."""
        if anew or self.delivered < 0:
            self.delivered, self.gaps = number, {}
            return True
        if number > self.delivered:
            if number > self.delivered + 1:
                self.gaps[number] = self.delivered
            self.delivered = number
            return True
        jumped = min((one for one, below in self.gaps.items() if below < number < one), default=-1)
        if jumped >= 0:
            self.gaps[number], self.gaps[jumped] = self.gaps[jumped], number
        return jumped >= 0


class ReceiverSubject:
    """Of a receiver: `at_ns`: when something of it last came; `anew_ns`: when it last did after it had been left alone
    for so long that a window may have forgotten it (-1: never); `turn`: how often another publisher spoke than before;
    `speaker`: who spoke last."""

    __slots__ = ("anew_ns", "at_ns", "speaker", "turn")

    def __init__(self) -> None:
        self.at_ns = -1
        self.anew_ns = -1
        self.speaker = ""
        self.turn = 0

    def come(self, t_ns: int, publisher: str) -> None:
        """Something of it comes."""
        self.turn += publisher != self.speaker
        self.speaker = publisher
        if self.at_ns >= 0 and t_ns - self.at_ns >= WINDOW_NS:
            self.anew_ns = t_ns
        self.at_ns = t_ns


class JudgedMessage(NamedTuple):
    """A message that came, and what was said of it.  `lost` before it by the network, since the last that was said
    anything of; `told`: how many are missing, as the receiver has it; `heard`: something of the line had been
    delivered; `last`: the highest number that was; `fits`: it may be delivered behind that; `forgettable`: the subject
    was left alone for as long as a window takes to forget it since something of the line came, or it was unsubscribed;
    `others`: other publishers of the subject spoke since then."""

    row: int
    place: PublisherSubject
    life: str
    node: str
    number: int
    verdict: str
    told: int
    lost: tuple[LostPacket, ...]
    heard: bool
    last: int
    forgettable: bool
    others: bool = False
    fits: bool = True

    @property
    def exact(self) -> bool:
        """A known loss is how many the network lost."""
        return self.told == len(self.lost)


class ReceiverLog:
    """`said`: in the order of the rows; `silent`: losses after which nothing of their line came to a receiver that had
    heard it before."""

    def __init__(self, columns: Columns) -> None:
        self.columns = columns
        self.network = NetworkLosses(columns)
        self.said: list[JudgedMessage] = []
        self.silent: list[tuple[PublisherSubject, LostPacket]] = []
        self._lines: dict[tuple[int, str], dict[PublisherSubject, ReceiverLine]] = {}
        self._subjects: dict[tuple[int, str, str], ReceiverSubject] = {}
        self._read()

    def _read(self) -> None:
        columns = self.columns
        told = columns.rows_of("tell", event=("judged",))
        faults = columns.rows_of("fault")
        for row in np.sort(np.concatenate((told, faults))).tolist():
            run = int(columns["run"][row])
            if columns.text("kind", row) == "tell":
                self._hear(run, row)
            elif columns.text("event", row) == "unsubscribe":
                self._leave(run, columns.text("node", row), columns.text("peer", row))
        for (place, node), some in self.network.lost.items():
            self._end(place, node, some)

    def _hear(self, run: int, row: int) -> None:
        columns = self.columns
        publisher, node = columns.text("peer", row), columns.text("node", row)
        life, subject = parts_of(columns.text("instance", row), publisher)
        place = PublisherSubject(run, publisher, subject)
        line = self._lines.setdefault((run, life), {}).setdefault(place, ReceiverLine())
        number, verdict = number_at(columns, row), columns.text("key", row)
        lost = self.network.between(place, node, line.seen, number)
        # Who has heard an older message, which was on its way when the life before died, misses all behind it.
        mine = tuple(one for one in lost if line.seen >= 0 or self._misses(run, life, one))
        t_ns, told = int(columns["t_ns"][row]), max(0, int(columns["grant"][row]))
        came = self._subjects.setdefault((run, life, subject), ReceiverSubject())
        if verdict != "not_subscribed":
            came.come(t_ns, publisher)
        others = came.turn > line.turn + (line.turn == 0)
        forgettable = line.left or came.anew_ns > line.at_ns
        heard, last = line.delivered >= 0, line.delivered
        fits = True
        if verdict in KNOWN or verdict in FIRSTS:
            fits, line.left = line.deliver(number, anew=verdict in FIRSTS), False
        said = (row, place, life, node, number, verdict, told, mine, heard, last, forgettable, others, fits)
        self.said.append(JudgedMessage(*said))
        line.seen = max(line.seen, number)
        if verdict != "not_subscribed":
            line.at_ns, line.turn = t_ns, came.turn

    def _leave(self, run: int, node: str, subject: str) -> None:
        for (in_run, life), lines in self._lines.items():
            if in_run == run and life.startswith(f"{node}~"):
                for place, line in lines.items():
                    line.left = line.left or place.subject == subject

    def _end(self, place: PublisherSubject, node: str, some: list[LostPacket]) -> None:
        """What no line has come to.  A loss to everybody counts for each receiver."""
        for (run, life), lines in self._lines.items():
            if run != place.run or (node and not life.startswith(f"{node}~")):
                continue
            line = lines.get(place)
            for one in some:
                if line is not None and one.number > line.seen and self._misses(run, life, one):
                    self.silent.append((place, one))

    def _misses(self, run: int, life: str, one: LostPacket) -> bool:
        """Whether the life was there when it was lost."""
        return not one.down and self._lives(run, life, one.row)

    def _lives(self, run: int, life: str, row: int) -> bool:
        """Whether the life had begun, and had not ended, when the row was made."""
        node, _, number = life.partition("~")
        deaths = self.network.dead.get((run, node), [])
        at = int(number) - 1 if number.isdigit() else 0
        return (at >= len(deaths) or row < deaths[at]) and (not 0 < at <= len(deaths) or row > deaths[at - 1])


def parts_of(instance: str, publisher: str) -> tuple[str, str]:
    """(life, subject) of `receiver-1~1/subject/publisher-1~1`, or `subscriber-1~1:subject`."""
    at = min((place for place in (instance.find("/"), instance.find(":")) if place >= 0), default=len(instance))
    return instance[:at], instance[at + 1 :].removesuffix(f"/{publisher}")


def hearing_of(segment: Segment) -> ReceiverLog:
    """That of the segment."""
    return read_hearing(segment.columns)


def read_hearing(columns: Columns) -> ReceiverLog:
    """That of these columns, read once."""
    return columns.keep((ReceiverLog,), lambda: ReceiverLog(columns))


def odd_clocks(columns: Columns) -> set[tuple[int, str]]:
    """(run, node) of the clocks that were hit by a fault."""
    rows = columns.rows_of("fault", event=CLOCKS)
    return {(int(columns["run"][row]), columns.text("node", row)) for row in rows.tolist()}


def stamps_of(columns: Columns) -> Iterator[tuple[int, PublisherSubject, int]]:
    """(row, place, number) of every message that was numbered."""
    for row in columns.rows_of("tell", event=("stamped",)).tolist():
        life, subject = parts_of(columns.text("instance", row), "")
        yield row, PublisherSubject(int(columns["run"][row]), life, subject), number_at(columns, row)


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
    """ONCE: what is delivered as known is later than what was delivered before, or in a gap of what came, and a
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
    """CROWD: a publisher that must be known counts as forgotten only where others have spoken since it last did."""

    def wrong(said: JudgedMessage) -> bool:
        return said.heard and not (said.others or said.forgettable)

    return _judge(segment, lambda said: said.verdict == CROWDED_OUT, wrong, "no other has spoken since")


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
    verified = columns.rows_of("tell", event=("joining",), key=("verified",)).tolist()
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
