"""Row damage: steps, messages, tells, cells and requests that are missing, repeated, moved or others.

Steps are changed, missing, repeated or swapped, and rows of nodes are missing.  Sends and deliveries are missing,
repeated, too early, or changed on their way.  The application gets something twice, never, changed, in another order,
or acknowledges it too early.  Clocks go wrong, numbers and words are others, and rows come from elsewhere.  Requests to
services, and answers to them, are missing, too early, or to another request.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, Final

import numpy as np

from statemachines import catalogue, registry
from statemachines.kernel import Answer, name_of
from statemachines_reports.columns import STEPS, stable_order
from statemachines_reports.damage.damage_kind import DamagedRun, DamageKind, Edit, list_rows_of_cell
from statemachines_reports.judge import NO_FAULTS
from statemachines_reports.neutral.run_checks import DEATHS


def rows_of(*kinds: str, event: tuple[str, ...] = ()) -> Callable[[DamagedRun], np.ndarray]:
    """The rows of these kinds (and events)."""
    return lambda run: run.columns.rows_of(*kinds, event=event)


def find_steps(run: DamagedRun) -> np.ndarray:
    """Every step."""
    return run.steps


def put_other(
    column: str, find: Callable[[DamagedRun], np.ndarray], alike: str = ""
) -> Callable[[DamagedRun, int, Random], Edit | None]:
    """The text of the column is that of another of the rows found; of those `alike`: which have the same text there."""

    def act(run: DamagedRun, row: int, chance: Random) -> Edit | None:
        rows = find(run)
        if alike:
            rows = rows[run.columns[alike][rows] == run.columns[alike][row]]
        return run.change_to_other(row, column, run.values(column, rows), chance) if run.cell(column, row) else None

    return act


# -- steps -----------------------------------------------------------------------------------------------------------


def find_known(run: DamagedRun) -> np.ndarray:
    """Steps of machines that are known here, and have more than one state."""
    known = tuple(name for name, fsm in run.machines.items() if len(fsm.states) > 1)
    return np.asarray(run.steps[run.columns.is_one_of("machine", known, run.steps)])


def find_moves(run: DamagedRun) -> np.ndarray:
    """Steps that change the state."""
    return np.asarray(run.steps[_is_move(run, run.steps)])


def find_stills(run: DamagedRun) -> np.ndarray:
    """Steps that change no state."""
    return np.asarray(run.steps[~_is_move(run, run.steps)])


def _is_move(run: DamagedRun, rows: np.ndarray) -> np.ndarray:
    texts = {text: code for code, text in enumerate(run.columns.texts["source"])}
    dest = np.array([texts.get(text, -1) for text in [*run.columns.texts["dest"], ""]])[run.columns["dest"][rows]]
    return np.asarray(run.columns["source"][rows] != dest)


def find_stills_with_traces(run: DamagedRun) -> np.ndarray:
    """Steps that change no state, and that a message brought, or behind which their instance does something."""
    rows = find_stills(run)
    return np.asarray(rows[_has_traces(run, rows)])


def find_idle_stills(run: DamagedRun) -> np.ndarray:
    """The others."""
    rows = find_stills(run)
    return np.asarray(rows[~_has_traces(run, rows)])


def _has_traces(run: DamagedRun, rows: np.ndarray) -> np.ndarray:
    """Whether a row is of a message, or the next row of its node is a step of a child, or what its instance does."""
    columns = run.columns
    order = np.argsort(columns["node"], kind="stable")
    following = np.full(run.rows, -1)
    following[order[:-1]] = np.where(np.diff(columns["node"][order]) == 0, order[1:], -1)
    after = following[rows]
    names = [*columns.texts["instance"], ""]
    root = {name: code for code, name in enumerate(dict.fromkeys(name.partition(":")[0] for name in names))}
    roots = np.array([root[name.partition(":")[0]] for name in names])
    is_child = np.array([":" in name for name in names])
    own = columns["instance"][after] == columns["instance"][rows]
    own &= ~columns.is_one_of("kind", STEPS, after)
    own |= (
        is_child[columns["instance"][after]]
        & ~is_child[columns["instance"][rows]]
        & (roots[columns["instance"][after]] == roots[columns["instance"][rows]])
    )
    own &= (after >= 0) & (columns["t_ns"][after] == columns["t_ns"][rows])
    return np.asarray(own)


def find_pairs(run: DamagedRun) -> np.ndarray:
    """Steps behind which the next of their instance is another."""
    order = run.steps[stable_order(run.columns["instance"][run.steps], len(run.columns.texts["instance"]) + 1)]
    same = run.columns["instance"][order][1:] == run.columns["instance"][order][:-1]
    other = np.zeros(len(same), bool)
    for column in ("event", "row", "source", "dest"):
        other |= run.columns[column][order][1:] != run.columns[column][order][:-1]
    return np.sort(order[:-1][same & other])


def change_states(*columns: str) -> Callable[[DamagedRun, int, Random], Edit | None]:
    """These columns name another state of the machine."""

    def act(run: DamagedRun, row: int, chance: Random) -> Edit | None:
        fsm = run.machines[run.cell("machine", row)]
        states = [str(one.value) for one in fsm.states]
        cells = {column: run.pick_other(states, run.cell(column, row), chance) for column in columns}
        return run.change(row, **cells)

    return act


def change_row(run: DamagedRun, row: int, chance: Random) -> Edit | None:
    """Another row of the machine's table."""
    fsm = run.machines[run.cell("machine", row)]
    cell = list_rows_of_cell(fsm, run.cell("event", row), run.cell("source", row))
    numbers = [line.number for line in fsm.lines if line.number not in cell]
    return run.change(row, row=chance.choice(numbers)) if numbers else None


