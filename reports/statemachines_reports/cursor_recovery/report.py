"""Report: everything that cursor recovery has for reports, as one value.

Ring: what the data area of a queue held at one row of its trace, and who had which cursor.

Drawing of a ring: the data area as a circle, its blocks as arcs, the heads as hands, as SVG.

Page: what the page shows of cursor recovery besides what it shows of any protocol.

Deaths: in which state of which operation a process died, what became of its block, and when its cursor was free.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import cos, pi, sin
from typing import Final

import msgspec
import numpy as np
from markupsafe import Markup, escape

from statemachines_reports.columns import Columns
from statemachines_reports.cursor_recovery.operations import (
    DELIVERED,
    FREE,
    READER,
    WRITER,
    Holds,
    PositionRanges,
    find_absent,
    find_consumed_ranges,
    find_ended_rows,
    find_in_plan,
    find_reserved_ranges,
    judge_acknowledged,
    judge_contents,
    judge_deliveries,
    judge_distance,
    judge_exclusive,
    judge_passed,
    judge_reserved,
    operations_of,
    tells_of,
)
from statemachines_reports.cursor_recovery.words import find_unwritten, judge_requests, judge_words
from statemachines_reports.draw_histogram import format_ns
from statemachines_reports.protocol import (
    Amount,
    Check,
    Latency,
    Measure,
    PageDrawing,
    Parameters,
    ReportProtocol,
    Section,
    Segment,
    Story,
    Tables,
    Tally,
    TraceRoles,
)

DEATHS = ("crash", "cut", "kill", "lost_disk")


class Death(msgspec.Struct, frozen=True):
    """One process that died within an operation: the machine, the state (the access it was about to make), and what
    became of its block: `nothing` (none was reserved or taken), `delivered`, `skipped`, `lost`, or `unread` so far."""

    run: int
    machine: str
    state: str
    outcome: str


def find_deaths(segment: Segment) -> Iterator[msgspec.Struct]:
    """Every death, and how long the cursor of the dead stayed taken."""
    columns, operations = segment.columns, operations_of(segment.columns)
    if not len(operations.row):
        return
    faults, fates, holds = _faults(columns), Fates(segment), Holds(segment)
    held = {int(operations.group[at]): place for place, at in enumerate(holds.operation.tolist())}
    freed = _freed(segment)
    last = np.flatnonzero(operations.last)
    steps = np.where(operations.is_ask[last], last - 1, last)
    for place in np.flatnonzero(_is_open(segment, last)):
        row, group = int(operations.row[steps[place]]), int(operations.group[last[place]])
        run = int(columns["run"][row])
        fault = _first_after(faults.get((run, int(columns["node"][row]))), row)
        if fault is None:
            continue  # it was amid an operation when the run ended
        yield Death(run, columns.text("machine", row), columns.text("dest", row), fates.of(group))
        hold = held.get(group)
        if hold is None:
            continue
        free = _first_after(freed.get((run, int(holds.cursor[hold]))), fault)
        if free is not None:
            waited_ns = int(columns["t_ns"][free] - columns["t_ns"][fault])
            yield Latency("reclaim", run, max(waited_ns, 0), columns.text("event", fault))


def _is_open(segment: Segment, last: np.ndarray) -> np.ndarray:
    """Which operations had not ended when their last row was made."""
    columns, operations = segment.columns, operations_of(segment.columns)
    done = tells_of(columns, "write_done", "read_done")
    return ~np.isin(operations.group[last], columns.groups("instance", done))


def _faults(columns: Columns) -> dict[tuple[int, int], np.ndarray]:
    """(run, node) -> the rows in which it died."""
    rows = columns.rows_of("fault", event=DEATHS)
    return _grouped(columns["run"][rows], columns["node"][rows], rows)


def _freed(segment: Segment) -> dict[tuple[int, int], np.ndarray]:
    """(run, cursor) -> the rows that learn that it was freed."""
    columns, operations = segment.columns, operations_of(segment.columns)
    swaps = operations.swaps(*operations.cursors)
    swaps = swaps[(columns["last"][operations.row[swaps]] == FREE) & (operations.read_swap_answers(swaps) == 1)]
    asked = operations.row[swaps]
    return _grouped(columns["run"][asked], columns["key"][asked], operations.row[swaps + 1])


def _grouped(run: np.ndarray, code: np.ndarray, rows: np.ndarray) -> dict[tuple[int, int], np.ndarray]:
    found: dict[tuple[int, int], list[int]] = {}
    for key, row in zip(zip(run.tolist(), code.tolist(), strict=True), rows.tolist(), strict=True):
        found.setdefault(key, []).append(row)
    return {key: np.sort(np.array(some)) for key, some in found.items()}


def _first_after(rows: np.ndarray | None, row: int) -> int | None:
    if rows is None:
        return None
    place = int(np.searchsorted(rows, row, "right"))
    return int(rows[place]) if place < len(rows) else None


class Fates:
    """What became of the block of each operation, by its number among the operations."""

    def __init__(self, segment: Segment) -> None:
        columns = segment.columns
        came = find_ended_rows(columns, "read_done", DELIVERED)
        delivered = set(zip(columns["run"][came].tolist(), columns["first"][came].tolist(), strict=True))
        blocks, over = find_reserved_ranges(segment), find_consumed_ranges(segment)
        skips = columns.is_one_of("event", ("skipped",), over.row)
        self._of = dict.fromkeys(_groups(columns, blocks), "unread")
        self._blocks = {
            (run, first): group
            for group, run, first in zip(
                _groups(columns, blocks), blocks.run.tolist(), blocks.first.tolist(), strict=True
            )
        }
        for place, group in zip(self._blocks, self._blocks.values(), strict=True):
            if place in delivered:
                self._of[group] = "delivered"
        self._lose(columns, over.only(~skips), delivered)
        self._skip(blocks, over.only(skips))

    def of(self, group: int) -> str:
        """Of an operation that died."""
        return self._of.get(group, "nothing")

    def _lose(self, columns: Columns, taken: PositionRanges, delivered: set[tuple[int, int]]) -> None:
        """A block that was taken and never came: for who wrote it, and who took it."""
        for group, run, first in zip(_groups(columns, taken), taken.run.tolist(), taken.first.tolist(), strict=True):
            if (run, first) not in delivered:
                self._of[group] = "lost"
                if (run, first) in self._blocks:
                    self._of[self._blocks[run, first]] = "lost"

    def _skip(self, blocks: PositionRanges, skipped: PositionRanges) -> None:
        """A skipped range may hold several blocks."""
        lift = int(blocks.last.max(initial=0)) + 2
        places = blocks.run * lift + blocks.first
        for run, first, last in zip(skipped.run.tolist(), skipped.first.tolist(), skipped.last.tolist(), strict=True):
            begin, end = np.searchsorted(places, (run * lift + first, run * lift + last + 1))
            for place in range(int(begin), int(end)):
                self._of[self._blocks[run, int(blocks.first[place])]] = "skipped"


def _groups(columns: Columns, ranges: PositionRanges) -> list[int]:
    """The operation that each is of."""
    groups: list[int] = columns.groups("instance", ranges.row).tolist()
    return groups


BEING_WRITTEN, READABLE, BEING_READ, LEFT = "being written", "readable", "being read", "left by a dead writer"


class Arc(msgspec.Struct, frozen=True):
    """A block that is of use: bytes `first`..`last` by absolute position, its `state`, and whose it is."""

    first: int
    last: int
    state: str
    who: str


class Ring(msgspec.Struct, frozen=True):
    """`capacity` bytes; the heads; the blocks between them; `cursors`: (name, who has it), free ones left out."""

    capacity: int
    read_head: int
    write_head: int
    arcs: tuple[Arc, ...]
    cursors: tuple[tuple[str, str], ...]
    title: str
    caption: str


def ring_at(columns: Columns, parameters: Parameters, row: int) -> Ring | None:
    """As operations had told it until then, in the run of that row; None where nobody says how large the queue is."""
    capacity = _capacity(columns, parameters)
    if not capacity:
        return None
    blocks: dict[int, Arc] = {}
    taken: dict[str, Arc] = {}
    read_head = write_head = 0
    dead: set[str] = set()
    rows = np.concatenate((
        tells_of(columns, "reserved", "taken", "skipped", "write_done", "read_done"), columns.rows_of("fault")
    ))  # fmt: skip
    for at in np.sort(rows[rows <= row]).tolist():
        who, event = columns.text("instance", at), columns.text("event", at)
        first, last = int(columns["first"][at]), int(columns["last"][at])
        if columns.text("kind", at) == "fault":
            node = columns.text("node", at)
            if event in DEATHS:
                dead |= {arc.who for arc in (*blocks.values(), *taken.values()) if arc.who.startswith(f"{node}~")}
        elif event == "reserved":
            blocks[first] = Arc(first, last, BEING_WRITTEN, who)
            write_head = max(write_head, last + 1)
        elif event == "write_done" and first in blocks:
            blocks[first] = msgspec.structs.replace(blocks[first], state=READABLE)
        elif event in ("taken", "skipped"):
            read_head = max(read_head, last + 1)
            for start in [start for start in blocks if first <= start <= last]:
                del blocks[start]
            if event == "taken":
                taken[who] = Arc(first, last, BEING_READ, who)
        elif event == "read_done":
            taken.pop(who, None)
    arcs = [_leave(arc, dead) for arc in (*blocks.values(), *(one for one in taken.values() if one.who not in dead))]
    cursors = _cursors(columns, row)
    caption = (
        f"{_where(columns, row)}: {write_head - read_head} of {capacity} bytes between the heads, "
        f"read head {read_head}, write head {write_head}"
    )
    return Ring(capacity, read_head, write_head, tuple(arcs), cursors, f"The ring {_when(columns, row)}", caption)


def _leave(arc: Arc, dead: set[str]) -> Arc:
    if arc.who in dead and arc.state == BEING_WRITTEN:
        return msgspec.structs.replace(arc, state=LEFT)
    return arc


def _capacity(columns: Columns, parameters: Parameters) -> int:
    found = find_in_plan(parameters, "capacity")
    if isinstance(found, int):
        return found
    attached = columns.rows_of("tell", event=("attached",))
    return int(columns["first"][attached[0]]) if len(attached) else 0


def _cursors(columns: Columns, row: int) -> tuple[tuple[str, str], ...]:
    """Who swapped each cursor's word last, if not to free it: as far as is known, since the answer may be later."""
    operations = operations_of(columns)
    swaps = operations.swaps(*operations.cursors)
    done = np.sort(operations.row[swaps[operations.read_swap_answers(swaps) == 1]])
    found: dict[str, str] = {}
    for at in done[done <= row].tolist():
        found[columns.text("key", at)] = "" if columns["last"][at] == FREE else columns.text("instance", at)
    return tuple(sorted((key.removesuffix("/state"), who) for key, who in found.items() if who))


