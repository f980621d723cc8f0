"""Report: everything that sequence windows have for reports, as one value.

Advisories: two of a client are a second apart, and they say what was lost (THROTTLE).

Drawing of losses: a line for each publisher and subject, a cell for each second, as SVG.

Page: what the page shows of sequence windows besides what it shows of any protocol.

Outcomes: what became of every message that was lost, and what every message that came said: the confusion table.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec
import numpy as np
from markupsafe import Markup, escape

from statemachines_reports.columns import Columns
from statemachines_reports.protocol import (
    Amount,
    Check,
    CheckVerdict,
    Companion,
    PageDrawing,
    Parameters,
    Records,
    ReportProtocol,
    Section,
    Segment,
    Story,
    Tables,
    Tally,
    TraceRoles,
    find_setting,
    verdict,
)
from statemachines_reports.sequence_windows.receiver_log import (
    JudgedMessage,
    LostPacket,
    PublisherSubject,
    hearing_of,
    judge_alarms,
    judge_crowds,
    judge_detected,
    judge_exact,
    judge_joins,
    judge_limits,
    judge_numbers,
    judge_once,
    odd_clocks,
    read_hearing,
)

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


def losses_of(columns: Columns) -> Iterator[Loss]:
    """What became of all that was lost; seconds count from the first row of the run."""
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


SECOND_NS = 1_000_000_000


def judge_advisories(segment: Segment) -> CheckVerdict:
    """THROTTLE: each advisory is at least a second after the one before it, by a clock that nothing is wrong with, and
    is the sum of what was lost since; or of all but the loss of that very instant: a client whose second is over hears
    of it afterwards."""
    columns = segment.columns
    odd = odd_clocks(columns)
    advised = columns.rows_of("tell", event=("advisory",))
    lives = {
        said.row: (said.place.run, said.life, 0 if said.verdict.endswith("unknown") else said.told)
        for said in hearing_of(segment).said
        if said.told
    }
    losses = np.array(sorted(lives), np.int64)
    owed: dict[tuple[int, str], int] = {}
    newest: dict[tuple[int, str], tuple[int, int]] = {}
    last: dict[tuple[int, str], int] = {}
    wrong: dict[int, str] = {}
    for row in np.sort(np.concatenate((losses, advised))).tolist():
        if row in lives:
            run, life, told = lives[row]
            owed[run, life] = owed.get((run, life), 0) + told
            newest[run, life] = (int(columns["t_ns"][row]), told)
            continue
        who = (int(columns["run"][row]), columns.text("instance", row).partition("/")[0])
        t_ns, lost = int(columns["t_ns"][row]), int(columns["grant"][row])
        at_ns, last_loss = newest.pop(who, (-1, 0))
        left = last_loss if at_ns == t_ns and lost == owed.get(who, 0) - last_loss else 0
        if lost != owed.get(who, 0) - left:
            wrong[row] = f"is advised of {lost}, and lost {owed.get(who, 0)}"
        elif t_ns - last.get(who, -SECOND_NS) < SECOND_NS and (who[0], columns.text("node", row)) not in odd:
            wrong[row] = f"is advised again after {t_ns - last[who]} ns"
        owed[who], last[who] = left, t_ns
    found = np.array(sorted(wrong), np.int64)
    return verdict(columns, len(advised), found, lambda row: f"{columns.text('instance', row)} {wrong[row]}")


LABEL, LINE, TOP, WIDTH = 190, 15, 8, 560
LINES = 30
"""So many lines are drawn: those that lost most."""
KINDS = (
    ("told exactly", "var(--blue)", (TOLD,)),
    ("told as unknown", "var(--green)", (UNKNOWN,)),
    ("hidden by a limit, or nobody listened yet", "var(--grey)", (FORGOTTEN, LAST, CYCLED, BEFORE_FIRST, UNWANTED)),
    ("missed, or a wrong number", "var(--red)", (WRONG, MISSED)),
)
_KIND = {outcome: number for number, (_, _, outcomes) in enumerate(KINDS) for outcome in outcomes}


def draw_losses(losses: list[Loss], seconds: int) -> Markup:
    """The worst kind of a cell gives its colour, how many were lost its strength."""
    cells: dict[tuple[str, str], dict[int, dict[int, int]]] = defaultdict(lambda: defaultdict(lambda: defaultdict(int)))
    for one in losses:
        cells[one.publisher, one.subject][one.second][_KIND[one.outcome]] += one.count
    totals = {place: sum(sum(kinds.values()) for kinds in line.values()) for place, line in cells.items()}
    shown = sorted(sorted(cells, key=lambda place: (-totals[place], place))[:LINES])
    most = max((sum(kinds.values()) for line in cells.values() for kinds in line.values()), default=1)
    wide = (WIDTH - LABEL) / max(seconds, 1)
    height = TOP + LINE * (len(shown) + len(KINDS) + 2)
    parts = [
        f'<svg class="losses" viewBox="0 0 {WIDTH} {height}" style="max-width:{WIDTH}px" role="img">'
        "<title>Losses over time</title>"
    ]
    for number, (publisher, subject) in enumerate(shown):
        y = TOP + LINE * number
        name = escape(f"{publisher} {subject}"[-30:])
        parts.append(f'<text x="{LABEL - 6}" y="{y + 11}" style="text-anchor:end;font-size:10px">{name}</text>')
        for second, kinds in sorted(cells[publisher, subject].items()):
            count = sum(kinds.values())
            parts.append(
                f'<rect x="{LABEL + second * wide:.1f}" y="{y + 1}" width="{max(wide - 0.5, 1):.1f}" '
                f'height="{LINE - 2}" style="fill:{KINDS[max(kinds)][1]};opacity:{0.35 + 0.65 * count / most:.2f}">'
                f"<title>second {second}: {count}</title></rect>"
            )
    parts += _legend(TOP + LINE * (len(shown) + 1), seconds)
    return Markup("".join(parts) + "</svg>")


def _legend(top: int, seconds: int) -> list[str]:
    parts = [
        f'<text x="{LABEL}" y="{top}" style="text-anchor:start;font-size:10px">0 s</text>'
        f'<text x="{WIDTH}" y="{top}" style="text-anchor:end;font-size:10px">{seconds} s</text>'
    ]
    for number, (words, colour, _) in enumerate(KINDS):
        y = top + LINE * (number + 1) - 9
        parts.append(f'<rect x="{LABEL}" y="{y}" width="10" height="10" style="fill:{colour}"/>')
        parts.append(
            f'<text x="{LABEL + 16}" y="{y + 9}" style="text-anchor:start;font-size:10px">{escape(words)}</text>'
        )
    return parts


SAID = ("missing", "missing, unknown", "nothing missing", "no claim")
HEADS = (
    "scenario", "the network had lost", "messages that came", "“missing”, the right number", "“missing”, a wrong one",
    "“missing, unknown”", "“nothing missing”", "no claim (FIRST, CYCLE)", "of these wrong",
)  # fmt: skip
MOST = 12
"""So many lines of publishers and subjects are shown: those that lost most."""


def show_losses(tables: Tables) -> Iterator[Section]:
    """The confusion table of runs that keep order, that of those that do not, and what became of what was lost."""
    for ordered, title, caption in (
        (True, "Losses found against losses that happened", "On paths that keep order. Every message that came to an "
         "application, by whether the network had lost some on the way to it since the last one of its publisher and "
         "subject, and what the receiver said of that."),
        (False, "The same where messages overtake each other", "Nothing is delivered twice; EXACT, NOFALSE and DETECT "
         "are not promised: what comes late was taken for lost."),
    ):  # fmt: skip
        lines = [line for line in tables["confusion"] if line["ordered"] is ordered]
        if lines:
            yield Section(title, HEADS, list(list_confusion(lines)), caption)
    if tables["losses"]:
        yield Section(
            "What became of lost messages",
            ("scenario", *(name.replace("-", " ") for name in OUTCOMES)),
            list(_by_scenario(tables["losses"])),
            "Each message counts for each receiver that it did not reach. The three limits hide losses; what was lost "
            "before anything of its publisher and subject had been heard is a late join.",
        )
        yield Section(
            "Who lost most",
            ("publisher and subject", "lost", "told exactly", "unknown", "hidden"),
            list(_by_line(tables["losses"])),
        )


def list_confusion(lines: Records) -> Iterator[tuple[str, ...]]:
    """A line for what was lost, and one for what was not, of each scenario."""
    for scenario in sorted({line["scenario"] for line in lines}):
        for lost in (True, False):
            some = [line for line in lines if line["scenario"] == scenario and line["lost"] is lost]

            def count(said: str, right: bool | None = None, some: Records = some) -> int:
                found = [line for line in some if line["said"] == said and right in (None, line["right"])]
                return sum(line["messages"] for line in found)

            wrong = sum(line["messages"] for line in some if not line["right"])
            known = (count("missing", True), count("missing", False), *(count(said) for said in SAID[1:]))
            total = sum(line["messages"] for line in some)
            yield scenario, "some" if lost else "nothing", *(f"{one:,}" for one in (total, *known, wrong))


def _by_scenario(lines: Records) -> Iterator[tuple[str, ...]]:
    for scenario in sorted({line["scenario"] for line in lines}):
        sums = [_sum(lines, scenario=scenario, outcome=outcome) for outcome in OUTCOMES]
        yield scenario, *(f"{one:,}" for one in sums)


def _by_line(lines: Records) -> Iterator[tuple[str, ...]]:
    places = {(line["publisher"], line["subject"]) for line in lines}
    totals = {place: _sum(lines, publisher=place[0], subject=place[1]) for place in places}
    for publisher, subject in sorted(places, key=lambda place: (-totals[place], place))[:MOST]:
        told = [_sum(lines, publisher=publisher, subject=subject, outcome=outcome) for outcome in ("told", "unknown")]
        total = totals[publisher, subject]
        yield f"{publisher} {subject}", *(f"{one:,}" for one in (total, *told, total - sum(told)))


def _sum(lines: Iterable[dict[str, Any]], **wanted: str) -> int:
    return sum(line["messages"] for line in lines if all(line[key] == value for key, value in wanted.items()))


def draw_run(columns: Columns, parameters: Parameters, seq: int | None) -> Iterator[PageDrawing]:
    """Loss over time, by publisher and subject, of the run that the page tells of."""
    losses = list(losses_of(columns))
    if losses:
        begin = int(columns["t_ns"].min()) // S
        seconds = int(columns["t_ns"].max()) // S + 1 - begin
        caption = "A cell is a second; the stronger its colour, the more was lost on the way to all receivers."
        yield PageDrawing("Losses over time, by publisher and subject", caption, draw_losses(losses, seconds))


class Order(msgspec.Struct, frozen=True):
    """Whether the paths of a run keep order."""

    run: int
    ordered: bool


def keeps_order(parameters: Parameters) -> bool:
    """What the scenario says; a real run over one interface does."""
    found = find_setting(parameters, "settings", "network", "fifo")
    return True if found is None else bool(found)


def find(segment: Segment) -> Iterator[msgspec.Struct]:
    """All that is measured."""
    for run, _ in segment.columns.runs():
        yield Order(run, keeps_order(segment.parameters(run)))
    sums: Counter[tuple[int, str]] = Counter()
    for loss in losses_of(segment.columns):
        sums[loss.run, "lost"] += loss.count
        sums[loss.run, "told" if loss.outcome in (TOLD, UNKNOWN) else "not_told"] += loss.count
        yield loss
    for case in find_cases(segment):
        sums[case.run, "came"] += case.count
        yield case
    for (run, name), count in sorted(sums.items()):
        yield Tally(run, name, count)


def find_absent(segment: Segment) -> Iterable[tuple[int, str]]:
    """Of a real run: nobody on the way says what the network loses."""
    columns = segment.columns
    logged = np.unique(columns["run"][columns.rows_of("tell", event=("forwarding",))]).tolist()
    real = [run for run, _ in columns.runs() if "nodes" in segment.parameters(run)]
    return [(run, "the network") for run in real if run not in logged]


REPORTS: Final = ReportProtocol(
    checks=(
        Check("numbers", "the numbers of a publisher and subject increase (MONO)", judge_numbers),
        Check("once", "nothing is delivered twice, or dropped that is new (ONCE)", judge_once),
        Check(
            "exact", "a known loss is how many the network lost (EXACT)", judge_exact, promised=keeps_order, whole=True
        ),
        Check(
            "alarms",
            "where a loss is told something was lost (NOFALSE)",
            judge_alarms,
            promised=keeps_order,
            whole=True,
        ),
        Check(
            "detected",
            "where nothing is told nothing was lost (DETECT)",
            judge_detected,
            promised=keeps_order,
            whole=True,
        ),
        Check("limits", "a loss is hidden only where somebody can have forgotten (DETECT)", judge_limits, whole=True),
        Check("crowds", "nobody is taken for forgotten for others without others (CROWD)", judge_crowds, whole=True),
        Check("joins", "nothing of a verified stream was lost (JOIN)", judge_joins, promised=keeps_order, whole=True),
        Check(
            "advisories", "advisories are a second apart, and their sum is what was told (THROTTLE)", judge_advisories
        ),
    ),
    amounts=(
        Amount("came", card="messages delivered", compared="messages delivered"),
        Amount("lost", card="losses, by receiver", faults="lost, a run", compared="losses, by receiver"),
        Amount("told", card="of them told", compared="losses told"),
        Amount("not_told", card="hidden, or not listened for", compared="losses not told"),
    ),
    find=find,
    results=(Loss, Case, Order),
    absent=find_absent,
    tables={
        "confusion": """
            SELECT setting.scenario, "order".ordered, "case".lost, "case".said, "case"."right",
                   sum("case".count) AS messages
            FROM "case" JOIN setting ON setting.run = "case".run JOIN "order" ON "order".run = "case".run
            GROUP BY setting.scenario, "order".ordered, "case".lost, "case".said, "case"."right"
            ORDER BY setting.scenario, "order".ordered, "case".lost, "case".said, "case"."right" """,
        "losses": """
            SELECT setting.scenario, publisher, subject, outcome, sum(count) AS messages
            FROM loss JOIN setting ON setting.run = loss.run
            GROUP BY setting.scenario, publisher, subject, outcome
            ORDER BY setting.scenario, publisher, subject, outcome""",
        "loss_over_time": """
            SELECT setting.scenario, second, publisher, subject, outcome, sum(count) AS messages
            FROM loss JOIN setting ON setting.run = loss.run
            GROUP BY setting.scenario, second, publisher, subject, outcome
            ORDER BY setting.scenario, second, publisher, subject, outcome""",
    },
    short=("confusion", "losses"),
    sections=show_losses,
    pictures=draw_run,
    story=Story(quiet=("carried",), told={"advisory": "is advised"}, title="What was lost of {key}"),
    roles=TraceRoles(
        deliveries=(("tell", "judged"),),
        publications=(("tell", "stamped"),),
        key="",
        grant="",
        repeats=("tick", "converged"),
        companions=(
            Companion(("tell", "judged"), (("deliver", "carried"),), ("peer", "term", "first", "last")),
            Companion(("send", "carried"), (("tell", "stamped"),), ("term", "first", "last")),
        ),
        left_out={
            "tell-never": "no application acknowledges a message",
            "ack-early": "no application acknowledges a message",
            "tell-key": "the key of what is told is its verdict; its stream is in the name of the instance",
        },
    ),
)