def change_row_of_cell(*, moves: bool) -> Callable[[DamagedRun, int, Random], Edit | None]:
    """Another row of the cell, which leads elsewhere (`moves`) or not; the step ends where it ended."""

    def act(run: DamagedRun, row: int, chance: Random) -> Edit | None:
        taken, dest = run.cell("row", row), run.cell("dest", row)
        cell = list_rows_of_cell(
            run.machines[run.cell("machine", row)], run.cell("event", row), run.cell("source", row)
        )
        others = [number for number, leads in cell.items() if number != taken and (leads != dest) == moves]
        return run.change(row, row=chance.choice(others)) if others else None

    return act


def change_event(run: DamagedRun, row: int, chance: Random) -> Edit | None:
    """Another event of the machine."""
    events = [name_of(one) for one in run.machines[run.cell("machine", row)].alphabet]
    return run.change_to_other(row, "event", events, chance)


def swap_steps(run: DamagedRun, row: int, chance: Random) -> Edit | None:
    """It and the next of its instance."""
    instance = run.columns["instance"]
    later = run.steps[np.searchsorted(run.steps, row) + 1 :]
    return run.swap(row, int(later[np.argmax(instance[later] == instance[row])]))


def remove_part(begin: float, end: float) -> Callable[[DamagedRun, int, Random], Edit | None]:
    """This part of the rows of a node."""

    def act(run: DamagedRun, row: int, chance: Random) -> Edit | None:
        rows = run.rows_of_node(row)
        return run.remove(rows[int(len(rows) * begin) : int(len(rows) * end)])

    return act


# -- messages --------------------------------------------------------------------------------------------------------


def find_delivers(run: DamagedRun) -> np.ndarray:
    """Deliveries of numbered messages."""
    return run.with_number(run.columns.rows_of("deliver"), "msg")


def find_sends(run: DamagedRun) -> np.ndarray:
    """Sends of messages that arrive."""
    rows = run.columns.rows_of("send")
    return rows[np.isin(run.columns["msg"][rows], run.columns["msg"][find_delivers(run)])]