def _when(columns: Columns, row: int) -> str:
    if columns.text("kind", row) == "fault":
        return f"when {columns.text('node', row)} died"
    return f"at row {columns['seq'][row]}"


def _where(columns: Columns, row: int) -> str:
    since = int(columns["t_ns"][row] - columns["t_ns"][0])
    return f"run {columns['run'][row]}, seq {columns['seq'][row]}, {format_ns(max(since, 0))} after its beginning"


SIZE, OUTER, INNER = 420, 150, 108
CENTRE = SIZE / 2
BEYOND = 32
KINDS = {READABLE: "readable", BEING_WRITTEN: "writing", BEING_READ: "reading", LEFT: "left"}
LINE = 18


def draw_ring(ring: Ring) -> Markup:
    """Position 0 is at the top; positions go clockwise, lap after lap."""
    names = [f"{name}: {who}" for name, who in ring.cursors]
    height = SIZE + LINE * (1 + len(names))
    parts = [
        f'<svg class="ring" viewBox="0 0 {SIZE} {height}" style="max-width:{SIZE}px" role="img">'
        f"<title>{escape(ring.title)}</title>",
        f'<path class="area" d="{_annulus(0, ring.capacity, ring.capacity)}"/>',
        *(_arc(arc, ring.capacity) for arc in ring.arcs),
        _hand(ring.read_head, ring.capacity, "read head"),
        _hand(ring.write_head, ring.capacity, "write head"),
        f'<text x="{CENTRE}" y="{CENTRE - 4}">{ring.write_head - ring.read_head:,} of {ring.capacity:,}</text>',
        f'<text class="small" x="{CENTRE}" y="{CENTRE + 14}">bytes in use</text>',
        *_legend(),
    ]
    for number, name in enumerate(names):
        parts.append(f'<text class="who" x="16" y="{SIZE + LINE * (number + 1)}">{escape(name)}</text>')
    return Markup("".join(parts) + "</svg>")


