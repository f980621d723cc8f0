"""Ring: what the data area of a queue held at one row of its trace, and who had which cursor."""

from __future__ import annotations

import msgspec
import numpy as np

from statemachines_reports.columns import Columns
from statemachines_reports.cursor_recovery.deaths import DEATHS
from statemachines_reports.cursor_recovery.operations import FREE, tells_of
from statemachines_reports.draw_histogram import format_ns
from statemachines_reports.protocol import Parameters

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
    settings = parameters.get("settings", parameters)
    if isinstance(settings, dict) and isinstance(settings.get("capacity"), int):
        return int(settings["capacity"])
    attached = columns.rows_of("tell", event=("attached",))
    return int(columns["first"][attached[0]]) if len(attached) else 0


def _cursors(columns: Columns, row: int) -> tuple[tuple[str, str], ...]:
    """Who swapped each cursor's word last, if not to free it: as far as is known, since the answer may be later."""
    asks = columns.rows_of("ask", event=("compare_and_swap",))
    asks = asks[asks <= row]
    found: dict[str, str] = {}
    done = _done(columns, asks)
    for at in asks[done].tolist():
        key = columns.text("key", at)
        if key.endswith("/state"):
            found[key] = "" if columns["last"][at] == FREE else columns.text("instance", at)
    return tuple(sorted((key.removesuffix("/state"), who) for key, who in found.items() if who))


def _done(columns: Columns, asks: np.ndarray) -> np.ndarray:
    """Whether the next step of the operation learnt that the swap was done."""
    steps = columns.rows_of("step", event=("swapped",))
    lift = columns.rows + 1
    order = np.lexsort((steps, columns["instance"][steps]))
    keys = columns["instance"][steps][order].astype(np.int64) * lift + steps[order]
    wanted = columns["instance"][asks].astype(np.int64) * lift + asks
    place = np.searchsorted(keys, wanted)
    at = np.minimum(place, max(len(keys) - 1, 0))
    if not len(keys):
        return np.zeros(len(asks), bool)
    same = (place < len(keys)) & (columns["instance"][steps[order][at]] == columns["instance"][asks])
    return np.asarray(same & (columns["first"][steps[order][at]] == 1))


def _when(columns: Columns, row: int) -> str:
    if columns.text("kind", row) == "fault":
        return f"when {columns.text('node', row)} died"
    return f"at row {columns['seq'][row]}"


def _where(columns: Columns, row: int) -> str:
    since = int(columns["t_ns"][row] - columns["t_ns"][0])
    return f"run {columns['run'][row]}, seq {columns['seq'][row]}, {format_ns(max(since, 0))} after its beginning"