def find_ranged(run: DamagedRun) -> np.ndarray:
    """Deliveries that name a range."""
    return run.with_number(find_delivers(run), "first")


def deliver_early(run: DamagedRun, row: int, chance: Random) -> Edit | None:
    """It stands before its send."""
    sends = run.columns.rows_of("send")
    own = sends[run.columns["msg"][sends] == run.columns["msg"][row]]
    return run.move(row, int(own[0])) if len(own) and own[0] < row else None


def deliver_elsewhere(run: DamagedRun, row: int, chance: Random) -> Edit | None:
    """Another node gets it."""
    cells = run.move_to_other(row, find_delivers(run), chance)
    return None if cells is None or cells["node"] == run.cell("node", row) else run.change(row, **cells)


def change_range(run: DamagedRun, row: int, chance: Random) -> Edit | None:
    """Its range is another."""
    last, by = run.cell("last", row), chance.randint(1, 9)
    cells = {"first": run.cell("first", row) + by} | ({"last": last + by} if last >= 0 else {})
    return run.change(row, **cells)


# -- tells -----------------------------------------------------------------------------------------------------------


def find_deliveries(run: DamagedRun) -> np.ndarray:
    """What the application gets."""
    return run.find_rows("deliveries")


def find_acknowledged(run: DamagedRun) -> np.ndarray:
    """Deliveries that are acknowledged."""
    rows = find_deliveries(run)
    return np.array([row for row in rows.tolist() if find_acknowledgement(run, row) is not None], np.int64)


def find_keyed(run: DamagedRun) -> np.ndarray:
    """Deliveries that name a stream."""
    rows = find_deliveries(run)
    return np.asarray(rows[run.columns["key"][rows] < len(run.columns.texts["key"])])


def find_numbered(run: DamagedRun) -> np.ndarray:
    """Deliveries that have a number."""
    return run.with_number(find_deliveries(run), "first")


def find_in_streams(run: DamagedRun) -> np.ndarray:
    """Deliveries behind which another one of their stream follows at their instance."""
    rows = find_numbered(run)
    return np.array([row for row in rows.tolist() if find_next(run, row) is not None], np.int64)


def find_next(run: DamagedRun, row: int) -> int | None:
    """The next delivery of its stream at its instance, of another number; None: there is none."""
    rows, columns = find_numbered(run), run.columns
    rows = rows[rows > row]
    end = run.roles_of(row).stream_end
    streams = {code: text.rpartition(end)[0] if end else text for code, text in enumerate(columns.texts["key"])}
    stream = streams.get(int(columns["key"][row]))
    of_stream = [code for code, text in streams.items() if text == stream] or [len(streams)]
    same = (columns["instance"][rows] == columns["instance"][row]) & np.isin(columns["key"][rows], of_stream)
    found = rows[same & (columns["first"][rows] != columns["first"][row])]
    return int(found[0]) if len(found) else None


def find_acknowledgement(run: DamagedRun, row: int) -> int | None:
    """The row in which this delivery is acknowledged by its instance; None: it is not."""
    columns, roles = run.columns, run.roles_of(row)
    rows = run.find_rows("acknowledgements")
    rows = rows[(rows > row) & (columns["instance"][rows] == columns["instance"][row])]
    if not len(rows) or columns["first"][row] < 0:
        return None
    first = columns[roles.number[0]][row]
    rows = rows[(columns["first"][rows] <= first) & (np.maximum(columns["last"], columns["first"])[rows] >= first)]
    keyed = columns["key"][rows] < len(columns.texts["key"])
    rows = rows[~keyed | (columns["key"][rows] == columns["key"][row])]
    return int(rows[0]) if len(rows) else None


def repeat_later(run: DamagedRun, row: int, chance: Random) -> Edit | None:
    """It is told again behind a later row of its node."""
    rows = run.rows_of_node(row)
    rows = rows[rows > row]
    return run.repeat(row, int(rows[chance.randrange(len(rows))])) if len(rows) else None