def _point(position: float, capacity: int, radius: float) -> str:
    angle = 2 * pi * (position % capacity) / capacity
    return f"{CENTRE + radius * sin(angle):.2f},{CENTRE - radius * cos(angle):.2f}"


def _annulus(first: int, end: int, capacity: int) -> str:
    """The outline of the bytes `first`..`end`, `end` not included."""
    if end - first >= capacity:  # a whole turn has no two ends that an arc could join
        half = capacity / 2
        return f"{_annulus_of(first, first + half, capacity)} {_annulus_of(first + half, first + capacity, capacity)}"
    return _annulus_of(first, end, capacity)


def _annulus_of(first: float, end: float, capacity: int) -> str:
    large = int(end - first > capacity / 2)
    return (
        f"M{_point(first, capacity, OUTER)} A{OUTER},{OUTER} 0 {large} 1 {_point(end, capacity, OUTER)} "
        f"L{_point(end, capacity, INNER)} A{INNER},{INNER} 0 {large} 0 {_point(first, capacity, INNER)} Z"
    )


def _arc(arc: Arc, capacity: int) -> str:
    title = f"{arc.first}..{arc.last}, {arc.state}, {arc.who}"
    path = _annulus(arc.first, arc.last + 1, capacity)
    return f'<path class="{KINDS[arc.state]}" d="{path}"><title>{escape(title)}</title></path>'


