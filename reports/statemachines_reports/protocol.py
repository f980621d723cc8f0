"""Protocol: what reports know of one protocol: its checks, measures, tables and parts of the page.

A protocol that registers nothing here has a report all the same: every step against its tables, continuity, what the
monitors said, coverage, faults.  A check of one's own is a function of a `Segment`:

    def judge_fencing(segment):
        columns = segment.columns
        writes = columns.rows_of("tell", event=("written",))
        older = writes[1:][columns["term"][writes][1:] < columns["term"][writes][:-1]]
        return verdict(columns, len(writes), older, lambda row: f"token {columns['term'][row]} after a newer one")

    FENCING = Check("fencing", "the store takes no write with an older token", judge_fencing)
    REPORTS = ReportProtocol(checks=(FENCING,))

and `areas={"reports": "lock_service.reports:REPORTS"}` in its registration.  A segment is some whole runs, as columns
of a trace: numbers are -1 and texts "" where a row says nothing.  It may hold runs of other protocols, so a check looks
at rows of its own machines, or at events that nobody else has.

SealedNumbers: a set of whole numbers as ranges; numbers of messages that are done with are mostly consecutive.

TraceRoles: which rows of its traces are deliveries, acknowledgements and publications, as a protocol declares it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple, TypeVar

import msgspec
import numpy as np

from statemachines import registry
from statemachines.kernel import ConfigurationError, Protocol
from statemachines_reports.columns import Columns
from statemachines_reports.columns import Segment as Segment

Key = TypeVar("Key")
T = TypeVar("T")


class SealedNumbers:
    """`first` and `last` of each range, sorted; no two ranges touch."""

    def __init__(self, first: np.ndarray, last: np.ndarray) -> None:
        self.first = first
        self.last = last

    @classmethod
    def of(cls, numbers: np.ndarray) -> SealedNumbers:
        """Of these numbers."""
        found = np.unique(numbers)
        begins = np.append(True, np.diff(found) != 1)[: len(found)]
        ends = np.append(begins[1:], True)[: len(found)]
        return cls(found[begins], found[ends])

    def has(self, numbers: np.ndarray) -> np.ndarray:
        """Which of these are in the set."""
        if not len(self.first):
            return np.zeros(len(numbers), bool)
        place = np.searchsorted(self.first, numbers, "right") - 1
        return np.asarray((place >= 0) & (numbers <= self.last[np.maximum(place, 0)]))

    def has_common(self, other: SealedNumbers) -> bool:
        """Some number is in both sets."""
        before = np.searchsorted(other.first, self.last, "right") - 1
        if not len(other.first) or not len(self.first):
            return False
        return bool(((before >= 0) & (other.last[np.maximum(before, 0)] >= self.first)).any())

    def join(self, other: SealedNumbers) -> SealedNumbers:
        """Both sets, which have no number in common."""
        order = np.argsort(np.concatenate((self.first, other.first)), kind="stable")
        first = np.concatenate((self.first, other.first))[order]
        last = np.concatenate((self.last, other.last))[order]
        begins = np.append(True, first[1:] != last[:-1] + 1)[: len(first)]
        return SealedNumbers(first[begins], last[np.append(begins[1:], True)[: len(first)]])


Rows = tuple[tuple[str, str], ...]
"""(kind, event) of rows: (("tell", "deliver"),)."""


class Companion(msgspec.Struct, frozen=True):
    """A row `of` this (kind, event) comes behind one of those that it `needs`, at its node and time, equal in
    `columns`."""

    of: tuple[str, str]
    needs: Rows
    columns: tuple[str, ...]


class TraceRoles(msgspec.Struct, frozen=True):
    """What neutral code must know of a protocol's traces.

    An acknowledgement belongs to the deliveries of the same key, and of the same number or range.
    """

    deliveries: Rows = ()
    """What the application gets."""
    acknowledgements: Rows = ()
    """What says that the application has dealt with a delivery."""
    publications: Rows = ()
    """What is published, reserved or stamped."""
    number: tuple[str, ...] = ("first", "last")
    """The columns that number a delivery in its stream."""
    key: str = "key"
    """The column that names the stream."""
    stream_end: str = ""
    """What stands in the key behind the name of the stream ("": the key is the name)."""
    epoch: str = "term"
    """The column of its epochs ("": it has none)."""
    grant: str = "grant"
    """The column of its grants ("": it has none)."""
    repeats: tuple[str, ...] = ()
    """Events that a machine may take twice at one time, with nothing between."""
    partial_answers: tuple[str, ...] = ()
    """Answers of services that do not end their request."""
    serial: tuple[str, ...] = ()
    """Requests that an instance makes only when all that it asked before is answered."""
    forwarded: tuple[str, ...] = ()
    """Events that a machine gives to its children when it takes another one."""
    requests: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = ()
    """(requests, the answers to them): each request is answered once.  What is named nowhere belongs together."""
    answers: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = ()
    """(requests, answers that only these have), beside answers that several requests may have."""
    services: dict[str, tuple[str, ...]] = {}
    """Service -> the requests that go to it, and nowhere else."""
    companions: tuple[Companion, ...] = ()
    """Rows that come with others."""
    unsent: tuple[str, ...] = ()
    """Messages of machines that their host may deal with itself, without a row that says that they were sent."""
    unstepped: tuple[str, ...] = ()
    """Messages and tells of an instance that come of no step of its machine."""
    envelopes: tuple[str, ...] = ()
    """Messages in which nodes send what their machines, or others, have to say."""
    lies: tuple[str, ...] = ()
    """Faults that have a node say what is not so."""
    planned_faults: tuple[str, ...] = ()
    """Faults that are counted, and come to nothing where their process dies of something else before."""
    silent_losses: bool = False
    """Connections break, and no row says what was on its way."""
    left_out: dict[str, str] = {}
    """Kinds of damage that make no trace of this protocol wrong, each with the reason."""


NO_ROLES: Final = TraceRoles()


Parameters = Mapping[str, Any]
"""The parameters of a run, as its line of the table of runs has them."""


def find_setting(parameters: Parameters, *names: str) -> Any:
    """What stands under these names, one within the other, in the parameters of a run; None: nothing does."""
    found: Any = parameters
    for name in names:
        found = found.get(name) if isinstance(found, Mapping) else None
    return found


Records = list[dict[str, Any]]
Tables = dict[str, Records]


class CheckVerdict(msgspec.Struct, frozen=True):
    """What a check found in a segment: how much it looked at, and where it does not hold: (run, seq) each, seq -1 for a
    whole run.  `describe(n)` says what is wrong at the nth place."""

    checked: int
    run: np.ndarray
    seq: np.ndarray
    describe: Callable[[int], str]


def verdict(columns: Columns, checked: int, rows: np.ndarray, describe: Callable[[int], str]) -> CheckVerdict:
    """A verdict on rows of the segment: `rows` are wrong, `describe(row)` says how."""
    return CheckVerdict(checked, columns["run"][rows], columns["seq"][rows], lambda place: describe(int(rows[place])))


class MadeValues(dict[Key, T]):
    """What `make` gives for each key that is asked for, made once."""

    def __init__(self, make: Callable[[Key], T]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, key: Key) -> T:
        made = self[key] = self._make(key)
        return made


class Findings:
    """What several checks of a segment, which one reading of it judges together, have `looked` at and found `wrong`:
    check -> row -> what, in words."""

    def __init__(self) -> None:
        self.wrong: defaultdict[str, dict[int, str]] = defaultdict(dict)
        self.looked: Counter[str] = Counter()

    def look(self, check: str, holds: bool, row: int, detail: str, count: int = 1) -> None:
        """The check has looked at `count` things, of which this one must hold."""
        self.looked[check] += count
        if not holds:
            self.wrong[check][row] = detail

    def judge(self, columns: Columns, check: str) -> CheckVerdict:
        """The verdict of one of the checks."""
        wrong = self.wrong[check]
        return verdict(columns, self.looked[check], np.array(sorted(wrong), np.int64), wrong.__getitem__)


def always(parameters: Parameters) -> bool:
    """Every run promises it."""
    return True


class KeptRows(NamedTuple):
    """What a part of a run leaves for what comes before and after it: `open` rows are judged once more is known of what
    is before them; `context` are rows that later ones are judged against."""

    open: np.ndarray
    context: np.ndarray


def keep_nothing(segment: Segment) -> KeptRows:
    """Each row is judged by itself."""
    none = np.zeros(0, np.int64)
    return KeptRows(none, none)


def seal_nothing(segment: Segment) -> np.ndarray:
    """No number is done with."""
    return np.zeros(0, np.int64)


def can_forget(segment: Segment, sealed: SealedNumbers) -> bool:
    """Whatever is sealed stays so."""
    return True


class Joint(NamedTuple):
    """How (a part of) a check judges a run that is cut.

    `judge` looks back only: a row that `keep` does not leave open is judged in the first part that has it, and an open
    one among the kept rows of the parts, as soon as these do not leave it open any more.

    `seal`: numbers, such as of messages, whose rows are forgotten since no other should follow.  `is_sealed(segment,
    numbers)`: kept rows do not say that they must be known again.  If they do, the check is judged by the whole run.
    """

    judge: Callable[[Segment], CheckVerdict]
    keep: Callable[[Segment], KeptRows] = keep_nothing
    seal: Callable[[Segment], np.ndarray] = seal_nothing
    is_sealed: Callable[[Segment, SealedNumbers], bool] = can_forget


def all_rows(segment: Segment) -> np.ndarray:
    """Every row is looked at."""
    return np.arange(segment.columns.rows)


class Check(msgspec.Struct, frozen=True):
    """One check: its `claim` in words, how a segment is judged, and whether a run with such parameters promises it:
    where it does not, what is found is a counterexample and no violation.  `whole`: it holds against each other what
    several processes wrote, so a run of which a log is missing is not judged by it.

    `joints`: how a run is judged that is cut; their verdicts together are that of `judge`, and the first one counts
    what is checked.  Without joints the check is judged when the whole run is known, from `rows` that every part of it
    keeps (for a check of a protocol: those that `ReportProtocol.rows` keeps).
    """

    name: str
    claim: str
    judge: Callable[[Segment], CheckVerdict]
    level: str = "properties"
    promised: Callable[[Parameters], bool] = always
    whole: bool = False
    joints: tuple[Joint, ...] = ()
    stepped: bool = False
    """A run without any step says nothing of it: its joints do not ask, so whoever joins them does."""
    rows: Callable[[Segment], np.ndarray] = all_rows


class Latency(msgspec.Struct, frozen=True):
    """One measurement in nanoseconds; `measure` is the name of a `Measure`, `cause` what began it, if that is told."""

    measure: str
    run: int
    value_ns: int
    cause: str = ""


class Tally(msgspec.Struct, frozen=True):
    """So much of something in a run; `name` is that of an `Amount`, and several tallies add up."""

    run: int
    name: str
    value: int


class Measure(msgspec.Struct, frozen=True):
    """What a `Latency` measures: as the page calls it, and from when until when."""

    name: str
    title: str
    about: str


class Amount(msgspec.Struct, frozen=True):
    """What a `Tally` counts.  It is summed over the runs of a scenario (`scenarios`), and shown where it has words:
    among the totals (`card`), for runs with a kind of fault (`faults`), in a comparison (`compared`)."""

    name: str
    scenarios: bool = True
    card: str = ""
    faults: str = ""
    compared: str = ""


class AmountRatio(msgspec.Struct, frozen=True):
    """A column of `scenarios`: the sum of some amounts to another."""

    name: str
    above: tuple[str, ...]
    below: str


class Section(msgspec.Struct, frozen=True):
    """A table on the page; columns of numbers stand on the right."""

    title: str
    heads: tuple[str, ...]
    lines: list[tuple[str, ...]]
    caption: str = ""


class PageDrawing(msgspec.Struct, frozen=True):
    """A picture on the page, as SVG that is safe to put there, with what it shows in words."""

    title: str
    caption: str
    svg: Any


class FaultColumns(msgspec.Struct, frozen=True):
    """More columns for the table of faults: kind of fault -> cells."""

    heads: tuple[str, ...]
    cells: dict[str, tuple[str, ...]]
    caption: str = ""


class Chart(msgspec.Struct, frozen=True):
    """A bar for each side of a comparison: `key` of its line, and how a value is written."""

    title: str
    key: str
    shown_as: Callable[[float], str]


class Story(msgspec.Struct, frozen=True):
    """What the sequence diagram of a run tells: messages that would fill it (`quiet`), the machines whose changes are
    noted (None: all but child machines), where it begins if nobody died ((words, machine, state), ...), faults of the
    protocol's own that are deaths, what the application is `told` (event -> words), and the title of a finding."""

    quiet: tuple[str, ...] = ()
    machines: tuple[str, ...] | None = None
    begins: tuple[tuple[str, str, str], ...] = ()
    deaths: tuple[str, ...] = ()
    told: dict[str, str] = {}
    title: str = "A finding about {key}"