def change_number(run: DamagedRun, row: int, chance: Random) -> Edit | None:
    """It has another number."""
    by = chance.randint(1, 9)
    columns = [column for column in run.roles_of(row).number if run.cell(column, row) >= 0]
    return run.change(row, **{column: run.cell(column, row) + by for column in columns})


def change_key(run: DamagedRun, row: int, chance: Random) -> Edit | None:
    """It is of another stream."""
    key = run.roles_of(row).key
    return run.change_to_other(row, key, run.values(key, find_deliveries(run)), chance)


def change_instance(run: DamagedRun, row: int, chance: Random) -> Edit | None:
    """Another instance tells it."""
    cells = run.move_to_other(row, find_deliveries(run), chance)
    return None if cells is None else run.change(row, **cells)


def swap_deliveries(run: DamagedRun, row: int, chance: Random) -> Edit | None:
    """It and the next of its stream."""
    other = find_next(run, row)
    return None if other is None else run.swap(row, other)


def acknowledge_early(run: DamagedRun, row: int, chance: Random) -> Edit | None:
    """Its acknowledgement stands before it."""
    found = find_acknowledgement(run, row)
    return None if found is None else run.move(found, row)


# -- cells -----------------------------------------------------------------------------------------------------------

S: Final = 1_000_000_000
"""Nanoseconds in a second."""

LAST: Final = 50
"""At most so many rows are the last ones of a run."""

LATE: Final = 3
"""A death comes behind so many steps of the next life."""

MIXED: Final = 20
"""So many rows of another run are mixed in."""


def find_later(run: DamagedRun) -> np.ndarray:
    """Rows before which their node has another."""
    order = np.argsort(run.columns["node"], kind="stable")
    node = run.columns["node"][order]
    later = np.flatnonzero(node[1:] == node[:-1]) + 1
    return np.sort(order[later])


def set_back(run: DamagedRun, row: int, chance: Random) -> Edit | None:
    """The time of this row is before that of the row before it of its node."""
    rows = run.rows_of_node(row)
    before = int(rows[np.searchsorted(rows, row) - 1])
    return run.change(row, t_ns=run.cell("t_ns", before) - chance.randint(1, S))


def shift_clock(by_ns: int) -> Callable[[DamagedRun, int, Random], Edit | None]:
    """From this row on the clock of its node differs by so much."""

    def act(run: DamagedRun, row: int, chance: Random) -> Edit | None:
        rows = run.rows_of_node(row)
        cells = tuple((one, "t_ns", run.cell("t_ns", one) + by_ns) for one in rows[rows >= row].tolist())
        return Edit(np.arange(run.rows), cells)

    return act


def end_late(run: DamagedRun, row: int, chance: Random) -> Edit | None:
    """All rows of the run from this one on are later by the same time."""
    by_ns = chance.randint(S, 3_600 * S)
    return Edit(
        np.arange(run.rows), tuple((one, "t_ns", run.cell("t_ns", one) + by_ns) for one in range(row, run.rows))
    )


def find_with(role: str) -> Callable[[DamagedRun], np.ndarray]:
    """Rows of sends, deliveries, tells and requests that have a number in the column which some protocol has as its
    epoch or grant."""

    def find(run: DamagedRun) -> np.ndarray:
        name = _column_of(run, role)
        return (
            run.with_number(run.columns.rows_of("send", "deliver", "tell", "ask"), name)
            if name
            else np.zeros(0, np.int64)
        )

    return find


def _column_of(run: DamagedRun, role: str) -> str:
    """The column that the first protocol has as this which has one; "": none has."""
    return next((getattr(roles, role) for roles in run.roles if getattr(roles, role)), "")