def _hand(position: int, capacity: int, name: str) -> str:
    begin, end = _point(position, capacity, INNER - 8), _point(position, capacity, OUTER + 8)
    x, y = _point(position, capacity, OUTER + BEYOND).split(",")
    return (
        f'<path class="hand" d="M{begin} L{end}"/>'
        f'<text class="small" x="{x}" y="{float(y) + 4:.2f}">{escape(name)}</text>'
    )


def _legend() -> list[str]:
    parts = []
    for number, (state, kind) in enumerate(KINDS.items()):
        x, y = 8 + (number % 2) * 210, 8 + (number // 2) * (SIZE - 30)
        parts.append(f'<rect class="{kind}" x="{x}" y="{y}" width="12" height="12"/>')
        parts.append(f'<text class="who" x="{x + 18}" y="{y + 10}">{escape(state)}</text>')
    return parts


OUTCOMES = ("nothing", "delivered", "skipped", "lost", "unread")
MOMENTS = 2
"""So many deaths of a run are drawn, where no finding says which moment to look at."""


def show_deaths(tables: Tables) -> Iterator[Section]:
    """Crash point by outcome."""
    lines = tables["deaths"]
    points = sorted({(line["machine"], line["state"]) for line in lines})
    counts = {(line["machine"], line["state"], line["outcome"]): line["deaths"] for line in lines}
    rows = [
        (f"{machine.partition('/')[2]} {state}", *(f"{counts.get((machine, state, one), 0):,}" for one in OUTCOMES))
        for machine, state in points
    ]
    yield Section(
        "Where processes died, and what became of their blocks",
        ("amid", "no block yet", "delivered", "skipped", "lost with its reader", "unread"),
        rows,
        "The state is that of the access it was about to make. A writer's block is delivered if it was whole, and "
        "skipped if not; a reader's is lost once the read head is moved, at most one for each death.",
    )


def draw_moments(columns: Columns, parameters: Parameters, seq: int | None) -> Iterator[PageDrawing]:
    """The ring at the row `seq`, else when the first processes died, else in the end."""
    rows = [] if seq is None else [int(row) for row in (columns["seq"] == seq).nonzero()[0]]
    rows = rows or columns.rows_of("fault", event=DEATHS)[:MOMENTS].tolist() or [columns.rows - 1]
    for row in rows:
        ring = ring_at(columns, parameters, row)
        if ring is not None:
            yield PageDrawing(ring.title, ring.caption, draw_ring(ring))


MS: Final = 1_000_000
COUNTED: Final = {
    ("write_done", "written"): "written",
    ("write_done", "full"): "full",
    ("write_done", "no_cursor"): "no_cursor",
    ("read_done", "no_cursor"): "no_cursor",
    ("write_done", "fenced"): "fenced",
    ("read_done", "fenced"): "fenced",
    ("read_done", "delivered"): "delivered",
    ("read_done", "discarded"): "discarded",
}


def knows_the_dead(parameters: Parameters) -> bool:
    """By age alone a slow process is taken for dead, and may break what is promised otherwise (CR-D2)."""
    return not find_in_plan(parameters, "threshold_only")


def unit_ns(parameters: Parameters) -> int | None:
    """The threshold."""
    threshold_ms = find_in_plan(parameters, "threshold_ms")
    return int(threshold_ms * MS) if isinstance(threshold_ms, int | float) else None


def find(segment: Segment) -> Iterator[msgspec.Struct]:
    """All that is measured."""
    columns = segment.columns
    for (event, outcome), name in COUNTED.items():
        yield from _tallies(name, columns["run"][find_ended_rows(columns, event, (outcome,))])
    skipped = tells_of(columns, "skipped")
    for run in np.unique(columns["run"][skipped]).tolist():
        some = skipped[columns["run"][skipped] == run]
        yield Tally(run, "skipped_bytes", int((columns["last"][some] - columns["first"][some] + 1).sum()))
    for found in find_deaths(segment):
        if isinstance(found, Death) and found.machine == READER and found.outcome == "lost":
            yield Tally(found.run, "lost_blocks", 1)
        yield found


def _tallies(name: str, runs: np.ndarray) -> Iterator[Tally]:
    for run, count in zip(*np.unique(runs, return_counts=True), strict=True):
        yield Tally(int(run), name, int(count))


def find_missing(segment: Segment) -> Iterator[tuple[int, str]]:
    """Of merged logs, which may not be all: (run, who) of what no log accounts for."""
    yield from find_absent(segment)
    yield from find_unwritten(segment)


REPORTS: Final = ReportProtocol(
    checks=(
        Check("reserved", "each block begins where the one before it ends (conservation)", judge_reserved, whole=True),
        Check("passed", "every byte is taken once, or skipped once (ONCE)", judge_passed, whole=True),
        Check(
            "distance", "no block is more than the capacity beyond the read head (BOUND)", judge_distance, whole=True
        ),
        Check(
            "exclusive", "a cursor has one owner at a time (EXCL)", judge_exclusive,
            promised=knows_the_dead, whole=True,
        ),
        Check(
            "kept", "no reader moves over what was acknowledged without taking it (ACK)", judge_acknowledged,
            promised=knows_the_dead, whole=True,
        ),
        Check("order", "nothing comes twice, and to a reader in order (ONCE, ORDER)", judge_deliveries, whole=True),
        Check(
            "contents", "what comes is what was written there (INTEG, KEPT)", judge_contents,
            promised=knows_the_dead, whole=True,
        ),
        Check("requests", "an operation asks for what its state asks for, of its own cursor", judge_requests),
        Check("words", "what is read from the memory is what was written there last", judge_words, whole=True),
    ),
    measures=(
        Measure("reclaim", "Recovery", "from the death of a process with a cursor until somebody freed that cursor"),
    ),
    amounts=(
        Amount("written", card="blocks written", compared="blocks written"),
        Amount("delivered", card="blocks delivered", compared="blocks delivered"),
        Amount("lost_blocks", card="blocks lost with a reader", faults="blocks lost with a reader, a run"),
        Amount("skipped_bytes", card="bytes skipped", compared="bytes skipped"),
        Amount("full"),
        Amount("no_cursor"),
        Amount("fenced", compared="fenced"),
        Amount("discarded", compared="discarded"),
    ),
    find=find,
    results=(Death,),
    absent=find_missing,
    tables={
        "deaths": """
            SELECT machine, state, outcome, count(*) AS deaths FROM death
            GROUP BY machine, state, outcome ORDER BY machine, state, outcome"""
    },
    short=("deaths",),
    unit_ns=unit_ns,
    unit="the threshold, by the settings of each run",
    sections=show_deaths,
    pictures=draw_moments,
    story=Story(machines=(WRITER, READER), deaths=DEATHS, title="The operations around {key}"),
    roles=TraceRoles(
        deliveries=(("tell", "taken"),),
        publications=(("tell", "reserved"),),
        epoch="",
        grant="",
        planned_faults=("cut",),
        serial=("load", "store", "compare_and_swap", "copy_in", "copy_out"),
        services={"memory": ("load", "store", "compare_and_swap", "copy_in", "copy_out")},
        requests=(
            (("load",), ("loaded",)),
            (("store", "copy_in"), ("stored",)),
            (("compare_and_swap",), ("swapped",)),
            (("copy_out",), ("copied",)),
        ),
        left_out={
            "tell-never": "a reader that dies with a block loses it, and no row says that it acknowledges one",
            "ack-early": "no reader acknowledges a block",
        },
    ),
)  # fmt: skip