def find_nothing(*of: Any) -> tuple[()]:
    """Nothing is measured, no log is missing, and the page has nothing of its own."""
    return ()


def know_nothing(*of: Any) -> None:
    """No unit is known, and no column of faults."""


class ReportProtocol(msgspec.Struct, frozen=True):
    """All that reports know of one protocol; everything has a default.

    `find(segment)` gives what is measured: `Latency`, `Tally`, and values of own types (`results`), whose fields are
    int, str, bool, or one of these or None.  Each type is a view, by its name in small letters, for the own `tables`:
    name -> SQL that Spark and DuckDB both understand, with the views `setting` (run, scenario, held, unit_ns),
    `latency`, `count` and `finding` beside them.  `unit_ns(parameters)`: the time in which latencies are told too,
    `unit` its words.  `absent(segment)`: (run, whose log it is) of logs that are missing, beyond those of nodes that
    somebody heard from; `unlogged`: messages of those who keep no log, and to them: nobody is missed for these.
    `roles`: what neutral code must know of its rows.  `rows(segment)`: those that its checks, `find` and `absent` look
    at, of a run that is cut; a part of the run keeps them, in order, and all else is forgotten.
    """

    checks: tuple[Check, ...] = ()
    measures: tuple[Measure, ...] = ()
    amounts: tuple[Amount, ...] = ()
    ratios: tuple[AmountRatio, ...] = ()
    find: Callable[[Segment], Iterable[msgspec.Struct]] = find_nothing
    results: tuple[type[msgspec.Struct], ...] = ()
    absent: Callable[[Segment], Iterable[tuple[int, str]]] = find_nothing
    unlogged: tuple[str, ...] = ()
    tables: dict[str, str] = {}
    short: tuple[str, ...] = ()
    """The own tables that are in `summary.json` too."""
    unit_ns: Callable[[Parameters], int | None] = know_nothing
    unit: str = ""
    sections: Callable[[Tables], Iterable[Section]] = find_nothing
    fault_columns: Callable[[Tables], FaultColumns | None] = know_nothing
    pictures: Callable[[Columns, Parameters, int | None], Iterable[PageDrawing]] = find_nothing
    """Drawings of the run that the page tells of: its columns and parameters, and the row it is about (None: none)."""
    charts: tuple[Chart, ...] = ()
    story: Story = Story()
    roles: TraceRoles = NO_ROLES
    rows: Callable[[Segment], np.ndarray] = all_rows


NONE: Final = ReportProtocol()


def reports_of(protocol: Protocol) -> ReportProtocol:
    """What the protocol has for reports; raises `ConfigurationError` where that is no `ReportProtocol`."""
    if "reports" not in protocol.areas:
        return NONE
    found = registry.load_area(protocol.name, "reports")
    if not isinstance(found, ReportProtocol):
        rule = f"is no ReportProtocol, but a {type(found).__name__}"
        raise ConfigurationError(f"{protocol.name}, reports", protocol.areas["reports"], rule)
    return found


class Finding(msgspec.Struct, frozen=True):
    """Something that is not as it must be.  Not `promised`: the configuration of the run does not promise otherwise, so
    it is a counterexample and no violation."""

    check: str
    run: int
    seq: int
    detail: str
    promised: bool = True
