"""Receiver log: what receivers said of the messages that came, beside what the network had lost before each of them.

A receiver is one life; of each publisher and subject it hears a line.  No record of a machine is asked: what was
delivered last, when something of a subject last came, and who unsubscribed follow from the rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from statemachines_reports.columns import Columns
from statemachines_reports.protocol import Segment
from statemachines_reports.sequence_windows.network import (
    BASE_BITS,
    LostPacket,
    NetworkLosses,
    PublisherSubject,
    number_at,
)

CAP = 32_767
"""More than so many missing messages are told as so many."""
KNOWN = ("next", "skip", "skip unknown", "cycle")
"""Verdicts on messages of a stream that is known, and delivered."""
CROWDED_OUT = "first unknown"
"""The verdict on a message of a publisher that may have been forgotten for others."""
FIRSTS = ("first", CROWDED_OUT)
CLOCKS = ("skew", "drift", "jump", "far_jump", "set_wall", "wrong_wall")
"""Faults after which a clock may say anything."""


JUMP = 64
"""A number that is further ahead than so many is a jump, and so is one of another frame."""
WINDOW_NS = 10_000_000_000
"""No window turns sooner; to be forgotten a subject must be left alone for so long at least."""


class ReceiverLine:
    """`seen`: up to which number something is known of what was lost, `delivered`: the highest that was (-1: none);
    `at_ns`: when something last came; `left`: its subject was unsubscribed since; `turn`: that of its subject when
    something last came; `gaps`: what jumps have passed over, from below the first number to the one that jumped."""

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
        was, or a jump has passed over it (SW-81)."""
        if anew or self.delivered < 0:
            self.delivered, self.gaps = number, {}
            return True
        if number > self.delivered:
            if number - self.delivered > JUMP or number >> BASE_BITS != self.delivered >> BASE_BITS:
                self.gaps[number] = self.delivered
            self.delivered = number
            return True
        jumped = min((one for one, below in self.gaps.items() if below < number < one), default=-1)
        if jumped >= 0:
            self.gaps[jumped] = number
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
        return self.told == min(len(self.lost), CAP)


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


_KNOWN: WeakKeyDictionary[Columns, ReceiverLog] = WeakKeyDictionary()


def hearing_of(segment: Segment) -> ReceiverLog:
    """That of the segment."""
    return read_hearing(segment.columns)


def read_hearing(columns: Columns) -> ReceiverLog:
    """That of these columns, read once."""
    found = _KNOWN.get(columns)
    if found is None:
        found = _KNOWN[columns] = ReceiverLog(columns)
    return found


def odd_clocks(columns: Columns) -> set[tuple[int, str]]:
    """(run, node) of the clocks that were hit by a fault."""
    rows = columns.rows_of("fault", event=CLOCKS)
    return {(int(columns["run"][row]), columns.text("node", row)) for row in rows.tolist()}


def stamps_of(columns: Columns) -> Iterator[tuple[int, PublisherSubject, int]]:
    """(row, place, number) of every message that was numbered."""
    for row in columns.rows_of("tell", event=("stamped",)).tolist():
        life, subject = parts_of(columns.text("instance", row), "")
        yield row, PublisherSubject(int(columns["run"][row]), life, subject), number_at(columns, row)