def change_number_in(role: str) -> Callable[[DamagedRun, int, Random], Edit | None]:
    """The epoch or grant is another."""

    def act(run: DamagedRun, row: int, chance: Random) -> Edit | None:
        name = _column_of(run, role)
        value = run.cell(name, row)
        return run.change(row, **{name: max(value + chance.choice((-1, 1, 2)), 0) if value else 1})

    return act


def find_faults(run: DamagedRun) -> np.ndarray:
    """Rows of faults, but not of what is none."""
    rows = run.columns.rows_of("fault")
    return np.asarray(rows[~run.columns.is_one_of("event", NO_FAULTS, rows)])


def find_hits(run: DamagedRun) -> np.ndarray:
    """Rows of faults that the run counts, and that hit a node."""
    rows = find_faults(run)
    rows = rows[run.columns.is_one_of("event", run.counted, rows)]
    return np.array([row for row in rows.tolist() if run.cell("node", row)], np.int64)


def die_late(run: DamagedRun, row: int, chance: Random) -> Edit | None:
    """The next life of the node takes some steps before this death."""
    rows = run.rows_of_node(row)
    later = rows[(rows > row) & np.isin(rows, run.steps)]
    if len(later) <= LATE:
        return None
    place = int(later[LATE - 1])
    take = np.insert(np.delete(np.arange(run.rows), row), place, row)
    return Edit(take, ((place, "t_ns", run.cell("t_ns", place)),))


def step_after_death(run: DamagedRun, row: int, chance: Random) -> Edit | None:
    """The last step of the node before its death is there again behind it."""
    rows = run.rows_of_node(row)
    before = rows[(rows < row) & np.isin(rows, run.steps)]
    return run.repeat(int(before[-1]), row) if len(before) else None


def mix_in_run(run: DamagedRun, row: int, chance: Random) -> Edit | None:
    """Some rows of another run stand here, at the times of here."""
    if run.others is None:
        return None
    begin = chance.randrange(max(run.others.num_rows - MIXED, 1))
    mixed = run.others.slice(begin, MIXED)
    names = [name for name in mixed.column_names if name not in ("run", "seq", "t_ns", "data")]
    lines: list[dict[str, Any]] = mixed.select(names).to_pylist()
    take = np.insert(np.arange(run.rows), row, np.full(len(lines), row))
    time_ns = run.cell("t_ns", row)
    cells = [(row + at, name, line[name]) for at, line in enumerate(lines) for name in names]
    return Edit(take, (*cells, *((row + at, "t_ns", time_ns) for at in range(len(lines)))))


def mix_in_protocol(run: DamagedRun, row: int, chance: Random) -> Edit | None:
    """The node takes a step of a machine of another protocol."""
    others = [fsm for name in registry.names() if name not in run.judges.protocols for fsm in catalogue.machines(name)]
    lines = [
        (fsm, name_of(line.event), line.number, str(line.dest.value))
        for fsm in others
        for line in fsm.lines
        if fsm.initial in line.sources and line.dest is not None
    ]
    if not lines:
        return None
    fsm, event, number, dest = chance.choice(lines)
    cells = {
        "machine": fsm.full_name, "event": event, "source": str(fsm.initial.value), "dest": dest, "row": number,
        "instance": f"{run.cell('instance', row)}x",
    }  # fmt: skip
    take = np.insert(np.arange(run.rows), row, row)
    return Edit(take, tuple((row, column, value) for column, value in cells.items()))


def change_cells(**cells: Any) -> Callable[[DamagedRun, int, Random], Edit | None]:
    """These cells are others."""
    return lambda run, row, chance: run.change(row, **cells)


def name_unknown_machine(run: DamagedRun, row: int, chance: Random) -> Edit | None:
    """A machine that the protocol has not."""
    protocol = run.cell("machine", row).partition("/")[0]
    return run.change(row, machine=f"{protocol}/nobody")


# -- requests to services --------------------------------------------------------------------------------------------


def find_answers(run: DamagedRun) -> np.ndarray:
    """Steps that take an answer of a service."""
    answers = {name_of(one) for fsm in run.machines.values() for one in fsm.alphabet if issubclass(one, Answer)}
    rows = run.steps[run.columns.is_one_of("event", tuple(answers), run.steps)]
    asking = np.unique(run.columns["instance"][run.columns.rows_of("ask")])
    return np.asarray(rows[np.isin(run.columns["instance"][rows], asking)])


def find_answered(run: DamagedRun) -> np.ndarray:
    """Requests whose instance takes an answer next."""
    asks, answers = run.columns.rows_of("ask"), find_answers(run)
    rows = np.sort(np.concatenate((asks, answers)))
    order = rows[np.argsort(run.columns["instance"][rows], kind="stable")]
    is_ask = np.isin(order, asks)
    same = run.columns["instance"][order][1:] == run.columns["instance"][order][:-1]
    return np.sort(order[:-1][is_ask[:-1] & ~is_ask[1:] & same])


def answer_early(run: DamagedRun, row: int, chance: Random) -> Edit | None:
    """The next answer of the instance stands before this request."""
    answers = find_answers(run)
    answers = answers[(answers > row) & (run.columns["instance"][answers] == run.columns["instance"][row])]
    return run.move(int(answers[0]), row)


def change_answer(run: DamagedRun, row: int, chance: Random) -> Edit | None:
    """Another answer of the machine."""
    fsm = run.machine(row)
    answers = [name_of(one) for one in fsm.alphabet if issubclass(one, Answer)] if fsm else []
    return run.change_to_other(row, "event", answers, chance)


def ask_another(run: DamagedRun, row: int, chance: Random) -> Edit | None:
    """Another service, or one that the trace has not."""
    return run.change_to_other(row, "peer", [*run.values("peer", run.columns.rows_of("ask")), "nobody"], chance)


def change_asked_number(run: DamagedRun, row: int, chance: Random) -> Edit | None:
    """Another number, in one of the columns that have one."""
    columns = [column for column in ("first", "last") if run.cell(column, row) >= 0]
    column = chance.choice(columns) if columns else ""
    return run.change(row, **{column: run.cell(column, row) + 1}) if column else None


KINDS: Final = (
    DamageKind("step-dest", find_known, change_states("dest")),
    DamageKind("step-source", find_known, change_states("source")),
    DamageKind("step-states", find_known, change_states("source", "dest")),
    DamageKind("step-row", find_known, change_row),
    DamageKind("step-row-of-cell", find_known, change_row_of_cell(moves=True)),
    DamageKind("step-guard", find_known, change_row_of_cell(moves=False)),
    DamageKind("step-no-row", find_known, lambda run, row, chance: run.change(row, row=-1)),
    DamageKind("step-event", find_known, change_event),
    DamageKind("step-removed", find_moves, lambda run, row, chance: run.remove(row)),
    DamageKind("idle-step-removed", find_idle_stills, lambda run, row, chance: run.remove(row)),
    DamageKind("still-step-removed", find_stills_with_traces, lambda run, row, chance: run.remove(row)),
    DamageKind("step-repeated", find_moves, lambda run, row, chance: run.repeat(row, row)),
    DamageKind("still-step-repeated", find_stills, lambda run, row, chance: run.repeat(row, row)),
    DamageKind("steps-swapped", find_pairs, swap_steps),
    DamageKind("last-half-removed", find_moves, remove_part(1 / 2, 1)),
    DamageKind("middle-removed", find_moves, remove_part(1 / 3, 2 / 3)),
    DamageKind("send-removed", find_sends, lambda run, row, chance: run.remove(row)),
    DamageKind("send-elsewhere", find_sends, put_other("node", find_sends)),
    DamageKind("send-to-another", find_sends, put_other("peer", find_sends)),
    DamageKind("deliver-removed", find_delivers, lambda run, row, chance: run.remove(row)),
    DamageKind("deliver-repeated", find_delivers, lambda run, row, chance: run.repeat(row, row)),
    DamageKind("deliver-early", find_delivers, deliver_early),
    DamageKind("deliver-elsewhere", find_delivers, deliver_elsewhere),
    DamageKind("deliver-event", find_delivers, put_other("event", find_delivers)),
    DamageKind("deliver-range", find_ranged, change_range),
    DamageKind("tell-twice", find_deliveries, lambda run, row, chance: run.repeat(row, row)),
    DamageKind("tell-again", find_deliveries, repeat_later),
    DamageKind("tell-never", find_acknowledged, lambda run, row, chance: run.remove(row)),
    DamageKind("tell-number", find_numbered, change_number),
    DamageKind("tell-key", find_keyed, change_key),
    DamageKind("tell-instance", find_deliveries, change_instance),
    DamageKind("tells-swapped", find_in_streams, swap_deliveries),
    DamageKind("ack-early", find_acknowledged, acknowledge_early),
    DamageKind(
        "publication-removed",
        lambda run: run.find_rows("publications"),
        lambda run, row, chance: run.remove(row),
    ),
    DamageKind("clock-back-once", find_later, set_back),
    DamageKind("clock-back", find_later, shift_clock(-S)),
    DamageKind("clock-ahead", find_later, shift_clock(3_600 * S)),
    DamageKind("end-late", lambda run: np.arange(max(run.rows - LAST, 0), run.rows), end_late),
    DamageKind("term-changed", find_with("epoch"), change_number_in("epoch")),
    DamageKind("grant-changed", find_with("grant"), change_number_in("grant")),
    DamageKind("faults-removed", find_faults, lambda run, row, chance: run.remove(run.columns.rows_of("fault"))),
    DamageKind(
        "crash-removed",
        rows_of("fault", event=DEATHS),
        lambda run, row, chance: run.remove(row),
    ),
    DamageKind("death-late", rows_of("fault", event=DEATHS), die_late),
    DamageKind("death-of-another", rows_of("fault", event=DEATHS), put_other("node", find_steps)),
    DamageKind("fault-elsewhere", find_hits, put_other("node", find_steps)),
    DamageKind("step-after-death", rows_of("fault", event=DEATHS), step_after_death),
    DamageKind(
        "step-elsewhere",
        find_steps,
        put_other("node", find_steps),
    ),
    DamageKind("kind-unknown", lambda run: np.arange(run.rows), change_cells(kind="note")),
    DamageKind("timer-as-step", rows_of("timer"), change_cells(kind="step")),
    DamageKind("step-as-timer", rows_of("step"), change_cells(kind="timer")),
    DamageKind("machine-unknown", find_steps, name_unknown_machine),
    DamageKind("machine-empty", find_steps, change_cells(machine="")),
    DamageKind(
        "instance-renamed",
        find_steps,
        lambda run, row, chance: run.change(row, instance=f"{run.cell('instance', row)}x"),
    ),
    DamageKind("other-run", lambda run: np.arange(run.rows), mix_in_run),
    DamageKind("other-protocol", find_steps, mix_in_protocol),
    DamageKind("ask-removed", find_answered, lambda run, row, chance: run.remove(row)),
    DamageKind("ask-repeated", find_answered, lambda run, row, chance: run.repeat(row, row)),
    DamageKind("ask-event", rows_of("ask"), put_other("event", rows_of("ask"), alike="peer")),
    DamageKind("ask-elsewhere", rows_of("ask"), ask_another),
    DamageKind("ask-key", rows_of("ask"), put_other("key", rows_of("ask"), alike="event")),
    DamageKind("ask-number", rows_of("ask"), change_asked_number),
    DamageKind("answer-removed", find_answers, lambda run, row, chance: run.remove(row)),
    DamageKind("answer-early", find_answered, answer_early),
    DamageKind("answer-of-another", find_answers, change_answer),
)
